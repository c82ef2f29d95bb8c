"""Bad recipes are named before anything is trained."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from consilience.core.errors import InvalidInput
from consilience.models import Augmentation, TorchRecipe


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epoch": 3}, "Did you mean 'epochs'"),
        ({"optimizer": "adm"}, "Known: adam, adamw, sgd"),
        ({"device": "gpu"}, "Known: auto, cpu, cuda"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"initial": "keep"}, "Known: redraw, given"),
        ({"learning_rate": 0}, "Give a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"weight_decay": -1}, "at least 0"),
        ({"gradient_clip": 0}, "gradient_clip is 0"),
        ({"batch_size": 0}, "a whole number above 0"),
        ({"batch_size": 2.5}, "a whole number"),
        ({"batch_size": True}, "a whole number"),
        ({"epochs": -1}, "at least 0"),
        ({"distill_epochs": -1}, "at least 0, or leave it out"),
        ({"early_stop": 0}, "a whole number above 0, or leave it out"),
        ({"augment": True}, "augment is True"),
        ({"augment": {"crops": 4}}, "unknown key 'crops'\n  Did you mean 'crop'"),
        ({"augment": {"crop": -1}}, "crop is -1\n  Give a whole number of at least 0"),
        ({"augment": {"flip": 1}}, "flip is 1"),
    ],
)
def test_bad_recipes(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        TorchRecipe.of(given)
    assert str(caught.value).startswith(("recipe: ", "recipe.augment: "))


def test_a_recipe_is_a_value() -> None:
    assert TorchRecipe.of({"epochs": 3, "gradient_clip": None}) == TorchRecipe(epochs=3)
    assert TorchRecipe.of(None) == TorchRecipe()
    assert TorchRecipe.of(TorchRecipe(epochs=1)) == TorchRecipe(epochs=1)
    changed = TorchRecipe(augment=Augmentation(crop=2, flip=False))
    assert TorchRecipe.of(asdict(changed)) == changed
    assert TorchRecipe.of({"augment": {}}).augment == Augmentation()

"""Make learners of a model's name, a torch module, or a function that builds a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.errors import MissingExtra
from consilience.core.learners import Learner
from consilience.core.validation.labels import Kind
from consilience.models.presets import make
from consilience.models.torch.recipe import TorchRecipe


def of_name(
    model: str, *, kind: Kind | None, recipe: TorchRecipe | Mapping[str, Any] | None
) -> Learner:
    """Make the learner that a name means; see :func:`consilience.models.make`."""
    return make(model, kind=kind, recipe=recipe)


def of_torch(
    model: Any, *, kind: Kind | None, recipe: TorchRecipe | Mapping[str, Any] | None
) -> Learner:
    """Make the learner of a torch module, or of a function ``(input_shape, n_outputs) -> Module``."""
    try:
        from consilience.models.torch.learner import TorchLearner
    except ModuleNotFoundError as error:
        raise MissingExtra("torch", extra="torch") from error
    return TorchLearner(model, kind=kind, recipe=TorchRecipe.of(recipe))

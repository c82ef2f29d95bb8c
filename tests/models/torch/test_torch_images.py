"""Layouts of images, and their random changes: by hand, by their statistics, and where they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.learners import as_learner
from consilience.models import Augmentation, make

torch = pytest.importorskip("torch")
from consilience.models.torch.images import augmented, layout_of  # noqa: E402

SHAPES = [(16,), (4, 5), (1, 4, 5), (3, 4, 5), (4, 5, 3)]
NOTHING = Augmentation(crop=0, flip=False)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def images(n: int, shape: tuple[int, ...]) -> Any:
    return torch.from_numpy(rng().uniform(0.5, 1, size=(n, *shape)))


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape: tuple[int, ...]) -> None:
    rows, layout = images(3, shape), layout_of(shape, "here")
    there = layout.images(rows)
    assert there.shape[1:] == (layout.depth, layout.height, layout.width)
    assert torch.equal(layout.rows(there), rows)
    if layout.channels_last:
        assert torch.equal(there[:, 0], rows[..., 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_change_is_none_and_every_change_keeps_the_shape(shape: tuple[int, ...]) -> None:
    rows = images(6, shape)
    assert torch.equal(augmented(rows, NOTHING, rng()), rows)
    before = rows.clone()
    for how in (Augmentation(), Augmentation(3, True, 2), Augmentation(0, False, 3)):
        changed = augmented(rows, how, rng())
        assert changed.shape == rows.shape and changed.dtype == rows.dtype
        assert changed.is_contiguous()
        assert torch.equal(changed, augmented(rows, how, rng()))
        assert not torch.equal(changed, augmented(rows, how, rng(1)))
    assert torch.equal(rows, before)


def test_crops_are_windows_of_the_padded_image() -> None:
    """All 3 × 3 windows of an image with one pixel of zeros around it, and nothing else, equally often."""
    image = torch.arange(1.0, 7.0).reshape(1, 2, 3)
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))[0]
    windows = [padded[i : i + 2, j : j + 3] for i in range(3) for j in range(3)]
    found = augmented(image.repeat(900, 1, 1), Augmentation(1, flip=False), rng())
    counts = [int((found == window).all(dim=(1, 2)).sum()) for window in windows]
    assert sum(counts) == 900 and min(counts) > 70


def test_about_half_are_mirrored_and_all_channels_alike() -> None:
    rows = images(1, (3, 4, 5)).repeat(1000, 1, 1, 1)
    found = augmented(rows, Augmentation(crop=0), rng())
    same = (found == rows).all(dim=(1, 2, 3))
    mirrored = (found == rows.flip(3)).all(dim=(1, 2, 3))
    assert bool((same ^ mirrored).all()) and 450 < int(mirrored.sum()) < 550


def test_cutout_is_a_square_that_may_hang_over_the_edge() -> None:
    """Side 2 in 4 × 5: starts from -1 to 3 and 4, so the square has 1, 2 or 4 pixels inside; the mean of them
    is (8/5) (10/6) = 8/3, since every pixel of a line is covered by 2 of its 5, or 6, starts."""
    rows = images(3000, (3, 4, 5))
    found = augmented(rows, Augmentation(0, False, cutout=2), rng())
    gone = found == 0
    assert bool((gone == gone[:, :1]).all()) and torch.equal(found[~gone], rows[~gone])
    sizes = gone[:, 0].sum(dim=(1, 2)).numpy()
    assert set(sizes.tolist()) == {1, 2, 4}
    assert abs(sizes.mean() - 8 / 3) < 0.06
    corners = gone[:, 0, 0, 0].double().mean()
    assert abs(float(corners) - 4 / 30) < 0.025


class Seen(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A linear layer that remembers what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 2)
        self.inputs: list[Any] = []

    def forward(self, rows: Any) -> Any:
        if self.training:
            self.inputs.append(rows.detach().clone())
        return self.layer(rows.flatten(1))


X, T = rng().uniform(0.5, 1, size=(8, 4, 4)).astype(np.float32), np.eye(2)[[0, 1] * 4]


def changed(phase: Any, **augment: Any) -> bool:
    """Whether a module saw other rows than it was given."""
    recipe = {"first_epochs": 1, "epochs": 1, "distill_epochs": 1, "augment": augment}
    learner: Any = as_learner(Seen(), recipe=recipe)
    learner.fit(X, T, rng=rng(), phase=phase)
    seen = torch.cat(learner.module.inputs)
    learner.module.eval()
    with torch.no_grad():  # what it predicts is of rows as they are
        plain = learner.module(torch.from_numpy(X)).double().numpy()
    np.testing.assert_array_equal(learner.logits(X), plain)
    return sorted(map(tuple, seen.flatten(1).tolist())) != sorted(
        map(tuple, X.reshape(8, -1).tolist())
    )


def test_where_images_are_changed() -> None:
    assert changed("first", crop=1) and changed("private", crop=0, cutout=2)
    assert not changed("distill", crop=1)
    assert changed("distill", crop=1, distillation=True)
    assert not changed("first", crop=0, flip=False)


def test_the_partys_own_stream_is_the_only_one() -> None:
    answers = []
    for seed in (0, 0, 1):
        learner = make("cnn", channels=(4,), recipe={"first_epochs": 2, "augment": {"crop": 2}})
        learner.fit(X, T, rng=rng(seed), phase="first")
        answers.append(learner.predict(X))
        torch.rand(1)
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()


@pytest.mark.parametrize(
    ("shape", "augment", "said"),
    [
        ((5,), {}, "no images"),
        ((8, 8), {"crop": 8}, "crop is 8, and the images are 8×8\n  Give 0 to 7"),
        ((8, 9), {"cutout": 20}, "cutout is 20, and the images are 8×9"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    shape: tuple[int, ...], augment: dict[str, Any], said: str
) -> None:
    learner = make("mlp", recipe={"augment": augment})
    learner.bind(2)
    with pytest.raises(InvalidInput, match=said):
        learner.check(np.zeros((2, *shape)))


def test_sobolev_training_refuses_it() -> None:
    from consilience.methods.functional_boosting.weak_fits import SobolevTraining

    learner = make("mlp", kind="regression", recipe={"augment": {}})
    with pytest.raises(InvalidInput, match="does not augment"):
        SobolevTraining().check(learner)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_sees_what_a_cpu_sees() -> None:
    rows, how = images(50, (3, 8, 8)), Augmentation(2, True, 3)
    there = augmented(rows.cuda(), how, rng())
    assert there.is_cuda and torch.equal(there.cpu(), augmented(rows, how, rng()))

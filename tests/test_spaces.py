"""Shared spaces: what is near, and that everybody makes the same one."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import InvalidInput
from consilience.spaces import FILTERS, picture_axes, shared_space


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def pictures(count: int, *shape: int) -> np.ndarray:
    return rng().random((count, *shape))


def test_columns_are_scaled_as_the_public_rows_say():
    """Public 0, 4 has mean 2 and standard deviation 2: 3 is 0.5 away, 99 is cut at 3; 7 never varies."""
    space = shared_space(np.array([[0.0, 7.0], [4.0, 7.0]]), rng())
    np.testing.assert_allclose(space(np.array([[3.0, 7.0], [99.0, 8.0]])), [[0.5], [3.0]])


def test_rows_that_are_all_the_same():
    with pytest.raises(InvalidInput, match="no two public rows differ"):
        shared_space(np.full((4, 2), 0.1), rng())


def test_texts_are_near_that_share_rare_words():
    public = np.array(["the cat sat", "the dog sat", "the dog ran", "the sun rose"], dtype=object)
    space = shared_space(public, rng())
    near = (space(np.array(["the cat"], dtype=object)) @ space(public).T).toarray()[0]
    assert near[0] > 2 * near[1:].max()
    assert near[1:].min() > 0  # "the" is everywhere


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 28, 28), (0, 1, 2)),
        ((2, 3, 32, 32), (0, 2, 3, 1)),
        ((2, 32, 32, 3), (0, 1, 2, 3)),
        ((2, 8, 8), None),
        ((2, 64), None),
        ((2, 5, 32, 32), None),
        ((2, 3, 4, 32), None),
    ],
)
def test_what_is_a_picture(shape, axes):
    assert picture_axes(shape) == axes


def test_a_picture_has_four_quarters_of_answers():
    shown = pictures(6, 14, 14)
    features = shared_space(shown, rng())(shown[:2])
    assert features.shape == (2, 4 * FILTERS)
    assert np.isfinite(features).all()


def test_where_channels_stand_does_not_matter():
    shown = pictures(6, 13, 15, 3)
    first = shared_space(shown, rng())(shown)
    turned = np.ascontiguousarray(shown.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(first, shared_space(turned, rng())(turned))


def test_brightness_does_not_matter():
    """Patches are compared without their mean; float32 pixels leave rounding."""
    shown = pictures(6, 14, 14)
    space = shared_space(shown, rng())
    np.testing.assert_allclose(space(shown + 1), space(shown), atol=1e-3)


def test_pictures_are_worked_on_in_pieces():
    """More rows than are worked on at a time come out as one by one, to rounding."""
    shown = pictures(230, 12, 12)
    space = shared_space(shown, rng())
    np.testing.assert_allclose(space(shown)[[0, 229]], space(shown[[0, 229]]), atol=1e-4)


def test_pictures_of_one_colour():
    with pytest.raises(InvalidInput, match="no two public rows differ"):
        shared_space(np.ones((3, 12, 12)), rng())

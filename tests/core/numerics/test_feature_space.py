"""Shared spaces: what is near, and that everybody makes the same one."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.numerics.feature_space import (
    DIRECTIONS,
    FILTERS,
    picture_axes,
    principal_directions,
    public_feature_space,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def pictures(count: int, *shape: int) -> np.ndarray:
    return rng().random((count, *shape))


def test_columns_are_scaled_as_the_public_rows_say():
    """Public 0, 4 has mean 2 and standard deviation 2: 3 is 0.5 away, 99 is cut at 3; 7 never varies."""
    space = public_feature_space(np.array([[0.0, 7.0], [4.0, 7.0]]), rng())
    np.testing.assert_allclose(space(np.array([[3.0, 7.0], [99.0, 8.0]])), [[0.5], [3.0]])


def test_a_gap_lies_at_the_public_median():
    public = np.array([[0.0, 1.0], [1.0, 5.0], [5.0, 9.0]])
    space = public_feature_space(public, np.random.default_rng(0))
    both = np.array([[np.nan, 5.0], [0.0, np.nan]]), np.array([[1.0, 5.0], [0.0, 5.0]])
    np.testing.assert_array_equal(*map(space, both))


def test_rows_that_are_all_the_same():
    with pytest.raises(InvalidInput, match="no two public rows differ"):
        public_feature_space(np.full((4, 2), 0.1), rng())


def test_texts_are_near_that_share_rare_words():
    public = np.array(["the cat sat", "the dog sat", "the dog ran", "the sun rose"], dtype=object)
    space = public_feature_space(public, rng())
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
    features = public_feature_space(shown, rng())(shown[:2])
    assert features.shape == (2, 4 * FILTERS)
    assert np.isfinite(features).all()


def test_where_channels_stand_does_not_matter():
    shown = pictures(6, 13, 15, 3)
    first = public_feature_space(shown, rng())(shown)
    turned = np.ascontiguousarray(shown.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(first, public_feature_space(turned, rng())(turned))


def test_brightness_does_not_matter():
    """Patches are compared without their mean; float32 pixels leave rounding."""
    shown = pictures(6, 14, 14)
    space = public_feature_space(shown, rng())
    np.testing.assert_allclose(space(shown + 1), space(shown), atol=1e-3)


def test_pictures_are_worked_on_in_pieces():
    """More rows than are worked on at a time come out as one by one, to rounding."""
    shown = pictures(230, 12, 12)
    space = public_feature_space(shown, rng())
    np.testing.assert_allclose(space(shown)[[0, 229]], space(shown[[0, 229]]), atol=1e-4)


def test_pictures_of_one_colour():
    with pytest.raises(InvalidInput, match="no two public rows differ"):
        public_feature_space(np.ones((3, 12, 12)), rng())


# --- principal directions ---------------------------------------------------------------------------


def coordinates(public: np.ndarray, rows: np.ndarray) -> np.ndarray:
    space = public_feature_space(public, rng())
    return principal_directions(space(public))(space(rows))


def test_the_direction_of_two_columns_that_go_together():
    """Both columns of (-1, -1), (1, 1) are -1, 1: all spread is along (1, 1)/√2, and (3, -1) has √2 there."""
    Z = coordinates(np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [3.0, -1.0]]))
    np.testing.assert_allclose(np.abs(Z[:, 0]), np.sqrt(2))
    assert Z[0, 0] == pytest.approx(Z[1, 0])


def test_columns_of_a_table_have_units_of_their_own():
    """In metres or millimetres, a row is in the same place."""
    X = rng().normal(size=(20, 3))
    rows, units = X[:5] + 0.1, np.array([1, 1000, 0.01])
    lengths = np.linalg.norm(coordinates(X, rows), axis=1)
    np.testing.assert_allclose(
        lengths, np.linalg.norm(coordinates(X * units, rows * units), axis=1)
    )


def test_distances_are_those_of_the_space_where_no_direction_is_left_out():
    X = rng().normal(size=(20, 2, 2))
    features = public_feature_space(X, rng())(X)
    both = (coordinates(X, X), features)
    distances = [np.linalg.norm(rows[1:] - rows[:-1], axis=1) for rows in both]
    np.testing.assert_allclose(*distances)


def test_directions_are_few():
    X = rng().normal(size=(100, 8, 8))
    assert coordinates(X, X).shape == (100, DIRECTIONS)
    assert coordinates(X[:2], X).shape == (100, 2)


def test_texts_lie_near_those_of_the_same_words():
    texts = np.array(["the cat sat", "a cat sat down", "shares fell sharply", "shares rose"])
    Z = coordinates(texts, np.array(["cat sat", "shares", "word unknown"]))
    assert Z[0] @ Z[1] == pytest.approx(0, abs=1e-9)
    assert np.linalg.norm(Z[:2], axis=1).min() > 0.5
    np.testing.assert_allclose(Z[2], 0)


def test_words_that_public_texts_do_not_share_do_not_count():
    """Else public texts, all of whose words are known, would lie apart from private ones."""
    texts = np.array(["the cat sat", "a cat sat down", "shares fell sharply", "shares rose"])
    Z = coordinates(texts, np.array(["cat sat", "yesterday cat sat around", "cat sat sharply"]))
    np.testing.assert_allclose(Z[1:], Z[[0, 0]], atol=1e-9)


def test_texts_that_share_no_word():
    with pytest.raises(InvalidInput, match="no two public texts share a word"):
        coordinates(np.array(["cat sat", "shares rose"]), np.array(["cat"]))


def test_texts_without_words():
    with pytest.raises(InvalidInput, match="no words"):
        public_feature_space(np.array(["!", "?"]), rng())


def test_an_encoders_features_are_scaled_as_the_public_rows_say():
    """Lengths 1 and 3 of the public texts have mean 2 and standard deviation 1; 9 is cut at 3."""
    space = public_feature_space(np.array(["a", "bbb"]), rng(), Lengths())
    np.testing.assert_array_equal(space.public, [[-1], [1]])
    np.testing.assert_array_equal(space(np.array(["cc", "d" * 9])), [[0], [3]])


class Lengths:
    key = "lengths"

    def __call__(self, X):
        return np.array([[len(text)] for text in X], np.float32)


@pytest.mark.parametrize(
    "wrong",
    [lambda X: X, lambda X: np.ones(len(X)), lambda X: np.ones((1, 1)), lambda X: [[np.nan]]],
)
def test_an_encoder_that_makes_no_features(wrong):
    with pytest.raises(InvalidInput, match=r"encoder: of . rows it made"):
        public_feature_space(np.array(["a", "bbb"]), rng(), wrong)

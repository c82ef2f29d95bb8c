"""Inversion: a row of which the party alone is sure is found where answers say where rows lie."""

import numpy as np

from consilience.privacy.attacks.inversion import inverted, nearest_rows


def test_a_row_is_rebuilt_where_answers_lead_to_it_and_not_where_they_say_nothing() -> None:
    """Rows on a line; the party is the surer of the second class the further right one lies."""
    public = np.stack([np.linspace(-1, 1, 81), np.zeros(81)], axis=1)
    sure = 1 / (1 + np.exp(-4 * public[:, 0]))
    own, others = np.stack([1 - sure, sure], axis=1), np.full((81, 2), 0.5)
    right, left = inverted(public, own, others, 1), inverted(public, own, others, 0)
    assert right[0] > 0.8 and left[0] < -0.8
    nothing = inverted(public, others, others, 1)
    np.testing.assert_allclose(nothing, public.mean(axis=0), atol=1e-6)


def test_a_public_row_beside_the_private_one_is_what_is_compared_with() -> None:
    private, public = np.array([[0.0, 1.0], [9.0, 9.0]]), np.array([[1.0, 1.0], [-1.0, -1.0]])
    found, beside = nearest_rows(np.array([0.0, 3.0]), private, public)
    assert (found, beside) == (2 / 2**0.5, 1 / 2**0.5)

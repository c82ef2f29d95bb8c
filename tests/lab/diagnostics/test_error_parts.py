"""Lemma 4.1 of Kovalchuk et al.: the parts by hand, that they add up, and when the bound holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.lab.diagnostics.error_parts import teacher_error


def test_by_hand():
    """Two clients at two rows of one x, p* = 0: the first errs by 1 and 3, the second by 2 and −2.

    b = 2 and 0; centred −1, 1 and 2, −2. With weights ½ the bias is 1, variances ¼ (1 + 4), correlations
    2 · ¼ · (−2); the errors are 1½ and ½.
    """
    found = teacher_error([[[1], [3]], [[2], [-2]]], np.full((2, 2), 0.5), [[0], [0]], [7, 7])
    assert (found.bias, found.variance, found.correlation) == (1.0, 1.25, -1.0)
    assert found.mse == (2.25 + 0.25) / 2 and found.cross == pytest.approx(0)
    assert found.concentration == 0.5
    assert found.bound == 1 + 4 * 0.5  # σ² = 4, ρ = 0


def test_all_weight_on_one():
    """Its own error: no averaging, Σ w² = 1."""
    rng = np.random.default_rng(0)
    p, truth = rng.random((3, 12, 4)), rng.random((12, 4))
    weights = np.zeros((3, 12))
    weights[1] = 1
    found = teacher_error(p, weights, truth, np.arange(12) % 3)
    assert found.mse == pytest.approx(np.square(p[1] - truth).sum(axis=1).mean())
    assert found.concentration == 1 and found.correlation == pytest.approx(0)
    assert found.mse <= found.bound


def draws(seed: int, rows: int = 30, groups: int = 4) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    code = rng.integers(groups, size=rows)
    p, truth = rng.random((5, rows, 3)), rng.random((groups, 3))[code]
    return rng, code, p, truth


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_parts_add_up_and_the_bound_holds(seed: int):
    """The identity always; the bound for weights of groups, under which the cross term is 0."""
    rng, code, p, truth = draws(seed)
    for w in (rng.dirichlet(np.ones(5), 30).T, rng.dirichlet(np.ones(5), 4).T[:, code]):
        found = teacher_error(p, w, truth, code)
        parts = found.bias + found.variance + found.correlation + found.cross
        assert found.mse == pytest.approx(parts)
        assert found.concentration + 1e-12 >= 0.2 and found.concentration <= 1
    assert found.cross == pytest.approx(0, abs=1e-12)
    assert found.mse <= found.bound * (1 + 1e-12)


def test_a_rule_that_knows_trades_concentration_for_bias():
    """Client c knows group c alone and is at odds elsewhere: AVG is biased, its weights are not."""
    code = np.repeat(np.arange(3), 10)
    truth = np.eye(3)[code]
    p = np.stack(
        [np.where((code == c)[:, None], truth, np.roll(truth, 1, axis=1)) for c in range(3)]
    )
    mean = teacher_error(p, np.full((3, 30), 1 / 3), truth, code)
    knows = teacher_error(p, (code == np.arange(3)[:, None]).astype(float), truth, code)
    assert mean.bias == pytest.approx(2 * (2 / 3) ** 2) and knows.mse == 0
    assert mean.concentration == pytest.approx(1 / 3) and knows.concentration == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.ones((2, 3)), np.ones((2, 3)), np.ones((3, 1)), np.ones(3)), "outputs have shape"),
        ((np.ones((2, 3, 1)), np.ones((2, 3)), np.ones((3, 1)), np.ones(3)), "must sum to 1"),
        ((np.ones((2, 3, 1)), np.full((2, 3), 0.5), np.ones((3, 1)), np.ones(2)), "groups have"),
    ],
)
def test_bad_input(arguments: Any, said: str):
    with pytest.raises(ValueError, match=said):
        teacher_error(*arguments)

"""Parties whose densities are known: the pooled posterior, and which rules of the library are it."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.aggregation import avg, density_ratio
from consilience.core.aggregation.base import Stack
from consilience.core.messages.scores import DensityRatios, RowCount
from consilience.lab.experiments.oracles import class_holders
from consilience.methods.comparison_rules.rivals import fedgo, ratios_alone
from consilience.methods.comparison_rules.scores import LogOdds
from consilience_papers.theory import GaussianParties

PARTIES = GaussianParties(
    means=np.array([[[0.0, 0], [2, 0]], [[0, 2], [2, 2]], [[1, 4], [3, 1]]]),
    counts=np.array([[60.0, 20], [10, 80], [5, 200]]),
)


def test_by_hand() -> None:
    """Party a has 3 rows of class 0 at 0, b 1 of class 1 at 2: at 1 both are as near, at 0 e² apart."""
    two = GaussianParties(np.array([[[0.0], [0]], [[2], [2]]]), np.array([[3.0, 0], [0, 1]]))
    found = two.bayes(np.array([[1.0], [0.0]]))
    np.testing.assert_allclose(found[:, 1], [1 / 4, 1 / (1 + 3 * np.exp(2))])


def taught(rule, X: np.ndarray) -> np.ndarray:
    """The teacher that a rule makes of exact models and exact ratios."""
    found = PARTIES.densities(X).transpose(0, 2, 1)
    posteriors = found / found.sum(axis=2, keepdims=True)
    found = found / found.sum(axis=(0, 2))[:, None]  # as if the public rows were pooled ones
    counts = PARTIES.counts.sum(axis=1)
    further = {
        DensityRatios: found,
        RowCount: counts,
        LogOdds: np.log(PARTIES.odds(X) / counts[:, None]),
    }
    return rule.rule(Stack(("a", "b", "c"), posteriors, further))[0]


def test_the_posterior_has_the_least_log_loss_and_exact_odds_give_it() -> None:
    """FedGO's weights and ratios alone are it; the mean, ratio times model and a class's holders are not."""
    X, y = PARTIES.draw(np.random.default_rng(0), 20_000)
    best = PARTIES.bayes(X)
    for rule in (fedgo(), ratios_alone()):
        np.testing.assert_allclose(taught(rule, X), best, atol=0.02)
    holders = class_holders(y, {"a": [0, 1], "b": [0, 1], "c": [1]})

    def loss(said: np.ndarray) -> float:
        return float(-np.log(said[np.arange(len(y)), y]).mean())

    for rule in (avg(), density_ratio(), holders):
        assert loss(taught(rule, X)) > loss(best) + 0.005


def test_rows_are_drawn_as_the_counts_say() -> None:
    X, y = PARTIES.draw(np.random.default_rng(0), 20_000)
    assert X.shape == (20_000, 2)
    assert y.mean() == pytest.approx(300 / 375, abs=0.01)

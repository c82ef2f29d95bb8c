"""Conjugate distillation by hand, against the recurrence that agents run, and its bound."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from consilience_papers.theory import (
    conjugate_distillation,
    conjugate_rate,
    ensembled_distillation,
    exchange_of,
)
from helpers.exchanging_agents import by_hand, data, dot, toy


def test_two_rounds_by_hand():
    """P = diag(2, 2, 3, 3); the preconditioned system has two eigenvalues, 1 ± 1/√3, so two rounds do.

    z = P⁻¹y = (6, 3, 2, 6), rᵀz = 210, (I + L) z = (20, 2, 15, 21), zᵀ(I + L)z = 282, and the first round
    is 210/282 = 35/47 of z, that is of the labels y.
    """
    found = conjugate_distillation(by_hand(), 3)
    y, central = np.array([12, 6, 6, 18]), [6, 15, -4.5, 22.5]
    np.testing.assert_allclose(found, [np.zeros(4), 35 / 47 * y, central, central])
    root = ((1 + 3**-0.5) / (1 - 3**-0.5)) ** 0.5
    assert conjugate_rate(by_hand()) == pytest.approx((root - 1) / (root + 1))


def recurrence(exchange, rounds):
    """Preconditioned conjugate gradients as agents run them, one column of labels."""
    L, c = exchange.similarities, exchange.regularization
    fit = exchange.local_power(-1)
    beta, r = np.zeros(len(L)), exchange.labels
    z = p = fit @ r
    yield beta
    for _ in range(rounds):
        told = c * p + L @ p
        step = r @ z / (p @ told)
        beta, remaining = beta + step * p, r - step * told
        fitted = fit @ remaining
        p = fitted + remaining @ fitted / (r @ z) * p
        r, z = remaining, fitted
        yield beta


@pytest.mark.parametrize("sizes", [(5, 4), (4, 3, 2)])
def test_the_iterates_are_those_of_the_recurrence(sizes):
    agents, _ = data(*sizes)
    exchange = exchange_of(laplacian_kernel, agents, regularization=0.05)
    found = conjugate_distillation(exchange, 6) @ exchange.local_power(-1)
    np.testing.assert_allclose(found, list(recurrence(exchange, 6)), rtol=1e-6, atol=1e-9)


def test_outputs_go_their_own_ways():
    agents, _ = data(4, 3, outputs=2)
    found = conjugate_distillation(exchange_of(rbf_kernel, agents, regularization=0.1), 3)
    assert found.shape == (4, 7, 2)
    for column in range(2):
        single = [(X, y[:, column]) for X, y in agents]
        alone = conjugate_distillation(exchange_of(rbf_kernel, single, regularization=0.1), 3)
        np.testing.assert_allclose(found[:, :, column], alone, atol=1e-12)


@pytest.mark.parametrize("sizes", [(5, 4), (4, 3, 2)])
def test_it_ends_at_the_central_model_and_stays_within_the_bound(sizes):
    agents, new = data(*sizes)
    exchange = exchange_of(laplacian_kernel, agents, regularization=1e-3)
    labels = conjugate_distillation(exchange, 12)
    np.testing.assert_allclose(exchange.ensemble(labels[-1])(new), exchange.central()(new))
    system = exchange.similarities + 1e-3 * np.eye(9)
    errors = labels @ exchange.local_power(-1) - np.linalg.solve(system, exchange.labels)
    energy = np.sqrt(np.einsum("ti,ij,tj->t", errors, system, errors))
    bound = 2 * conjugate_rate(exchange) ** np.arange(13) * energy[0]
    assert (energy <= bound + 1e-8 * energy[0]).all()
    assert (np.diff(energy[:8]) < 0).all()


def test_the_rate_of_two_agents_follows_from_that_of_the_ensemble():
    agents, _ = data(4, 6)
    exchange = exchange_of(rbf_kernel, agents, regularization=0.01)
    rate = ensembled_distillation(exchange).rate
    assert conjugate_rate(exchange) == pytest.approx(rate / (1 + (1 - rate**2) ** 0.5))


@pytest.mark.parametrize(
    ("c", "conjugate", "ensembled"), [(1e-4, 26, 486), (1e-3, 12, 56), (1e-2, 5, 10)]
)
def test_rounds_on_the_toy_problem(c, conjugate, ensembled):
    """'Different data': rounds until the predictions at all rows are within 0.1 % of the central model's."""
    exchange = exchange_of(dot, toy(different=True), regularization=c)
    A = np.concatenate(exchange.inputs)
    central = exchange.central()(A)

    def far(labels):
        return np.linalg.norm(exchange.ensemble(labels)(A) - central) > 1e-3 * np.linalg.norm(
            central
        )

    found = conjugate_distillation(exchange, conjugate)
    assert far(found[conjugate - 1])
    assert not far(found[conjugate])
    rounds = ensembled_distillation(exchange)
    assert far(rounds.targets(ensembled - 2))  # this many less one models of each agent
    assert not far(rounds.targets(ensembled - 1))


def test_what_has_no_conjugate_gradients():
    agents, _ = data(2, 3)
    with pytest.raises(ValueError, match="not symmetric"):
        conjugate_distillation(exchange_of((rbf_kernel, dot), agents, regularization=0.1), 1)
    with pytest.raises(ValueError, match="regularization is 0"):
        conjugate_rate(exchange_of(rbf_kernel, agents, regularization=0.0))

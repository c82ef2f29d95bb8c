"""How many rounds Anderson acceleration saves on Dataset 3 of Park et al. 2023, de-regularised.

Kernel ridge regressions are linear in what they are taught, so that a round is an affine map of the
consensus: here it is built densely and iterated, without parties.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from consilience.core.aggregation import ConsensusUpdate, Deregularization, anderson, replace
from consilience.core.numerics.kernels import wendland

CLIENTS, ROWS, PUBLIC, PENALTY = 20, 10, 190, 1e-3


@cache
def dataset_3():
    """What every client answers, alone and to a consensus v: ``M_j v + b_j``; and the fixed point."""
    rng = np.random.default_rng(0)
    X = rng.random((CLIENTS, ROWS, 3))
    r = np.linalg.norm(X, axis=2)
    y = np.where(r <= 1, (1 - r) ** 6 * (35 * r**2 + 18 * r + 3), 0)
    y += 0.44 * rng.normal(size=y.shape)
    public, alpha = rng.random((PUBLIC, 3)), 1 / CLIENTS
    lifted = Deregularization("wendland", PENALTY).of(public)(np.eye(PUBLIC))
    spread = np.repeat([ROWS / alpha, PUBLIC / (1 - alpha)], [ROWS, PUBLIC])
    alone, slopes, shifts = [], [], []
    for x, values in zip(X, y, strict=True):
        K = wendland(x, x) + ROWS * PENALTY * np.eye(ROWS)
        alone.append(wendland(public, x) @ np.linalg.solve(K, values))
        both = np.concatenate([x, public])
        K = wendland(both, both) + PENALTY * np.diag(spread)
        smoother = np.linalg.solve(K, wendland(both, public)).T
        slopes.append(smoother[:, ROWS:] @ lifted)
        shifts.append(smoother[:, :ROWS] @ values)
    M, b = np.mean(slopes, axis=0), np.mean(shifts, axis=0)
    return (
        np.array(alone),
        np.array(slopes),
        np.array(shifts),
        np.linalg.solve(np.eye(PUBLIC) - M, b),
    )


def distances(step: ConsensusUpdate, rounds: int, chosen: int = CLIENTS) -> list[float]:
    """Distance to the fixed point after every round of Algorithm 2, or 3 with ``chosen`` clients."""
    alone, slopes, shifts, limit = dataset_3()
    rng, said, path = np.random.default_rng(1), alone.copy(), []
    memory, previous = step.init(), None
    for _ in range(rounds):
        clients = rng.choice(CLIENTS, chosen, replace=False)
        proposal = said[clients].mean(axis=0)[:, None]
        previous, memory = step.update(proposal, previous, memory)
        said[clients] = slopes[clients] @ previous[:, 0] + shifts[clients]
        path.append(float(np.linalg.norm(previous[:, 0] - limit) / np.linalg.norm(limit)))
    return path


def rounds_to(distance: float, path: list[float]) -> int:
    """The first round at that distance, counted from 1."""
    return int(np.argmax(np.array(path) <= distance)) + 1


def test_hundreds_of_rounds_become_ten():
    plain = distances(replace(), 600)
    assert rounds_to(1e-2, plain) == pytest.approx(353, abs=5)
    assert rounds_to(1e-3, plain) == pytest.approx(558, abs=5)
    fast = distances(anderson(), 60)
    assert 1 < rounds_to(1e-2, fast) <= 12
    assert 1 < rounds_to(1e-3, fast) <= 20
    assert fast[-1] < 1e-8


def test_the_safeguard_stays_quiet_where_the_map_is_affine():
    assert distances(anderson(growth=float("inf")), 30) == distances(anderson(), 30)


@pytest.mark.parametrize("chosen", [1, 5, 15])
def test_with_other_clients_every_round_steps_are_nearly_plain(chosen):
    """What differs between proposals is who was asked: there is little to learn, and little is lost."""
    plain, fast = (distances(step, 300, chosen)[-50:] for step in (replace(), anderson()))
    assert np.mean(fast) < 2 * np.mean(plain)


def test_without_its_safeguard_it_would_be_misled():
    """Five of twenty clients are missing in every round."""
    guarded = distances(anderson(), 300, chosen=15)[-50:]
    misled = distances(anderson(growth=float("inf")), 300, chosen=15)[-50:]
    assert np.mean(guarded) < 0.5 * np.mean(misled)

"""Agents that exchange models, for tests: two by hand, some by chance, the paper's toy problem."""

from __future__ import annotations

import numpy as np

from consilience_papers.theory import exchange_of


def dot(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return X @ Z.T


HAND = [
    ([[2.0, 0.0], [0.0, 2.0]], [12.0, 6.0]),
    ([[2.0, 2.0], [2.0, -2.0]], [6.0, 18.0]),
]
"""Two agents with two points each. With the dot product, N = 4, c = 1 and H = (1 1; 1 −1), H² = 2I:

    L_11 = I, L_22 = 2I, L_12 = L_21 = H,
    T_11 = I/2, T_22 = 2I/3, T_21 = H/2, T_12 = H/3, T_12 T_21 = I/3."""


def by_hand():
    return exchange_of(dot, HAND, regularization=1.0)


def data(*sizes: int, columns: int = 2, outputs: int | None = None, seed: int = 0):
    rng = np.random.default_rng(seed)
    width = () if outputs is None else (outputs,)
    agents = [(rng.random((n, columns)), rng.normal(size=(n, *width))) for n in sizes]
    return agents, rng.random((4, columns))


def toy(different: bool):
    """The paper's toy problem: 150 equations in 100 unknowns, 90 of them with agent 1."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(150, 100)) / 10
    b = A @ rng.normal(size=100)
    order = np.argsort(b) if different else rng.permutation(150)
    A, b = A[order], b[order]
    return [(A[:90], b[:90]), (A[90:], b[90:])]

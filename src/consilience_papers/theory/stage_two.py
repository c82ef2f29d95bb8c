"""Distance of distillation from the optimum: Kovalchuk et al. 2026, Corollary 4.4, where all is known.

The student is a softmax regression on public rows x_1 … x_n whose labels follow p*(x), with the objective

    F(W) = (1/n) Σ_i CE(p*(x_i), softmax(x_i W)) + (μ/2) ‖W‖²,

which is L-smooth with ``L = μ + λ_max(XᵀX/n)/2`` and satisfies the Polyak–Łojasiewicz inequality with μ.
Stage 2 descends the same with a teacher p_A in the place of p*, so that its gradients are off by

    b = −(1/n) Σ_i x_i (p_A(x_i) − p*(x_i))ᵀ,      ‖b‖² ≤ S² (1/n) Σ_i ‖p_A(x_i) − p*(x_i)‖²,

S² the mean of ‖x_i‖² (Lemma C.8; here the same at every W). With steps η ≤ 1/L the recursion gives

    F(W_t) − F*  ≤  (1 − ημ)^t (F(W_0) − F*)  +  ‖b‖² / (2μ):

a linear rate, down to a floor that shrinks with the teacher's error. Gradients are those of all rows: the
noise of batches adds another floor, which is not the teacher's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from consilience_papers.theory.expansion import Array, positive


@dataclass(frozen=True)
class StageTwo:
    """Distance of a student from the optimum, step by step, and the bounds of the theory.

    Attributes:
        gaps: F(W_t) − F*, shape ``(steps + 1,)``.
        error: the teacher's, (1/n) Σ ‖p_A − p*‖².
        score: S², the mean of ‖x‖².
        bias: ‖b‖², at most ``score * error``.
        rate: 1 − ημ.
        floor: ‖b‖² / (2μ).
    """

    gaps: Array
    error: float
    score: float
    bias: float
    rate: float
    floor: float

    @property
    def bound(self) -> Array:
        """The corollary's, shape ``(steps + 1,)``."""
        return np.asarray(self.gaps[0] * self.rate ** np.arange(len(self.gaps)) + self.floor)


def stage_two(
    X: ArrayLike,
    reference: ArrayLike,
    teacher: ArrayLike,
    *,
    regularization: float,
    steps: int,
) -> StageTwo:
    """Distil a teacher into a softmax regression, from 0, with steps of ``1/L``.

    Args:
        X: public rows, shape ``(n, d)``.
        reference: p*, shape ``(n, K)``.
        teacher: p_A, shape ``(n, K)``.
        regularization: μ > 0.
        steps: how many.

    Raises:
        ValueError: shapes that do not go together, or values out of range.

    Source:
        Kovalchuk et al. 2026, Corollary 4.4 and Theorem C.10.

    Example:
        >>> X, truth = np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> found = stage_two(X, truth, truth, regularization=0.1, steps=200)
        >>> bool(found.floor == 0 and found.gaps[-1] < 1e-12)
        True
    """
    x, truth, target = (np.asarray(a, dtype=np.float64) for a in (X, reference, teacher))
    if x.ndim != 2 or truth.shape != target.shape or len(truth) != len(x):
        raise ValueError(
            f"rows have shape {x.shape}, the reference {truth.shape}, the teacher {target.shape}; give "
            "(n, d), (n, K), (n, K)"
        )
    if not all(
        (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1, atol=1e-6)
        for rows in (truth, target)
    ):
        raise ValueError("the rows of the reference and of the teacher must be distributions")
    positive(regularization, "regularization")
    if steps < 1:
        raise ValueError(f"{steps} steps; there must be at least 1")
    n, shape = len(x), (x.shape[1], truth.shape[1])

    def gradient(W: Array, labels: Array) -> Array:
        return np.asarray(x.T @ (softmax(x @ W, axis=1) - labels) / n + regularization * W)

    def objective(W: Array) -> float:
        loss = -(truth * log_softmax(x @ W, axis=1)).sum() / n
        return float(loss + regularization / 2 * (W**2).sum())

    best = minimize(
        lambda flat: objective(flat.reshape(shape)),
        np.zeros(shape).ravel(),
        jac=lambda flat: gradient(flat.reshape(shape), truth).ravel(),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    step = 1 / (regularization + float(np.linalg.eigvalsh(x.T @ x / n)[-1]) / 2)
    W = np.zeros(shape)
    values = [objective(W)]
    for _ in range(steps):
        W = W - step * gradient(W, target)
        values.append(objective(W))
    bias = float(((x.T @ (target - truth) / n) ** 2).sum())
    return StageTwo(
        gaps=np.maximum(np.array(values) - best.fun, 0),
        error=float(((target - truth) ** 2).sum(axis=1).mean()),
        score=float((x**2).sum(axis=1).mean()),
        bias=bias,
        rate=1 - step * regularization,
        floor=bias / (2 * regularization),
    )

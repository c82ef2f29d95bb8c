"""Parts of the error of a teacher: Lemma 4.1 of Kovalchuk et al. 2026, measured.

A teacher Σ_c w_c(x) p_c(x) of m clients errs at x by Σ_c w_c(x) e_c(x), e_c = p_c − p*. With b_c = E[e_c | x]
and the centred ẽ_c = e_c − b_c the lemma bounds the mean squared error by

    E ‖Σ w_c e_c‖²  ≤  E ‖Σ w_c b_c‖²  +  σ² (ρ + (1 − ρ) E Σ w_c²),

if E[‖ẽ_c‖² | x] ≤ σ² and E[⟨ẽ_c, ẽ_d⟩ | x] ≤ ρσ² for c ≠ d: a weighted bias, which a good rule makes small,
and a term that grows with how much the weights are concentrated.

Given x, the clients' draws of data and their training are random. If training was repeated, the expectation
is estimated over the repetitions for one input. If it was not, the rows of one class serve as repetitions, so
that b_c is the mean error of a client on a class.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience.core.messages.replies import Predictions
from consilience.core.protocols import Round
from consilience.core.validation.arrays import Array


@dataclass(frozen=True)
class TeacherError:
    """The mean squared error of a teacher in parts; ``mse = bias + variance + correlation + cross``.

    Attributes:
        mse: E ‖Σ w_c e_c‖².
        bias: E ‖Σ w_c b_c‖².
        variance: E Σ w_c² ‖ẽ_c‖².
        correlation: E Σ_{c≠d} w_c w_d ⟨ẽ_c, ẽ_d⟩.
        cross: 2 E ⟨Σ w_c b_c, Σ w_c ẽ_c⟩, which is 0 for weights constant within each group.
        concentration: E Σ w_c², from 1/m for equal weights to 1 for one client alone.
        bound: the lemma's, with the smallest σ² and ρ ≥ 0 that fit the groups; it holds for ``mse − cross``
            if weights are constant within each group.
    """

    mse: float
    bias: float
    variance: float
    correlation: float
    cross: float
    concentration: float
    bound: float


def teacher_error(
    outputs: ArrayLike, weights: ArrayLike, reference: ArrayLike, groups: ArrayLike
) -> TeacherError:
    """The parts of a teacher's mean squared error.

    Args:
        outputs: p_c, shape ``(m, n, K)``.
        weights: w_c, shape ``(m, n)``, whose columns sum to 1.
        reference: p*, shape ``(n, K)``.
        groups: shape ``(n,)``: rows of one group are draws of one x.

    Raises:
        ValueError: shapes that do not go together, or weights that do not sum to 1.

    Source:
        Kovalchuk et al. 2026, Lemma 4.1 and Assumption C.1.

    Example:
        >>> said = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
        >>> truth = np.array([[1.0, 0.0], [1.0, 0.0]])
        >>> found = teacher_error(said, np.full((2, 2), 0.5), truth, [0, 0])
        >>> found.mse, found.bias, found.variance, found.concentration
        (0.25, 0.125, 0.125, 0.5)
    """
    p, w = np.asarray(outputs, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    truth, group = np.asarray(reference, dtype=np.float64), np.asarray(groups)
    if p.ndim != 3 or w.shape != p.shape[:2] or truth.shape != p.shape[1:]:
        raise ValueError(
            f"outputs have shape {p.shape}, weights {w.shape}, the reference {truth.shape}; give (m, n, K), "
            "(m, n), (n, K)"
        )
    if group.shape != w.shape[1:]:
        raise ValueError(f"groups have shape {group.shape}; give ({w.shape[1]},)")
    if not np.allclose(w.sum(axis=0), 1):
        raise ValueError("the weights of a row must sum to 1")
    errors = p - truth
    _, codes = np.unique(group, return_inverse=True)
    counts = np.bincount(codes).astype(np.float64)
    means = _by_group(errors, codes, counts)
    centred = errors - means[:, codes]
    biased, scattered = (np.einsum("mn,mnk->nk", w, part) for part in (means[:, codes], centred))
    moments = _by_group(np.einsum("mnk,lnk->mln", centred, centred)[..., None], codes, counts)[
        ..., 0
    ]
    squares = np.einsum("mmg->mg", moments)
    spread = float(squares.max())
    apart = moments[~np.eye(len(p), dtype=bool)]
    together = float(np.clip(apart.max(), 0, None)) / spread if apart.size and spread > 0 else 0.0
    concentration = float(np.square(w).sum(axis=0).mean())
    bias = float(np.square(biased).sum(axis=1).mean())
    variance = float((np.square(w) * np.square(centred).sum(axis=2)).sum(axis=0).mean())
    return TeacherError(
        mse=float(np.square(biased + scattered).sum(axis=1).mean()),
        bias=bias,
        variance=variance,
        correlation=float(np.square(scattered).sum(axis=1).mean()) - variance,
        cross=float(2 * (biased * scattered).sum(axis=1).mean()),
        concentration=concentration,
        bound=bias + spread * (together + (1 - together) * concentration),
    )


def _by_group(values: Array, codes: Array, counts: Array) -> Array:
    """Means over the rows of each group: ``(…, n, k)`` to ``(…, groups, k)``."""
    share = (codes == np.arange(len(counts))[:, None]) / counts[:, None]
    return np.asarray(share @ values)


def teacher_parts(round: Round, labels: Array, classes: tuple[str, ...]) -> dict[str, float]:
    """Split the squared error of a round's weighted mean of probabilities into its parts, by name.

    The reference is the true class, and rows of one class serve as repetitions: Lemma 4.1 of Kovalchuk et
    al. 2026 (:func:`teacher_error`).

    Args:
        round: the round, with its teacher and the parties' predictions.
        labels: true classes of the public rows, shape ``(n_public,)``.
        classes: names of the classes, in the order of the outputs.

    Returns:
        Part to value. Empty if the teacher is not a weighted mean of probabilities, for example if the rule
        weights classes, or after a consensus step.
    """
    teacher = round.teacher
    said = [] if round.replies is None else round.replies.of(Predictions)
    if teacher is None or teacher.weights is None or not said or said[0].kind != "probabilities":
        return {}
    counted = np.isclose(teacher.weights.sum(axis=0), 1)  # others are not taught
    if not counted.any():
        return {}
    weights, truth = teacher.weights[:, counted], labels[counted]
    outputs = np.stack([one.values[counted] for one in said])
    mean = np.einsum("mn,mnk->nk", weights, outputs)
    if not np.allclose(mean, teacher.values[counted], atol=1e-4):
        return {}
    return asdict(teacher_error(outputs, weights, np.asarray(classes) == truth[:, None], truth))

"""Byzantine-robust rules for class probabilities, which tolerate some wrong or malicious parties.

m parties, n public rows, K classes; ``p_c(x)`` is party c's probability vector on row x, f the number of
wrong parties that a rule has to tolerate. The error bounds of these rules grow with the distance between
honest parties (Allouah et al. 2023). If every party has learnt different classes, honest answers are spread
over the whole simplex, and no rule on answers alone distinguishes a specialist from a malicious party. Secret
labels make this possible (:class:`~consilience.core.aggregation.guard.Guard`).

Deviations
    - All rules treat each public row separately, except the losses of exp-guard; the papers aggregate
      gradients.
    - Cronus drops ``ceil(f / 2)`` parties twice, and f defaults to the largest number below half.
    - Centred clipping starts at the coordinate-wise median, and later at its teacher of the previous round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from consilience.core.aggregation.base import (
    Aggregator,
    Combined,
    Stack,
    plain_mean,
    weighted_mean_of,
)
from consilience.core.aggregation.classification import coordinate_median, trimmed_mean
from consilience.core.errors import InvalidInput
from consilience.core.validation.numbers import check_choice, check_number

__all__ = ["geometric_median", "cronus", "nearest_neighbours", "centred_clipping", "exp_guard"]
"""Rules that a configuration can name; :mod:`consilience.core.aggregation` re-exports them."""

_NEAREST, _ENOUGH, _MOST_STEPS = 1e-9, 1e-8, 100
"""Weiszfeld's iteration: smallest divisor, step size at convergence, and largest number of steps."""

_TIE = 1e-6
"""Relative difference below which directions, or parties, count as equally far."""

_CLIPPINGS = 3
"""Steps of centred clipping in a round."""


def geometric_median() -> Aggregator:
    """Aggregate by the point of least summed distance to all parties' probabilities, row by row (RFA).

    ``argmin_z sum_c |p_c(x) - z|_2`` by Weiszfeld's iteration from the mean, a convex combination of the
    answers. It tolerates fewer than half of the parties, provided that the others agree. Pillutla, Kakade &
    Harchaoui 2022 (RFA); for soft labels Roux, Zimmer & Pokutta 2025.
    """
    return Aggregator("geometric-median", _weiszfeld)


def cronus(tolerates: int | None = None) -> Aggregator:
    """Average the parties that remain after dropping the furthest along the main direction, twice (Cronus).

    Row by row: a party's score is ``|(p_c - mean) · v|``, with v the first eigenvector of the parties'
    covariance. The ``ceil(f / 2)`` parties with the largest scores are dropped, including ties; this is done
    twice. Chang et al. 2019 (Cronus).

    Args:
        tolerates: f, the number of parties that may be wrong; ``None`` uses the largest number below half.
    """
    _check_tolerates(tolerates, "cronus")

    def rule(stack: Stack) -> Combined:
        m, n, _ = stack.outputs.shape
        kept = np.ones((m, n), dtype=bool)
        dropped = math.ceil(_tolerated(tolerates, m, "cronus") / 2)
        for _ in range(2 if dropped else 0):
            count = kept.sum(axis=0)[:, None, None]
            rows = stack.outputs.transpose(1, 0, 2)  # (n, m, K)
            centred = np.where(kept.T[:, :, None], rows, 0)
            centred = np.where(
                kept.T[:, :, None], rows - centred.sum(axis=1, keepdims=True) / count, 0
            )
            _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
            main = sizes >= (1 - _TIE) * sizes[:, :1]  # all first directions, where several tie
            along = np.einsum("nmk,njk->mnj", centred, directions * main[:, :, None])
            score = np.where(kept, np.linalg.norm(along, axis=2), -1)
            far = score >= (1 - _TIE) * np.sort(score, axis=0)[-dropped]
            kept &= ~far | (far | ~kept).all(axis=0)  # all that tie, but never everybody
        weights = kept / kept.sum(axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    return Aggregator("cronus", rule)


Before = Literal["avg", "median", "trimmed-mean", "geometric-median", "cronus"]


def nearest_neighbours(before: Before = "median", tolerates: int | None = None) -> Aggregator:
    """Replace every answer by the mean of its m - f nearest answers, then apply another rule (NNM).

    The neighbours of an answer include the answer itself. Row by row. The error of any of these rules then is
    proportional to ``f / m``. Allouah et al. 2023 (NNM).

    Args:
        before: name of the rule applied afterwards.
        tolerates: f; ``None`` uses the largest number below half.
    """
    check_choice("before", before, list(_PLAIN), where="nearest-neighbours")
    _check_tolerates(tolerates, "nearest-neighbours")
    then = _PLAIN[before]()

    def rule(stack: Stack) -> Combined:
        m = len(stack.parties)
        near = m - _tolerated(tolerates, m, "nearest-neighbours")
        apart = np.linalg.norm(stack.outputs[:, None] - stack.outputs[None], axis=3)  # (m, m, n)
        furthest = np.sort(apart, axis=1)[:, near - 1 : near]
        close = apart <= furthest * (1 + _TIE) + _NEAREST  # who ties with the last is among them
        mixed = np.einsum("ijn,jnk->ink", close, stack.outputs) / close.sum(axis=1)[:, :, None]
        return Combined(then.rule(Stack(stack.parties, mixed))[0], None)

    return Aggregator("nearest-neighbours", rule)


def centred_clipping(radius: float = 0.5) -> Aggregator:
    """Average the steps from a centre to the answers, each clipped to a radius (centred clipping).

    ``v <- v + mean_c (p_c - v) min(1, τ / |p_c - v|)``, three times, row by row; the next round begins at v.
    Karimireddy, He & Jaggi 2021.

    Args:
        radius: τ, in (0, √2]; no two distributions are further apart than √2.
    """
    check_number("radius", radius, above=0, at_most=math.sqrt(2), where="centred-clipping")

    def rule(stack: Stack) -> Combined:
        centre = stack.memory.get("centre")
        if centre is None or centre.shape != stack.outputs.shape[1:]:
            centre = coordinate_median().rule(stack)[0]
        for _ in range(_CLIPPINGS):
            away = stack.outputs - centre
            length = np.linalg.norm(away, axis=2, keepdims=True)
            centre = centre + (away * np.minimum(1, radius / np.maximum(length, radius))).mean(
                axis=0
            )
        return Combined(centre, None, (), {"centre": centre})

    return Aggregator("centred-clipping", rule)


def exp_guard(
    rate: float = 2.0, against: Literal["geometric-median", "cronus"] = "geometric-median"
) -> Aggregator:
    """Average probabilities with weights that shrink with a party's distance from a robust rule (ExpGuard).

    ``w_c <- w_c exp(-η L_c)`` with ``L_c = mean_x |p_c(x) - A(x)|_2`` and A the robust rule. Weights carry
    over from round to round, so that a small but persistent deviation also reduces a party's weight. Roux,
    Zimmer & Pokutta 2025 (ExpGuard).

    Args:
        rate: η > 0.
        against: name of the robust rule A.
    """
    check_number("rate", rate, above=0, where="exp-guard")
    check_choice("against", against, ["geometric-median", "cronus"], where="exp-guard")
    robust = _PLAIN[against]()

    def rule(stack: Stack) -> Combined:
        middle = robust.rule(stack)[0]
        losses = np.linalg.norm(stack.outputs - middle, axis=2).mean(axis=1)
        before = stack.memory.get("losses", {})
        total = np.array([before.get(name, 0.0) for name in stack.parties]) + losses
        shares = np.exp(-rate * (total - total.min()))
        weights = np.repeat((shares / shares.sum())[:, None], stack.outputs.shape[1], axis=1)
        known = {**before, **dict(zip(stack.parties, map(float, total), strict=True))}
        return Combined(weighted_mean_of(stack.outputs, weights), weights, (), {"losses": known})

    return Aggregator("exp-guard", rule)


def _weiszfeld(stack: Stack) -> Combined:
    """The geometric median of each row, and the weights of the answers in it."""
    centre, weights, *_ = plain_mean(stack)
    for _ in range(_MOST_STEPS):
        far = np.linalg.norm(stack.outputs - centre, axis=2)
        near = 1 / np.maximum(far, _NEAREST)
        weights = near / near.sum(axis=0)
        moved = weighted_mean_of(stack.outputs, weights)
        step = np.abs(moved - centre).max()
        centre = moved
        if step <= _ENOUGH:
            break
    return Combined(centre, weights)


def _check_tolerates(tolerates: int | None, where: str) -> None:
    if tolerates is not None:
        check_number("tolerates", tolerates, at_least=0, where=where)


def _tolerated(tolerates: int | None, parties: int, where: str) -> int:
    """f for so many parties.

    Raises:
        InvalidInput: it is not fewer than half of them.
    """
    most = math.ceil(parties / 2) - 1
    if tolerates is None:
        return most
    if tolerates > most:
        raise InvalidInput(
            f"it is to bear {tolerates} wrong parties of {parties}",
            where=where,
            mend=f"No rule bears half of the parties or more: give tolerates at most {most}.",
        )
    return tolerates


_PLAIN: Mapping[str, Callable[[], Aggregator]] = {
    "avg": lambda: Aggregator("avg", plain_mean),
    "median": coordinate_median,
    "trimmed-mean": trimmed_mean,
    "geometric-median": geometric_median,
    "cronus": cronus,
}
"""Rules that use only predictions, and can be combined with another rule."""

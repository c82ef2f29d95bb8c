"""Survival with censored rows: the Kaplan-Meier estimate, and scores of predicted survival.

Rows of targets are ``(time, event)``. If ``event`` is 1, the time is that of the event; if it is 0, the row
was last seen, and censored, at that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.printing import prints_no_rows
from consilience.tables.columns import truth_of


def survival_rows(time: Any, event: Any, *, where: str) -> Array:
    """Read times and events, shape ``(n, 2)``, read-only.

    Args:
        time: numbers, 0 or more, shape ``(n,)``.
        event: 1 or 0, or words of the same meaning (true, yes, no, …), shape ``(n,)``.
        where: the party or file, with the columns, for errors.

    Returns:
        Times and events, 1.0 or 0.0.

    Raises:
        InvalidInput: times are not such numbers, or events have other values.
    """
    try:
        times = np.asarray(time, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput("times are not numbers", where=where) from error
    bad = ~(np.isfinite(times) & (times >= 0))
    if bad.any():
        raise InvalidInput(
            f"{int(bad.sum()):,} of {len(bad):,} times are below 0 or missing, first in row "
            f"{int(bad.argmax()) + 1:,}: {times[bad.argmax()]:g}",
            where=where,
            mend="Correct these rows or drop them.",
        )
    said = {one: truth_of(str(one)) for one in dict.fromkeys(np.asarray(event).tolist())}
    for one, truth in said.items():
        if truth is None:
            raise InvalidInput(
                f"an event is {one!r}",
                where=where,
                mend="Write 1 for an event, 0 where the row was censored; yes and no, true and false do too.",
            )
    events = np.array([said[one] for one in np.asarray(event).tolist()], dtype=np.float64)
    return read_only(np.column_stack([times, events]))


@prints_no_rows
@dataclass(frozen=True)
class KaplanMeier:
    """Estimate of the share that survives a time: a step function, 1 before the first step.

    Attributes:
        times: of the steps, ascending, shape ``(k,)``.
        survival: share that survives each of them, shape ``(k,)``.

    Source:
        Kaplan and Meier 1958, "Nonparametric estimation from incomplete observations".

    >>> KaplanMeier.of(np.array([[1, 1], [2, 0], [3, 1], [4, 0]])).at(np.array([0.5, 1, 3]))
    array([1.   , 0.75 , 0.375])
    """

    times: Array
    survival: Array

    @classmethod
    def of(cls, y: Array, weights: Array | None = None, *, censoring: bool = False) -> KaplanMeier:
        """Estimate survival, or how long rows are seen.

        Args:
            y: times and events, shape ``(n, 2)``.
            weights: of the rows, shape ``(n,)``; ``None`` for 1 each.
            censoring: estimate the time until a row is censored, events at the same time before it.
        """
        weights = np.ones(len(y)) if weights is None else weights
        times, place = np.unique(y[:, 0], return_inverse=True)
        events, held = (np.bincount(place, w, len(times)) for w in (weights * y[:, 1], weights))
        at_risk = held[::-1].cumsum()[::-1]
        if censoring:
            at_risk, events = at_risk - events, held - events
        lost = np.divide(events, at_risk, out=np.zeros(len(times)), where=events > 0)
        return cls(times, np.cumprod(np.maximum(1 - lost, 0)))

    def at(self, times: Array) -> Array:
        """Give the share that survives times, the shape of these."""
        place = np.searchsorted(self.times, times, side="right")
        return np.append(1.0, self.survival)[place]


def until(y: Array, horizon: float) -> Array:
    """Censor rows at a horizon; events at the horizon itself count."""
    beyond = y[:, 0] > horizon
    return np.column_stack([np.minimum(y[:, 0], horizon), np.where(beyond, 0.0, y[:, 1])])


def concordance(risk: Array, y: Array, weights: Array, *, of_events: Array | None = None) -> float:
    """Compute the share of comparable pairs in which the higher risk has the earlier event.

    A pair is comparable where the earlier time is an event's, or both are of one time and one is an event;
    equal risks count half. NaN where there is no such pair.

    Args:
        risk: larger for earlier events, shape ``(n,)``.
        y: times and events, shape ``(n, 2)``.
        weights: of the rows, shape ``(n,)``; a pair weighs their product.
        of_events: further weights, of the pairs in which a row has the earlier event, shape ``(n,)``: the
            inverse of the squared probability to be seen makes Harrell's C Uno's.

    Source:
        Harrell et al. 1982, "Evaluating the yield of medical tests"; Uno et al. 2011, "On the C-statistics
        for evaluating overall adequacy of risk prediction procedures with censored survival data",
        equation 6.

    >>> concordance(np.array([3.0, 1.0, 2.0]), np.array([[1, 1], [2, 1], [3, 0]]), np.ones(3))
    0.6666666666666666
    """
    time, event = y[:, 0], y[:, 1] > 0
    right = total = 0.0
    for i in np.flatnonzero(event & (weights > 0)):
        later = weights * ((time > time[i]) | ((time == time[i]) & ~event))
        factor = weights[i] * (1.0 if of_events is None else of_events[i])
        right += factor * (later @ (risk < risk[i]) + 0.5 * later @ (risk == risk[i]))
        total += factor * later.sum()
    return float(right / total) if total else float("nan")


def seen_weights(y: Array, reference: Array) -> Array:
    """Weigh events by the inverse probability to be seen until then, shape ``(n,)``; 0 for censored rows.

    Args:
        y: times and events, shape ``(n, 2)``.
        reference: those that the censoring is estimated from.
    """
    seen = KaplanMeier.of(reference, censoring=True).at(y[:, 0])
    return np.divide(1.0, seen, out=np.zeros(len(y)), where=(y[:, 1] > 0) & (seen > 0))


def brier_scores(survival: Array, y: Array, times: Array) -> Array:
    """Compute every row's Brier score at times, shape ``(n, k)``, weighted for censoring.

    A row censored at the last time of all rows counts as surviving that time. Its weight uses the
    probability to be seen until just before. Without this rule, a prediction of no survivors would have a
    perfect score there.

    Args:
        survival: predicted share that survives the times, shape ``(n, k)``.
        y: times and events, shape ``(n, 2)``; censoring is estimated from them.
        times: ascending, shape ``(k,)``.

    Returns:
        Scores, shape ``(n, k)``.

    Raises:
        InvalidInput: a time is after the last one of the rows.

    Source:
        Graf et al. 1999, "Assessment and comparison of prognostic classification schemes for survival data".

    >>> at_the_end = np.array([[2.0, 0], [2.0, 0]])
    >>> brier_scores(np.array([[1.0], [0.0]]), at_the_end, np.array([2.0])).tolist()
    [[0.0], [1.0]]
    """
    time, died, last = y[:, :1], y[:, 1:] > 0, y[:, 0].max()
    if times[-1] > last:
        raise InvalidInput(f"no row was seen at {times[-1]:g}", where="brier score")
    censoring = KaplanMeier.of(y, censoring=True)
    end = censoring.at(np.nextafter(last, -np.inf))
    of_rows, of_times = (np.where(one < last, censoring.at(one), end) for one in (time, times))
    dead = died & (time <= times)
    alive = (time > times) | (~died & (time == times) & (times == last))
    return np.asarray(dead * survival**2 / of_rows + alive * (1 - survival) ** 2 / of_times)


def integrated(scores: Array, times: Array) -> Array:
    """Average scores over times by the trapezoid rule, shape ``(n,)``; of one time they are themselves.

    Args:
        scores: shape ``(n, k)``.
        times: ascending, shape ``(k,)``.
    """
    if len(times) == 1:
        return scores[:, 0]
    return np.asarray(np.trapezoid(scores, times, axis=1) / (times[-1] - times[0]))

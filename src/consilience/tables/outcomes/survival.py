"""Survival: the time until an event, which not all rows have seen.

>>> days = Survival([90, 180])
>>> days.classes
('1: up to 90', '2: up to 180', '3: after 180')
>>> y = np.array([[30.0, 1], [100.0, 0], [150.0, 1], [400.0, 0]])
>>> days.targets(y, own=y).tolist()
[[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import LARGEST
from consilience.core.metrics.base import Metric
from consilience.core.numerics.losses import LEAST_LIKELIHOOD
from consilience.core.numerics.outcomes import Outcome, numbered
from consilience.core.validation.arrays import Array, unmasked
from consilience.core.validation.labels import one_hot
from consilience.core.validation.numbers import check_number
from consilience.tables.outcomes.survival_scores import (
    KaplanMeier,
    brier_scores,
    concordance,
    integrated,
    seen_weights,
    survival_rows,
    until,
)

IBS = Metric(
    "ibs", None, high=LARGEST, label="integrated Brier score", larger_is_better=False, main=True
)
HARRELL_C = Metric("harrell_c", None, label="Harrell's C")
UNO_C = Metric("uno_c", None, label="Uno's C", printed=False)


class Survival(Outcome):
    """Survival outcome with censored rows: the probability of an event in each bin of time.

    The bins are up to the first edge, between edges, each with its upper edge, and after the last one. A
    censored row may have its event in the bin of its time or any later one. Its target is spread over
    these bins by the Kaplan-Meier estimate of the party's training rows, so that a classifier can learn
    it as weighted rows. That estimate does not use inputs, so it draws the model to the mean curve, more
    strongly with more censored rows. The prediction is the share that survives each edge.

    Metrics are ``ibs``, the Brier score integrated over the edges until which some measured row was seen;
    ``log_loss``; ``harrell_c`` and ``uno_c``, the concordance of the expected time up to the last
    edge. All of them measure only events up to the last edge, and estimate the censoring from the measured
    rows.

    Args:
        edges: times above 0, ascending.
    """

    metrics = ("ibs", "log_loss", "harrell_c", "uno_c")

    def __init__(self, edges: Sequence[float]) -> None:
        super().__init__(edges)
        check_number("the first edge", float(self.edges[0]), above=0, where="outcome, survival")
        ends = [f"up to {edge:g}" for edge in self.edges] + [f"after {self.edges[-1]:g}"]
        self.classes = numbered(ends)
        self.columns = tuple(f"survival_{edge:.12g}" for edge in self.edges)

    @classmethod
    def said(cls, said: Mapping[str, Any]) -> Survival | None:
        """Make the outcome from its parsed key; return ``None`` for another outcome's key."""
        return cls(said["edges"]) if set(said) == {"edges"} else None

    def read(self, y: Any, *, where: str) -> Array:
        if hasattr(y, "to_numpy"):
            y = y.to_numpy()
        y = unmasked(y) if isinstance(y, np.ndarray) else np.asarray(y)
        if y.dtype.names is not None:  # as scikit-survival has them: a truth value and a number
            kinds = {y.dtype[name].kind: unmasked(y[name]) for name in y.dtype.names}
            if len(y.dtype.names) == 2 and "b" in kinds:
                time = next(part for kind, part in kinds.items() if kind != "b")
                return survival_rows(time, kinds["b"], where=where)
        if y.ndim != 2 or y.shape[1] != 2:
            raise InvalidInput(
                f"targets have shape {y.shape}",
                where=where,
                mend="Give two columns: the time, and 1 for an event or 0 where the row was censored.",
            )
        return survival_rows(y[:, 0], y[:, 1], where=where)

    def check_own(self, y: Array, *, where: str) -> None:
        last = float(y[:, 0].max())
        if not y[:, 1].any():
            raise InvalidInput(
                "all of its rows are censored: they say nothing of when events happen",
                where=where,
                mend="Look at the column of events; or let the party learn only, without targets.",
            )
        if self.edges[0] >= last:
            raise InvalidInput(
                f"the first edge is {self.edges[0]:g}, and its last time is {last:g}",
                where=where,
                mend="Choose edges within the times, in their unit.",
            )
        if (self.targets(y, own=y) > 0).any(axis=0).sum() < 2:
            raise InvalidInput(
                "all of its events are in one bin", where=where, mend="Choose other edges."
            )

    def targets(self, y: Array, *, own: Array) -> Array:
        time, event = y[:, 0], y[:, 1] > 0
        rows = one_hot(np.searchsorted(self.edges, time), len(self.classes))
        spread = ~event & (time <= self.edges[-1])
        known = KaplanMeier.of(own if len(own) else y)
        ends = known.at(np.maximum(time[spread, None], self.edges))
        start = known.at(time[spread])[:, None]
        mass = np.hstack([start, ends]) - np.hstack([ends, np.zeros_like(start)])
        # Where the estimate leaves nobody, whoever is there is taken to stay.
        mass[start[:, 0] <= 0, -1] = 1.0
        rows[spread] = mass / mass.sum(axis=1, keepdims=True)
        return rows

    def row_losses(self, outputs: Array, targets: Array, y: Array | None = None) -> Array:
        """Compute the log loss of an event's bin, or of a censored row's possible bins, shape ``(n,)``.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            targets: the same of targets, or of a teacher.
            y: times and events behind the targets, shape ``(n, 2)``; ``None`` for a teacher's.
        """
        if y is None:
            return super().row_losses(outputs, targets)
        died, bins = y[:, 1:] > 0, np.arange(len(self.classes))
        first, own = (np.searchsorted(self.edges, y[:, :1], side) for side in ("right", "left"))
        left = np.where(died, bins == own, bins >= first)
        mass = (outputs.astype(np.float64) * left).sum(axis=1)
        return np.asarray(-np.log(np.clip(mass, LEAST_LIKELIHOOD, 1)))

    def strata(self, y: Array) -> Array:
        return np.where(y[:, 1] > 0, "event", "censored")

    def survival(self, outputs: Array) -> Array:
        """Share that survives each edge, shape ``(n, k)``, of probabilities of the bins."""
        return np.clip(1 - np.cumsum(outputs[:, :-1].astype(np.float64), axis=1), 0, 1)

    answers = survival

    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        scored = self.edges[self.edges <= y[:, 0].max()]
        if not len(scored):
            return {}
        scores = brier_scores(self.survival(outputs)[:, : len(scored)], y, scored)
        return {"ibs": integrated(scores, scored)}

    def further(self, outputs: Array, y: Array, weights: Array) -> dict[str, float]:
        times = np.append(0.0, self.edges)
        expected = np.trapezoid(np.insert(self.survival(outputs), 0, 1.0, axis=1), times, axis=1)
        risk, near = -np.round(expected / self.edges[-1], 9), until(y, float(self.edges[-1]))
        found = {
            "harrell_c": concordance(risk, near, weights),
            "uno_c": concordance(risk, near, weights, of_events=seen_weights(near, y) ** 2),
        }
        return {name: value for name, value in found.items() if np.isfinite(value)}

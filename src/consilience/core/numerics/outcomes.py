"""Outcomes other than one class or one number: coded as probabilities of bins, and read back from these.

Everything that parties exchange of such an outcome is a distribution over bins, whose edges all of them
agree on as they agree on classes. So models, aggregators and compression of classes serve it as they are.

>>> days = Survival([90, 180])
>>> days.classes
('1: up to 90', '2: up to 180', '3: after 180')
>>> y = np.array([[30.0, 1], [100.0, 0], [150.0, 1], [400.0, 0]])
>>> days.targets(y, own=y).tolist()
[[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array, read_only, unmasked
from consilience.core.validation.labels import one_hot
from consilience.core.validation.numbers import check_number, numbers_only
from consilience.tables.outcomes.survival_scores import (
    KaplanMeier,
    brier_scores,
    concordance,
    integrated,
    seen_weights,
    survival_rows,
    until,
)

MOST_EDGES = 200
"""Most edges of bins."""

LEAST_LIKELIHOOD = 1e-12
"""Probabilities are raised to this before their logarithm is taken."""


class Outcome(ABC):
    """A coding of targets as probabilities of bins.

    Args:
        edges: of the bins, ascending.

    Attributes:
        edges: the same, shape ``(k,)``.
        classes: names of the bins, in their order.
        columns: names of what is predicted of a row.
    """

    metrics: ClassVar[tuple[str, ...]]
    """Names of the metrics, the one that counts first; ``log_loss`` is of the bins, in nats."""

    several: ClassVar[bool] = False
    """Whether a row is of several classes at once, so that a rule cannot read its one class."""

    edges: Array
    classes: tuple[str, ...]
    columns: tuple[str, ...]

    def __init__(self, edges: Sequence[float]) -> None:
        where = f"outcome, {type(self).__name__.lower()}"
        given = list(edges)
        for edge in given:
            check_number("edges", edge, where=where)
        if not 1 <= len(given) <= MOST_EDGES or sorted(set(given)) != given:
            raise InvalidInput(
                f"edges are {given[:10]}",
                where=where,
                mend=f"Give different numbers in ascending order, 1 to {MOST_EDGES} of them.",
            )
        self.edges = read_only(np.array(given, dtype=np.float64))

    @property
    def key(self) -> str:
        """Text that says the outcome, alike at all parties (:func:`outcome_of`)."""
        return json.dumps({"edges": self.edges.tolist()})

    @abstractmethod
    def read(self, y: Any, *, where: str) -> Array:
        """Read targets as numbers, shape ``(n, ...)``, read-only.

        Args:
            y: as a user gave them.
            where: the party and the table, for errors.

        Raises:
            InvalidInput: they are no such targets.
        """

    @abstractmethod
    def check_own(self, y: Array, *, where: str) -> None:
        """Raise ``InvalidInput`` where nothing can be learned from a party's own rows.

        Args:
            y: as of :meth:`read`.
            where: the party, for errors.
        """

    @abstractmethod
    def targets(self, y: Array, *, own: Array) -> Array:
        """Code targets as probabilities of the bins, shape ``(n, n_bins)``.

        Args:
            y: as of :meth:`read`.
            own: all rows of those that know them, from which what is not known of ``y`` is estimated.
        """

    @abstractmethod
    def strata(self, y: Array) -> Array:
        """Name the kind of each row, shape ``(n,)``, ``str``: all parts of a split have the same share."""

    @abstractmethod
    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        """Score every row, by metric, shape ``(n,)`` each: metrics that are means of rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: as of :meth:`read`.
        """

    def row_losses(self, outputs: Array, targets: Array, y: Array | None = None) -> Array:
        """Compute the log loss of what is known of every row, in nats, shape ``(n,)``.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            targets: the same of targets, or of a teacher.
            y: what the targets were coded from, as of :meth:`read`; ``None`` for a teacher's.
        """
        likelihood = np.maximum(outputs.astype(np.float64), LEAST_LIKELIHOOD)
        return np.asarray(-(targets * np.log(likelihood)).sum(axis=1))

    def further(self, outputs: Array, y: Array, weights: Array) -> dict[str, float]:
        """Compute metrics that are no means of rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: as of :meth:`read`.
            weights: of the rows, shape ``(n,)``.
        """
        return {}

    @abstractmethod
    def answers(self, outputs: Array) -> Array:
        """Read what is predicted from probabilities of the bins, shape ``(n, len(columns))``."""


class Survival(Outcome):
    """Time until an event, which not all rows have seen: the probability of an event in each bin of time.

    The bins are up to the first edge, between edges, each with its upper edge, and after the last one. A row
    that was censored may have its event in any bin from then on: its target is spread over these as the
    Kaplan-Meier estimate of the party's training rows has it, so that a model of classes learns it as one of
    weighted rows. That estimate knows no inputs: it draws what is learned to the mean curve, the more the
    more rows are censored. What is predicted is the share that survives each edge.

    Metrics are ``ibs``, the Brier score integrated over the edges until which some measured row was seen;
    ``log_loss``; ``harrell_c`` and ``uno_c``, the concordance of the time that is expected up to the last
    edge. All of them are of what happens up to the last edge, and take the censoring from the rows that are
    measured.

    Args:
        edges: times above 0, ascending.
    """

    metrics = ("ibs", "log_loss", "harrell_c", "uno_c")

    def __init__(self, edges: Sequence[float]) -> None:
        super().__init__(edges)
        check_number("the first edge", float(self.edges[0]), above=0, where="outcome, survival")
        ends = [f"up to {edge:g}" for edge in self.edges] + [f"after {self.edges[-1]:g}"]
        self.classes = _numbered(ends)
        self.columns = tuple(f"survival_{edge:.12g}" for edge in self.edges)

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
        """Compute the log loss: of the bin of an event, or of all bins that are left to a censored row.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            targets: the same of targets, or of a teacher.
            y: what the targets were coded from; ``None`` for a teacher's.
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


class Quantiles(Outcome):
    """Quantiles of a number: the probability of each bin of values, and quantiles read from these.

    A value beyond the outermost edges counts in the bin next to it; within a bin values are taken to be
    spread evenly.

    Metrics are ``pinball``, the mean over the quantiles of the loss whose minimum they are; ``log_loss`` of
    the bins; ``coverage``, the share of values from the lowest quantile to the highest; and ``width``, the
    mean distance between these.

    Args:
        edges: of the bins, ascending, two or more.
        levels: of the quantiles, each in (0, 1), ascending.

    Source:
        Koenker and Bassett 1978, "Regression quantiles".
    """

    metrics = ("pinball", "log_loss", "coverage", "width")

    def __init__(self, edges: Sequence[float], levels: Sequence[float] = (0.1, 0.5, 0.9)) -> None:
        super().__init__(edges)
        where = "outcome, quantiles"
        for level in levels:
            check_number("quantiles", level, above=0, below=1, where=where)
        given = list(levels)
        if not given or sorted(set(given)) != given or len(self.edges) < 3:
            raise InvalidInput(
                f"quantiles are {given[:10]}, and edges {len(self.edges)}",
                where=where,
                mend="Give different quantiles in ascending order, and three edges or more.",
            )
        self.levels = read_only(np.array(given, dtype=np.float64))
        bounds = [f"{edge:g}" for edge in self.edges]
        self.classes = _numbered([f"{a} to {b}" for a, b in pairwise(bounds)])
        self.columns = tuple(f"q{100 * level:g}" for level in given)

    @property
    def key(self) -> str:
        """Text that says the outcome, alike at all parties."""
        return json.dumps({"edges": self.edges.tolist(), "quantiles": self.levels.tolist()})

    def read(self, y: Any, *, where: str) -> Array:
        values = numbers_only(y, "targets", where=where)
        values = values.reshape(len(values), -1)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise InvalidInput(
                f"targets have shape {values.shape}, or hold NaN or infinite values",
                where=where,
                mend="Give one number a row.",
            )
        return read_only(values[:, 0])

    def check_own(self, y: Array, *, where: str) -> None:
        if y.max() <= self.edges[0] or y.min() >= self.edges[-1]:
            raise InvalidInput(
                f"its values are from {y.min():g} to {y.max():g}, and the edges from "
                f"{self.edges[0]:g} to {self.edges[-1]:g}",
                where=where,
                mend="Choose edges around the values, in their unit.",
            )
        if len(np.unique(self._bins(y))) < 2:
            raise InvalidInput(
                "all of its values are in one bin", where=where, mend="Choose other edges."
            )

    def _bins(self, y: Array) -> Array:
        return np.asarray(np.searchsorted(self.edges[1:-1], y))

    def targets(self, y: Array, *, own: Array) -> Array:
        return one_hot(self._bins(y), len(self.classes))

    def strata(self, y: Array) -> Array:
        return np.full(len(y), "")

    def answers(self, outputs: Array) -> Array:
        below = np.cumsum(outputs.astype(np.float64), axis=1)
        below = np.hstack([np.zeros((len(below), 1)), below / below[:, -1:]])
        # The bin in which each quantile lies, and its place within it.
        place = (below[:, 1:-1, None] < self.levels).sum(axis=1)
        start, end = (np.take_along_axis(below, place + side, axis=1) for side in (0, 1))
        share = np.divide(
            self.levels - start, end - start, out=np.zeros(start.shape), where=end > start
        )
        low, high = self.edges[place], self.edges[place + 1]
        return np.asarray(low + np.clip(share, 0, 1) * (high - low))

    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        said = self.answers(outputs)
        short = y[:, None] - said
        return {
            "pinball": np.maximum(self.levels * short, (self.levels - 1) * short).mean(axis=1),
            "coverage": ((said[:, 0] <= y) & (y <= said[:, -1])).astype(np.float64),
            "width": said[:, -1] - said[:, 0],
        }


def outcome_of(key: str) -> Outcome | None:
    """Make the outcome that a text says (:attr:`Outcome.key`); ``None`` of an empty one.

    Raises:
        InvalidInput: it says none.
    """
    if not key:
        return None
    try:
        said: Mapping[str, Any] = json.loads(key)
        if "labels" in said:
            from consilience.tables.outcomes.several_labels import (
                MultiLabel,  # which is an outcome itself
            )

            return MultiLabel(said["labels"])
        found = (
            Quantiles(said["edges"], said["quantiles"])
            if "quantiles" in said
            else Survival(said["edges"])
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"an outcome that is none: {key[:100]!r}") from error
    return found


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Names in the order of classes, which is that of letters."""
    width = len(str(len(names)))
    return tuple(f"{i:0{width}d}: {name}" for i, name in enumerate(names, start=1))

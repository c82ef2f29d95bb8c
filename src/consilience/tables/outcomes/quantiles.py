"""Quantiles of a number, by the probabilities of bins of its values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import LARGEST
from consilience.core.metrics.base import Metric
from consilience.core.numerics.outcomes import Outcome, numbered
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.labels import one_hot
from consilience.core.validation.numbers import check_number, numbers_only

PINBALL = Metric(
    "pinball", None, high=LARGEST, label="pinball loss", larger_is_better=False, main=True
)
COVERAGE = Metric("coverage", None, label="share in the interval")
WIDTH = Metric(
    "width",
    None,
    high=LARGEST,
    label="width of the interval",
    larger_is_better=False,
    printed=False,
)


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
        self.classes = numbered([f"{a} to {b}" for a, b in pairwise(bounds)])
        self.columns = tuple(f"q{100 * level:g}" for level in given)

    @classmethod
    def said(cls, said: Mapping[str, Any]) -> Quantiles | None:
        """Make the outcome from its parsed key; return ``None`` for another outcome's key."""
        return cls(said["edges"], said["quantiles"]) if "quantiles" in said else None

    @property
    def key(self) -> str:
        """Return a text that describes the outcome, identical at all parties."""
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

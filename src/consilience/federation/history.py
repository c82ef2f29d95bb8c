"""Record of a run in this process: rounds, metrics, and every exchange with every party."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from consilience.errors import InvalidInput, nearest, visible
from consilience.learners import Model
from consilience.messages.replies import Metrics
from consilience.networks import Delivery
from consilience.protocols import Round
from consilience.tasks.base import bookkeeping_tasks
from consilience.validation.arrays import Array


@dataclass
class History:
    """Record of a run in this process.

    Attributes:
        rounds: every round, number 0 first.
        metrics: per round, party to metric name to value.
        deliveries: per round, who was asked what, what left whom, bytes and failures.
        models: party to its trained model, where the network can see into its parties.
    """

    rounds: list[Round] = field(default_factory=list)
    metrics: list[dict[str, Mapping[str, float]]] = field(default_factory=list)
    deliveries: list[list[Delivery]] = field(default_factory=list)
    models: Mapping[str, Model] = field(default_factory=dict)

    def add(
        self, round: Round, metrics: Mapping[str, Metrics], deliveries: Iterable[Delivery]
    ) -> None:
        """Append one round.

        Args:
            round: the round, as the protocol yielded it.
            metrics: party to its metrics after the round, of those that were measured.
            deliveries: every exchange of the round.
        """
        self.rounds.append(round)
        self.metrics.append({party: given.values for party, given in metrics.items()})
        self.deliveries.append(list(deliveries))

    def metric(self, name: str = "accuracy") -> Array:
        """Give one metric, shape ``(n_rounds + 1, n_parties)``, parties by name; NaN where it is missing."""
        parties = sorted({party for row in self.metrics for party in row})
        if not any(name in given for row in self.metrics for given in row.values()):
            known = {key for row in self.metrics for given in row.values() for key in given}
            raise InvalidInput(
                f"no metric {name!r} was measured",
                where="history",
                mend=nearest(name, known)
                if known
                else "Give the parties test data: Party(test=…).",
            )
        return np.array(
            [[row.get(p, {}).get(name, np.nan) for p in parties] for row in self.metrics]
        )

    @property
    def bytes_up(self) -> int:
        """Bytes that left all parties together, as they would on the wire, evaluation not counted."""
        aside = bookkeeping_tasks()
        return sum(d.bytes_up for row in self.deliveries for d in row if d.tasks not in aside)

    @property
    def failures(self) -> list[Delivery]:
        """Every exchange in which a party was left out."""
        return [d for row in self.deliveries for d in row if d.status != "ok"]

    def __str__(self) -> str:
        """Give a line per party: each metric alone and at the end."""
        names = list(
            dict.fromkeys(key for row in self.metrics[-1:] for g in row.values() for key in g)
        )
        if not names:
            said = f"{len(self.rounds)} rounds, nothing measured: the parties hold no test data"
            return visible("\n".join([said, *self._left_out(), *self._noted()]))
        width = max(len(party) for party in ("party", *self.metrics[-1]))
        heads = [f"{name + ' alone → after':>24}" for name in names]
        lines = [f"{'party':<{width}}  " + "  ".join(heads)]
        for party, after in self.metrics[-1].items():
            alone = self.metrics[0].get(party, {})
            cells = (f"{_number(alone.get(n))} → {_number(after.get(n))}" for n in names)
            fitted = (f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True))
            lines.append(f"{party:<{width}}  " + "  ".join(fitted))
        return visible("\n".join([*lines, *self._left_out(), *self._noted()]))

    def _noted(self) -> Iterator[str]:
        """Yield a line for every party that went on without something, with its first remark."""
        whole = [d for row in self.deliveries for d in row if d.status == "ok" and d.detail]
        for party in sorted({delivery.party for delivery in whole}):
            mine = [delivery.detail for delivery in whole if delivery.party == party]
            yield f"{party} noted {len(mine)} times, first: {mine[0]}"

    def _left_out(self) -> Iterator[str]:
        """Yield a line for every party that was left out of an exchange, with its first reason."""
        for party in sorted({delivery.party for delivery in self.failures}):
            mine = [delivery for delivery in self.failures if delivery.party == party]
            yield f"{party} was left out {len(mine)} times, first: {mine[0].status}, {mine[0].detail}"


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"

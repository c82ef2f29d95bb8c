"""Record of a run in this process: rounds, metrics, and every exchange with every party."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InvalidInput, counted, nearest, visible
from consilience.core.learners import Model
from consilience.core.messages.replies import Metrics
from consilience.core.metrics.metrics import OWN, find_metric, main_metric, sign_of
from consilience.core.networks import Delivery
from consilience.core.protocols import Round
from consilience.core.tasks.base import bookkeeping_tasks
from consilience.core.validation.arrays import Array

if TYPE_CHECKING:
    import pandas

_SHOWN = 0.001
"""Differences that three digits show."""


@dataclass(repr=False)
class History:
    """Record of a run in this process.

    Attributes:
        rounds: every round, number 0 first.
        metrics: per round, party to metric name to value.
        deliveries: per round, every exchange with a party: tasks, data sent, bytes and failure.
        models: party to its trained model; empty if the network cannot read the parties' models.
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
            metrics: party to its metrics after the round; only measured parties appear.
            deliveries: every exchange of the round.
        """
        self.rounds.append(round)
        self.metrics.append({party: given.values for party, given in metrics.items()})
        self.deliveries.append(list(deliveries))

    @property
    def parties(self) -> tuple[str, ...]:
        """Sorted names of the measured parties."""
        return tuple(sorted({party for row in self.metrics for party in row}))

    def to_frame(self) -> pandas.DataFrame:
        """Lay out the metrics as a table.

        Returns:
            A row for each round and party, with the columns ``round``, ``party`` and one for each metric; NaN
            where a metric was not measured.

        >>> History(metrics=[{"a": {"accuracy": 0.5}}, {"a": {"accuracy": 0.75}}]).to_frame()
           round party  accuracy
        0      0     a      0.50
        1      1     a      0.75
        """
        import pandas  # core runs without it

        return pandas.DataFrame(
            {"round": number, "party": party, **values}
            for number, row in enumerate(self.metrics)
            for party, values in row.items()
        )

    @property
    def _length(self) -> str:
        """Number of rounds in words, round 0 not counted."""
        return counted(max(len(self.rounds) - 1, 0), "round", "rounds")

    def __repr__(self) -> str:
        name = main_metric(key for row in self.metrics for given in row.values() for key in given)
        said = f"History({self._length}, {counted(len(self.parties), 'party', 'parties')} measured"
        if name is None:
            return f"{said})"
        known = [row[~np.isnan(row)] for row in self.metric(name)[[0, -1]]]
        first, last = (_number(row.mean() if len(row) else None) for row in known)
        return f"{said}, mean {name} {first} → {last})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def metric(self, name: str = "accuracy") -> Array:
        """Give one metric, shape ``(n_rounds + 1, n_parties)``, parties by name; NaN where it is missing."""
        if not any(name in given for row in self.metrics for given in row.values()):
            known = {key for row in self.metrics for given in row.values() for key in given}
            raise InvalidInput(
                f"no metric {name!r} was measured",
                where="history",
                mend=nearest(name, known)
                if known
                else "Give the parties test data, Party(test=…); limits and budgets may keep metrics back.",
            )
        return np.array(
            [[row.get(p, {}).get(name, np.nan) for p in self.parties] for row in self.metrics]
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
        """Return one line per party: metrics on local and global test sets, before and after the protocol.

        Further lines name, for each metric, the parties whose final figure on the local test set is worse
        than that of their local model. If both test sets are the same, there is one figure for both.
        """
        last = self.metrics[-1] if self.metrics else {}
        names = dict.fromkeys(key for given in last.values() for key in given)
        everyones = {name: find_metric(name) for name in names if not name.endswith(OWN)}
        shown = [name for name, metric in everyones.items() if metric is None or metric.printed]
        if not shown:
            why, aside = "the parties hold no test data", bookkeeping_tasks()
            if refused := [d.detail for d in self.failures if d.tasks in aside]:
                why = f"no metrics left the parties, first: {refused[0]}"
            said = f"{self._length}, nothing measured: {why}"
            return visible("\n".join([said, *self._left_out(), *self._noted()]))
        ends = [given for row in (self.metrics[0], last) for given in row.values()]
        pairs = [(given.get(n), given.get(n + OWN)) for given in ends for n in shown]
        sides = {"own rows": OWN, "everyone's rows": ""}
        if all(own is None or every == own for every, own in pairs):
            sides = {"all test rows": ""}
        width = max(len(party) for party in ("party", *last))
        first, second = " " * width, f"{'party':<{width}}"
        for side in sides:
            heads = [f"{name + ' alone → after':>24}" for name in shown]
            first += f"  {side:>{len('  '.join(heads))}}"
            second += "  " + "  ".join(heads)
        lines = [first, second]
        for party, after in last.items():
            alone = self.metrics[0].get(party, {})
            cells = [
                f"{_number(alone.get(n + side))} → {_number(after.get(n + side))}"
                for side in sides.values()
                for n in shown
            ]
            fitted = (
                f"{cell:>{max(24, len(name) + 14)}}"
                for cell, name in zip(cells, shown * len(sides), strict=True)
            )
            lines.append(f"{party:<{width}}  " + "  ".join(fitted))
        lines += self._worse_off(shown)
        return visible("\n".join([*lines, *self._left_out(), *self._noted()]))

    def _worse_off(self, names: Iterable[str]) -> Iterator[str]:
        """Yield a line for every metric in which parties end worse than alone on their own rows."""
        first, last = self.metrics[0], self.metrics[-1]
        for name in names:
            sign, own = sign_of(name), name + OWN
            both = sorted(
                p for p in first.keys() & last.keys() if own in first[p] and own in last[p]
            )
            gains = [last[p][own] - first[p][own] for p in both]
            # As far as the table shows: what is printed alike is not called worse.
            worse = [p for p, gain in zip(both, gains, strict=True) if sign * gain <= -_SHOWN]
            if worse:
                named = ", ".join(worse[:5]) + (" and others" if len(worse) > 5 else "")
                yield f"own rows: {name} is worse than alone at {len(worse)} of {len(both)}: {named}"

    def _noted(self) -> Iterator[str]:
        """Yield the notes of the last round and its teacher, and the first note of every party with notes."""
        for round in self.rounds[-1:]:
            notes = () if round.teacher is None else round.teacher.notes
            notes += round.notes
            yield from (f"round {round.number}: {note}" for note in notes)
        whole = [d for row in self.deliveries for d in row if d.status == "ok" and d.detail]
        for party in sorted({delivery.party for delivery in whole}):
            mine = [delivery.detail for delivery in whole if delivery.party == party]
            yield f"{party} noted {len(mine)} times, first: {mine[0]}"

    def _left_out(self) -> Iterator[str]:
        """Yield a line for every party excluded from the protocol, with its first reason."""
        aside = bookkeeping_tasks()
        failures = [delivery for delivery in self.failures if delivery.tasks not in aside]
        for party in sorted({delivery.party for delivery in failures}):
            mine = [delivery for delivery in failures if delivery.party == party]
            yield f"{party} was left out {len(mine)} times, first: {mine[0].status}, {mine[0].detail}"


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"

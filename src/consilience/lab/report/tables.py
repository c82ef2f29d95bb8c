"""Tables of one run, and of several side by side, for the terminal and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InvalidInput, nearest, visible
from consilience.lab.experiments import Spec
from consilience.lab.report.gains import worse_off
from consilience.lab.report.reading import read_results
from consilience.lab.report.results import Results, Spread, words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = dict[str, Any]

NOBODY = "nobody lies"
"""Head of a run without liars, beside runs with some."""


def as_rows(results: Results) -> list[Row]:
    """Return the last round's metrics as data: one dict per method and metric, the main metric first.

    Keys: ``method``, ``metric``, ``mean``, ``sd`` (``None`` for one seed), ``seeds``.
    """
    return [
        {"method": method.label, "metric": metric, **_values(value)}
        for method in results.methods
        for metric in results.metrics
        if (value := method.final(metric)) is not None
    ]


def left_out(results: Results) -> list[str]:
    """Write a line for every party excluded from exchanges, with the first reason.

    Returns:
        Lines, sorted by party.
    """
    lines = []
    for party in sorted({event.party for event in results.failures}):
        mine = [event for event in results.failures if event.party == party]
        first = mine[0]
        lines.append(
            f"party {party!r} was left out {len(mine)} times, first in {first.method}, seed "
            f"{first.seed}, round {first.round}: {first.kind}, {first.reason}"
        )
    return lines


def table(results: Results, metric: str | None = None) -> RenderableType:
    """Lay out the methods of a run with mean ± sd over seeds, of the last round's mean over parties.

    By default the main metric and log loss, each over own rows and over everyone's; "worse off" are parties
    that ended worse than alone on own rows, in one of these, by more than their standard error. Warnings
    stand below.

    Args:
        results: from :func:`read_results`.
        metric: show this one alone, instead.

    Raises:
        InvalidInput: that metric was not measured.
    """
    check_metric(results, metric)
    shown = results.shown if metric is None else (metric,)
    heads = [results.titled(name).replace(", ", "\n") for name in shown]
    table = _table(results.spec.name, "method", *heads, "worse off", "seeds")
    for method in results.methods:
        values = [method.final(name) for name in shown]
        cells = ["–" if value is None else str(value) for value in values]
        worse = str(worse_off(results, method.label))
        table.add_row(_plain(method.label), *cells, worse, str(len(method.seeds)))
    for label in dict.fromkeys(one.method for one in results.missing):
        if results.method(label) is None:
            table.add_row(_plain(label), *["–"] * (len(shown) + 1), "0")
    return _with(table, results.warnings)


@dataclass(frozen=True)
class Comparison:
    """Comparison of several runs in one metric.

    Attributes:
        metric: the compared metric.
        runs: names of the runs, in the order given.
        cells: method to run to its last round's mean over parties.
        warnings: differences between the runs that limit the comparison.
        attacks: per run, its hostile parties and their attacks; empty if no run has any.
    """

    metric: str
    runs: tuple[str, ...]
    cells: dict[str, dict[str, Spread]]
    warnings: tuple[str, ...]
    attacks: dict[str, str] = field(default_factory=dict)

    def as_rows(self) -> list[Row]:
        """Return one dict per method and run, for JSON."""
        return [
            {"method": method, "run": run, "metric": self.metric, **_values(value)}
            | ({"attack": self.attacks[run]} if self.attacks else {})
            for method, row in self.cells.items()
            for run, value in row.items()
        ]

    def table(self) -> RenderableType:
        """Lay out methods from top to bottom, runs from left to right; warnings stand below."""
        heads = [f"{run}\n{self.attacks[run]}" if self.attacks else run for run in self.runs]
        table = _table(words(self.metric), "method", *heads)
        for method, row in self.cells.items():
            table.add_row(_plain(method), *(str(row.get(run, "–")) for run in self.runs))
        return _with(table, self.warnings)


def compare(runs: Sequence[Path], metric: str | None = None) -> Comparison:
    """Put runs side by side, and name the differences that make the comparison unfair.

    Args:
        runs: run folders, one or more.
        metric: what to compare; by default the first run's main metric.

    Raises:
        InvalidInput: not run folders, or a metric that one of them lacks.
        RunFailed: a damaged ledger.
    """
    if not runs:
        raise InvalidInput("there are no runs to compare")
    found = [read_results(run) for run in runs]
    metric = metric or next((results.metric for results in found if results.metric), None)
    if metric is None:
        raise InvalidInput("none of the runs has a method that is done and was measured")
    for results in found:
        if results.methods:
            check_metric(results, metric)
    names = _names(found)
    labels = dict.fromkeys(method.label for results in found for method in results.methods)
    cells = {
        label: {
            name: value
            for name, results in zip(names, found, strict=True)
            if (method := results.method(label)) and (value := method.final(metric))
        }
        for label in labels
    }
    first, others = found[0], zip(names[1:], found[1:], strict=True)
    warnings = [
        f"{name}: {warning}"
        for name, results in zip(names, found, strict=True)
        for warning in results.warnings
    ]
    warnings += [
        f"{name} differs from {names[0]} in {what}."
        for name, results in others
        for what in _differences(first, results)
    ]
    attacks = {name: _attack(results) for name, results in zip(names, found, strict=True)}
    if set(attacks.values()) == {NOBODY}:
        attacks = {}
    return Comparison(metric, names, cells, tuple(warnings), attacks)


def _attack(results: Results) -> str:
    """Attack in a run, and the number of its liars."""
    hostile = results.spec.hostile if isinstance(results.spec, Spec) else None
    if hostile is None or not hostile.parties:
        return NOBODY
    count = hostile.parties if isinstance(hostile.parties, int) else len(hostile.parties)
    return f"{hostile.attack}, {count}"


def _differences(one: Results, other: Results) -> list[str]:
    """Name the differences that make the comparison of two runs unfair."""
    a, b = one.spec, other.spec
    said = []
    if one.subject != other.subject:
        said.append("its data")
    if a.seed_list != b.seed_list:
        said.append(f"its seeds ({_list(b.seed_list)} against {_list(a.seed_list)})")
    if isinstance(a, Spec) and isinstance(b, Spec):
        if one.subject == other.subject and a.data != b.data:
            said.append("its data")
        shared = sorted(set(one.splits) & set(other.splits))
        if a.partition != b.partition:
            said.append("its partition")
        elif any(
            one.splits[seed].parties != other.splits[seed].parties
            or one.splits[seed].classes != other.splits[seed].classes
            or not np.array_equal(one.splits[seed].counts, other.splits[seed].counts)
            for seed in shared
        ):
            said.append("who holds what, with the same seed")
        if a.models != b.models:
            said.append("its models")
        if a.calibration != b.calibration:
            said.append(f"its calibration rows ({b.calibration:g} against {a.calibration:g})")
        if a.robustness != b.robustness:
            said.append("its protection from liars ([robustness])")
    elif one.parties != other.parties:
        said.append("its parties")
    if a.protocol.rounds != b.protocol.rounds:
        said.append(f"its rounds ({b.protocol.rounds} against {a.protocol.rounds})")
    ours, theirs = one.meta.get("versions", {}), other.meta.get("versions", {})
    changed = [p for p in sorted({*ours, *theirs}) if ours.get(p) != theirs.get(p)]
    if changed:
        pairs = (f"{p} {theirs.get(p, 'none')} against {ours.get(p, 'none')}" for p in changed)
        said.append("versions: " + ", ".join(pairs))
    return said


def _list(seeds: Sequence[int]) -> str:
    return (
        ", ".join(map(str, seeds)) if len(seeds) < 6 else f"{seeds[0]}, {seeds[1]}, … {seeds[-1]}"
    )


def _names(runs: Sequence[Results]) -> tuple[str, ...]:
    """Folder names, the coordinator's for a deployed run; duplicates are numbered."""
    names: list[str] = []
    for run in runs:
        folder = run.folder.resolve()
        name = folder.parent.name if run.deployed else folder.name
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return tuple(names)


def _values(value: Spread) -> Row:
    return {"mean": value.mean, "sd": value.sd, "seeds": value.seeds}


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=_plain(title), title_justify="left")
    for i, name in enumerate(columns):
        table.add_column(_plain(name), justify="right" if i else "left", no_wrap=True)
    return table


def _with(table: Table, warnings: Sequence[str]) -> RenderableType:
    from rich.console import Group

    return Group(table, *(_plain(f"! {warning}") for warning in warnings))


def _plain(text: str) -> Any:
    """Text that a terminal shows as it is: names are the user's, brackets in them no markup."""
    from rich.text import Text

    return Text(visible(text))


def check_metric(results: Results, metric: str | None) -> str | None:
    """``metric`` if it was measured, the run's main metric if it is ``None``.

    Raises:
        InvalidInput: that metric was not measured.
    """
    if metric is not None and metric not in results.metrics:
        raise InvalidInput(
            f"no metric {metric!r} was measured",
            where=str(results.folder),
            mend=nearest(metric, results.metrics) if results.metrics else None,
        )
    return metric or results.metric

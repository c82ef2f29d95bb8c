"""One self-contained page about a run: no script, no network, readable on a phone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.aggregation.base import GUARANTEE
from consilience.core.errors import RunFailed
from consilience.core.files import inside, write_whole
from consilience.lab.config.methods import method_lines
from consilience.lab.report.by_party import marked_best, metric_tables, party_sentences
from consilience.lab.report.clinical import clinical
from consilience.lab.report.drawing import Plot
from consilience.lab.report.gains import worse_off
from consilience.lab.report.html import amount, render
from consilience.lab.report.outcomes import outcome_figures
from consilience.lab.report.plots import draw_all, uneven
from consilience.lab.report.reading import read_results
from consilience.lab.report.results import Method, Results, Spread, few, mean, spread
from consilience.lab.report.toml import to_toml
from consilience.lab.report.verdict import verdict

MANY = 50
"""Failures, and rounds with who took part, that are listed; the rest are in the ledger."""

FEW = 20
"""Parties of a round that are named."""

Table = dict[str, list[Any]]


def write_report(run: Path) -> Path:
    """Write ``report.html`` and ``plots/`` into a run folder, finished or not.

    Returns:
        the page's path.

    Raises:
        InvalidInput: not a run folder.
        RunFailed: a damaged ledger, a full disk, or ``plots`` links to a place outside of the run folder.
    """
    results = read_results(run)
    run = results.folder
    target = run / "report.html"
    try:
        plots = draw_all(results, inside(run / "plots", run))
        write_whole(target, page(results, plots))
    except OSError as error:
        raise RunFailed(
            f"the report cannot be written ({error.strerror})", where=str(error.filename or run)
        ) from error
    return target


def page(results: Results, plots: Sequence[Plot]) -> str:
    """Fill the page of a run; gives its HTML.

    Args:
        results: the run.
        plots: its figures; sections without one leave it out.
    """
    pictures = {plot.name: plot for plot in plots}
    uneven_ones = [method for method in results.methods if uneven(method.trust)]
    found = verdict(results)
    return render(
        "run.html",
        results=results,
        spec=results.spec,
        meta=results.meta,
        held=results.holdings,
        found=found,
        pictures=pictures,
        methods=_final_metrics(results),
        others=_other_metrics(results),
        about=_about_methods(results),
        ranges="ranges" if results.regression else "classes",
        parties=metric_tables(results, found),
        sentences=[] if found is None else party_sentences(results, found)[:MANY],
        clinical=clinical(results, found),
        outcome=outcome_figures(results, found),
        trust=[
            {"picture": pictures.get(f"trust-{i}"), "caption": _trust_caption(results, method)}
            for i, method in enumerate(uneven_ones, start=1)
        ],
        even=[m.label for m in results.methods if m.trust is not None and m not in uneven_ones],
        holdings=_rows_by_class(results),
        traffic=_bytes_by_method(results),
        attendance=_attendance(results),
        sent=_messages_by_method(results),
        central=results.baseline("central"),
        attacks=_attacks(results),
        missing=results.missed(),
        left_out=_times_left_out(results),
        failures=[
            [f.method, f.seed, f.round, f.party, _tasks(f.tasks), f.kind, f.reason]
            for f in results.failures[:MANY]
        ],
        remarks=[
            [", ".join(n.parties), n.text, ", ".join(n.methods), f"{n.times:,}"]
            for n in results.notes
            if not n.text.startswith(GUARANTEE)
        ],
        guarantees=[
            f"Privacy ({', '.join(n.methods)}): {n.text.removeprefix(GUARANTEE)}."
            for n in results.notes
            if n.text.startswith(GUARANTEE)
        ],
        toml=to_toml(results.spec, paths=False),
        boxed=any(not (split.counts > 0).all() for split in results.splits.values()),
        unsplit=[m.label for m in results.methods if m.exchanges and not m.errors],
    )


def _cell(value: Spread | None) -> str:
    return "–" if value is None else str(value)


def _times_left_out(results: Results) -> str:
    """Parties excluded from exchanges with their counts, highest first."""
    times = Counter(event.party for event in results.failures).most_common()
    return few([f"{party} ({count:,})" for party, count in times])


def _tasks(names: str) -> str:
    """Names of tasks as a reader takes them, from the ledger's ``A+B``."""
    return names.replace("+", ", ")


def _final_metrics(results: Results) -> Table:
    """The metrics after the last round, a row for each method, with the best of each column marked."""
    return {
        "head": [
            "method",
            *map(results.titled, results.shown),
            "parties worse off",
            "seconds per seed",
        ],
        "rows": [
            [
                method.label,
                *(_cell(method.final(name)) for name in results.shown),
                str(worse_off(results, method.label)),
                f"{np.mean(method.seconds):,.1f}",
            ]
            for method in results.methods
        ],
        "best": _best(results, results.shown),
    }


def _other_metrics(results: Results) -> Table:
    """The metrics that the first table leaves out, a row for each method."""
    names = [name for name in results.metrics if name not in results.shown]
    if not results.apart:
        names = [name for name in names if not name.endswith("_own")]
    return {
        "head": ["method", *map(results.titled, names)] if names else [],
        "rows": [
            [method.label, *(_cell(method.final(name)) for name in names)]
            for method in results.methods
        ],
        "best": _best(results, names),
    }


def _best(results: Results, metrics: Sequence[str]) -> list[list[bool]]:
    """Mark the cell of the best method of each metric; baselines infeasible in a federation get no mark."""
    able = [method.exchanges or method.aggregate == "local" for method in results.methods]
    marks = [
        marked_best(
            [
                method.final(name) if can else None
                for method, can in zip(results.methods, able, strict=True)
            ],
            name,
        )
        for name in metrics
    ]
    return [[False, *row] for row in zip(*marks, strict=True)]


def _about_methods(results: Results) -> list[list[str]]:
    """Each method and a line about it."""
    lines = method_lines()
    return [
        [method.label, lines.get(method.aggregate, "a method of the user's own")]
        for method in results.methods
    ]


def _trust_caption(results: Results, method: Method) -> str:
    """The method and seed of a trust plot, and the share of weight on the parties holding each class."""
    assert method.trust is not None
    seed = method.seeds[0]
    caption = f"{method.label}, seed {seed}. "
    holds = results.splits[seed].counts > 0
    share = np.where(holds, np.nan_to_num(method.trust), 0.0).sum(axis=0)
    seen = holds.any(axis=0) & np.isfinite(method.trust).any(axis=0)
    whole = np.nan_to_num(method.trust).sum(axis=0)
    if holds.all() or not seen.any() or (whole[seen] <= 0).any():
        return caption
    average = float((share[seen] / whole[seen]).mean())
    chance = float(holds[:, seen].mean())
    return caption + (
        f"Parties that hold a class have {average:.0%} of the weight on it, averaged over classes; "
        f"equal weights would give them {chance:.0%}."
    )


def _rows_by_class(results: Results) -> Table:
    """Private rows of each class, a row for each party."""
    held = results.holdings
    if held is None:
        return {"head": [], "rows": []}
    return {
        "head": ["party", *held.classes, "all"],
        "rows": [
            [party, *(f"{n:,}" if n else "·" for n in row), f"{row.sum():,}"]
            for party, row in zip(held.parties, held.counts, strict=True)
        ],
    }


def _bytes_by_method(results: Results) -> Table:
    """Mean bytes on the wire, a row for each method whose parties exchange something."""
    head = ["up, a party and round", "down, a party and round", "set-up, a party"]
    rows = []
    for method in results.methods:
        if method.aggregate in ("local", "central"):
            continue
        up, down = method.bytes_up, method.bytes_down
        whole = spread((up + down).sum(axis=(1, 2)))
        assert whole is not None
        means = [float(mean(part[:, 1:].ravel(), 0)) for part in (up, down)]
        setup = float((up[:, 0] + down[:, 0]).mean())
        rows.append([method.label, *map(amount, [*means, setup, whole.mean])])
    return {"head": ["method", *head, "whole run, all parties"], "rows": rows}


def _attendance(results: Results) -> list[list[str]]:
    """Participating and excluded parties, one row for consecutive equal rounds.

    Empty if there are several methods and all parties took part in every round.
    """
    methods = {one.method for one in results.attendance}
    everyone = len(results.parties)
    if len(methods) > 1 and all(len(one.present) == everyone for one in results.attendance):
        return []
    return [
        [
            *([one.method] if len(methods) > 1 else []),
            str(one.first) if one.first == one.last else f"{one.first} to {one.last}",
            f"all {everyone}" if len(one.present) == everyone else _names(one.present),
            "; ".join(f"{party}: {why}" for party, why in one.left_out.items()) or "–",
        ]
        for one in results.attendance[:MANY]
    ]


def _names(parties: Sequence[str]) -> str:
    """The number of parties, and the names of the first of them."""
    shown = ", ".join(parties[:FEW]) + (", …" if len(parties) > FEW else "")
    return f"{len(parties)}: {shown}" if parties else "none"


def _attacks(results: Results) -> Table:
    """Results of privacy attacks on the run from its ledger, a row for each party and attack."""
    lines = results.meta.get("attacks", ())
    head, *rows = [[str(cell) for cell in line] for line in lines] or [[]]
    return {"head": head, "rows": [row for row in rows if len(row) == len(head)]}


def _messages_by_method(results: Results) -> list[dict[str, Any]]:
    """Kinds of messages that left parties: for each method their rows, bytes and number of parties."""
    methods = dict.fromkeys(entry.method for entry in results.left)
    sent = {name: [one for one in results.left if one.method == name] for name in methods}
    return [
        {
            "method": method,
            "bytes": sum(one.bytes for one in entries),
            "parties": len({one.party for one in entries}),
            "rows": [
                [
                    one.party,
                    one.what or "receipt",
                    _tasks(one.tasks),
                    f"{one.times:,}",
                    amount(one.bytes),
                ]
                for one in sorted(entries, key=lambda one: one.party)
            ],
        }
        for method, entries in sent.items()
    ]

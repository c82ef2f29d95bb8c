"""Party by party: metrics alone and after every method, over own rows and everyone's, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import command
from consilience.core.metrics.metrics import sign_of
from consilience.lab.report.gains import Gain
from consilience.lab.report.results import Method, Results, Spread, number, words
from consilience.lab.report.verdict import Verdict

Table = dict[str, Any]


def marked_best(values: Sequence[Spread | None], metric: str) -> list[bool]:
    """Mark the best of several values of a metric, compared as displayed.

    Args:
        values: one per method; ``None`` if not measured.
        metric: name of the metric, with or without the suffix of the local test set.

    Returns:
        One flag per value; all false if all values are equal or none was measured.
    """
    sign = sign_of(metric)
    known = [sign * value.mean for value in values if value is not None]
    best = [
        value is not None and number(value.mean) == number(sign * max(known)) for value in values
    ]
    return best if known and not all(best) else [False] * len(best)


def metric_tables(results: Results, found: Verdict | None) -> list[Table]:
    """Lay out the main metric of every party, alone and after each method: own rows, then everyone's.

    Args:
        results: of a run.
        found: its verdict, whose method comes first; ``None`` where there is none.
    """
    if results.metric is None:
        return []
    sides = ("_own", "") if results.apart else ("",)
    return [
        _metric_table(results, results.metric + side, found)
        for side in sides
        if results.metric + side in results.metrics
    ]


def _metric_table(results: Results, metric: str, found: Verdict | None) -> Table:
    shown = [method for method in results.methods if metric in method.scores]
    shown.sort(key=lambda method: found is None or method.label != found.method)
    alone = next((method for method in shown if method.aggregate == "local"), None)
    taught = [method for method in shown if method is not alone]
    held = results.holdings
    rows, best = [], []
    for i, party in enumerate(results.parties):
        before = (
            alone.of_party(metric, i)
            if alone
            else _at_first(taught[0] if taught else None, metric, i)
        )
        values = [before, *(method.of_party(metric, i) for method in taught)]
        cells = ["–" if value is None else str(value) for value in values]
        rows.append([party, *cells, *_data_of(results, party)])
        best.append([False, *marked_best(values, metric)])
    kind = "ranges" if results.regression else "classes"
    return {
        "title": results.titled(metric),
        "head": [
            "party",
            "alone",
            *(method.label for method in taught),
            *([] if held is None else ["rows", kind, "model"]),
        ],
        "rows": rows,
        "best": best,
    }


def _at_first(method: Method | None, metric: str, party: int) -> Spread | None:
    """A party's metric in round 0, before others taught it."""
    if method is None or method.rounds[0] > 0:
        return None
    return method.of_party(metric, party, round=0)


def _data_of(results: Results, party: str) -> list[Any]:
    """Numbers of rows and classes of a party with the first seed, and its model; empty if not recorded."""
    held = results.holdings
    if held is None:
        return []
    counts = held.counts[held.parties.index(party)] if party in held.parties else np.zeros(1)
    model = results.models.get(party, "–").rpartition(":")[2]
    return [f"{int(counts.sum()):,}", np.count_nonzero(counts), model]


def party_sentences(results: Results, found: Verdict) -> list[str]:
    """Write a sentence on every party under the verdict's method; parties that lost come first.

    Args:
        results: of a run.
        found: its verdict.
    """
    deciding = [gain for gain in (found.first, found.loss) if gain]
    lost = {party for gain in deciding for party in gain.worse}
    known = {party for gain in deciding for party in gain.by_party}
    order = sorted(known, key=lambda party: (party not in lost, results.parties.index(party)))
    said = [_sentence(results, found, party) for party in order]
    learners = [party for party in results.meta.get("learners", ()) if party in results.parties]
    return said + [_learner(results, found, party) for party in learners if party not in known]


def _learner(results: Results, found: Verdict, party: str) -> str:
    """A sentence on a party that learns only, so has no local model for comparison."""
    method, position = results.method(found.method), results.parties.index(party)
    text = f"{party}: learns only: it has no model trained alone to compare with"
    metric = found.first.metric
    for name in dict.fromkeys((metric, metric.removesuffix("_own"))):
        if method is not None and (value := method.of_party(name, position)) is not None:
            return f"{text}; {words(name)} {number(value.mean)}."
    return f"{text}, and no labelled rows to be measured on."


def _sentence(results: Results, found: Verdict, party: str) -> str:
    (rows, first), *others = found.sides
    whose = {"": "its rows", "own rows": "its own rows"}.get(rows, rows)
    gained = first.by_party.get(party, 0) > max(first.errors.get(party, 0), 1e-12)
    worse = party in first.worse
    harmed = found.loss is not None and party in found.loss.worse
    figures = _changes(results, found, first, party)
    if worse:
        text = f"{party}: exchange made {whose} worse ({figures})"
    elif harmed:
        metric = words(first.metric.removesuffix("_own"))
        change = f"its {metric} better" if gained else f"no clear change in {metric}"
        text = f"{party}: on {whose} {change}, its probabilities worse ({figures})"
    else:
        text = f"{party}: {'better' if gained else 'no clear change'} on {whose} ({figures})"
    for other, gain in others:
        if party in gain.by_party:
            text += f"; {other}: {_changes(results, found, gain, party)}"
    if not (worse or harmed):
        return f"{text}."
    keep = f"keep the model trained alone: {_alone(results, party)}"
    if not others:
        return f"{text}: {keep if worse else f'if probabilities count, {keep}'}"
    return f"{text}: {f'for {whose}' if worse else f'if probabilities of {whose} count'}, {keep}"


def _changes(results: Results, found: Verdict, gain: Gain, party: str) -> str:
    """A party's metric and log loss of the same rows, alone and after, in words."""
    loss = found.losses.get("log_loss_own" if gain.metric.endswith("_own") else "log_loss")
    changes = [_change(results, found.method, one, party) for one in (gain, loss) if one]
    return ", ".join(filter(None, changes))


def _alone(results: Results, party: str) -> str:
    """The command that predicts with a party's model trained alone, from the folder of the run's."""
    if results.deployed:
        return command("party", "predict", "party.toml", "DATA.csv", "--alone")
    # With the purpose "taught" a party keeps no second model: only the baseline has it then.
    alone = ("--method", "local") if results.baseline("local") else ("--alone",)
    folder = results.folder
    if folder.is_absolute():  # which a page that is sent to others does not tell
        near = folder.is_relative_to(Path.cwd())
        folder = folder.relative_to(Path.cwd()) if near else Path(folder.name)
    return command("predict", folder.as_posix(), "--party", party, "DATA.csv", *alone)


def _change(results: Results, label: str, gain: Gain, party: str) -> str:
    """A party's metric alone and after, in words; empty where it was not measured."""
    method, position = results.method(label), results.parties.index(party)
    after = method.of_party(gain.metric, position) if method else None
    if after is None or party not in gain.by_party:
        return ""
    name = gain.metric.removesuffix("_own")
    sign = sign_of(name)
    before = after.mean - sign * gain.by_party[party]
    return f"{words(name)} {number(before)} → {number(after.mean)}"

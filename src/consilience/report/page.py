"""One self-contained page about a run: no script, no network, readable on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from consilience.errors import RunFailed
from consilience.files import inside, write_whole
from consilience.report.html import (
    STYLE,
    amount,
    counted,
    escape,
    paragraph,
    picture,
    section,
    table,
)
from consilience.report.plots import Plot, draw_all, uneven
from consilience.report.reading import read_results
from consilience.report.results import (
    Left,
    Method,
    Results,
    mean,
    spread,
    words,
)
from consilience.report.toml import to_toml
from consilience.report.verdict import verdict

MANY = 50
"""Longer lists of failures are cut here, with a count of the rest."""


def write_report(run: Path) -> Path:
    """Write ``report.html`` and ``plots/`` into a run folder, finished or not.

    Returns:
        the page's path.

    Raises:
        InvalidInput: not a run folder.
        RunFailed: a damaged ledger, a full disk, ``plots`` that is a link out of the run folder.
    """
    results = read_results(run)
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
    """The whole page; every name in it is escaped."""
    pictures = {plot.name: plot for plot in plots}
    body = [
        _headline(results),
        _methods(results),
        _rounds(results, pictures),
        _parties(results, pictures),
        _trust(results, pictures),
        _split(results, pictures),
        _communication(results, pictures),
        _audit(results),
        _events(results),
        _configuration(results),
    ]
    title = escape(f"{results.spec.name}: report")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _headline(results: Results) -> str:
    spec, found = results.spec, verdict(results)
    held = results.holdings
    about = f"{spec.data.name}, {counted(len(results.parties), 'party', 'parties')}, "
    if results.meta.get("public_rows"):
        about += f"{results.meta['public_rows']:,} public rows, "
    about += f"{counted(spec.protocol.rounds, 'round')}, {counted(len(spec.seed_list), 'seed')}"
    if held is not None:
        about += f", {int(held.counts.sum()):,} private rows"
    parts = [f"<header><h1>{escape(spec.name)}</h1>", paragraph(about, "small"), "</header>"]
    if found is None:
        text = "There is nothing to judge yet: no exchange method is done and measured."
        parts.append(f'<div class="finding">{paragraph(text)}</div>')
    else:
        opening, rest = found.opening, found.sentence[len(found.opening) :]
        sentence = f"<p><strong>{escape(opening)}</strong>{escape(rest)}</p>"
        more = found.per_party
        if found.candidates > 1:
            more += f" {found.method} is the best of {found.candidates} exchange methods on these test rows."
        parts.append(f'<div class="finding">{sentence}{paragraph(more, "small")}</div>')
    parts += [f'<div class="warning">{paragraph(warning)}</div>' for warning in results.warnings]
    if results.failures:
        text = (
            f"Parties were left out of {counted(len(results.failures), 'exchange')} (listed below)."
        )
        parts.append(f'<div class="warning">{paragraph(text)}</div>')
    return "\n".join(parts)


def _methods(results: Results) -> str:
    found = verdict(results)
    head = ["method", *(words(name) for name in results.metrics), "seeds", "seconds per seed"]
    rows = []
    for method in results.methods:
        values = [method.final(name) for name in results.metrics]
        cells = ["–" if value is None else str(value) for value in values]
        took = float(np.mean(method.seconds))
        rows.append([method.label, *cells, str(len(method.seeds)), f"{took:,.1f}"])
    if not rows:
        return ""
    best = None if found is None else found.method
    text = (
        "After the last round: the mean over parties, then mean ± standard deviation over seeds "
        "(n − 1; – for one seed)."
    )
    if "accuracy_local" in results.metrics:
        text += " Accuracy local counts test rows of a party's own classes only."
    return section("Methods", table(head, rows, best=best), paragraph(text, "small"))


def _rounds(results: Results, pictures: dict[str, Plot]) -> str:
    if "rounds" not in pictures:
        return ""
    text = (
        "Bands are ± one standard deviation over seeds." if len(results.spec.seed_list) > 1 else ""
    )
    parts = [picture(pictures["rounds"], text)]
    if "teacher" in pictures:
        text = (
            "How often the teacher, made of the parties' predictions, is right on the public rows. "
            "Only an experiment can know."
        )
        parts.append(picture(pictures["teacher"], text))
    if "teacher-error" in pictures:
        text = (
            "What the teacher's squared error is made of (Kovalchuk et al. 2026, Lemma 4.1), with the true "
            "class for reference and rows of one class standing for one another: what the weights leave of "
            "the parties' mean errors on a class, what is left of their scatter, and how much a few parties "
            "decide (1/m for equal weights, 1 for one party alone)."
        )
        parts.append(picture(pictures["teacher-error"], text))
    return section("Over rounds", *parts)


def _parties(results: Results, pictures: dict[str, Plot]) -> str:
    metric, held = results.metric, results.holdings
    if metric is None or held is None:
        return ""
    first = next(
        (m for m in results.methods if m.aggregate != "central" and metric in m.scores), None
    )
    shown = [method for method in results.methods if metric in method.scores]
    ranges = "ranges" if results.regression else "classes"
    head = ["party", "model", "rows", ranges, "round 0", *(method.label for method in shown)]
    rows = []
    for i, party in enumerate(results.parties):
        counts = held.counts[held.parties.index(party)] if party in held.parties else np.zeros(1)
        before = None if first is None else first.of_party(metric, i, round=0)
        after = [method.of_party(metric, i) for method in shown]
        rows.append(
            [
                party,
                results.models.get(party, "–"),
                f"{int(counts.sum()):,}",
                str(np.count_nonzero(counts)),
                *("–" if value is None else str(value) for value in [before, *after]),
            ]
        )
    text = (
        f"The {words(metric)} of every party, mean ± sd over seeds: in round 0, trained alone, "
        f"and after the last round of each method. Rows and {ranges} are of the first seed."
    )
    parts = [table(head, rows, words=2)]
    if "parties" in pictures:
        parts.insert(0, picture(pictures["parties"], ""))
    return section("Party by party", *parts, paragraph(text, "small"))


def _trust(results: Results, pictures: dict[str, Plot]) -> str:
    uneven_ones = [method for method in results.methods if uneven(method.trust)]
    even = [m.label for m in results.methods if m.trust is not None and m not in uneven_ones]
    if not uneven_ones and not even:
        return ""
    parts = []
    if uneven_ones:
        text = (
            "Mean weight of each party in the teacher on the public rows of each class, in the last "
            "round of one seed. A box marks a class of which the party has private rows."
        )
        parts.append(paragraph(text))
    for i, method in enumerate(uneven_ones):
        caption = f"{method.label}, seed {method.seeds[0]}. {_on_holders(results, method)}"
        if drawn := pictures.get(f"trust-{i + 1}"):
            parts.append(picture(drawn, caption))
    if even:
        text = f"Under {', '.join(even)}, all parties have the same mean weight on every class."
        parts.append(paragraph(text, "small"))
    return section("Who was trusted on which classes", *parts)


def _on_holders(results: Results, method: Method) -> str:
    """How much of the weight fell on parties that hold the class."""
    assert method.trust is not None
    holds = results.splits[method.seeds[0]].counts > 0
    share = np.where(holds, np.nan_to_num(method.trust), 0.0).sum(axis=0)
    seen = holds.any(axis=0) & np.isfinite(method.trust).any(axis=0)
    whole = np.nan_to_num(method.trust).sum(axis=0)
    if holds.all() or not seen.any() or (whole[seen] <= 0).any():
        return ""
    average = float((share[seen] / whole[seen]).mean())
    chance = float(holds[:, seen].mean())
    return (
        f"Parties that hold a class have {average:.0%} of the weight on it, averaged over classes; "
        f"equal weights would give them {chance:.0%}."
    )


def _split(results: Results, pictures: dict[str, Plot]) -> str:
    if "holdings" not in pictures or results.holdings is None:
        return ""
    seed = next(iter(results.splits))
    what = "range of values" if results.regression else "class"
    text = f"Private rows of each {what} in seed {seed}; the bars are each party's rows in all."
    held = results.holdings
    rows = [
        [party, *(f"{n:,}" if n else "·" for n in row), f"{row.sum():,}"]
        for party, row in zip(held.parties, held.counts, strict=True)
    ]
    listed = table(["party", *held.classes, "all"], rows)
    notes = results.meta.get("dataset")
    return section(
        "Who holds what",
        picture(pictures["holdings"], text),
        f"<details><summary>as a table</summary>{listed}</details>",
        paragraph(str(notes), "small") if notes else "",
    )


def _communication(results: Results, pictures: dict[str, Plot]) -> str:
    talking = [m for m in results.methods if m.aggregate not in ("local", "central")]
    if not talking:
        return ""
    head = [
        "method",
        "up, a party and round",
        "down, a party and round",
        "set-up, a party",
        "whole run, all parties",
    ]
    rows = []
    for method in talking:
        up, down = method.bytes_up, method.bytes_down
        setup = (up[:, 0] + down[:, 0]).mean()
        whole = spread((up + down).sum(axis=(1, 2)))
        assert whole is not None
        rows.append(
            [
                method.label,
                *(amount(float(mean(part[:, 1:].ravel(), 0))) for part in (up, down)),
                amount(float(setup)),
                amount(whole.mean),
            ]
        )
    text = (
        "Bytes of the messages in their wire format, measured, evaluation for this report left out; "
        "means over parties, rounds and seeds. Methods without exchange send no predictions."
    )
    parts = [table(head, rows)]
    if "bytes" in pictures:
        parts.insert(0, picture(pictures["bytes"], ""))
    return section("Communication", *parts, paragraph(text, "small"))


def _audit(results: Results) -> str:
    by_method: dict[str, list[Left]] = {}
    for left in results.left:
        by_method.setdefault(left.method, []).append(left)
    if not by_method:
        return ""
    parts = [
        paragraph(
            f"Every kind of message that left a party with seed {results.spec.seed_list[0]}: what it was "
            "with its shape, the tasks it answered, how often, and the bytes in all. Descriptions name "
            "the party's classes and how its model takes soft targets; receipts say that a task is done; "
            "metrics serve this report. These are all the messages of the run."
        )
    ]
    central = results.baseline("central")
    if central is not None:
        by_method.pop(central.label, None)
        text = f"Under {central.label} the private rows of all parties are pooled: there is nothing to audit."
        parts.append(paragraph(text, "small"))
    for method, entries in by_method.items():
        rows = [
            [
                e.party,
                e.what or "receipt",
                e.tasks.replace("+", ", "),
                f"{e.times:,}",
                amount(e.bytes),
            ]
            for e in sorted(entries, key=lambda entry: entry.party)
        ]
        listed = table(["party", "what left", "in answer to", "times", "bytes"], rows, words=3)
        total = amount(sum(entry.bytes for entry in entries))
        who = counted(len({e.party for e in entries}), "party", "parties")
        summary = escape(f"{method}: {total} from {who}")
        parts.append(f"<details><summary>{summary}</summary>{listed}</details>")
    return section("What left each party", *parts)


def _events(results: Results) -> str:
    parts = []
    if results.failures:
        rows = [
            [
                f.method,
                str(f.seed),
                str(f.round),
                f.party,
                f.tasks.replace("+", ", "),
                f.kind,
                f.reason,
            ]
            for f in results.failures[:MANY]
        ]
        head = ["method", "seed", "round", "party", "asked", "kind", "reason"]
        parts.append(table(head, rows, words=7, prose={6}))
        if len(results.failures) > MANY:
            parts.append(
                paragraph(f"… and {len(results.failures) - MANY:,} more in the ledger.", "small")
            )
    else:
        parts.append(paragraph("No party failed, was late or was refused."))
    if results.notes:
        rows = [
            [", ".join(n.parties), n.text, ", ".join(n.methods), f"{n.times:,}"]
            for n in results.notes
        ]
        parts.append(table(["parties", "remark", "methods", "times"], rows, words=3, prose={1, 2}))
    return section("Failures and remarks", *parts)


def _configuration(results: Results) -> str:
    meta = results.meta
    versions = ", ".join(f"{name} {version}" for name, version in meta.get("versions", {}).items())
    lines = [
        f"Versions: {versions}." if versions else "",
        f"Machine: {meta['machine']}." if "machine" in meta else "",
        f"Started {meta['started']}" if "started" in meta else "",
    ]
    if "started" in meta:
        lines[-1] += f", finished {meta['finished']}." if "finished" in meta else ", not finished."
    file = f"{results.spec.name}.toml"
    again = f"consilience run {file}"
    if results.missing:
        again += f"\nconsilience resume {results.folder.name}    # to finish this run"
    return section(
        "Configuration",
        *(paragraph(line, "small") for line in lines if line),
        paragraph(f"To run it again, save this as {file}, then:"),
        f"<pre>{escape(again)}</pre>",
        f"<details><summary>{escape(file)}</summary><pre>{escape(to_toml(results.spec))}</pre></details>",
    )

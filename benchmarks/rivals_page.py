"""Page and figure of benchmarks/rivals.py, made of docs/results/rivals.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from page import RESULTS, table

Line = Mapping[str, str]
"""A line of the table: column to value."""

Found = Mapping[tuple[str, ...], Mapping[str, Line]]
"""Cell to rule to line."""

CELL = ("data", "setting", "parties", "models")
GROUP = (*CELL, "purpose")
"""Columns that make a cell of the table, without and with whom the models are for."""

MARKS = ("alone", "true-labels", "class-holders")
"""Lines to measure by, which are no rivals: nobody is taught, or the teacher was told the truth."""

WORSE = ("worse_off", "worse_off_log_loss")
"""Columns of how many parties are worse off, in error and in log loss."""

MANY = 50
"""Parties of the cells that the figure leaves out."""

HEAD = """\
One line a cell: data, how they are dealt out, number of parties, and where it says so models of five kinds.
The score is accuracy, and RMSE for diabetes. Parties bring logistic regressions, and ridge regressions for
values; forests on MNIST and Fashion-MNIST, and wherever a party may hold a single class: with Dirichlet's α,
and fifty parties of sorted digits. Everyone's rows are asked of two models:

- **The taught models**: what a party's model learned from the rule's teacher, by itself. By these rules are
  compared, like with like: nothing else differs between the columns.
- **The parties' models**: what a party predicts with. Unless a line says otherwise they are for *own rows*,
  the default purpose: each mixes its taught model with the one trained alone, as its own rows ask for, and
  keeps its own voice on rows of others that look like its own. They are what own rows are measured with.
  On everyone's rows they say what that costs, more than how good a rule is; with the purpose *everyone* a
  party predicts nearly as its taught model does.

*Worse off*: parties whose error, and whose log loss, on own test rows is larger than alone by more than the
larger of two standard errors, of the figure alone and of the difference
([definition](../concepts.md#own-rows-and-everyones)); where a line was measured before that was counted,
by the former. In brackets after a rule stands how many public rows its teacher and that of `auto` label
rightly. *Close*: no further behind the first rule than that one's standard error over test rows. *Way*: the
share of the way from `avg` (`mean` for values) to `true-labels`, whose teacher was told the public rows'
labels; – where these two are hardly apart. `class-holders` is told them too; `alone` exchanges nothing; these
three are no rivals. Images are means of four pixels, photographs and texts the features of the encoders. All
numbers, with calibration errors and the numbers that left a party, are in [rivals.csv](rivals.csv)."""


CODE = """\
The command was called for some cells and seeds at a time, while the library's code went through {states}
states (their digests stand at the end). With the code of today a line can differ by more than its last
digit."""


def page(rows: Sequence[Line], plan: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of the page: what `auto` comes to, its place in every cell, all rules, and what is missing.

    Args:
        rows: of the table.
        plan: cells of the whole table, in the order of :data:`CELL`.
    """
    found: dict[tuple[str, ...], dict[str, Line]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in GROUP), {})[row["rule"]] = row
    complete = {cell: rules for cell, rules in found.items() if "auto" in rules}
    states = {code for row in rows for code in row["code"].split()}
    yield from [HEAD, "", CODE.format(states=len(states)), "", *_summary(complete)]
    yield from ["", "![Accuracy against numbers that leave a party](rivals.svg)", ""]
    yield from ["## `auto` against alone, and against every rule", ""]
    heads = ["data, split", "seeds", "own rows: alone", "`auto`", "own log loss: alone", "`auto`"]
    heads += ["worse off"]
    for whose in ("taught", "parties' models, everyone's rows"):
        heads += [f"{whose}: `avg`", "`auto`", "true labels", "first rule", "`auto` is", "way"]
    yield from table(heads, [_against(cell, rules) for cell, rules in complete.items()])
    for values in (False, True):
        shown = {cell: one for cell, one in found.items() if _values(one) == values}
        if shown:
            score = "RMSE" if values else "accuracy"
            yield from ["", f"## The taught models: {score} on everyone's rows", ""]
            yield from _rules(shown)
    yield from ["", "## Not measured", ""]
    seeds = {cell[:4]: int(rules["auto"]["seeds"]) for cell, rules in complete.items()}
    missing = "; ".join(_titled((*cell, "own")) for cell in plan if cell not in seeds)
    yield f"Cells of the whole table without a figure: {missing or 'none'}."
    few = sum(count < 3 for count in seeds.values())
    codes: dict[str, list[str]] = {}
    for cell, rules in complete.items():
        codes.setdefault(rules["auto"]["code"], []).append(_titled(cell))
    usual = max(codes, key=lambda code: len(codes[code]))
    others = (f"{code} ({'; '.join(by)})" for code, by in codes.items() if code != usual)
    yield (
        f"{few} of {len(seeds)} cells have fewer than three seeds. Networks are not in the table: "
        "[aggregators](aggregators.md) has some. Digests of the library's code, of the first seed and then "
        "of those added: "
        f"{', '.join([usual, *others])}."
    )


def _summary(complete: Found) -> Iterator[str]:
    """Shares of cells and party-runs in which `auto` does what it is for."""
    autos = [rules["auto"] for rules in complete.values()]

    def spared(name: str) -> str:
        rows = [row for row in autos if row.get(name)]
        total = sum(int(row["parties"]) * int(row["seeds"]) for row in rows)
        worse = sum(float(row[name]) * int(row["seeds"]) for row in rows)
        return f"{1 - worse / total:.1%} of {total:,}" if total else "–"

    yield f"In {len(complete)} cells, with `auto`:"
    yield ""
    yield (
        "- party-runs **not worse off on own rows** than alone, with the parties' models, by the larger "
        f"standard error: {spared('worse_off_both')} in accuracy or squared error, "
        f"{spared('worse_off_log_loss_both')} in log loss. By the standard error of the figure alone: "
        f"{spared('worse_off')} and {spared('worse_off_log_loss')}; of the paired difference: "
        f"{spared('worse_off_paired')} and {spared('worse_off_log_loss_paired')}."
    )
    of_models = {"taught": "the taught models", "score": "the parties' models"}
    for name, words in of_models.items():
        places = [place(rules, name) for rules in complete.values()]
        first = sum(one == 1 for one, *_ in places)
        close = sum(one == 1 or near for one, _, near, _ in places)
        behind = [
            f"{_titled(cell)} ({by}{_teachers(complete[cell], by)})"
            for cell, (at, _, near, by) in zip(complete, places, strict=True)
            if at > 1 and not near
        ]
        ways = [
            float(w)
            for c, rules in complete.items()
            if _few(c) and (w := rules["auto"][_way(name)])
        ]
        reached = sum(way >= 0.9 for way in ways)
        yield (
            f"- everyone's rows, **{words}**: first in {first} of {len(places)} cells, first or close in "
            f"{close}; 90 % of the way to true labels in {reached} of {len(ways)} cells whose parties hold "
            f"at most 3 classes in 10. Further behind: {'; '.join(behind) or 'nowhere'}."
        )
    told = [
        {rule: float(n) for rule, row in rules.items() if (n := row.get("log_loss_taught"))}
        for rules in complete.values()
    ]
    least = [
        min({*losses} - {*MARKS}, key=lambda rule: losses[rule])
        for losses in told
        if "auto" in losses
    ]
    if least:
        yield (
            f"- in log loss of the taught models on everyone's rows: first in {least.count('auto')} of "
            f"{len(least)} cells; elsewhere {', '.join(sorted({*least} - {'auto'})) or 'none'}."
        )


def _teachers(rules: Mapping[str, Line], first: str) -> str:
    """Accuracy of two teachers on the public rows, where it was measured: the first rule's and `auto`'s."""
    both = [rules[rule].get("teacher") for rule in (first, "auto")]
    return f"; its teacher {_short(both[0])}, auto's {_short(both[1])}" if all(both) else ""


def _values(rules: Mapping[str, Line]) -> bool:
    """True for a cell of values, whose score is an error."""
    return "mean" in rules


def _few(cell: Sequence[str]) -> bool:
    """True for parties that hold 3 of 10 classes or fewer."""
    words = cell[1].split()  # k = 2 of 10
    return words[0] == "k" and int(words[2]) <= 0.3 * int(words[4])


def _way(name: str) -> str:
    return "way" if name == "score" else "way_taught"


def place(rules: Mapping[str, Line], name: str) -> tuple[int, int, bool, str]:
    """Place of `auto` among the rivals of a cell.

    Args:
        rules: rule to line.
        name: column of the score, ``"score"`` or ``"taught"``.

    Returns:
        The place, how many rivals there are, true if it is no further behind the first than that one's
        standard error, and the name of the first.
    """
    sign = -1 if _values(rules) else 1
    scores = {rule: sign * float(row[name]) for rule, row in rules.items() if rule not in MARKS}
    first = max(scores, key=lambda rule: scores[rule])
    better = sum(score > scores["auto"] for score in scores.values())
    near = scores[first] - scores["auto"] <= float(rules[first][f"{name}_error"])
    return 1 + better, len(scores), near, first


def _against(cell: tuple[str, ...], rules: Mapping[str, Line]) -> list[str]:
    """Cells of one line: `auto` against alone and every rule."""
    auto, alone = rules["auto"], rules["alone"]
    low = rules["mean" if _values(rules) else "avg"]
    ends = "_both" if auto.get("worse_off_both") else ""
    worse = [f"{float(n):.1f}" for w in WORSE if (n := auto[f"{w}{ends}"])]
    cells = [_titled(cell), auto["seeds"]]
    cells += [_short(row[name]) for name in ("own", "log_loss_own") for row in (alone, auto)]
    cells += [f"{' and '.join(worse)} of {cell[2]}"]
    for name in ("taught", "score"):
        at, count, near, first = place(rules, name)
        close = ", close" if near and at > 1 else ""
        cells += [_short(row[name]) for row in (low, auto, rules["true-labels"])]
        cells += [f"{first} {_short(rules[first][name])}", f"{at} of {count}{close}"]
        cells += [_short(auto[_way(name)])]
    return cells


def _rules(shown: Found) -> list[str]:
    """Table of every rule's taught models."""
    names = list(dict.fromkeys(rule for rules in shown.values() for rule in rules))
    body = [
        [
            _titled(cell),
            *(_short(rules[rule]["taught"]) if rule in rules else "–" for rule in names),
        ]
        for cell, rules in shown.items()
    ]
    return table(["data, split", *names], body)


def _short(number: str) -> str:
    """Three digits, or a dash where there is no number."""
    if not number:
        return "–"
    return f"{float(number):.3f}" if abs(float(number)) < 10 else f"{float(number):.1f}"


def _titled(cell: Sequence[str]) -> str:
    """Name of a cell."""
    data, setting, parties, models, purpose = cell
    kinds = ", five kinds" if models == "five" else ""
    whom = "" if purpose == "own" else f", purpose {purpose}"
    return f"{data}, {setting}, {parties} parties{kinds}{whom}"


def draw(rows: Sequence[Line]) -> None:
    """Draw the mean score of taught models against numbers that left a party, a panel a data set.

    Args:
        rows: of the table.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "rivals"
    from matplotlib import pyplot

    rows = [row for row in rows if row["models"] == "one" and int(row["parties"]) < MANY]
    data = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = pyplot.subplots(
        len(data), 1, figsize=(8, 4 * len(data)), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[:, 0], data, strict=True):
        here = [row for row in rows if row["data"] == name]
        cells = len({row["setting"] for row in here})
        points = {}
        for rule in dict.fromkeys(row["rule"] for row in here):
            mine = [row for row in here if row["rule"] == rule]
            if len(mine) == cells:  # means over the same cells
                points[rule] = [
                    np.mean([float(one[n]) for one in mine]) for n in ("floats", "taught")
                ]
        most = max(floats for floats, _ in points.values())
        # Names stand in a column beside the panel, in the order of the scores, a line to each point.
        names = sorted(points, key=lambda rule: points[rule][1])
        for height, rule in zip(np.linspace(0, 1, len(names)), names, strict=True):
            floats, score = points[rule]
            if rule in MARKS:
                axis.axhline(score, color="0.6", lw=0.8)
            else:
                colour = "#D55E00" if rule == "auto" else "#0072B2"
                axis.plot(floats, score, "o", ms=4, color=colour)
            axis.annotate(
                rule,
                (most if rule in MARKS else floats, score),
                xytext=(1.08, height),
                textcoords="axes fraction",
                fontsize=7,
                va="center",
                arrowprops={"arrowstyle": "-", "lw": 0.3, "color": "0.5"},
            )
        score = "accuracy" if here[0]["log_loss"] else "RMSE"
        axis.set(
            xscale="log",
            title=f"{name}, mean over {cells} ways to deal out the rows",
            xlabel="numbers that leave a party, all rounds",
            ylabel=f"{score} of taught models, everyone's rows",
        )
    figure.savefig(RESULTS / "rivals.svg", metadata={"Date": None})

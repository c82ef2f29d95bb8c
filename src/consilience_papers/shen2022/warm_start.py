"""Figure 1: FedAvg and FedDyn from one step of FFGB-distill, and from random parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import differs, said, standard_error
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.shen2022 import trials
from consilience_papers.shen2022.panels import Lines, about, draw_lines, name_of
from consilience_papers.shen2022.problems import PUBLIC, SIZES, Size
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARMED = ("FedAvg", "FedDyn")

STARTS = {"random": "r", "warm": "d"}
"""Where parameters come from, to the paper's letter for it."""


def figure1(
    study: Study, size: str = "cpu", *, data: Sequence[str] = tuple(PUBLIC), share: float = 0.1
) -> Exhibit:
    """Test accuracy over models sent, with and without the warm start.

    Args:
        study: computes and keeps; if it is quick, that is the size.
        size: of :data:`~consilience_papers.shen2022.problems.SIZES`.
        data: which data sets.
        share: s.
    """
    repetitions = study.times(3, 2)
    cells: dict[str, Lines] = {}
    sizes: dict[str, Size] = {}
    used: dict[str, Array] = {}
    for name in data:
        sizes[name] = how = SIZES[name]["quick" if study.quick else size]
        lines: dict[str, Array] = {}
        for method in WARMED:
            found = study.repeat(
                trials.warm_started,
                repetitions,
                label=f"fig1, {name}, {method}",
                method=method,
                data=name,
                share=share,
                size=asdict(how),
            )
            lines |= {f"{method}-{letter}": found[start] for start, letter in STARTS.items()}
            used[name] = found["images"][0]
        cells[f"{name_of(name)}, s = {share:g}"] = lines
    rows = [_row(label, line, values) for label, c in cells.items() for line, values in c.items()]
    claims = [claim for method in WARMED for claim in claims_of(cells, method)]

    def draw(figure: Figure) -> None:
        draw_lines(figure, cells, "models sent by a client", columns=len(cells))

    return Exhibit(
        "fig1",
        "Figure 1: one step of FFGB-distill as a warm start: test accuracy",
        rows,
        claims,
        [*(about(name, how, used[name]) for name, how in sizes.items()), _HOW],
        draw,
    )


def claims_of(cells: Mapping[str, Lines], method: str) -> list[Claim]:
    """The warm start helps at equal communication: over all of it, and in the end."""
    gains = {label: lines[f"{method}-d"] - lines[f"{method}-r"] for label, lines in cells.items()}
    parts = {
        "over 1, 2, … models sent": {k: gain[:, 1:].mean(axis=1) for k, gain in gains.items()},
        "after the last model": {k: gain[:, -1] for k, gain in gains.items()},
    }
    return [
        Claim(
            f"one step of FFGB-distill improves {method} at equal communication, {when}",
            all(map(differs, values.values())),
            "gained: " + "; ".join(f"{label}: {said(value)}" for label, value in values.items()),
        )
        for when, values in parts.items()
    ]


def _row(label: str, line: str, values: Array) -> Row:
    over = values.mean(axis=0)
    return {
        "setting": label,
        "method": line,
        "after 1 model": float(over[1]),
        "after half": float(over[len(over) // 2]),
        "after all": float(over[-1]),
        "standard error": standard_error(values[:, -1]),
        "mean from 1 on": float(over[1:].mean()),
        "models": len(over) - 1,
        "repetitions": len(values),
    }


_HOW = (
    "“-r” begins with random parameters, “-d” with what one step of FFGB-distill gives, which is the "
    "first model that a client sends: at the same place across, both have sent the same. Each has a rate "
    "of its own, chosen on training images that are held out. A gain counts where "
    "a t-test over repetitions, paired and one-sided at 5 %, says so. Bands are the least and the most "
    "over repetitions."
)

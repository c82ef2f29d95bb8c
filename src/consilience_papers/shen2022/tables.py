"""Table 2: models that a client sends until the global model reaches a target accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import differs, standard_error
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.shen2022 import trials
from consilience_papers.shen2022.panels import Lines, about, draw_lines, name_of
from consilience_papers.shen2022.problems import PUBLIC, SHARES, SIZES, TABLE2, TARGETS, Size
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "FFGB-distill"

Needed = Mapping[str, Array]
"""Method to models sent, shape ``(R,)``; infinite where the target was not reached."""


def table2(
    study: Study, size: str = "cpu", *, data: Sequence[str] = tuple(PUBLIC), shares: Sequence[float] = SHARES
) -> Exhibit:  # fmt: skip
    """Models sent until targets are reached.

    Args:
        study: computes and keeps; if it is quick, that is the size.
        size: of :data:`~consilience_papers.shen2022.problems.SIZES`.
        data: which data sets.
        shares: which s.
    """
    repetitions = study.times(3, 2)
    needed: dict[tuple[str, float, float], Needed] = {}
    accuracies: dict[tuple[str, float], Lines] = {}
    sizes: dict[str, Size] = {}
    central: dict[str, Array] = {}
    used: dict[str, Array] = {}
    for name in data:
        sizes[name] = how = SIZES[name]["quick" if study.quick else size]
        common = {"data": name, "size": asdict(how)}
        central[name] = study.repeat(
            trials.central, repetitions, label=f"table2, {name}, central", **common
        )["accuracy"]
        for s in shares:
            targets = _targets(name, s, how, central[name])
            stop = max(TABLE2[name, s]) if how.published else None
            found = {
                method: study.repeat(
                    trials.reached,
                    repetitions,
                    label=f"table2, {name}, s = {s:g}, {method}",
                    method=method,
                    share=s,
                    stop=stop,
                    **common,
                )
                for method in trials.METHODS
            }
            used[name] = found[OURS]["images"][0]
            accuracies[name, s] = {method: one["accuracy"] for method, one in found.items()}
            for target, least in targets.items():
                needed[name, s, target] = {
                    method: first_reached(curves, least)
                    for method, curves in accuracies[name, s].items()
                }
    rows = [_row(*key, sizes[key[0]], central[key[0]], cell) for key, cell in needed.items()]
    claims = [
        claim
        for name in data
        for claim in _claims(name, {k[1:]: v for k, v in needed.items() if k[0] == name})
    ]

    def draw(figure: Figure) -> None:
        draw_lines(
            figure,
            {f"{name_of(name)}, s = {s:g}": lines for (name, s), lines in accuracies.items()},
            "models sent by a client",
            columns=len(shares),
        )

    return Exhibit(
        "table2",
        "Table 2: models that a client sends until a test accuracy is reached",
        rows,
        claims,
        [
            *(about(name, how, used[name]) for name, how in sizes.items()),
            *_reached(accuracies),
            _HOW,
        ],
        draw,
    )


def _reached(accuracies: Mapping[tuple[str, float], Lines]) -> list[str]:
    """Mean accuracies after one model and after the last, where nobody stopped at a target."""
    settings = [
        f"{name_of(name)}, s = {s:g}: "
        + ", ".join(
            f"{method} {values[:, 1].mean():.3f} and {values[:, -1].mean():.3f}"
            for method, values in lines.items()
        )
        for (name, s), lines in accuracies.items()
        if all(np.isfinite(values).all() for values in lines.values())
    ]
    said = "Mean accuracy after one model and after the last. " + "; ".join(settings) + "."
    return [said] if settings else []


def first_reached(curves: Array, targets: Array) -> Array:
    """After how many models a curve is first as high as its target; infinite where it never is.

    Args:
        curves: shape ``(R, models + 1)``.
        targets: shape ``(R,)``.

    >>> first_reached(np.array([[0.1, 0.6, 0.5], [0.1, 0.2, np.nan]]), np.array([0.5, 0.5])).tolist()
    [1.0, inf]
    """
    high = curves >= targets[:, None]
    return np.where(high.any(axis=1), high.argmax(axis=1), np.inf)


def _targets(name: str, s: float, size: Size, whole: Array) -> dict[float, Array]:
    """Target as it is called to the accuracies that it stands for, shape ``(R,)``."""
    if size.published:
        return {target: np.full(len(whole), target) for target in TABLE2[name, s]}
    return {share: share * whole for share in TARGETS}


def _row(name: str, s: float, target: float, size: Size, central: Array, cell: Needed) -> Row:
    paper = " / ".join(TABLE2[name, s][target]) if size.published else None
    return {
        "setting": f"{name_of(name)}, s = {s:g}",
        "target": f"{target:g}" if size.published else f"{target:g} of central",
        "central": float(central.mean()),
        **{method: spelt(values, size.models) for method, values in cell.items()},
        "paper": paper,
        "repetitions": len(cell[OURS]),
    }


def spelt(needed: Array, models: int) -> str:
    """Mean and standard error; or that it was more than all models, with how many got there after all.

    >>> spelt(np.array([1.0, 3.0]), 20), spelt(np.array([2.0, np.inf]), 20)
    ('2.0 ± 1.0', '> 20 (1 of 2 did)')
    """
    there = np.isfinite(needed)
    if there.all():
        return f"{needed.mean():.1f} ± {standard_error(needed):.1f}"
    return f"> {models}" + (f" ({there.sum()} of {len(needed)} did)" if there.any() else "")


def _claims(name: str, cells: Mapping[tuple[float, float], Needed]) -> list[Claim]:
    """Fewest of all; fewer than with the other kind of distillation."""
    others = [method for method in trials.METHODS if method != OURS]
    return [
        _fewer(f"{name_of(name)}: {OURS} needs the fewest models", cells, others),
        _fewer(
            f"{name_of(name)}: {OURS} needs fewer than FedAvg-distill, with the same epochs",
            cells,
            ["FedAvg-distill"],
        ),
    ]


def _fewer(text: str, cells: Mapping[tuple[float, float], Needed], others: Sequence[str]) -> Claim:
    """In every row: each other method needs more, by a test; more than all models is one more than all."""
    beaten = [{o for o in others if more(cell[o], cell[OURS])} for cell in cells.values()]
    wins = sum(len(some) == len(others) for some in beaten)
    counts = {other: sum(other not in some for some in beaten) for other in others}
    lost = ", ".join(f"{other} in {count}" for other, count in counts.items() if count)
    said = f"in {wins} of {len(cells)} rows" + (f"; not fewer than {lost}" if lost else "")
    if wins < len(cells):
        somebody = [c for c in cells.values() if any(np.isfinite(v).any() for v in c.values())]
        least = sum(_least(cell, others) for cell in somebody)
        said += f"; in the mean nobody needs fewer in {least} of the {len(somebody)} that anybody reached"
    return Claim(text, wins == len(cells), said)


def _least(cell: Needed, others: Sequence[str]) -> bool:
    """Tell whether no other method has a lower mean.

    A method that got nowhere counts with one model more than any other needed.
    """
    top = max(values[np.isfinite(values)].max(initial=0) for values in cell.values()) + 1
    means = {method: np.minimum(values, top).mean() for method, values in cell.items()}
    return all(means[OURS] <= means[other] for other in others)


def more(one: Array, other: Array) -> bool:
    """Test whether one needs more models than the other, repetition by repetition: t-test, 5 %.

    Where a target was not reached, one model more than the most that either needed is taken, which favours
    whoever did not get there; who never got there at all is not said to need fewer.
    """
    if not np.isfinite(other).any():
        return False
    both = np.concatenate([one, other])
    top = both[np.isfinite(both)].max() + 1
    return differs(np.minimum(one, top) - np.minimum(other, top))


_HOW = (
    "“central” is the test accuracy of the same network, trained by Adam on all images. “paper” is "
    "FFGB-distill / FedAvg-distill / FedDyn / FedAvg, of which SCAFFOLD is not in its table. Means ± "
    "standard errors over repetitions of the first number of models after which the test accuracy of the "
    "model that all clients share is as high as the target. SCAFFOLD sends two a round. In FFGB-distill "
    "one client distils in place of the server, and sends one model more, which is not counted. Rates are "
    "chosen in every repetition by the accuracy on training images that are held out, over the first "
    "rounds, where several are named. "
    "FedAvg-distill's clients train by Adam, as FFGB-distill's do. “Fewest” is by a paired t-test, "
    "one-sided at 5 %, against each other method. Bands of the plot are the least and the most over "
    "repetitions."
)

"""Figures 1, 2, 3 and 5: kernel ridge regressions against one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.park2023 import trials
from consilience_papers.park2023.choice import Measured, Ratio, measured, ratio, worse_by
from consilience_papers.park2023.problems import PROBLEMS, tent
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = ("standalone", "one-shot", "iterated", "de-regularised", "central")
MARKS = dict(zip(METHODS, ("x:", "s--", "^--", "o-", "k--"), strict=True))
CLIENTS = {10: (10, 20, 30, 40, 50, 100), 20: (10, 30, 50)}
"""N to m."""


def figure1(study: Study) -> Exhibit:
    """Show the effect of de-regularisation on one client's regressor."""
    rounds, regularization, points = (1, 2, 3, 10, 1000), 0.002, 201
    found = study.repeat(
        trials.regressors,
        study.times(20, 2),
        label="figure 1",
        rounds=rounds,
        regularization=regularization,
        points=points,
    )
    x = np.linspace(0, 1, points)
    truth = tent(x[:, None])
    swing = {name: np.ptp(values, axis=1) for name, values in found.items()}
    rows = [
        {
            "rounds": count,
            "range with": float(swing[f"with {count}"].mean()),
            "range without": float(swing[f"without {count}"].mean()),
            "range of the target": float(np.ptp(truth)),
            "error with": _error(found[f"with {count}"], truth),
            "error without": _error(found[f"without {count}"], truth),
        }
        for count in rounds
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, name in zip(axes, ("with", "without"), strict=True):
            axis.plot(x, truth, "b", label="target")
            for count in rounds:
                axis.plot(x, found[f"{name} {count}"][0], "--", label=f"t = {count}")
            axis.set(title=f"{name} de-regularisation", xlabel="x")
        axes[1].legend()

    first, last = rows[0], rows[-1]
    return Exhibit(
        "fig1",
        "Figure 1: one client's regressor, Data set 1, m = 20, N = 20, N_p = 380, λ = 0.002",
        rows,
        [
            Claim(
                "without de-regularisation the regressor flattens round by round",
                last["range without"] < first["range without"],
                f"range {first['range without']:.3f} after 1 round, {last['range without']:.3f} after 1000",
            ),
            Claim(
                "with it regularisation is not amplified even for a large t",
                last["range with"] >= first["range with"]
                and last["error with"] <= first["error with"],
                f"range {last['range with']:.3f} and error {last['error with']:.4f} after 1000 rounds, "
                f"{first['range with']:.3f} and {first['error with']:.4f} after 1",
            ),
        ],
        ["The plot shows the first repetition, the table means over all of them."],
        draw,
    )


def figure2(study: Study) -> Exhibit:
    """Error against the number of clients, N = 10."""
    return _against_clients(study, "fig2", 10)


def figure3(study: Study) -> Exhibit:
    """Error against the number of clients, N = 20."""
    return _against_clients(study, "fig3", 20)


def _against_clients(study: Study, name: str, count: int) -> Exhibit:
    cells: dict[tuple[str, int], dict[str, Measured]] = {}
    for key, problem in PROBLEMS.items():
        among = (m for m in CLIENTS[count] if m <= problem.most_clients)
        for m in (m for m in among if m <= 20 or not study.quick):
            found = study.repeat(
                trials.compare,
                study.times(100, 4),
                label=f"{name}, {problem.title}, m = {m}",
                problem=key,
                clients=m,
                rows=count,
                public=(m - 1) * count,
                rounds=200,
                grid=PROBLEMS[key].grid,
            )
            cells[key, m] = {
                method: measured(found[method], PROBLEMS[key].grid) for method in METHODS
            }
    rows = [_row({"data": PROBLEMS[key].title, "m": m}, cell) for (key, m), cell in cells.items()]
    claims = [
        _never_worse(cells, "one-shot"),
        _never_worse(cells, "iterated"),
        Claim(
            "de-regularised distillation is comparable to central training",
            max(row["to central"] for row in rows) <= 1.25,
            "ratio of the errors from "
            f"{min(row['to central'] for row in rows):.2f} to "
            f"{max(row['to central'] for row in rows):.2f} over "
            f"{len(rows)} settings; taken as holding up to 1.25 in each",
        ),
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 2).ravel()
        for axis, (key, problem) in zip(axes, PROBLEMS.items(), strict=True):
            across = [m for k, m in cells if k == key]
            for method in METHODS[1:]:
                _errorbars(axis, across, [cells[key, m][method] for m in across], method)
            axis.set(title=problem.title, xlabel="clients m", ylabel="squared error")
        axes[0].legend()

    number = {"fig2": 2, "fig3": 3}[name]
    return Exhibit(
        name,
        f"Figure {number}: squared error against m, N = {count}, N_p = (m − 1)N, 200 rounds",
        rows,
        claims,
        [LAMBDA, _edges(cells)],
        draw,
    )


def figure5(study: Study) -> Exhibit:
    """Show the error by the number of public rows."""
    cells: dict[tuple[str, int, float], dict[str, Measured]] = {}
    for key in ("1", "2", "3"):
        for m in (10, 30, 50) if not study.quick else (10,):
            for share in (0.2, 0.5, 1.0, 1.5):
                found = study.repeat(
                    trials.compare,
                    study.times(30, 4),
                    label=f"fig5, {PROBLEMS[key].title}, m = {m}, p = {share:g}",
                    problem=key,
                    clients=m,
                    rows=10,
                    public=round(share * (m - 1) * 10),
                    rounds=200,
                    grid=PROBLEMS[key].grid,
                )
                cells[key, m, share] = {
                    method: measured(found[method], PROBLEMS[key].grid) for method in METHODS
                }
    rows = [
        _row({"data": PROBLEMS[key].title, "m": m, "N_p / (m−1)N": share}, cell)
        for (key, m, share), cell in cells.items()
    ]
    most = max(m for _, m, _ in cells)

    def few_over_many(key: str, method: str) -> Ratio:
        return ratio(*(cells[key, most, share][method].errors for share in (0.2, 1.0)))

    one_shot = {key: few_over_many(key, "one-shot") for key in ("1", "2", "3")}
    iterated = {key: few_over_many(key, "de-regularised") for key in ("1", "2", "3")}

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 3)
        for line, method in zip(axes, ("one-shot", "de-regularised"), strict=True):
            for axis, key in zip(line, ("1", "2", "3"), strict=True):
                for share in (0.2, 0.5, 1.0, 1.5):
                    across = [m for k, m, p in cells if k == key and p == share]
                    means = [cells[key, m, share][method].mean for m in across]
                    axis.plot(across, means, "o-", label=f"p = {share:g}")
                axis.set(title=f"{PROBLEMS[key].title}, {method}", xlabel="clients m")
        axes[0, 0].legend()

    return Exhibit(
        "fig5",
        "Figure 5: squared error against the number of public rows, N = 10, 200 rounds",
        rows,
        [
            Claim(
                "one-shot distillation has nothing from more public rows",
                all(one.value - 2 * one.standard_error <= 1 for one in one_shot.values()),
                _said(one_shot, most),
            ),
            Claim(
                "iterated distillation suffers from too few on Data sets 1 and 3",
                all(iterated[key].value - 2 * iterated[key].standard_error > 1 for key in "13"),
                _said(iterated, most),
            ),
            Claim(
                "on Data set 2 a fifth of the public rows is enough",
                iterated["2"].value - 2 * iterated["2"].standard_error <= 1,
                str(iterated["2"]),
            ),
        ],
        [LAMBDA, _edges(cells)],
        draw,
    )


LAMBDA = (
    "λ: grid search over ten values, two a decade, method by method (column λ: one-shot; iterated; "
    "de-regularised; central), cross-fitted between the halves of the repetitions: two values where they "
    "differ. Means over repetitions."
)


def _row(place: Mapping[str, Any], cell: Mapping[str, Measured]) -> dict[str, Any]:
    ours, together = cell["de-regularised"], cell["central"]
    return {
        **place,
        **{
            method: f"{cell[method].mean:.4g} ± {cell[method].standard_error:.1g}"
            for method in METHODS
        },
        "to central": ours.mean / together.mean,
        "repetitions": len(together.errors),
        "λ": "; ".join(cell[method].regularization for method in METHODS[1:]),
    }


def _edges(cells: Mapping[Any, Mapping[str, Measured]]) -> str:
    """Note on cells whose best λ was the grid's least or largest."""
    found = [
        f"{method} at {', '.join(map(str, place))}"
        for place, cell in cells.items()
        for method in METHODS[1:]
        if cell[method].at_edge
    ]
    return f"At the grid's edge: {'; '.join(found) if found else 'none but clients alone'}."


def _said(ratios: Mapping[str, Ratio], m: int) -> str:
    each = ", ".join(f"{PROBLEMS[key].title}: {found}" for key, found in ratios.items())
    return f"error with 0.2 over error with 1.0 of (m−1)N, m = {m}: {each}"


def _never_worse(cells: Mapping[Any, Mapping[str, Measured]], other: str) -> Claim:
    worst = max(worse_by(cell["de-regularised"], cell[other]) for cell in cells.values())
    return Claim(
        f"de-regularised distillation is nowhere worse than {other} by more than a standard error",
        worst <= 1,
        f"at worst {worst:+.1f} standard errors of the paired difference, over {len(cells)} settings",
    )


def _errorbars(axis: Axes, across: Sequence[int], cells: Sequence[Measured], label: str) -> None:
    means = [cell.mean for cell in cells]
    axis.errorbar(across, means, [c.standard_error for c in cells], fmt=MARKS[label], label=label)


def _error(values: Array, truth: Array) -> float:
    return float(np.square(values - truth).mean())

"""Figures 6 and 7: a part of the clients in every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.park2023 import trials
from consilience_papers.park2023.choice import measured, worse_by
from consilience_papers.park2023.problems import PROBLEMS
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure6(study: Study) -> Exhibit:
    """Show the speed at which partial participation comes to the limit."""
    common = {"regularization": PROBLEMS["3"].best}
    length = 2000 if study.quick else 20000
    runs: list[tuple[str, dict[str, Any]]] = [
        (f"C = {count}", {"count": count, "exponent": 0.501, "rounds": length})
        for count in (1, 10, 25, 50)
    ]
    runs += [
        (f"q = {q:g}", {"count": 10, "exponent": q, "rounds": length if study.quick else 50000})
        for q in (0.0, 0.3, 0.501, 0.7)
    ]
    found = {
        label: study.repeat(
            trials.approach,
            study.times(5, 2),
            label=f"fig6, {label}",
            every=length // 100,
            **common,
            **arguments,
        )
        for label, arguments in runs
    }
    at = {label: _relative(values) for label, values in found.items()}
    rows = [
        {
            "run": label,
            f"after {length // 10}": float(curve[:, 9].mean()),
            f"after {length}": float(curve[:, 99].mean()),
            "at the end": float(curve[:, -1].mean()),
            "deviation at the end": float(curve[:, -1].std(ddof=1)),
            "rounds": arguments["rounds"],
        }
        for (label, arguments), curve in zip(runs, at.values(), strict=True)
    ]
    end = {row["run"]: row["at the end"] for row in rows}
    late = {row["run"]: row[f"after {length}"] for row in rows}

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 2)
        for axis, letter in zip(axes, "Cq", strict=True):
            for label, values in found.items():
                if label.startswith(letter):
                    mean = values["distance"].mean(axis=0)
                    axis.semilogy(length // 100 * np.arange(1, len(mean) + 1), mean, label=label)
            axis.set(xlabel="rounds", ylabel="squared distance from the limit")
            axis.legend()

    return Exhibit(
        "fig6",
        "Figure 6: Algorithm 3's squared distance to the limit of Algorithm 2, over its squared length",
        rows,
        [
            Claim(
                "one client a round is slow, a fifth of them nearly as fast as all",
                late["C = 1"] > 4 * late["C = 10"] and late["C = 10"] < 2 * late["C = 50"],
                ", ".join(f"{label}: {late[label]:.2g}" for label in late if label[0] == "C")
                + "; taken as holding above 4 and below 2 times",
            ),
            Claim(
                "in the end q = 0.501 is nearest: less does not converge, more is slow",
                end["q = 0.501"] < min(end[f"q = {q}"] for q in ("0", "0.3", "0.7")),
                ", ".join(f"{label}: {end[label]:.2g}" for label in end if label[0] == "q"),
            ),
            Claim(
                "with q = 0 the distance stays large",
                end["q = 0"] > 0.01,
                f"{end['q = 0']:.2g} of the limit's squared length; taken as large above 0.01",
            ),
        ],
        [
            "Data set 3, m = 50, N = 10, N_p = 490, λ = 1e-3. A client's prediction is that of its last "
            "update, as lines 7 and 14 of Algorithm 3 have it. The plot has absolute distances, as the "
            "paper's."
        ],
        draw,
    )


def figure7(study: Study) -> Exhibit:
    """The error of Algorithm 3 after so many rounds."""
    rounds = (200, 1000, 2000) if study.quick else (200, 1000, 2000, 5000, 10000, 20000)
    rows: list[dict[str, Any]] = []
    curves: dict[str, tuple[list[float], float]] = {}
    for key in ("1", "2", "3"):
        grid = [PROBLEMS[key].best * factor for factor in (0.5, 1, 2)]
        found = study.repeat(
            trials.selected,
            study.times(20, 2),
            label=f"fig7, {PROBLEMS[key].title}",
            problem=key,
            grid=grid,
            rounds=rounds,
        )
        whole = measured(found["all"], grid)
        some = [measured(found["some"][:, i], grid) for i in range(len(rounds))]
        curves[key] = ([cell.mean for cell in some], whole.mean)
        rows += [
            {
                "data": PROBLEMS[key].title,
                "rounds": count,
                "Algorithm 3": cell.mean,
                "Algorithm 2 at 200": whole.mean,
                "difference": cell.mean - whole.mean,
                "in standard errors": worse_by(cell, whole),
                "repetitions": len(cell.errors),
                "λ": f"{cell.regularization}; {whole.regularization}",
            }
            for count, cell in zip(rounds, some, strict=True)
        ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, 3)
        for axis, (key, (means, whole)) in zip(axes, curves.items(), strict=True):
            axis.semilogx(rounds, means, "o-")
            axis.axhline(whole, color="k", linestyle="--")
            axis.set(title=PROBLEMS[key].title, xlabel="rounds", ylabel="squared error")

    last = min(5000, rounds[-1])
    late = [row for row in rows if row["rounds"] == last]
    return Exhibit(
        "fig7",
        "Figure 7: Algorithm 3 (C = 10, q = 0.501) against Algorithm 2 after 200 rounds, m = 50, N = 10",
        rows,
        [
            Claim(
                f"Algorithm 3 is as good as Algorithm 2 after {last:,} rounds",
                all(row["Algorithm 3"] <= 1.05 * row["Algorithm 2 at 200"] for row in late),
                ", ".join(
                    f"{row['data']}: {row['Algorithm 3']:.4f} and {row['Algorithm 2 at 200']:.4f}"
                    for row in late
                )
                + "; taken as holding up to 5 %",
            )
        ],
        [
            "λ: half, once and twice figure 2's best for these data, each algorithm and number of rounds for "
            "itself (column λ: Algorithm 3; Algorithm 2), cross-fitted between the halves of the repetitions."
        ],
        draw,
    )


def _relative(values: Mapping[str, Array]) -> Array:
    return np.asarray(values["distance"] / values["limit"][:, None])

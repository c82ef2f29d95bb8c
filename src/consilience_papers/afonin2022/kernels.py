"""Figure 3 and what goes beyond it: kernel agents, computed exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.afonin2022 import any_models, trials
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = Mapping[str, Array]
Cells = Mapping[tuple[str, float], Found]
"""Split and c to what was found in every repetition."""

SPLITS = {"same data": False, "different data": True}
"""Whether rows are sorted by b before they are split."""

STRENGTHS = (1e-2, 1e-3, 1e-4)
"""c: strong, the one that the paper's first panels look like, and weak."""


def figure3(study: Study) -> Exhibit:
    """AKD, AvgKD and EKD on the toy problem."""
    cells = {
        (split, c): study.repeat(
            trials.toy,
            study.times(40, 4),
            label=f"fig3, {split}, c = {c:g}",
            regularization=c,
            ordered=ordered,
            models=250,
        )
        for split, ordered in SPLITS.items()
        for c in STRENGTHS
    }
    rows = [_row(split, c, found) for (split, c), found in cells.items()]
    return Exhibit(
        "fig3",
        "Figure 3: linear regression, d = 100, n = 150: mean squared error on all training rows",
        rows,
        [*_exact_claims(cells), *_ordered_claims(cells, rows)],
        [
            "Medians over draws of A and x*, in brackets the least and the most. Every error is over all "
            "150 rows. Alone and AvgKD are agent 1's model (90 rows), since the paper looks at agent 1's "
            "objective, which is over both agents' rows; agent 2's are beside it. Repetition 0, at c = 1e-3, "
            "has 0.1000 alone and 0.1745 with AvgKD on the same data, 0.1279 and 0.2032 on different data; "
            "the means over both agents' models would be 0.1548 and 0.2080, 0.1661 and 0.2293. Central "
            "training has 0.01428 there, and zero 0.870.",
            "AKD begins at agent 1. The lines of the plot are medians, the bands all repetitions.",
        ],
        lambda figure: _draw(figure, cells),
    )


def _exact_claims(cells: Cells) -> list[Claim]:
    """Distances to what theory says, at c = 1e-3; the worst repetition counts."""
    middle = {split: cells[split, 1e-3] for split in SPLITS}
    checked: list[tuple[str, float, Callable[[Found], Array]]] = [
        (
            "EKD's error is within 1e-6 of central training's after 250 models an agent",
            1e-6,
            lambda found: _off(found, 250),
        ),
        ("EKD's error is within 1 % of it after 60", 1e-2, lambda found: _off(found, 60)),
        (
            "AKD's error is that of predicting zero after 250 models, to 1e-6",
            1e-6,
            lambda found: np.abs(found["AKD"][:, -1] / found["zero"] - 1),
        ),
        (
            "AvgKD's models are at their closed-form limit (Proposition V), to 1e-8",
            1e-8,
            lambda found: found["from the limit"],
        ),
    ]
    claims = []
    for text, bound, distance in checked:
        values = {split: distance(found) for split, found in middle.items()}
        said = "; ".join(f"{s}: {np.median(v):.2g}, {v.max():.2g}" for s, v in values.items())
        holds = max(v.max() for v in values.values()) <= bound
        claims.append(Claim(f"c = 1e-3: {text}", holds, f"median and most, {said}"))
    return claims


def _ordered_claims(cells: Cells, rows: Sequence[Row]) -> list[Claim]:
    """Claims of the paper about the panels, judged by medians."""
    panels = [row for row in rows if row["c"] > 1e-4]
    off = {
        split: [float(np.median(_off(cells[split, c], 10))) for c in STRENGTHS] for split in SPLITS
    }
    return [
        Claim(
            "AvgKD is worse than training alone, and AKD worse than AvgKD (c = 1e-2 and 1e-3)",
            all(row["alone"] < row["AvgKD"] < row["AKD after 250"] for row in panels),
            "; ".join(
                f"{row['data']}, c = {row['c']:g}: {row['alone']:.3f}, {row['AvgKD']:.3f}, "
                f"{row['AKD after 250']:.3f}"
                for row in panels
            ),
        ),
        Claim(
            "stronger regularisation makes EKD faster",
            all(values == sorted(values) for values in off.values()),
            "share that the error is off after 10 models an agent, c = 1e-2, 1e-3, 1e-4: "
            + "; ".join(f"{s}: {', '.join(f'{v:.2g}' for v in vs)}" for s, vs in off.items()),
        ),
    ]


def _draw(figure: Figure, cells: Cells) -> None:
    panels = [("same data", 1e-3), ("different data", 1e-3), ("same data", 1e-2)]
    models = np.arange(1, 251)
    for axis, place in zip(figure.subplots(1, 3), panels, strict=True):
        found = cells[place]
        curves = {
            "AKD": found["AKD"],
            "AvgKD, agent 1": found["AvgKD"][:, :, 0],
            "AvgKD, agent 2": found["AvgKD"][:, :, 1],
            "EKD": found["EKD"],
        }
        for (name, values), colour in zip(curves.items(), "rbck", strict=True):
            axis.loglog(models, np.median(values, axis=0), colour, label=name)
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(models, low, high, color=colour, alpha=0.15)
        levels = {
            "alone, agent 1": found["alone"][:, 0],
            "alone, agent 2": found["alone"][:, 1],
            "central": found["central"],
        }
        for (name, values), colour in zip(levels.items(), "bcg", strict=True):
            axis.axhline(float(np.median(values)), color=colour, linestyle="--", label=name)
        axis.set(title=f"{place[0]}, c = {place[1]:g}", xlabel="models an agent")
    figure.axes[0].set_ylabel("training error")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)


def _row(split: str, c: float, found: Found) -> dict[str, Any]:
    last = found["AvgKD"][:, -1]
    return {
        "data": split,
        "c": c,
        "central": float(np.median(found["central"])),
        "alone": float(np.median(found["alone"][:, 0])),
        "alone, agent 2": float(np.median(found["alone"][:, 1])),
        "AvgKD": float(np.median(last[:, 0])),
        "AvgKD, agent 2": float(np.median(last[:, 1])),
        "AKD after 250": float(np.median(found["AKD"][:, -1])),
        "zero": float(np.median(found["zero"])),
        **{f"EKD after {n}": _range(found["EKD"][:, n - 1]) for n in (10, 50, 250)},
        "repetitions": len(last),
    }


def _off(found: Found, models: int) -> Array:
    """Distance of EKD's error from central training's, as a share of the latter."""
    return np.asarray(np.abs(found["EKD"][:, models - 1] / found["central"] - 1))


def _range(values: Array, style: str = ".4g") -> str:
    return f"{np.median(values):{style}} ({values.min():{style}}–{values.max():{style}})"


def conjugate(study: Study) -> Exhibit:
    """EKD against conjugate gradients: the same messages, fewer rounds; and EKD with different kernels."""
    rows: list[Row] = []
    middle: dict[tuple[str, float], list[float]] = {}
    for split, ordered in SPLITS.items():
        for c in STRENGTHS:
            found = study.repeat(
                trials.rounds_needed,
                study.times(40, 4),
                label=f"conjugate, {split}, c = {c:g}",
                regularization=c,
                ordered=ordered,
                tolerance=1e-3,
                most=2000,
            )
            for name in found:
                middle.setdefault((name, c), []).append(float(np.median(found[name])))
            counts = {
                f"{name} within 0.1 %": _range(values, ".0f") for name, values in found.items()
            }
            rows.append({"data": split, "c": c, **counts, "repetitions": len(found["EKD, error"])})
    bounds = dict(zip(STRENGTHS, (5, 12, 26), strict=True))
    said = {
        reading: "; ".join(
            f"c = {c:g}: {max(middle[f'conjugate, {reading}', c]):.0f} against "
            f"{max(middle[f'EKD, {reading}', c]):.0f}"
            for c in STRENGTHS
        )
        for reading in ("predictions", "error")
    }
    return Exhibit(
        "conjugate",
        "Conjugate gradients in place of EKD's series: rounds to within 0.1 % of central training",
        rows,
        [
            Claim(
                f"{text}: 5 rounds are enough at c = 1e-2, 12 at 1e-3, 26 at 1e-4, in the median",
                all(max(middle[f"conjugate, {reading}", c]) <= most for c, most in bounds.items()),
                f"the larger median of the two splits, against EKD: {said[reading]}",
            )
            for reading, text in (
                ("predictions", "distance of the predictions on all training rows"),
                ("error", "training error"),
            )
        ],
        [
            "Median over draws, in brackets the least and the most. Rounds after round 0, in which every "
            "agent trains alone, until the function stays within 0.1 %: in the length of the vector of "
            "predictions, or in the mean squared error, on all training rows. Both pass on one function an "
            "agent and round, conjugate gradients two numbers beside; between parties they train twice in a "
            "round, and pass on one function more in the last.",
            *_with_different_kernels(study),
        ],
    )


def _with_different_kernels(study: Study) -> list[str]:
    found = study.repeat(
        trials.different_kernels,
        study.times(40, 4),
        label="conjugate, different kernels",
        regularization=1e-3,
        rounds=500,
    )
    named = {name: np.median(values, axis=0) for name, values in found.items()}
    errors = "; ".join(
        f"{name} {train:.3g} and {fresh:.3g}"
        for name, (train, fresh) in ((n, v) for n, v in named.items() if n != "from its limit")
    )
    forced = study.repeat(
        any_models.two_kernels,
        study.times(40, 4),
        label="conjugate, different kernels, carried out",
        regularization=1e-3,
        rounds=50,
    )
    fresh_errors = {name: np.median(values, axis=0) for name, values in forced.items()}
    after = "; ".join(
        f"{rounds} rounds {fresh_errors['conjugate'][rounds]:.4g} and {fresh_errors['EKD'][rounds]:.4g}"
        for rounds in (0, 5, 10, 20, 50)
    )
    return [
        "Different kernels, linear at agent 1 and Gaussian (gamma 0.5) at agent 2, c = 1e-3: conjugate "
        "gradients refuse, their matrix not being symmetric. EKD converges to the function in which every "
        "row counts with the kernel of the agent that holds it (after 500 rounds at most "
        f"{found['from its limit'].max():.1g} away), which is neither agent's central model. Median errors "
        f"on training rows and on fresh rows: {errors}. If conjugate gradients are carried out all the same, "
        f"their errors on fresh rows, and EKD's, are after {after}."
    ]

"""Section 5.2 and Figure 7: clients that are alike, and how much public and private data matter."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from consilience_papers.comparisons import differs, said
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.kovalchuk2026 import trials
from consilience_papers.kovalchuk2026.grid import about, spread
from consilience_papers.kovalchuk2026.problems import SIZES, TEMPERATURE, TEXTS
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLIC, PRIVATE = (500, 1000, 2000), (100, 200, 400)
"""Rows of Figure 7's ablation."""

HELD = 0.3
"""Its k."""


def homogeneous(study: Study, size: str = "cpu") -> Exhibit:
    """Clients with all classes of CIFAR-10: alone, after one round, after all."""
    data = "cifar-10"
    how = SIZES[data]["quick" if study.quick else size]
    if not study.quick:
        how = replace(how, samples=1000, public=5000 if size == "full" else 2000)
    common = {"data": data, "share": 1.0, "size": asdict(how)}
    times = study.times(3, 2)
    found = study.repeat(trials.taught, times, label="homogeneous", rule="AVG", **common)[
        "accuracy"
    ]
    alone = study.repeat(trials.alone, times, label="homogeneous, alone", **common)["accuracy"]
    gained = found[:, 1] - alone[:, 1]
    rows: list[Row] = [
        {
            "rounds": t,
            "with exchange": spread(found[:, t]),
            "without": spread(alone[:, t]),
            "repetitions": times,
        }
        for t in (0, 1, how.rounds)
    ]
    return Exhibit(
        "homogeneous",
        "Section 5.2: clients that hold all classes of CIFAR-10",
        rows,
        [
            Claim("one round of distillation helps", differs(gained), said(gained)),
            Claim(
                "after all rounds it is better than without an exchange, with as many epochs",
                differs(found[:, -1] - alone[:, -1]),
                said(found[:, -1] - alone[:, -1]),
            ),
        ],
        [about(data, how), "Plain means. The paper has 1,000 private and 5,000 public images."],
    )


def heatmap(study: Study, size: str = "cpu") -> Exhibit:
    """Accuracy over the numbers of public and of private rows, with sUWA on texts."""
    public, private = (PUBLIC[:2], PRIVATE[:2]) if study.quick else (PUBLIC, PRIVATE)
    size = "quick" if study.quick else size
    texts = TEXTS[size]
    base = SIZES[texts][size]
    reached = {}
    for shared in public:
        for own in private:
            how = replace(base, public=shared, samples=own)
            reached[shared, own] = study.repeat(
                trials.taught,
                study.times(3, 2),
                label=f"heatmap, {shared} public rows, {own} private",
                data=texts,
                share=HELD,
                rule="sUWA",
                size=asdict(how),
            )["accuracy"][:, -1]
    rows: list[Row] = [
        {
            "public rows": shared,
            **{f"{own} private rows": spread(reached[shared, own]) for own in private},
        }
        for shared in public
    ]
    more_public = np.array([reached[public[-1], own] - reached[public[0], own] for own in private])
    more_private = np.array([reached[n, private[-1]] - reached[n, private[0]] for n in public])

    def draw(figure: Figure) -> None:
        figure.set_size_inches(5, 4)
        axis = figure.subplots()
        means = np.array([[reached[n, own].mean() for own in private] for n in public])
        image = axis.imshow(means, origin="lower", cmap="viridis")
        for i, j in np.ndindex(means.shape):
            dark = means[i, j] < (means.min() + means.max()) / 2
            axis.text(
                j, i, f"{means[i, j]:.2f}", ha="center", va="center", color="w" if dark else "k"
            )
        axis.set_xticks(range(len(private)), labels=[f"{own}" for own in private])
        axis.set_yticks(range(len(public)), labels=[f"{n}" for n in public])
        axis.set(xlabel="private rows of a client", ylabel="public rows")
        figure.colorbar(image, label="test accuracy")

    return Exhibit(
        "heatmap",
        "Figure 7: accuracy over the numbers of public and private rows",
        rows,
        [
            Claim(
                "more public rows help, whatever the number of private ones",
                all(differs(gain) for gain in more_public),
                f"from {public[0]} to {public[-1]}: "
                + "; ".join(
                    f"{own} private rows {said(g)}"
                    for own, g in zip(private, more_public, strict=True)
                ),
            ),
            Claim(
                "private rows matter less than public ones",
                differs(more_public.mean(axis=0) - more_private.mean(axis=0)),
                f"{public[-1] // public[0]} times the public rows {said(more_public.mean(axis=0))}, "
                f"{private[-1] // private[0]} times the private ones {said(more_private.mean(axis=0))}",
            ),
        ],
        [
            about(texts, base),
            f"Public and private rows as the table says; clients hold {HELD:.0%} of the classes; sUWA with "
            f"T = {TEMPERATURE:g}.",
        ],
        draw,
    )

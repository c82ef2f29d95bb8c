"""Table 1 and Figures 2, 3 and 4 to 6: who to trust, over the share of the classes that a client holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import differs, said
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.kovalchuk2026 import trials
from consilience_papers.kovalchuk2026.grid import (
    METHODS,
    Grid,
    measure,
    named,
    notes,
    panels,
    spread,
)
from consilience_papers.kovalchuk2026.problems import HOLDERS, NAMES, OURS, RULES
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ON = {"accuracy": "all classes", "local": "own classes"}

FEW, MODERATE = 0.3, (0.4, 0.5, 0.7)
"""Shares of the classes up to which clients are very different; and those between."""

ALIKE = 0.02
"""Accuracies that lie no further apart are said to be the same."""


def table1(study: Study, size: str = "cpu") -> Exhibit:
    """Mean client accuracy of every rule over k, on all classes and on the client's own."""
    grid = measure(study, size)
    shares = sorted(set().union(*grid.shares.values()))
    rows: list[Row] = [
        {
            "data": NAMES[name],
            "accuracy on": on,
            "method": rule,
            **{
                f"{share:.0%} of classes": spread(grid.last(name, share, rule, of))
                if share in grid.shares[name]
                else "–"
                for share in shares
            },
            "repetitions": grid.repetitions,
        }
        for name in grid.sizes
        for of, on in ON.items()
        for rule in METHODS
    ]
    return Exhibit(
        "table1",
        "Table 1: test accuracy over the share of the classes that a client holds",
        rows,
        [claim for name in grid.sizes for claim in claims_of(grid, name)],
        notes(grid),
    )


def claims_of(grid: Grid, data: str) -> list[Claim]:
    """Claims of the paper about Table 1, and one about this library's rule."""

    def gain(share: float, better: str, worse: str) -> Array:
        return grid.last(data, share, better) - grid.last(data, share, worse)

    shares, name = grid.shares[data], NAMES[data]
    first, last = shares[0], shares[-1]
    few = [share for share in shares if share <= FEW]
    between = [share for share in shares if share in MODERATE]
    ends = [grid.last(data, last, rule).mean() for rule in RULES]
    found = [
        Claim(
            f"{name}: with {first:.0%} of the classes {rule} is better than AVG",
            differs(gain(first, rule, "AVG")),
            said(gain(first, rule, "AVG")),
        )
        for rule in RULES[1:]
    ]
    if last == 1:
        found.append(
            Claim(
                f"{name}: with all classes all rules are the same, to {100 * ALIKE:g} points",
                bool(np.ptp(ends) <= ALIKE),
                ", ".join(f"{rule} {value:.3f}" for rule, value in zip(RULES, ends, strict=True)),
            )
        )
    if between:
        found.append(
            Claim(
                f"{name}: sUWA is no worse than UWA with {between[0]:.0%} to {between[-1]:.0%} of classes",
                not any(differs(gain(share, "UWA", "sUWA")) for share in between),
                "; ".join(f"{share:.0%}: {said(gain(share, 'sUWA', 'UWA'))}" for share in between),
            )
        )
    beyond = [[gain(share, OURS, rule) for rule in RULES] for share in few]
    found.append(
        Claim(
            f"{name}, beyond the paper: with {FEW:.0%} of the classes or fewer the density ratio beats "
            "AVG, UWA and sUWA",
            all(differs(one) for gains in beyond for one in gains),
            "; ".join(
                f"{share:.0%}: over the best of them {said(min(gains, key=np.mean))}, closes "
                f"{closed(grid, data, share, OURS)} of the way from AVG to class-holders"
                for share, gains in zip(few, beyond, strict=True)
            ),
        )
    )
    return found


def closed(grid: Grid, data: str, share: float, rule: str) -> str:
    """Share of the distance between AVG and class-holders that a rule closes; a dash where there is none."""
    low, high, here = (grid.last(data, share, one).mean() for one in ("AVG", HOLDERS, rule))
    return f"{(here - low) / (high - low):.0%}" if high - low > ALIKE else "–"


def figure2(study: Study, size: str = "cpu") -> Exhibit:
    """The accuracies of Table 1 as curves over k, and how much of the way to class-holders is closed."""
    grid = measure(study, size)
    rows: list[Row] = [
        {
            "setting": named(name, share, how),
            **{rule: float(grid.last(name, share, rule).mean()) for rule in METHODS},
            **{
                f"{rule} closes": closed(grid, name, share, rule)
                for rule in METHODS
                if rule not in ("AVG", HOLDERS)
            },
        }
        for name, how in grid.sizes.items()
        for share in grid.shares[name]
    ]

    def draw(figure: Figure) -> None:
        names, of = list(grid.sizes), list(ON)
        panels(
            figure,
            [[f"{NAMES[name]}, {ON[one]}" for name in names] for one in of],
            lambda i, j: {
                rule: (
                    [100 * share for share in grid.shares[names[j]]],
                    np.stack(
                        [grid.last(names[j], s, rule, of[i]) for s in grid.shares[names[j]]],
                        axis=1,
                    ),
                )
                for rule in METHODS
            },
            across="classes of a client, %",
            up="test accuracy",
        )

    return Exhibit("fig2", "Figure 2: test accuracy over k", rows, (), notes(grid), draw)


def figure3(study: Study, size: str = "cpu") -> Exhibit:
    """Accuracy on a client's own classes after its last local stage, with exchanges and without any."""
    grid = measure(study, size)
    rows: list[Row] = []
    claims = []
    apart: dict[tuple[str, float], Array] = {}
    for name, how in grid.sizes.items():
        for share in grid.shares[name]:
            apart[name, share] = study.repeat(
                trials.alone,
                grid.repetitions,
                label=f"{name}, {share:.0%} of the classes, alone",
                data=name,
                share=share,
                size=asdict(how),
            )["local"][:, -1]
            stages = {
                rule: grid.cells[name, share, rule]["local after training"] for rule in METHODS
            }
            rows.append(
                {
                    "setting": named(name, share, how),
                    "alone": spread(apart[name, share]),
                    **{rule: spread(values[:, -1]) for rule, values in stages.items()},
                }
            )
            gained = {rule: values[:, -1] - apart[name, share] for rule, values in stages.items()}
            claims += [
                Claim(
                    f"{named(name, share, how)}: with {rule} own classes are known better than alone",
                    differs(gained[rule]),
                    said(gained[rule]),
                )
                for rule in (*RULES[1:], OURS)
            ]

    def draw(figure: Figure) -> None:
        names = list(grid.sizes)
        panels(
            figure,
            [[NAMES[name] for name in names]],
            lambda i, j: {
                rule: (
                    [100 * share for share in grid.shares[names[j]]],
                    np.stack(
                        [
                            grid.cells[names[j], s, rule]["local after training"][:, -1]
                            - apart[names[j], s]
                            for s in grid.shares[names[j]]
                        ],
                        axis=1,
                    ),
                )
                for rule in METHODS
            },
            across="classes of a client, %",
            up="accuracy gained on own classes",
        )

    title = "Figure 3: accuracy on own classes, after the local stage of the last round"
    return Exhibit("fig3", title, rows, claims, notes(grid), draw)


def curves(study: Study, size: str = "cpu") -> Exhibit:
    """Figures 4 to 6: accuracies round by round."""
    grid = measure(study, size)
    rows: list[Row] = []
    for (name, share, rule), found in grid.cells.items():
        for of, on in ON.items():
            values = found[of]
            when = {"round 0": 0, "round 1": 1, "half-way": values.shape[1] // 2, "last round": -1}
            rows.append(
                {
                    "setting": named(name, share, grid.sizes[name]),
                    "accuracy on": on,
                    "method": rule,
                    **{label: spread(values[:, t]) for label, t in when.items()},
                }
            )

    def draw(figure: Figure) -> None:
        shown = {name: (shares[0], shares[-1]) for name, shares in grid.shares.items()}
        keys = [(name, one) for name in grid.sizes for one in ON]

        def line(i: int, j: int) -> Mapping[str, tuple[Sequence[float], Array]]:
            name, one = keys[i]
            found = {rule: grid.cells[name, shown[name][j], rule][one] for rule in METHODS}
            return {rule: (range(values.shape[1]), values) for rule, values in found.items()}

        titles = [
            [f"{named(name, share, grid.sizes[name])}, {ON[one]}" for share in shown[name]]
            for name, one in keys
        ]
        panels(figure, titles, line, across="rounds", up="test accuracy")

    title = "Figures 4 to 6: test accuracy round by round"
    return Exhibit("curves", title, rows, (), notes(grid), draw)

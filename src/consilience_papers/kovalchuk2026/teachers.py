"""Lemma 4.1 in experiments, and Corollary 4.4 where the optimum is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import differs, said
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.kovalchuk2026.grid import measure, named, notes, panels
from consilience_papers.kovalchuk2026.problems import HOLDERS, RULES
from consilience_papers.study import Study
from consilience_papers.theory import slope, stage_two

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIXING = (*RULES, HOLDERS)
"""Rules that are means of probabilities, which the lemma is about."""


def teacher(study: Study, size: str = "cpu") -> Exhibit:
    """Parts of the teacher's error, by rule and k."""
    grid = measure(study, size)
    rows: list[Row] = []
    for (name, share, rule), found in grid.cells.items():
        if rule not in MIXING:
            continue
        for when, t in (("first", 0), ("last", -1)):
            part = {name: values[:, t] for name, values in found.items()}
            rows.append(
                {
                    "setting": named(name, share, grid.sizes[name]),
                    "round": when,
                    "method": rule,
                    "right": float(part["teacher"].mean()),
                    "MSE": float(part["mse"].mean()),
                    "bias": float(part["bias"].mean()),
                    "variance": float(part["variance"].mean()),
                    "correlation": float(part["correlation"].mean()),
                    "Σw²": float(part["concentration"].mean()),
                    "bound": float(part["bound"].mean()),
                }
            )
    mixed = {key: found for key, found in grid.cells.items() if key[2] in MIXING}
    least = min(
        (found["concentration"] - grid.cells[name, share, "AVG"]["concentration"]).min()
        for (name, share, _), found in mixed.items()
    )
    few = {name: shares[0] for name, shares in grid.shares.items()}
    claims = [
        Claim(
            "AVG has the least concentrated weights",
            bool(least >= -1e-6),
            f"no other rule's Σw² is less, by {max(0.0, -least):.2g} at most",
        )
    ]
    for name, how in grid.sizes.items():
        for rule in ("UWA", "sUWA"):
            plain, other = (grid.cells[name, few[name], one]["bias"] for one in ("AVG", rule))
            gain = (plain - other)[:, 0]
            claims.append(
                Claim(
                    f"{named(name, few[name], how)}: {rule} has a smaller bias than AVG in the first round",
                    differs(gain),
                    f"less by {said(gain)}",
                )
            )

    def draw(figure: Figure) -> None:
        names, parts = list(grid.sizes), ("mse", "bias", "concentration")

        def line(i: int, j: int) -> Mapping[str, tuple[Sequence[float], Array]]:
            cells = {rule: grid.cells[names[j], few[names[j]], rule][parts[i]] for rule in MIXING}
            return {rule: (range(1, found.shape[1] + 1), found) for rule, found in cells.items()}

        titles = [
            [f"{named(name, few[name], grid.sizes[name])}, {part}" for name in names]
            for part in parts
        ]
        panels(figure, titles, line, across="rounds", up="")

    return Exhibit(
        "teacher",
        "Lemma 4.1: what the teacher's squared error is made of",
        rows,
        claims,
        [
            *notes(grid),
            "The error is to the true class of public rows, and rows of one class stand for draws of one x "
            "(consilience.lab.diagnostics.error_parts.teacher_error). The MSE is bias + variance + "
            "correlation, and what weights that differ within a class add.",
        ],
        draw,
    )


# --- Corollary 4.4 ------------------------------------------------------------------------------------

CLIENTS = (1, 4, 16, 64, 256)
"""m."""

APART = (0.0, 0.1, 0.2, 0.4)
"""How much all clients are biased towards knowing nothing."""

ROWS, FEATURES, CLASSES, STEPS, RIDGE, CERTAINTY = 300, 5, 4, 100, 0.05, 2.0


def descended(*, repetition: int) -> dict[str, Any]:
    """Draw once: the rest of F − F* for every number of clients and every bias.

    Rows are normal, p* is a softmax of them, and a client says at x a draw of Dirichlet(2 q(x)),
    ``q = (1 − ε) p* + ε/K``: right on the mean where ε = 0. The teacher is the mean of m clients.
    """
    rng = np.random.default_rng(repetition)
    X = rng.normal(size=(ROWS, FEATURES))
    truth = softmax(X @ rng.normal(size=(FEATURES, CLASSES)), axis=1)

    def of(clients: int, apart: float) -> Any:
        said = CERTAINTY * ((1 - apart) * truth + apart / CLASSES)
        draws = rng.standard_gamma(said, size=(clients, *said.shape)) + 1e-300
        mean = (draws / draws.sum(axis=2, keepdims=True)).mean(axis=0)
        return stage_two(X, truth, mean, regularization=RIDGE, steps=STEPS)

    found = {(m, e): of(m, e) for m in CLIENTS for e in APART}
    shape = (len(CLIENTS), len(APART))

    def table(value: Any) -> Array:
        return np.array([value(one) for one in found.values()], dtype=np.float64).reshape(shape)

    gaps = [found[m, 0.0].gaps for m in CLIENTS]
    return {
        "error": table(lambda one: one.error),
        "end": table(lambda one: one.gaps[-1]),
        "floor": table(lambda one: one.floor),
        "crude floor": table(lambda one: one.score * one.error / (2 * RIDGE)),
        "excess": table(lambda one: (one.gaps / one.bound)[1:].max()),
        "gaps": gaps,
        "rate": next(iter(found.values())).rate,
        "early": [(gap[20] / gap[0]) ** (1 / 20) for gap in gaps],
    }


def convergence(study: Study) -> Exhibit:
    """Stage 2 on a regularised softmax regression: a linear rate to a floor set by the teacher's error."""
    found = study.repeat(descended, study.times(20, 3), label="convergence")
    error, end = found["error"].mean(axis=0), found["end"].mean(axis=0)
    rows: list[Row] = [
        {
            "clients": m,
            "bias of clients": apart,
            "teacher MSE": float(error[i, j]),
            "F − F* in the end": float(end[i, j]),
            "‖b‖²/(2μ)": float(found["floor"][:, i, j].mean()),
            "S² MSE/(2μ)": float(found["crude floor"][:, i, j].mean()),
            "repetitions": len(found["end"]),
        }
        for i, m in enumerate(CLIENTS)
        for j, apart in enumerate(APART)
    ]
    by_clients = slope(CLIENTS, found["end"][:, :, 0].T)
    by_error = slope(error[:, 0], found["end"][:, :, 0].T)
    biased = found["end"][:, -1]
    claims = [
        Claim(
            "the distance to the optimum falls at least linearly, as 1 − ημ, until it meets its floor",
            bool((found["early"] <= found["rate"][:, None] + 1e-9).all()),
            f"over 20 steps by {found['early'].max():.3f} a step at most, 1 − ημ is at least "
            f"{found['rate'].min():.3f}",
        ),
        Claim(
            "it stays below the bound at every step",
            bool(found["excess"].max() <= 1 + 1e-9),
            f"at most {found['excess'].max():.2f} of it",
        ),
        Claim(
            "the floor shrinks with the teacher's error, in proportion to it where clients are not biased",
            by_error.low <= 1 <= by_error.high,
            f"slope of floor against MSE {by_error}",
        ),
        Claim(
            "more clients bring it down, as 1/m",
            by_clients.low <= -1 <= by_clients.high,
            f"slope of floor against m {by_clients}",
        ),
        Claim(
            f"of biased clients more do not help: with {CLIENTS[-1]} of them it grows with their bias",
            bool((np.diff(biased.mean(axis=0)) > 0).all()),
            ", ".join(f"{a:g}: {v:.2g}" for a, v in zip(APART, biased.mean(axis=0), strict=True)),
        ),
    ]

    def draw(figure: Figure) -> None:
        figure.set_size_inches(9, 3.2)
        left, right = figure.subplots(1, 2)
        for i, m in enumerate(CLIENTS):
            values = found["gaps"][:, i]
            left.plot(values.mean(axis=0), color=f"C{i}", label=f"m = {m}")
            left.fill_between(
                range(STEPS + 1), values.min(axis=0), values.max(axis=0), color=f"C{i}", alpha=0.15
            )
        left.set(yscale="log", xlabel="steps of Stage 2", ylabel="F − F*", title="unbiased clients")
        for j, apart in enumerate(APART):
            right.plot(error[:, j], end[:, j], "o-", color=f"C{j}", label=f"bias {apart:g}")
        right.set(xscale="log", yscale="log", xlabel="teacher MSE", title="the floor")
        for axis in (left, right):
            axis.legend(fontsize=7)

    return Exhibit(
        "convergence",
        "Corollary 4.4: F − F* of a student of a wrong teacher",
        rows,
        claims,
        [
            f"Softmax regression, {ROWS} public rows of {FEATURES} normal columns, {CLASSES} classes, "
            f"μ = {RIDGE:g}, {STEPS} steps of 1/L with all rows. A client says at x a draw of "
            f"Dirichlet({CERTAINTY:g} q(x)), q = (1 − ε) p* + ε/K with its bias ε; the teacher is the mean "
            "of the clients. ‖b‖² is the squared error of the gradient, which Lemma C.8 bounds by S² MSE; "
            "errors of different rows are independent here and mostly cancel, so that this bound is loose."
        ],
        draw,
    )

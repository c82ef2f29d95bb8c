"""Theorems 4.1 to 4.4 and the ablation of the residual, on problems with a known minimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import standard_error
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.shen2022 import convergence
from consilience_papers.shen2022.convergence import ABLATION, LOCAL_STEPS, ROUNDS
from consilience_papers.study import Study
from consilience_papers.theory import slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Found = Mapping[str, Array]


def rates(study: Study) -> Exhibit:
    """Slopes in T and K, plateaus against ω, and what the residual is for."""
    repetitions = study.times(20, 3)
    alike, apart, smooth = (
        study.repeat(trial, repetitions, label=f"rates, {trial.__name__}")
        for trial in (convergence.homogeneous, convergence.heterogeneous, convergence.lipschitz)
    )
    ablation = study.repeat(convergence.ablation, repetitions, label="rates, ablation")
    adversary = study.repeat(convergence.adversarial, 4, label="rates, adversarial")

    def draw(figure: Figure) -> None:
        _draw(figure, alike, apart, smooth, ablation)

    return Exhibit(
        "rates",
        "Theorems 4.1 to 4.4: squared distance to the minimiser",
        _rows(alike, apart, smooth, ablation),
        [
            *alike_claims(alike),
            *ablation_claims(ablation),
            *apart_claims(apart, smooth),
            Claim(
                "Theorem 4.2: with the adversary's weak learners f stays 0, but for rounding",
                bool((adversary["largest"] < 1e-12).all() and (adversary["distance"] > 0).all()),
                f"largest |f| in 20 rounds of 2 to 5 clients: {adversary['largest'].max():g}, where the "
                f"minimiser is {adversary['distance'].min():.3g} or more away",
            ),
        ],
        [
            "‖f^T − f*‖²_α, means over draws of inputs and labels. Weak learners are γ times what they "
            "are asked. Homogeneous: 3 clients, cross-entropy, μ = 0.3, steps 2/(μ(tK+k+1)). "
            "Heterogeneous: 4 clients, the same with 4/(…), T = 120, K = 10; ω_TV by the share of a "
            "client's inputs that only it has. Lipschitz: Algorithm 3, 3 clients, squared loss, T = 60, "
            "K = 8. The residual: squared loss, weak learners that answer at one input of five, steps "
            "2/(tK+k+1), μ = 0.001; what one client's shrinking weak learner does not see of a larger μ "
            "would make it stall too. Slopes are of the mean error on logarithmic axes, in brackets the "
            "95 % interval.",
            "The paper's terms have K log(KT)/T and 1/K; the proofs, carried through with constants, "
            "have 1/T and 1/K² (see the theory's documentation). The second are what is seen.",
        ],
        draw,
    )


def alike_claims(found: Found) -> list[Claim]:
    """Homogeneous inputs."""
    exact = slope(ROUNDS, found["exact"].T)
    by_steps = slope(LOCAL_STEPS, found["by K"].T)
    together = slope(ROUNDS, found["together"].T)
    return [
        Claim(
            "Theorem 4.3, γ = 1: the error falls no slower than 1/T, and to 0",
            exact.high <= -1 and bool((found["exact"][:, -1] < 1e-6).all()),
            f"slope in T {exact}; largest after {ROUNDS[-1]} rounds {found['exact'][:, -1].max():.2g}",
        ),
        Claim(
            "Theorem 4.3, γ = ½: what weak learners miss leaves a level that falls no slower than 1/K",
            by_steps.high <= -1,
            f"slope in K {by_steps}",
        ),
        Claim(
            "Corollary 4.1: with K = √T the error falls no slower than 1/√T",
            together.high <= -0.5,
            f"slope in T {together}",
        ),
    ]


def ablation_claims(found: Found) -> list[Claim]:
    """Claims about the residual, for clients whose gradients do not vanish at the optimum."""
    late = {name: values[:, -1] / values[:, 49] for name, values in found.items()}
    many, one = (late[f"{who}, without"] for who in ABLATION)
    ratio = found[f"{ABLATION[0]}, without"][:, -1] / found[f"{ABLATION[0]}, with"][:, -1]
    return [
        Claim(
            "section 3: without the residual clients with labels of their own stall, and with it they do not",
            bool((ratio > 10).all() and (many > 0.9).all()),
            f"after 150 rounds at least {ratio.min():.3g} times the error; without it the error after 150 "
            f"rounds is {many.min():.2f} to {many.max():.2f} times that after 50",
        ),
        Claim(
            "section 3: one client alone does not stall without it",
            bool((one < 0.9).all()),
            f"its error after 150 rounds is {one.min():.2f} to {one.max():.2f} times that after 50",
        ),
    ]


def apart_claims(apart: Found, smooth: Found) -> list[Claim]:
    """Heterogeneous inputs."""
    some = apart["omega"][0] > 0
    last, half = apart["last"], apart["half"]
    change = np.abs(last / half - 1)[:, some].max()
    ratio = (last / np.where(some, apart["radius"], np.inf))[:, some].max()
    below = (smooth["last"] / smooth["bound"]).max()
    return [
        Claim(
            "Theorem 4.1: with heterogeneous inputs the error stays where it is",
            bool(change < 0.1),
            f"between rounds 60 and 120 it changes by {change:.1%} at most",
        ),
        Claim(
            "Theorem 4.1: that plateau grows with ω_TV",
            _grows(last),
            "means: " + _listed(apart["omega"], last),
        ),
        Claim(
            "Theorem 4.1: it lies within the radius G²ω_TV/(μγ)²",
            bool(ratio <= 1),
            f"at most {ratio:.2g} of it",
        ),
        Claim(
            "Theorem 4.4: the plateau grows with ω_W1",
            _grows(smooth["last"]),
            "means: " + _listed(smooth["omega"], smooth["last"]),
        ),
        Claim(
            "Theorem 4.4: the error lies below the bound, constants included",
            bool(below <= 1),
            f"at most {below:.2g} of it",
        ),
    ]


def _grows(levels: Array) -> bool:
    """Tell whether the mean over draws grows from column to column."""
    return bool((np.diff(levels.mean(axis=0)) > 0).all())


def _listed(omegas: Array, levels: Array) -> str:
    means = zip(omegas.mean(axis=0), levels.mean(axis=0), strict=True)
    return ", ".join(f"ω = {omega:.2f}: {level:.3g}" for omega, level in means)


def _rows(alike: Found, apart: Found, smooth: Found, ablation: Found) -> list[Row]:
    rows: list[Row] = []

    def add(problem: str, at: str, values: Array) -> None:
        error = standard_error(values)
        rows.append({
            "problem": problem, "at": at, "error": float(values.mean()), "standard error": error,
            "repetitions": len(values),
        })  # fmt: skip

    for i, T in enumerate(ROUNDS):
        add("homogeneous, γ = 1, K = 4", f"T = {T}", alike["exact"][:, i])
    for i, K in enumerate(LOCAL_STEPS):
        add("homogeneous, γ = ½, T = 150", f"K = {K}", alike["by K"][:, i])
    for i, T in enumerate(ROUNDS):
        add("homogeneous, γ = ½, K = √T", f"T = {T}", alike["together"][:, i])
    for name, values in ablation.items():
        for T in (50, 150):
            add(f"greedy weak learners, K = 40, {name} the residual", f"T = {T}", values[:, T - 1])
    for i, omega in enumerate(apart["omega"].mean(axis=0)):
        add("heterogeneous, γ = ½", f"ω_TV = {omega:.3f}", apart["last"][:, i])
    for i, omega in enumerate(smooth["omega"].mean(axis=0)):
        add("Lipschitz, γ = ½", f"ω_W1 = {omega:.3f} in the mean", smooth["last"][:, i])
    return rows


def _draw(figure: Figure, alike: Found, apart: Found, smooth: Found, ablation: Found) -> None:
    figure.set_size_inches(13, 3.2)
    first, second, third, fourth = figure.subplots(1, 4)

    def line(axis: Axes, across: ArrayLike, values: Array, label: str, colour: str) -> None:
        style = ".-" if values.shape[1] < 20 else "-"
        axis.plot(across, values.mean(axis=0), style, color=colour, label=label)
        low, high = values.min(axis=0), values.max(axis=0)
        axis.fill_between(across, low, high, color=colour, alpha=0.15)

    line(first, ROUNDS, alike["exact"], "γ = 1, K = 4", "C0")
    line(first, ROUNDS, alike["together"], "γ = ½, K = √T", "C1")
    first.set(xscale="log", yscale="log", xlabel="T", ylabel="‖f − f*‖²", title="Theorem 4.3")
    line(second, LOCAL_STEPS, alike["by K"], "γ = ½, T = 150", "C1")
    second.set(xscale="log", yscale="log", xlabel="K", title="Theorem 4.3")
    rounds = np.arange(1, 151)
    for i, (name, values) in enumerate(ablation.items()):
        line(third, rounds, values, name, ("C0", "C3", "C9", "C1")[i])
    third.set(xscale="log", yscale="log", xlabel="T", title="the residual: greedy, K = 40")
    line(fourth, apart["omega"][0], apart["last"], "Theorem 4.1, ω_TV", "C2")
    line(fourth, smooth["omega"].mean(axis=0), smooth["last"], "Theorem 4.4, ω_W1", "C4")
    fourth.set(xlabel="ω", title="plateaus")
    for axis, places in ((first, ROUNDS), (second, LOCAL_STEPS)):
        axis.set_xticks(places, labels=list(map(str, places)))
        axis.minorticks_off()
    for axis in (first, second, third, fourth):
        axis.legend(fontsize=7)

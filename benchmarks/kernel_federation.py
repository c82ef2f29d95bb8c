"""Measure time and memory of the exact federation of kernel ridge regressions.

    python benchmarks/kernel_federation.py           # all three parts, a quarter of an hour
    python benchmarks/kernel_federation.py speed     # 50 clients, 200 rounds, against refits by scikit-learn
    python benchmarks/kernel_federation.py figure    # all of Figure 2 (c), 100 repetitions, ten λ
    python benchmarks/kernel_federation.py size      # up to 10,000 clients with 2,000 public rows

Each part writes its own section of docs/results/kernel-federation.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.kernel_ridge import KernelRidge

from consilience.core.aggregation import anderson
from consilience.core.numerics.randomness import limited_threads
from consilience.lab.runs.folder import machine, versions
from consilience.methods.kernel_federations import KernelFederation
from consilience_papers.park2023 import trials
from consilience_papers.park2023.problems import PROBLEMS, Sample
from consilience_papers.study import Study

PAGE = Path(__file__).parent.parent / "docs" / "results" / "kernel-federation.md"
KERNEL = PROBLEMS["3"].kernel
LAMBDA, ROUNDS, JITTER = 1e-3, 200, 1e-10


def exact(sample: Sample) -> np.ndarray:
    """Every client's values at the test points after 200 rounds with de-regularisation."""
    federation = KernelFederation(
        KERNEL, sample.clients, sample.public, regularization=LAMBDA, jitter=JITTER
    )
    return federation.after(ROUNDS, deregularization=LAMBDA).predict(sample.X)[:, :, 0]


def refitting(sample: Sample) -> np.ndarray:
    """Run the rounds with every client refitted in each; its kernel matrix is computed once."""
    public, m = sample.public, len(sample.clients)
    n_public = len(public)
    K = KERNEL(public, public)
    factor = cho_factor(K + JITTER * np.trace(K) / n_public * np.eye(n_public))
    rows = [np.concatenate([X, public]) for X, _ in sample.clients]
    kernels = [KERNEL(Z, Z) for Z in rows]
    models = []
    for X, y in sample.clients:
        model = KernelRidge(alpha=LAMBDA * len(X), kernel="precomputed").fit(KERNEL(X, X), y)
        models.append((model, X))
    for t in range(1, ROUNDS + 1):
        said = (
            [model.predict(KERNEL(public, X)) for model, X in models]
            if t == 1
            else [
                model.predict(K[-n_public:]) for (model, _), K in zip(models, kernels, strict=True)
            ]
        )
        sent = np.mean(said, axis=0)
        if t < ROUNDS:
            sent = sent + n_public * LAMBDA * cho_solve(factor, sent)
        models = []
        for (X, y), Z, own in zip(sample.clients, rows, kernels, strict=True):
            weights = np.repeat([1 / m / len(X), (1 - 1 / m) / n_public], [len(X), n_public])
            model = KernelRidge(alpha=LAMBDA, kernel="precomputed")
            models.append((model.fit(own, np.concatenate([y, sent]), sample_weight=weights), Z))
    return np.stack([model.predict(KERNEL(sample.X, Z)) for model, Z in models])


def speed() -> Iterator[str]:
    sample = trials.drawn("3", 50, 10, 490, 0)
    exact(sample)  # libraries are loaded
    times = []
    for _ in range(5):
        start = perf_counter()
        ours = exact(sample)
        times.append(perf_counter() - start)
    start = perf_counter()
    theirs = refitting(sample)
    slow = perf_counter() - start
    for _ in range(5):
        start = perf_counter()
        exact(sample)
        times.append(perf_counter() - start)
    fast = float(np.median(times))
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    yield "50 clients with 10 rows, 490 public rows, 200 rounds with de-regularisation, one λ (Data set 3):"
    yield ""
    yield "| | seconds |"
    yield "| --- | --- |"
    yield f"| `sklearn.kernel_ridge.KernelRidge` refitted by every client in every round | {slow:.1f} |"
    yield f"| `KernelFederation`, median of ten, all kernel matrices included | {fast:.4f} |"
    yield f"| ratio | **{slow / fast:,.0f}** |"
    yield ""
    yield f"Largest difference of the clients' values at 1,000 test points, relative: {apart:.1e}."


def figure() -> Iterator[str]:
    start = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), processes=2)
        for m in (10, 20, 30, 40, 50, 100):
            study.repeat(
                trials.compare,
                100,
                label=f"m = {m}",
                problem="3",
                clients=m,
                rows=10,
                public=(m - 1) * 10,
                rounds=ROUNDS,
                grid=PROBLEMS["3"].grid,
            )
    minutes = (perf_counter() - start) / 60
    yield (
        "All of Figure 2 (c): m from 10 to 100, 100 repetitions, ten values of λ, five methods, fresh test "
        f"points in each, two processes with one thread each: **{minutes:.1f} minutes**."
    )


def size() -> Iterator[str]:
    yield (
        "N = 10, 2,000 public rows, 30 accelerated rounds with de-regularisation, predictions of all clients "
        "at 1,000 points; a process of its own each:"
    )
    yield ""
    yield "| clients | seconds | seconds a client | peak memory, MB | squared error |"
    yield "| --- | --- | --- | --- | --- |"
    for clients in (1250, 2500, 5000, 10000):
        command = [sys.executable, __file__, "one", "--clients", str(clients)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        error, seconds, peak = map(float, said.split())
        yield (
            f"| {clients:,} | {seconds:.1f} | {seconds / clients:.4f} | {peak:,.0f} | {error:.4f} |"
        )


def one(clients: int) -> None:
    """One size: prints the error, seconds and the peak of this process's memory in MB."""
    sample = trials.drawn("3", clients, 10, 2000, 0)
    start = perf_counter()
    federation = KernelFederation(
        KERNEL, sample.clients, sample.public, regularization=LAMBDA, jitter=JITTER
    )
    models = federation.after(30, deregularization=LAMBDA, consensus=anderson())
    error = models.mse(sample.X, sample.truth).mean()
    seconds = perf_counter() - start
    print(error, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


PARTS = {"speed": speed, "figure": figure, "size": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "one"], help="all by default")
    parser.add_argument("--clients", type=int, default=1000, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.parts == ["one"]:
        with limited_threads(1):
            one(given.clients)
        return
    sections = _sections()
    for name in given.parts or PARTS:
        command = f"`python benchmarks/kernel_federation.py {name}` · {date.today().isoformat()}"
        with limited_threads(1):
            lines = list(PARTS[name]())
        sections[name] = "\n".join([f"## {name.capitalize()}", "", command, "", *lines])
        print(sections[name])
        PAGE.write_text(_page(sections), encoding="utf-8")


def _sections() -> dict[str, str]:
    """Contents of the page, by part."""
    if not PAGE.exists():
        return {}
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.split("\n")[0].lower(): "## " + part.rstrip() for part in parts}


def _page(sections: dict[str, str]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    head = f"# Kernel federation\n\n{machine()}, one numerical thread a process. {packages}."
    return "\n\n".join([head, *(sections[name] for name in PARTS if name in sections)]) + "\n"


if __name__ == "__main__":
    main()

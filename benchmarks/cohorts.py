"""Time networks that train as one, against a plain torch loop and Flower's simulation engine.

    python benchmarks/cohorts.py           # ten minutes; without Ray, nothing of Flower's engine
    python benchmarks/cohorts.py --quick   # one repeat of each
    python benchmarks/cohorts.py --vmap    # eight minutes: the stack against torch.func.vmap

The same FedMD-like rounds of the same networks on the same rows: every round each party trains on its own
rows, all say what they think of the public rows, and each distils the mean. ``plain loop`` is the torch code
that one would write for it, one network after another (``torch.optim.Adam`` as it comes); ``Flower's engine``
is benchmarks/flower_simulation.py, its start included. Runs are interleaved, one numerical thread; medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import page
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from consilience import Party, avg, ensemble_distillation
from consilience.core.federation.federation import federation_over
from consilience.core.learners import as_learner
from consilience.core.messages.schema import Public
from consilience.core.networks import LocalNetwork
from consilience.lab.data import load
from consilience.models import make
from consilience.models.torch.batched import engine as batched
from consilience.models.torch.batched.vmap import Vmapped
from consilience.models.torch.batching import BatchScheduler

BATCH = 32


@dataclass(frozen=True)
class Job:
    """A federation of networks.

    Attributes:
        what: in words.
        data: its name.
        model: a preset, or ``"own"`` for :func:`normed`.
        options: of the preset.
        parties: how many.
        rows: private rows of each.
        public: rows.
        rounds: how many.
        epochs: on private rows, a round.
        repeats: how often it is timed.
    """

    what: str
    data: str
    model: str
    options: dict[str, Any]
    parties: int
    rows: int
    public: int
    rounds: int
    epochs: int
    repeats: int = 5

    def deal(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
        """Rows and labels of every party, and public rows."""
        data = load(self.data)
        X = np.concatenate([data.X, data.X_test]).astype(np.float32)
        y = np.unique(np.concatenate([data.y, data.y_test]), return_inverse=True)[1]
        order = np.random.default_rng(0).permutation(len(X))
        mine = order[self.public :][: self.parties * self.rows].reshape(self.parties, -1)
        return [(X[rows], y[rows]) for rows in mine], X[order[: self.public]]


JOBS = (
    Job("10 MLPs 64-64-10", "digits", "mlp", {"hidden": (64,)}, 10, 128, 500, 10, 5),
    Job("10 MLPs 64-64-10 with batch norm and dropout", "digits", "own", {}, 10, 128, 500, 10, 5),
    Job("10 MLPs 784-200-10", "mnist", "mlp", {"hidden": (200,)}, 10, 300, 500, 2, 2),
    Job("10 MLPs 784-200-200-10", "mnist", "mlp", {"hidden": (200, 200)}, 10, 300, 500, 2, 2),
    Job("5 CNNs, 8 and 16 filters", "mnist", "cnn", {"channels": (8, 16)}, 5, 200, 300, 2, 2),
    Job("2 ResNet-18", "cifar-10", "resnet18", {}, 2, 32, 32, 1, 1),
)


def normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Make a network with layers that draw and remember."""
    layers = nn.Linear(*shape, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*layers, nn.Linear(64, outputs))


def model_of(job: Job) -> Any:
    """The learner of a job."""
    if job.model == "own":
        return as_learner(normed, recipe=recipe(job))
    return make(job.model, recipe=recipe(job), **job.options)


def recipe(job: Job) -> dict[str, Any]:
    """Adam as it comes."""
    epochs = {"first_epochs": job.epochs, "epochs": job.epochs, "distill_epochs": 1}
    return {**epochs, "batch_size": BATCH}


def fitted(network: nn.Module, X: torch.Tensor, targets: torch.Tensor, epochs: int) -> None:
    """Train as anybody would."""
    optimizer = torch.optim.Adam(network.parameters())
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(X[rows]), targets[rows]).backward()
            optimizer.step()


def said(network: nn.Module, X: torch.Tensor) -> torch.Tensor:
    """Probabilities of rows."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(rows) for rows in X.split(256)]).softmax(dim=1)


def plain(job: Job, dealt: Any) -> None:
    """One network after another."""
    (private, public), build = dealt, model_of(job).factory
    networks = [build(public.shape[1:], 10) for _ in private]
    rows = [(torch.from_numpy(X), torch.from_numpy(y)) for X, y in private]
    shared = torch.from_numpy(public)
    for _ in range(job.rounds):
        for network, (X, y) in zip(networks, rows, strict=True):
            fitted(network, X, y, job.epochs)
        teacher = torch.stack([said(network, shared) for network in networks]).mean(dim=0)
        for network in networks:
            fitted(network, shared, teacher, 1)


def ours(job: Job, dealt: Any, *, at_a_time: int = 128) -> None:
    """A federation in this process; alike networks of so many parties train as one."""
    private, public = dealt
    model = model_of(job)
    parties = [
        Party(f"p{i}", model, X, y, calibration=0, purpose="taught")
        for i, (X, y) in enumerate(private)
    ]
    network = LocalNetwork(parties, shared := Public(public), at_a_time=at_a_time)
    federation_over(network, shared, strict=False).run(
        ensemble_distillation(aggregate=avg(), rounds=job.rounds), progress=False
    )


def flower(job: Job, dealt: Any) -> list[float]:
    """Flower's simulation engine, from its start to its end: the seconds of its rounds."""
    from flower_simulation import ArrayRecord, simulate

    private, public = dealt

    def answer(client: int, mean: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        kept = context.state.array_records.get("network")
        if kept is not None:
            network.load_state_dict(kept.to_torch_state_dict())
        X, y = map(torch.from_numpy, private[client])
        shared = torch.from_numpy(public)
        if mean is not None:
            fitted(network, shared, torch.from_numpy(mean.copy()), 1)
        fitted(network, X, y, job.epochs)
        context.state["network"] = ArrayRecord(network.state_dict())
        return said(network, shared).numpy()

    return simulate(answer, clients=job.parties, rounds=job.rounds)[1]


def timed(what: Callable[[Job, Any], None], job: Job, dealt: Any) -> float:
    start = perf_counter()
    what(job, dealt)
    return perf_counter() - start


def speed(quick: bool) -> list[str]:
    """The table of seconds."""
    lines = []
    for job in JOBS:
        dealt = job.deal()
        ours(job, dealt)  # imports, caches
        found: dict[str, list[float]] = {"plain": [], "alone": [], "ours": [], "anyway": []}
        for _ in range(1 if quick else job.repeats):
            found["plain"].append(timed(plain, job, dealt))
            found["ours"].append(timed(ours, job, dealt))
            if job.model in ("mlp", "own"):
                found["alone"].append(timed(partial(ours, at_a_time=1), job, dealt))
            if job.model == "cnn":
                with patch.object(batched, "_on_a_gpu", lambda module: True):
                    found["anyway"].append(timed(ours, job, dealt))
        middle = {name: f"{median(values):.3f}" if values else "" for name, values in found.items()}
        ratios = [a / b for a, b in zip(found["ours"], found["plain"], strict=True)]
        lines.append(
            [
                *(f"{job.what}, {job.data}", f"{job.rounds}"),
                *(middle[name] for name in ("plain", "ours", "alone", "anyway")),
                f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            ]
        )
    heads = [
        *(
            "networks",
            "rounds",
            "plain loop, s",
            "the federation, s",
            "with nobody side by side, s",
        ),
        *("stacked all the same, s", "the federation / plain loop (range)"),
    ]
    return page.table(heads, lines)


def engine(quick: bool) -> list[str]:
    """The first job beside Flower's simulation engine."""
    if not find_spec("ray"):
        return ["Flower's engine: Ray is not installed here, so it was not run."]
    job, found = JOBS[0], list[tuple[float, ...]]()
    dealt = job.deal()
    ours(job, dealt)
    for _ in range(1 if quick else job.repeats):
        start = perf_counter()
        rounds = flower(job, dealt)
        theirs = perf_counter() - start
        start = perf_counter()
        subprocess.run([sys.executable, __file__, "--once"], check=True)
        whole = perf_counter() - start
        found.append((theirs, median(rounds[1:]) * job.rounds, whole, timed(ours, job, dealt)))
    theirs, later, whole, mine = (median(values) for values in zip(*found, strict=True))
    heads = ["what is counted", "Flower's engine, s", "the federation, s", "ratio"]
    return page.table(
        heads,
        [
            [
                "Flower from its start to its end, beside a federation where all is imported",
                *(f"{theirs:.1f}", f"{mine:.2f}", f"{theirs / mine:.0f}"),
            ],
            [
                "both from their start to their end, the federation as a process that reads the data",
                *(f"{theirs:.1f}", f"{whole:.2f}", f"{theirs / whole:.1f}"),
            ],
            [
                f"{job.rounds} rounds at the pace of Flower's later ones, the federation with its start",
                *(f"{later:.1f}", f"{mine:.2f}", f"{later / mine:.0f}"),
            ],
        ],
    )


class Prototype(Vmapped):
    """Train alike networks with equal numbers of rows by ``vmap(grad(loss))``."""

    def __init__(self, jobs: list[Any]) -> None:
        super().__init__(jobs)
        for own, job in zip(self.own, jobs, strict=True):
            own.update(job.module.named_buffers())
        self.stacked |= stack_module_state([job.module for job in jobs])[1]

        def loss(parts: Any, buffers: Any, X: Any, targets: Any) -> Any:
            return jobs[0].loss.mean(functional_call(jobs[0].module, (parts, buffers), X), targets)

        self.slopes = vmap(grad(loss), randomness="different")

    @torch.no_grad()
    def _step(self, batches: list[torch.Tensor]) -> None:
        rows, parts = torch.stack(batches), self._trained()
        buffers = {name: part for name, part in self.stacked.items() if name not in parts}
        batch = self.X[rows + self.firsts], self.targets[rows + self.target_firsts]
        for name, slope in self.slopes(parts, buffers, *batch).items():
            parts[name].grad = slope
        self.optimizer.step()


RECORDED: dict[str, Any] = {"layers_of": lambda *_: None}
WAYS: dict[str, dict[str, Any]] = {
    "one by one": RECORDED,
    "the library": {"CACHE": batched.CACHE},
    "`vmap(grad)`": RECORDED | {"_on_a_gpu": callable, "OWN": (), "Vmapped": Prototype},
    "`vmap`, one backward pass": RECORDED | {"_on_a_gpu": callable},
}
"""Replacements in the library's engine for each way of training."""


def stepped(job: Job, dealt: Any, *, together: bool = True) -> np.ndarray:
    """Train a network for each party; return all parameters."""

    def fitted(i: int) -> Any:
        (X, y), learner = dealt[0][i], model_of(job)
        learner.bind(10)
        learner.fit(X, np.eye(10)[y], rng=np.random.default_rng(i), phase="first")
        return learner.parameters()

    parts = [partial(fitted, i) for i in range(job.parties)]
    each = BatchScheduler(parts).results() if together else [part() for part in parts]
    return np.concatenate([values.ravel() for one in each for values in one.values()])


def against_vmap() -> list[str]:
    """The table of ``--vmap``: seconds of the processor, without a first run of each way."""
    lines = []
    for job in JOBS[:-1]:
        dealt, long = job.deal(), replace(job, epochs=10 * job.epochs)
        a_step = 1e3 / (long.epochs * -(-job.rows // BATCH))
        for run, asked, unit in (stepped, long, a_step), (ours, replace(job, rounds=10), 1.0):
            found, far = {way: list[float]() for way in WAYS}, list[str]()
            for repeat in range(1 + job.repeats):
                for way in WAYS:
                    with patch.multiple(batched, **WAYS[way]):
                        start = process_time()
                        made = run(asked, dealt)
                        found[way] += [(process_time() - start) * unit] if repeat else []
                        if run is stepped and not repeat:
                            alone = stepped(asked, dealt, together=False)
                            far.append(f"{abs(made - alone).max():.1g}")
            one, *others = columns = list(found.values())
            columns += [[a / b for a, b in zip(one, other, strict=True)] for other in others]
            cells = [f"{median(v):.2f} ({min(v):.2f} to {max(v):.2f})" for v in columns]
            what = "a step, ms" if run is stepped else "ten rounds, s"
            lines.append([f"{job.what}, {job.data}", what, *cells, ", ".join(far)])
    heads = [*WAYS, *(f"speed-up of {way}" for way in list(WAYS)[1:]), "together − alone"]
    return page.table(["networks", "what", *heads], lines)


def section(quick: bool = False) -> list[str]:
    """Lines of the page, from runs made now."""
    return [
        "The same FedMD-like rounds of the same networks on the same rows; medians of "
        f"{JOBS[0].repeats} interleaved runs. *Plain loop*: torch, one network after another, Adam as it "
        "comes. *With nobody side by side*: the same bits. *Stacked all the same*: convolutions by `vmap`, "
        "as on a GPU; the federation trains them one by one on a CPU, as it does ResNets.",
        "",
        *speed(quick),
        "",
        f"{JOBS[0].what} beside Flower's simulation engine on Ray, whose workers import torch:",
        "",
        *engine(quick),
    ]


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--quick", action="store_true", help="one repeat of each")
    asked.add_argument("--vmap", action="store_true", help="torch.func.vmap instead of the stack")
    asked.add_argument("--once", action="store_true", help="the first federation, and nothing else")
    given = asked.parse_args()
    torch.set_num_threads(1)
    if given.once:
        ours(JOBS[0], JOBS[0].deal())
    else:
        print("\n".join(against_vmap() if given.vmap else section(given.quick)))


if __name__ == "__main__":
    main()

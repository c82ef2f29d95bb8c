"""Networks that train as one, against what else one would run.

    python benchmarks/cohorts.py           # ten minutes; without Ray, nothing of Flower's engine
    python benchmarks/cohorts.py --quick   # one repeat of each

The same FedMD-like rounds of the same networks on the same rows: every round each party trains on its own
rows, all say what they think of the public rows, and each distils the mean. ``plain loop`` is the torch code
that one would write for it, one network after another (``torch.optim.Adam`` as it comes); ``Flower's engine``
is benchmarks/flower_simulation.py, its start included. Runs are interleaved, one numerical thread; medians.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
import page
import torch
from torch import nn
from torch.nn import functional as F

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.data import load
from consilience.learners import make

BATCH = 32


@dataclass(frozen=True)
class Job:
    """A federation of networks.

    Attributes:
        what: in words.
        data: its name.
        model: a preset.
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
    Job("10 MLPs 784-200-10", "mnist", "mlp", {"hidden": (200,)}, 10, 300, 500, 2, 2),
    Job("10 MLPs 784-200-200-10", "mnist", "mlp", {"hidden": (200, 200)}, 10, 300, 500, 2, 2),
    Job("5 CNNs, 8 and 16 filters", "mnist", "cnn", {"channels": (8, 16)}, 5, 200, 300, 2, 2),
    Job("2 ResNet-18", "cifar-10", "resnet18", {}, 2, 32, 32, 1, 1),
)


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
    """What it thinks of rows."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(rows) for rows in X.split(256)]).softmax(dim=1)


def plain(job: Job, dealt: Any) -> None:
    """One network after another."""
    (private, public), build = dealt, make(job.model, **job.options)._given
    networks = [build(public.shape[1:], 10) for _ in private]
    rows = [(torch.from_numpy(X), torch.from_numpy(y)) for X, y in private]
    shared = torch.from_numpy(public)
    for _ in range(job.rounds):
        for network, (X, y) in zip(networks, rows, strict=True):
            fitted(network, X, y, job.epochs)
        teacher = torch.stack([said(network, shared) for network in networks]).mean(dim=0)
        for network in networks:
            fitted(network, shared, teacher, 1)


def ours(job: Job, dealt: Any) -> None:
    """A federation in this process."""
    private, public = dealt
    model = make(job.model, recipe=recipe(job), **job.options)
    parties = [Party(f"p{i}", model, X, y, calibration=0) for i, (X, y) in enumerate(private)]
    Federation(parties, public, strict=False).run(
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
    heads = [
        *("networks", "rounds", "plain loop, s", "one by one, s", "together, s"),
        *(
            "together / plain (range)",
            "Flower's engine, s (its later rounds alone)",
            "that / together",
        ),
    ]
    lines = []
    for number, job in enumerate(JOBS):
        dealt = job.deal()
        ours(job, dealt)  # imports, caches
        found: dict[str, list[float]] = {
            "plain": [],
            "alone": [],
            "ours": [],
            "flower": [],
            "rounds": [],
        }
        for _ in range(1 if quick else job.repeats):
            found["plain"].append(timed(plain, job, dealt))
            found["ours"].append(timed(ours, job, dealt))
            with one_by_one():
                found["alone"].append(timed(ours, job, dealt))
            if number == 0 and find_spec("ray"):
                start = perf_counter()
                rounds = flower(job, dealt)
                found["flower"].append(perf_counter() - start)
                found["rounds"].append(statistics.median(rounds[1:]) * job.rounds)
        middle = {name: statistics.median(values) for name, values in found.items() if values}
        ratios = [a / b for a, b in zip(found["ours"], found["plain"], strict=True)]
        engine = middle.get("flower")
        lines.append(
            [
                *(f"{job.what}, {job.data}", f"{job.rounds}"),
                *(f"{middle[name]:.3f}" for name in ("plain", "alone", "ours")),
                f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
                *(
                    (
                        f"{engine:.1f} ({middle['rounds']:.1f})",
                        f"{engine / middle['ours']:.0f} ({middle['rounds'] / middle['ours']:.0f})",
                    )
                    if engine
                    else ("", "")
                ),
            ]
        )
    return page.table(heads, lines)


class one_by_one:
    """Parties of local networks are in the midst of something one at a time."""

    def __enter__(self) -> None:
        from consilience.network import in_process

        self.before, in_process.AT_A_TIME = in_process.AT_A_TIME, 1

    def __exit__(self, *_: object) -> None:
        from consilience.network import in_process

        in_process.AT_A_TIME = self.before


def section(quick: bool = False) -> list[str]:
    """Lines of the page, from runs made now."""
    return [
        "The same FedMD-like rounds of the same networks on the same rows; medians of "
        f"{JOBS[0].repeats} interleaved runs. *Plain loop*: torch, one "
        "network after another, Adam as it comes. *One by one*: the federation with nobody side by side. "
        "*Flower's engine*: its simulation on Ray, from start to end, in which its workers import torch "
        "(in brackets ten rounds at the pace of its later ones); this process has imported all it needs.",
        "",
        *speed(quick),
        "",
        "Alone or together makes no difference to what comes out: the bits are the same, which the tests "
        "hold. What writing gradients out changes: recomputed.md.",
    ]


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--quick", action="store_true")
    torch.set_num_threads(1)
    print("\n".join(section(asked.parse_args().quick)))


if __name__ == "__main__":
    main()

"""Train networks of one architecture, with any layers, as one batch for a GPU.

Party i's parameters are slice i of stacked tensors. ``torch.func.vmap`` computes the outputs of all networks
in one forward pass. The loss of party i depends on slice i alone, so one backward pass gives the gradient of
every network. Each network has separate rows, order of rows and number of steps. Its result equals that of
separate training up to rounding, since sums are taken in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from consilience.models.torch.batched.steps import (
    PREDICT_ROWS,
    Job,
    Judge,
    batches_of,
    clip,
    pooled,
)
from consilience.models.torch.optimizer import TorchOptimizer


class Vmapped:
    """Train several networks together; a finished network leaves the stacks.

    Args:
        jobs: of modules that differ in the numbers of their parameters alone, with the same recipe and loss.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.own = [dict(job.module.named_parameters()) for job in jobs]
        first = self.own[0]
        self.stacked = {
            name: torch.stack([parts[name].detach() for parts in self.own]).requires_grad_(
                part.requires_grad
            )
            for name, part in first.items()
        }
        self.anchors = {}
        if jobs[0].correction.strength:
            self.anchors = {name: part.detach().clone() for name, part in self._trained().items()}
        self.offsets = {
            name: torch.stack(
                [torch.from_numpy(np.array((job.correction.offset or {})[name])) for job in jobs]
            ).to(first[name])
            for name in jobs[0].correction.offset or {}
        }
        self.X, firsts = pooled(jobs)
        self.targets = torch.cat([job.targets for job in jobs])
        self.weights = None
        if jobs[0].weights is not None:
            self.weights = torch.cat([job.weights for job in jobs if job.weights is not None])
        target_firsts = np.cumsum([0, *(len(job.targets) for job in jobs[:-1])])
        # What a step indexes lies where the rows do: each transfer there waits for the device.
        self.firsts, self.target_firsts = (
            torch.from_numpy(places).to(self.X.device)[:, None]
            for places in (firsts, target_firsts)
        )
        self.optimizer = TorchOptimizer(jobs[0].recipe, list(self._trained().values()))
        module = jobs[0].module

        def outputs(parameters: dict[str, Tensor], X: Tensor) -> Tensor:
            found: Tensor = functional_call(module, parameters, (X,))
            return found

        self.outputs = vmap(outputs)

    def trained(self) -> list[int]:
        """Train all networks; return their numbers of steps."""
        for job in self.jobs:
            job.module.train()
        steps = [0] * len(self.jobs)
        at_it = list(range(len(self.jobs)))  # by their places in the stacks
        judges = [
            None if job.held_out is None else Judge(job.recipe.early_stop) for job in self.jobs
        ]

        def batches_of_one(i: int) -> Iterator[Tensor]:
            judge = judges[i]
            for _ in range(self.jobs[i].epochs):
                yield from _batches(self.jobs[i], self.X.device)
                if judge is not None:
                    place = at_it.index(i)
                    if judge.better(self._risk(self.jobs[i], place), steps[i]):
                        self._written(place, i)
                    if judge.over:
                        return

        orders = [batches_of_one(i) for i in range(len(self.jobs))]
        while at_it:
            batches = [next(orders[i], None) for i in at_it]
            if any(batch is None for batch in batches):
                kept = [place for place, batch in enumerate(batches) if batch is not None]
                for place, i in enumerate(at_it):
                    judge = judges[i]
                    if batches[place] is None and (judge is None or judge.steps is None):
                        self._written(place, i)
                self._keep(kept)
                at_it = [at_it[place] for place in kept]
            if at_it:
                self._step([batch for batch in batches if batch is not None])
            for i in at_it:
                steps[i] += 1
        for job in self.jobs:
            job.module.eval()
        best = [None if judge is None else judge.steps for judge in judges]
        return [made if led is None else led for made, led in zip(steps, best, strict=True)]

    def _risk(self, job: Job, place: int) -> float:
        """Loss of a network on its held-out rows."""
        assert job.held_out is not None
        X, targets = job.held_out
        own = {name: part[place].detach() for name, part in self.stacked.items()}
        job.module.eval()
        with torch.no_grad():
            found = [
                functional_call(job.module, own, (rows,)) for rows in torch.split(X, PREDICT_ROWS)
            ]
            risk = float(job.loss.mean(torch.cat(found), targets))
        job.module.train()
        return risk

    @torch.no_grad()
    def _written(self, place: int, i: int) -> None:
        """Copy a network's parameters into its module.

        Args:
            place: in the stacks.
            i: among the jobs.
        """
        for name, part in self.own[i].items():
            part.copy_(self.stacked[name][place])

    def _trained(self) -> dict[str, Tensor]:
        return {name: part for name, part in self.stacked.items() if part.requires_grad}

    def _step(self, batches: list[Tensor]) -> None:
        """Make one step of every network in training, each by the mean loss of its batch."""
        job = self.jobs[0]
        rows, share = _aligned(batches, self.targets.dtype)
        inputs = self.X[rows + self.firsts]
        own = rows + self.target_firsts
        self.optimizer.zero_grad()
        outputs = self.outputs(self.stacked, inputs)
        losses = job.loss.values(outputs.flatten(0, 1), self.targets[own.flatten()]).view(
            share.shape
        )
        if self.weights is not None:
            losses = losses * self.weights[own]
        (losses * share).sum().backward()  # type: ignore[no-untyped-call]
        trained = self._trained()
        with torch.no_grad():
            if job.recipe.gradient_clip is not None:
                clip(
                    [p.grad for p in trained.values() if p.grad is not None],
                    job.recipe.gradient_clip,
                )
            for name, part in trained.items():
                self._correct(name, part, job.correction.strength)
        self.optimizer.step()

    def _correct(self, name: str, part: Tensor, strength: float) -> None:
        if name not in self.offsets and not strength:
            return
        change = torch.zeros_like(part) if part.grad is None else part.grad  # None: not used
        if name in self.offsets:
            change += self.offsets[name]
        if strength:
            change.add_(part - self.anchors[name], alpha=strength)
        part.grad = change

    def _keep(self, kept: list[int]) -> None:
        """Keep the stacks of the networks at some places alone."""
        if not kept:
            return
        remaining = torch.tensor(kept, device=self.X.device)
        before = {name: self.optimizer.state[part] for name, part in self._trained().items()}
        self.stacked = {
            name: part.detach()[remaining].requires_grad_(part.requires_grad)
            for name, part in self.stacked.items()
        }
        self.firsts, self.target_firsts = self.firsts[remaining], self.target_firsts[remaining]
        self.anchors = {name: part[remaining] for name, part in self.anchors.items()}
        self.offsets = {name: part[remaining] for name, part in self.offsets.items()}
        self.optimizer = TorchOptimizer(self.jobs[0].recipe, list(self._trained().values()))
        for name, shrunk in self._trained().items():
            self.optimizer.state[shrunk] = {
                key: value[remaining] if isinstance(value, Tensor) and value.ndim else value
                for key, value in before[name].items()
            }


def _batches(job: Job, device: torch.device) -> list[Tensor]:
    """Batches of an epoch."""
    order = torch.from_numpy(job.rng.permutation(len(job.targets))).to(device)
    return batches_of(order, job.recipe.batch_size)


def _aligned(batches: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows ``(p, b)`` of batches of several lengths, and the weight of each row's loss: 0 for padding."""
    lengths = [len(batch) for batch in batches]
    if len(set(lengths)) == 1:
        rows = torch.stack(batches)
        return rows, torch.full(rows.shape, 1 / lengths[0], dtype=dtype, device=rows.device)
    rows = nn.utils.rnn.pad_sequence(batches, batch_first=True)
    counts = torch.tensor(lengths, device=rows.device)[:, None]
    there = torch.arange(rows.shape[1], device=rows.device) < counts
    return rows, there.to(dtype) / counts

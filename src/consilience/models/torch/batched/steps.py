"""Description of one network's training, and the parts that all ways of running it share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.learners.base import GradientCorrection
from consilience.core.validation.arrays import Array
from consilience.models.torch.losses import TorchLoss
from consilience.models.torch.recipe import TorchRecipe

PREDICT_ROWS = 256
"""At a time: with more, what layers pass on no longer fits a core's cache, at half the speed."""


@dataclass
class Job:
    """One network's training.

    Attributes:
        module: trained in place.
        inputs: makes the inputs, shape ``(n, …)``.
        shape: of an input.
        source: identifies the inputs, so that rows which several trainings share are held once.
        targets: shape ``(n, n_outputs)``.
        weights: of rows, shape ``(n,)``, or ``None``.
        epochs: passes over all rows.
        rng: draws the order of rows.
        recipe: optimizer, batch size, clipping.
        loss: minimised.
        correction: added to gradients.
        seed: of what dropout drops.
        held_out: inputs and targets for early stopping, or ``None``.
    """

    module: nn.Module
    inputs: Callable[[], Tensor]
    shape: tuple[int, ...]
    source: Hashable
    targets: Tensor
    weights: Tensor | None
    epochs: int
    rng: np.random.Generator
    recipe: TorchRecipe
    loss: TorchLoss
    correction: GradientCorrection
    seed: int
    held_out: tuple[Tensor, Tensor] | None = None


class Judge:
    """Early stopping: remembers the lowest loss, and after how many steps it was.

    Args:
        patience: judgements without a lower loss that end a training; ``None`` for no end.

    Attributes:
        steps: until the lowest loss; ``None`` if no loss was a number.
    """

    def __init__(self, patience: int | None) -> None:
        self.patience, self.lowest, self.since = patience, float("inf"), 0
        self.steps: int | None = None

    def better(self, loss: float, steps: int) -> bool:
        """Take a loss after so many steps; return true if none was lower or the same."""
        self.since += 1
        if not loss < self.lowest:
            return False
        self.lowest, self.since, self.steps = loss, 0, steps
        return True

    @property
    def over(self) -> bool:
        """True if training is to end."""
        return self.patience is not None and self.since >= self.patience


def ends_of_steps(rows: int, size: int) -> list[int]:
    """Ends of an epoch's batches in its order of rows; a last batch of one row joins the batch before.

    >>> ends_of_steps(65, 32)
    [32, 65]
    """
    ends = [*range(size, rows, size), rows]
    if len(ends) > 1 and size > 1 and ends[-1] - ends[-2] == 1:  # batch norm needs two rows
        del ends[-2]
    return ends


class Orders:
    """The order in which a training goes through its rows, an epoch drawn when it is needed.

    Args:
        job: the training.
        width: rows of a batch.
    """

    def __init__(self, job: Job, width: int) -> None:
        self.job, self.made = job, 0
        self.plan, self.counts = _plan(len(job.targets), job.recipe.batch_size, width)
        self.waiting = np.zeros((0, width), dtype=np.int64)
        self.weights = None if job.weights is None else job.weights.cpu().numpy()

    def next(self, steps: int) -> tuple[Array, Array, Array]:
        """Return rows, their weights in the batches' means, and these as if all rows weighed the same.

        Args:
            steps: how many; ``(steps, width)`` each.
        """
        drawn, there = [self.waiting], len(self.waiting)
        while there < steps:
            drawn.append(self.job.rng.permutation(len(self.job.targets))[self.plan])
            there += len(self.plan)
        rows = np.concatenate(drawn)
        rows, self.waiting = rows[:steps], rows[steps:]
        even = self.counts[np.arange(self.made, self.made + steps) % len(self.plan)]
        self.made += steps
        return rows, even if self.weights is None else even * self.weights[rows], even


@lru_cache
def _plan(rows: int, size: int, width: int) -> tuple[Array, Array]:
    """Places in an epoch's order for its steps, and weights in the batches' means, ``(steps, width)`` both.

    Batches are filled up with the first row, at weight 0.
    """
    ends = ends_of_steps(rows, size)
    plan, counts = np.zeros((len(ends), width), dtype=np.int64), np.zeros((len(ends), width))
    for step, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        plan[step, : end - start] = np.arange(start, end)
        counts[step, : end - start] = 1 / (end - start)
    plan.flags.writeable = counts.flags.writeable = False
    return plan, counts


def batches_of(order: Tensor, size: int) -> list[Tensor]:
    """Split an order of rows into the batches of an epoch."""
    return list(torch.tensor_split(order, ends_of_steps(len(order), size)[:-1]))


def pooled(jobs: Sequence[Job]) -> tuple[Tensor, np.ndarray]:
    """Concatenate inputs, those of one source once; return them and each training's first row."""
    pool: list[Tensor] = []
    at: dict[Hashable, int] = {}
    for job in jobs:
        if job.source not in at:
            at[job.source] = sum(map(len, pool))
            pool.append(job.inputs())
    return torch.cat(pool), np.array([at[job.source] for job in jobs])


def clip(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale every stacked network's gradient down to a norm, as ``clip_grad_norm_`` does for one.

    Args:
        gradients: of all parameters, each ``(networks, …)``, changed in place.
        largest: the norm.
    """
    each = [gradient.flatten(1).square().sum(dim=1) for gradient in gradients]
    squares = each[0]
    for more in each[1:]:  # not a sum over an axis, whose order depends on the number of networks
        squares = squares + more
    factor = (largest / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))

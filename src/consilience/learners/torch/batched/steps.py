"""What a training of a network is, and the parts that every way of doing it shares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.base import Pull
from consilience.learners.torch.losses import Loss
from consilience.learners.torch.recipe import TorchRecipe

PREDICT_ROWS = 256
"""At a time: with more, what layers pass on no longer fits a core's cache, at half the speed."""


@dataclass
class Job:
    """One network's training.

    Attributes:
        module: trained in place.
        inputs: makes the inputs, shape ``(n, …)``.
        shape: of an input.
        source: what the inputs are made of: the same for the same, so that shared rows are held once.
        targets: shape ``(n, n_outputs)``.
        weights: of rows, shape ``(n,)``, or ``None``.
        epochs: how often all rows are gone through.
        rng: draws the order of rows.
        recipe: how.
        loss: what is minimised.
        pull: what is added to gradients.
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
    loss: Loss
    pull: Pull


def ends_of_steps(rows: int, size: int) -> list[int]:
    """Where an epoch's steps end in its order of rows; a last one of a single row joins the one before."""
    ends = [*range(size, rows, size), rows]
    if len(ends) > 1 and size > 1 and ends[-1] - ends[-2] == 1:  # batch norm needs two rows
        del ends[-2]
    return ends


def batches_of(order: Tensor, size: int) -> list[Tensor]:
    """The rows of every step."""
    return list(torch.tensor_split(order, ends_of_steps(len(order), size)[:-1]))


def pooled(jobs: Sequence[Job]) -> tuple[Tensor, np.ndarray]:
    """Inputs one after another, those of one source once, and where each training's begin."""
    pool: list[Tensor] = []
    at: dict[Hashable, int] = {}
    for job in jobs:
        if job.source not in at:
            at[job.source] = sum(map(len, pool))
            pool.append(job.inputs())
    return torch.cat(pool), np.array([at[job.source] for job in jobs])


def clip(gradients: Sequence[Tensor], largest: float) -> None:
    """Every stacked network's gradient scaled down to that norm, as ``clip_grad_norm_`` does for one."""
    each = [gradient.flatten(1).square().sum(dim=1) for gradient in gradients]
    squares = each[0]
    for more in each[
        1:
    ]:  # one after another: a sum over an axis goes by how many networks there are
        squares = squares + more
    factor = (largest / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))

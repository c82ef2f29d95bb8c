"""Description of one network's training, and the parts that all ways of running it share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.base import GradientCorrection
from consilience.learners.torch.losses import TorchLoss
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
        source: identifies the inputs, so that rows which several trainings share are held once.
        targets: shape ``(n, n_outputs)``.
        weights: of rows, shape ``(n,)``, or ``None``.
        epochs: passes over all rows.
        rng: draws the order of rows.
        recipe: optimizer, batch size, clipping.
        loss: minimised.
        correction: added to gradients.
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


def ends_of_steps(rows: int, size: int) -> list[int]:
    """Ends of an epoch's batches in its order of rows; a last batch of one row joins the batch before.

    >>> ends_of_steps(65, 32)
    [32, 65]
    """
    ends = [*range(size, rows, size), rows]
    if len(ends) > 1 and size > 1 and ends[-1] - ends[-2] == 1:  # batch norm needs two rows
        del ends[-2]
    return ends


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

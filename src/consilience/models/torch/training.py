"""The training loop of one network of any kind: epochs, batches, early stopping."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from consilience.core.validation.arrays import Array
from consilience.models.torch.batched.steps import Job, Judge, batches_of
from consilience.models.torch.device import forward
from consilience.models.torch.images import augmented
from consilience.models.torch.modules import forward_in_parts
from consilience.models.torch.optimizer import TorchOptimizer
from consilience.models.torch.parameters import all_finite, corrector
from consilience.models.torch.recipe import Augmentation

SPELL, PATIENCE, MOST = 5, 2, 20
"""Epochs of a spell of distillation, spells without a lower loss that end it, and spells at most."""

EVERY = 10
"""One in so many rows of a distillation is held out, and is the same one in every round."""


def train(job: Job, augment: Augmentation | None = None) -> int:
    """Train a module in place.

    Args:
        job: the training; its generator draws the order of rows, and the changes of images.
        augment: random changes of images, or ``None``.

    Returns:
        The number of optimizer steps that led to the kept parameters.
    """
    module, recipe, loss, weights = job.module, job.recipe, job.loss, job.weights
    X, targets = job.inputs(), job.targets
    parameters = [part for part in module.parameters() if part.requires_grad]
    optimizer = TorchOptimizer(recipe, parameters)
    correct = corrector(module, job.correction)
    judge, best, steps = Judge(recipe.early_stop), None, 0
    for _ in range(job.epochs):
        module.train()
        order = torch.from_numpy(job.rng.permutation(len(X))).to(X.device)
        for rows in batches_of(order, recipe.batch_size):
            optimizer.zero_grad()
            batch = X[rows] if augment is None else augmented(X[rows], augment, job.rng)
            outputs = forward(module, batch, recipe.precision)
            risk = loss.mean(outputs, targets[rows], None if weights is None else weights[rows])
            risk.backward()  # type: ignore[no-untyped-call]
            if recipe.gradient_clip is not None:
                nn.utils.clip_grad_norm_(parameters, recipe.gradient_clip)
            if correct is not None:
                correct()
            optimizer.step()
            steps += 1
        if job.held_out is None:
            continue
        with torch.inference_mode():
            outputs = forward_in_parts(module, job.held_out[0], recipe.precision)
            now = float(loss.mean(outputs, job.held_out[1]))
        if judge.better(now, steps):
            best = copy.deepcopy(module.state_dict())
        if judge.over:
            break
    if best is not None:
        module.load_state_dict(best)
    module.eval()
    return steps if judge.steps is None else judge.steps


def held_out_weights(rows: int, weights: Array | None) -> tuple[Array, Array]:
    """Hold out a tenth of the rows of a distillation, one at least; a single row is not held out.

    The draw depends on the number of rows alone, because a student must not train in one round on the rows
    that judge it in the next. Held-out rows have weight zero in training, so that parties still share the
    public rows in memory.

    Args:
        rows: number of rows, n.
        weights: of rows, shape ``(n,)``, or ``None``.

    Returns:
        Places of the held-out rows, and the weights ``(n,)`` of all rows, of mean 1.
    """
    drawn = np.random.default_rng(rows).permutation(rows)
    judged = np.sort(drawn[: max(1, rows // EVERY)])
    weights = np.ones(rows) if weights is None else weights.copy()
    if rows > 1:
        weights[judged] = 0.0
    return judged, weights * (rows / weights.sum())


def train_to_the_end(module: nn.Module, spell: Callable[[], int], loss: Callable[[], float]) -> int:
    """Train a student in spells until its loss on held-out rows stops falling; keep the best parameters.

    It ends after :data:`PATIENCE` spells without a lower loss, or :data:`MOST` spells. Each spell has a new
    optimizer. Non-finite parameters end the training too, and stay in the module so that the caller can see
    them.

    Args:
        module: the student, trained in place.
        spell: trains it for :data:`SPELL` epochs; returns the number of optimizer steps.
        loss: its loss to the teacher on the held-out rows.

    Returns:
        The number of optimizer steps that led to the kept parameters.
    """
    lowest, since, best = loss(), 0, copy.deepcopy(module.state_dict())
    steps, best_steps = 0, 0
    for _ in range(MOST):
        steps, since = steps + spell(), since + 1
        if not all_finite(module):
            return steps
        if (now := loss()) < lowest:
            lowest, since, best = now, 0, copy.deepcopy(module.state_dict())
            best_steps = steps
        if since == PATIENCE:
            break
    module.load_state_dict(best)
    return best_steps

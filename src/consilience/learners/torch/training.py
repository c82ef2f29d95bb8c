"""The training loop of one network of any kind: epochs, batches, early stopping."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.base import GradientCorrection
from consilience.learners.torch.batched.steps import batches_of
from consilience.learners.torch.device import forward
from consilience.learners.torch.images import augmented
from consilience.learners.torch.losses import TorchLoss
from consilience.learners.torch.modules import forward_in_parts
from consilience.learners.torch.optimizer import TorchOptimizer
from consilience.learners.torch.parameters import corrector
from consilience.learners.torch.recipe import Augmentation, TorchRecipe


def train(
    module: nn.Module,
    X: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    *,
    epochs: int,
    rng: np.random.Generator,
    recipe: TorchRecipe,
    loss: TorchLoss,
    correction: GradientCorrection,
    augment: Augmentation | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
) -> int:
    """Train a module in place.

    Args:
        module: the network.
        X: inputs, shape ``(n, ...)``.
        targets: shape ``(n, n_outputs)``.
        weights: of rows, shape ``(n,)``, or ``None``.
        epochs: passes over all rows.
        rng: draws the order of rows, and the changes of images.
        recipe: optimizer, batch size, clipping, early stopping, precision.
        loss: minimised.
        correction: added to the gradients.
        augment: random changes of images, or ``None``.
        held_out: inputs and targets for early stopping.

    Returns:
        The number of optimizer steps that led to the parameters that are kept.
    """
    patience = recipe.early_stop
    parameters = [part for part in module.parameters() if part.requires_grad]
    optimizer = TorchOptimizer(recipe, parameters)
    correct = corrector(module, correction)
    lowest, since, best = float("inf"), 0, None
    steps, best_steps = 0, 0
    for _ in range(epochs):
        module.train()
        order = torch.from_numpy(rng.permutation(len(X))).to(X.device)
        for rows in batches_of(order, recipe.batch_size):
            optimizer.zero_grad()
            batch = X[rows] if augment is None else augmented(X[rows], augment, rng)
            outputs = forward(module, batch, recipe.precision)
            risk = loss.mean(outputs, targets[rows], None if weights is None else weights[rows])
            risk.backward()  # type: ignore[no-untyped-call]
            if recipe.gradient_clip is not None:
                nn.utils.clip_grad_norm_(parameters, recipe.gradient_clip)
            if correct is not None:
                correct()
            optimizer.step()
            steps += 1
        if held_out is None or patience is None:
            continue
        with torch.inference_mode():
            outputs = forward_in_parts(module, held_out[0], recipe.precision)
            now = float(loss.mean(outputs, held_out[1]))
        since += 1
        if now < lowest:
            lowest, since, best = now, 0, copy.deepcopy(module.state_dict())
            best_steps = steps
        if since >= patience:
            break
    if best is not None:
        module.load_state_dict(best)
    module.eval()
    return steps if best is None else best_steps

"""Train a network with noise: clip gradients per unit and sum them over random batches (DP-SGD).

    for each step: every unit is in the batch independently, with probability q
        g <- sum over its units of  g_u · min(1, clip / |g_u|),   g_u the gradient of the unit's rows
        one step of the recipe's optimizer along  (g + N(0, (noise · clip)² I)) / batch

The true number of units in a batch is private, so the sum is divided by a fixed number instead. Noise and
batches use the operating system's random bytes. Gradients and parameters are 32-bit floats, and the privacy
proof ignores their rounding. In contrast, :mod:`consilience.privacy.class_sums.sums` uses integers.

Source:
    Abadi et al. 2016, Algorithm 1; Bu et al. 2020 and others for gradients by row from ``torch.func``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from consilience.core.errors import InvalidInput
from consilience.core.numerics.randomness import NoiseSource
from consilience.core.validation.arrays import Array
from consilience.models.torch.learner import TorchLearner
from consilience.models.torch.losses import TorchLoss, loss_for
from consilience.models.torch.optimizer import TorchOptimizer
from consilience.models.torch.recipe import TorchRecipe

_NUMBERS = 2**24
"""Largest number of per-row gradient entries in memory at a time; one unit with many rows may exceed it."""


def check_bounded(
    module: nn.Module, rows: Tensor, targets: Tensor, loss: TorchLoss, *, where: str
) -> None:
    """Raise ``InvalidInput`` unless the gradient of each row is independent of all other rows.

    Args:
        module: the network.
        rows: example inputs of the shape that training will use.
        targets: arbitrary targets for these rows.
        loss: training loss.
        where: name of the model, for the error message.
    """
    module.train()
    own, gradients = _row_gradients(module, loss, where)
    try:
        gradients(own, rows, targets)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InvalidInput(
            "its gradients cannot be computed row by row, and nothing else bounds what one row does: "
            + str(error).strip().partition("\n")[0],
            where=where,
            mend="Take an mlp or a cnn; or an encoder, whose embeddings become the inputs; or "
            "private_sums, which takes any model.",
            code="budget",
        ) from error


_Parts = dict[str, Tensor]


def _row_gradients(
    module: nn.Module, loss: TorchLoss, where: str
) -> tuple[_Parts, Callable[[_Parts, Tensor, Tensor], _Parts]]:
    """Return the trainable parameters and a function that computes the gradients of each row.

    The function takes parameters, rows and targets.

    Raises:
        InvalidInput: a layer mixes rows (batch normalisation) or keeps running statistics of them.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and (
            part.track_running_stats or isinstance(part, nn.modules.batchnorm._BatchNorm)
        ):
            raise InvalidInput(
                f"layer {name!r} ({type(part).__name__}) normalises by means over rows, so that one row "
                "moves the gradients of all, and its running means hold them without noise",
                where=where,
                mend="Take GroupNorm or LayerNorm, which look at one row alone.",
                code="budget",
            )
    own: _Parts = {name: part for name, part in module.named_parameters() if part.requires_grad}
    rest = dict(module.named_buffers())
    rest |= {name: part for name, part in module.named_parameters() if not part.requires_grad}

    def loss_of(parameters: _Parts, row: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(module, parameters | rest, (row[None],))
        return loss.mean(outputs, target[None])

    return own, vmap(grad(loss_of), in_dims=(None, 0, 0), randomness="different")


def train_with_noise(
    module: nn.Module,
    X: Tensor,
    targets: Tensor,
    units: Array,
    *,
    recipe: TorchRecipe,
    loss: TorchLoss,
    rate: float,
    steps: int,
    batch: int,
    clip: float,
    noise: float,
    source: NoiseSource,
) -> None:
    """Train a module in place with DP-SGD.

    Args:
        module: the network.
        X: inputs, shape ``(n, ...)``.
        targets: shape ``(n, n_outputs)``.
        units: unit of privacy of each row, shape ``(n,)``, numbered from 0.
        recipe: optimizer and step size; its batch size and epochs are ignored.
        loss: training loss.
        rate: q, the probability that a unit is in a batch.
        steps: number of steps.
        batch: divisor of each step's sum.
        clip: largest norm of a unit's gradient.
        noise: standard deviation of the noise, divided by ``clip``.
        source: factory of the random source for noise and batches.

    Raises:
        InvalidInput: a layer makes the gradient of one row depend on other rows.
    """
    module.train()
    own, gradients = _row_gradients(module, loss, "training with noise")
    optimizer, random = TorchOptimizer(recipe, list(own.values())), source()
    count, size = int(units.max(initial=-1)) + 1, sum(part.numel() for part in own.values())
    most = max(1, _NUMBERS // size)
    for _ in range(steps):
        drawn = random.normal(scale=1.0, size=(count,)) < ndtri(rate)
        total = torch.zeros(size, dtype=torch.float32, device=X.device)
        for places, mine in _chunks(np.flatnonzero(drawn[units]), units, most):
            rows = torch.from_numpy(places).to(X.device)
            fixed = {name: part.detach() for name, part in own.items()}
            found = gradients(fixed, X[rows], targets[rows])
            flat = torch.cat([found[name].flatten(1) for name in own], dim=1).float()
            by_unit = torch.zeros((int(mine.max()) + 1, size), device=X.device)
            by_unit.index_add_(0, torch.from_numpy(mine).to(X.device), flat)
            norms = torch.linalg.vector_norm(by_unit.double(), dim=1)
            usable = torch.isfinite(norms)
            by_unit[~usable] = 0.0
            norms = norms.where(usable, 0.0).clamp(min=clip)
            scale = clip * (1 - 1e-6) / norms  # so that rounding makes none longer
            total += (by_unit * scale.float()[:, None]).sum(dim=0)
        added = random.normal(scale=noise * clip, size=(size,))
        total = (total.double() + torch.from_numpy(added).to(X.device)) / batch
        slopes = torch.split(total, [part.numel() for part in own.values()])
        for part, slope in zip(own.values(), slopes, strict=True):
            part.grad = slope.reshape(part.shape).to(part.dtype)
        optimizer.step()
    optimizer.zero_grad()
    module.eval()


def _chunks(rows: Array, units: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """Split rows into chunks of whole units and about ``most`` rows, each with its unit's number there."""
    order = rows[np.argsort(units[rows], kind="stable")]
    begins = np.flatnonzero(np.diff(units[order])) + 1  # of units, but for the first
    cuts = begins[np.diff(begins // most, prepend=0) > 0]
    for part in np.split(order, cuts):
        if len(part):
            yield part, np.unique(units[part], return_inverse=True)[1]


def bounded_network(learner: TorchLearner, example: Array) -> str:
    """Describe the network that :func:`fit_with_noise` will train on rows of this shape.

    Args:
        learner: the network, untrained.
        example: rows, shape ``(n, ...)``.

    Returns:
        Recipe and architecture of the network as text.

    Raises:
        InvalidInput: the effect of one row on the network cannot be bounded.
    """
    example, modules = learner.rows(example), learner.modules
    module = modules.build(example, learner.n_outputs, seed=None)
    targets = modules.values(np.zeros((len(example), learner.n_outputs)), module)
    loss = loss_for(learner.abilities.kind, learner.recipe.loss)
    with modules.random_stream(0):
        inputs = modules.inputs(example, module)
        check_bounded(module, inputs, targets, loss, where=learner.name)
    return f"{learner.recipe} {module}"


def fit_with_noise(
    learner: TorchLearner, X: Array, targets: Array, units: Array, **how: Any
) -> None:
    """Continue to train a network by DP-SGD (:func:`train_with_noise`).

    Args:
        learner: the network.
        X: inputs, shape ``(n, ...)``.
        targets: shape ``(n, n_outputs)``.
        units: unit of privacy of each row, shape ``(n,)``, from 0 on.
        how: further arguments of :func:`train_with_noise`: settings, noise and its source.
    """
    module, modules = learner.trained_module(), learner.modules
    rows, outputs = modules.inputs(learner.rows(X), module), modules.values(targets, module)
    loss = loss_for(learner.abilities.kind, learner.recipe.loss)
    with modules.errors_named():
        train_with_noise(module, rows, outputs, units, recipe=learner.recipe, loss=loss, **how)

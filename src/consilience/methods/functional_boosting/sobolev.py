"""Sobolev training of torch modules: values and steepness together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.targets import usable
from consilience.core.validation.arrays import Array
from consilience.models.torch.batched.steps import batches_of
from consilience.models.torch.learner import TorchLearner
from consilience.models.torch.modules import forward_in_parts
from consilience.models.torch.optimizer import TorchOptimizer

Gradient = Callable[[Array], Array]


def train(
    learner: Any,
    X: Array,
    targets: Array,
    *,
    rng: np.random.Generator,
    gradient: Gradient | None,
    strength: float,
    neighbours: int,
    rate: float,
) -> None:
    """Train the learner's module in place, by Sobolev training (:class:`.weak_fits.SobolevTraining`).

    Args:
        learner: a :class:`TorchLearner` for regression.
        X: shape ``(n, ...)``.
        targets: φ, shape ``(n, c)``.
        rng: the only source of randomness.
        gradient: ∇φ at rows, ``(m, c, d)``; ``None`` for secants.
        strength: the factor of the mean square error of the gradients, or secants.
        neighbours: of each row, for secants.
        rate: of the multiplicative updates of row weights.

    Raises:
        InvalidInput: the learner is not a torch module; gradients have another shape, or inputs are integers;
            for secants, equal rows have different targets, or all rows are equal.
        RunFailed: training diverged.
    """
    if not isinstance(learner, TorchLearner):
        raise InvalidInput("Sobolev training takes a torch module", where=type(learner).__name__)
    X = np.asarray(X)
    if X.dtype.kind in "UO":
        raise InvalidInput("texts have no steepness", where=learner.name)
    X, targets, _ = usable(
        X, targets, None, n_outputs=learner.n_outputs, kind="regression", where=learner.name
    )
    near = np.zeros((0, 0), dtype=np.int64)
    if gradient is None:
        near = _nearest(X, targets, neighbours, learner.name)
    else:
        _check_gradient(gradient, X, targets, learner.name)
    learner.n_outputs = targets.shape[1]
    if not learner.fitted:
        learner.start(X, rng=rng)
    module, recipe = learner.module, learner.recipe
    assert module is not None
    modules = learner.modules
    inputs, values = modules.inputs(X, module), modules.values(targets, module)
    if gradient is not None and not inputs.is_floating_point():
        raise InvalidInput(
            "the module takes whole numbers, by which nothing can be derived", where=learner.name
        )

    def off(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors of a batch, ``(b,)``, and the mean square error of its steepness."""
        if gradient is not None:
            errors = module(inputs[rows]) - values[rows]
            return errors.square().sum(dim=1), _off_gradient(module, inputs[rows], gradient, rng)
        picked = near[rows.cpu().numpy(), rng.integers(near.shape[1], size=len(rows))]
        both = torch.cat([rows, torch.from_numpy(picked).to(rows.device)])
        errors = module(inputs[both]) - values[both]
        here, there = inputs[both].to(values.dtype).flatten(1).chunk(2)
        rise = (errors[: len(rows)] - errors[len(rows) :]).square().sum(dim=1)
        secants = rise / (here - there).square().sum(dim=1)
        return errors[: len(rows)].square().sum(dim=1), secants.mean()

    parameters = [part for part in module.parameters() if part.requires_grad]
    optimizer = TorchOptimizer(recipe, parameters)
    weights = torch.ones(len(X), dtype=values.dtype, device=values.device)
    least, best = math.inf, None
    with modules.random_stream(int(rng.integers(2**63 - 1))), modules.errors_named():
        for _ in range(recipe.first_epochs):
            module.train()
            order = torch.from_numpy(rng.permutation(len(X))).to(inputs.device)
            steepness = 0.0
            for rows in batches_of(order, recipe.batch_size):
                optimizer.zero_grad()
                errors, steep = off(rows)
                loss = (weights[rows] * errors).mean() + strength * steep
                loss.backward()  # type: ignore[no-untyped-call]
                if recipe.gradient_clip is not None:
                    nn.utils.clip_grad_norm_(parameters, recipe.gradient_clip)
                optimizer.step()
                steepness += float(steep.detach()) * len(rows) / len(X)
            with torch.no_grad():
                answers = forward_in_parts(module, inputs, recipe.precision)
                errors = (answers - values).square().sum(dim=1)
            reached = float(errors.max()) + strength * steepness
            if reached < least:
                least, best = reached, copy.deepcopy(module.state_dict())
            weights *= torch.exp(rate * errors / errors.max().clamp_min(1e-30))
            weights /= weights.mean()
    if recipe.first_epochs and best is None:
        raise RunFailed(
            "training diverged: errors are NaN or infinite",
            where=learner.name,
            mend="Lower learning_rate, set gradient_clip, or scale the inputs.",
        )
    if best is not None:
        module.load_state_dict(best)
    module.eval()


def _off_gradient(
    module: nn.Module, rows: Tensor, gradient: Gradient, rng: np.random.Generator
) -> Tensor:
    """Mean of ‖vᵀ(∇h − ∇φ)‖² between rows, v of ±1 each: in expectation that of ‖∇h − ∇φ‖²."""
    other = rows[torch.from_numpy(rng.permutation(len(rows))).to(rows.device)]
    share = torch.from_numpy(rng.random(len(rows))).to(rows)
    points = rows + share.reshape(-1, *[1] * (rows.dim() - 1)) * (other - rows)
    slopes = gradient(points.cpu().numpy().astype(np.float64))
    signs = rng.choice([-1.0, 1.0], size=slopes.shape[:2])
    wanted = torch.from_numpy(np.einsum("nc,ncd->nd", signs, slopes)).to(points)
    points.requires_grad_()
    answers = (module(points) * torch.from_numpy(signs).to(points)).sum()
    (has,) = torch.autograd.grad(answers, points, create_graph=True)
    return (has.flatten(1) - wanted).square().sum(dim=1).mean()


def _nearest(X: Array, targets: Array, count: int, name: str) -> Array:
    """Indices of the nearest different rows of every row, shape ``(n, up to count)``."""
    from sklearn.neighbors import NearestNeighbors

    flat = X.reshape(len(X), -1)
    different, first, same_as = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    same_as = same_as.reshape(-1)
    if (targets != targets[first][same_as]).any():
        raise InvalidInput(
            "equal rows have different targets, so secants are infinite",
            where=name,
            mend="Put equal rows together, with the mean of their labels, or take another oracle.",
        )
    if len(different) < 2:
        raise InvalidInput("all rows are equal: there are no secants", where=name)
    search = NearestNeighbors(n_neighbors=min(count, len(different) - 1)).fit(different)
    return np.asarray(first[search.kneighbors(return_distance=False)][same_as])


def _check_gradient(gradient: Gradient, X: Array, targets: Array, name: str) -> None:
    rows = X[:2].astype(np.float64)
    found = np.shape(gradient(rows))
    expected = (len(rows), targets.shape[1], rows[0].size)
    if found != expected:
        raise InvalidInput(
            f"the query's gradient has shape {found}, expected {expected}", where=name
        )

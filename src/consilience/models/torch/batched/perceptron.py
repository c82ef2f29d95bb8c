"""Multilayer perceptrons: fully connected layers and what may stand between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from consilience.models.torch.batched.architecture import Architecture
from consilience.models.torch.batched.steps import ends_of_steps

ACTIVATIONS: Mapping[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]] = {
    nn.ReLU: (
        torch.relu_,
        lambda g, h: torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g),
    ),
    nn.Tanh: (
        torch.tanh_,
        lambda g, h: torch.ops.aten.tanh_backward.grad_input(g, h, grad_input=g),
    ),
    nn.Sigmoid: (
        torch.sigmoid_,
        lambda g, h: torch.ops.aten.sigmoid_backward.grad_input(g, h, grad_input=g),
    ),
}
"""Activations: the function, in place; and the gradient at its inputs, also in place, from the gradient at
its outputs and these outputs."""

_FLAT = nn.Flatten().extra_repr()

_TYPES = (torch.float32, torch.float64)
"""Numbers that BLAS multiplies."""

_FILLING = 2**20
"""Products of parameters and rows that take as long as a step's gradients take to be recorded."""


@dataclass(frozen=True)
class Dense:
    """A fully connected layer.

    Attributes:
        weight: name of its weights among the module's parameters.
        bias: name of its biases, or ``None``.
        numbers: number of its parameters.
    """

    weight: str
    bias: str | None
    numbers: int


@dataclass(frozen=True)
class Bend:
    """An activation, a key of :data:`ACTIVATIONS`."""

    kind: type[nn.Module]
    numbers: int = 0


@dataclass(frozen=True)
class Drop:
    """Dropout.

    Attributes:
        p: probability that a number is dropped in training; the other numbers are scaled up.
        width: columns.
        numbers: number of its parameters.
    """

    p: float
    width: int
    numbers: int = 0


@dataclass(frozen=True)
class Norm:
    """Batch norm of ``width`` columns.

    Attributes:
        weight: name of its scales, or ``None``.
        bias: name of its shifts, or ``None``.
        mean: name of the running means.
        variance: name of the running variances.
        steps: name of the count of steps.
        eps: added to variances.
        momentum: weight of the last batch in the running statistics.
        width: columns.
        numbers: number of its parameters.
    """

    weight: str | None
    bias: str | None
    mean: str
    variance: str
    steps: str
    eps: float
    momentum: float
    width: int
    numbers: int


Layer = Dense | Bend | Drop | Norm


@lru_cache
def layers_of(network: Architecture, shape: tuple[int, ...]) -> tuple[Layer, ...] | None:
    """Return the layers of a perceptron, all of them trained; ``None`` for any other network.

    Args:
        network: its architecture.
        shape: of an input, without the row axis.
    """
    layers: list[Layer] = []
    width, flat = math.prod(shape), len(shape) == 1
    for part in network:
        own = dict(part.parameters)
        trained = [own[name] for name in ("weight", "bias") if own.get(name)]
        if any(not one.trained or one.dtype not in _TYPES for one in trained if one):
            return None
        weight, bias = (one and one.name for one in (own.get("weight"), own.get("bias")))
        numbers = sum(math.prod(one.shape) for one in trained if one)
        if part.kind in (nn.Sequential, nn.Identity):
            continue
        if part.kind is nn.Flatten and not layers and part.settings == _FLAT:
            flat = True
        elif part.kind is nn.Linear and (wide := own["weight"]) and width == wide.shape[1]:
            width = wide.shape[0]
            layers.append(Dense(wide.name, bias, numbers))
        elif part.kind in ACTIVATIONS and layers and not isinstance(layers[-1], Bend):
            layers.append(Bend(part.kind))
        elif part.kind is nn.Dropout and flat and (p := part.numbers[0]) is not None and p < 1:
            layers += [Drop(p, width)] if p else []
        elif part.kind is nn.BatchNorm1d and flat:
            kept = own["running_mean"], own["running_var"], own["num_batches_tracked"]
            eps, momentum = part.numbers
            mean, variance, steps = (one and one.name for one in kept)
            if not (mean and variance and steps) or eps is None or momentum is None:
                return None
            if kept[0] is None or kept[0].shape != (width,) or kept[0].dtype not in _TYPES:
                return None
            layers.append(Norm(weight, bias, mean, variance, steps, eps, momentum, width, numbers))
        else:
            return None
    dense = any(isinstance(layer, Dense) for layer in layers)
    return tuple(layers) if dense and flat else None


def worth_it(layers: Sequence[Layer], rows: int, size: int) -> bool:
    """True if rows that fill up batches cost less than recording gradients would.

    Args:
        layers: of the network.
        rows: number of training rows.
        size: the recipe's batch size.
    """
    if min(rows, size) == 1 and any(isinstance(layer, Norm) for layer in layers):
        return False  # batch norm needs two rows, which torch says
    steps = len(ends_of_steps(rows, size))
    filling = steps * rows_of_a_batch(rows, size) - rows
    return numbers_of(layers) * filling <= _FILLING * steps


def numbers_of(layers: Sequence[Layer]) -> int:
    """Count the parameters of a network."""
    return sum(layer.numbers for layer in layers)


def rows_of_a_batch(rows: int, size: int) -> int:
    """Return the number of rows that every batch is filled up to.

    Args:
        rows: number of training rows.
        size: the recipe's batch size.

    >>> rows_of_a_batch(300, 32), rows_of_a_batch(20, 32), rows_of_a_batch(5, 32)
    (33, 32, 8)
    """
    if rows < size:
        return min(size, 1 << (rows - 1).bit_length())
    return size + (1 < size < rows)  # a last batch of one row joins the one before

"""Multilayer perceptrons: networks of fully connected layers, found by their architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from consilience.learners.torch.batched.architecture import Architecture
from consilience.learners.torch.batched.steps import ends_of_steps

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
class Layer:
    """A fully connected layer and the activation that follows.

    Attributes:
        weight: name of its weights among the module's parameters.
        bias: name of its biases, or ``None``.
        numbers: number of its parameters.
        activation: a key of :data:`ACTIVATIONS`, or ``None``.
    """

    weight: str
    bias: str | None
    numbers: int
    activation: type[nn.Module] | None


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
        if part.kind in (nn.Sequential, nn.Identity):
            continue
        if part.kind is nn.Flatten and not layers and part.settings == _FLAT:
            flat = True
        elif part.kind is nn.Linear:
            own = dict(part.parameters)
            weight, bias = own["weight"], own["bias"]
            if weight is None or not weight.trained or width != weight.shape[1]:
                return None
            if weight.dtype not in _TYPES:
                return None
            if bias is not None and not bias.trained:
                return None
            width = weight.shape[0]
            numbers = math.prod(weight.shape) + (0 if bias is None else width)
            layers.append(Layer(weight.name, None if bias is None else bias.name, numbers, None))
        elif part.kind in ACTIVATIONS and layers and layers[-1].activation is None:
            layers[-1] = replace(layers[-1], activation=part.kind)
        else:
            return None
    return tuple(layers) if layers and flat else None


def worth_it(layers: Sequence[Layer], rows: int, size: int) -> bool:
    """True if rows that fill up batches cost less than recording gradients would.

    Args:
        layers: of the network.
        rows: number of training rows.
        size: the recipe's batch size.
    """
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

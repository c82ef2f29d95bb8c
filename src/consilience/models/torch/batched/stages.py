"""Layers of perceptrons stacked side by side: outputs, and gradients written out.

Memory is laid out once for all steps. A slice of a stack begins on a cache line and ends before a gap, so
that operations go through one slice after another, each from a place like any other to its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from consilience.models.torch.batched.perceptron import (
    ACTIVATIONS,
    Bend,
    Dense,
    Layer,
    Norm,
)
from consilience.models.torch.losses import TorchLoss

LINE = 32
"""Slices begin at multiples of this count of numbers. It covers a cache line and the largest block of
elementwise functions, which round an incomplete last block in another way."""


def room(like: Tensor, count: int, *shape: int) -> Tensor:
    """Empty memory for a stack of vectors or matrices.

    Args:
        like: of the same type, in the same place.
        count: how many.
        shape: of each.
    """
    return like.new_empty_strided((count, *shape), (gapped(shape), *shape[1:], 1))


def gapped(shape: Sequence[int]) -> int:
    """Return the numbers from one slice of a stack to the next, with a gap between them."""
    return (math.prod(shape) // LINE + 1) * LINE


def product(A: Tensor, B: Tensor, out: Tensor) -> Callable[[], object]:
    """Return a function that multiplies two stacks of matrices into a third, with their values at the call.

    On a CPU numpy computes the products, which calls BLAS for one matrix after another. torch passes all to
    one call, and MKL's kernels for AVX2, which AMD's processors get too, sum one product in another order
    than several.

    Args:
        A: the left factors.
        B: the right factors.
        out: tensor for the products.
    """
    if A.shape[2] == 1:  # nothing is added up, at which numpy is slow
        return partial(torch.mul, A, B, out=out)
    if A.is_cpu:
        return partial(np.matmul, A.numpy(), B.numpy(), out=out.numpy())
    return partial(torch.bmm, A, B, out=out)


class Vectors:
    """Named stacks that lie one after another in one vector, so that an optimizer updates all at once.

    Args:
        like: a network's tensors by name.
        turned: name of a matrix to store by columns, which makes the inputs' products faster.
    """

    def __init__(self, like: Mapping[str, Tensor], turned: str = "") -> None:
        self.like, self.turned = like, turned
        self.size = sum(gapped(part.shape) for part in like.values())

    def made(self, count: int, values: Callable[[str], Tensor | None]) -> Tensor:
        """Return a vector of networks' numbers.

        Args:
            count: how many networks.
            values: their stacks by name; ``None`` for zeros.
        """
        like = next(iter(self.like.values()), torch.empty(0))
        numbers = like.new_zeros(count * self.size)
        for name, part in self.views(numbers, count).items():
            if (given := values(name)) is not None:
                part.copy_(given)
        return numbers

    def views(self, numbers: Tensor, count: int) -> dict[str, Tensor]:
        """Return the stacks by name, ``(networks, …)`` each, in a vector of ``count`` networks."""
        found, start = {}, 0
        for name, like in self.like.items():
            step = gapped(like.shape)
            strides = (step, 1, len(like)) if name == self.turned else (step, *like.shape[1:], 1)
            found[name] = numbers.as_strided((count, *like.shape), strides, start)
            start += count * step
        return found

    def only(self, places: Sequence[int], numbers: Tensor, count: int) -> Tensor:
        """Return the vector of some networks; a scalar stays as it is.

        Args:
            places: of these networks.
            numbers: the vector of all.
            count: how many are there.
        """
        if not numbers.ndim:
            return numbers
        parts = self.views(numbers, count)
        return self.made(len(places), lambda name: parts[name][list(places)])


class _Dense:
    def __init__(self, layer: Dense, parts: Mapping[str, Tensor], given: Tensor) -> None:
        self.layer, self.given, self.weights = layer, given, parts[layer.weight]
        self.out = room(given, len(given), self.weights.shape[1], given.shape[2])
        self.bias = parts[layer.bias].unsqueeze(2) if layer.bias else None
        self.multiply = product(self.weights, given, self.out)

    def forward(self) -> None:
        self.multiply()
        if self.bias is not None:
            self.out.add_(self.bias)

    def link(self, slope: Tensor, slopes: Mapping[str, Tensor], first: bool) -> Tensor:
        self.slope, self.slope_of_bias = slope, slopes[self.layer.bias] if self.layer.bias else None
        self.products = [
            product(slope, self.given.transpose(1, 2), slopes[self.layer.weight]),
        ]
        if first:
            return slope
        before = room(slope, *self.given.shape)
        self.products.append(product(self.weights.transpose(1, 2), slope, before))
        return before

    def backward(self) -> None:
        if self.slope_of_bias is not None:
            torch.sum(self.slope, 2, out=self.slope_of_bias)
        for multiply in self.products:
            multiply()


class _Bend:
    def __init__(self, layer: Bend, given: Tensor) -> None:
        self.out = given  # in place: no layer before it needs what it gave
        self.bend, self.bent = ACTIVATIONS[layer.kind]

    def forward(self) -> None:
        self.bend(self.out)

    def link(self, slope: Tensor, slopes: Mapping[str, Tensor], first: bool) -> Tensor:
        self.slope = slope
        return slope

    def backward(self) -> None:
        self.bent(self.slope, self.out)


class _Drop:
    """Multiplies by ``mask``, ``(networks, width, rows)``, of this step."""

    mask: Tensor

    def __init__(self, given: Tensor) -> None:
        self.given, self.out = given, room(given, *given.shape)

    def forward(self) -> None:
        torch.mul(self.given, self.mask, out=self.out)

    def link(self, slope: Tensor, slopes: Mapping[str, Tensor], first: bool) -> Tensor:
        self.slope = slope
        return slope

    def backward(self) -> None:
        self.slope.mul_(self.mask)


class _Norm:
    """Batch norm by the rows of this step: ``even`` is 1/n for each of n rows, 0 for those that fill up."""

    even: Tensor

    def __init__(self, layer: Norm, parts: Mapping[str, Tensor], given: Tensor) -> None:
        self.layer, self.given = layer, given
        self.hat, self.out, self.work = (room(given, *given.shape) for _ in range(3))
        self.mean, self.inverse, self.sum = (
            room(given, *given.shape[:2]).unsqueeze(2) for _ in range(3)
        )
        self.running = parts[layer.mean].unsqueeze(2), parts[layer.variance].unsqueeze(2)
        self.weight = parts[layer.weight].unsqueeze(2) if layer.weight else None
        self.bias = parts[layer.bias].unsqueeze(2) if layer.bias else None

    def _total(self, of: Tensor, times: Tensor, out: Tensor) -> Tensor:
        torch.mul(of, times, out=self.work)
        return torch.sum(self.work, 2, keepdim=True, out=out)

    def forward(self) -> None:
        momentum = self.layer.momentum
        torch.sub(self.given, self._total(self.given, self.even, self.mean), out=self.hat)
        variance = self._total(self.hat.square(), self.even, self.inverse)
        share = self.even.amax(2, keepdim=True)  # n/(n − 1) = 1/(1 − 1/n)
        for kept, now in zip(self.running, (self.mean, variance / (1 - share)), strict=True):
            kept.mul_(1 - momentum).add_(now, alpha=momentum)
        self.hat.mul_(variance.add_(self.layer.eps).rsqrt_())
        self._scaled()

    def remembered(self) -> None:
        """Compute outputs from the running statistics, for predictions."""
        mean, variance = self.running
        torch.sub(self.given, mean, out=self.hat)
        self.hat.mul_((variance + self.layer.eps).rsqrt_())
        self._scaled()

    def _scaled(self) -> None:
        self.out.copy_(self.hat)
        if self.weight is not None:
            self.out.mul_(self.weight)
        if self.bias is not None:
            self.out.add_(self.bias)

    def link(self, slope: Tensor, slopes: Mapping[str, Tensor], first: bool) -> Tensor:
        self.slope = slope
        self.slope_of_weight = slopes[self.layer.weight].unsqueeze(2) if self.layer.weight else None
        self.slope_of_bias = slopes[self.layer.bias].unsqueeze(2) if self.layer.bias else None
        return slope

    def backward(self) -> None:
        along = self._total(self.slope, self.hat, self.sum)
        if self.slope_of_weight is not None:
            self.slope_of_weight.copy_(along)
        across = torch.sum(self.slope, 2, keepdim=True, out=self.mean)
        if self.slope_of_bias is not None:
            self.slope_of_bias.copy_(across)
        torch.mul(self.hat, along, out=self.work).add_(across).mul_(self.even)
        self.slope.sub_(self.work).mul_(self.inverse)
        if self.weight is not None:
            self.slope.mul_(self.weight)


class Forward:
    """Outputs of stacked networks for the rows in ``inputs``.

    Args:
        layers: of each network.
        parts: their parameters and running batch-norm statistics, stacked.
        rows: number of rows of each network.
        width: numbers of a row.
        training: apply dropout, and normalise by the statistics of the current rows.

    Attributes:
        inputs: shape ``(networks, rows, width)``.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        parts: Mapping[str, Tensor],
        rows: int,
        width: int,
        *,
        training: bool = False,
    ) -> None:
        like = next(iter(parts.values()))
        length = width + -width % LINE
        self._rows = like.new_empty(len(like) * rows, length)[:, :width]
        self.inputs = self._rows.view(len(like), rows, width)
        self.outputs = self.inputs.transpose(1, 2)
        self.stages: list[_Dense | _Bend | _Drop | _Norm] = []
        self._steps: list[Callable[[], None]] = []
        for layer in layers:
            stage: _Dense | _Bend | _Drop | _Norm
            if isinstance(layer, Dense):
                stage = _Dense(layer, parts, self.outputs)
            elif isinstance(layer, Bend):
                stage = _Bend(layer, self.outputs)
            elif isinstance(layer, Norm):
                stage = _Norm(layer, parts, self.outputs)
            elif training:
                stage = _Drop(self.outputs)
            else:
                continue
            remembers = isinstance(stage, _Norm) and not training
            self._steps.append(stage.remembered if remembers else stage.forward)  # type: ignore[union-attr]
            self.stages.append(stage)
            self.outputs = stage.out

    def take(self, X: Tensor, rows: Tensor) -> None:
        """Write rows of ``X`` to ``inputs``, the first network's first."""
        torch.index_select(X, 0, rows, out=self._rows)

    def __call__(self) -> Tensor:
        """The outputs, ``(networks, n_outputs, rows)``; written over by the next call."""
        for step in self._steps:
            step()
        return self.outputs


class Step:
    """Gradients of a step's mean losses, written out.

    Args:
        layers: the networks'.
        parts: their parameters and what batch norm keeps, stacked.
        slopes: memory for the gradients of parameters.
        rows: of a batch.
        width: numbers of a row.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        parts: Mapping[str, Tensor],
        slopes: Mapping[str, Tensor],
        rows: int,
        width: int,
    ) -> None:
        self.outputs = Forward(layers, parts, rows, width, training=True)
        stages = self.outputs.stages
        self._norms = [stage for stage in stages if isinstance(stage, _Norm)]
        self._drops = [stage for stage in stages if isinstance(stage, _Drop)]
        has = [place for place, stage in enumerate(stages) if isinstance(stage, _Dense | _Norm)]
        last = self.outputs.outputs
        self._last = slope = room(last, *last.shape)
        self._back = []
        for place in range(len(stages) - 1, has[0] - 1, -1):
            slope = stages[place].link(slope, slopes, place == has[0])
            self._back.append(stages[place].backward)

    def __call__(
        self, loss: TorchLoss, aims: Tensor, share: Tensor, even: Tensor, masks: Tensor
    ) -> None:
        """Compute the gradients for the rows that ``outputs`` has taken.

        Args:
            loss: of outputs for targets.
            aims: the targets, ``(networks, n_outputs, rows)``.
            share: the weight of each row in its mean, ``(networks, 1, rows)``.
            even: as ``share``, as if all rows weighed the same.
            masks: what dropout multiplies by, ``(networks, …)``, layer after layer, column after column.
        """
        for norm in self._norms:
            norm.even = even
        start = 0
        for drop in self._drops:
            end = start + drop.out[0].numel()
            drop.mask, start = masks[:, start:end].view(drop.out.shape), end
        torch.mul(loss.slopes(self.outputs(), aims), share, out=self._last)
        for back in self._back:
            back()

"""Multilayer perceptrons that train as one, each to the bits that it would reach alone.

Party i's parameters are slice i of stacked tensors, so that an operation does a step's share of work for all
of them; on small networks the operations' own cost is most of what training takes. Gradients are written
out, not recorded, for the same reason.

What is computed for a network does not depend on who trains beside it. A batch always has as many rows as the
network's own number of rows and batch size say, filled up with rows that count for nothing. A slice begins on
a cache line and ends before a gap, so that operations go through one slice after another, in one thread, each
from a place like any other to its end; and BLAS is asked for one product after another, all of the same shape
and strides (:func:`_product`). So on a CPU it is enough that an operation gives the same bits for the same
numbers in memory that is aligned alike, whatever its kernel. On a GPU results agree up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.torch.batched.perceptron import ACTIVATIONS, Layer, rows_of_a_batch
from consilience.learners.torch.batched.steps import PREDICT_ROWS, Job, clip, ends_of_steps, pooled
from consilience.learners.torch.losses import TorchLoss
from consilience.learners.torch.optimizer import TorchOptimizer
from consilience.numerics.randomness import Threads
from consilience.validation.arrays import Array

_LINE = 32
"""Numbers that slices begin at multiples of: a cache line's, and as many as elementwise functions take at a
time at most; what is left over is rounded in another way."""

_BLOCK = 128
"""Steps whose rows are laid out at a time."""


def outputs_of(
    modules: Sequence[nn.Module], layers: Sequence[Layer], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Compute the outputs of networks of one architecture, each for inputs of its own.

    Args:
        modules: the networks.
        layers: of each.
        inputs: one tensor ``(n, …)`` a network, of the same shape.

    Returns:
        One tensor ``(n, n_outputs)`` a network.
    """
    named = [dict(module.named_parameters()) for module in modules]
    found = []
    with _computing():
        parts = {}
        for name, part in named[0].items():
            parts[name] = _room(part, len(named), *part.shape)
            torch.stack([own[name] for own in named], out=parts[name])
        for pieces in zip(*(torch.split(X.flatten(1), PREDICT_ROWS) for X in inputs), strict=True):
            forward = _Forward(layers, parts, *pieces[0].shape)
            torch.stack(pieces, out=forward.inputs)
            found.append(forward().transpose(1, 2))
        return list(torch.cat(found, dim=1))


@contextmanager
def _computing() -> Iterator[None]:
    """Without gradients, and in one thread: with more, torch's sums go by how many networks there are.

    Numbers that grow beyond all bounds are no matter for numpy's warnings: a learner says so of its own.
    """
    with torch.inference_mode(), np.errstate(over="ignore", invalid="ignore"):
        if torch.get_num_threads() == 1:  # as in a federation, where all libraries have one
            yield
            return
        with _one_thread().limited():
            yield


@lru_cache
def _one_thread() -> Threads:
    return Threads(1)


def _room(like: Tensor, count: int, *shape: int) -> Tensor:
    """Empty memory for a stack of so many tensors of a shape, of the type of ``like`` and where it is."""
    return like.new_empty_strided((count, *shape), _strides(shape))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a stack of vectors or matrices, with a gap after each."""
    return ((math.prod(shape) // _LINE + 1) * _LINE, *shape[1:], 1)


def _product(A: Tensor, B: Tensor, out: Tensor) -> Callable[[], object]:
    """Return a function that multiplies two stacks of matrices into a third, as they are when it is called.

    On a CPU by numpy, which asks BLAS for one after another. torch asks for all at once, and MKL's kernels
    for AVX2, which AMD's processors get too, take other sums for one product than for several.
    """
    if A.shape[2] == 1:  # nothing is added up, at which numpy is slow
        return partial(torch.mul, A, B, out=out)
    if A.is_cpu:
        return partial(np.matmul, A.numpy(), B.numpy(), out=out.numpy())
    return partial(torch.bmm, A, B, out=out)


class _Forward:
    """Forward pass of stacked networks for rows that are written to ``inputs``.

    Args:
        layers: of each network.
        parts: their parameters, stacked.
        rows: number of rows of each network.
        width: numbers of a row.

    Attributes:
        inputs: shape ``(networks, rows, width)``.
        maps: inputs of every layer, and at last the outputs, ``(networks, …, rows)`` each.
    """

    def __init__(
        self, layers: Sequence[Layer], parts: Mapping[str, Tensor], rows: int, width: int
    ) -> None:
        like = parts[layers[0].weight]
        length = width + -width % _LINE
        self._rows = like.new_empty(len(like) * rows, length)[:, :width]
        self.inputs = self._rows.view(len(like), rows, width)
        self.maps = [self.inputs.transpose(1, 2)]
        self._steps = []
        for layer in layers:
            W = parts[layer.weight]
            h = _room(like, len(W), W.shape[1], rows)
            multiply = _product(W, self.maps[-1], h)
            bias = parts[layer.bias].unsqueeze(2) if layer.bias else None
            self._steps.append((multiply, bias, layer.activation, h))
            self.maps.append(h)

    def take(self, X: Tensor, rows: Tensor) -> None:
        """Write rows of ``X`` to ``inputs``, the first network's first."""
        torch.index_select(X, 0, rows, out=self._rows)

    def __call__(self) -> Tensor:
        """The outputs, ``(networks, n_outputs, rows)``; written over by the next call."""
        for multiply, bias, activation, h in self._steps:
            multiply()
            if bias is not None:
                h.add_(bias)
            if activation is not None:
                ACTIVATIONS[activation][0](h)
        return self.maps[-1]


class Stack:
    """Trainings of networks of one architecture, side by side.

    Args:
        jobs: with the same layers, recipe, loss and number of rows in a batch.
        layers: of each.
    """

    @torch.inference_mode()
    def __init__(self, jobs: Sequence[Job], layers: Sequence[Layer]) -> None:
        size = jobs[0].recipe.batch_size
        self.width = rows_of_a_batch(len(jobs[0].targets), size)
        self.steps = [job.epochs * len(ends_of_steps(len(job.targets), size)) for job in jobs]
        # Whoever makes most steps comes first: those who are still at it are always the first few.
        order = sorted(range(len(jobs)), key=lambda i: -self.steps[i])
        self.jobs = [jobs[i] for i in order]
        self.left = [self.steps[i] for i in order]
        self.orders = [_Orders(job, self.width) for job in self.jobs]
        X, starts = pooled(self.jobs)
        self.X, self.targets = X.flatten(1), torch.cat([job.targets for job in self.jobs])
        own = np.cumsum([0, *(len(job.targets) for job in self.jobs[:-1])])
        self.starts, self.target_starts = starts[:, None], own[:, None]
        named = [dict(job.module.named_parameters()) for job in self.jobs]
        self.own = {name: [parts[name].detach() for parts in named] for name in named[0]}
        self.layers = layers

    def trained(self) -> list[int]:
        """Train all of them: their numbers of steps, in the order they were given."""
        with _computing():
            self._train()
        return self.steps

    def _train(self) -> None:
        count, recipe = len(self.jobs), self.jobs[0].recipe
        correction = self.jobs[0].correction
        numbers = self._numbers(count, lambda name: torch.stack(self.own[name]))
        terms, state = dict[str, Tensor](), dict[str, Tensor]()
        if correction.strength:
            terms["anchor"] = numbers.clone()
        if correction.offset:
            terms["offset"] = self._numbers(count, self._offsets)
        while any(self.left):
            gradient = numbers.grad = torch.zeros_like(numbers)
            optimizer = TorchOptimizer(recipe, [numbers])
            optimizer.state[numbers] = state
            parts, slopes = self._parts(numbers, count), self._parts(gradient, count)
            step = _Step(self.layers, parts, slopes, self.width, self.X.shape[1])
            for rows, targets, share in self._batches(count, self.left[count - 1]):
                step.outputs.take(self.X, rows)
                aims = self.targets.index_select(0, targets).view(count, self.width, -1)
                step(self.jobs[0].loss, aims.transpose(1, 2), share)
                self._correct(slopes, gradient, numbers, terms)
                optimizer.step()
            left = sum(steps > 0 for steps in self.left)
            for name, values in parts.items():
                torch._foreach_copy_(self.own[name][left:count], values[left:].unbind())
            terms, state = (
                {name: self._shortened(left, values, count) for name, values in kept.items()}
                for kept in (terms, optimizer.state[numbers])
            )
            numbers, count = self._shortened(left, numbers, count), left

    def _batches(self, count: int, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Steps of the first ``count`` networks: rows in inputs and targets, and the weight of each row."""
        self.left = [left - steps for left in self.left[:count]] + self.left[count:]
        for start in range(0, steps, _BLOCK):
            drawn = [orders.next(min(_BLOCK, steps - start)) for orders in self.orders[:count]]
            rows = np.stack([rows for rows, _ in drawn], axis=1)
            both = [
                torch.from_numpy((rows + starts[:count]).reshape(len(rows), -1)).to(self.X.device)
                for starts in (self.starts, self.target_starts)
            ]
            share = torch.from_numpy(np.stack([share for _, share in drawn], axis=1))
            yield from zip(*both, share.to(self.targets).unsqueeze(2), strict=True)

    # Parameters of all lie one after another in one vector, so that an optimizer moves them at once.

    def _numbers(self, count: int, values: Callable[[str], Tensor | None]) -> Tensor:
        """A vector of the first ``count`` networks' parameters, from ``values`` by name, else zeros."""
        size = sum(_strides(parts[0].shape)[0] for parts in self.own.values())
        numbers = self.own[self.layers[0].weight][0].new_zeros(count * size)
        for name, part in self._parts(numbers, count).items():
            if (given := values(name)) is not None:
                part.copy_(given)
        return numbers

    def _parts(self, numbers: Tensor, count: int) -> dict[str, Tensor]:
        """Views of the parameters in such a vector of ``count`` networks, each ``(networks, …)``."""
        found, start = {}, 0
        for name, parts in self.own.items():
            strides = _strides(parts[0].shape)
            found[name] = numbers.as_strided((count, *parts[0].shape), strides, start)
            start += count * strides[0]
        return found

    def _shortened(self, count: int, numbers: Tensor, held: int) -> Tensor:
        """The part of a vector of ``held`` networks for the first ``count``; a scalar stays as it is."""
        if not numbers.ndim:
            return numbers
        parts = self._parts(numbers, held)
        return self._numbers(count, lambda name: parts[name][:count])

    def _offsets(self, name: str) -> Tensor | None:
        given = [(job.correction.offset or {}).get(name) for job in self.jobs]
        if given[0] is None:
            return None
        return torch.stack([torch.from_numpy(np.array(values)) for values in given])

    def _correct(
        self,
        slopes: Mapping[str, Tensor],
        gradient: Tensor,
        numbers: Tensor,
        terms: Mapping[str, Tensor],
    ) -> None:
        """Clip and correct the gradients of each network."""
        recipe, correction = self.jobs[0].recipe, self.jobs[0].correction
        if recipe.gradient_clip is not None:
            clip(list(slopes.values()), recipe.gradient_clip)
        if "offset" in terms:
            gradient.add_(terms["offset"])
        if "anchor" in terms:
            gradient.add_(numbers - terms["anchor"], alpha=correction.strength)


class _Step:
    """Gradients of a step's mean losses, written out.

    Args:
        layers: the networks'.
        parts: their parameters, stacked.
        slopes: memory for the gradients of these.
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
        self.outputs = _Forward(layers, parts, rows, width)
        maps = self.outputs.maps
        self._last = slope = _room(maps[-1], len(maps[-1]), *maps[-1].shape[1:])
        self._back = []
        for layer, given, h in zip(layers[::-1], maps[-2::-1], maps[:0:-1], strict=True):
            bent = None if layer.activation is None else ACTIVATIONS[layer.activation][1]
            bias = slopes[layer.bias] if layer.bias else None
            products = [_product(slope, given.transpose(1, 2), slopes[layer.weight])]
            self._back.append((bent, slope, h, bias, products))
            if given is not maps[0]:
                before = _room(given, len(given), *given.shape[1:])
                products.append(_product(parts[layer.weight].transpose(1, 2), slope, before))
                slope = before

    def __call__(self, loss: TorchLoss, aims: Tensor, share: Tensor) -> None:
        """Compute the gradients for the rows that ``outputs`` has taken.

        Args:
            loss: of outputs for targets.
            aims: the targets, ``(networks, n_outputs, rows)``.
            share: the weight of each row in its mean, ``(networks, 1, rows)``.
        """
        torch.mul(loss.slopes(self.outputs(), aims), share, out=self._last)
        for bent, slope, h, bias, products in self._back:
            if bent is not None:
                bent(slope, h)
            if bias is not None:
                torch.sum(slope, 2, out=bias)
            for multiply in products:
                multiply()


class _Orders:
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

    def next(self, steps: int) -> tuple[Array, Array]:
        """Rows of the next steps, and the weight of each in its batch's mean, ``(steps, width)`` both."""
        drawn, there = [self.waiting], len(self.waiting)
        while there < steps:
            drawn.append(self.job.rng.permutation(len(self.job.targets))[self.plan])
            there += len(self.plan)
        rows = np.concatenate(drawn)
        rows, self.waiting = rows[:steps], rows[steps:]
        share = self.counts[np.arange(self.made, self.made + steps) % len(self.plan)]
        self.made += steps
        return rows, share if self.weights is None else share * self.weights[rows]


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

"""Multilayer perceptrons that train as one, each to the bits that it would reach alone.

Party i's parameters are slice i of stacked tensors, so that an operation does a step's share of work for all
of them; on small networks the operations' own cost is most of what training takes. Gradients are written
out, not recorded, for the same reason.

What is computed for a network has the same shapes whoever trains beside it: a batch always has as many rows
as the network's own number of rows and batch size say, filled up with rows that count for nothing. Products
of stacks go slice by slice and everything else by elements or rows, in one thread, so on a CPU the others
change no bit. A single matrix is multiplied in another way than several where one of its sides is 1, so
batches have two rows at least, and networks with a layer of one input are not among these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.base import Array
from consilience.learners.torch_architecture import Architecture
from consilience.learners.torch_optimizer import TorchOptimizer
from consilience.learners.torch_steps import PREDICT_ROWS, Job, clip, ends_of_steps, pooled

_ACTIVATIONS: Mapping[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]] = {
    nn.ReLU: (torch.relu_, lambda g, h: torch.ops.aten.threshold_backward(g, h, 0)),
    nn.Tanh: (torch.tanh_, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid_, torch.ops.aten.sigmoid_backward),
}
"""Activations: what they do in place; the gradient at their inputs from that at their outputs and these."""

_FLAT = nn.Flatten().extra_repr()

_VECTOR = 32
"""Numbers that elementwise functions take at a time at most; what is left over is rounded in another way."""

_FILLING = 2**20
"""Products of parameters and rows that take as long as a step's gradients take to be recorded."""

_BLOCK = 128
"""Steps whose rows are laid out at a time."""


@dataclass(frozen=True)
class Layer:
    """A fully connected layer and the activation that follows.

    Attributes:
        weight: its name among the module's parameters.
        bias: likewise, or ``None``.
        numbers: how many these are together.
        activation: a key of the table above, or ``None``.
    """

    weight: str
    bias: str | None
    numbers: int
    activation: type[nn.Module] | None


@lru_cache
def layers_of(network: Architecture, shape: tuple[int, ...], rows: int) -> tuple[Layer, ...] | None:
    """The layers of a network that is nothing but fully connected ones, all of them trained.

    ``None`` for others, and where a batch does not fill the vectors that an activation takes at a time.

    Args:
        network: its architecture.
        shape: of an input.
        rows: of a batch.
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
            if weight is None or not weight.trained or width != weight.shape[1] or width < 2:
                return None
            if bias is not None and not bias.trained:
                return None
            width = weight.shape[0]
            numbers = math.prod(weight.shape) + (0 if bias is None else width)
            layers.append(Layer(weight.name, None if bias is None else bias.name, numbers, None))
        elif part.kind in _ACTIVATIONS and layers and layers[-1].activation is None:
            if part.kind is not nn.ReLU and rows * width % _VECTOR:
                return None
            layers[-1] = replace(layers[-1], activation=part.kind)
        else:
            return None
    return tuple(layers) if layers and flat else None


def worth_it(layers: Sequence[Layer], rows: int, size: int) -> bool:
    """Whether rows that fill up batches cost less than recording gradients would."""
    steps = len(ends_of_steps(rows, size))
    filling = steps * rows_of_a_batch(rows, size) - rows
    return numbers_of(layers) * filling <= _FILLING * steps


def numbers_of(layers: Sequence[Layer]) -> int:
    """How many parameters a network has."""
    return sum(layer.numbers for layer in layers)


def rows_of_a_batch(rows: int, size: int) -> int:
    """How many rows every batch is filled up to, for so many rows and a batch size."""
    if rows < size:
        return max(2, min(size, 1 << (rows - 1).bit_length()))
    return max(2, size + (1 < size < rows))  # a last batch of one row joins the one before


def outputs_of(
    modules: Sequence[nn.Module], layers: Sequence[Layer], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """What each of these networks says of its inputs ``(n, …)``, the same n for all: ``(n, n_outputs)``."""
    named = [dict(module.named_parameters()) for module in modules]
    found = []
    with torch.inference_mode(), one_thread():
        stacked = {name: torch.stack([parts[name] for parts in named]) for name in named[0]}
        for pieces in zip(*(torch.split(X.flatten(1), PREDICT_ROWS) for X in inputs), strict=True):
            rows = torch.stack(pieces)
            h = (rows if rows.shape[1] > 1 else rows.repeat(1, 2, 1)).transpose(1, 2)
            for layer in layers:
                bias = stacked[layer.bias] if layer.bias else None
                h = _product(stacked[layer.weight], h, bias)
                if layer.activation is not None:
                    h = _ACTIVATIONS[layer.activation][0](h)
            found.append(h[:, :, : rows.shape[1]].transpose(1, 2))
        return list(torch.cat(found, dim=1))


@contextmanager
def one_thread() -> Iterator[None]:
    """torch's operations in one thread: with more, sums go by how many networks there are."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _product(W: Tensor, h: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(W, h) if bias is None else torch.baddbmm(bias.unsqueeze(2), W, h)


class Stack:
    """Trainings of networks of one architecture, side by side.

    Args:
        jobs: with the same layers, recipe, loss and number of rows in a batch.
        layers: theirs.
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
        with torch.inference_mode(), one_thread():
            self._train()
        return self.steps

    def _train(self) -> None:
        count, recipe, pull = len(self.jobs), self.jobs[0].recipe, self.jobs[0].pull
        numbers = self._numbers(count, lambda name: torch.stack(self.own[name]))
        pulls, state = dict[str, Tensor](), dict[str, Tensor]()
        if pull.strength:
            pulls["anchor"] = numbers.clone()
        if pull.correction:
            pulls["correction"] = self._numbers(count, self._corrections)
        while any(self.left):
            gradient = numbers.grad = torch.zeros_like(numbers)
            optimizer = TorchOptimizer(recipe, [numbers])
            optimizer.state[numbers] = state
            parts, slopes = self._parts(numbers, count), self._parts(gradient, count)
            for batch in self._batches(count, self.left[count - 1]):
                self._gradients(batch, parts, slopes)
                self._change(slopes, gradient, numbers, pulls)
                optimizer.step()
            left = sum(steps > 0 for steps in self.left)
            for name, values in parts.items():
                torch._foreach_copy_(self.own[name][left:count], values[left:].unbind())
            pulls, state = (
                {name: self._first(left, values, count) for name, values in kept.items()}
                for kept in (pulls, optimizer.state[numbers])
            )
            numbers, count = self._first(left, numbers, count), left

    def _batches(self, count: int, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The next steps of the first few: their rows in inputs and targets, and what each counts."""
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

    # A parameter of all networks is a contiguous piece of one vector, its end filled up: optimizers round
    # what is left of a vector register differently.

    def _numbers(self, count: int, values: Callable[[str], Tensor | None]) -> Tensor:
        """A vector of the first few networks' parameters, from what is stacked of each; zeros without."""
        size = count * sum(parts[0].numel() for parts in self.own.values())
        numbers = self.own[self.layers[0].weight][0].new_zeros(size + -size % _VECTOR)
        for name, part in self._parts(numbers, count).items():
            if (given := values(name)) is not None:
                part.copy_(given)
        return numbers

    def _parts(self, numbers: Tensor, count: int) -> dict[str, Tensor]:
        """The parameters in such a vector of so many networks, each ``(networks, …)``."""
        shapes = [parts[0].shape for parts in self.own.values()]
        sizes = [count * shape.numel() for shape in shapes]
        pieces = torch.split(numbers, [*sizes, len(numbers) - sum(sizes)])
        return {
            name: piece.view(count, *shape)
            for name, piece, shape in zip(self.own, pieces, shapes, strict=False)
        }

    def _first(self, count: int, numbers: Tensor, held: int) -> Tensor:
        """The vector of the first few of those in one; a single number, which is everybody's, as it is."""
        if not numbers.ndim:
            return numbers
        parts = self._parts(numbers, held)
        return self._numbers(count, lambda name: parts[name][:count])

    def _corrections(self, name: str) -> Tensor | None:
        given = [(job.pull.correction or {}).get(name) for job in self.jobs]
        if given[0] is None:
            return None
        return torch.stack([torch.from_numpy(np.array(values)) for values in given])

    def _gradients(
        self,
        batch: tuple[Tensor, Tensor, Tensor],
        parts: Mapping[str, Tensor],
        slopes: Mapping[str, Tensor],
    ) -> None:
        """That of a step's mean losses, into ``slopes``. The last axis in passing is that of rows."""
        rows, targets, share = batch
        count = len(share)
        h = self.X.index_select(0, rows).view(count, self.width, -1).transpose(1, 2)
        inputs = []
        for layer in self.layers:
            inputs.append(h)
            h = _product(parts[layer.weight], h, parts[layer.bias] if layer.bias else None)
            if layer.activation is not None:
                h = _ACTIVATIONS[layer.activation][0](h)
        aims = self.targets.index_select(0, targets).view(count, self.width, -1).transpose(1, 2)
        slope = self.jobs[0].loss.slopes(h, aims).mul_(share)
        for layer in reversed(self.layers):
            if layer.activation is not None:
                slope = _ACTIVATIONS[layer.activation][1](slope, h)
            h = inputs.pop()
            torch.bmm(slope, h.transpose(1, 2), out=slopes[layer.weight])
            if layer.bias:
                torch.sum(slope, 2, out=slopes[layer.bias])
            if inputs:
                slope = torch.bmm(parts[layer.weight].transpose(1, 2), slope)

    def _change(
        self,
        slopes: Mapping[str, Tensor],
        gradient: Tensor,
        numbers: Tensor,
        pulls: Mapping[str, Tensor],
    ) -> None:
        """Gradients clipped and pulled, each network's for itself."""
        recipe, pull = self.jobs[0].recipe, self.jobs[0].pull
        if recipe.gradient_clip is not None:
            clip(list(slopes.values()), recipe.gradient_clip)
        if "correction" in pulls:
            gradient.add_(pulls["correction"])
        if "anchor" in pulls:
            gradient.add_(numbers - pulls["anchor"], alpha=pull.strength)


class _Orders:
    """The order in which a training goes through its rows, an epoch drawn when it is needed.

    Args:
        job: whose.
        width: rows of a batch.
    """

    def __init__(self, job: Job, width: int) -> None:
        self.job, self.made = job, 0
        self.plan, self.counts = _plan(len(job.targets), job.recipe.batch_size, width)
        self.waiting = np.zeros((0, width), dtype=np.int64)
        self.weights = None if job.weights is None else job.weights.cpu().numpy()

    def next(self, steps: int) -> tuple[Array, Array]:
        """Rows of the next so many steps, and what each counts in its mean, ``(steps, width)`` both."""
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
    """Places in an epoch's order for its steps, and what each counts in its mean, ``(steps, width)`` both.

    Where there are no more rows, it is the first one, which counts nothing.
    """
    ends = ends_of_steps(rows, size)
    plan, counts = np.zeros((len(ends), width), dtype=np.int64), np.zeros((len(ends), width))
    for step, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        plan[step, : end - start] = np.arange(start, end)
        counts[step, : end - start] = 1 / (end - start)
    plan.flags.writeable = counts.flags.writeable = False
    return plan, counts

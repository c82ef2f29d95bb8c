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

import numpy as np
import torch
from torch import Tensor, nn

from consilience.learners.base import Array
from consilience.learners.torch_optimizer import TorchOptimizer
from consilience.learners.torch_steps import PREDICT_ROWS, Job, clip, pooled

_ACTIVATIONS: Mapping[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]] = {
    nn.ReLU: (torch.relu, lambda g, h: torch.ops.aten.threshold_backward(g, h, 0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
}
"""Activations: what they do, and the gradient at their inputs from that at their outputs and these."""

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


def layers_of(module: nn.Module, shape: tuple[int, ...], rows: int) -> tuple[Layer, ...] | None:
    """The layers of a network that is nothing but fully connected ones, all of them trained.

    ``None`` for others, and where a batch does not fill the vectors that an activation takes at a time.

    Args:
        module: of layers which do what their kind says.
        shape: of an input.
        rows: of a batch.
    """
    layers: list[Layer] = []
    width, flat = math.prod(shape), len(shape) == 1
    for name, part in module.named_modules(remove_duplicate=False):
        if type(part) in (nn.Sequential, nn.Identity):
            continue
        if type(part) is nn.Flatten and not layers and (part.start_dim, part.end_dim) == (1, -1):
            flat = True
            continue
        if type(part) is nn.Linear:
            bias: nn.Parameter | None = part.bias
            if width != part.in_features or width < 2 or not part.weight.requires_grad:
                return None
            if bias is not None and not bias.requires_grad:
                return None
            at, numbers = (
                (None, 0) if bias is None else (f"{name}.bias".lstrip("."), part.out_features)
            )
            numbers += width * part.out_features
            layers.append(Layer(f"{name}.weight".lstrip("."), at, numbers, None))
            width = part.out_features
        elif type(part) in _ACTIVATIONS and layers and layers[-1].activation is None:
            if type(part) is not nn.ReLU and rows * width % _VECTOR:
                return None
            layers[-1] = replace(layers[-1], activation=type(part))
        else:
            return None
    return tuple(layers) if layers and flat else None


def worth_it(layers: Sequence[Layer], rows: int, size: int) -> bool:
    """Whether rows that fill up batches cost less than recording gradients would."""
    plan = _plan(rows, size, rows_of_a_batch(rows, size))
    return numbers_of(layers) * (plan.size - rows) <= _FILLING * len(plan)


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
        plans = [_plan(len(job.targets), size, self.width) for job in jobs]
        self.steps = [job.epochs * len(plan) for job, plan in zip(jobs, plans, strict=True)]
        # Whoever makes most steps comes first: those who are still at it are always the first few.
        order = sorted(range(len(jobs)), key=lambda i: -self.steps[i])
        self.jobs = [jobs[i] for i in order]
        self.left = [self.steps[i] for i in order]
        self.orders = [
            _Orders(job, plans[i], self.width) for i, job in zip(order, self.jobs, strict=True)
        ]
        X, starts = pooled(self.jobs)
        self.X, self.targets = X.flatten(1), torch.cat([job.targets for job in self.jobs])
        own = np.cumsum([0, *(len(job.targets) for job in self.jobs[:-1])])
        self.starts, self.target_starts = starts[:, None], own[:, None]
        named = [dict(job.module.named_parameters()) for job in self.jobs]
        self.own = [[parts[name] for parts in named] for name in named[0]]
        # A row for each network, its end filled up: optimizers round what is left of a vector differently.
        rows = torch.stack([nn.utils.parameters_to_vector(parts.values()) for parts in named])
        self.filling = rows.new_zeros(len(rows), -rows.shape[1] % _VECTOR)
        self.numbers = torch.cat([rows, self.filling], dim=1)
        self.gradient = torch.empty_like(self.numbers)
        at = {name: place for place, name in enumerate(named[0])}
        self.layers = [
            (at[layer.weight], None if layer.bias is None else at[layer.bias], layer.activation)
            for layer in layers
        ]
        self.correction = torch.zeros_like(self.numbers)
        places = self._parts(self.correction)
        for i, job in enumerate(self.jobs):
            for name, values in (job.pull.correction or {}).items():
                places[at[name]][i] = torch.from_numpy(np.array(values))

    def trained(self) -> list[int]:
        """Train all of them: their numbers of steps, in the order they were given."""
        with torch.inference_mode(), one_thread():
            self._train()
        return self.steps

    def _train(self) -> None:
        anchor = self.numbers.clone()
        state: dict[str, Tensor] = {}
        while count := sum(left > 0 for left in self.left):
            numbers, gradient = self.numbers[:count], self.gradient[:count]
            numbers.grad = gradient
            optimizer = TorchOptimizer(self.jobs[0].recipe, [numbers])
            # Its state goes on where it was: what it keeps of each number stays at its place.
            optimizer.state[numbers] = {
                name: value[:count] if value.ndim else value for name, value in state.items()
            }
            parts = self._parts(numbers)
            for batch in self._batches(count, min(_BLOCK, self.left[count - 1])):
                self._gradients(batch, parts, gradient)
                self._change(numbers, gradient, anchor[:count])
                optimizer.step()
            state = optimizer.state[numbers]
        for own, trained in zip(self.own, self._parts(self.numbers), strict=True):
            for part, values in zip(own, trained, strict=True):
                part.copy_(values)

    def _batches(self, count: int, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The next steps of the first few: their rows in inputs and targets, and what each counts."""
        drawn = [orders.next(steps) for orders in self.orders[:count]]
        self.left = [left - steps for left in self.left[:count]] + self.left[count:]
        rows = np.stack([rows for rows, _ in drawn], axis=1)
        both = [
            torch.from_numpy((rows + starts[:count]).reshape(steps, -1)).to(self.X.device)
            for starts in (self.starts, self.target_starts)
        ]
        share = torch.from_numpy(np.stack([share for _, share in drawn], axis=1))
        yield from zip(*both, share.to(self.targets).unsqueeze(2), strict=True)

    def _parts(self, rows: Tensor) -> list[Tensor]:
        """The parameters in rows like those of ``numbers``, each ``(networks, …)``."""
        shapes = [parts[0].shape for parts in self.own]
        sizes = [shape.numel() for shape in shapes]
        pieces = torch.split(rows, [*sizes, rows.shape[1] - sum(sizes)], dim=1)
        return [
            piece.view(len(rows), *shape) for piece, shape in zip(pieces[:-1], shapes, strict=True)
        ]

    def _gradients(
        self, batch: tuple[Tensor, Tensor, Tensor], parts: Sequence[Tensor], gradient: Tensor
    ) -> None:
        """That of a step's mean losses. The last axis in passing is that of rows."""
        count, (rows, targets, share) = len(gradient), batch
        h = self.X.index_select(0, rows).view(count, self.width, -1).transpose(1, 2)
        inputs = []
        for weight, bias, activation in self.layers:
            inputs.append(h)
            h = _product(parts[weight], h, None if bias is None else parts[bias])
            if activation is not None:
                h = _ACTIVATIONS[activation][0](h)
        aims = self.targets.index_select(0, targets).view(count, self.width, -1).transpose(1, 2)
        slope = self.jobs[0].loss.slopes(h, aims).mul_(share)
        found: list[Tensor] = [slope] * len(parts)
        for weight, bias, activation in reversed(self.layers):
            if activation is not None:
                slope = _ACTIVATIONS[activation][1](slope, h)
            h = inputs.pop()
            found[weight] = torch.bmm(slope, h.transpose(1, 2)).flatten(1)
            if bias is not None:
                found[bias] = slope.sum(2)
            if inputs:
                slope = torch.bmm(parts[weight].transpose(1, 2), slope)
        torch.cat([*found, self.filling[:count]], dim=1, out=gradient)

    def _change(self, numbers: Tensor, gradient: Tensor, anchor: Tensor) -> None:
        """Gradients clipped and pulled, each network's for itself."""
        recipe, pull = self.jobs[0].recipe, self.jobs[0].pull
        if recipe.gradient_clip is not None:
            clip([gradient], recipe.gradient_clip)
        if pull.correction:
            gradient.add_(self.correction[: len(gradient)])
        if pull.strength:
            gradient.add_(numbers - anchor, alpha=pull.strength)


class _Orders:
    """The order in which a training goes through its rows, an epoch drawn when it is needed.

    Args:
        job: whose.
        plan: places in an epoch's order for its steps, ``(steps, width)``.
        width: rows of a batch.
    """

    def __init__(self, job: Job, plan: Array, width: int) -> None:
        self.job, self.plan, self.made = job, plan, 0
        self.waiting = np.zeros((0, width), dtype=np.int64)
        counts = plan < len(job.targets)
        self.counts = counts / counts.sum(axis=1, keepdims=True)
        self.weights = None if job.weights is None else job.weights.cpu().numpy()

    def next(self, steps: int) -> tuple[Array, Array]:
        """Rows of the next so many steps, and what each counts in its mean, ``(steps, width)`` both."""
        n, drawn, there = len(self.job.targets), [self.waiting], len(self.waiting)
        while there < steps:
            order = np.append(self.job.rng.permutation(n), 0)  # the last one fills up
            drawn.append(order[self.plan])
            there += len(self.plan)
        rows = np.concatenate(drawn)
        rows, self.waiting = rows[:steps], rows[steps:]
        share = self.counts[np.arange(self.made, self.made + steps) % len(self.plan)]
        self.made += steps
        return rows, share if self.weights is None else share * self.weights[rows]


def _plan(rows: int, size: int, width: int) -> Array:
    """Places in an epoch's order for its steps, ``(steps, width)``; ``rows`` where there is none."""
    ends = [*range(size, rows, size), rows]
    if len(ends) > 1 and size > 1 and ends[-1] - ends[-2] == 1:
        del ends[-2]
    plan = np.full((len(ends), width), rows)
    for step, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        plan[step, : end - start] = np.arange(start, end)
    return plan

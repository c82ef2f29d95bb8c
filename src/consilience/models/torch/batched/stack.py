"""Train multilayer perceptrons as one batch, with results bit-identical to separate training on a CPU.

Party i's parameters are slice i of stacked tensors, so that one operation does a part of a training step for
all networks. On small networks the overhead of operations is most of the training time. For the same reason
gradients are coded by hand and not recorded by autograd.

A network's result does not depend on the other networks in the stack. The size of a batch depends only on the
network's own number of rows and batch size; missing rows are filled with rows of weight zero. Each slice
begins on a cache line and ends before a gap, so that operations process the slices one after another, in one
thread, with the same alignment. BLAS computes one product after another, all of the same shape and strides
(:func:`~.stages.product`). Therefore it is enough on a CPU that an operation gives the same bits for the same
numbers in equally aligned memory, with any kernel. On a GPU results agree up to rounding.

Each network has a separate random stream for dropout and separate batch-norm statistics. A network leaves the
stack when early stopping ends its training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.numerics.randomness import Threads
from consilience.core.validation.arrays import Array
from consilience.models.torch.batched.architecture import tensors_of
from consilience.models.torch.batched.perceptron import (
    Dense,
    Drop,
    Layer,
    Norm,
    rows_of_a_batch,
)
from consilience.models.torch.batched.stages import Forward, Step, Vectors, room
from consilience.models.torch.batched.steps import (
    PREDICT_ROWS,
    Job,
    Judge,
    Orders,
    clip,
    pooled,
)
from consilience.models.torch.optimizer import TorchOptimizer

_BLOCK = 128
"""Largest number of steps for which rows are laid out at a time."""

_DRAWN = 2**22
"""Approximate count of numbers drawn for dropout at a time."""


def outputs_of(
    modules: Sequence[nn.Module], layers: Sequence[Layer], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Compute the outputs of networks of one architecture, each for its respective inputs.

    Args:
        modules: the networks.
        layers: of each.
        inputs: one tensor ``(n, …)`` a network, of the same shape.

    Returns:
        One tensor ``(n, n_outputs)`` a network.
    """
    named = [tensors_of(module) for module in modules]
    found = []
    with _computing():
        parts = {}
        for name, part in named[0].items():
            if not part.ndim:  # batch norm's count of steps
                continue
            parts[name] = room(part, len(named), *part.shape)
            torch.stack([own[name] for own in named], out=parts[name])
        for pieces in zip(*(torch.split(X.flatten(1), PREDICT_ROWS) for X in inputs), strict=True):
            forward = Forward(layers, parts, *pieces[0].shape)
            torch.stack(pieces, out=forward.inputs)
            found.append(forward().transpose(1, 2))
        return list(torch.cat(found, dim=1))


@contextmanager
def _computing() -> Iterator[None]:
    """Compute without gradients and in one thread: with more, torch's sums depend on the number of networks.

    numpy's warnings of overflow are off, because a learner reports such numbers itself.
    """
    with torch.inference_mode(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if torch.get_num_threads() == 1:  # as in a federation, where all libraries have one
            yield
            return
        with _one_thread().limited():
            yield


@lru_cache
def _one_thread() -> Threads:
    return Threads(1)


class Stack:
    """Trainings of networks of one architecture, side by side.

    Args:
        jobs: with the same layers, recipe, loss and number of rows in a batch.
        layers: of each.
    """

    @torch.inference_mode()
    def __init__(self, jobs: Sequence[Job], layers: Sequence[Layer]) -> None:
        self.jobs, self.layers = jobs, layers
        self.width = rows_of_a_batch(len(jobs[0].targets), jobs[0].recipe.batch_size)
        X, starts = pooled(jobs)
        self.X, self.targets = X.flatten(1), torch.cat([job.targets for job in jobs])
        own = np.cumsum([0, *(len(job.targets) for job in jobs[:-1])])
        self.members = [
            _Member(job, self.width, layers, int(start), int(first))
            for job, start, first in zip(jobs, starts, own, strict=True)
        ]
        first = self.members[0].own
        kept = {name for norm in _norms(layers) for name in (norm.mean, norm.variance)}
        counted = {norm.steps for norm in _norms(layers)}
        moved = first.keys() - kept - counted
        turned = next(layer.weight for layer in layers if isinstance(layer, Dense))
        self.moved = Vectors({name: first[name] for name in first if name in moved}, turned)
        self.kept = Vectors({name: first[name] for name in first if name in kept})

    def trained(self) -> list[int]:
        """Train all of them: their numbers of steps, in the order they were given."""
        with _computing():
            self._train()
        return [member.steps for member in self.members]

    def _train(self) -> None:
        recipe, correction = self.jobs[0].recipe, self.jobs[0].correction
        at_it = self.members
        numbers = self.moved.made(len(at_it), self._stacked)
        memory = self.kept.made(len(at_it), self._stacked)
        terms, state = dict[str, Tensor](), dict[str, Tensor]()
        if correction.strength:
            terms["anchor"] = numbers.clone()
        if correction.offset:
            terms["offset"] = self.moved.made(len(at_it), self._offsets)
        while at_it:
            count = len(at_it)
            gradient = numbers.grad = torch.zeros_like(numbers)
            optimizer = TorchOptimizer(recipe, [numbers])
            optimizer.state[numbers] = state
            slopes = self.moved.views(gradient, count)
            parts = self.moved.views(numbers, count) | self.kept.views(memory, count)
            step = Step(self.layers, parts, slopes, self.width, self.X.shape[1])
            while all(member.left for member in at_it):
                for rows, targets, *given in self._batches(at_it):
                    step.outputs.take(self.X, rows)
                    aims = self.targets.index_select(0, targets).view(count, self.width, -1)
                    step(self.jobs[0].loss, aims.transpose(1, 2), *given)
                    self._correct(slopes, gradient, numbers, terms)
                    optimizer.step()
                for place, member in enumerate(at_it):
                    member.judged({name: part[place : place + 1] for name, part in parts.items()})
            over = [place for place, member in enumerate(at_it) if not member.left]
            _written([(at_it[place], place) for place in over if not at_it[place].best], parts)
            remain = [place for place in range(count) if place not in over]
            terms, state = (
                {name: self.moved.only(remain, values, count) for name, values in held.items()}
                for held in (terms, optimizer.state[numbers])
            )
            numbers, memory = (
                vectors.only(remain, values, count)
                for vectors, values in ((self.moved, numbers), (self.kept, memory))
            )
            at_it = [at_it[place] for place in remain]

    def _batches(self, at_it: Sequence[_Member]) -> Iterator[tuple[Tensor, ...]]:
        """Lay out steps until the first is at its end, or to be judged.

        For each: rows in inputs and targets; the weight of each row, and that if all weighed the same; what
        dropout multiplies by.
        """
        steps = min(member.until for member in at_it)
        drawn = sum(len(member.keep) for member in at_it)
        block = min(_BLOCK, max(1, _DRAWN // drawn)) if drawn else _BLOCK
        for start in range(0, steps, block):
            laid = [member.next(min(block, steps - start)) for member in at_it]
            rows, share, even, masks = (np.stack(each, axis=1) for each in zip(*laid, strict=True))
            both = [
                torch.from_numpy((rows + firsts).reshape(len(rows), -1)).to(self.X.device)
                for firsts in (
                    np.array([[member.start] for member in at_it]),
                    np.array([[member.first] for member in at_it]),
                )
            ]
            weights = [torch.from_numpy(of).to(self.targets).unsqueeze(2) for of in (share, even)]
            dropped = torch.from_numpy(masks).to(self.targets)
            yield from zip(*both, *weights, dropped, strict=True)

    def _stacked(self, name: str) -> Tensor:
        return torch.stack([member.own[name] for member in self.members])

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


class _Member:
    """A network in the stack, and the state of its training.

    Args:
        job: the training.
        width: rows of a batch.
        layers: of the network.
        start: place of its rows among the inputs of all.
        first: place of its rows among the targets of all.

    Attributes:
        own: the module's tensors by name.
        left: remaining steps.
        keep: probability to keep each number of a batch that dropout may drop.
    """

    def __init__(
        self, job: Job, width: int, layers: Sequence[Layer], start: int, first: int
    ) -> None:
        self.job, self.layers, self.start, self.first = job, layers, start, first
        self.orders = Orders(job, width)
        self.epoch, self.made = len(self.orders.plan), 0
        self.left = job.epochs * self.epoch
        self.judge = None if job.held_out is None else Judge(job.recipe.early_stop)
        self.own = {name: part.detach() for name, part in tensors_of(job.module).items()}
        self.counted = {norm.steps: int(self.own[norm.steps]) for norm in _norms(layers)}
        drops = [layer for layer in layers if isinstance(layer, Drop)]
        self.keep = np.repeat([1 - one.p for one in drops], [one.width * width for one in drops])
        self.draws = np.random.default_rng(job.seed) if drops else None

    @property
    def until(self) -> int:
        """Steps to its end, or to the end of an epoch after which it is judged."""
        return self.left if self.judge is None else self.epoch - self.made % self.epoch

    @property
    def best(self) -> bool:
        """True if the module has the parameters of the lowest loss on held-out rows."""
        return self.judge is not None and self.judge.steps is not None

    @property
    def steps(self) -> int:
        """Return the number of steps that led to the kept parameters."""
        best = None if self.judge is None else self.judge.steps
        return self.made if best is None else best

    def next(self, steps: int) -> tuple[Array, Array, Array, Array]:
        """Make the next steps: as :class:`Orders` lays them out, and what dropout multiplies by."""
        self.made, self.left = self.made + steps, self.left - steps
        masks = np.zeros((steps, 0))
        if self.draws is not None:
            drawn = self.draws.random((steps, len(self.keep)), dtype=np.float32)
            masks = (drawn < self.keep) / self.keep
        return *self.orders.next(steps), masks

    def judged(self, parts: Mapping[str, Tensor]) -> None:
        """At the end of an epoch compute the loss on held-out rows; keep the best, stop if so.

        Args:
            parts: the network's stack of one.
        """
        if self.judge is None or self.made % self.epoch:
            return
        assert self.job.held_out is not None
        X, targets = self.job.held_out
        found = []
        for rows in torch.split(X.flatten(1), PREDICT_ROWS):
            forward = Forward(self.layers, parts, *rows.shape)
            forward.inputs[0].copy_(rows)
            found.append(forward()[0].t())
        if self.judge.better(float(self.job.loss.mean(torch.cat(found), targets)), self.made):
            _written([(self, 0)], parts)
        if self.judge.over:
            self.left = 0


def _norms(layers: Sequence[Layer]) -> list[Norm]:
    return [layer for layer in layers if isinstance(layer, Norm)]


def _written(members: Sequence[tuple[_Member, int]], parts: Mapping[str, Tensor]) -> None:
    """Write stacked numbers into modules.

    Args:
        members: networks and their places in the stacks.
        parts: the stacks.
    """
    if not members:
        return
    for name, values in parts.items():
        each = values.unbind()
        own = [member.own[name] for member, _ in members]
        torch._foreach_copy_(own, [each[place] for _, place in members])
    for member, _ in members:
        for name, before in member.counted.items():
            member.own[name].fill_(before + member.made)

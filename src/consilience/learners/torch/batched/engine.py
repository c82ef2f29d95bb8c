"""Which networks train as one, and how: decided by what they are, never by a clock.

A run comes out the same twice only if how it is computed does not depend on how fast something was. So the
rule is one of kinds and sizes (what it is worth: ``python benchmarks/cohorts.py``). Perceptrons go through
:mod:`~consilience.learners.torch.batched.stack`, as many at a time as a core's cache takes, and reach the
bits that they would reach alone. Convolutions gain nothing from stacks on a CPU and are trained one by one
there; on a GPU whatever can be stacked is (:mod:`~consilience.learners.torch.batched.vmap`), which changes
the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from consilience.learners.torch.batched.architecture import Architecture, architecture
from consilience.learners.torch.batched.stack import (
    Layer,
    Stack,
    layers_of,
    numbers_of,
    outputs_of,
    rows_of_a_batch,
    worth_it,
)
from consilience.learners.torch.batched.steps import PREDICT_ROWS, Job
from consilience.learners.torch.batched.vmap import Vmapped
from consilience.learners.torch.recipe import Precision

CACHE = 2**22
"""Bytes of parameters, gradients and an optimizer's two moments that a step goes through at a time."""

GPU_MEMORY = 2**32
"""Bytes that networks which are trained as one take on a GPU, about: the same on every GPU, so that as many
are stacked on each, and sums are taken alike."""

_ON_A_GPU = 128


@dataclass
class Training:
    """One network's training, a :class:`~consilience.learners.batching.Work`; its result counts steps.

    Attributes:
        job: what is to be done.
        by_itself: does it for a network of any kind.
        usual: whether all epochs are made, of rows as they are.
    """

    job: Job
    by_itself: Callable[[], int]
    usual: bool

    @cached_property
    def _alike(self) -> Architecture | None:
        stacked = self.usual and self.job.epochs and _stacks(self.job.recipe.precision)
        return architecture(self.job.module) if stacked else None

    @cached_property
    def _layers(self) -> tuple[Layer, ...] | None:
        """Those of a perceptron whose gradients are written out; ``None`` for other networks."""
        if self._alike is None:
            return None
        rows, size = len(self.job.targets), self.job.recipe.batch_size
        layers = layers_of(self._alike, self.job.shape)
        return layers if layers and worth_it(layers, rows, size) else None

    @property
    def weight(self) -> float:
        """Rows that it goes through."""
        return len(self.job.targets) * self.job.epochs

    @property
    def most(self) -> int:
        """How many are trained as one at most."""
        job = self.job
        if self._alike is not None and _on_a_gpu(job.module):
            rows = rows_of_a_batch(len(job.targets), job.recipe.batch_size)
            copies = 6  # parameters, gradients, an optimizer's two moments, and two for pulls
            shape = len(job.targets), *job.shape
            return _fit_a_gpu(job.module, self._alike, copies, shape, rows)
        return _fit_a_cache(job.module, self._layers)

    @property
    def key(self) -> Hashable:
        """All that has to be the same for stacking; ``None`` where it cannot be."""
        if self._layers is None and (self._alike is None or not _on_a_gpu(self.job.module)):
            return None
        job = self.job
        pulled = job.pull.strength, tuple(sorted(job.pull.correction or ()))
        rows = rows_of_a_batch(len(job.targets), job.recipe.batch_size)
        outputs = job.targets.shape[1], job.targets.dtype, str(job.targets.device)
        return (
            *(self._alike, job.recipe, job.loss.name, job.weights is None),
            *(job.shape, rows if self._layers else None, outputs, pulled),
        )

    def alone(self) -> int:
        """Train it."""
        if self._layers is None:
            return self.by_itself()
        return Stack([self.job], self._layers).trained()[0]

    def together(self, others: Sequence[Training]) -> list[int]:
        """Train it and the others, which have the same key."""
        jobs = [self.job, *(other.job for other in others)]
        return (Vmapped(jobs) if self._layers is None else Stack(jobs, self._layers)).trained()


@dataclass
class Prediction:
    """What one network says of some rows: a :class:`~consilience.learners.batching.Work`.

    Attributes:
        module: the network.
        inputs: makes its inputs.
        shape: theirs, ``(n, …)``.
        by_itself: gives the outputs ``(n, n_outputs)`` of a network of any kind.
        precision: its recipe's.
    """

    module: nn.Module
    inputs: Callable[[], Tensor]
    shape: tuple[int, ...]
    by_itself: Callable[[], Tensor]
    precision: Precision

    @cached_property
    def _alike(self) -> Architecture | None:
        return architecture(self.module) if self.shape[0] and _stacks(self.precision) else None

    @cached_property
    def _layers(self) -> tuple[Layer, ...] | None:
        if self._alike is None:
            return None
        return layers_of(self._alike, self.shape[1:])

    @property
    def weight(self) -> float:
        """Rows that it is asked about."""
        return self.shape[0]

    @property
    def most(self) -> int:
        """How many are asked as one at most."""
        if self._alike is not None and _on_a_gpu(self.module):
            rows = min(self.shape[0], PREDICT_ROWS)
            return _fit_a_gpu(self.module, self._alike, 1, self.shape, rows)
        return _fit_a_cache(self.module, self._layers)

    @property
    def key(self) -> Hashable:
        """All that has to be the same for stacking; ``None`` where it cannot be."""
        if self._layers is None:
            return None
        return self._alike, self.shape, str(next(self.module.parameters()).device)

    def alone(self) -> Tensor:
        """Its outputs."""
        return self.by_itself() if self._layers is None else self.together([])[0]

    def together(self, others: Sequence[Prediction]) -> list[Tensor]:
        """Its outputs and the others', which have the same key."""
        assert self._layers is not None
        both = [self, *others]
        inputs = [one.inputs() for one in both]
        return outputs_of([one.module for one in both], self._layers, inputs)


def _stacks(precision: Precision) -> bool:
    """Whether networks of it are: ``torch.func.vmap`` leaves autocast's bfloat16 out of convolutions."""
    return precision == "float32"


def _on_a_gpu(module: nn.Module) -> bool:
    return next(module.parameters()).is_cuda


def _fit_a_cache(module: nn.Module, layers: Sequence[Layer] | None) -> int:
    if layers is None:
        return 1
    size = next(module.parameters()).element_size()
    return max(1, CACHE // (4 * size * numbers_of(layers)))


def _fit_a_gpu(
    module: nn.Module, network: Architecture, copies: int, shape: tuple[int, ...], rows: int
) -> int:
    """How many fit :data:`GPU_MEMORY`: so many copies of the parameters, inputs of a shape, and a step.

    Inputs count twice, as there are while they are put together; so does what a step of so many rows keeps
    for the backward pass, for its gradients. A network beyond the bound trains by itself.
    """
    step = network, (rows, *shape[1:])
    if step not in _KEPT:
        _KEPT[step] = kept(module, step[1])
    numbers = sum(part.numel() for part in module.parameters())
    held = copies * numbers + 2 * math.prod(shape) + 2 * _KEPT[step]
    size = next(module.parameters()).element_size()
    return max(1, min(_ON_A_GPU, GPU_MEMORY // (size * held)))


_KEPT: dict[tuple[Architecture, tuple[int, ...]], int] = {}
"""Numbers that a step of such a network keeps, for inputs of a shape."""


def kept(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Numbers that a forward pass of inputs ``shape`` keeps for the backward pass; nothing is computed."""
    found = 0

    def count(part: Tensor) -> Tensor:
        nonlocal found
        found += part.numel()
        return part

    parts = {
        name: torch.empty_like(part, device="meta").requires_grad_()
        for name, part in module.named_parameters()
    }
    inputs = torch.empty(shape, dtype=next(module.parameters()).dtype, device="meta")
    with torch.enable_grad(), saved_tensors_hooks(count, lambda part: part):
        functional_call(module, parts, (inputs,))
    return found

"""Choose the networks that train as one batch by their kind and size, never by timing.

A run is reproducible only if its computation does not depend on measured speed. Therefore the rule uses only
kinds and sizes (its effect: ``python benchmarks/cohorts.py``). Perceptrons train in
:mod:`~consilience.models.torch.batched.stack`, as many at a time as fit a core's cache, and their results are
bit-identical to separate training. Convolutions do not gain from stacks on a CPU and train there one by one.
On a GPU all networks that can be stacked are stacked (:mod:`~consilience.models.torch.batched.vmap`), which
changes the rounding.
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

from consilience.models.torch.batched.architecture import (
    OWN,
    Architecture,
    architecture,
    first_of,
)
from consilience.models.torch.batched.perceptron import (
    Layer,
    layers_of,
    numbers_of,
    rows_of_a_batch,
    worth_it,
)
from consilience.models.torch.batched.stack import Stack, outputs_of
from consilience.models.torch.batched.steps import PREDICT_ROWS, Job
from consilience.models.torch.batched.vmap import Vmapped
from consilience.models.torch.recipe import Precision

CACHE = 2**22
"""Bytes of parameters, gradients and an optimizer's two moments that a step goes through at a time."""

GPU_MEMORY = 2**32
"""Approximate memory of a stack of networks on a GPU, in bytes. It is the same on every GPU, so that stacks
have the same size and sums have the same order."""

_ON_A_GPU = 128


@dataclass
class Training:
    """One network's training, a :class:`~consilience.models.torch.batching.WorkItem`; its result counts
    steps.

    Attributes:
        job: the training.
        by_itself: runs it for a network of any kind.
        usual: true without random changes of images.
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
        """Layers of a perceptron whose gradients are written out; ``None`` for other networks."""
        if self._alike is None:
            return None
        rows, size = len(self.job.targets), self.job.recipe.batch_size
        layers = layers_of(self._alike, self.job.shape)
        return layers if layers and worth_it(layers, rows, size) else None

    @cached_property
    def _by_vmap(self) -> bool:
        """True for other networks on a GPU, without layers that draw or remember."""
        if self._layers is not None or self._alike is None or not _on_a_gpu(self.job.module):
            return False
        return not any(part.kind in OWN for part in self._alike)

    @property
    def weight(self) -> float:
        """Rows times epochs."""
        return len(self.job.targets) * self.job.epochs

    @property
    def max_batch(self) -> int:
        """Networks trained as one, at most."""
        job = self.job
        if (self._layers is not None or self._by_vmap) and _on_a_gpu(job.module):
            rows = rows_of_a_batch(len(job.targets), job.recipe.batch_size)
            copies = 6  # parameters, gradients, an optimizer's two moments, and two for corrections
            shape = len(job.targets), *job.shape
            return fit_on_gpu(job.module, copies, shape, rows)
        return _fit_a_cache(job.module, self._layers)

    @property
    def key(self) -> Hashable:
        """Properties that must be equal for stacking; ``None`` if the network cannot be stacked."""
        if self._layers is None and not self._by_vmap:
            return None
        job = self.job
        correction = job.correction.strength, tuple(sorted(job.correction.offset or ()))
        rows = rows_of_a_batch(len(job.targets), job.recipe.batch_size)
        outputs = job.targets.shape[1], job.targets.dtype, str(job.targets.device)
        return (
            *(self._alike, job.recipe, job.loss.name, job.weights is None),
            *(job.shape, rows if self._layers else None, outputs, correction),
        )

    def run_single(self) -> int:
        """Train this network; return its number of steps."""
        if self._layers is None:
            return self.by_itself()
        return Stack([self.job], self._layers).trained()[0]

    def run_batch(self, others: Sequence[Training]) -> list[int]:
        """Train this network and others of the same key; return their numbers of steps."""
        jobs = [self.job, *(other.job for other in others)]
        return (Vmapped(jobs) if self._layers is None else Stack(jobs, self._layers)).trained()


@dataclass
class Prediction:
    """One network's outputs for some rows, a :class:`~consilience.models.torch.batching.WorkItem`.

    Attributes:
        module: the network.
        inputs: makes its inputs.
        shape: of the inputs, ``(n, …)``.
        by_itself: computes the outputs ``(n, n_outputs)`` of a network of any kind.
        precision: of the network's recipe.
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
        """Number of rows."""
        return self.shape[0]

    @property
    def max_batch(self) -> int:
        """Networks evaluated as one, at most."""
        if self._layers is not None and _on_a_gpu(self.module):
            rows = min(self.shape[0], PREDICT_ROWS)
            return fit_on_gpu(self.module, 1, self.shape, rows)
        return _fit_a_cache(self.module, self._layers)

    @property
    def key(self) -> Hashable:
        """Properties that must be equal for stacking; ``None`` if the network cannot be stacked."""
        if self._layers is None:
            return None
        first = first_of(self.module)
        return self._alike, self.shape, str(first is not None and first.device)

    def run_single(self) -> Tensor:
        """Compute this network's outputs."""
        return self.by_itself() if self._layers is None else self.run_batch([])[0]

    def run_batch(self, others: Sequence[Prediction]) -> list[Tensor]:
        """Compute the outputs of this network and of others with the same key."""
        assert self._layers is not None
        both = [self, *others]
        inputs = [one.inputs() for one in both]
        return outputs_of([one.module for one in both], self._layers, inputs)


def _stacks(precision: Precision) -> bool:
    """True for a precision that can be stacked: ``vmap`` leaves autocast's bfloat16 out of convolutions."""
    return precision == "float32"


def _on_a_gpu(module: nn.Module) -> bool:
    first = first_of(module)
    return first is not None and first.is_cuda


def _fit_a_cache(module: nn.Module, layers: Sequence[Layer] | None) -> int:
    first = first_of(module)
    if layers is None or first is None:
        return 1
    size = first.element_size()
    return max(1, CACHE // (4 * size * numbers_of(layers)))


def fit_on_gpu(
    module: nn.Module, copies: int, shape: tuple[int, ...], rows: int, room: int = GPU_MEMORY
) -> int:
    """Count the networks that can train together in a GPU's memory; at least 1.

    Inputs count twice, because two copies exist while they are stacked. The numbers that a step keeps for the
    backward pass count twice too, because their gradients take as much memory.

    Args:
        module: a network that can be stacked.
        copies: numbers kept for each of its parameters.
        shape: of its inputs, ``(n, …)``.
        rows: of a step.
        room: bytes.
    """
    step = architecture(module), (rows, *shape[1:])
    if step not in _KEPT:
        _KEPT[step] = kept(module, step[1])
    numbers = sum(part.numel() for part in module.parameters())
    held = copies * numbers + 2 * math.prod(shape) + 2 * _KEPT[step]
    size = next(module.parameters()).element_size()
    return max(1, min(_ON_A_GPU, room // (size * held)))


_KEPT: dict[tuple[Architecture | None, tuple[int, ...]], int] = {}
"""Cache of :func:`kept`."""


def kept(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Count the numbers that a forward pass keeps for the backward pass, without computing it.

    Args:
        module: the network.
        shape: of its inputs, ``(n, …)``.
    """
    found = 0

    def count(part: Tensor) -> Tensor:
        nonlocal found
        found += part.numel()
        return part

    parts = {
        name: torch.empty_like(part, device="meta").requires_grad_()
        for name, part in module.named_parameters()
    } | {name: torch.empty_like(part, device="meta") for name, part in module.named_buffers()}
    inputs = torch.empty(shape, dtype=next(module.parameters()).dtype, device="meta")
    with torch.enable_grad(), saved_tensors_hooks(count, lambda part: part):
        functional_call(module, parts, (inputs,))
    return found

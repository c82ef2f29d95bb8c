"""Build a learner's module for the rows of a party, and turn these rows into tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.validation.arrays import Array
from consilience.models.torch.batched.architecture import first_of
from consilience.models.torch.batched.steps import PREDICT_ROWS
from consilience.models.torch.contract import check_contract, copied, only_tensor
from consilience.models.torch.device import (
    ROWS,
    device_of,
    filters_channels_last,
    forward,
    given_room,
)
from consilience.models.torch.images import check_augmentation
from consilience.models.torch.recipe import Precision, TorchRecipe

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Makes a module for inputs of a shape (without the row axis) and a number of outputs."""

_TRIED = 3
"""Rows that a module is tried with when it is adopted, and as many of random numbers."""

_PRESETS = "consilience.models.torch.networks"


class ModuleBuilder:
    """Build the modules of one learner, on its device.

    Args:
        given: a module, which is copied, or a function that makes one.
        recipe: device, precision and augmentation.

    Raises:
        InvalidInput: ``given`` is not a module or a function, or the device does not exist.
    """

    def __init__(self, given: nn.Module | Factory, recipe: TorchRecipe) -> None:
        self.name = type(given).__name__ if isinstance(given, nn.Module) else _name_of(given)
        if isinstance(given, type) or not callable(given):
            raise InvalidInput(
                "expected a module or a function (input_shape, n_outputs) -> module",
                where=self.name,
                mend="Give an object, not a class." if isinstance(given, type) else None,
            )
        self.given = copied(given, self.name) if isinstance(given, nn.Module) else given
        self.recipe = recipe
        self.device = device_of(recipe, where=self.name)
        self._tried: set[tuple[tuple[int, ...], str, int]] = set()
        self._adopted: set[tuple[tuple[int, ...], str, int]] = set()

    @property
    def preset(self) -> bool:
        """True for the networks of this package, all of whose parameters are drawn."""
        made_by = getattr(self.given, "func", self.given)
        return getattr(made_by, "__module__", None) == _PRESETS

    def build(self, example: Array, n_outputs: int, *, seed: int | None) -> nn.Module:
        """Build a module for rows like ``example``, and check it by a forward pass.

        A preset is tried with one row, and once for rows of a kind: a large network's pass takes its time.

        Args:
            example: some rows, shape ``(n, ...)``.
            n_outputs: number of columns of its outputs.
            seed: of its first parameters; without one their numbers do not matter, and a preset's are not
                drawn, which is most of what building a large one costs.

        Raises:
            InvalidInput: it cannot take these rows, or has other outputs.
        """
        if self.recipe.augment is not None:
            check_augmentation(self.recipe.augment, example.shape[1:], self.name)
        with self.random_stream(seed or 0):
            if isinstance(self.given, nn.Module):
                module = copy.deepcopy(self.given)
            elif seed is None and self.preset:
                module = given_room(self._outline(example.shape[1:], n_outputs), self.device)
            else:
                module = self.given(example.shape[1:], n_outputs)
            module = module.to(self.device).eval()
            kind = example.shape[1:], example.dtype.str, n_outputs
            if not self.preset or kind not in self._tried:
                self._try(module, example[:1] if self.preset else example, n_outputs)
                self._tried.add(kind)
            redrawn = isinstance(self.given, nn.Module) and self.recipe.initial == "redraw"
            if seed is not None and redrawn:
                _redraw(module)
            if self.device.type == "cuda":
                filters_channels_last(module)
        other = next((p.dtype for p in module.parameters() if p.dtype != torch.float32), None)
        if other is not None and self.recipe.precision == "bfloat16":
            raise InvalidInput(
                f'precision is "bfloat16", which is for parameters of float32, and here is {other}',
                where=self.name,
                mend="Give module.float(), or leave precision out of the recipe.",
            )
        return module

    def _try(self, module: nn.Module, example: Array, n_outputs: int) -> None:
        # Lazy layers take their widths here; parameters made in inference mode cannot train.
        with torch.no_grad(), self.errors_named():
            outputs = self._answer(module, self.inputs(example, module))
        if tuple(outputs.shape) != (len(example), n_outputs):
            raise InvalidInput(
                f"the module turned inputs of shape {example.shape} into {tuple(outputs.shape)}, "
                f"expected {(len(example), n_outputs)}",
                where=self.name,
                mend=f"Its last layer needs {n_outputs} outputs.",
            )

    def _answer(self, module: nn.Module, X: Tensor) -> Tensor:
        """A module's outputs for a tensor of rows; refused if they are no tensor."""
        return forward(lambda rows: only_tensor(module(rows), self.name), X, self.recipe.precision)

    def adopt(self, module: nn.Module, example: Array, n_outputs: int, *, classifies: bool) -> None:
        """Try a user's module for faults that no shape betrays (:mod:`.contract`), once for rows of a kind.

        Args:
            module: as :meth:`build` gave it.
            example: some rows, shape ``(n, ...)``; numbers are tried with others of the same shape too.
            n_outputs: number of columns of its outputs.
            classifies: whether outputs are logits.

        Raises:
            InvalidInput: it breaks the contract of :class:`~.learner.TorchLearner`.
        """
        made_by = getattr(self.given, "func", self.given)
        kind = example.shape[1:], example.dtype.str, n_outputs
        if kind in self._adopted or str(made_by.__module__).startswith("consilience."):
            return
        with self.random_stream(0), self.errors_named():
            rows = self._tried_with(module, example[:_TRIED])
            check_contract(
                module,
                [self.inputs(rows[place : place + 1], module) for place in range(len(rows))],
                self.inputs(rows, module),
                self._answer,
                classifies=classifies,
                precision="bfloat16" if _dtype(module).itemsize < 4 else self.recipe.precision,
                where=self.name,
            )
        self._adopted.add(kind)

    def _tried_with(self, module: nn.Module, example: Array) -> Array:
        """Add random rows to an example, because its rows may be equal, unless the module fails on these."""
        if example.dtype.kind != "f":
            return example
        drawn = np.random.default_rng(0).normal(size=(_TRIED, *example.shape[1:]))
        rows = np.concatenate([example, drawn.astype(example.dtype)])
        try:
            with torch.no_grad():
                self._answer(module, self.inputs(rows, module))
        except Exception:  # such as numbers that it looks up in a table
            return example
        return rows

    def empty_preset(
        self, shape: tuple[int, ...], n_outputs: int, held: Mapping[str, tuple[int, ...]]
    ) -> nn.Module:
        """Build a preset's module to load a file into, with memory only for tensors that the file holds.

        Few bytes can declare a huge network, so shapes are compared before any memory is taken.

        Args:
            shape: of an input, without the row axis.
            n_outputs: number of columns of its outputs.
            held: shapes of the file's tensors by name.

        Raises:
            RunFailed: the file holds other tensors.
        """
        with self.errors_named():
            module = self._outline(shape, n_outputs)
        own = {name: tuple(part.shape) for name, part in module.state_dict().items()}
        if differ := sorted(dict(own.items() ^ held.items())):
            name = differ[0]
            raise RunFailed(
                f"parameter {name!r} has shape {held.get(name)}, by its description {own.get(name)}"
            )
        return given_room(module, self.device)

    def _outline(self, shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """A preset's module on the meta device: shapes without numbers."""
        with torch.device("meta"):
            return self.given(shape, n_outputs)

    def inputs(self, X: Array, module: nn.Module) -> Tensor:
        """Turn rows into the tensor that a module takes: its dtype, indices for embeddings, encoded texts.

        Args:
            X: rows, shape ``(n, ...)``.
            module: the module.

        Raises:
            InvalidInput: the rows are no numbers, and the module has no method ``encode`` for texts.
        """
        X = np.asarray(X)
        encode = getattr(module, "encode", None)
        if X.dtype.kind in "UO" and callable(encode):
            with self.errors_named():
                return torch.from_numpy(np.array(encode(X), dtype=np.int64)).to(self.device)
        if X.dtype.kind not in "biuf":
            raise InvalidInput(
                f"the inputs are of type {X.dtype}, and a module takes numbers",
                where=self.name,
                mend="For texts take 'text-embedding' or 'transformer', or a module with a method encode.",
            )
        if X.dtype.kind in "iu" and any(
            isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in module.modules()
        ):
            return ROWS.moved(X, torch.int64, self.device)
        return ROWS.moved(X, _dtype(module), self.device)

    def values(self, values: Array, module: nn.Module) -> Tensor:
        """Turn targets or weights into a tensor of a module's dtype, on its device.

        Args:
            values: numbers of any shape.
            module: the module.
        """
        dtype = _dtype(module)
        wide = np.float64 if dtype == torch.float64 else np.float32
        return torch.from_numpy(np.array(values, dtype=wide)).to(self.device, dtype)

    @contextmanager
    def random_stream(self, seed: int) -> Iterator[None]:
        """Start torch's random stream at ``seed``, and put the former state back afterwards."""
        gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if gpu else []):
            torch.default_generator.manual_seed(seed)
            if gpu:
                torch.cuda.manual_seed(seed)
            yield

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Turn errors that a module raises into one sentence that names it."""
        try:
            yield
        except (ConsilienceError, torch.OutOfMemoryError, MemoryError, Warning):
            raise
        except Exception as error:  # a module of others raises anything
            raise InvalidInput(
                f"the module cannot use these inputs: {str(error).partition(chr(10))[0]}",
                where=self.name,
            ) from error


def forward_in_parts(module: nn.Module, X: Tensor, precision: Precision) -> Tensor:
    """Compute a module's outputs in evaluation mode, some hundred rows at a time.

    Args:
        module: the network.
        X: inputs, shape ``(n, ...)``.
        precision: a recipe's.

    Returns:
        Shape ``(n, n_outputs)``.
    """
    module.eval()
    return torch.cat([forward(module, rows, precision) for rows in torch.split(X, PREDICT_ROWS)])


def _name_of(given: object) -> str:
    made_by = given.func if isinstance(given, partial) else given
    return str(getattr(made_by, "__name__", type(made_by).__name__)).lstrip("_")


def _dtype(module: nn.Module) -> torch.dtype:
    first = first_of(module)
    return torch.float32 if first is None else first.dtype


def _redraw(module: nn.Module) -> None:
    # Children first: a parent that initialises its children's parameters has the last word.
    for part in reversed(list(module.modules())):
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if callable(reset):
            reset()

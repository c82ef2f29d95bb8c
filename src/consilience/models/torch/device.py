"""Device and precision of a network: choice, memory, forward pass, transfer of rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.models.torch.recipe import Precision, TorchRecipe


def device_of(recipe: TorchRecipe, *, where: str) -> torch.device:
    """Return the device for a recipe.

    Args:
        recipe: its ``device`` and ``precision``.
        where: the model, for errors.

    Returns:
        The CPU or the GPU; ``"auto"`` takes a GPU if there is one.

    Raises:
        InvalidInput: there is no such device, or it does not multiply in that precision.
    """
    there = torch.cuda.is_available()
    if recipe.device == "cuda" and not there:
        raise InvalidInput(
            "there is no GPU that torch can use", where=where, mend='Set device = "auto" or "cpu".'
        )
    device = torch.device("cuda" if there and recipe.device != "cpu" else "cpu")
    wide = recipe.precision == "float32" or device.type == "cpu"
    if not wide and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InvalidInput(
            "this GPU does not compute in bfloat16", where=where, mend='Set precision = "float32".'
        )
    return device


def given_room(module: nn.Module, device: torch.device) -> nn.Module:
    """Allocate uninitialised memory for the numbers of a module on the meta device.

    ``nn.Module.to_empty`` does the same, but imports PyTorch's symbolic shapes for it.
    """
    for part in module.modules():
        for name, own in part._parameters.items():
            if own is not None:
                room = torch.empty(own.shape, dtype=own.dtype, device=device)
                part._parameters[name] = nn.Parameter(room, own.requires_grad)
        for name, kept in part._buffers.items():
            if kept is not None:
                part._buffers[name] = torch.empty(kept.shape, dtype=kept.dtype, device=device)
    return module


def forward(module: Callable[[Tensor], Tensor], X: Tensor, precision: Precision) -> Tensor:
    """Compute a module's outputs; with ``"bfloat16"`` products are of that precision, outputs float32.

    Args:
        module: its parameters, which are float32, stay so, and so do their gradients.
        X: its inputs, shape ``(n, ...)``.
        precision: a recipe's.
    """
    if precision == "float32":
        return module(X)
    with torch.autocast(X.device.type, dtype=torch.bfloat16):
        return module(X).float()


def filters_channels_last(module: nn.Module) -> None:
    """Store the filters of 2-d convolutions in the order that a GPU reads fastest, in place.

    Their output maps then have that order too. Networks with user-defined layers stay unchanged, because
    their ``forward`` may take views that exist in the usual order alone.
    """
    parts = list(module.modules())
    if all(_known(part) for part in parts):
        for part in parts:
            if isinstance(part, nn.Conv2d):
                part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _known(part: nn.Module) -> bool:
    source = type(part).__module__.partition(".")[0]
    return source in ("torch", "consilience") and "forward" not in vars(part)


class Rows:
    """Move rows to a device, and cache the last ones there, because all parties use the same public rows.

    Only the rows of a read-only array are cached, as long as the array exists and no module has written to
    them; the content of the array must not change. On a CPU rows are not cached.
    """

    def __init__(self) -> None:
        self._array: weakref.ref[Array] | None = None
        self._kept: tuple[Tensor, int] | None = None

    def moved(self, X: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Move rows to a device, as a contiguous tensor.

        Args:
            X: rows, shape ``(n, ...)``.
            dtype: type of the tensor.
            device: place of the tensor.
        """
        if self._array is not None and self._array() is X and self._kept is not None:
            rows, version = self._kept
            if rows.dtype == dtype and rows.device.type == device.type and rows._version == version:
                return rows
        # A copy, since torch warns of read-only arrays such as those that arrive by wire; in the usual
        # order, as images with channels last crash some convolutions (layers.ResidualBlock).
        wide = {torch.int64: np.int64, torch.float64: np.float64}.get(dtype, np.float32)
        if device.type == "cpu" or X.flags.writeable:
            return torch.from_numpy(np.array(X, dtype=wide, order="C")).to(device, dtype)
        self._forget()  # before the next are there
        with torch.inference_mode(False):  # they may be trained on later
            rows = torch.from_numpy(np.array(X, dtype=wide, order="C")).to(device, dtype)
        self._array, self._kept = weakref.ref(X, self._forget), (rows, rows._version)
        return rows

    def _forget(self, _: object = None) -> None:
        self._array = self._kept = None


ROWS = Rows()
"""Those of this process."""

"""Parameters of a module as named arrays: read, replaced, and moved by corrected gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import InvalidInput
from consilience.core.learners.base import GradientCorrection
from consilience.core.validation.arrays import Array


def floating_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Collect parameters and buffers of floating-point numbers by name, a shared one under its first name."""
    first: dict[int, str] = {}
    found = {}
    for name, part in module.state_dict(keep_vars=True).items():
        if not isinstance(part, Tensor) or not part.is_floating_point():
            continue
        if first.setdefault(id(part), name) == name:
            found[name] = part
    return found


def copies_of(module: nn.Module) -> dict[str, Array]:
    """Copy :func:`floating_tensors` to arrays of float32, or of float64 where the tensor is."""
    found = {}
    for name, part in floating_tensors(module).items():
        wide = part if part.dtype == torch.float64 else part.float()
        found[name] = np.array(wide.detach().cpu().numpy(), order="C")
    return found


def replace(module: nn.Module, values: Mapping[str, Array], *, where: str) -> None:
    """Write numbers into the tensors of :func:`floating_tensors`.

    Args:
        module: changed in place.
        values: name to an array of the tensor's shape, for every tensor.
        where: the model, for errors.

    Raises:
        InvalidInput: names or shapes differ.
    """
    own = floating_tensors(module)
    here = {name: tuple(part.shape) for name, part in own.items()}
    given = {name: np.shape(part) for name, part in values.items()}
    if differ := sorted(dict(here.items() ^ given.items())):
        name = differ[0]
        raise InvalidInput(
            f"parameter {name!r} has shape {given.get(name)}, here {here.get(name)}", where=where
        )
    with torch.no_grad():
        for name, part in own.items():
            part.copy_(torch.from_numpy(np.array(values[name])))


def check_correction(module: nn.Module, correction: GradientCorrection, *, where: str) -> None:
    """Raise ``InvalidInput`` unless a correction's arrays have the names and shapes of trained parameters.

    Args:
        module: the module to be trained.
        correction: a change of its gradients.
        where: the model, for the error.
    """
    if not correction.offset:
        return
    shapes = {name: tuple(part.shape) for name, part in _trained(module).items()}
    for name, values in correction.offset.items():
        if shapes.get(name) != np.shape(values):
            raise InvalidInput(
                f"a correction of shape {np.shape(values)} for parameter {name!r}, here "
                f"{shapes.get(name)}",
                where=where,
            )


def corrector(module: nn.Module, correction: GradientCorrection) -> Callable[[], None] | None:
    """Return a function that corrects the gradients of a module; ``None`` if the correction is zero.

    Args:
        module: its current parameters are the anchor.
        correction: the change.
    """
    given, strength = correction.offset or {}, correction.strength
    if not given and strength == 0:
        return None
    terms = [
        (
            part,
            part.detach().clone(),
            torch.from_numpy(np.array(given[name])).to(part) if name in given else None,
        )
        for name, part in _trained(module).items()
    ]

    def correct() -> None:
        with torch.no_grad():
            for part, anchor, offset in terms:
                if part.grad is None:  # not used by this batch
                    part.grad = torch.zeros_like(part)
                if offset is not None:
                    part.grad += offset
                if strength:
                    part.grad.add_(part - anchor, alpha=strength)

    return correct


def all_finite(module: nn.Module) -> bool:
    """True unless a parameter of the module is NaN or infinite."""
    parts = (part.detach() for part in module.parameters() if part.numel())
    return all(math.isfinite(end) for part in parts for end in torch.aminmax(part))


def _trained(module: nn.Module) -> dict[str, Tensor]:
    return {name: part for name, part in floating_tensors(module).items() if part.requires_grad}

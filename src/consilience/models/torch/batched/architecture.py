"""Architecture of a network: equal for networks that differ in the numbers of their parameters alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

LAYERS = (
    nn.Sequential, nn.Identity, nn.Flatten, nn.Unflatten, nn.Linear, nn.Conv2d, nn.ZeroPad2d,
    nn.MaxPool2d, nn.AvgPool2d, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LayerNorm,
)  # fmt: skip
"""Layers that a stacked network may have, because their kind, ``extra_repr()`` and parameters determine their
function; a user-defined layer declares the same by an attribute ``says_all = True`` of its class."""

OWN = {nn.Dropout: ("p",), nn.BatchNorm1d: ("eps", "momentum")}
"""Layers with draws or memory of each party's own, which perceptrons may have as well; and their settings."""


class Parameter(NamedTuple):
    """A parameter of a layer.

    Attributes:
        name: in the module.
        shape: of the tensor.
        dtype: of the tensor.
        trained: true if gradients change it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool


class Part(NamedTuple):
    """A layer.

    Attributes:
        name: in the module.
        kind: its class.
        settings: its ``extra_repr()``.
        parameters: by the layer's own names, in its order; buffers after them.
        numbers: settings of a layer of :data:`OWN`.
    """

    name: str
    kind: type[nn.Module]
    settings: str
    parameters: tuple[tuple[str, Parameter | None], ...]
    numbers: tuple[float | None, ...]


Architecture = tuple[Part, ...]
"""The layers in their order; a container precedes its layers."""


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name; torch's own two walks take three times as long."""
    return {
        f"{name}.{role}" if name else role: own
        for name, part in module.named_modules()
        for role, own in (*part._parameters.items(), *part._buffers.items())
        if own is not None
    }


def first_of(module: nn.Module) -> Tensor | None:
    """Return the first parameter of a module, to find the device and type of all; ``None`` without any."""
    for part in module.modules():
        for own in part._parameters.values():
            if own is not None:
                return own
    return None


def architecture(module: nn.Module) -> Architecture | None:
    """Describe the architecture of a module.

    Returns:
        ``None`` for a module with other layers than those of :data:`LAYERS` and :data:`OWN`, with hooks, or
        with parameters that several layers share.
    """
    found, seen = [], set()
    for name, part in module.named_modules(remove_duplicate=False):
        own_settings = OWN.get(type(part))
        known = type(part) in LAYERS or getattr(type(part), "says_all", False)
        hooked = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        hooked = hooked or part._backward_pre_hooks
        plain = known and not part._buffers
        if not (plain or own_settings) or hooked or "forward" in vars(part):
            return None
        parameters: list[tuple[str, Parameter | None]] = []
        for role, own in (*part._parameters.items(), *part._buffers.items()):
            if own is None:
                parameters.append((role, None))
                continue
            if id(own) in seen or own._backward_hooks or own._post_accumulate_grad_hooks:
                return None
            seen.add(id(own))
            described = f"{name}.{role}" if name else role, tuple(own.shape), own.dtype
            parameters.append((role, Parameter(*described, own.requires_grad)))
        numbers = tuple(getattr(part, setting) for setting in own_settings or ())
        found.append(Part(name, type(part), part.extra_repr(), tuple(parameters), numbers))
    return tuple(found) if seen else None

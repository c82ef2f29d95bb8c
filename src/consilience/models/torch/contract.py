"""Check a module for faults that its output shapes cannot show, before a learner adopts it.

Rows are answered one by one and together, once with the module's own parameters and once with others, and the
outputs of a classifier must be able to leave −1 … 1. All checks run on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from consilience.core.errors import ForeignValue, InvalidInput
from consilience.models.torch.recipe import Precision

_OFF = {"float32": 1e-2, "bfloat16": 0.1}
"""Smallest difference of two answers beyond rounding, as a share of the largest output, by precision."""

_GAINS = (4.0, 4.0, 32.0, 32.0, 256.0, 256.0)
"""Sizes of the random parameters used to find the range of outputs."""


def only_tensor(found: object, where: str) -> Tensor:
    """Return the output of a module's ``forward``, if it is a tensor.

    Args:
        found: the output.
        where: the module, for the error.

    Returns:
        The output, unchanged.

    Raises:
        InvalidInput: it is anything else, such as a dictionary or a tuple.
    """
    if isinstance(found, Tensor):
        return found
    keys, mend = (
        "",
        "Wrap the module in one whose forward returns the tensor of logits, or of values, alone.",
    )
    if isinstance(getattr(found, "logits", None), Tensor):
        mend += " Here it is .logits."
    elif isinstance(found, dict):
        keys = ", ".join(map(repr, list(found)[:5]))
        mend += f" The keys are {keys}."
    raise InvalidInput(
        f"the module gave a {type(found).__name__}, expected a tensor (n, n_outputs)",
        where=where,
        mend=mend,
    ) from (ForeignValue(keys) if keys else None)


def copied(module: nn.Module, where: str) -> nn.Module:
    """Copy a module.

    Args:
        module: the module.
        where: its name, for the error.

    Raises:
        InvalidInput: it cannot be copied.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:  # parts of a module may be anything
        raise InvalidInput(
            f"the module cannot be copied: {str(error).partition(chr(10))[0][:200]}",
            where=where,
            mend="Replace torch.nn.utils.weight_norm by torch.nn.utils.parametrizations.weight_norm, and "
            "detach() the tensors that forward keeps.",
        ) from error


def check_contract(
    module: nn.Module,
    rows: Sequence[Tensor],
    together: Tensor,
    answer: Callable[[nn.Module, Tensor], Tensor],
    *,
    classifies: bool,
    precision: Precision,
    where: str,
) -> None:
    """Check that a module's answer to a row is a logit, repeatable, and independent of the other rows.

    Args:
        module: the module, in evaluation mode; it is not changed.
        rows: inputs of single rows, each of shape ``(1, ...)``.
        together: inputs of the same rows as one batch, shape ``(n, ...)``.
        answer: from a module and its inputs to outputs ``(n, n_outputs)``.
        classifies: whether outputs are logits.
        precision: a recipe's.
        where: the module, for errors.

    Raises:
        InvalidInput: the module cannot be copied, has parameters that no training would reach, draws random
            numbers in evaluation mode, has answers that depend on the other rows of a batch, or gives
            probabilities in the place of logits.
    """
    _check_registered(module, where)
    trial = copied(module, where)
    with torch.enable_grad():
        if not answer(trial, together.clone()).requires_grad:
            raise InvalidInput(
                "training would change nothing: the module's outputs depend on no parameter with a gradient",
                where=where,
                mend="Leave torch.no_grad() and detach() out of forward, and let parameters require "
                "gradients. A module that is not to be trained is wrapped: "
                "consilience.Frozen(function, classes=[…]).",
            )
    trial = copied(trial, where)  # once more: what forward keeps may not be copied
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for gain in (None, 1.0):
            if gain is not None:
                _redraw(trial, gain, draw)
            # Clones: some modules write to their inputs.
            _check_apart(rows, together, lambda X: answer(trial, X.clone()), _OFF[precision], where)
        if classifies:
            _check_unbounded(trial, lambda: answer(trial, together.clone()), draw, where)


def _check_registered(module: nn.Module, where: str) -> None:
    """Raise ``InvalidInput`` for parameters that torch does not list, which are not trained and not saved."""
    known = {id(part) for part in module.parameters()}
    for part in module.modules():
        if type(part).__module__.startswith("torch."):
            continue
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            if any(id(one) not in known for one in _trainable(value)):
                raise InvalidInput(
                    f"attribute {name!r} of {type(part).__name__} has parameters that torch does not list, "
                    "so that they would not be trained",
                    where=where,
                    mend="Keep layers in torch.nn.ModuleList or ModuleDict, tensors in torch.nn.Parameter.",
                )


def _trainable(value: object) -> Iterator[Tensor]:
    """List the tensors that could be trained in an attribute: a tensor, a module, or a collection of some."""
    if isinstance(value, nn.Module):
        yield from (part for part in value.parameters() if part.requires_grad)
    elif isinstance(value, Tensor):
        if value.requires_grad and value.is_leaf:
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _trainable(one)
    elif isinstance(value, list | tuple | set):
        for one in value:
            yield from _trainable(one)


def _check_apart(
    rows: Sequence[Tensor],
    together: Tensor,
    answer: Callable[[Tensor], Tensor],
    off: float,
    where: str,
) -> None:
    first = answer(together)
    if not torch.isfinite(first).all():
        return
    # A plain bound: matrices of other sizes are multiplied in another order.
    off = off * float(first.abs().max()) + 1e-5
    if float((answer(together) - first).abs().max()) > off:
        raise InvalidInput(
            "the module answers the same rows differently each time",
            where=where,
            mend="In evaluation mode nothing may be random: give dropout training=self.training.",
        )
    alone = torch.cat([answer(row) for row in rows])
    apart = float((alone - first).abs().max())
    if apart > off:
        raise InvalidInput(
            f"the module's answer to a row depends on the rows beside it: by up to {apart:.3g}, with outputs "
            f"up to {float(first.abs().max()):.3g}",
            where=where,
            mend="The first axis counts rows: set batch_first=True, give softmax the axis dim=1, and take no "
            "mean over the batch.",
        )


def _check_unbounded(
    trial: nn.Module, answer: Callable[[], Tensor], draw: torch.Generator, where: str
) -> None:
    """Raise ``InvalidInput`` if outputs stay within −1 … 1 whatever the parameters."""
    least, seen, sums = 0.0, 0, True
    for gain in _GAINS:
        _redraw(trial, gain, draw)
        outputs = answer().double()
        if not torch.isfinite(outputs).all():
            continue
        if float(outputs.abs().max()) > 1 + 1e-3:
            return
        seen, least = seen + 1, min(least, float(outputs.min()))
        sums = sums and float((outputs.sum(dim=1) - 1).abs().max()) < 1e-2
    moved = any(part.requires_grad for part in trial.parameters())
    if seen < 2 or not moved:
        return
    what = "lie between -1 and 1 whatever its parameters are"
    mend = "Leave out the last Tanh or the like: the loss takes a softmax of the outputs."
    if least >= 0:
        what = "are probabilities" if sums else "lie between 0 and 1 whatever its parameters are"
        mend = f"Leave out the last {'Softmax' if sums else 'Sigmoid'}: the loss takes a softmax itself."
    raise InvalidInput(f"the module's outputs {what}, expected logits", where=where, mend=mend)


def _redraw(module: nn.Module, gain: float, draw: torch.Generator) -> None:
    """Redraw all parameters, so that a layer's outputs are about ``gain`` times as large as its inputs."""
    for part in module.parameters():
        if part.is_floating_point():
            fan = part[0].numel() if part.ndim > 1 else 1
            drawn = torch.randn(part.shape, generator=draw) * (gain / max(fan, 1) ** 0.5)
            part.copy_(drawn.to(part.device, part.dtype))

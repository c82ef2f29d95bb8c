"""Server side of protocols that exchange parameters: initial parameters, broadcasts, means.

The party's side is :mod:`consilience.methods.parameters.tasks`.
:mod:`consilience.methods.parameters.flat_parameters` flattens a model's parameters into one vector.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, load_file

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import LARGEST
from consilience.core.messages.sums import Weights
from consilience.core.protocols.base import RoundState
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice
from consilience.methods.parameters.flat_parameters import Parametric
from consilience.methods.parameters.tasks import (
    AdoptParameters,
    Architecture,
    DescribeParameters,
    Parameters,
    SendParameters,
)


def initialise(
    network: NetworkView,
    *,
    initial: Any,
    where: str,
    plain_steps: bool = False,
    counted: bool = True,
) -> RoundState:
    """Draw initial parameters, or use given ones, and send them to all parties (round 0).

    The ``memory`` of the returned state has the entries ``parameters``, shape ``(size,)``; ``holders``, the
    names of the parties with these parameters; ``trained``, the number of trainable parameters; and ``rows``,
    the number of training rows of all parties (without ``counted``, the number of parties).

    Args:
        network: the parties.
        initial: a model to start from (:func:`named_parameters`); by default the first party by name draws
            the parameters.
        where: the protocol, for errors.
        plain_steps: require plain gradient steps at all parties.
        counted: request the number of training rows.

    Returns:
        The state of round 0.

    Raises:
        InvalidInput: a party's model has no parameters, has different parameters from the first party's or
            ``initial``, or is not trained by plain steps although ``plain_steps`` is set.
    """
    described = network.require(
        DescribeParameters(round=0, plain_steps=plain_steps, counted=counted)
    )
    first = _alike(described, where)
    if initial is None:
        drawn = network.ask(SendParameters(round=0, size=first.size), to=[first.party])
        values = drawn.of(Parameters)[0].values.astype(first.precision)
    else:
        values = _fitting(named_parameters(initial, where=where), first, where)
    rows = sum(one.rows for one in described.of(Architecture))
    return broadcast(network, 0, values, {"trained": first.trained, "rows": rows}, where=where)


def broadcast(
    network: NetworkView, round: int, values: Array, memory: Mapping[str, Any], *, where: str
) -> RoundState:
    """Send new parameters to all parties at the end of a round.

    Args:
        network: the parties.
        round: the round.
        values: the parameters, shape ``(size,)``.
        memory: other entries of the server's memory.
        where: the protocol, for errors.

    Returns:
        The state of the round, with the parameters and the names of the parties which received them.

    Raises:
        RunFailed: the parameters are NaN, or beyond :data:`~consilience.core.messages.schema.LARGEST`.
    """
    if not np.abs(values).max() <= LARGEST:  # nor is NaN
        raise RunFailed(
            f"the server's parameters are NaN, or beyond {LARGEST:g}, after round {round}",
            where=where,
            mend="Lower the parties' learning_rate or the server's, or raise the strength.",
        )
    holders = network.ask(AdoptParameters(round=round, values=values)).parties
    return RoundState(round=round, memory={**memory, "parameters": values, "holders": holders})


def stale_parameters(state: RoundState, chosen: Sequence[str]) -> Array | None:
    """Return the current parameters if one of the chosen parties lacks them, else ``None``."""
    held: Sequence[str] = state.memory["holders"]
    return None if set(chosen) <= set(held) else np.asarray(state.memory["parameters"])


def average(replies: Replies, weights: Weights, precision: Any) -> Array:
    """Average the parties' parameters, and cast the mean to the agreed precision.

    Args:
        replies: replies of type :class:`Parameters`.
        weights: weighting of the parties.
        precision: dtype of the mean.

    Returns:
        The mean, shape ``(size,)``.
    """
    return replies.sum(Parameters, weights=weights, over=None).values.astype(precision)


def check_weights(weights: str, *, where: str) -> None:
    """Raise ``InvalidInput`` unless the weighting is in :data:`~consilience.core.messages.sums.Weights`."""
    check_choice("weights", weights, get_args(Weights), where=where)


def named_parameters(model: Any, *, where: str) -> dict[str, Array]:
    """Read the floating-point parameters of a model by name, as initial parameters.

    Args:
        model: a trained learner, such as one of ``history.models`` (including a distilled Boosted) or the
            result of ``ensemble.distilled(…)``; a ``torch.nn.Module``; a mapping from names to arrays; or the
            path of a safetensors file, such as a model file in a run folder.
        where: the protocol, for errors.

    Returns:
        The parameters by name.

    Raises:
        InvalidInput: the model has no parameters, or the file cannot be read.
    """
    source = getattr(model, "learner", model)
    parts: Mapping[str, Any]
    try:
        source = getattr(source, "student", source)  # of a boosted sum that is one model
    except InvalidInput as error:
        raise InvalidInput(f"initial: {error.what}", where=where, mend=error.mend) from error
    if isinstance(source, str | os.PathLike):
        try:
            parts = load_file(source)
            if parts.keys() == {"0", "weights"} and parts["weights"].tolist() == [1.0]:
                parts = load(parts["0"].tobytes())  # a boosted sum of one model, as it is saved
        except (OSError, SafetensorError, TypeError, KeyError) as error:
            raise InvalidInput(
                f"initial: {os.fspath(source)} cannot be read ({error})",
                where=where,
                mend="Give a safetensors file of parameters in float32 or float64.",
            ) from error
    elif isinstance(source, Mapping):
        parts = source
    elif isinstance(source, Parametric):
        try:
            parts = source.parameters()
        except InvalidInput as error:
            raise InvalidInput(f"initial: {error.what}", where=where, mend=error.mend) from error
    elif hasattr(source, "state_dict"):
        parts = {}
        for name, part in source.state_dict(keep_vars=True).items():
            if not any(part is other for other in parts.values()):  # what layers share, once
                parts[name] = part
    else:
        raise InvalidInput(
            f"initial is of type {type(model).__name__}, which has no parameters",
            where=where,
            mend="Give a model of the parties' architecture; another can be distilled into one first.",
        )
    arrays = {str(name): _array(part) for name, part in parts.items()}
    return {name: part for name, part in arrays.items() if part.dtype.kind == "f"}


def _array(part: Any) -> Array:
    """Convert an array or tensor to an array; floating-point tensors become double precision."""
    if not hasattr(part, "detach"):
        return np.asarray(part)
    tensor = part.detach().cpu()
    return np.asarray(tensor.double() if tensor.is_floating_point() else tensor)


def _fitting(parts: Mapping[str, Array], architecture: Architecture, where: str) -> Array:
    """Flatten given parameters; raise ``InvalidInput`` unless they match the architecture."""
    given = {f"{name} {part.shape}": part for name, part in parts.items()}
    for what, extra in (
        ("lacks", sorted(set(architecture.parts) - set(given))),
        ("has beside", sorted(set(given) - set(architecture.parts))),
    ):
        if extra:
            raise InvalidInput(
                f"initial {what} {', '.join(extra[:3])}: {architecture.party!r} has another architecture",
                where=where,
                mend="Give a model of the parties' architecture.",
            )
    if not all(np.isfinite(part).all() for part in parts.values()):
        raise InvalidInput("initial holds NaN or infinite parameters", where=where)
    return np.concatenate([given[part].ravel() for part in architecture.parts]).astype(
        architecture.precision
    )


def _alike(replies: Replies, where: str) -> Architecture:
    """Return the first party's architecture; raise ``InvalidInput`` if another party's differs."""
    first, *others = replies.of(Architecture)
    for other in others:
        here, there = (
            ", ".join(sorted(set(one.parts) - set(two.parts))[:3]) or "nothing else"
            for one, two in ((first, other), (other, first))
        )
        if here == there:  # nothing: the same names and shapes
            if (other.parts, other.trained, other.precision) == (
                first.parts,
                first.trained,
                first.precision,
            ):
                continue
            here, there = (
                f"{one.trained} trained numbers in {one.precision}" for one in (first, other)
            )
        raise InvalidInput(
            f"parameters differ: {first.party!r} has {here}; {other.party!r} has {there}",
            where=where,
            mend="Averaging needs one architecture; averaged_distillation works with any models.",
        )
    return first

"""The server's half of protocols that exchange parameters: first parameters, broadcasts, means.

The party's half is :mod:`consilience.methods.parameters.tasks`; how a model becomes one line of numbers is
said in :mod:`consilience.methods.parameters.flat_parameters`.
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
    """Draw first parameters, or take given ones, and send them to all parties: round 0.

    ``memory`` of the state then holds ``parameters``, shape ``(size,)``; ``holders``, who has them;
    ``trained``, how many numbers training changes; ``rows``, how many rows all parties train on.

    Args:
        network: the parties.
        initial: a model to start from (:func:`named_parameters`); by default the first party by name draws.
        where: the protocol, for errors.
        plain_steps: whether the protocol needs plain gradient steps.
        counted: whether it needs ``rows``.

    Raises:
        InvalidInput: a party's model has no parameters, or other ones than the first party's or ``initial``,
            or is not trained by plain steps where it should be.
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
    """Send all parties new parameters; the state then holds these, and the names of the parties that have
    them.

    Args:
        network: the parties.
        round: the round that ends.
        values: shape ``(size,)``.
        memory: what else the server remembers.
        where: the protocol, for errors.

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
    """The current parameters where one of the chosen parties lacks them, ``None`` where all hold them."""
    held: Sequence[str] = state.memory["holders"]
    return None if set(chosen) <= set(held) else np.asarray(state.memory["parameters"])


def average(replies: Replies, weights: Weights, precision: Any) -> Array:
    """The mean of the parties' parameters, in the precision agreed on, whatever a party may have sent.

    Args:
        replies: of type :class:`Parameters`.
        weights: how much each party counts.
        precision: the dtype of the mean.
    """
    return replies.sum(Parameters, weights=weights, over=None).values.astype(precision)


def check_weights(weights: str, *, where: str) -> None:
    """Raise ``InvalidInput`` on another weighting than :data:`~consilience.core.messages.sums.Weights`."""
    check_choice("weights", weights, get_args(Weights), where=where)


def named_parameters(model: Any, *, where: str) -> dict[str, Array]:
    """The parameters of a model by name, to start from.

    Args:
        model: a trained learner such as those of ``history.models``, a distilled Boosted among them, or
            what ``ensemble.distilled(…)`` gives; a ``torch.nn.Module``; names and arrays; or the path of
            a safetensors file that holds them, such as a model file in a run folder.
        where: the protocol, for errors.

    Raises:
        InvalidInput: it has no parameters, or the file cannot be read.
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
    """An array or a tensor as an array; tensors of fractions in double precision."""
    if not hasattr(part, "detach"):
        return np.asarray(part)
    tensor = part.detach().cpu()
    return np.asarray(tensor.double() if tensor.is_floating_point() else tensor)


def _fitting(parts: Mapping[str, Array], architecture: Architecture, where: str) -> Array:
    """Given parameters in line, if they are those of the architecture."""
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
    """The first party's architecture, which must be everybody's."""
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

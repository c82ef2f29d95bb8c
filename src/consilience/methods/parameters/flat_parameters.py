"""A party's parameters as one line of numbers, and its own state in protocols that correct gradients.

All parameters of a model travel in one line: those that training changes by gradients, by name, then the
others (buffers such as the running means of batch normalisation, and what is frozen), by name. Whole numbers,
such as counters, stay each party's own. Servers treat the first kind as their papers say, and take the mean
of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.base import (
    Parametric as Parametric,  # protocols, which see no learners, too
)
from consilience.core.party.view import PartyView
from consilience.core.validation.arrays import Array


def learner_of(party: PartyView) -> Parametric:
    """The party's learner, its first parameters drawn.

    Raises:
        InvalidInput: it has no parameters.
    """
    learner: object = party.trainer.learner
    if not isinstance(learner, Parametric):
        raise InvalidInput(
            "its model has no parameters to average",
            mend="Give every party the same torch module, or take averaged_distillation.",
        )
    if not learner.fitted:
        learner.start(party.rows.X, rng=party.trainer.rows.stream(0, "parameters"))
    return learner


def flatten(learner: Parametric) -> Array:
    """All parameters in one line, shape ``(size,)``."""
    return np.concatenate([part.ravel() for part in in_order(learner).values()])


def flatten_trainable(learner: Parametric) -> Array:
    """The part of :func:`flatten` that training changes, shape ``(trained,)``."""
    return np.concatenate([part.ravel() for part in _trainable(learner).values()])


def unflatten_trainable(learner: Parametric, values: Array) -> dict[str, Array]:
    """One number for every one that training changes, ``(trained,)``, as arrays by name."""
    return _by_name(_trainable(learner), values)


def load_flat(party: PartyView, values: Array | None) -> None:
    """Replace the parameters of the party's model by a line of them; do nothing where it is ``None``."""
    learner = learner_of(party)
    if values is not None:
        party.trainer.adopt(_by_name(in_order(learner), values))


def in_order(learner: Parametric) -> dict[str, Array]:
    """The parameters by name, in the order in which they travel."""
    parts, trained = learner.parameters(), learner.trained_parameters()
    return {
        name: parts[name] for name in sorted(parts, key=lambda name: (name not in trained, name))
    }


def _trainable(learner: Parametric) -> dict[str, Array]:
    """The parameters that training changes, by name, in the order in which they travel."""
    trained = learner.trained_parameters()
    return {name: part for name, part in in_order(learner).items() if name in trained}


def _by_name(parts: Mapping[str, Array], values: Array) -> dict[str, Array]:
    """One line of numbers in the shapes of these parts, in their order."""
    sizes = [part.size for part in parts.values()]
    if values.shape != (sum(sizes),):
        raise InvalidInput(f"{values.shape} parameters for a model that has {sum(sizes)}")
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return {
        name: piece.reshape(part.shape)
        for (name, part), piece in zip(parts.items(), pieces, strict=True)
    }


def recall(party: PartyView, counted: Mapping[str, int], size: int) -> Array:
    """The state that the party kept with its last answer that counted, shape ``(size,)``; 0 before the first.

    An answer that came late, or was refused, is not in the server's sums, and must not be in the party's own
    state either; the server says which was the last one that is.

    Args:
        party: whose memory is read.
        counted: party to the round of its last answer that counted.
        size: how many numbers they are.

    Raises:
        RunFailed: the party does not remember that round.
    """
    last = counted.get(party.name, 0)
    if last == 0:
        return np.zeros(size)
    for kept in ("proposed", "own"):
        if int(party.trainer.memory.get(f"{kept}_in", np.array(-1))) == last:
            return np.asarray(party.trainer.memory[kept])
    raise RunFailed(
        f"it does not remember round {last}, in which its answer counted",
        where=f"party {party.name!r}",
        mend="Start it with the state that it saved.",
    )


def remember(
    party: PartyView, counted: Mapping[str, int], round: int, own: Array, new: Array
) -> None:
    """Keep what :func:`recall` gave, and what takes its place if the answer of this round counts.

    Args:
        party: whose memory is written.
        counted: party to the round of its last answer that counted.
        round: this round.
        own: what :func:`recall` gave.
        new: the state that goes with the answer of this round.
    """
    party.trainer.memory.replace(
        {
            "own": own,
            "own_in": np.array(counted.get(party.name, 0)),
            "proposed": new,
            "proposed_in": np.array(round),
        }
    )

"""A party's parameters as one flat vector, and its local state in protocols that correct gradients.

All parameters of a model are sent in one vector: first the trainable parameters, sorted by name, then the
others (frozen parameters, and buffers such as the running means of batch normalisation), sorted by name.
Integer buffers, such as counters, stay local. Servers treat the trainable parameters according to their
papers, and average the others.
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
    """Return the party's learner, after drawing initial parameters if it has none yet.

    Raises:
        InvalidInput: the learner has no parameters.
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
    """Flatten all parameters into one vector, shape ``(size,)``."""
    return np.concatenate([part.ravel() for part in in_order(learner).values()])


def flatten_trainable(learner: Parametric) -> Array:
    """Flatten the trainable parameters, the first part of :func:`flatten`; shape ``(trained,)``."""
    return np.concatenate([part.ravel() for part in _trainable(learner).values()])


def unflatten_trainable(learner: Parametric, values: Array) -> dict[str, Array]:
    """Split a vector with one number per trainable parameter, ``(trained,)``, into arrays by name."""
    return _by_name(_trainable(learner), values)


def load_flat(party: PartyView, values: Array | None) -> None:
    """Load a flat vector of parameters into the party's model; ``None`` keeps the current parameters."""
    learner = learner_of(party)
    if values is not None:
        party.trainer.adopt(_by_name(in_order(learner), values))


def in_order(learner: Parametric) -> dict[str, Array]:
    """Return the parameters by name, in the order of the flat vector."""
    parts, trained = learner.parameters(), learner.trained_parameters()
    return {
        name: parts[name] for name in sorted(parts, key=lambda name: (name not in trained, name))
    }


def _trainable(learner: Parametric) -> dict[str, Array]:
    """The trainable parameters by name, in the order of the flat vector."""
    trained = learner.trained_parameters()
    return {name: part for name, part in in_order(learner).items() if name in trained}


def _by_name(parts: Mapping[str, Array], values: Array) -> dict[str, Array]:
    """Split a flat vector into arrays with the names and shapes of these parts."""
    sizes = [part.size for part in parts.values()]
    if values.shape != (sum(sizes),):
        raise InvalidInput(f"{values.shape} parameters for a model that has {sum(sizes)}")
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return {
        name: piece.reshape(part.shape)
        for (name, part), piece in zip(parts.items(), pieces, strict=True)
    }


def recall(party: PartyView, counted: Mapping[str, int], size: int) -> Array:
    """Return the state that the party stored with its last accepted answer; 0 before the first.

    Late or refused answers are not part of the server's sums, so they must not be part of the party's state
    either. The server sends the round of the last accepted answer.

    Args:
        party: the party.
        counted: round of each party's last accepted answer.
        size: length of the state.

    Returns:
        The state, shape ``(size,)``.

    Raises:
        RunFailed: the party has no stored state of that round.
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
    """Store the result of :func:`recall`, and the state that replaces it if this round's answer is accepted.

    Args:
        party: the party.
        counted: round of each party's last accepted answer.
        round: this round.
        own: result of :func:`recall`.
        new: state for this round's answer.
    """
    party.trainer.memory.replace(
        {
            "own": own,
            "own_in": np.array(counted.get(party.name, 0)),
            "proposed": new,
            "proposed_in": np.array(round),
        }
    )

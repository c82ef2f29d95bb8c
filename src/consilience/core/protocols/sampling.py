"""Sampling of the parties of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, nearest
from consilience.core.numerics.randomness import stream
from consilience.core.tasks.base import NetworkView


def participants(
    network: NetworkView,
    participation: int | float,
    *,
    round: int,
    probabilities: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Draw the parties of one round, from those that send answers.

    The draw is uniform, or has the probabilities p_j of :func:`inclusion`, by systematic sampling in random
    order (Madow 1949). Every party owns a piece of length p_j of a line of length C. A party is drawn if
    its piece contains one of the points u, u + 1, …, u + C − 1, with u uniform on [0, 1). No piece is
    longer than 1, so that C different parties are drawn, party j with probability p_j exactly.

    Args:
        network: network with the parties and the seed.
        participation: a number C of parties (int), or a share of them (float).
        round: the round, for the random stream.
        probabilities: party to q_j ≥ 0; only their ratios matter.

    Returns:
        Names, sorted.
    """
    parties = network.agreed.answering(network.parties)
    count = party_count(participation, len(parties))
    if count >= len(parties):
        return parties
    rng = stream(network.agreed.seed, "coordinator", round, "participation")
    if probabilities is None:
        return tuple(sorted(rng.choice(parties, size=count, replace=False).tolist()))
    shares = inclusion(probabilities, parties, count)
    order = rng.permutation(len(parties))
    ends = np.minimum(np.cumsum(shares[order]), count)
    ends[-1] = count  # which it is up to rounding
    points = np.minimum(rng.random() + np.arange(count), np.nextafter(count, 0))
    taken = order[np.searchsorted(ends, points, side="right")]
    return tuple(sorted(parties[position] for position in taken))


def inclusion(
    probabilities: Mapping[str, float], parties: Sequence[str], count: int
) -> NDArray[np.float64]:
    """Compute the probability of each party to take part in a round of ``count``: ``p_j = C q_j / Σ q``.

    Args:
        probabilities: party to q_j ≥ 0.
        parties: m names.
        count: C.

    Returns:
        Shape ``(m,)``, in the order of ``parties``; the sum is C.

    Raises:
        InvalidInput: a party is missing or unknown, a q_j is negative or not finite, or a p_j above 1.
    """
    where = "probabilities"
    if strangers := sorted(set(probabilities).difference(parties)):
        raise InvalidInput(
            f"no party is called {strangers[0]!r}", where=where, mend=nearest(strangers[0], parties)
        )
    if missing := [party for party in parties if party not in probabilities]:
        raise InvalidInput(
            f"there is none for {', '.join(missing)}",
            where=where,
            mend="Give one for every party; 0 for a party that is never to take part.",
        )
    given = np.array([probabilities[party] for party in parties], dtype=np.float64)
    for party, value in zip(parties, given, strict=True):
        if not 0 <= value < np.inf:
            raise InvalidInput(
                f"that of {party!r} is {value}", where=where, mend="Give numbers of 0 or more."
            )
    if given.sum() == 0:
        raise InvalidInput("all are 0", where=where, mend="Give some party more than 0.")
    shares: NDArray[np.float64] = count * given / given.sum()
    if shares.max() > 1 + 1e-9:
        largest = int(shares.argmax())
        most = int(given.sum() / given[largest] + 1e-9)
        raise InvalidInput(
            f"with {count} parties a round, {parties[largest]!r} would take part with probability "
            f"{shares[largest]:.3g}",
            where=where,
            mend=f"Let at most {most} take part (participation = {most}), or lower its probability.",
        )
    return shares


def party_count(participation: int | float, of: int) -> int:
    """Count the parties of a number (int) or a share (float): the nearest whole number, at least 1."""
    if isinstance(participation, Integral):  # numpy's too
        return int(participation)
    return max(1, int(participation * of + 0.5))

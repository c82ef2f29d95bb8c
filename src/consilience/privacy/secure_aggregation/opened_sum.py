"""Opening of a secure sum at the coordinator: line 5 of
:mod:`consilience.privacy.secure_aggregation.secure_sum`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from consilience.core.errors import RunFailed
from consilience.core.validation.arrays import Array
from consilience.privacy.secure_aggregation import masks
from consilience.privacy.secure_aggregation.messages import SumKeys, SumOpening


def open_sum(
    domain: bytes,
    threshold: int,
    keys: Mapping[str, SumKeys],
    senders: Sequence[str],
    inputs: Mapping[str, Array],
    openings: Mapping[str, SumOpening],
) -> Array:
    """Compute the sum of all masked inputs, modulo 2^64 (line 5, at the coordinator).

    Args:
        domain: identifier of the attempt.
        threshold: minimum number of parties that open the sum.
        keys: maps parties to their keys, sorted by name.
        senders: names of the parties that shared their secrets, sorted.
        inputs: maps parties to their masked integers, shape ``(n,)``, uint64.
        openings: maps parties to their revealed shares; at least ``threshold`` of them.

    Returns:
        The sum, shape ``(n,)``, uint64.

    Raises:
        RunFailed: there are too few openings, or shares do not recover a party's secret.
    """
    enough = dict(list(openings.items())[:threshold])
    if len(enough) < threshold:
        raise RunFailed(f"{len(enough)} of {threshold} parties opened the sum")
    places = {name: place for place, name in enumerate(keys, 1)}
    total: Array = np.add.reduce(list(inputs.values()))
    for row, name in enumerate(senders):
        shares = {places[u]: one.values[row].tobytes() for u, one in enough.items()}
        found = masks.combine(shares) or b""
        if name in inputs:
            right = hashlib.sha256(found).digest() == keys[name].commitment.tobytes()
        else:
            right = bool(found) and masks.public_of(found) == keys[name].masking.tobytes()
        if not right:
            raise RunFailed(
                f"the shares of party {name!r} do not give its secret: it, or one that handed a share out, "
                "does not keep to the protocol",
                mend="Begin another attempt.",
            )
        if name in inputs:
            total -= masks.mask(found, len(total))
            continue
        for other in inputs:  # what it would have added cancels what the others did
            add_pair(total, found, keys[other], name, domain)
    return total


def add_pair(total: Array, private: bytes, other: SumKeys, mine: str, domain: bytes) -> None:
    """Add in place the pairwise mask of two parties, from the name and masking key of one of them."""
    key = masks.shared_key(private, other.masking.tobytes(), domain + b" mask")
    values = masks.mask(key, len(total))
    if other.party > mine:
        total += values
    else:
        total -= values

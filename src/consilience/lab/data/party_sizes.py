"""Sizes of parties: shares of all rows, and whole numbers of rows from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number


def shares(
    sizes: str | Sequence[float] | None, parties: int, rng: np.random.Generator, spread: float
) -> NDArray[np.float64]:
    """Turn a partition's ``sizes`` option into the share of each party, shape ``(parties,)``.

    Args:
        sizes: ``None`` for equal shares, a kind of :func:`unequal`, or one number a party.
        parties: their number.
        rng: the only source of randomness.
        spread: inequality of random shares.

    Returns:
        Shares that sum to 1, shape ``(parties,)``.

    Raises:
        InvalidInput: an unknown kind, a wrong number of shares, or shares not positive and finite.
    """
    if sizes is None:
        return np.full(parties, 1 / parties)
    if isinstance(sizes, str):
        return unequal(sizes, parties, rng, spread)
    given = np.asarray(sizes, dtype=np.float64)
    if given.shape != (parties,) or not (np.isfinite(given) & (given > 0)).all():
        raise InvalidInput(f"sizes must be {parties} positive shares, one a party; got {sizes}")
    return np.asarray(given / given.sum(), dtype=np.float64)


def unequal(
    kind: str, parties: int, rng: np.random.Generator, spread: float = 1.0
) -> NDArray[np.float64]:
    """Draw shares of unequal parties, shape ``(parties,)``, that sum to 1.

    Args:
        kind: ``"power-law"``: the i-th largest share is proportional to i^(−spread);
            ``"lognormal"``: shares are proportional to exp(spread·z), z standard normal.
        parties: their number.
        rng: the only source of randomness (for the power law, of the order).
        spread: 0 for equal shares.
    """
    check_number("spread", spread, at_least=0, where="sizes of parties")
    if kind == "power-law":
        shares = rng.permutation(np.arange(1, parties + 1) ** -float(spread))
    elif kind == "lognormal":
        shares = np.exp(spread * rng.standard_normal(parties))
    else:
        raise InvalidInput(
            f"unknown sizes {kind!r}", mend=nearest(kind, ["power-law", "lognormal"])
        )
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def apportion(n: int, shares: Array) -> NDArray[np.int64]:
    """Round ``n·shares`` to whole numbers that sum to ``n``, each at least 1, by largest remainders.

    >>> apportion(10, np.array([0.85, 0.14, 0.01]))
    array([8, 1, 1])
    """
    exact = n * np.asarray(shares, dtype=np.float64)
    counts = np.floor(exact).astype(np.int64)
    largest_remainder = np.argsort(counts - exact, kind="stable")
    counts[largest_remainder[: n - counts.sum()]] += 1
    for party in np.flatnonzero(counts == 0):
        counts[counts.argmax()] -= 1
        counts[party] = 1
    return counts

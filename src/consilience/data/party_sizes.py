"""How large parties are: shares of all rows, and whole numbers from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInput, nearest
from consilience.validation.arrays import Array


def shares(
    sizes: str | Sequence[float] | None, parties: int, rng: np.random.Generator, spread: float
) -> NDArray[np.float64]:
    """The share of each party, from what a partition's ``sizes`` option may be."""
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
    """Random shares of unequal parties, shape ``(parties,)``, that sum to 1.

    Args:
        kind: ``"power-law"``: the i-th largest share is proportional to i^(−spread);
            ``"lognormal"``: shares are proportional to exp(spread·z), z standard normal.
        parties: how many.
        rng: the only source of randomness (for the power law, of who is which).
        spread: 0 for equal shares.
    """
    if not (np.isfinite(spread) and spread >= 0):
        raise InvalidInput(f"spread must be 0 or more; got {spread}")
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
    """Whole numbers that sum to ``n``, nearest to ``n·shares``, each at least 1.

    Rounding gives what is left to the largest remainders.


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

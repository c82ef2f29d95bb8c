"""Partitions of rows among parties by their inputs: clusters, or blocks in the order of a column.

Parties then hold the same classes of different rows, such as hospitals with older patients. Test rows are
dealt by the same rule as private rows, which gives each party a local test set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput
from consilience.core.numerics.feature_space import principal_directions, public_feature_space
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

Rows = NDArray[np.int64]

TRIES = 20
"""Starts of k-means until every cluster has its least number of rows."""

LEAST = 0.1
"""Rows that a cluster has at least, of an equal share."""


def clusters(
    y: Array,
    parties: int,
    rng: np.random.Generator,
    *,
    X: Array,
    fitted: int | None = None,
    portion: float = 0.0,
) -> list[Rows]:
    """Give each party a cluster of rows by k-means, mixed in part.

    Tables and pictures are compared by their standardised columns or pixels, texts by the principal
    directions of their hashed words.

    Args:
        y: labels or values, shape ``(n,)``.
        parties: number of clusters.
        rng: the only source of randomness.
        X: inputs, shape ``(n, ...)``.
        fitted: number of leading rows that k-means is fitted to; the remaining (test) rows go to the nearest
            cluster. By default all.
        portion: share of rows dealt at random instead, in [0, 1].

    Returns:
        Row indices of each party.

    Raises:
        InvalidInput: every start of k-means left a party with too few rows.
    """
    from sklearn.cluster import KMeans

    fitted = _check(y, parties, fitted, portion, "clusters")
    places = _places(X, fitted)
    for _ in range(TRIES):
        start = int(rng.integers(2**31))
        made = KMeans(parties, n_init=5, random_state=start).fit(places[:fitted])
        if np.bincount(made.labels_, minlength=parties).min() >= LEAST * fitted / parties:
            break
    else:
        raise InvalidInput(
            f"{TRIES} starts of k-means all left a party with less than {LEAST:.0%} of an equal share",
            where="partition clusters",
            mend="Take fewer parties, or partition by sorted blocks.",
        )
    return _mixed(made.predict(places), parties, rng, portion)


def in_order(
    y: Array,
    parties: int,
    rng: np.random.Generator,
    *,
    X: Array,
    fitted: int | None = None,
    column: int | None = None,
    portion: float = 0.0,
) -> list[Rows]:
    """Give each party a block of rows in the order of a column, mixed in part; blocks have equal sizes.

    Args:
        y: labels or values, shape ``(n,)``.
        parties: number of blocks.
        rng: the only source of randomness.
        X: inputs, shape ``(n, ...)``.
        fitted: number of leading rows that the blocks are made of, as in :func:`clusters`.
        column: number of the column, from 0; by default the first principal direction of the rows.
        portion: share of rows dealt at random instead, as in :func:`clusters`.

    Returns:
        Row indices of each party.
    """
    fitted = _check(y, parties, fitted, portion, "sorted")
    if column is None:
        places = _places(X, fitted)
        centred = places - places[:fitted].mean(axis=0)
        values = centred @ np.linalg.svd(centred[:fitted], full_matrices=False)[2][0]
    elif X.ndim != 2 or not 0 <= column < X.shape[1]:
        raise InvalidInput(
            f"column is {column}, and rows have shape {X.shape[1:]}",
            where="partition sorted",
            mend="Give the number of a column of a table, from 0; or leave it out.",
        )
    else:
        values = X[:, column].astype(np.float64)
    # Rows of one value are dealt by chance: half of a column may be zeros.
    order = np.lexsort((rng.random(fitted), values[:fitted]))
    codes = np.empty(len(y), dtype=np.int64)
    for block, rows in enumerate(np.array_split(order, parties)):
        codes[rows] = block
    ranked = values[:fitted][order]
    low, high = (np.searchsorted(ranked, values[fitted:], side=side) for side in ("left", "right"))
    places_of = low + (high - low) * rng.random(len(y) - fitted)
    codes[fitted:] = codes[order][np.minimum(places_of.astype(np.int64), fitted - 1)]
    return _mixed(codes, parties, rng, portion)


def _check(y: Array, parties: int, fitted: int | None, portion: float, name: str) -> int:
    """The number of rows that the rule is made of, once the options are found to fit."""
    where = f"partition {name}"
    check_number("portion", portion, at_least=0, at_most=1, where=where)
    check_number("parties", parties, at_least=1, whole=True, where=where)
    rows = len(y) if fitted is None else fitted
    if rows < parties:
        raise InvalidInput(f"{rows} rows cannot be dealt to {parties} parties", where=where)
    return rows


def _places(X: Array, fitted: int) -> Array:
    """Coordinates whose distances count, shape ``(n, d)``, by the first rows' scale."""
    if X.dtype.kind in "UO":
        space = public_feature_space(X[:fitted], np.random.default_rng(0))
        return principal_directions(space.public)(space(X))
    flat = X.reshape(len(X), -1).astype(np.float64)
    spread = flat[:fitted].std(axis=0)
    varies = spread > 1e-9 * np.abs(flat[:fitted]).max(axis=0)
    if not varies.any():
        raise InvalidInput("no two rows differ", where="partition by inputs")
    return np.asarray((flat[:, varies] - flat[:fitted, varies].mean(axis=0)) / spread[varies])


def _mixed(codes: Array, parties: int, rng: np.random.Generator, portion: float) -> list[Rows]:
    """Rows of each party, a portion of all dealt at random whatever their code."""
    drawn = rng.random(len(codes)) < portion
    codes = np.where(drawn, rng.integers(parties, size=len(codes)), codes)
    return [np.flatnonzero(codes == party) for party in range(parties)]

"""Partitions of rows among parties: pure functions from labels to one array of row indices per party.

Those by inputs are in :mod:`consilience.lab.data.input_partitions`.

Each takes the labels ``y`` (n,), the number of parties and a generator, and returns a list of
``parties`` ascending index arrays that share no row. All but ``classes(samples=…)`` deal out every
row. Impossible requests raise ``InvalidInput`` before anything is dealt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arguments import check_arguments
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.lab.data.input_partitions import clusters, in_order
from consilience.lab.data.party_sizes import apportion, shares

Rows = NDArray[np.int64]
Parts = list[Rows]

DIRICHLET_TRIES = 1000


def iid(
    y: Array,
    parties: int,
    rng: np.random.Generator,
    *,
    sizes: str | Sequence[float] | None = None,
    spread: float = 1.0,
) -> Parts:
    """Shuffle rows and deal them out.

    Args:
        y: labels or values, shape ``(n,)``.
        parties: their number.
        rng: the only source of randomness.
        sizes: ``None`` for equal parts, one share per party, or ``"power-law"`` / ``"lognormal"``
            (:func:`consilience.lab.data.unequal`).
        spread: inequality of these; 0 is equal.
    """
    _check_parties(y, parties)
    counts = apportion(len(y), shares(sizes, parties, rng, spread))
    return _cut(rng.permutation(len(y)), counts)


def classes(
    y: Array,
    parties: int,
    rng: np.random.Generator,
    *,
    per_party: int,
    samples: int | None = None,
    sizes: str | Sequence[float] | None = None,
    spread: float = 1.0,
) -> Parts:
    """Give each party a few classes (Kovalchuk et al. 2026: k classes per client).

    One party after another takes the ``per_party`` classes with the fewest holders so far, ties broken at
    random. Every class therefore has a holder, and numbers of holders differ by at most one between
    classes. The rows of a class are then divided among its holders.

    Args:
        y: class codes, shape ``(n,)``.
        parties: their number.
        rng: the only source of randomness.
        per_party: classes per party.
        samples: rows per party, in equal numbers of each of its classes; ``None`` for all.
        sizes: shares of the holders of a class, as in :func:`iid`; not with ``samples``.
        spread: inequality of these; 0 is equal.

    Returns:
        Sorted row indices of each party.
    """
    _check_parties(y, parties)
    known, rows_of = _by_class(y, "classes")
    if not 1 <= per_party <= len(known):
        raise InvalidInput(f"{per_party} classes per party, and there are {len(known)} classes")
    if parties * per_party < len(known):
        raise InvalidInput(
            f"{parties} parties with {per_party} classes each leave some of the {len(known)} "
            "classes without a holder",
            mend=f"Give each at least {-(-len(known) // parties)} classes, or add parties.",
        )
    if samples is not None and sizes is not None:
        raise InvalidInput("'samples' fixes the sizes of parties, 'sizes' too: give only one")
    weights = shares(sizes, parties, rng, spread)

    holders: list[list[int]] = [[] for _ in known]
    for party in range(parties):
        fewest_first = np.lexsort((rng.random(len(known)), np.array([len(h) for h in holders])))
        for c in fewest_first[:per_party]:
            holders[c].append(party)

    parts: list[list[Rows]] = [[] for _ in range(parties)]
    for code, rows, held_by in zip(known, rows_of, holders, strict=True):
        if len(rows) < len(held_by):
            raise InvalidInput(f"class {code} has {len(rows)} rows for {len(held_by)} parties")
        share = weights[held_by] / weights[held_by].sum()
        dealt = _cut(rng.permutation(rows), apportion(len(rows), share), ordered=False)
        for party, piece in zip(held_by, dealt, strict=True):
            parts[party].append(piece)
    if samples is not None:
        parts = [_first_of_each(pieces, samples, party) for party, pieces in enumerate(parts)]
    return [np.sort(np.concatenate(pieces)) for pieces in parts]


def dirichlet(
    y: Array, parties: int, rng: np.random.Generator, *, alpha: float, min_rows: int = 1
) -> Parts:
    """Divide each class among the parties in proportions drawn from Dirichlet(alpha, …, alpha).

    Proportions are redrawn until every party has ``min_rows`` rows (Yurochkin et al. 2019).

    Args:
        y: class codes, shape ``(n,)``.
        parties: their number.
        rng: the only source of randomness.
        alpha: small for parties with few classes, large for nearly equal ones.
        min_rows: the fewest rows a party may have.

    Returns:
        Sorted row indices of each party.

    Raises:
        InvalidInput: every try left a party with too few rows.
    """
    _check_parties(y, parties)
    check_number("alpha", alpha, above=0, where="partition dirichlet")
    if min_rows < 1 or parties * min_rows > len(y):
        raise InvalidInput(f"cannot give {parties} parties {min_rows} of {len(y):,} rows each")
    _, rows_of = _by_class(y, "dirichlet")
    for _ in range(DIRICHLET_TRIES):
        draws = rng.dirichlet(np.full(parties, alpha), size=len(rows_of))
        counts = [
            np.diff(np.rint(np.cumsum(p) / p.sum() * len(rows)).astype(int), prepend=0)
            for p, rows in zip(draws, rows_of, strict=True)
        ]
        if np.sum(counts, axis=0).min() >= min_rows:
            break
    else:
        raise InvalidInput(
            f"{DIRICHLET_TRIES} draws with alpha = {alpha} all left a party with fewer than "
            f"{min_rows} rows",
            mend="Raise alpha, or lower min_rows or the number of parties.",
        )
    dealt = [
        _cut(rng.permutation(rows), n, ordered=False)
        for rows, n in zip(rows_of, counts, strict=True)
    ]
    return [np.sort(np.concatenate(pieces)) for pieces in zip(*dealt, strict=True)]


def shards(y: Array, parties: int, rng: np.random.Generator, *, share: float) -> Parts:
    """Deal out a share evenly, and the rest in sequence, sorted by label (Shen et al. 2022).

    Args:
        y: labels or values, shape ``(n,)``.
        parties: their number.
        rng: the only source of randomness.
        share: the part s in [0, 1] that is dealt evenly: 0 for sorted parties, 1 for IID.
    """
    _check_parties(y, parties)
    check_number("share", share, at_least=0, at_most=1, where="partition shards")
    order = rng.permutation(len(y))
    even, rest = np.split(order, [round(share * len(y))])
    in_sequence = rest[np.argsort(y[rest], kind="stable")]
    # The even part is dealt from the last party on, so that who got one row more of the first
    # gets one less of the second.
    return [
        np.sort(np.concatenate(pair))
        for pair in zip(
            np.array_split(even, parties)[::-1], np.array_split(in_sequence, parties), strict=True
        )
    ]


def mixing(y: Array, parties: int, rng: np.random.Generator, *, portion: float) -> Parts:
    """Give consecutive blocks of labels, mixed in part (Afonin & Karimireddy 2022, Alpha).

    With ten classes two agents hold labels 0-4 and 5-9, five agents 2(i-1) and 2i-1. A portion of
    each agent's rows is taken, pooled, shuffled and dealt back evenly.

    Args:
        y: class codes, shape ``(n,)``.
        parties: number of agents, two or more.
        rng: the only source of randomness.
        portion: Alpha in [0, 1]: 0 for separate labels, 1 for the same distribution.
    """
    _check_parties(y, parties)
    check_number("portion", portion, at_least=0, at_most=1, where="partition mixing")
    known, _ = _by_class(y, "mixing")
    if not 2 <= parties <= len(known):
        raise InvalidInput(
            f"mixing splits the {len(known)} labels into blocks for 2 to {len(known)} parties; "
            f"got {parties}"
        )
    own, pool = [], []
    for block in np.array_split(known, parties):
        rows = rng.permutation(np.flatnonzero(np.isin(y, block)))
        taken, kept = np.split(rows, [round(portion * len(rows))])
        own.append(kept)
        pool.append(taken)
    dealt = np.array_split(rng.permutation(np.concatenate(pool)), parties)
    return [np.sort(np.concatenate(pair)) for pair in zip(own, dealt, strict=True)]


def by_group(
    y: Array, parties: int, rng: np.random.Generator, *, group: Sequence[str] | Array
) -> Parts:
    """Make one party of each value of a natural column, such as the hospital, in alphabetical order.

    Args:
        y: labels or values, shape ``(n,)``.
        parties: their number, which is the number of groups.
        rng: not used; every partition takes one.
        group: the group of each row, shape ``(n,)``.
    """
    group = np.asarray(group)
    if group.shape != (len(y),):
        raise InvalidInput(f"{len(y)} rows and {len(group)} groups")
    names = np.unique(group)
    if parties != len(names):
        raise InvalidInput(
            f"{parties} parties for {len(names)} groups ({', '.join(map(str, names[:10]))})",
            mend=f"Set parties to {len(names)}.",
        )
    return [np.flatnonzero(group == name) for name in names]


@dataclass(frozen=True)
class Partition:
    """A way to deal out rows.

    Attributes:
        deal: deals them.
        line: as listed to users.
        by: rows are dealt by this; own test rows follow from it.
    """

    deal: Callable[..., Parts]
    line: str
    by: Literal["chance", "classes", "shares", "group", "inputs"]


PARTITIONS: dict[str, Partition] = {
    "iid": Partition(iid, "rows shuffled and dealt out; sizes may differ", "chance"),
    "classes": Partition(classes, "each party holds a few classes (per_party)", "classes"),
    "dirichlet": Partition(
        dirichlet, "each class divided in Dirichlet(alpha) proportions", "shares"
    ),
    "shards": Partition(
        shards, "a share dealt evenly, the rest sorted by label (Shen et al.)", "shares"
    ),
    "mixing": Partition(
        mixing, "blocks of labels, a portion mixed (Afonin & Karimireddy)", "shares"
    ),
    "group": Partition(by_group, "by a natural column, such as the hospital", "group"),
    "clusters": Partition(
        clusters, "clusters of inputs by k-means, a portion mixed (portion)", "inputs"
    ),
    "sorted": Partition(
        in_order,
        "blocks in the order of a column or the main direction (column, portion)",
        "inputs",
    ),
}


def partition(name: str, y: Array, parties: int, rng: np.random.Generator, **options: Any) -> Parts:
    """Deal out rows by a partition's name.

    Args:
        name: a key of :data:`PARTITIONS`.
        y: labels or values, shape ``(n,)``.
        parties: their number.
        rng: the only source of randomness.
        options: of the partition, such as ``alpha`` of :func:`dirichlet`.

    Returns:
        Ascending row indices of each party.

    Raises:
        InvalidInput: an unknown name or option, with the nearest known, or an impossible request.

    >>> [part.size for part in partition("iid", np.zeros(5), 2, np.random.default_rng(0))]
    [3, 2]
    """
    if name not in PARTITIONS:
        raise InvalidInput(f"unknown partition {name!r}", mend=nearest(name, PARTITIONS))
    check_arguments(
        PARTITIONS[name].deal, options, where=f"partition {name}", given=("y", "parties", "rng")
    )
    y = np.asarray(y)
    if y.dtype.kind in "US":  # names of classes, in alphabetical order
        y = np.unique(y, return_inverse=True)[1]
    return PARTITIONS[name].deal(y, parties, rng, **options)


def _check_parties(y: Array, parties: int) -> None:
    check_number("parties", parties, at_least=1, whole=True, where="partition")
    if len(y) < parties:
        raise InvalidInput(f"{len(y)} rows cannot be dealt to {parties} parties")


def _by_class(y: Array, partition: str) -> tuple[Array, list[Rows]]:
    """Return the class codes that occur, and the rows of each."""
    if y.dtype.kind not in "iu":
        raise InvalidInput(
            f"needs class labels, and the targets are {y.dtype}",
            where=f"partition {partition}",
            mend="For regression use iid, shards or group.",
        )
    known = np.unique(y)
    return known, [np.flatnonzero(y == code) for code in known]


def _cut(order: Rows, counts: Array, *, ordered: bool = True) -> Parts:
    pieces = np.split(order, np.cumsum(counts)[:-1])
    return [np.sort(piece) for piece in pieces] if ordered else pieces


def _first_of_each(pieces: list[Rows], samples: int, party: int) -> list[Rows]:
    """Take ``samples`` rows, in equal numbers of each class, one more of the first ones."""
    if samples < len(pieces):
        raise InvalidInput(f"{samples} samples per party for {len(pieces)} classes each")
    each, over = divmod(samples, len(pieces))
    wanted = [each + (i < over) for i in range(len(pieces))]
    short = [len(piece) for piece, n in zip(pieces, wanted, strict=True) if len(piece) < n]
    if short:
        raise InvalidInput(
            f"{samples} samples per party need {wanted[0]} rows of each class, and party {party} "
            f"gets {min(short)} of one",
            mend="Lower samples, or give parties more classes.",
        )
    return [piece[:n] for piece, n in zip(pieces, wanted, strict=True)]

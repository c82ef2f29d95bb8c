"""Set rows aside: for the test, as public data without labels, or of some groups alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.tables.remarks import one_spelling

Rows = NDArray[np.int64]


def take_public(
    y: Array,
    amount: int | float,
    rng: np.random.Generator,
    *,
    stratified: bool = True,
    group: Array | None = None,
) -> tuple[Rows, Rows]:
    """Set rows aside, evenly over the labels.

    Rows are shuffled, sorted by label, and taken at equal steps from a random start, so that every
    class (every range of values, in regression) gives about its share. If possible, one row of each class
    stays: a hospital with a single healthy patient keeps it.

    Args:
        y: labels or values, shape ``(n,)``.
        amount: number of rows (int) or share of them (float in (0, 1)).
        rng: the only source of randomness.
        stratified: take rows evenly over the labels; else without regard to them.
        group: shape ``(n,)``; if given, a share is taken of each group, and a number is shared among them by
            their sizes.

    Returns:
        The rows that stay, and the rows set aside, both ascending.

    Raises:
        InvalidInput: no row would be taken, or no row would stay.

    >>> stay, public = take_public(np.array([0, 0, 0, 1, 1, 1]), 2, np.random.default_rng(0))
    >>> len(stay), len(public)
    (4, 2)
    """
    n = len(y)
    members = {"": np.arange(n)}
    if group is not None:
        members = {str(name): np.flatnonzero(group == name) for name in np.unique(group)}
    sizes = np.array([len(rows) for rows in members.values()])
    if isinstance(amount, float):
        counts = [_count(amount, len(rows), name) for name, rows in members.items()]
    else:
        counts = _shared(_count(amount, n), sizes)
    aside = []
    for rows, count in zip(members.values(), counts, strict=True):
        order = rng.permutation(rows)
        if stratified:
            order = order[np.argsort(y[order], kind="stable")]
            if y.dtype.kind in "iu":
                first = np.unique(y[order], return_index=True)[1]
                if count <= len(order) - len(first):
                    order = np.delete(order, first)
        aside.append(order[_equal_steps(len(order), count, rng)])
    public = np.sort(np.concatenate(aside))
    return np.setdiff1d(np.arange(n), public), public


def of_groups(group: Array, groups: Sequence[str], where: str, *, tests: bool) -> Array:
    """Return a mask of the rows of some groups, shape ``(n,)``, with differences of spelling allowed.

    Args:
        group: group of each row, shape ``(n,)``.
        groups: names of the groups.
        where: the file, for errors.
        tests: whether the rows are test rows, which may lack a group.

    Returns:
        The mask.

    Raises:
        InvalidInput: there is no such group.
    """
    spelling, _ = one_spelling([*group.tolist(), *groups])
    wanted = {spelling[name] for name in groups}
    found = [spelling[name] for name in group.tolist()]
    if (strange := sorted(wanted - set(found))) and not tests:
        raise InvalidInput(
            f"there is no group {strange[0]!r}", where=where, mend=nearest(strange[0], set(found))
        )
    return np.array([name in wanted for name in found], dtype=bool)


def _count(amount: int | float, n: int, group: str = "") -> int:
    share = amount if isinstance(amount, float) else amount / n
    # A comparison with NaN is false, so NaN is refused here as well.
    if not 0 < share < 1 or not 0 < (count := round(share * n)) < n:
        of = f" of group {group!r}" if group else ""
        raise InvalidInput(
            f"cannot set aside {amount} of {n:,} rows{of}",
            mend="Give a number of rows, or a share in (0, 1), that leaves some on each side"
            + (
                "; or leave the group out (groups = [...] names those that take part)."
                if group
                else "."
            ),
        )
    return count


def _shared(count: int, sizes: Array) -> list[int]:
    """Shares of groups in a number of rows by largest remainders; a row stays in each, if possible."""
    quotas, most = count * sizes / sizes.sum(), sizes - 1
    if most.sum() < count:
        most = sizes
    shares = np.minimum(quotas.astype(int), most)
    for _ in range(count - shares.sum()):
        room = np.where(shares < most, quotas - shares, -np.inf)
        shares[room.argmax()] += 1
    return [int(share) for share in shares]


def _equal_steps(n: int, count: int, rng: np.random.Generator) -> Array:
    """Mask of ``count`` of n sorted places at equal steps: of any run of m about m·count/n."""
    marks = (np.arange(n + 1) * count + rng.integers(n)) // n
    return np.diff(marks).astype(bool)

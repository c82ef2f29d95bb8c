"""Parties whose models contradict the others' rows, such as one whose classes are in another order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.aggregation.base import Stack
from consilience.validation.arrays import Array

_FEWEST_ROWS = 20
"""Rows of its own that a party must have where others have some too, before it is judged."""

_LEAST = 0.02
"""Of the median party's agreement beyond chance, how much every party should have with the others' rows; and
agreement below chance with everybody's rows from which one is named. It is little, since parties that know
next to one class alone agree little beyond chance (``benchmarks/choosing.py``)."""

_LITTLE = 2 / 3
"""Of the median party's agreement with everybody's rows, more than a party may have whose classes are in
another order. Honest parties of two classes, few of whose rows lie near others', had 0.8 of it and more."""

_SAME = 1e-3
"""Range of a probability over rows that all have the same answer."""

UNIFORM = "says the same of every public row: its model tells nothing apart"
"""Sentence about a party whose model is constant."""


def contradictions(stack: Stack, ratios: Array) -> Iterator[str]:
    """Name the parties that :func:`contradicting` finds, in a sentence each."""
    for _, said in contradicting(stack, ratios):
        yield said


def contradicting(stack: Stack, ratios: Array) -> Iterator[tuple[str, str]]:
    """Find the parties whose model says something else than everybody's rows on rows that lie near their own.

    A party's model and the rows of all parties near a public row are two witnesses of its class. Their
    agreement is compared with what it would be if they knew nothing of one another (Cohen's kappa). Whose
    model is wrong about everybody's rows more often than by chance, its own among them, is named; and whose
    model agrees with no others', and little with all, but would in another order of classes, as where its
    labels are swapped too. Of a model that has one answer for all rows, as one of few rows may, it is said
    that it has.

    Yields the party and a sentence about it.

    Args:
        stack: of three parties or more; fewer accuse one another alike.
        ratios: density ratios of rows and classes, shape ``(m, n, K)``; below 0 is 0.
    """
    near = np.maximum(ratios, 0)
    whole = near.sum(axis=0)
    others = [
        _table(outputs, own, whole - own) for outputs, own in zip(stack.outputs, near, strict=True)
    ]
    everyones = [
        _table(outputs, own, whole) for outputs, own in zip(stack.outputs, near, strict=True)
    ]
    judged = [c for c, table in enumerate(others) if table.sum() >= _FEWEST_ROWS]
    if len(judged) < 3:
        return
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that few starts need

    usual_of_all = float(np.median([_kappa(everyones[c]) for c in judged]))
    usual = float(np.median([_kappa(others[c]) for c in judged]))
    for c in judged:
        _, order = linear_sum_assignment(-others[c])
        with_all = _kappa(everyones[c])
        alone = _kappa(others[c]) <= _LEAST * usual and with_all <= _LITTLE * usual_of_all
        mended = alone and _kappa(others[c][:, order]) > usual / 2 > 0
        if np.ptp(stack.outputs[c], axis=0).max() < _SAME:
            yield stack.parties[c], f"{stack.parties[c]} {UNIFORM}"
            continue
        # A model of one class only, where all its rows are of that class, agrees neither more nor less.
        if not mended and not (with_all < -_LEAST and usual_of_all > 0):
            continue
        said = f"{stack.parties[c]} contradicts all others on rows near its own"
        if mended:
            swapped = (
                f"{stack.classes[says]!r} for {stack.classes[seen]!r}"
                for seen, says in enumerate(order)
                if seen != says
            )
            said += f", its classes may be in another order: it says {', '.join(swapped)}"
        yield stack.parties[c], said


def _table(outputs: Array, own: Array, evidence: Array) -> Array:
    """Rows by the class that evidence has them in, and the class that a model says, shape ``(K, K)``."""
    total = evidence.sum(axis=1)
    shared = np.minimum(own.sum(axis=1), total)
    share = shared / np.where(total > 0, total, 1)
    return np.asarray((evidence * share[:, None]).T @ outputs)


def _kappa(table: Array) -> float:
    """Agreement beyond chance, 1 at most; 0 where nothing can be told."""
    table = table / table.sum()
    chance = float(table.sum(axis=0) @ table.sum(axis=1))
    return (float(np.trace(table)) - chance) / (1 - chance) if chance < 1 else 0.0

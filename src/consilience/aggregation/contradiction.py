"""Parties whose models contradict the others' rows, such as one that is frozen or has its classes
reordered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from consilience.aggregation.base import Stack
from consilience.validation.arrays import Array

_FEWEST_ROWS = 20
"""Rows of its own that a party must have where others have some too, before it is judged."""

_LEAST = 0.1
"""Of the median party's agreement beyond chance, how much every party should have. Of 142 honest parties of
digits, MNIST, Fashion-MNIST, TREC and 20 newsgroups, trained on their own rows alone, none had less than
0.17; of as many whose classes were reordered 138 had less than this, and 138 that said anything at random."""


def contradictions(stack: Stack, ratios: Array) -> Iterator[str]:
    """Name the parties that say something else than all others' rows on rows that lie near their own.

    A party's model and the rows of all others near a public row are two witnesses of its class. On rows
    weighted by how many rows both have there, their agreement is compared with what it would be if they
    knew nothing of one another (Cohen's kappa). Where another order of classes mends it, that is said.

    Args:
        stack: of three parties or more; fewer accuse one another alike.
        ratios: density ratios of rows and classes, shape ``(m, n, K)``; below 0 is 0.
    """
    near = np.maximum(ratios, 0)
    tables = [
        _table(stack.outputs[c], near[c], near.sum(axis=0) - near[c]) for c in range(len(near))
    ]
    judged = {c: table for c, table in enumerate(tables) if table.sum() >= _FEWEST_ROWS}
    if len(judged) < 3:
        return
    kappas = {c: _kappa(table) for c, table in judged.items()}
    usual = float(np.median(list(kappas.values())))
    for c, kappa in kappas.items():
        if kappa > _LEAST * usual or usual <= 0:
            continue
        said = f"{stack.parties[c]} contradicts all others on rows near its own"
        _, order = linear_sum_assignment(-judged[c])
        if _kappa(judged[c][:, order]) > usual / 2:
            swapped = (
                f"{stack.classes[says]!r} for {stack.classes[seen]!r}"
                for seen, says in enumerate(order)
                if seen != says
            )
            said += f", its classes may be in another order: it says {', '.join(swapped)}"
        yield said


def _table(outputs: Array, own: Array, others: Array) -> Array:
    """Rows by the class that others' rows are of, and the class that a model says, shape ``(K, K)``."""
    total = others.sum(axis=1)
    shared = np.minimum(own.sum(axis=1), total)
    share = shared / np.where(total > 0, total, 1)
    return np.asarray((others * share[:, None]).T @ outputs)


def _kappa(table: Array) -> float:
    """Agreement beyond chance, 1 at most; 0 where nothing can be told."""
    table = table / table.sum()
    chance = float(table.sum(axis=0) @ table.sum(axis=1))
    return (float(np.trace(table)) - chance) / (1 - chance) if chance < 1 else 0.0

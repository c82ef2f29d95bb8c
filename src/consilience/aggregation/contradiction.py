"""Parties whose models contradict the others' rows, such as one whose classes are in another order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.aggregation.base import Stack
from consilience.validation.arrays import Array

_FEWEST_ROWS = 20
"""Rows of its own that a party must have where others have some too, before another order is looked for."""

_FEWEST_WRONG = 10
"""Rows that would be of another class if they were shuffled, from which a party is judged by them."""

_LESS, _CHANCE = 0.6, 1 / 3
"""Shares of the median correlation, less its standard error, and of the median agreement beyond chance, below
both of which a model contradicts everybody's rows (``benchmarks/liars.py``: of the latter honest parties had
0.49 and more, models trained on shuffled labels 0.30 at most)."""

_LEAST = 0.02
"""Of the median party's agreement beyond chance, how much every party should have with the others' rows."""

_LITTLE = 2 / 3
"""Of the median party's agreement with everybody's rows, more than a party may have whose classes are in
another order."""

_HELD = 0.05
"""Part of its largest class that a party must have of another one to be judged on it, and one row."""

_SAME = 1e-3
"""Range of a probability over rows that all have the same answer."""

_FIRST = 16
"""Rows that tell most models from those that answer all rows alike."""

UNIFORM = "says the same of every public row: its model tells nothing apart"
"""Sentence about a party whose model is constant."""


def contradicting(stack: Stack, ratios: Array) -> Iterator[tuple[str, str]]:
    """Find the parties whose model says something else than everybody's rows on rows that lie near their own.

    A party's model and the rows of all parties near a public row, its own among them, are two witnesses of
    its class; nobody counts for more rows than the median party. On rows of the classes that the party has,
    they should go together: a model that hardly does, by correlation and by agreement beyond chance (Cohen's
    kappa), where the usual party's does, is named. A specialist's own rows speak for it. So is a model that
    agrees with no others', and little with all, but would in another order of classes, as where its labels
    are swapped too.

    Yields the party and a sentence about it.

    Args:
        stack: of three parties or more; fewer accuse one another alike.
        ratios: density ratios of rows and classes, shape ``(m, n, K)``; below 0 is 0.
    """
    near = np.maximum(ratios, 0)
    claims = near.sum(axis=(1, 2))
    near = near * np.minimum(1, np.median(claims) / np.maximum(claims, 1e-12))[:, None, None]
    whole = near.sum(axis=0)
    all_rows = np.array([_agreement(*one, whole) for one in zip(stack.outputs, near, strict=True)])
    correlation, beyond, wrong, error = all_rows.T
    told = wrong >= _FEWEST_WRONG
    told &= told.sum() >= 3
    usual, usual_beyond = (
        np.median(one[told]) if told.any() else 0.0 for one in (correlation, beyond)
    )
    orders = _mended(stack.outputs, near)
    same = constant(stack.outputs)
    for c, party in enumerate(stack.parties):
        if same[c] and told[c]:
            yield party, f"{party} {UNIFORM}"
            continue
        little = correlation[c] + error[c] < _LESS * usual
        if c not in orders and not (told[c] and little and beyond[c] < _CHANCE * usual_beyond):
            continue
        said = f"{party} contradicts all others on rows near its own"
        if c in orders:
            swapped = (
                f"{stack.classes[says]!r} for {stack.classes[seen]!r}"
                for seen, says in enumerate(orders[c])
                if seen != says
            )
            said += f", its classes may be in another order: it says {', '.join(swapped)}"
        else:
            said += (
                f": its answers and everybody's rows correlate by {correlation[c]:.2f}, those of the usual "
                f"party by {usual:.2f}"
            )
        yield party, said


def constant(outputs: Array) -> Array:
    """Mark the parties whose answers, shape ``(m, n, K)``, are the same for every row of several."""
    if outputs.shape[1] == 1:
        return np.zeros(len(outputs), dtype=bool)
    same = np.asarray(np.ptp(outputs[:, :_FIRST], axis=1).max(axis=1) < _SAME)
    if same.any():
        same[same] = np.ptp(outputs[same], axis=1).max(axis=1) < _SAME
    return same


def _agreement(outputs: Array, own: Array, whole: Array) -> tuple[float, ...]:
    """Compare a model with everybody's rows of the classes that its party has, near the party's own rows.

    Args:
        outputs: the model's answers, shape ``(n, K)``.
        own: the party's rows near each public one, by class, of the same shape.
        whole: everybody's.

    Returns:
        Their correlation, their agreement beyond chance, how many of these rows would be of another class if
        they were shuffled, and the correlation's standard error where there is none.
    """
    known = _known(own)
    table = _table(outputs, own, whole) * known[:, None]
    rows = table.sum()
    if not rows:
        return 0.0, 0.0, 0.0, np.inf
    by_class, said = table.sum(axis=1) / rows, table.sum(axis=0) / rows
    mixed = 1 - float(by_class @ by_class)
    squared = float(_table(outputs**2, own, whole)[known].sum() / rows - said @ said)
    covariance = float(np.trace(table)) / rows - float(by_class @ said)
    return (
        covariance / float(np.sqrt(max(mixed * squared, 1e-12))),
        _kappa(table),
        rows * mixed,
        1 / float(np.sqrt(rows)),
    )


def _known(own: Array) -> Array:
    """Mark the classes that a party has rows of, near public rows."""
    held = own.sum(axis=0)
    return np.asarray(held >= max(1.0, _HELD * held.max()))


def _mended(outputs: Array, near: Array) -> dict[int, Array]:
    """Find the parties that would agree in another order of classes, and the order of each."""
    whole = near.sum(axis=0)
    others = [
        _table(said, own, whole - own) * _known(own)[:, None]
        for said, own in zip(outputs, near, strict=True)
    ]
    judged = [c for c, table in enumerate(others) if table.sum() >= _FEWEST_ROWS]
    if len(judged) < 3:
        return {}
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that few starts need

    with_all = {c: _kappa(_table(outputs[c], near[c], whole)) for c in judged}
    usual_of_all = float(np.median(list(with_all.values())))
    usual = float(np.median([_kappa(others[c]) for c in judged]))
    found = {}
    for c in judged:
        if _kappa(others[c]) <= _LEAST * usual and with_all[c] <= _LITTLE * usual_of_all:
            order = linear_sum_assignment(-others[c])[1]
            if _kappa(others[c][:, order]) > usual / 2 > 0:
                found[c] = order
    return found


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

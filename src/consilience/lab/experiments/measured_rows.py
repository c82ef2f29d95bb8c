"""Test rows of a simulated run: which are a party's own, and scores of single ones for intervals of gains.

A simulation holds everyone's rows and models in one place. Of a deployed party only metrics leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from consilience.core.learners import Model
from consilience.core.metrics.metrics import outcome_scores
from consilience.core.numerics.losses import log_losses
from consilience.core.numerics.outcomes import Outcome
from consilience.core.validation.arrays import Array
from consilience.lab.data import Dataset

MOST_NUMBERS = 1_000_000
"""Parties times test rows of one method and seed; of more nothing is kept."""

_TYPES: Mapping[str, str] = {"log_loss": "<f2", "accuracy": ""}
"""Types of the scores, of others ``"<f4"``; whether a row is right is a bit."""

COLUMN = "predicted "
"""What stands before the name of a column that an outcome predicts, where the ledger keeps it by row."""


def row_scores(
    models: Mapping[str, Model], X: Array, y: Array, outcome: Outcome | None = None
) -> Iterator[tuple[str, str, bytes]]:
    """Score every test row under every model: party, metric, and scores as :func:`decoded` reads them.

    The scores of a metric average to the metric: ``accuracy`` (1 for a correctly classified row),
    ``log_loss`` or ``mse``. For two classes, ``auc`` holds the probability of the second class, negative in
    rows of the first class. For an outcome, the scores are its metrics per row and its predicted columns
    (:data:`COLUMN`).

    Args:
        models: party to its trained model.
        X: everyone's test rows, shape ``(n, ...)``.
        y: names of their classes, shape ``(n,)``, or values; or an outcome's targets.
        outcome: predicted outcome; ``None`` for classes or values.

    Yields:
        Party, metric and encoded scores; no items if models times rows exceed :data:`MOST_NUMBERS`.
    """
    if len(models) * len(X) > MOST_NUMBERS:
        return
    for party, model in models.items():
        if outcome is not None:
            said = model.predict_proba(X)
            scores = outcome_scores(outcome, said, y)
            columns = zip(outcome.columns, outcome.answers(said).T, strict=True)
            scores |= {f"{COLUMN}{name}": values for name, values in columns}
            yield from ((party, name, _encoded(name, values)) for name, values in scores.items())
            continue
        if not model.classes:
            errors = (model.predict(X) - y.reshape(len(y), -1)) ** 2
            yield party, "mse", _encoded("mse", np.minimum(errors.mean(axis=1), 1e30))
            continue
        said, truth = model.predict_proba(X), np.asarray(model.classes) == y[:, None]
        right = said.argmax(axis=1) == truth.argmax(axis=1)
        yield party, "accuracy", _encoded("accuracy", right)
        yield party, "log_loss", _encoded("log_loss", log_losses(said, truth))
        if len(model.classes) == 2:
            second = np.maximum(said[:, 1], 1e-30)
            yield party, "auc", _encoded("auc", np.where(truth[:, 1], second, -second))


def _encoded(metric: str, scores: Array) -> bytes:
    kind = _TYPES.get(metric, "<f4")
    return (scores.astype(kind) if kind else np.packbits(scores)).tobytes()


def decoded(metric: str, data: bytes, rows: int, damaged: Callable[[str], Exception]) -> Array:
    """Read scores of rows.

    Args:
        metric: name of the metric.
        data: bytes of :func:`row_scores`.
        rows: the number of rows.
        damaged: makes the error for bytes of another size or with impossible scores.

    Returns:
        Scores, shape ``(rows,)``, float32.
    """
    kind = _TYPES.get(metric, "<f4")
    size = rows * np.dtype(kind).itemsize if kind else -(-rows // 8)
    if len(data) != size:
        raise damaged(f"scores of rows are {len(data):,} bytes, of {rows:,} rows")
    if not kind:
        return np.unpackbits(np.frombuffer(data, np.uint8), count=rows).astype(np.float32)
    scores = np.frombuffer(data, kind).astype(np.float32)
    signed = metric == "auc" or metric.startswith(COLUMN)
    if not np.isfinite(scores).all() or (not signed and scores.min(initial=0) < 0):
        raise damaged(f"scores of rows under {metric!r:.100} are not what they can be")
    return scores


def own_tests(
    dataset: Dataset, by: str, names: Sequence[str], held: Sequence[Array], dealt: Sequence[Array]
) -> tuple[Array, ...] | None:
    """Compute the weights that make the common test rows each party's local test set.

    Args:
        dataset: dataset with the test rows.
        by: property by which the partition deals rows.
        names: names of the parties.
        held: labels or values of each party's private rows.
        dealt: test rows dealt to each party by inputs.

    Returns:
        Per party, weights of shape ``(n_test,)``; ``None`` if the party's classes alone decide.
    """
    tests = dataset.strata(dataset.y_test)
    if by == "classes":
        return None
    if by == "chance":
        return (np.ones(len(tests)),) * len(names)
    if by == "inputs":
        return tuple(np.isin(np.arange(len(tests)), rows).astype(np.float64) for rows in dealt)
    if by == "group":
        assert dataset.group_test is not None
        return tuple(np.equal(dataset.group_test, name).astype(np.float64) for name in names)
    # A class weighs as much as it has of the party's rows, over what it has of the test rows.
    bins = len(dataset.strata_names or ()) or len(names)
    if dataset.strata_names is None:
        edges = np.quantile(np.concatenate(held), np.arange(1, bins) / bins)
        held = [np.searchsorted(edges, values, side="right") for values in held]
        tests = np.searchsorted(edges, tests, side="right")
    everywhere = np.bincount(tests, minlength=bins) / len(tests)
    shares = [np.bincount(labels, minlength=bins) / len(labels) for labels in held]
    return tuple(share[tests] / everywhere[tests] for share in shares)

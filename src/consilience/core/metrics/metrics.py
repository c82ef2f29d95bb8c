"""Metrics of a model on a party's test rows: over all of them, and over its own rows.

Test rows may be everyone's; a weight a row says how far it is one of the party's own. Every metric is
computed twice: under its name with equal weights, and with the suffix ``_own`` with these, if any is above 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import BOUNDS
from consilience.core.metrics.ranking import area_under_curve, average_precision
from consilience.core.numerics.outcomes import LEAST_LIKELIHOOD, Outcome
from consilience.core.validation.arrays import Array, read_only, unmasked
from consilience.core.validation.labels import Kind

BINS = 15
"""Bins of equal width that the calibration error sorts rows into, by their top probability."""

_ROUNDING = 1e-9
"""Distance from the end of a metric's range that rounding explains."""


def own_weights(given: Any, y: Array, classes: tuple[str, ...], *, where: str) -> Array:
    """Weigh test rows as own rows: as given, and by default 1 for rows of own classes, 0 for others.

    Args:
        given: one weight a row, 0 or more; ``None`` for the default.
        y: labels of the test rows, or values, shape ``(n, ...)``.
        classes: the party's own; empty for regression, where by default all rows are own rows.
        where: the party, for errors.

    Raises:
        InvalidInput: not one weight a row, or weights that cannot be.
    """
    if given is None:
        return np.isin(y, classes).astype(np.float64) if classes else np.ones(len(y))
    weights = np.asarray(unmasked(given))
    fits = weights.dtype.kind in "biuf" and weights.shape == (len(y),)
    if not fits or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InvalidInput(
            "the weights of its test rows as own rows are not one finite number, 0 or more, for each"
            if fits
            else f"the weights of its test rows as own rows are {weights.dtype} of shape {weights.shape}",
            where=where,
            mend=f"Give one finite number, 0 or more, for each of the {len(y):,} test rows."
            if len(y)
            else "Give test rows too: test=(X, y).",
        )
    if not weights.any():
        raise InvalidInput(
            "own marks none of its test rows as its own",
            where=where,
            mend="Leave it out, or mark some.",
        )
    return read_only(weights.astype(np.float64))


def metrics_of(
    outputs: Array, truth: Array, own: Array, *, kind: Kind, outcome: Outcome | None
) -> dict[str, float]:
    """Compute the metrics of predictions of classes, of values, or of an outcome.

    Args:
        outputs: predictions, shape ``(n, n_outputs)``.
        truth: rows of outputs, shape ``(n, n_outputs)``; of an outcome, values as it has them.
        own: weights of the rows as own rows, as of :func:`classification_metrics`.
        kind: ``"classification"`` or ``"regression"``.
        outcome: what is predicted, where that is neither a class nor a number.
    """
    if outcome is not None:
        return outcome_metrics(outcome, outputs, truth, own)
    measure = regression_metrics if kind == "regression" else classification_metrics
    return measure(outputs, truth, own)


def classification_metrics(
    outputs: Array, targets: Array, own: Array | None = None
) -> dict[str, float]:
    """Compute metrics of class probabilities; of two classes, ranks too.

    ``accuracy``; ``log_loss`` in nats; ``balanced_accuracy``, the mean over the classes that occur of the
    share of their rows that are right; ``ece``, the expected calibration error: the mean over rows of the
    distance between accuracy and mean top probability in their bin, of :data:`BINS`; ``brier``, the Brier
    score: the mean squared distance from the truth, of two classes in the probability of either. Where both
    of two classes occur ``auc``, the area under the ROC curve, and ``average_precision``, the mean of both
    classes' area under the curve of precision against recall.

    Args:
        outputs: probabilities, shape ``(n, n_classes)``.
        targets: one-hot, shape ``(n, n_classes)``.
        own: weights of the rows as own rows, shape ``(n,)``, 0 or more; ``None`` for no metrics of own rows.

    Source:
        Brier 1950, "Verification of forecasts expressed in terms of probability"; Guo et al. 2017,
        "On calibration of modern neural networks", equation 3.
    """
    truth, rows = targets.argmax(axis=1), np.arange(len(targets))
    right = (outputs.argmax(axis=1) == truth).astype(np.float64)
    loss = log_losses(outputs, targets)
    top = outputs.max(axis=1).astype(np.float64)
    bins = np.minimum(np.nan_to_num(top) * BINS, BINS - 1).astype(np.int64)
    gaps = right - top
    two = targets.shape[1] == 2
    squares = ((outputs - targets) ** 2).sum(axis=1) / (2 if two else 1)

    def weighted(weights: Array) -> dict[str, float]:
        total = weights.sum()
        held = np.bincount(truth, weights)
        hits = np.bincount(truth, weights * right)
        found = {
            "accuracy": hits.sum() / total,
            "log_loss": weights @ loss / total,
            "balanced_accuracy": (hits[held > 0] / held[held > 0]).mean(),
            "ece": np.abs(np.bincount(bins, weights * gaps)).sum() / total,
            "brier": weights @ squares / total,
        }
        if two and weights[truth == 0].any() and weights[truth == 1].any():
            found["auc"] = area_under_curve(outputs[rows, 1], truth == 1, weights)
            sides = [average_precision(outputs[rows, c], truth == c, weights) for c in (0, 1)]
            found["average_precision"] = sum(sides) / 2
        return found

    return _both(weighted, len(targets), own)


def regression_metrics(
    outputs: Array, targets: Array, own: Array | None = None
) -> dict[str, float]:
    """Compute the mean squared error and R², which is 0 where all targets are one.

    Args:
        outputs: values, shape ``(n, n_targets)``.
        targets: values, shape ``(n, n_targets)``.
        own: weights of the rows as own rows, as of :func:`classification_metrics`.
    """
    errors = ((outputs - targets) ** 2).mean(axis=1)

    def weighted(weights: Array) -> dict[str, float]:
        share = weights / weights.sum()
        spread = (share @ (targets - share @ targets) ** 2).mean()
        error = share @ errors
        return {"mse": error, "r2": 1 - error / spread if spread else 0.0}

    return _both(weighted, len(targets), own)


def outcome_metrics(
    outcome: Outcome, outputs: Array, y: Array, own: Array | None = None
) -> dict[str, float]:
    """Compute an outcome's metrics (:attr:`~consilience.core.numerics.outcomes.Outcome.metrics`).

    Args:
        outcome: the outcome.
        outputs: probabilities of its bins, shape ``(n, n_bins)``.
        y: its targets, shape ``(n, ...)``.
        own: weights of the rows as own rows, as of :func:`classification_metrics`.
    """
    scores = outcome_scores(outcome, outputs, y)

    def weighted(weights: Array) -> dict[str, float]:
        means = {name: weights @ values / weights.sum() for name, values in scores.items()}
        return means | outcome.further(outputs, y, weights)

    return _both(weighted, len(y), own)


def outcome_scores(outcome: Outcome, outputs: Array, y: Array) -> dict[str, Array]:
    """Compute those of an outcome's metrics that are means of rows, by name, shape ``(n,)`` each.

    The log loss is of what is known of each row
    (:meth:`~consilience.core.numerics.outcomes.Outcome.row_losses`).

    Args:
        outcome: the outcome.
        outputs: probabilities of its bins, shape ``(n, n_bins)``.
        y: its targets, shape ``(n, ...)``.
    """
    loss = outcome.row_losses(outputs, outcome.targets(y, own=y), y)
    return {"log_loss": loss, **outcome.row_scores(outputs, y)}


def _both(
    weighted: Callable[[Array], dict[str, float]], rows: int, own: Array | None
) -> dict[str, float]:
    """Metrics of all rows, each followed by that of own rows."""
    found = {name: [float(value)] for name, value in weighted(np.ones(rows)).items()}
    if own is not None and own.any():
        for name, value in weighted(own).items():
            found[name].append(float(value))
    return {
        name + suffix: _in_range(name, value)
        for name, values in found.items()
        for suffix, value in zip(("", "_own"), values, strict=False)
    }


def _in_range(name: str, value: float) -> float:
    """A metric at the end of its range where rounding alone has brought it beyond.

    >>> _in_range("accuracy", 1.0000000000000002), _in_range("accuracy", 1.1)
    (1.0, 1.1)
    """
    low, high = BOUNDS.get(name, (value, value))
    nearest = min(max(value, low), high)
    return nearest if abs(value - nearest) < _ROUNDING else value


def log_losses(outputs: Array, targets: Array) -> Array:
    """Compute the log loss of every row in nats, shape ``(n,)``.

    Args:
        outputs: probabilities, shape ``(n, n_classes)``.
        targets: one-hot or soft, shape ``(n, n_classes)``.
    """
    likelihood = np.maximum(outputs.astype(np.float64), LEAST_LIKELIHOOD)
    return np.asarray(-(targets * np.log(likelihood)).sum(axis=1))


def row_losses(outputs: Array, targets: Array, kind: Kind, among: Array | None = None) -> Array:
    """Compute the log loss in nats, or the squared error, of each row, shape ``(n,)``.

    Args:
        outputs: probabilities or values, shape ``(n, n_outputs)``.
        targets: the same shape; probabilities may be soft.
        kind: ``"classification"`` or ``"regression"``.
        among: targets by whose spread several values are brought to one unit, shape ``(m, n_outputs)``;
            ``None`` where they have one.
    """
    if kind == "classification":
        return log_losses(outputs, targets)
    if among is not None and targets.shape[1] > 1:
        spread = among.std(axis=0)
        unit = np.where(spread > 0, spread, 1.0)
        outputs, targets = outputs / unit, targets / unit
    return np.asarray(((outputs - targets) ** 2).sum(axis=1))

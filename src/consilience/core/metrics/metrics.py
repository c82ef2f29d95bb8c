"""Metrics of a model on a party's test rows: over all rows, and over the party's own rows.

Test rows may be the global test set; a weight per row is the degree to which it belongs to the party's own
distribution. Every metric is computed twice: under its name with equal weights, and with the suffix ``_own``
with the row weights, if any of them is above 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import LARGEST
from consilience.core.metrics.base import Metric, Scored
from consilience.core.metrics.ranking import area_under_curve, average_precision
from consilience.core.numerics.outcomes import Outcome
from consilience.core.registry import registered_names, registered_object
from consilience.core.validation.arrays import Array, read_only, unmasked
from consilience.core.validation.labels import Kind

BINS = 15
"""Bins of equal width that the calibration error sorts rows into, by their top probability."""

OWN = "_own"
"""Suffix of a metric's name, if the metric is over a party's own test rows."""

_GROUP = "consilience.metrics."


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


def _accuracy(scored: Scored, weights: Array) -> float:
    """Share of the rows whose most probable class is the true one."""
    return float(np.bincount(scored.truth, weights * scored.right).sum() / weights.sum())


def _log_loss(scored: Scored, weights: Array) -> float:
    """Mean log loss in nats."""
    return float(weights @ scored.losses / weights.sum())


def _balanced_accuracy(scored: Scored, weights: Array) -> float:
    """Mean recall over the classes that occur."""
    held = np.bincount(scored.truth, weights)
    hits = np.bincount(scored.truth, weights * scored.right)
    return float((hits[held > 0] / held[held > 0]).mean())


def _calibration_error(scored: Scored, weights: Array) -> float:
    """Mean, over rows, of the distance between accuracy and mean top probability in their bin."""
    top = scored.outputs.max(axis=1).astype(np.float64)
    bins = np.minimum(np.nan_to_num(top) * BINS, BINS - 1).astype(np.int64)
    gaps = scored.right - top
    return float(np.abs(np.bincount(bins, weights * gaps)).sum() / weights.sum())


def _brier(scored: Scored, weights: Array) -> float:
    """Mean squared distance from the truth; of two classes in the probability of either."""
    two = scored.targets.shape[1] == 2
    squares = ((scored.outputs - scored.targets) ** 2).sum(axis=1) / (2 if two else 1)
    return float(weights @ squares / weights.sum())


def _auc(scored: Scored, weights: Array) -> float | None:
    """Area under the ROC curve of two classes that both occur."""
    if not _ranked(scored, weights):
        return None
    return area_under_curve(scored.outputs[:, 1], scored.truth == 1, weights)


def _average_precision(scored: Scored, weights: Array) -> float | None:
    """Mean of the area under precision against recall of two classes that both occur."""
    if not _ranked(scored, weights):
        return None
    outputs, truth = scored.outputs, scored.truth
    return sum(average_precision(outputs[:, c], truth == c, weights) for c in (0, 1)) / 2


def _ranked(scored: Scored, weights: Array) -> bool:
    sides = (weights[scored.truth == c].any() for c in (0, 1))
    return scored.targets.shape[1] == 2 and all(sides)


def _squared_error(scored: Scored, weights: Array) -> float:
    """Mean squared error."""
    errors = ((scored.outputs - scored.targets) ** 2).mean(axis=1)
    return float(weights / weights.sum() @ errors)


def _r2(scored: Scored, weights: Array) -> float:
    """Share of explained variance; 0 if all targets are equal."""
    share, targets = weights / weights.sum(), scored.targets
    spread = (share @ (targets - share @ targets) ** 2).mean()
    # Constant targets have a spread of rounding size, not always 0.
    level = np.abs(targets).max()
    return 1 - _squared_error(scored, weights) / spread if spread > (1e-9 * level) ** 2 else 0.0


# Order of the figures in histories and reports. Brier 1950, "Verification of forecasts expressed in terms of
# probability"; Guo et al. 2017, "On calibration of modern neural networks", equation 3, for ece.
_CORE: Mapping[str, tuple[Metric, ...]] = {
    "classification": (
        Metric("accuracy", _accuracy, main=True),
        Metric("log_loss", _log_loss, high=LARGEST, larger_is_better=False),
        Metric("balanced_accuracy", _balanced_accuracy, printed=False),
        Metric(
            "ece",
            _calibration_error,
            label="calibration error",
            larger_is_better=False,
            printed=False,
        ),
        Metric(
            "brier", _brier, high=2.0, label="Brier score", larger_is_better=False, printed=False
        ),
        Metric("auc", _auc, label="AUC"),
        Metric("average_precision", _average_precision, printed=False),
    ),
    "regression": (
        Metric(
            "mse", _squared_error, high=LARGEST**2, label="MSE", larger_is_better=False, main=True
        ),
        Metric("r2", _r2, low=-(LARGEST**2), label="R²"),
    ),
    "outcomes": (),
}


_CORE_NAMES = {metric.name: metric for metrics in _CORE.values() for metric in metrics}


@cache
def metrics_for(group: str) -> tuple[Metric, ...]:
    """Import the metrics of a group: core's, then those that packages register, by name.

    Args:
        group: ``"classification"``, ``"regression"`` or ``"outcomes"``.
    """
    return (*_CORE[group], *(_registered(group, name) for name in registered_names(_GROUP + group)))


def find_metric(name: str) -> Metric | None:
    """Find a metric, and import its package; ``None`` for a name that no package here has.

    Args:
        name: name of the metric, with ``_own`` or without.
    """
    name = name.removesuffix(OWN)
    if name in _CORE_NAMES:
        return _CORE_NAMES[name]
    group = next((group for group in _CORE if name in registered_names(_GROUP + group)), None)
    return None if group is None else _registered(group, name)


def metric_names() -> list[str]:
    """List the names of all metrics, sorted, without importing packages."""
    return sorted({*_CORE_NAMES}.union(*(registered_names(_GROUP + group) for group in _CORE)))


def main_metric(names: Iterable[str]) -> str | None:
    """Return the first main metric among these names; ``None`` without one."""
    return next((name for name in names if (one := find_metric(name)) and one.main), None)


def sign_of(name: str) -> int:
    """Return 1 if larger is better for this metric, or if the metric is unknown here; otherwise -1."""
    found = find_metric(name)
    return 1 if found is None or found.larger_is_better else -1


def _registered(group: str, name: str) -> Metric:
    found = registered_object(_GROUP + group, name)
    if not isinstance(found, Metric) or found.name != name:
        raise InvalidInput(
            f"it is {found!r}",
            where=f"entry point {name} of {_GROUP}{group}",
            mend=f"Name a Metric whose name is {name!r}.",
        )
    return found


def metrics_of(
    outputs: Array,
    truth: Array,
    own: Array | None = None,
    *,
    kind: Kind = "classification",
    outcome: Outcome | None = None,
) -> dict[str, float]:
    """Compute the metrics of predictions of classes, of values, or of an outcome.

    Args:
        outputs: predictions, shape ``(n, n_outputs)``.
        truth: true outputs, shape ``(n, n_outputs)``; for an outcome, its targets, shape ``(n, ...)``.
        own: weights of the rows as own rows, shape ``(n,)``, 0 or more; ``None`` omits the metrics on own
            rows.
        kind: ``"classification"`` or ``"regression"``.
        outcome: the predicted outcome, unless it is a class or a number.

    Returns:
        Metric name to its value over all rows; with the suffix ``_own``, over own rows. Undefined metrics,
            such as the AUC with one class, are missing.

    >>> metrics_of(np.array([[0.9, 0.1]]), np.eye(2)[:1])["accuracy"]
    1.0
    """
    if outcome is not None:
        return _both(partial(_outcome_metrics, outcome, outputs, truth), len(truth), own)
    scored = Scored(outputs, truth)

    def weighted(weights: Array) -> dict[str, float]:
        found = {one.name: one.compute(scored, weights) for one in metrics_for(kind) if one.compute}
        return {name: value for name, value in found.items() if value is not None}

    return _both(weighted, len(truth), own)


def _outcome_metrics(
    outcome: Outcome, outputs: Array, y: Array, weights: Array
) -> dict[str, float]:
    scores = outcome_scores(outcome, outputs, y)
    means = {name: weights @ values / weights.sum() for name, values in scores.items()}
    return means | outcome.further(outputs, y, weights)


def outcome_scores(outcome: Outcome, outputs: Array, y: Array) -> dict[str, Array]:
    """Compute the per-row metrics of an outcome, whose mean over rows is the metric.

    The log loss covers the known part of each row
    (:meth:`~consilience.core.numerics.outcomes.Outcome.row_losses`).

    Args:
        outcome: the outcome.
        outputs: probabilities of its bins, shape ``(n, n_bins)``.
        y: its targets, shape ``(n, ...)``.

    Returns:
        Metric name to its values, shape ``(n,)`` each.
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
        name + suffix: value if (one := find_metric(name)) is None else one.in_range(value)
        for name, values in found.items()
        for suffix, value in zip(("", OWN), values, strict=False)
    }

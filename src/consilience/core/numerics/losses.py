"""Losses of single rows: the log loss and the squared error."""

from __future__ import annotations

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind

LEAST_LIKELIHOOD = 1e-12
"""Probabilities are raised to this before their logarithm is taken."""


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

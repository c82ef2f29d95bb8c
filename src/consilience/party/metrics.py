"""Metrics of a model on a party's test rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.validation.arrays import Array


def classification_metrics(
    outputs: Array, targets: Array, *, local: NDArray[np.bool_]
) -> dict[str, float]:
    """Compute accuracy, log-loss in nats, and the area under the ROC curve where there are two classes.

    Args:
        outputs: probabilities, shape ``(n, n_classes)``.
        targets: one-hot, shape ``(n, n_classes)``.
        local: rows of the party's own classes, whose accuracy is given as ``accuracy_local``; shape ``(n,)``.
    """
    right = outputs.argmax(axis=1) == targets.argmax(axis=1)
    likelihood = np.clip(outputs[targets.astype(bool)], 1e-12, None)
    values = {"accuracy": float(right.mean()), "log_loss": float(-np.log(likelihood).mean())}
    if local.any():
        values["accuracy_local"] = float(right[local].mean())
    if targets.shape[1] == 2 and 0 < targets[:, 1].sum() < len(targets):
        from sklearn.metrics import roc_auc_score

        values["auc"] = float(roc_auc_score(targets[:, 1], outputs[:, 1]))
    return values


def regression_metrics(outputs: Array, targets: Array) -> dict[str, float]:
    """Compute the mean squared error and R², which is 0 where all targets are one.

    Args:
        outputs: values, shape ``(n, n_targets)``.
        targets: values, shape ``(n, n_targets)``.
    """
    error = ((outputs - targets) ** 2).mean()
    spread = targets.var(axis=0).mean()
    return {"mse": float(error), "r2": float(1 - error / spread) if spread else 0.0}

"""Calibration of a classifier: a temperature and biases of classes, fitted to rows it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

_LEAST_SHARPNESS = 0.05
"""Lower bound of 1/T, so that even a very wrong model keeps some influence."""

_TRUST_IN_TEMPERATURE, _TRUST_IN_PRIORS = 4.0, 1.0
"""Precisions of 1/T around 1, and of each bias around 0, before any row is seen: of standard deviation ½ and
1. With few rows a model stays nearly as it is."""


@prints_no_rows
@dataclass(frozen=True)
class Calibration:
    """Correction ``softmax(z / T + b)`` of logits z.

    Attributes:
        sharpness: 1/T; below 1 for an overconfident model.
        biases: b, shape ``(n_classes,)``; they sum to 0, and are 0 for classes without calibration rows.
    """

    sharpness: float
    biases: Array

    @classmethod
    def fit(cls, logits: Array, targets: Array) -> Calibration:
        """Fit to calibration rows by maximum a posteriori, with a normal prior centred on no correction.

        The problem is convex in 1/T and b. Only classes with calibration rows get a bias, because these rows
        carry no information about other classes. For a model trained with balanced classes, the biases
        restore the party's class shares.

        Args:
            logits: logits of the rows, shape ``(n, n_classes)``; n may be 0.
            targets: one-hot labels of the rows, same shape.

        Source:
            Guo et al. 2017 (temperature scaling); Alexandari, Kundaje & Shrikumar 2020 (with biases).

        >>> Calibration.fit(np.zeros((0, 2)), np.zeros((0, 2))).biases.tolist()
        [0.0, 0.0]
        """
        held = np.flatnonzero(targets.any(axis=0))
        centred = np.eye(targets.shape[1])[held] - targets.any(axis=0) / max(len(held), 1)

        from scipy.optimize import minimize  # a tenth of a second that few starts need

        def loss(free: Array) -> tuple[float, Array]:
            sharpness, biases = free[0], free[1:] @ centred
            logs = log_softmax(sharpness * logits + biases, axis=1)
            slopes = np.exp(logs) - targets
            off = free - start
            value = -(targets * logs).sum() + (trust * off**2).sum() / 2
            gradient = np.append((slopes * logits).sum(), centred @ slopes.sum(axis=0))
            return float(value), gradient + trust * off

        start = np.append(1.0, np.zeros(len(held)))
        trust = np.append(_TRUST_IN_TEMPERATURE, np.full(len(held), _TRUST_IN_PRIORS))
        bounds = [(_LEAST_SHARPNESS, None), *[(None, None)] * len(held)]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(float(found[0]), found[1:] @ centred)

    def of(self, logits: Array) -> Array:
        """Correct logits, shape ``(n, n_classes)``."""
        return self.sharpness * logits + self.biases

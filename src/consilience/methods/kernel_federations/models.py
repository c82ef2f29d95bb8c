"""The clients' regressors, as coefficients on their own and on the public rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.kernel_federations.gathered import Gathered, Points


@prints_no_rows
@dataclass(frozen=True)
class Models:
    """One regressor per client: ``f_j(x) = k(x, X_j) a_j + k(x, X_p) Q u_j``.

    Attributes:
        gathered: the training rows.
        own: a, shape ``(m, n, k)``.
        shared: u, shape ``(m, r, k)``, or ``(1, r, k)`` if it is the same for all clients.
    """

    gathered: Gathered
    own: Array
    shared: Array

    def predict(self, X: Array | Points) -> Array:
        """Compute every client's values, shape ``(m, n_rows, k)``.

        Args:
            X: rows of shape ``(n_rows, d)``, or the result of ``KernelFederation.points`` for them.
        """
        points = X if isinstance(X, Points) else self.gathered.points(X)
        m, r, k = self.shared.shape
        # One product for all clients, not one each.
        together = points.coordinates @ self.shared.transpose(1, 0, 2).reshape(r, m * k)
        shared = together.reshape(-1, m, k).transpose(1, 0, 2)
        return np.concatenate(
            [
                between @ self.own[block] + (shared if len(shared) == 1 else shared[block])
                for block, between in self.gathered.between(points)
            ]
        )

    def coordinates(self) -> Array:
        """Compute every client's predictions of the public rows, in the eigenbasis: shape ``(m, r, k)``."""
        shared = self.gathered.basis.eigenvalues[:, None] * self.shared
        return np.concatenate(
            [
                coupling.transpose(0, 2, 1) @ self.own[block]
                + (shared if len(shared) == 1 else shared[block])
                for block, (_, coupling) in self.gathered.couplings()
            ]
        )

    def mse(self, X: Array | Points, y: Array) -> Array:
        """Compute every client's mean squared error, shape ``(m,)``.

        Args:
            X: as for :meth:`predict`.
            y: shape ``(n_rows,)`` or ``(n_rows, k)``.
        """
        predicted = self.predict(X)
        truth = np.asarray(y, dtype=np.float64).reshape(predicted.shape[1:])
        return np.asarray(np.square(predicted - truth).mean(axis=(1, 2)))

    def __len__(self) -> int:
        return len(self.own)

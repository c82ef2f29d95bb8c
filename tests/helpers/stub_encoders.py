"""An encoder in a module of its own, which nothing imports unless it is trusted."""

from __future__ import annotations

import numpy as np


class Halves:
    """Half of every number."""

    key = "halves"

    def __call__(self, X):
        return np.asarray(X).reshape(len(X), -1) / 2

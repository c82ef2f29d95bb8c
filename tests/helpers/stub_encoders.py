"""An encoder in a module of its own, which nothing imports unless it is trusted."""

from __future__ import annotations

import numpy as np


class Letters:
    """How often a text has an a, and how often a b."""

    key = "letters"

    def __call__(self, X):
        return np.array([[text.count("a"), text.count("b")] for text in X], dtype=float)


class Halves:
    """Half of every number."""

    key = "halves"

    def __call__(self, X):
        return np.asarray(X).reshape(len(X), -1) / 2

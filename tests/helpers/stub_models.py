"""Models that a test can follow with pencil and paper; importable from worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

from consilience.core.learners import Abilities, Learner


class Share(Learner):
    """Answers every row with the weighted mean of the targets it was last fitted on."""

    suffix = ".npy"

    def __init__(self, kind="classification", *, sample_weight=True, incremental=False):
        self.abilities = Abilities(
            kind, "native", sample_weight=sample_weight, incremental=incremental
        )
        self.mean = None
        self.fits = []

    def fit(self, X, targets, *, rng, weights=None, validation=None, phase="private"):
        self.fits.append((phase, X.copy(), targets.copy(), weights))
        self.mean = np.average(targets, axis=0, weights=weights)

    def predict(self, X):
        return np.tile(self.mean, (len(X), 1))

    @property
    def fitted(self):
        return self.mean is not None

    def save(self, path: Path):
        np.save(path, self.mean)

    def load(self, path: Path):
        self.mean = np.load(path)


class Writes(Share):
    """Scales its inputs in place, as careless models do."""

    def predict(self, X):
        X *= 2
        return super().predict(X)


class Dies(Share):
    """Ends its own process at a prediction once a file is there, as the kernel does without memory."""

    def __init__(self, *, once):
        super().__init__()
        self.once = once

    def predict(self, X):
        if self.once.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().predict(X)


class Says(Share):
    """Raises with what no file or terminal takes in its message."""

    def predict(self, X):
        raise RuntimeError("half a pair: \ud800")


class Threads(Share):
    """Answers with the most threads that a numerical library of its process would use, torch loaded late."""

    def predict(self, X):
        import sklearn.ensemble  # noqa: F401 -- OpenMP
        import torch
        from threadpoolctl import threadpool_info

        counts = [torch.get_num_threads(), *(one["num_threads"] for one in threadpool_info())]
        return np.full((len(X), 1), float(max(counts)))


class Memory(Share):
    """Reads all rows, and answers with the kilobytes of memory that no file stands behind."""

    def predict(self, X):
        assert sum(row.sum() for row in X) == X.size
        parts = Path("/proc/self/smaps_rollup").read_text().splitlines()
        (own,) = (part.split()[1] for part in parts if part.startswith("Anonymous:"))
        return np.full((len(X), 1), float(own))

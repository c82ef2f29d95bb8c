"""Federations that import core alone: run under an import hook, and where nothing else is installed."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from consilience import Federation, Party, ensemble_distillation, iterative_distillation, suwa

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3))
for y, model, protocol in [
    ((X[:, 0] > 0).astype(int), LogisticRegression(), ensemble_distillation(rounds=2)),
    (
        (X[:, 0] > 0).astype(int),
        RandomForestClassifier(5),
        ensemble_distillation(rounds=2, aggregate=suwa()),
    ),
    (X[:, 0], Ridge(), iterative_distillation(rounds=2)),
]:
    parties = [
        Party(n, model, X[i::4], y[i::4], test=(X[:20], y[:20])) for i, n in enumerate("abc")
    ]
    history = Federation(parties, X[3::4]).run(protocol)
    assert len(history.rounds) == 3 and history.metrics[-1]

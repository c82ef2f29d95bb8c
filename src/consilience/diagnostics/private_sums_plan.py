"""Outlook on private sums before anything is trained: noise against signal, simulated on the public rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.errors import InvalidInput
from consilience.messages.schema import Public
from consilience.numerics.class_sums import SCALE, Features, class_ratios, class_sums
from consilience.numerics.randomness import stream
from consilience.tasks.class_sums import features_by, public_basis
from consilience.transforms.privacy import Budget
from consilience.validation.numbers import check_number

_DRAWS = 10
"""Simulated federations."""


def plan_private_sums(
    public: Public,
    budget: Budget,
    *,
    parties: int,
    rows: int,
    classes: int,
    features: Features | None = None,
    dimensions: int | None = None,
) -> dict[str, Any]:
    """Simulate the teacher of private sums, with public rows drawn in the place of private ones.

    Clusters of the public rows stand in for classes: real ones are mostly harder to tell apart, so that what
    fails here fails there.

    Args:
        public: the public rows.
        budget: of every party.
        parties: their number.
        rows: private rows of each; a guess, and not looked up at any party.
        classes: number of classes.
        features: of the protocol, as by default there.
        dimensions: of the protocol.

    Returns:
        ``features`` and their ``dimensions``; ``sigma`` of one party's noise, for rows of length 1;
        ``noise_to_signal`` of the sums of all; and the shares of public rows that the teacher says the right
        cluster of, without noise and with it.

    Raises:
        InvalidInput: fewer than two classes, no party, or too few public rows.
    """
    for name, value, least in (("parties", parties, 1), ("rows", rows, 1), ("classes", classes, 2)):
        check_number(name, value, at_least=least, whole=True, where="privacy plan")
    if len(public) < 2 * classes:
        raise InvalidInput(f"{len(public)} public rows for {classes} classes", where="privacy plan")
    from sklearn.cluster import KMeans

    basis = public_basis(public, features, dimensions)
    known = features_by(basis, public)
    clusters = KMeans(classes, n_init=3, random_state=0).fit_predict(known)
    total = budget.sigma * parties**0.5
    clean: list[float] = []
    noisy: list[float] = []
    strength = []
    for draw in range(_DRAWS):
        rng = stream(0, "coordinator", draw, "privacy plan")
        drawn = rng.integers(len(public), size=parties * rows)
        exact = class_sums(known[drawn], clusters[drawn], classes) / SCALE
        noise = rng.normal(scale=total, size=exact.shape)
        strength.append(float(np.linalg.norm(noise) / np.linalg.norm(exact)))
        for found, sums, wide in ((clean, exact, 0.0), (noisy, exact + noise, total)):
            told = class_ratios(sums, known, wide, 0.5, known).argmax(axis=1)
            found.append(float(np.mean(told == clusters)))
    return {
        "features": basis.kind,
        "dimensions": basis.matrix.shape[0],
        "sigma": budget.sigma,
        "noise_to_signal": float(np.mean(strength)),
        "right_without_noise": float(np.mean(clean)),
        "right_with_noise": float(np.mean(noisy)),
    }

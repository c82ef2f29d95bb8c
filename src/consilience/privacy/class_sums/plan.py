"""Plan a differential-privacy budget before training: simulate the effect of the noise of each mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.class_sums.sums import (
    SCALE,
    Features,
    PublicBasis,
    at_the_ends,
    class_ratios,
    class_sums,
    fitted_values,
)
from consilience.privacy.class_sums.tasks import features_by, public_basis

_DRAWS = 10
"""Number of simulated federations."""

_RATE = 1.0
"""Step size of the linear model that replaces a network; its input rows have length 1."""

_UNIT: Array = read_only(np.array([[0.0, 1.0]]))
"""Bounds of the simulated values."""

MOST_NOISE = 0.2
"""Noise of a step, in each number of the mean of its clipped gradients, that a linear model of some hundred
numbers still learns under: on digits, 0.06 leaves most of the accuracy and 0.34 little."""


@prints_no_rows
@dataclass(frozen=True)
class _StandIns:
    """Public rows in place of private rows, with targets derived from the rows.

    Attributes:
        known: features of the public rows, shape ``(n, d + 1)``.
        targets: one-hot clusters in place of classes, or positions along the widest direction, scaled to [0,
            1], in place of values; shape ``(n, outputs)``.
        classes: number of classes; 0 for values.
    """

    known: Array
    targets: Array
    classes: int

    @classmethod
    def of(cls, public: Public, basis: PublicBasis, classes: int) -> _StandIns:
        known = features_by(basis, public)
        if not classes:
            centred = known[:, :-1] - known[:, :-1].mean(axis=0)
            along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
            return cls(known, ((along - along.min()) / np.ptp(along))[:, None], 0)
        from sklearn.cluster import KMeans

        clusters = KMeans(classes, n_init=3, random_state=0).fit_predict(known)
        return cls(known, np.eye(classes)[clusters], classes)

    def right(self, told: Array, rows: Any = slice(None)) -> float:
        """Return the accuracy on the clusters, or the explained share of the values' variance (R²)."""
        targets = self.targets[rows]
        if self.classes:
            return float(np.mean(told.argmax(axis=1) == targets.argmax(axis=1)))
        return float(1 - ((told - targets) ** 2).mean() / targets.var())

    def sums(self, drawn: Array) -> Array:
        """Exact sums of drawn rows, shape ``(classes, d + 1)``, or ``(2, d + 1)`` for values."""
        rows, targets = self.known[drawn], self.targets[drawn]
        if self.classes:
            return class_sums(rows, targets.argmax(axis=1), self.classes) / SCALE
        ends = at_the_ends(targets, _UNIT).T
        parts = (ends[:, :, None] * rows).reshape(-1, rows.shape[1])
        return class_sums(parts, np.repeat([0, 1], len(rows)), 2) / SCALE

    def taught(self, sums: Array, sigma: float) -> Array:
        """Compute the teacher's outputs on the public rows from the sums."""
        if self.classes:
            return class_ratios(sums, self.known, sigma, 0.5, self.known)
        return fitted_values(sums, self.known, sigma, 0.5, _UNIT, self.known)


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
    """Simulate the teacher of private sums, with public rows drawn in place of private ones.

    Clusters of the public rows replace classes, and positions along their widest direction replace values.
    Real targets are mostly harder to predict, so a budget that fails in this simulation also fails in
    practice.

    Args:
        public: the public rows.
        budget: privacy budget of every party.
        parties: number of parties.
        rows: number of private rows of each party; a guess, not counted at any party.
        classes: number of classes; 0 for values.
        features: option of the protocol; ``None`` uses its default.
        dimensions: option of the protocol; ``None`` uses its default.

    Returns:
        ``features`` and their ``dimensions``; ``sigma`` of one party's noise, for rows of length 1;
        ``noise_to_signal`` of the sum over parties; and ``right_without_noise`` and ``right_with_noise``, the
        teacher's accuracy on the clusters, or its explained share of the values' variance.

    Raises:
        InvalidInput: one class, no party, or too few public rows.
    """
    basis, known = _stand_ins(public, parties, rows, classes, features, dimensions)
    total = budget.sigma * parties**0.5
    clean: list[float] = []
    noisy: list[float] = []
    strength = []
    for draw in range(_DRAWS):
        rng = stream(0, "coordinator", draw, "privacy plan")
        exact = known.sums(rng.integers(len(public), size=parties * rows))
        noise = rng.normal(scale=total, size=exact.shape)
        strength.append(float(np.linalg.norm(noise) / np.linalg.norm(exact)))
        for found, sums, wide in ((clean, exact, 0.0), (noisy, exact + noise, total)):
            found.append(known.right(known.taught(sums, wide)))
    return {
        "features": basis.kind,
        "dimensions": basis.matrix.shape[0],
        "sigma": budget.sigma,
        "noise_to_signal": float(np.mean(strength)),
        "right_without_noise": float(np.mean(clean)),
        "right_with_noise": float(np.mean(noisy)),
    }


def _stand_ins(
    public: Public,
    parties: int,
    rows: int,
    classes: int,
    features: Features | None = None,
    dimensions: int | None = None,
) -> tuple[PublicBasis, _StandIns]:
    """Check the numbers of a plan, and return its basis and its stand-ins for private rows."""
    least = 2 if classes else 0
    for name, value, low in (
        ("parties", parties, 1),
        ("rows", rows, 1),
        ("classes", classes, least),
    ):
        check_number(name, value, at_least=low, whole=True, where="privacy plan")
    check_number(
        "dimensions", dimensions, at_least=1, whole=True, optional=True, where="privacy plan"
    )
    if len(public) < max(2 * classes, 10):
        of = f"{classes} classes" if classes else "values"
        raise InvalidInput(f"{len(public)} public rows for {of}", where="privacy plan")
    basis = public_basis(public, features, dimensions)
    return basis, _StandIns.of(public, basis, classes)


def simulate_others(
    public: Public, budget: Budget, *, parties: int, rows: int, classes: int
) -> dict[str, dict[str, Any]]:
    """Simulate training with noise, in the same way as :func:`plan_private_sums` simulates private sums.

    A linear model in features of the public rows replaces a network.

    Args:
        public: the public rows.
        budget: privacy budget of every party.
        parties: number of parties.
        rows: number of private rows of each party; a guess.
        classes: number of classes; 0 for values.

    Returns:
        For each mechanism, by its name in :func:`plan_others`: the accuracy (or explained share of the
        variance) of the mean of all parties' answers, without noise and with it.

    Raises:
        InvalidInput: as :func:`plan_private_sums`.
    """
    _, known = _stand_ins(public, parties, rows, classes)
    how = NoisyTraining(rows, batch=min(64, rows))
    noise = how.noise(budget.epsilon if budget.each is None else budget.each, budget.delta)
    said = np.zeros((2, len(public), max(classes, 1)))
    for party in range(parties):
        rng = stream(0, str(party), 0, "privacy plan")
        drawn = rng.integers(len(public), size=rows)
        said[0] += _trained(known, drawn, how, 0.0, rng) / parties
        said[1] += _trained(known, drawn, how, noise, rng) / parties
    return {
        "training with noise": {
            "simulated_without_noise": known.right(said[0]),
            "simulated_with_noise": known.right(said[1]),
        }
    }


def _trained(
    known: _StandIns, drawn: Array, how: NoisyTraining, noise: float, rng: np.random.Generator
) -> Array:
    """Train a linear model of one party by DP-SGD, and return its answers on all public rows."""
    X, y = known.known[drawn], known.targets[drawn]
    weights = np.zeros((X.shape[1], y.shape[1]))
    for _ in range(how.steps):
        batch = rng.random(len(X)) < how.rate
        slopes = _outputs(X[batch] @ weights, known) - y[batch]
        norms = np.linalg.norm(slopes, axis=1) * np.linalg.norm(X[batch], axis=1)
        slopes /= np.maximum(1, norms / how.clip)[:, None]
        step = X[batch].T @ slopes + rng.normal(scale=noise * how.clip, size=weights.shape)
        weights -= _RATE * step / how.batch
    return _outputs(known.known @ weights, known)


def _outputs(logits: Array, known: _StandIns) -> Array:
    return softmax(logits, axis=1) if known.classes else logits


def plan_others(
    budget: Budget, *, parties: int, rows: int, classes: int
) -> dict[str, dict[str, Any]]:
    """Compute the noise of the other mechanisms under the budget: at present, training with noise.

    Args:
        budget: privacy budget of every party.
        parties: number of parties.
        rows: number of private rows of each party; a guess, not counted at any party.
        classes: number of classes; 0 for values.

    Returns:
        For each mechanism: its noise and settings, and a ``verdict``.

    Raises:
        InvalidInput: one class, no party, no row, or a δ beyond 1 / (10 n).
    """
    for name, value in {"parties": parties, "rows": rows}.items():
        check_number(name, value, at_least=1, whole=True, where="privacy plan")
    check_number("classes", classes or 2, at_least=2, whole=True, where="privacy plan")
    budget.check_delta(rows, where="privacy plan")
    how = NoisyTraining(rows, batch=min(64, rows))
    multiplier = how.noise(budget.epsilon if budget.each is None else budget.each, budget.delta)
    return {
        "training with noise": {
            "noise_multiplier": multiplier,
            "batch": how.batch,
            "steps": how.steps,
            "verdict": "works"
            if multiplier < MOST_NOISE * how.batch
            else "noise drowns a model of a hundred numbers or more",
        }
    }

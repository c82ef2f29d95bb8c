"""Private rows rebuilt from density ratios, and people found in them: what an aggregator gives away.

A party that asks for ratios knows the public rows, and so the space and the kernel. Three attacks use that:

1. Rows of a class are rebuilt from its column of ratios by damped Gauss-Newton steps, from several starts.
2. Of people whose rows are known, those in a class of 50 are found by regression of its column on theirs.
3. Public rows are laid around one person, and a figure of the column tells whether the person is there.

``docs/results/rebuilding.md`` has the figures of exact ratios and of coarse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import roc_auc_score

from consilience.core.numerics.coarse_ratios import Coarseness, Counts, coarse_ratios
from consilience.core.numerics.density import PublicRatio
from consilience.core.numerics.feature_space import (
    FeatureSpace,
    principal_directions,
    public_feature_space,
)
from consilience.lab.data import load

Array = np.ndarray
RIDGE = 0.3
CLOSE = 0.25
"""Standard deviations a coordinate within which a row counts as rebuilt."""
USUAL, FINEST = Coarseness(), Coarseness(rows=20, directions=30, unit=2)
MEMBERS, PEOPLE = 50, 200


@dataclass(frozen=True)
class Table:
    """Public rows, and everybody else with a class."""

    public: Array
    X: Array
    y: Array

    def draw(self, rows: int, rng: np.random.Generator) -> Array:
        """Rows of one class."""
        large = [c for c in np.unique(self.y) if (self.y == c).sum() >= rows]
        return self.X[rng.choice(np.flatnonzero(self.y == rng.choice(large)), rows, replace=False)]


def table_of(name: str, public: int) -> Table:
    """A table, shuffled and split."""
    if name == "census-like":
        X, y = census_like(4000)
    else:
        data = load("digits" if name == "digits" else "heart-disease")
        X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order].astype(np.float64), y[order]
    return Table(X[:public], X[public:], y[public:])


def census_like(rows: int) -> tuple[Array, Array]:
    """A table with 88 columns, and a class of two that goes with its first hidden number."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(rows, 6))
    numbers = hidden @ rng.normal(size=(6, 6)) / 2 + rng.normal(size=(rows, 6))
    numbers[:, 3:] = np.exp(numbers[:, 3:] / 2)
    columns = [numbers]
    for kinds in (7, 16, 7, 14, 6, 5, 2, 25):
        liking = hidden @ rng.normal(scale=0.7, size=(6, kinds)) - np.arange(kinds) / 4
        columns.append(np.eye(kinds)[(liking + rng.gumbel(size=liking.shape)).argmax(axis=1)])
    return np.hstack(columns), (hidden[:, 0] + 0.7 * rng.normal(size=rows) > 0).astype(int)


# --- what is known of a class ----------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """Sums over a class's rows of ``exp(-|z - l|² / width)``, as known to whoever sees its ratios.

    Attributes:
        landmarks: shape ``(n_landmarks, k)``.
        width: of the kernel.
        sums: shape ``(n_landmarks,)``.
        error: standard deviation of what the sums are wrong by.
        spread: standard deviation of each coordinate among the public rows, shape ``(k,)``.
        seen: coordinates of features.
        features: the other way, by regression on the public rows; what is not seen stays at its mean.
    """

    landmarks: Array
    width: float
    sums: Array
    error: float
    spread: Array
    seen: Callable[[Array], Array]
    features: Callable[[Array], Array]

    def near(self, rows: Array) -> Array:
        return np.exp(-((rows[:, None] - self.landmarks) ** 2).sum(axis=2) / self.width)


def exact(space: FeatureSpace, rows: Array) -> Known:
    """From what :class:`PublicRatio` says in 32 bits: the sums of the kernel, solved for."""
    public = space.public
    ratio = PublicRatio(public, np.random.default_rng(0), ridge=RIDGE)
    said = ratio(rows, np.ones((len(rows), 1)))[:, 0].astype(np.float32)
    apart = ((public[:, None] - public) ** 2).sum(axis=2)
    width = float(np.median(apart[np.triu_indices(len(public), 1)]))
    weights = np.linalg.lstsq(ratio(public, np.eye(len(public))), said.astype(np.float64))[0]
    sums = np.exp(-apart / width) @ weights
    return Known(public, width, sums, 1e-5, public.std(axis=0), lambda z: z, lambda z: z)


def coarse(space: FeatureSpace, rows: Array, coarseness: Coarseness) -> Known:
    """The round counts themselves, which is more than what :func:`coarse_ratios` shows of them.

    Counts of 0 are left out: all that they say is that they are small.
    """
    along = principal_directions(space.public)

    def seen(features: Array) -> Array:
        return along(features)[:, : coarseness.directions]

    public = seen(space.public)
    counts = Counts.of(seen(rows), np.ones((len(rows), 1)), public, coarseness)
    told = counts.values[:, 0] > 0
    back = np.linalg.lstsq(public, space.public)[0]
    return Known(
        counts.landmarks[told],
        counts.width,
        counts.values[told, 0],
        coarseness.unit / np.sqrt(12),
        public.std(axis=0),
        seen,
        lambda z: z @ back,
    )


# --- 1. rebuilding ---------------------------------------------------------------------------------


def rebuilt(known: Known, start: Array, *, prior: float, steps: int = 300) -> tuple[float, Array]:
    """Rows whose sums are those that are known: damped Gauss-Newton (Levenberg-Marquardt) from a start.

    Args:
        known: about the class.
        start: shape ``(n, k)``.
        prior: the weight of ``|z / spread|²``, beside squared errors of the sums in their standard
            deviations.

    Returns:
        What is left of the objective, and the rows, shape ``(n, k)``.
    """
    scale, rows = known.spread + 1e-12, start / (known.spread + 1e-12)

    def errors(rows: Array) -> tuple[Array, Array, float]:
        near = known.near(rows * scale)
        wrong = (near.sum(axis=0) - known.sums) / known.error
        return near, wrong, float(wrong @ wrong + prior * (rows**2).sum())

    damping = 1e-2
    near, wrong, cost = errors(rows)
    for _ in range(steps):
        slope = jacobian(known, rows * scale, near)
        size = float((slope**2).sum() / slope.shape[1])
        gradient = slope.T @ wrong + prior * rows.ravel()
        for _ in range(10):
            step = solved(slope, prior + damping * size, gradient).reshape(rows.shape)
            further = errors(rows - step)
            if further[2] < cost:
                break
            damping *= 4
        else:
            break
        settled = cost - further[2] < 1e-7 * cost
        rows, (near, wrong, cost) = rows - step, further
        damping = max(damping / 5, 1e-13)
        if settled:
            break
    return cost, rows * scale


def jacobian(known: Known, rows: Array, near: Array) -> Array:
    """Of the sums in their standard deviations, by coordinates in units of their spread."""
    slopes = near[:, :, None] * (known.landmarks - rows[:, None]) * (2 / known.width / known.error)
    slopes *= known.spread
    return slopes.transpose(1, 0, 2).reshape(len(known.sums), -1)


def left(known: Known, rows: Array) -> float:
    """The share of the coordinates' spread that stays unknown near the true rows, 0 to 1, linearised.

    The bound for any attack that finds the right neighbourhood: the root of the mean variance that remains of
    coordinates whose variance was 1 before the sums were known.
    """
    told = np.linalg.svd(jacobian(known, rows, known.near(rows)), compute_uv=False)
    return float(np.sqrt(1 - (1 - 1 / (1 + told**2)).sum() / rows.size))


def solved(slope: Array, ridge: float, gradient: Array) -> Array:
    """``(slopeᵀ slope + ridge I)⁻¹ gradient``, by the smaller of both ways."""
    if len(slope) >= slope.shape[1]:
        return np.linalg.solve(slope.T @ slope + ridge * np.eye(slope.shape[1]), gradient)
    inner = np.linalg.solve(slope @ slope.T + ridge * np.eye(len(slope)), slope @ gradient)
    return (gradient - slope.T @ inner) / ridge


def distances(found: Array, rows: Array) -> Array:
    """Standard deviations a coordinate from each row to the one that was found for it."""
    apart = np.sqrt(((found[:, None] - rows) ** 2).mean(axis=2))
    return apart[linear_sum_assignment(apart)]


def nearest(public: Array, rows: Array) -> Array:
    return np.sqrt(((rows[:, None] - public) ** 2).mean(axis=2)).min(axis=1)


@dataclass(frozen=True)
class Rebuilding:
    """Distances of rebuilt rows to the true ones, in standard deviations a coordinate.

    Attributes:
        distances: to the rebuilt rows, in all coordinates; empty where nothing leaves.
        nearest: to the nearest public row.
        seen: to the rebuilt rows, in the coordinates that are compared, each by its own spread.
        seen_nearest: likewise to the nearest public row.
        left: the share of these coordinates' spread that stays unknown at best.
    """

    distances: Array
    nearest: Array
    seen: Array
    seen_nearest: Array
    left: float


def rebuilding(
    table: Table,
    size: int,
    look: Callable[[FeatureSpace, Array], Known],
    *,
    priors: Sequence[float],
    trials: int,
    starts: int,
) -> Rebuilding:
    """Attack classes of so many rows; of several weights of the prior, with the one that serves best."""
    space = public_feature_space(table.public, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    found: dict[float, list[tuple[Array, Array]]] = {prior: [] for prior in priors}
    near, unknown = [], []
    for _ in range(trials):
        rows = space(table.draw(size, rng))
        known = look(space, rows)
        if not len(known.sums):
            return Rebuilding(*[np.zeros(0)] * 4, left=1.0)
        unknown.append(left(known, known.seen(rows)))
        public = known.seen(space.public)
        for prior in priors:
            tries = [
                rebuilt(known, public[rng.choice(len(public), size, replace=False)], prior=prior)
                for _ in range(starts)
            ]
            _, best = min(tries, key=lambda tried: tried[0])
            features = np.clip(known.features(best), -3, 3)
            found[prior].append(
                (
                    distances(features, rows),
                    distances(best / known.spread, known.seen(rows) / known.spread),
                )
            )
        near.append(
            (
                nearest(space.public, rows),
                nearest(public / known.spread, known.seen(rows) / known.spread),
            )
        )
    best_of = [
        min((np.concatenate([pair[i] for pair in found[prior]]) for prior in priors), key=np.median)
        for i in (0, 1)
    ]
    whole, compared = (np.concatenate([pair[i] for pair in near]) for i in (0, 1))
    return Rebuilding(best_of[0], whole, best_of[1], compared, float(np.mean(unknown)))


# --- 2. who of these people is in the class --------------------------------------------------------


def found_members(known: Known, people: Array, members: int) -> Array:
    """The expectation of who is a member, given the sums: Gaussian, each as likely beforehand."""
    share = members / len(people)
    near = known.near(known.seen(people)).T
    variance = share * (1 - share)
    noise = known.error**2 * np.eye(len(known.sums))
    return near.T @ np.linalg.solve(
        variance * near @ near.T + noise, known.sums - share * near.sum(axis=1)
    )


def membership(
    table: Table, look: Callable[[FeatureSpace, Array], Known], *, trials: int
) -> tuple[float, int]:
    """The mean area under the ROC curve, and among how many people the members were sought."""
    space = public_feature_space(table.public, np.random.default_rng(0))
    rng = np.random.default_rng(2)
    people = min(PEOPLE, max(np.unique(table.y, return_counts=True)[1]))
    areas = []
    for _ in range(trials):
        rows = space(table.draw(people, rng))
        inside = np.arange(people) < MEMBERS
        guess = found_members(look(space, rows[inside]), rows, MEMBERS)
        areas.append(roc_auc_score(inside, guess))
    return float(np.mean(areas)), people


# --- 3. public rows around a person ----------------------------------------------------------------

AROUND = 200
"""Public rows that are laid."""
ORDINARY = (30, 0)
"""How many of them are ordinary ones, which keep the space as wide as it is."""
RADII = (0.001, 0.01, 0.1, 0.3)
"""How far around, in standard deviations of 30 ordinary rows."""


def around(
    table: Table, ratios: Callable[[Array, Array], Array], *, people: int
) -> tuple[float, float]:
    """The area under the ROC curve of telling members by their own public rows, and its standard error.

    How the rows lie, the figure and its sign are chosen on one half of the people, and judged on the other.

    Args:
        table: of which a class of 50 is drawn for each person, with the person in it or not.
        ratios: of public rows and those of the class, at each public row.
        people: how many are tried.
    """
    spread = table.public[: max(ORDINARY)].std(axis=0)
    rng = np.random.default_rng(3)
    inside = np.arange(people) % 4 < 2
    figures = []
    for member in inside:
        rows = table.draw(MEMBERS + 1, rng)
        person, members = rows[0], rows[:-1] if member else rows[1:]
        cloud = rng.normal(size=(AROUND, len(person)))
        found = []
        for radius, ordinary in product(RADII, ORDINARY):
            public = person + radius * spread * cloud
            public[:ordinary] = table.public[:ordinary]
            said = ratios(public, members)
            near = said[ordinary:]
            found += [near.mean(), near.max(), near.min(), near.std(), near.mean() - said.mean()]
        figures.append(found)
    tried = np.array(figures)
    half = np.arange(people) % 2 == 0
    areas = np.array([roc_auc_score(inside[half], column[half]) for column in tried.T])
    best = np.abs(areas - 0.5).argmax()
    sign = 1 if areas[best] >= 0.5 else -1
    area = float(roc_auc_score(inside[~half], sign * tried[~half, best]))
    return area, float(np.sqrt(area * (1 - area) / ((~half).sum() / 2)))


def exact_ratios(public: Array, members: Array) -> Array:
    space = public_feature_space(public, np.random.default_rng(0))
    ratio = PublicRatio(space.public, np.random.default_rng(0), ridge=RIDGE)
    return ratio(space(members), np.ones((len(members), 1)))[:, 0]


def ratios_by(coarseness: Coarseness) -> Callable[[Array, Array], Array]:
    def ratios(public: Array, members: Array) -> Array:
        space = public_feature_space(public, np.random.default_rng(0))
        along = principal_directions(space.public)
        groups = np.ones((len(members), 1))
        return coarse_ratios(along(space(members)), groups, along(space.public), coarseness)[:, 0]

    return ratios


# --- the page --------------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[FeatureSpace, Array], Known]] = {
    "exact": exact,
    "coarse": lambda space, rows: coarse(space, rows, USUAL),
    "coarse, finest": lambda space, rows: coarse(space, rows, FINEST),
}
RATIOS = {
    "exact": exact_ratios,
    "coarse": ratios_by(USUAL),
    "coarse, finest": ratios_by(FINEST),
}

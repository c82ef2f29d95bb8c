"""Sums of rows by class in features of public rows, and the teacher computed from these sums.

With landmarks z among the public rows, a kernel k and the eigenpairs of ``K = k(z, z) = U Λ Uᵀ``, without
the first one if k is not centred, because it is the mean,

    φ(x) = Λ^(-5/8) Uᵀ k(z, x),

shortened to length 1 if it is longer, as for most rows, and extended by a constant, so that |φ| <= 1.
The density ratio needs only the sums ``S_y`` of φ over the private rows of each class, and one row moves
these sums by 1 at most in Euclidean norm. The second moments of the fit are those of the public rows,
``G = Σ_public φ φᵀ`` with eigenvalues g_k:

    r(x, y) = max(0, φ(x)ᵀ (G + ridge I)⁻¹ B S_y)

is :class:`~consilience.core.numerics.density.PublicRatio` in few dimensions, and the teacher is
proportional to it. B shrinks the sums along each eigenvector to remove noise (:func:`coefficients`),
separately for the common part of all classes and for their differences (:func:`class_ratios`).

A value in [low, high] shares its row between both ends. With share ``a`` at the low and ``1 - a`` at the high
end, the row moves the two sums by ``sqrt(a² + (1 - a)²) <= 1``; their sum is Σ φ, and their difference Σ v φ
of the value v scaled to [-1, 1].

Source:
    Vu & Slavković 2009 and Foulds et al. 2016 (perturbed statistics); Balog, Tolstikhin & Schölkopf
    2018 (private kernel means); Williams & Seeger 2001 (Nyström); Sugiyama 2010 (the classifier); Kanamori,
    Suzuki & Sugiyama 2012 (the ratio); Morris 1983 (empirical Bayes); Moosmann, Triggs & Jurie 2006 (leaves
    of random trees); Mironov 2012 (why noise is added to integers).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import issparse

from consilience.core.errors import InvalidInput
from consilience.core.numerics.density import median_of, squared_distances
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.printing import prints_no_rows

SCALE = 1 << 16
"""Steps of the grid in a length of 1."""

CONSTANT = 0.2
"""Constant coordinate of all rows, whose sums count the rows."""

MOST_LANDMARKS = 2000
"""Maximum number of landmarks for texts, as few texts share a given word; half as many for other rows."""

NO_BOUNDS: Array = read_only(np.zeros((0, 2)))
"""Empty bounds, for classes."""

Features = Literal["directions", "kernel", "leaves"]
"""Kind of features: projections on principal directions of the public rows, kernels with public rows, or
shared leaves of random trees, which do not depend on the scale of a column.
"""

_DEPTH = 4
TREES = (100, 2**_DEPTH - 1, 2)
"""Shape of the trees of a basis."""

_DIMENSIONS = 10, 24
"""Default range of the number of features, for few and for many columns. On digits with about 900 private
rows in total, more features tolerate less noise, and fewer give feature vectors of too similar lengths.
"""

_EVEN = 0.625
"""Power of the eigenvalue by which its direction is divided: ½ keeps the lengths, 1 equalises all
directions. The noise is equal in all directions, so a larger power helps weak directions if there is much
signal, and hurts the others if there is little. Chosen on the public rows of seven problems.
"""

_SHORTER = 0.02
"""Share of public rows shorter than 1; longer rows are scaled to length 1, for which the noise is set."""

_CHUNK = 4096
"""Number of rows per batch of the feature map."""


@prints_no_rows
@dataclass(frozen=True, eq=False)
class PublicBasis:
    """Features computed from public rows only; their norm is at most 1 for any row and any matrix.

    Attributes:
        kind: ``"directions"`` of the kernel ``xᵀz``; ``"kernel"``, ``exp(-|x - z|² / width)``; or
            ``"leaves"``, the share of trees with both rows in one leaf.
        landmarks: positions of the landmarks among the public rows, shape ``(l,)``, int64.
        matrix: maps kernels to features, shape ``(d, l)``, float32.
        width: width of the Gaussian kernel.
        trees: column and threshold at each inner node, from the root on, shape ``(trees, 2^depth - 1, 2)``,
            float32; empty unless ``kind`` is ``"leaves"``.
    """

    kind: Features
    landmarks: Array
    matrix: Array
    width: float
    trees: Array

    @classmethod
    def of(
        cls, public: Any, rng: np.random.Generator, *, kind: Features, dimensions: int | None = None
    ) -> PublicBasis:
        """Create the basis from public rows: their leading directions under a kernel.

        Args:
            public: features of the public rows, shape ``(N, k)``, dense or sparse.
            rng: random generator for the landmarks and the trees.
            kind: kind of features, as above.
            dimensions: number of features without the constant; ``None`` uses the number of columns, limited
                to 10 to 24.

        Raises:
            InvalidInput: the public rows have fewer directions, or are texts, for which there are no leaves.
        """
        most = MOST_LANDMARKS if issparse(public) else MOST_LANDMARKS // 2
        landmarks = np.sort(rng.permutation(public.shape[0])[:most]).astype(np.int64)
        trees, width = np.zeros((0, 0, 2), dtype=np.float32), 1.0
        if kind == "kernel":
            width = median_of(squared_distances(public[landmarks], public[landmarks]))
        elif kind == "leaves":
            if issparse(public):
                raise InvalidInput(
                    "leaves are of columns, and the public rows are texts",
                    where="features",
                    mend='Take "directions".',
                )
            trees = np.stack([_random_tree(public, rng) for _ in range(TREES[0])])
        raw = cls(kind, landmarks, np.eye(len(landmarks), dtype=np.float32), width, trees)
        near = raw.kernels(public[landmarks], public)
        first = int(kind != "directions" or issparse(public))  # the mean, where none was taken off
        asked = int(np.clip(public.shape[1], *_DIMENSIONS)) if dimensions is None else dimensions
        last = len(near) - 1
        values, vectors = eigh(near, subset_by_index=[max(0, last - asked - first), last])
        values, vectors = values[::-1], vectors[:, ::-1]
        there = int((values > 1e-8 * values[0]).sum()) - first
        dimensions = min(asked, there) if dimensions is None else dimensions
        if not 1 <= dimensions <= there:
            raise InvalidInput(
                f"{dimensions} dimensions of public rows that have {there}",
                where="dimensions",
                mend=f"Give {there} or fewer, or more public rows.",
            )
        chosen = slice(first, first + dimensions)
        matrix = (vectors[:, chosen] / values[chosen] ** _EVEN).T
        matrix /= np.quantile(np.linalg.norm(near @ matrix.T, axis=1), _SHORTER) or 1.0
        return cls(kind, landmarks, matrix.astype(np.float32), width, trees)

    @property
    def digest(self) -> str:
        """Digest of the kind, shapes and all numbers of the basis."""
        shapes = f"{self.kind} {self.width!r} {self.matrix.shape} {self.trees.shape}"
        found = hashlib.sha256(shapes.encode())
        found.update(np.ascontiguousarray(self.landmarks, dtype="<i8").tobytes())
        for numbers in (self.matrix, self.trees):
            found.update(np.ascontiguousarray(numbers, dtype="<f4").tobytes())
        return found.hexdigest()[:32]

    def kernels(self, features: Any, public: Any) -> Array:
        """Compute the kernel of rows and landmarks, shape ``(n, l)``.

        Args:
            features: of the rows, shape ``(n, k)``.
            public: features of the public rows, shape ``(N, k)``.
        """
        landmarks = public[self.landmarks]
        if self.kind == "leaves":
            return np.asarray(self._leaves(features) @ self._leaves(landmarks).T) / len(self.trees)
        if self.kind == "kernel":
            return np.asarray(np.exp(-squared_distances(features, landmarks) / self.width))
        found = features @ landmarks.T
        return np.asarray(found.toarray() if issparse(found) else found, dtype=np.float64)

    def _leaves(self, features: Array) -> Array:
        """Mark the leaf of each tree that rows are in, shape ``(n, trees * leaves)``."""
        count, nodes = self.trees.shape[:2]
        at = np.zeros((len(features), count), dtype=np.int64)
        for _ in range(_DEPTH):
            column, threshold = np.moveaxis(self.trees[np.arange(count), at], -1, 0)
            value = np.take_along_axis(features, column.astype(np.int64), axis=1)
            at = 2 * at + 1 + (value > threshold)
        found = np.zeros((len(features), count, nodes + 1))
        np.put_along_axis(found, (at - nodes)[:, :, None], 1.0, axis=2)
        return found.reshape(len(features), -1)

    def __call__(self, features: Any, public: Any) -> Array:
        """Compute features of norm 1 at most, the constant last, shape ``(n, d + 1)``.

        Args:
            features: of the rows in the shared space, shape ``(n, k)``.
            public: features of the public rows, shape ``(N, k)``.
        """
        matrix, rest = self.matrix.T.astype(np.float64), np.sqrt(1 - CONSTANT**2)
        found = np.full((features.shape[0], matrix.shape[1] + 1), CONSTANT)
        for start in range(0, len(found), _CHUNK):
            few = slice(start, start + _CHUNK)
            with np.errstate(over="ignore", invalid="ignore"):
                mapped = self.kernels(features[few], public) @ matrix
            found[few, :-1] = rest * in_the_ball(mapped)
        return found


def in_the_ball(rows: Array) -> Array:
    """Scale rows longer than 1 down to norm 1; a row with an infinite or NaN entry becomes 0.

    Args:
        rows: shape ``(n, d)``.

    Returns:
        Rows of norm 1 at most, shape ``(n, d)``.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    usable = np.isfinite(largest)
    largest = np.where(usable & (largest > 1), largest, 1.0)  # so that no square is infinite
    small = np.where(usable, rows, 0.0) / largest
    norms = np.linalg.norm(small, axis=1, keepdims=True)
    return np.asarray(small / np.maximum(norms, 1 / largest))


def on_the_grid(rows: Array) -> Array:
    """Truncate rows of norm 1 at most to integers of norm :data:`SCALE` at most, rounding errors included.

    Args:
        rows: shape ``(n, d)``.

    >>> on_the_grid(np.array([[0.6, -0.8]])).tolist()
    [[39321, -52428]]
    """
    found = np.trunc(rows * (SCALE * (1 - 1e-9))).astype(np.int64)
    too_long = (found * found).sum(axis=1) > SCALE * SCALE
    found[too_long] = 0
    return found


def class_sums(rows: Array, codes: Array, classes: int, units: Array | None = None) -> Array:
    """Sum rows by class, such that one unit moves the whole table by at most 1, or :data:`SCALE` steps.

    Args:
        rows: features of norm 1 at most, shape ``(n, d)``.
        codes: class of each row, from 0 on, shape ``(n,)``.
        classes: number of classes, including classes without rows.
        units: unit of each row, shape ``(n,)``, int64 from 0 on; ``None`` makes each row a unit. The sums of
            a unit's rows are scaled down together to norm 1.

    Returns:
        Steps of the grid, shape ``(classes, d)``, int64.
    """
    sums = np.zeros((classes, rows.shape[1]), dtype=np.int64)
    if units is None:
        np.add.at(sums, codes, on_the_grid(rows))
        return sums
    order = np.argsort(units, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(units[order])) + 1):
        one = np.zeros(sums.shape)
        np.add.at(one, codes[mine], rows[mine])
        sums += on_the_grid(in_the_ball(one.reshape(1, -1))).reshape(sums.shape)
    return sums


def coefficients(sums: Array, public: Array, *, sigma: float, rows: float, ridge: float) -> Array:
    """Fit sums on the public rows in place of the private ones, and shrink them to remove noise.

    Along an eigenvector of G the sums are ``t_k = g_k w_k`` plus noise. With ``w_k ~ N(0, τ²)``, the same τ
    for all k, the expectation of ``g_k w_k`` is ``t_k τ² g_k² / (τ² g_k² + σ²)``; τ maximises the likelihood
    of the sums. All of this is post-processing of released sums and costs no privacy.

    Args:
        sums: noisy sums, shape ``(n, d)``.
        public: features of the public rows, shape ``(N, d)``.
        sigma: standard deviation of the noise in each number.
        rows: estimated number of private rows.
        ridge: ridge penalty, in rows.

    Returns:
        Shape ``(d, n)``.
    """
    values, vectors = np.linalg.eigh(public.T @ public)
    values = np.maximum(values, 1e-12 * values[-1])
    turned = vectors.T @ sums.T
    if sigma:
        signals = np.multiply.outer(np.geomspace(1e-8, 1e8, 161), (values / values[-1]) ** 2)
        seen = (turned**2).mean(axis=1) / sigma**2
        likelihoods = -(np.log1p(signals) + seen / (1 + signals)).sum(axis=1)
        signal = signals[likelihoods.argmax()]
        turned = turned * (signal / (1 + signal))[:, None]
    scales = values + ridge * len(public) / rows
    return np.asarray(vectors @ (turned / scales[:, None]))


def counted(sums: Array) -> float:
    """Estimate the number of private rows from the sums of their constants, at least 1.

    Args:
        sums: sums of all classes, shape ``(n, d)``, the constant last.
    """
    return max(1.0, float(sums[:, -1].sum()) / CONSTANT)


def class_ratios(sums: Array, public: Array, sigma: float, ridge: float, at: Array) -> Array:
    """Estimate the number of private rows of each class per public row; negative estimates become 0.

    Two parts are fitted separately, each with its part of the noise: the mean over classes, minus its value
    for private rows distributed as the public rows, and the deviations of the classes from this mean.

    Args:
        sums: noisy sums of the classes, shape ``(n_classes, d)``, the constant last.
        public: features of the public rows, shape ``(N, d)``.
        sigma: standard deviation of the noise in each number.
        ridge: r_0 > 0, in rows.
        at: features of the rows at which to estimate, shape ``(n, d)``.

    Returns:
        Shape ``(n, n_classes)``.
    """
    common, rows, share = sums.mean(axis=0, keepdims=True), counted(sums), 1 / len(sums)
    even = share * rows / len(public)
    fitted = sum(
        coefficients(part, public, sigma=sigma * noise**0.5, rows=rows, ridge=ridge)
        for part, noise in ((common - even * public.sum(axis=0), share), (sums - common, 1 - share))
    )
    return np.asarray(np.maximum(even + at @ fitted, 0))


def at_the_ends(values: Array, bounds: Array) -> Array:
    """Split values into shares at both ends of their bounds; the squared shares of a row sum to at most 1.

    Args:
        values: shape ``(n, t)``; clipped to the bounds.
        bounds: low and high bound of each target, shape ``(t, 2)``.

    Returns:
        Shape ``(n, 2 t)``: shares at the low ends, then those at the high ends.
    """
    low, high = bounds.T
    share = (np.clip(values, low, high) - low) / (high - low)
    return np.asarray(np.hstack([1 - share, share]) / np.sqrt(len(bounds)))


def fitted_values(
    sums: Array, public: Array, sigma: float, ridge: float, bounds: Array, at: Array
) -> Array:
    """Fit values by ridge regression on sums at both ends of their bounds.

    The constant's sums give the mean v̄, and the regression fits the sums of ``(v - v̄) φ``, whose noise has
    the variance ``2 σ² (1 + v̄²)``.

    Args:
        sums: noisy sums, shape ``(2 t, d)``, in the order of :func:`at_the_ends`.
        public: features of the public rows, shape ``(N, d)``.
        sigma: standard deviation of the noise in each number.
        ridge: r_0 > 0, in rows.
        bounds: low and high bound of each target, shape ``(t, 2)``.
        at: features of the rows to predict, shape ``(n, d)``.

    Returns:
        Shape ``(n, t)``, within the bounds.
    """
    sums, sigma = sums * np.sqrt(len(bounds)), sigma * np.sqrt(len(bounds))
    targets = np.split(sums, 2)
    found = []
    for below, above, (low, high) in zip(*targets, bounds, strict=True):
        rows = counted(np.stack([below, above]))
        mean = float(np.clip((above - below)[-1] / CONSTANT / rows, -1, 1))
        moved = (above - below) - mean * (above + below)
        noise = sigma * np.sqrt(2 * (1 + mean**2))
        fitted = coefficients(moved[None], public, sigma=noise, rows=rows, ridge=ridge)[:, 0]
        value = np.clip(mean + at @ fitted * len(public) / rows, -1, 1)
        found.append(low + (high - low) * (value + 1) / 2)
    return np.stack(found, axis=1)


def taught_by(ratios: Array) -> tuple[Array, Array]:
    """Convert ratios to soft labels, and mark the rows with at least one ratio above 0.

    Args:
        ratios: shape ``(N, n_classes)``, 0 or more.

    Returns:
        Soft labels, shape ``(N, n_classes)``, and a bool mask, shape ``(N,)``.
    """
    taught = np.asarray(ratios.any(axis=1))
    spread = ratios + 1e-3 * ratios.mean(axis=1, keepdims=True)
    spread[~taught] = 1.0
    return spread / spread.sum(axis=1, keepdims=True), taught


def _random_tree(public: Array, rng: np.random.Generator) -> Array:
    """Grow a tree that splits public rows at random values of random columns, ``(2^depth - 1, 2)``."""
    rows, found = [np.arange(len(public))], []
    for node in range(2**_DEPTH - 1):
        here = public[rows[node]]
        spread = np.flatnonzero(np.ptp(here, axis=0) if len(here) else 0)
        column, threshold = 0, 0.0
        if len(spread):
            column = int(rng.choice(spread))
            low, high = np.sort(rng.choice(np.unique(here[:, column]), 2, replace=False))
            threshold = (low + high) / 2
        right = public[rows[node], column] > threshold
        rows += [rows[node][~right], rows[node][right]]
        found.append((column, threshold))
    return np.array(found, dtype=np.float32)

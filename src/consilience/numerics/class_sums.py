"""Sums of rows by class in features of public rows alone, and the teacher that is made of them.

With landmarks z among the public rows, a kernel k and the eigenpairs of ``K = k(z, z) = U Λ Uᵀ``,

    φ(x) = Λ^(-1/2) Uᵀ k(z, x),        |φ(x)|² <= k(x, x),

and a constant beside it, so that |φ| <= 1. Everything that the density ratio needs of private rows are the
sums ``S_y`` of φ over the rows of each class, which one row moves by 1 at most in Euclidean norm. The second
moments of the fit are those of the public rows:

    r(x, y) = max(0, φ(x)ᵀ (Σ_public φ φᵀ + ridge I)⁻¹ S_y)

is :class:`~consilience.numerics.density.PublicRatio` in few dimensions, and the teacher is
proportional to it.

Source:
    Vu & Slavković 2009 and Foulds et al. 2016 (perturbed statistics); Balog, Tolstikhin & Schölkopf
    2018 (private kernel means); Williams & Seeger 2001 (Nyström); Sugiyama 2010 (the classifier); Kanamori,
    Suzuki & Sugiyama 2012 (the ratio); Mironov 2012 (why noise is added to integers).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse

from consilience.errors import InvalidInput
from consilience.numerics.density import MOST_LANDMARKS, median_of, squared_distances
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_number

SCALE = 1 << 16
"""Steps of the grid in a length of 1."""

CONSTANT = 0.2
"""The coordinate that all rows share: its sums say how many rows there are."""

Kernel = Literal["gaussian", "linear"]

_DIMENSIONS = 24
"""Features by default: of digits, some 900 private rows in all, more bear noise worse."""

_CHUNK = 4096
"""Rows that are mapped at a time."""


@dataclass(frozen=True, eq=False)
class PublicBasis:
    """Features of rows made of public rows alone, of norm 1 at most whatever the row and the matrix are.

    Attributes:
        kernel: ``"gaussian"``, ``exp(-|x - z|² / width)``, or ``"linear"``, whose features are the public
            rows' principal directions.
        landmarks: public rows that rows are compared with, shape ``(l,)``, int64.
        matrix: from kernels to features, shape ``(d, l)``, float32.
        width: of the Gaussian kernel.
    """

    kernel: Kernel
    landmarks: Array
    matrix: Array
    width: float

    @classmethod
    def of(
        cls, public: Any, rng: np.random.Generator, *, kernel: Kernel, dimensions: int | None = None
    ) -> PublicBasis:
        """Make the basis of public rows: their leading directions under a kernel.

        Args:
            public: features of the public rows, shape ``(N, k)``, dense or sparse.
            rng: draws the landmarks.
            kernel: as above.
            dimensions: features, the constant aside; by default 24, or as many as there are.

        Raises:
            InvalidInput: the public rows have fewer directions.
        """
        landmarks = np.sort(rng.permutation(public.shape[0])[:MOST_LANDMARKS]).astype(np.int64)
        width = median_of(squared_distances(public[landmarks], public[landmarks]))
        raw = cls(kernel, landmarks, np.eye(len(landmarks), dtype=np.float32), width)
        near = raw.kernels(public[landmarks], public)
        values, vectors = np.linalg.eigh(near)
        values, vectors = values[::-1], vectors[:, ::-1]
        there = int((values > 1e-8 * values[0]).sum())
        dimensions = min(_DIMENSIONS, there) if dimensions is None else dimensions
        if dimensions > there:
            raise InvalidInput(
                f"{dimensions} dimensions of public rows that have {there}",
                where="dimensions",
                mend=f"Give {there} or fewer, or more public rows.",
            )
        matrix = (vectors[:, :dimensions] / np.sqrt(values[:dimensions])).T
        if kernel == "linear":  # no longer than 1 for half of the public rows
            matrix /= np.median(np.linalg.norm(near @ matrix.T, axis=1))
        return cls(kernel, landmarks, matrix.astype(np.float32), width)

    @property
    def digest(self) -> str:
        """Digest of all that it is."""
        found = hashlib.sha256(f"{self.kernel} {self.width!r} {self.matrix.shape}".encode())
        found.update(np.ascontiguousarray(self.landmarks, dtype="<i8").tobytes())
        found.update(np.ascontiguousarray(self.matrix, dtype="<f4").tobytes())
        return found.hexdigest()[:32]

    def kernels(self, features: Any, public: Any) -> Array:
        """Compute the kernel of rows and landmarks, shape ``(n, l)``.

        Args:
            features: of the rows, shape ``(n, k)``.
            public: features of the public rows, shape ``(N, k)``.
        """
        landmarks = public[self.landmarks]
        if self.kernel == "gaussian":
            return np.asarray(np.exp(-squared_distances(features, landmarks) / self.width))
        found = features @ landmarks.T
        return np.asarray(found.toarray() if issparse(found) else found, dtype=np.float64)

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
    """Pull rows back to norm 1 where they are longer; one that is not finite becomes 0.

    Args:
        rows: shape ``(n, d)``.
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
    """Sum up rows by class, so that one unit moves the whole table by 1 at most, or :data:`SCALE` steps.

    Args:
        rows: features of norm 1 at most, shape ``(n, d)``.
        codes: class of each, from 0 on, shape ``(n,)``.
        classes: their number, those without rows among them.
        units: unit of each row, shape ``(n,)``, int64 from 0 on; each row is one by default. The sums of a
            unit's rows are pulled back to norm 1 as one vector.

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


@dataclass(frozen=True)
class SumsFit:
    """Settings by which a teacher is made of sums with noise.

    Attributes:
        ridge: r_0 of the sums without noise, in rows.
        caution: κ, by how much noise adds to the ridge.

    Raises:
        InvalidInput: a setting below 0, or no ridge at all.
    """

    ridge: float = 0.5
    caution: float = 1.0

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, above=0, where="private_sums")
        check_number("caution", self.caution, at_least=0, where="private_sums")


def class_ratios(sums: Array, public: Array, sigma: float, fit: SumsFit) -> Array:
    """Estimate how many rows of each class come on each public row, 0 where a fit is below.

    The ridge is ``(r_0 + κ σ sqrt(d)) N / n``, n being what the constant's sums say of the number of rows.

    Args:
        sums: of the classes, with their noise, shape ``(n_classes, d)``, the constant last.
        public: features of the public rows, shape ``(N, d)``.
        sigma: standard deviation of the noise in each number.
        fit: settings.

    Returns:
        Shape ``(N, n_classes)``.
    """
    count, dimensions = public.shape
    rows = max(1.0, float(sums[:, -1].sum()) / CONSTANT)
    ridge = (fit.ridge + fit.caution * sigma * np.sqrt(dimensions)) * count / rows
    system = public.T @ public + ridge * np.eye(dimensions)
    return np.asarray(np.maximum(public @ np.linalg.solve(system, sums.T), 0))


def taught_by(ratios: Array) -> tuple[Array, Array]:
    """Make soft labels of ratios, shape ``(N, n_classes)``, and mark the rows that have any.

    Args:
        ratios: shape ``(N, n_classes)``, 0 or more.
    """
    taught = np.asarray(ratios.any(axis=1))
    spread = ratios + 1e-3 * ratios.mean(axis=1, keepdims=True)
    spread[~taught] = 1.0
    return spread / spread.sum(axis=1, keepdims=True), taught

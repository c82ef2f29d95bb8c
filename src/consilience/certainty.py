"""How much a party knows of a public row, judged by inputs alone: is the row like its private ones?

Both answers depend on inputs and on no model, so that a party gives them once. Rows are compared in a space
that is made of the public inputs alone: it says nothing of private ones, and all parties share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from consilience.errors import InvalidInput

Array = NDArray[Any]

DIMENSIONS = 30
"""Numbers that a public space keeps of a row, at most."""

REFERENCE_ROWS = 1000
"""Rows that stand for the reference of a density ratio, at most: its cost is cubic in them."""

CERTAINTY_FLOOR = 1e-8
"""Added to every certainty, so that those of a row cannot all be 0 (Sattler et al. 2021)."""


@dataclass(frozen=True)
class PublicSpace:
    """The principal directions of the public inputs, at most :data:`DIMENSIONS` of them.

    Columns of a table have units of their own and are divided by their standard deviations; pictures keep
    their one scale; texts are TF-IDF word weights with the words of the public texts.

    Attributes:
        numbers: inputs to numbers, shape ``(n, d)``.
        axes: shape ``(d, k)``, orthonormal columns.
    """

    numbers: Callable[[Array], Any]
    axes: Array

    @classmethod
    def fit(cls, X: Array) -> PublicSpace:
        """The space of these public inputs.

        Args:
            X: shape ``(n, ...)`` of numbers, or ``(n,)`` of strings.

        Raises:
            InvalidInput: texts without words.
        """
        # Here, because it brings scikit-learn: a second that those who need no space are spared.
        from sklearn.utils.extmath import randomized_svd

        numbers = _words(X) if X.dtype.kind in "UO" else _columns(X)
        rows = numbers(X)
        count = min(DIMENSIONS, *rows.shape)
        _, _, axes = randomized_svd(rows, count, random_state=0)
        return cls(numbers, axes.T)

    def __call__(self, X: Array) -> Array:
        """The inputs' coordinates, shape ``(n, k)``."""
        return np.asarray(self.numbers(X) @ self.axes)


def _columns(X: Array) -> Callable[[Array], Array]:
    def flat(rows: Array) -> Array:
        return rows.reshape(len(rows), -1).astype(np.float64)

    public = flat(X)
    centre, spread = public.mean(axis=0), public.std(axis=0)
    # A constant column has a spread of rounding size, not always 0.
    constant = spread <= 1e-9 * np.abs(public).max(axis=0)
    scale = np.where(constant | (X.ndim > 2), 1.0, spread)
    return lambda rows: (flat(rows) - centre) / scale


def _words(X: Array) -> Callable[[Array], Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    try:
        vectorizer.fit(X)
    except ValueError as error:
        raise InvalidInput(
            "the public texts hold no words",
            where="public",
            mend="Give texts of two letters or more.",
        ) from error
    return lambda rows: vectorizer.transform(rows)


# --- certainty scores -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Privacy:
    """Gaussian noise on the weights of a logistic regression: (ε, δ)-differential privacy.

    For one private row replaced by another. The scale is ``sqrt(2 ln(1.25 / δ)) Δ / ε`` with the
    sensitivity ``Δ = 2 / (n λ)``; it holds for ε below 1.

    Attributes:
        epsilon: ε in (0, 1).
        delta: δ in (0, 1).

    Source:
        Sattler et al. 2021 (FedAUX); Chaudhuri et al. 2011, Corollary 8 (sensitivity); Dwork & Roth 2014,
        Theorem 3.22 (scale).
    """

    epsilon: float
    delta: float

    def scale(self, rows: int, regularization: float) -> float:
        """Standard deviation of the noise on each weight, for n ``rows`` and λ ``regularization``."""
        sensitivity = 2 / (rows * regularization)
        return float(np.sqrt(2 * np.log(1.25 / self.delta)) * sensitivity / self.epsilon)


def certainties(
    private: Array,
    public: Array,
    *,
    regularization: float,
    privacy: Privacy | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """How surely each public row is taken for a private one: a logistic regression that tells them apart.

    ``s(x) = 1 / (1 + exp(-<w, h(x)>)) + 1e-8``, where w minimises

        ``(1/n) sum_i log(1 + exp(-y_i <w, h(x_i)>)) + (λ/2) |w|²``

    over the n private (y = 1) and public (y = −1) rows, and ``h(x) = (z, 1) / sqrt(2)`` with z the row
    divided by the largest norm of a public row, and pulled back to norm 1 where it is longer. So ``|h| ≤ 1``
    whatever the private rows are, and the constant is regularised too: the sensitivity of
    :class:`Privacy` needs both.

    Args:
        private: shape ``(n_private, k)``, coordinates in a :class:`PublicSpace`.
        public: shape ``(n_public, k)``.
        regularization: λ > 0.
        privacy: noise on w; none by default.
        rng: where the noise comes from; nobody else may know its seed.

    Returns:
        shape ``(n_public,)``, in (0, 1].

    Source:
        Sattler et al. 2021 (FedAUX), certainty scores.
    """
    from sklearn.linear_model import LogisticRegression

    radius = float(np.linalg.norm(public, axis=1).max()) or 1.0
    ours, theirs = _in_the_ball(private / radius), _in_the_ball(public / radius)
    rows = np.concatenate([ours, theirs])
    own = np.repeat([1, 0], [len(ours), len(theirs)])
    # Its C multiplies the sum of the losses and stands against |w|²/2.
    model = LogisticRegression(
        C=1 / (len(rows) * regularization),
        fit_intercept=False,
        solver="newton-cholesky",
        tol=1e-8,
    ).fit(rows, own)
    weights = model.coef_[0]
    if privacy is not None:
        assert rng is not None
        weights = weights + rng.normal(
            scale=privacy.scale(len(rows), regularization), size=weights.shape
        )
    return np.asarray(np.minimum(expit(theirs @ weights) + CERTAINTY_FLOOR, 1.0))


def _in_the_ball(rows: Array) -> Array:
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return np.asarray(np.hstack([rows / norms, np.ones((len(rows), 1))]) / np.sqrt(2))


# --- selection --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DensityRatio:
    """Kernel unconstrained least-squares importance fitting (KuLSIF) of ``p / q``.

    With y_1 … y_m drawn from p, x_1 … x_n from q, and the Gaussian kernel ``k(u, v) = exp(-|u - v|² / 2σ²)``,

        ``r(z) = sum_i a_i k(z, x_i) + (1 / (m λ)) sum_j k(z, y_j)``,
        ``(K_xx / n + λ I) a = -K_xy 1 / (n m λ)``.

    It may come out below 0 where p is small.

    Attributes:
        known: y, shape ``(m, k)``.
        reference: x, shape ``(n, k)``.
        coefficients: a, shape ``(n,)``.
        width: σ > 0, in the units of the rows.
        regularization: λ > 0.

    Source:
        Kanamori, Suzuki & Sugiyama 2012.
    """

    known: Array
    reference: Array
    coefficients: Array
    width: float
    regularization: float

    @classmethod
    def fit(
        cls, known: Array, reference: Array, *, width: float, regularization: float | None = None
    ) -> DensityRatio:
        """Fit the ratio.

        Args:
            known: rows from p, shape ``(m, k)``.
            reference: rows from q, shape ``(n, k)``.
            width: σ > 0.
            regularization: λ > 0; ``min(m, n)^-0.9`` by default, as Kanamori et al. take it.
        """
        m, n = len(known), len(reference)
        penalty = min(m, n) ** -0.9 if regularization is None else regularization
        right = -_gaussian(reference, known, width).sum(axis=1) / (n * m * penalty)
        left = _gaussian(reference, reference, width) / n
        left[np.diag_indices(n)] += penalty
        return cls(known, reference, cho_solve(cho_factor(left), right), width, penalty)

    def __call__(self, rows: Array) -> Array:
        """The ratio at each row, shape ``(n_rows,)``."""
        against = _gaussian(rows, self.reference, self.width) @ self.coefficients
        return np.asarray(
            against + _gaussian(rows, self.known, self.width).mean(axis=1) / self.regularization
        )


def selection(
    known: Array,
    held_out: Array,
    public: Array,
    *,
    reference: str,
    quantile: float,
    rng: np.random.Generator,
) -> Array:
    """Which public rows are as likely as a party's own, shape ``(n_public,)``, bool.

    Those whose density ratio is not below the ``quantile`` of what the party's held-out rows have. The
    kernel's width is the median distance between public rows.

    Args:
        known: private rows the ratio is fitted to, shape ``(n, k)``, in a :class:`PublicSpace`.
        held_out: private rows that it was not fitted to, shape ``(n_held_out, k)``, at least one.
        public: shape ``(n_public, k)``.
        reference: q of the ratio: ``"uniform"`` over the box that the public rows fill, or the
            ``"public"`` rows themselves.
        quantile: the share of its own rows in [0, 1) that a party may take for foreign.
        rng: draws the uniform rows.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors.
    """
    few = public[:: -(-len(public) // REFERENCE_ROWS)]
    if reference == "uniform":
        low, high = public.min(axis=0), public.max(axis=0)
        against = rng.uniform(low, high, size=(min(len(public), REFERENCE_ROWS), len(low)))
    else:
        against = few
    ratio = DensityRatio.fit(known, against, width=_median_distance(few))
    return np.asarray(ratio(public) >= np.quantile(ratio(held_out), quantile))


def _median_distance(rows: Array) -> float:
    """Between different rows; 1 where all are the same."""
    squares = _squared_distances(rows, rows)
    apart = squares[squares > 1e-12 * squares.max(initial=0)]
    return float(np.sqrt(np.median(apart))) if len(apart) else 1.0


def _gaussian(rows: Array, others: Array, width: float) -> Array:
    return np.asarray(np.exp(_squared_distances(rows, others) / (-2 * width**2)))


def _squared_distances(rows: Array, others: Array) -> Array:
    lengths = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * rows @ others.T, 0))

"""The effective dimension of a kernel: how many directions regularisation leaves to the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from consilience_papers.theory.expansion import Array, Kernel, gram, positive, rows


def effective_dimension(eigenvalues: ArrayLike, regularization: float) -> float:
    """``N(λ) = tr((L_k + λ)⁻¹ L_k) = Σ μ_i / (μ_i + λ)``.

    Args:
        eigenvalues: the μ_i of the operator L_k, shape ``(n,)``, none below 0; see :func:`sample_spectrum`.
        regularization: λ > 0.

    Raises:
        ValueError: eigenvalues below 0 or not finite; λ ≤ 0.

    Source:
        Park et al. 2023, section 3.1.

    Example:
        >>> effective_dimension([1.0, 0.25], 0.25)
        1.3
    """
    positive(regularization, "regularization")
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("eigenvalues must be finite and at least 0")
    return float((values / (values + regularization)).sum())


def sample_spectrum(kernel: Kernel, X: ArrayLike) -> Array:
    """The eigenvalues of L_k that a sample sees: those of ``K / n``, largest first.

    Args:
        kernel: k.
        X: a sample of inputs, shape ``(n, d)``; for N(λ) take n well above N(λ).

    Returns:
        Shape ``(n,)``; rounding errors below 0 are set to 0.

    Raises:
        ValueError: a kernel that is not positive semi-definite on these rows.
    """
    X = rows(X)
    values = np.linalg.eigvalsh(gram(kernel, X, X) / len(X))[::-1]
    if values[-1] < -1e-8 * values[0]:
        raise ValueError(
            f"the kernel is not positive semi-definite: on these rows it has the eigenvalue "
            f"{values[-1]:.3g}; take another one"
        )
    return np.asarray(np.maximum(values, 0))


def brownian_effective_dimension(regularization: float) -> float:
    """N(λ) of the kernel ``1 + min(x, z)`` for inputs uniform on [0, 1], exactly.

    Differentiating ``∫ (1 + min(x, z)) φ(z) dz = μ φ(x)`` once and twice gives μ φ'(x) = ∫_x¹ φ(z) dz and
    μ φ'' = −φ, with φ'(1) = 0 and φ'(0) = φ(0). Hence φ(x) = cos(ω (1 − x)), μ = 1/ω² and ω tan ω = 1: one
    root ω_j in each (jπ, jπ + π/2), j = 0, 1, …. The entire function cos ω − ω sin ω has these roots, is even
    and 1 at 0, so it is Π (1 − ω²/ω_j²); at ω = ia it reads cosh a + a sinh a = Π (1 + a² μ_j). From its
    logarithmic derivative,

        N(λ) = Σ 1 / (1 + λ ω_j²) = (a/2) (a + 2 tanh a) / (1 + a tanh a),   a = λ^{-1/2},

    which is 3/(2λ), the trace over λ, for large λ and close to λ^{-1/2}/2 for small λ.

    Args:
        regularization: λ > 0.

    Raises:
        ValueError: λ ≤ 0.
    """
    positive(regularization, "regularization")
    a = regularization**-0.5
    return float(a / 2 * (a + 2 * np.tanh(a)) / (1 + a * np.tanh(a)))

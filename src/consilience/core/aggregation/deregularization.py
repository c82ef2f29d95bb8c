"""De-regularisation: compensate in advance for the shrinkage by a kernel ridge regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

Kernel = Callable[[Array, Array], Array]

_KERNEL_RIDGE = {"regularization": 1e-3, "kernel": "rbf", "gamma": None, "degree": 3, "coef0": 1.0}
"""Parameters that must be equal in the de-regularisation and in all models, with the models' defaults."""


@dataclass(frozen=True)
class Deregularization:
    """De-regularise a consensus before it is sent, so that distilling does not shrink it.

    A client that fits the targets v on the N_p public rows with penalty λ answers ``K_pp (K_pp +
    N_p λ I)⁻¹ v``. It is therefore sent

        w = (K_pp + ε I + N_p λ0 I) (K_pp + ε I)⁻¹ v = v + N_p λ0 (K_pp + ε I)⁻¹ v,

    with λ0 = λ in the paper. The jitter makes K_pp invertible in floating point: ε is ``jitter`` times the
    mean of K_pp's diagonal. K_pp + ε I replaces K_pp throughout, so that λ0 = 0 leaves v unchanged. A
    component of v along an eigenvector of K_pp with eigenvalue μ is multiplied by ``1 + N_p λ0 / (μ + ε)``,
    and so are its rounding errors. Values are therefore sent in double precision.

    Only the server computes this, from the public inputs and without private data.

    Args:
        kernel: the clients' kernel, a name of :data:`consilience.core.numerics.kernels.KERNELS` or a
            function.
        regularization: λ0 ≥ 0; 0 disables de-regularisation.
        jitter: ε relative to the mean of K_pp's diagonal, in [0, 1).
        gamma: kernel coefficient; ``None`` uses scikit-learn's default.
        degree: degree of a polynomial kernel, as in scikit-learn.
        coef0: constant term of a polynomial or sigmoid kernel, as in scikit-learn.

    Raises:
        InvalidInput: an argument out of its range, or no kernel of that name.

    Source:
        Park et al. 2023, eq. 7; Nguyen et al. 2021 (kernel inducing points).

    >>> lift = Deregularization("linear", 0.5, jitter=0).of(np.eye(2))
    >>> lift(np.array([[1.0], [3.0]])).tolist()
    [[2.0], [6.0]]
    """

    kernel: str | Kernel
    regularization: float
    jitter: float = 1e-10
    _: KW_ONLY
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        self._function()
        check_number(
            "regularization",
            self.regularization,
            at_least=0,
            where="deregularize",
            mend="Give the clients' own λ, a number above 0; 0 switches it off.",
        )
        check_number("jitter", self.jitter, at_least=0, below=1, where="deregularize")

    def check_models(self, models: Sequence[tuple[str, Mapping[str, Any]]], method: str) -> None:
        """Check that all models are kernel ridge regressions with this kernel and regularisation.

        With other models, de-regularised targets can grow without bound over the rounds. The check is
        skipped if ``regularization`` is 0.

        Args:
            models: name of each and its parameters.
            method: label of the method, for the error.

        Raises:
            InvalidInput: a model is of another kind, or has other parameters.
        """
        if self.regularization == 0:
            return
        where = f"method {method}, deregularize"
        for i, (name, options) in enumerate(models):
            if name != "kernel-ridge" and not name.endswith(":KernelRidge"):
                raise InvalidInput(
                    f"models.{i} is {name}, and only kernel ridge regressions can be de-regularised",
                    where=where,
                    mend="Make every model kernel-ridge, or leave deregularize out.",
                )
            for key, usual in _KERNEL_RIDGE.items():
                ours, theirs = getattr(self, key), options.get(key, usual)
                if ours != theirs:
                    raise InvalidInput(
                        f"{key} is {ours!r}, and {theirs!r} in models.{i}",
                        where=where,
                        mend="All need the same kernel and the same regularisation, a number.",
                    )

    def of(self, X: Array) -> Callable[[Array], Array]:
        """Return the function v ↦ w for these public rows, with the kernel matrix factorised once.

        Args:
            X: public inputs, shape ``(n_public, d)``, numbers.

        Returns:
            A function from values of shape ``(n_public, n_outputs)`` to the same shape.

        Raises:
            InvalidInput: inputs are not rows of numbers, rows are equal, the kernel is not positive
                semi-definite, or the kernel matrix cannot be inverted.
        """
        from consilience.core.numerics.kernels import check_definite, check_distinct, gram

        if self.regularization == 0:
            return lambda values: values
        X = _rows_of_numbers(X)
        check_distinct(X, where="deregularize")
        kernel = self._function()
        check_definite(kernel, X)
        K = gram(kernel, X)
        K[np.diag_indices_from(K)] += self.jitter * np.trace(K) / len(K)
        try:
            factor = cho_factor(K, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise InvalidInput(
                "the kernel matrix of the public rows cannot be inverted",
                where="deregularize",
                mend=f"Raise jitter (it is {self.jitter:g}), take fewer public rows, or another kernel.",
            ) from error
        return lambda values: values + len(X) * self.regularization * cho_solve(factor, values)

    def _function(self) -> Kernel:
        # Here, because it brings scikit-learn: a second that those who need no kernel are spared.
        from consilience.core.numerics.kernels import kernel_of

        return kernel_of(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)


def _rows_of_numbers(X: Array) -> Array:
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise InvalidInput(
            f"public inputs are {X.dtype} of shape {X.shape}, and a kernel takes rows of numbers",
            where="deregularize",
            mend="Make each a vector: X.reshape(len(X), -1), or flat = true under [data].",
        )
    return X.astype(np.float64)

"""Boosting by functional gradients: a sum of weak regressors, each fitted to the loss's gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.base import Abilities, Learner, Phase
from consilience.core.learners.targets import usable
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.numbers import check_choice, check_number
from consilience.methods.functional_boosting.ensemble_weights import descent_weights
from consilience.methods.functional_boosting.losses import (
    DIVERGED,
    ConvexLoss,
    check_convex,
    loss_of,
)
from consilience.methods.functional_boosting.weak_fits import LeastSquares, oracle_of
from consilience.methods.functional_boosting.weak_learner import packages_of, weak_learner
from consilience.methods.functional_boosting.weighted_ensemble import (
    WeightedEnsemble,
    described,
    read_arrays,
    write_arrays,
)
from consilience.models.files.transfer import TRUSTED, check_packing

Query = Callable[[Learner, Array, Array, np.random.Generator], None]
"""A weak-learning oracle: trains a regression learner, in place, towards targets ``(n, n_outputs)``."""


class Boosted(Learner):
    """Boost a weighted sum of weak regressors by functional gradient descent on a convex loss.

    The model is ``f(x) = Σ_j w_j h_j(x)``, with weak regressors h_j fitted to functional gradients. ``fit``
    starts from f = 0 and takes ``steps`` descent steps (:meth:`descend`) on the empirical objective

        F[f] = (1/n) Σ_i ℓ(f(x_i), y_i) + (μ/2n) Σ_i ‖f(x_i)‖².

    :func:`consilience.methods.functional_boosting.protocol` trains one such sum with many parties. A
    classifier predicts the loss's probabilities of f (softmax for cross-entropy), and its logits are f.

    Args:
        weak: weak learner, a regressor: anything that :func:`consilience.core.learners.as_learner` takes, or
            a table ``{"name": …}`` with parameters, as in a configuration. A network is initialised again for
            every step.
        loss: ``"cross-entropy"``, ``"logistic"``, ``"squared"``, or a
            :class:`~consilience.methods.functional_boosting.losses.ConvexLoss`; by default cross-entropy for
            classification, squared for regression.
        kind: ``"classification"`` or ``"regression"``; by default the kind of the loss, or classification
            without a loss.
        steps: number of steps K in ``fit``; the protocol has separate steps, step size, ridge and residual.
        step_size: step size η.
        ridge: regularisation μ ≥ 0.
        residual: add the part of a step's target that its weak learner missed to the next target. Leave it
            off for ``fit``: with several steps it overshoots.
        oracle: method for fitting a weak learner: a name of
            :data:`consilience.methods.functional_boosting.weak_fits.ORACLES`, an oracle with options, or a
            function ``(learner, X, targets, rng)``. ``"l2"`` calls the weak learner's ``fit`` (Shen et al.,
            equation 6).
        trusts: packages whose weak learners are accepted as terms of the sum, or from a saved sum, in
            addition to the package of ``weak``.

    Attributes:
        weak: the untrained weak learner.
        loss: the loss.
        ensemble: f; ``None`` if f = 0.
        packages: packages that other parties have to trust to use its weak learners.

    Raises:
        InvalidInput: the weak learner does not regress, requires held-out rows or cannot be fitted by the
            oracle; the loss is not convex; or a number is out of range.

    Source:
        Mason et al. 2000; Shen, Hassani, Kale & Karbasi 2022, equations 2, 4 and 6.

    Example:
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> X = np.arange(6.0)[:, None]
        >>> learner = Boosted(DecisionTreeRegressor(max_depth=1), loss="squared", steps=40, step_size=0.5)
        >>> learner.fit(X, X**2, rng=np.random.default_rng(0))
        >>> abs(learner.predict(X) - X**2).max() < 0.5
        np.True_
    """

    suffix = ".safetensors"

    def __init__(
        self,
        weak: Any,
        *,
        loss: str | ConvexLoss | None = None,
        kind: Kind | None = None,
        steps: int = 50,
        step_size: float = 0.1,
        ridge: float = 0.0,
        residual: bool = False,
        oracle: str | Query = "l2",
        trusts: Sequence[str] = TRUSTED,
    ) -> None:
        self.name = "Boosted"
        if loss is None:
            loss = "squared" if kind == "regression" else "cross-entropy"
        self.loss = loss_of(loss)
        kind = kind or self.loss.kind
        check_choice("kind", kind, get_args(Kind))
        if kind == "regression" and self.loss.kind == "classification":
            raise InvalidInput(
                f"the loss {self.loss.name!r} is for classification",
                where=self.name,
                mend='Regression takes loss="squared", or a ConvexLoss of your own.',
            )
        if kind == "classification" and self.loss.probabilities is None:
            raise InvalidInput(
                f"the loss {self.loss.name!r} does not say what probabilities its values are",
                where=self.name,
                mend="Give it probabilities=, or take kind='regression'.",
            )
        self.weak = weak_learner(weak)
        self.name = f"Boosted({getattr(self.weak, 'name', type(self.weak).__name__)})"
        check_number("steps", steps, at_least=1, whole=True, where=self.name)
        check_number("step_size", step_size, above=0, where=self.name)
        check_number("ridge", ridge, at_least=0, where=self.name)
        if isinstance(trusts, str):
            raise InvalidInput(
                f"trusts is {trusts!r}", where=self.name, mend=f"Give a list: [{trusts!r}]."
            )
        self.steps, self.step_size, self.ridge, self.residual = steps, step_size, ridge, residual
        self.oracle: Query = oracle if callable(oracle) else oracle_of(oracle)
        if callable(check := getattr(self.oracle, "check", None)):
            check(self.weak)
        self._by_least_squares = isinstance(self.oracle, LeastSquares)
        self.packages = packages_of(self.weak)
        self.trusts = (*trusts, *self.packages)
        self.abilities = Abilities(
            kind,
            "native",
            logits=kind == "classification",
            sample_weight=self._by_least_squares and self.weak.abilities.sample_weight,
            takes="gaps" if self.weak.abilities.gaps else "numbers",
            how="The loss's gradient takes soft labels as they are.",
        )
        self.ensemble: WeightedEnsemble | None = None
        self._started = False

    @property
    def model(self) -> Any:
        """The weak learner's estimator; ``None`` if it has none."""
        return getattr(self.weak, "model", None)

    @property
    def student(self) -> Learner:
        """A copy of the single trained weak learner that equals f after a distillation.

        Raises:
            InvalidInput: f is a sum of several weak learners, or 0.
        """
        if self.ensemble is None or self.ensemble.weights.tolist() != [1.0]:
            count = 0 if self.ensemble is None else len(self.ensemble)
            raise InvalidInput(
                f"f is a weighted sum of {count} weak learners, not one of them",
                where=self.name,
                mend="Distil it: functional_gradient_boosting(…, distill=True).",
            )
        return copy.deepcopy(self.ensemble.learner(0))

    def bind(self, n_outputs: int, schema: Schema | None = None) -> None:
        if schema is not None and not schema.plain:
            raise InvalidInput(
                "sums of weak learners take tables of numbers without gaps",
                where=self.name,
                mend="Take another model, such as gradient-boosting, which takes gaps and categories.",
            )
        super().bind(n_outputs)
        check_convex(self.loss, n_outputs)
        self.weak.bind(n_outputs)

    def check(self, example: Array) -> None:
        self.weak.check(example)

    def check_saving(self) -> None:
        check_packing(self.weak)

    def start(self) -> None:
        """Set ``f = 0``."""
        self.ensemble, self._started = None, True

    def fit(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        weights: Array | None = None,
        validation: tuple[Array, Array] | None = None,
        phase: Phase = "private",
    ) -> None:
        X, targets, weights = usable(
            np.asarray(X),
            targets,
            weights,
            n_outputs=self.n_outputs,
            kind=self.abilities.kind,
            where=self.name,
        )
        if weights is not None and not self.abilities.sample_weight:
            raise InvalidInput("the weak learner takes no row weights", where=self.name)
        if targets.shape[1] != self.n_outputs:
            self.bind(targets.shape[1])
        f = np.zeros(targets.shape)
        limit = DIVERGED * max(self.objective(f, targets, self.ridge), np.finfo(np.float64).eps)
        rates = [self.step_size] * self.steps
        found, at_rows = self.descend(
            X,
            targets,
            f,
            step_sizes=rates,
            ridge=self.ridge,
            residual=self.residual,
            limit=limit,
            rng=rng,
            weights=weights,
        )
        reached = self.objective(at_rows, targets, self.ridge)
        if not reached <= limit:
            raise RunFailed(
                f"the step size {self.step_size:g} diverges: after {len(found)} steps the objective is "
                f"{reached:.3g}, more than {DIVERGED:g} times that of f = 0",
                where=self.name,
                mend="Take one below 2 / (smoothness + ridge) = "
                f"{2 / (self.loss.smoothness + self.ridge):.3g}: with exact weak learners it cannot diverge.",
            )
        terms = descent_weights(rates, self.ridge)
        self.ensemble = WeightedEnsemble(found, terms, trusted=self.trusts)
        self._started = True

    def objective(self, f: Array, targets: Array, ridge: float) -> float:
        """Compute the objective ``F[f]``; it may be infinite or NaN.

        Args:
            f: values of f at the rows, shape ``(n, n_outputs)``.
            targets: targets of the rows, shape ``(n, n_outputs)``.
            ridge: μ.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self.loss.mean(f, targets) + 0.5 * ridge * float(np.square(f).sum(axis=1).mean())

    def descend(
        self,
        X: Array,
        targets: Array,
        f: Array,
        *,
        step_sizes: Sequence[float],
        ridge: float,
        residual: bool,
        limit: float,
        rng: np.random.Generator,
        weights: Array | None = None,
    ) -> tuple[list[Learner], Array]:
        """Restricted functional gradient descent with residual, from f: Algorithm 2 of Shen et al. 2022.

        From ``g = f`` and ``Δ = 0``, for each step size η:

            h = Q(Δ + ∂ℓ(g, y)),    Δ ← Δ + ∂ℓ(g, y) − h,    g ← g − η (h + μ g),

        so that in the end ``g = Π_k (1 − η_k μ) f + Σ_k w_k h_k`` with the weights
        of :func:`~consilience.methods.functional_boosting.ensemble_weights.descent_weights`. It stops early
        when the objective exceeds ``limit``.

        Args:
            X: the rows, shape ``(n, ...)``.
            targets: shape ``(n, n_outputs)``.
            f: the start, at the rows, ``(n, n_outputs)``.
            step_sizes: η_1 … η_K.
            ridge: μ.
            residual: without it Δ stays 0.
            limit: of the objective.
            rng: the only source of randomness.
            weights: of the rows, shape ``(n,)``.

        Returns:
            The weak learners h_k, and g at the rows, ``(n, n_outputs)``.

        Source:
            Shen et al. 2022, Algorithm 2.
        """
        g, left, found = f, np.zeros(targets.shape), []
        for rate in step_sizes:
            gradient = self.loss.gradient(g, targets)
            query = left + gradient if residual else gradient
            h = copy.deepcopy(self.weak)
            if weights is None:
                self.oracle(h, X, query, rng)
            else:
                h.fit(X, query, rng=rng, weights=weights, phase="first")
            answers = h.predict(X)
            left = left + gradient - answers
            with np.errstate(over="ignore", invalid="ignore"):
                g = g - rate * (answers + ridge * g)
            found.append(h)
            if not self.objective(g, targets, ridge) <= limit:
                break
        return found, g

    def approximated(
        self, X: Array, values: Array, *, rng: np.random.Generator, warm_start: bool = False
    ) -> Learner:
        """Fit one weak learner by least squares to ``values`` at ``X``.

        Args:
            X: rows, shape ``(n, ...)``.
            values: target values, shape ``(n, n_outputs)``, such as the values of a sum.
            rng: the only source of randomness.
            warm_start: continue from :attr:`student`, by the recipe for distillation.

        Returns:
            The trained weak learner.

        Source:
            Shen et al. 2022, equation 17.
        """
        student = self.student if warm_start else copy.deepcopy(self.weak)
        student.fit(X, values, rng=rng, phase="distill" if warm_start else "first")
        return student

    def predict(self, X: Array) -> Array:
        f = self.values(X)
        if self.abilities.kind == "regression":
            return f
        assert self.loss.probabilities is not None
        return self.loss.probabilities(f)

    def logits(self, X: Array) -> Array:
        return self.values(X)

    def values(self, X: Array) -> Array:
        """Compute f at ``X``, shape ``(n, n_outputs)``."""
        if not self._started:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        X = np.asarray(X)
        if self.ensemble is None:
            return np.zeros((len(X), self.n_outputs))
        return self.ensemble.predict(X)

    @property
    def fitted(self) -> bool:
        return self._started

    def save(self, path: Path) -> None:
        if not self._started:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        abouts, data = ([], []) if self.ensemble is None else self.ensemble.packed()
        about = {
            "kind": self.abilities.kind,
            "loss": self.loss.name,
            "n_outputs": self.n_outputs,
            "models": abouts,
        }
        weights = np.zeros(0) if self.ensemble is None else self.ensemble.weights
        arrays = {"weights": weights, **{str(i): one for i, one in enumerate(data)}}
        write_arrays(Path(path), arrays, about)

    def load(self, path: Path) -> None:
        about, arrays = read_arrays(Path(path))
        try:
            found = (about["kind"], about["loss"])
            n_outputs, models = int(about["n_outputs"]), described(about["models"], arrays)
            weights = arrays["weights"]
        except (KeyError, TypeError, ValueError) as error:
            raise RunFailed("the file does not hold a Boosted of ours", where=str(path)) from error
        if found != (self.abilities.kind, self.loss.name):
            raise RunFailed(
                f"the file holds a Boosted for {found[0]} with loss {found[1]!r}, expected "
                f"{self.abilities.kind} with {self.loss.name!r}",
                where=str(path),
            )
        if self.n_outputs and n_outputs != self.n_outputs:
            raise RunFailed(
                f"the file holds a model with {n_outputs} outputs, expected {self.n_outputs}",
                where=str(path),
            )
        if n_outputs != self.n_outputs:
            self.bind(n_outputs)
        self.ensemble, self._started = None, True
        if models:
            self.ensemble = WeightedEnsemble(models, weights, trusted=self.trusts)

"""scikit-learn, XGBoost, LightGBM and CatBoost estimators, and any object with ``fit`` and ``predict``."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.learners.base import Learner, Phase
from consilience.core.learners.sklearn.abilities import abilities_of
from consilience.core.learners.sklearn.answers import checked, shares_of
from consilience.core.learners.sklearn.estimators import (
    fit_steps,
    is_catboost,
    kind_of,
    make_of,
    parts,
    seeded,
    takes_many_outputs,
    texts_of_categories,
    told_categories,
    unfitted,
    with_soft_label_equivalent,
)
from consilience.core.learners.sklearn.per_class import (
    Coding,
    check_options,
    translate_options,
)
from consilience.core.learners.sklearn.per_column import column_option
from consilience.core.learners.sklearn.row_weights import (
    has_inner_folds,
    without_inner_folds,
)
from consilience.core.learners.sklearn.soft_logistic import is_plain_logistic
from consilience.core.learners.targets import (
    SMALLEST_OF_BINS,
    SMALLEST_SHARE,
    expand,
    harden,
    usable,
    without_small,
)
from consilience.core.registry import registered_object
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind


class SklearnLearner(Learner):
    """Learner for a model with scikit-learn's ``fit`` and ``predict``, retrained from scratch on every fit.

    The model is trained on the classes present in the rows, numbered 0 … k-1 without gaps. Its
    probabilities are mapped back to the federation's columns, with 0 for other classes. :attr:`abilities`
    describes the treatment of soft targets. In a ``Pipeline`` the transformers are fitted to every row
    once, and only the last step gets copies and weights. Numeric inputs with more than two axes (images)
    are flattened for scikit-learn estimators; other objects get the original shape.

    Every parameter called ``random_state`` with the value ``None``, nested ones too, is set from the
    generator given to :meth:`fit`; a number set by the user stays. ``validation`` is passed to a regressor
    whose ``fit`` takes a parameter of that name, and is ignored for other models, as is ``phase``. Row
    weights raise an error if the model takes none.

    Args:
        model: an estimator or pipeline, unfitted (a fitted one is cloned), or any object with
            ``fit(X, y)`` and ``predict(X)``. ``y`` are whole numbers 0 … k-1 for classification;
            ``predict_proba``, if there, gives ``(n, k)``, ``predict`` labels ``(n,)``.
        kind: only needed if the model does not indicate it.

    Raises:
        InvalidInput: the argument is not a model, or not a model of that kind.
    """

    suffix = ".skops"

    def __init__(self, model: Any, *, kind: Kind | None = None) -> None:
        self.name = type(model).__name__
        with self._blamed("be copied"):
            self.model = unfitted(model)
        kind = kind_of(model, kind)
        _, last = parts(self.model)
        self.name = type(last).__name__
        self.abilities = abilities_of(self.model, last, kind)
        for part in [step for _, step in getattr(self.model, "steps", [])] or [self.model]:
            with self._blamed("be used"):  # says before training which value is wrong
                if hasattr(part, "check_parameters"):
                    part.check_parameters()
                elif hasattr(part, "_parameter_constraints"):
                    part._validate_params()
        self._models: list[Any] = []
        self._present: Array = np.zeros(0, dtype=np.int64)

    def check(self, example: Array) -> None:
        example = np.asarray(example)
        if self.abilities.kind == "classification":
            with self._blamed("be used"):
                check_options(self.model, self._columns, self.name)
        self._check_positions()
        if not hasattr(self.model, "__sklearn_tags__"):
            return
        from sklearn.utils import get_tags

        steps = getattr(self.model, "steps", [("", self.model)])
        accepted = get_tags(steps[0][1]).input_tags
        text = example.ndim == 1 and example.dtype.kind in "OUS"
        if text and not accepted.string:
            raise InvalidInput(
                "the inputs are texts, and the model takes numbers",
                where=self.name,
                mend="Put a TfidfVectorizer in front of it, in a Pipeline.",
            )
        if not text and accepted.string and not accepted.two_d_array:
            raise InvalidInput(
                f"the model takes texts, and the inputs have shape {example.shape}",
                where=self.name,
            )
        if not text and example.ndim < 2:
            raise InvalidInput(
                f"the inputs have shape {example.shape}, expected one row per sample",
                where=self.name,
                mend="Use X[:, None] for a single feature.",
            )
        self.rows(example)  # says now that it cannot be made
        if not text and hasattr(self.model, "check_inputs"):
            self.model.check_inputs(self._shaped(self.rows(example)))

    def _check_positions(self) -> None:
        """Refuse positions of columns if the model is given other columns than the table has."""
        option, schema = self.counts_columns, self.schema
        if not option or schema is None:
            return
        given = self.rows(np.zeros((1, len(schema.columns))))
        if given.shape[1] != len(schema.columns):
            raise InvalidInput(
                f"{option} says columns by position, and the model is given {given.shape[1]} columns for the "
                f"{len(schema.columns)} of the table: one for each category, and one for gaps",
                where=self.name,
                mend="Choose columns by name, in a ColumnTransformer before the model.",
            )

    @property
    def counts_columns(self) -> str:
        return column_option(self.model, "position")

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
            self.rows(self._seen(X)),
            targets,
            weights,
            n_outputs=self.n_outputs,
            kind=self.abilities.kind,
            where=self.name,
        )
        self.n_outputs = targets.shape[1]
        if weights is not None and not self.abilities.sample_weight:
            raise InvalidInput("the model takes no row weights", where=self.name)
        model = seeded(unfitted(self.model), rng)
        X = self._shaped(X)
        if self.abilities.takes in ("categories", "names"):
            told_categories(model, X)
        with self._blamed("be trained on this"):
            if self.abilities.kind == "regression":
                self._models = self._fit_values(model, X, targets, weights, validation)
            else:
                self._present, self._models = self._fit_classes(model, X, targets, weights, rng)

    @property
    def _columns(self) -> Mapping[str, int]:
        """Label of a class to its column: names of the federation, or numbers where there are none."""
        return self.labels or {str(column): column for column in range(self.n_outputs)}

    def _seen(self, X: Array) -> Array:
        """Fill columns without any value with the schema's median, because histograms need a value."""
        X = np.asarray(X)
        if self.schema is None or X.dtype.kind != "f":
            return X
        missing = np.isnan(X).all(axis=0)
        medians = [column.median for column in self.schema.columns]
        return np.where(missing, medians, X).astype(X.dtype) if missing.any() else X

    def _fit_values(
        self,
        model: Any,
        X: Array,
        targets: Array,
        weights: Array | None,
        validation: tuple[Array, Array] | None,
    ) -> list[Any]:
        if targets.shape[1] > 1 and takes_many_outputs(parts(model)[1]):
            together: list[Any] = [slice(None)]
        else:
            together = list(range(targets.shape[1]))
        models = []
        for columns in together:
            held_out = None
            if validation is not None:
                held_out = self._shaped(self.rows(validation[0])), validation[1][:, columns]
            one = copy.deepcopy(model)
            models.append(fit_steps(one, X, targets[:, columns], weights, validation=held_out))
        return models

    def _fit_classes(
        self,
        model: Any,
        X: Array,
        targets: Array,
        weights: Array | None,
        rng: np.random.Generator,
    ) -> tuple[Array, list[Any]]:
        hard = harden(targets)
        before, last = parts(model)
        held, labels = np.unique(hard, return_inverse=True)
        for _, step in before:
            translate_options(step, self._coding(held))
        if self.abilities.soft_targets == "native":
            present = np.flatnonzero(targets.any(axis=0))
            model = with_soft_label_equivalent(model, len(present))
            seen = targets[:, present] if len(present) > 1 else targets[:, present[0]]
            return present, [fit_steps(model, X, seen, weights, hard=labels)]
        rows, columns = np.arange(len(hard)), hard
        if self.abilities.soft_targets == "weighted":
            smallest = SMALLEST_OF_BINS if self.ordered else SMALLEST_SHARE
            if is_plain_logistic(last):
                shares = without_small(targets, smallest)
                present = np.flatnonzero(shares.any(axis=0))
                soft = weights is not None or np.count_nonzero(shares) > len(shares)
                if soft and len(present) > 1:
                    shares = shares[:, present]
                    return present, [fit_steps(model, X, shares, weights, hard=labels, soft=rng)]
            rows, columns, weights = expand(targets, weights, smallest=smallest)
        present, codes = np.unique(columns, return_inverse=True)
        totals = None if weights is None else np.bincount(codes, weights)
        translate_options(last, self._coding(present, totals))
        if weights is not None and has_inner_folds(last):
            without_inner_folds(last)
        return present, [fit_steps(model, X, codes, weights, hard=labels, rows=rows)]

    def _coding(self, present: Array, totals: Array | None = None) -> Coding:
        """Make the codes of the present classes from their columns."""
        codes = {int(column): code for code, column in enumerate(present)}
        return Coding(self._columns, codes, totals, self.name)

    def predict(self, X: Array) -> Array:
        if not self._models:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        X = self._shaped(self.rows(X))
        with self._blamed("predict this"):
            if self.abilities.kind == "regression":
                values = [np.asarray(model.predict(X), np.float64) for model in self._models]
                outputs = np.concatenate([v.reshape(len(X), -1) for v in values], axis=1)
                if outputs.shape != (len(X), self.n_outputs):
                    raise InvalidInput(
                        f"predict gave values of shape {outputs.shape}, expected {(len(X), self.n_outputs)}",
                        where=self.name,
                    )
                return outputs
            shares = self._shares(self._models[0], X)
        probabilities = np.zeros((len(X), self.n_outputs))
        probabilities[:, self._present] = shares
        return probabilities

    def _shares(self, model: Any, X: Array) -> Array:
        """Compute probabilities of the present classes, shape ``(n, k)``."""
        n, k = len(X), len(self._present)
        if k == 1:  # libraries differ on what a single class looks like
            return np.ones((n, 1))
        if self.abilities.soft_targets != "native":
            given = self.abilities.probabilities
            return shares_of(model, X, k, given=given, where=self.name)
        return checked(np.asarray(model.predict(X)), self.name)

    @property
    def fitted(self) -> bool:
        return bool(self._models)

    @property
    def trained(self) -> Any:
        """The trained estimator or pipeline; the first one if each output has one; ``None`` until then."""
        return self._models[0] if self._models else None

    @property
    def least_leaf(self) -> int:
        last = parts(self.model)[1]
        found = getattr(last, "min_child_samples", getattr(last, "min_samples_leaf", 1))
        return found if isinstance(found, int) else 1

    def check_saving(self) -> None:
        for kind in make_of(self.model):
            if kind.__module__ in ("__main__", "__mp_main__"):
                raise InvalidInput(
                    f"{kind.__name__} is defined in the script itself, where no other process finds it",
                    where=self.name,
                    mend="Put the class into a module of its own and import it.",
                )
        files = _files()
        if not files.plain(self.model):
            files.blob_of({"models": [self.model]}, given=self.model, where=self.name)

    def save(self, path: Path) -> None:
        _files().dump(self.state(), Path(path), given=self.model, where=self.name)

    def state(self) -> dict[str, Any]:
        """Return the trained state, as it is written to a file.

        Returns:
            The models, the columns of their classes, and the number of outputs.

        Raises:
            InvalidInput: the model has not been trained.
        """
        if not self._models:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        return {
            "models": self._models,
            "present": [int(column) for column in self._present],
            "n_outputs": self.n_outputs,
        }

    def load(self, path: Path, *, packages: Sequence[str] | None = None) -> None:
        files = _files()
        packages = files.PACKAGES if packages is None else packages
        self.take(files.read(Path(path), given=self.model, packages=packages), path)

    def take(self, state: Any, path: Path) -> None:
        """Replace the trained state by one from :meth:`state`.

        Args:
            state: state of a model of the same kind.
            path: its file, for errors.

        Raises:
            RunFailed: the state is damaged, or belongs to another model.
        """
        try:
            models, n_outputs = list(state["models"]), int(state["n_outputs"])
            present = np.asarray(state["present"], dtype=np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise RunFailed("the model file is not one of ours", where=str(path)) from error
        expected = self.model
        if self.abilities.soft_targets == "native" and self.abilities.kind == "classification":
            expected = with_soft_label_equivalent(unfitted(self.model), 1)
        if not models or any(make_of(model) != make_of(expected) for model in models):
            raise RunFailed(f"the file holds another model than {self.name}", where=str(path))
        if self.n_outputs and n_outputs != self.n_outputs:
            raise RunFailed(
                f"the file holds a model with {n_outputs} outputs, expected {self.n_outputs}",
                where=str(path),
            )
        self._models, self._present, self.n_outputs = models, present, n_outputs

    def _shaped(self, X: Any) -> Any:
        if is_catboost(self.model) and hasattr(X, "iloc"):
            return texts_of_categories(X)
        if X.ndim > 2 and X.dtype.kind in "biuf" and hasattr(self.model, "get_params"):
            from sklearn.utils import get_tags

            first = getattr(self.model, "steps", [("", self.model)])[0][1]
            if not get_tags(first).input_tags.three_d_array:
                return X.reshape(len(X), -1)
        return X

    @contextmanager
    def _blamed(self, verb: str) -> Iterator[None]:
        """Convert a model's exceptions to one ``InvalidInput`` that names the model."""
        try:
            yield
        except (ConsilienceError, Warning, MemoryError):
            raise
        except Exception as error:  # estimators and users' objects raise anything
            raise InvalidInput(
                f"the model cannot {verb}: {str(error).strip() or type(error).__name__}",
                where=self.name,
            ) from error


def _files() -> Any:
    """Load the module that writes and reads estimators; an error names a missing package."""
    return registered_object("consilience.model_files", "skops")

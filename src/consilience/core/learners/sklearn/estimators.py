"""Operations on estimators and pipelines of any kind: copy, seed, split into steps, fit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from scipy.sparse import issparse

from consilience.core.errors import InvalidInput
from consilience.core.learners.base import Takes
from consilience.core.learners.sklearn.per_class import inner_models, parameters
from consilience.core.learners.sklearn.per_column import column_option
from consilience.core.learners.sklearn.soft_label_equivalent import soft_label_equivalent
from consilience.core.learners.sklearn.soft_logistic import as_numbers, fit_to_soft_labels, weaken
from consilience.core.learners.targets import expand
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind


def unfitted(model: Any) -> Any:
    """Make an unfitted copy: ``clone`` for estimators, a deep copy for other objects."""
    if isinstance(model, type):
        return model
    if hasattr(model, "get_params"):
        if is_catboost(model):  # clone refuses its lists and tables, which the constructor copies
            return type(model)(**copy.deepcopy(model.get_params()))
        from sklearn.base import clone

        return clone(model)
    return copy.deepcopy(model)


def kind_of(model: Any, kind: Kind | None) -> Kind:
    """Determine whether a model is a classifier or a regressor.

    Args:
        model: an estimator, or an object with ``fit`` and ``predict``.
        kind: kind given by the user; ``None`` to infer it from the model.

    Returns:
        ``"classification"`` or ``"regression"``.

    Raises:
        InvalidInput: the argument is not a model, its kind cannot be determined, or it differs from ``kind``.
    """
    name = type(model).__name__
    if isinstance(model, type):
        raise InvalidInput("this is a class", where=model.__name__, mend="Give an object of it.")
    if not (callable(getattr(model, "fit", None)) and callable(getattr(model, "predict", None))):
        hidden = hasattr(type(model), "predict") and not hasattr(model, "predict")
        raise InvalidInput(
            "a model needs the methods fit and predict",
            where=name,
            mend="It has predict only once it is fitted: name the models that it is made of, such as "
            "final_estimator=LogisticRegression()."
            if hidden
            else "A model that answers and is not trained is wrapped: "
            "consilience.Frozen(model.predict_proba, classes=[…]).",
        )
    type_name: str | None = None
    if hasattr(model, "__sklearn_tags__"):
        from sklearn.utils import get_tags

        type_name = get_tags(model).estimator_type
    elif hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        type_name = "classifier"
    if type_name not in ("classifier", "regressor", None):
        raise InvalidInput(f"a {type_name} is neither classifier nor regressor", where=name)
    own: Kind | None = None
    if type_name:
        own = "classification" if type_name == "classifier" else "regression"
    if own is None and kind is None:
        raise InvalidInput(
            "it is not clear whether this is a classifier or a regressor",
            where=name,
            mend='Say kind="classification" or kind="regression".',
        )
    if own and kind and own != kind:
        raise InvalidInput(f"the model is a {type_name}, not for {kind}", where=name)
    return kind or own  # type: ignore[return-value]


def seeded(model: Any, rng: np.random.Generator) -> Any:
    """Draw, in the order of their names, a value for every ``random_state`` left at ``None``, in place.

    Args:
        model: an estimator, a pipeline or another object.
        rng: source of the values.

    Returns:
        The same model.
    """
    if hasattr(model, "get_params"):
        open_ = sorted(
            name
            for name, value in model.get_params(deep=True).items()
            if value is None and name.rpartition("__")[2] == "random_state"
        )
        model.set_params(**{name: int(rng.integers(2**31 - 1)) for name in open_})
        if is_catboost(model) and not {"random_seed", "random_state"} & model.get_params().keys():
            model.set_params(random_seed=int(rng.integers(2**31 - 1)))  # it names no open ones
    # Objects without parameters, and scikit-learn's SVR, whose random_state is none of them.
    for part in (model, parts(model)[1]):
        if getattr(part, "random_state", 0) is None:
            part.random_state = int(rng.integers(2**31 - 1))
    return model


def parts(model: Any) -> tuple[list[tuple[str, Any]], Any]:
    """Split a pipeline into its transformers and its last step; ``([], model)`` for anything else."""
    from sklearn.pipeline import Pipeline

    # A subclass (imbalanced-learn's) may change the number of rows: left to fit as a whole.
    if type(model) is Pipeline:
        return model.steps[:-1], model.steps[-1][1]
    return [], model


def with_soft_label_equivalent(model: Any, n_classes: int) -> Any:
    """Replace the last step of a model by its soft-label equivalent."""
    _, last = parts(model)
    if last is model:
        return soft_label_equivalent(model, n_classes)
    model.steps[-1] = (model.steps[-1][0], soft_label_equivalent(last, n_classes))
    return model


def fit_steps(
    model: Any,
    X: Array,
    seen: Array,
    weights: Array | None,
    *,
    hard: Array | None = None,
    rows: Array | None = None,
    validation: tuple[Array, Array] | None = None,
    soft: np.random.Generator | None = None,
) -> Any:
    """Fit ``model`` in place: transformers on ``(X, hard)``, the last step on rows ``rows``.

    Args:
        model: an estimator or a pipeline.
        X: inputs, shape ``(n, ...)``.
        seen: training targets of the last step, one entry per entry of ``rows``.
        weights: weights of the entries of ``rows``, or ``None``.
        hard: targets for transformers that use them, shape ``(n,)``; by default ``seen``.
        rows: indices into ``X``; by default every row once.
        validation: held-out ``(X, targets)`` for a last step whose ``fit`` takes ``validation``.
        soft: random numbers for :mod:`.soft_logistic`, if the last step is one of its models and ``seen``
            are soft labels of the classes, shape ``(n, k)``; else ``None``.

    Returns:
        The same model, fitted.
    """
    from sklearn.pipeline import Pipeline
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import has_fit_parameter

    before, last = parts(model)
    if before:
        # A pipeline of its own without the cache, which would fit copies of the transformers.
        transformers = Pipeline(before)
        X = transformers.fit_transform(X, seen if hard is None else hard)
    if soft is not None:
        X = as_numbers(last, X)
        start = weaken(last, X, seen, weights, soft)
        if not issparse(X):
            fit_to_soft_labels(last, X, seen, weights, start)
            return model
        rows, seen, weights = expand(seen, weights, smallest=0.0)
    given: dict[str, Any] = {} if weights is None else {"sample_weight": weights}
    if validation is not None and has_fit_parameter(last, "validation"):
        held_out, targets = validation
        given["validation"] = (transformers.transform(held_out) if before else held_out, targets)
    if weights is not None and type(last).__name__.startswith("HistGradientBoosting"):
        X = few_values(X, last.max_bins)
    if rows is not None and len(rows) != np.shape(X)[0]:
        X = _safe_indexing(X, rows)
    if isinstance(X, np.ndarray) and not X.flags.writeable:
        X = X.copy()  # trees of scikit-learn 1.9 refuse gaps in rows that cannot be written to
    newton = weights is not None and issparse(X) and getattr(last, "solver", None) == "lbfgs"
    if newton and type(last).__name__ == "LogisticRegression":
        # The same optimum in a tenth of the steps, where words by classes are thousands of coefficients.
        last.set_params(solver="newton-cg").fit(X, seen, **given).set_params(solver="lbfgs")
    else:
        last.fit(X, seen, **given)
    _check_search(last)
    _make_writable(last)
    return model


def _check_search(last: Any) -> None:
    """Raise ``InvalidInput`` if a search could score none of its candidates: it then takes the first."""
    found, refit = getattr(last, "cv_results_", None), getattr(last, "refit", True)
    name = f"mean_test_{refit if isinstance(refit, str) else 'score'}"
    if isinstance(found, dict) and name in found and np.isnan(found[name]).all():
        raise InvalidInput(
            "its search could score no candidate, and would take the first",
            where=type(last).__name__,
            mend="error_score='raise' says why. Its scorer is given the codes 0 … k-1 of the classes.",
        )


def few_values(X: Any, most: int) -> Any:
    """Round the numbers of a column to bin means if the column has more values than bins.

    Bins have about equal numbers of rows. Histogram boosting makes such bins itself, but for weighted rows
    this takes scikit-learn 1.9 twice as long as a hundred trees.

    Args:
        X: rows, shape ``(n, d)``, an array or a table.
        most: number of bins.

    Returns:
        A copy of the same shape.
    """
    if hasattr(X, "iloc"):
        numbers = X.select_dtypes("number").columns
        return X.assign(
            **dict(zip(numbers, few_values(X[numbers].to_numpy(), most).T, strict=True))
        )
    found = np.array(X, dtype=np.float64)
    for column in found.T:
        known = ~np.isnan(column)
        values = column[known]
        if len(np.unique(values)) > most:
            inner = np.linspace(0, 1, most + 1)[1:-1]
            bins = np.searchsorted(
                np.quantile(values, inner, method="averaged_inverted_cdf"), values
            )
            column[known] = (np.bincount(bins, values) / np.maximum(np.bincount(bins), 1))[bins]
    return found


def _make_writable(last: Any) -> None:
    """Make histogram boosting with categories writable: it holds a check of numbers as a partial function.

    The check is of numbers that a schema has made, and is left out.
    """
    if (preprocessor := getattr(last, "_preprocessor", None)) is not None:
        for name, transformer, _ in (*preprocessor.transformers, *preprocessor.transformers_):
            if name == "numerical" and hasattr(transformer, "func"):
                transformer.func = None


def takes_many_outputs(last: Any) -> bool:
    """True if a regressor trains on targets of shape ``(n, several)``."""
    if type(last).__name__ == "MLPRegressor":  # can, but its tags do not say so
        return True
    if not hasattr(last, "__sklearn_tags__"):
        return False
    from sklearn.utils import get_tags

    return bool(get_tags(last).target_tags.multi_output)


def takes_texts(model: Any) -> bool:
    """Return whether the rows of a model are texts, by its tags."""
    if not hasattr(model, "__sklearn_tags__"):
        return False
    from sklearn.utils import get_tags

    accepted = get_tags(model).input_tags
    return bool(accepted.string and not accepted.two_d_array)


_CATEGORIES = ("XGB", "LGBM", "CatBoost", "HistGradientBoosting")


def is_catboost(model: Any) -> bool:
    """Return whether a model is CatBoost's, which requires categories as texts, without missing ones."""
    return type(model).__name__.startswith("CatBoost")


def told_categories(model: Any, X: Any) -> None:
    """Set the categorical columns of a table in the options of an unfitted XGBoost or CatBoost model.

    Args:
        model: the model, changed in place; other models stay unchanged.
        X: rows, a table or an array.
    """
    if hasattr(model, "enable_categorical"):  # XGBoost
        model.set_params(enable_categorical=True)
    elif is_catboost(model) and hasattr(X, "iloc"):
        # Its statistics of classes by category count rows and leave weights aside, so that the copies of a
        # soft row cancel out; categories up to this number are split on one by one.
        usual = {
            "one_hot_max_size": 255,
            "cat_features": list(X.select_dtypes(exclude="number").columns),
        }
        model.set_params(**{key: usual[key] for key in usual.keys() - model.get_params().keys()})


def texts_of_categories(X: Any) -> Any:
    """Convert a table's categories to texts, with the empty text for a missing value."""
    names = X.select_dtypes("category").columns
    return X.assign(**{name: X[name].astype(object).where(X[name].notna(), "") for name in names})


def takes(model: Any) -> Takes:
    """Determine a model's format for a table's rows, from its name, its options, its tags and its steps."""
    before, last = parts(model)
    steps = [step for _, step in before] + [last]
    if any(type(step).__name__ == "ColumnTransformer" for step in steps):
        return "names"
    if column_option(model, "name"):
        return "names"
    if not before and type(model).__name__.startswith(_CATEGORIES):
        return "categories"
    if not before and _by_distance(model):
        return "scaled"
    for step in steps:
        if type(step).__name__.startswith("CatBoost"):  # takes its categories in a form of its own
            continue
        if not hasattr(step, "__sklearn_tags__"):
            return "numbers"
        from sklearn.utils import get_tags

        if not get_tags(step).input_tags.allow_nan:
            return "numbers"
        if type(step).__module__.startswith("sklearn.impute"):
            break
    return "gaps"


# Not kernel ridge: protocols compute with its kernel on the public rows as they are.
_DISTANCES = ("sklearn.neighbors", "sklearn.svm", "sklearn.gaussian_process")
"""Packages with models based on distances between rows."""


def _by_distance(model: Any) -> bool:
    """Return whether a model, or one inside of it, measures distances; false for a pipeline."""
    if type(model).__module__.startswith(_DISTANCES):
        return True
    if hasattr(model, "steps"):
        return False
    return any(_by_distance(one) for own in parameters(model).values() for one in inner_models(own))


def make_of(model: Any) -> list[type]:
    """List the types of a pipeline's steps, or of the model itself."""
    before, last = parts(model)
    return [type(step) for _, step in before] + [type(last)]

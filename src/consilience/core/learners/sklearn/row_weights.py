"""Test whether row weights reach a model; some models around others drop them silently."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from consilience.core.learners.sklearn.answers import shares_of, source_of
from consilience.core.learners.sklearn.estimators import seeded, takes_texts, unfitted
from consilience.core.learners.sklearn.per_class import inner_models, neutralise_options, parameters
from consilience.core.learners.targets import expand
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind

_TRUSTED = ("sklearn", "xgboost", "lightgbm", "catboost", "sksurv", "consilience")
"""Packages with correct row weights, except in models that contain other models or folds."""

_ROWS = 60
"""Rows of each of two groups in the trial."""

_SURE = 0.9
"""Probability of a group's likelier class in the trial."""

_SHAPES: tuple[tuple[int, ...], ...] = ((4,), (8, 8), (3, 8, 8), (8, 8, 3))
"""Shapes of a row in the trial, tried until the model accepts one; other objects may require images."""

_known: dict[tuple[str, Kind], bool] = {}


def weights_arrive(model: Any, kind: Kind) -> bool:
    """Return whether row weights have the expected effect on a model.

    In a trial, two groups of rows are each labelled with both classes, and only the weights indicate the
    likelier one. A copy of the model is fitted with separate random numbers, once for each type and
    parameters. Models of known packages are not tried unless they contain other models or folds.

    Args:
        model: an estimator whose ``fit`` takes ``sample_weight``.
        kind: ``"classification"`` or ``"regression"``.

    Returns:
        ``False`` too for a model that cannot be trained on any rows of the trial.
    """
    if not _doubtful(model):
        return True
    key = _key(model)
    if key is None:
        return _tried(model, kind)
    if (key, kind) not in _known:
        _known[key, kind] = _tried(model, kind)
    return _known[key, kind]


def has_inner_folds(model: Any) -> bool:
    """Return whether a model's probabilities come from inner folds without row weights, as with libsvm."""
    own = type(model).__module__.startswith("sklearn.svm.")
    return own and getattr(model, "probability", False) in (True, 1)


def without_inner_folds(model: Any) -> None:
    """Make a model of libsvm, in place, compute only scores: one for each class."""
    usual = type(model)().probability  # newer versions of scikit-learn warn of any other value
    model.set_params(probability=usual, decision_function_shape="ovr")


def _doubtful(model: Any) -> bool:
    if type(model).__module__.partition(".")[0] not in _TRUSTED:
        return True
    own = parameters(model)
    folds = "cv" in own or own.get("early_stopping") is True
    return folds or any(True for value in own.values() for _ in inner_models(value))


def _key(model: Any) -> str | None:
    """Digest of a model's type and parameters; ``None`` if it cannot be pickled."""
    import joblib

    try:
        return str(joblib.hash((type(model).__qualname__, model)))
    except Exception:  # pickling runs the model's own code
        return None


def _tried(model: Any, kind: Kind) -> bool:
    rng = np.random.default_rng(0)
    second = np.repeat([0, 1], _ROWS)
    shares = np.where(np.eye(2)[second] == 1, _SURE, 1 - _SURE)
    rows, labels, weights = expand(shares, None)
    assert weights is not None
    order, once = rng.permutation(len(rows)), rng.permutation(len(second))
    soft = rows[order], labels[order], {"sample_weight": weights[order]}
    for X in _inputs(model, second, rng):
        with _apart():
            try:
                found = _gap(model, X, kind, second, *soft)
                known = _gap(model, X, kind, second, once, second[once], {})
            except (
                Exception
            ):  # a model of others raises anything: it may take rows of another shape
                continue
        return bool(known > 0.1 and found > known / 2)
    return False


def _inputs(model: Any, second: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Rows of the trial, shape ``(n, ...)``: texts for a model of texts, else numbers of several shapes."""
    if takes_texts(model):
        yield np.array(["river stone", "cloud fire"])[second]
        return
    for shape in _SHAPES:
        means = (6 * second - 3).reshape(-1, *[1] * len(shape))
        yield rng.normal(size=(len(second), *shape)) + means


def _gap(
    model: Any, X: Array, kind: Kind, second: Array, rows: Array, labels: Array, weights: Any
) -> float:
    """Compute the difference of a fitted model's answers to both groups; 1 if they are fully separated."""
    fresh = seeded(unfitted(model), np.random.default_rng(0))
    if kind == "classification":
        neutralise_options(fresh)
    fresh.fit(X[rows], labels if kind == "classification" else labels * 1.0, **weights)
    if kind == "regression":
        found = np.asarray(fresh.predict(X), dtype=np.float64).reshape(len(X))
    else:
        found = shares_of(fresh, X, 2, given=source_of(fresh), where="trial")[:, 1]
    return float(found[second == 1].mean() - found[second == 0].mean())


@contextmanager
def _apart() -> Iterator[None]:
    """Leave the random numbers of the process as they are, and show no warnings of the trial."""
    numbers, own = np.random.get_state(), random.getstate()  # noqa: NPY002 (objects of others draw there)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(own)

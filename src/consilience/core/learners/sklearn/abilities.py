"""Capabilities of estimators and pipelines: how they take soft labels, row weights and tables."""

from __future__ import annotations

from typing import Any, Literal

from consilience.core.errors import InvalidInput
from consilience.core.learners.base import Abilities
from consilience.core.learners.sklearn.answers import source_of
from consilience.core.learners.sklearn.estimators import takes
from consilience.core.learners.sklearn.per_class import inner_models, parameters
from consilience.core.learners.sklearn.row_weights import has_inner_folds, weights_arrive
from consilience.core.learners.sklearn.soft_label_equivalent import equivalent_name
from consilience.core.learners.sklearn.soft_logistic import has_strong_penalty, is_plain_logistic
from consilience.core.validation.labels import Kind


def abilities_of(model: Any, last: Any, kind: Kind) -> Abilities:
    """Determine the capabilities of a model from its methods, its parameters and a trial of row weights.

    Args:
        model: an estimator or pipeline, unfitted.
        last: its last step, or the model itself.
        kind: ``"classification"`` or ``"regression"``.

    Returns:
        The capabilities.

    Raises:
        InvalidInput: the classifier is never trained, or its decision threshold would be ignored.
    """
    from sklearn.utils.validation import has_fit_parameter

    name = type(last).__name__
    named = bool(has_fit_parameter(last, "sample_weight"))
    weighable = named and weights_arrive(last, kind)
    lacking = "takes no row weights" if not named else "shows no effect of row weights in a trial"
    if kind == "regression":
        how = "Regression targets are taken as they are."
        if named and not weighable:
            how += f" {name} {lacking}, so that all rows count alike."
        choosy = bool(getattr(last, "needs_validation", False))
        return Abilities(
            kind, "native", sample_weight=weighable, validation=choosy, takes=takes(model), how=how
        )
    _check_trainable(last)
    probabilities = source_of(model)
    if probabilities == "decision" and _scores_pairs(last):
        probabilities = "one-hot"
    soft: Literal["native", "weighted", "hardened"] = "hardened"
    how = f"{name} {lacking}, so each soft row counts as its likeliest class."
    if regressor := equivalent_name(last):
        soft = "native"
        how = f"Soft labels are taken exactly, by a {regressor} with the same parameters."
    elif weighable:
        soft = "weighted"
        how = "Each soft row becomes one copy per class, weighted by the class's probability."
        if is_plain_logistic(last):
            how = "Each soft row counts for every class as probable as it says."
        if has_strong_penalty(last):
            how += " Held-out rows say whether its penalty is too strong for these."
        if has_inner_folds(last):
            how += " Its probabilities are then a softmax of its scores: its inner folds take no weights."
    return Abilities(
        kind,
        soft,
        probabilities=probabilities,
        sample_weight=weighable,
        takes=takes(model),
        how=how,
    )


def _check_trainable(last: Any) -> None:
    """Raise ``InvalidInput`` for a frozen classifier, or one whose decision threshold would be ignored."""
    if _holds_frozen(last):
        raise InvalidInput(
            "a FrozenEstimator is never trained, and answers with the labels of another training",
            where=type(last).__name__,
            mend="Wrap the trained model: consilience.Frozen(model.predict_proba, classes=[…]).",
        )
    if type(last).__name__ in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
        raise InvalidInput(
            "its threshold would have no effect: probabilities are exchanged, and the likeliest class is "
            "predicted",
            where=type(last).__name__,
            mend="Give the model inside of it, with class_weight if one class matters more.",
        )


def _holds_frozen(model: Any) -> bool:
    """Return whether a model is, or contains, a frozen classifier."""
    if type(model).__name__ == "FrozenEstimator" and hasattr(model, "predict"):
        return True
    return any(
        _holds_frozen(one) for own in parameters(model).values() for one in inner_models(own)
    )


def _scores_pairs(model: Any) -> bool:
    """Return whether the decision scores of a model, or of a model inside it, are for pairs of classes."""
    own = parameters(model)
    tried = [own] + [grid for value in own.values() for grid in _tables(value)]
    named = [
        (str(name).rpartition("__")[2], value) for table in tried for name, value in table.items()
    ]
    if any(
        name == "decision_function_shape" and (value == "ovo" or "ovo" in (value or ()))
        for name, value in named
    ):
        return True
    return any(_scores_pairs(one) for value in own.values() for one in inner_models(value))


def _tables(value: Any) -> list[dict[str, Any]]:
    """List the tables in a parameter: candidates of a search."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]

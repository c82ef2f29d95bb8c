"""Soft-label equivalents: regressors that are exactly a given classifier trained on soft labels."""

from __future__ import annotations

from typing import Any

_MODULES = {
    "DecisionTreeClassifier": "tree",
    "ExtraTreeClassifier": "tree",
    "RandomForestClassifier": "ensemble",
    "ExtraTreesClassifier": "ensemble",
    "KNeighborsClassifier": "neighbors",
}


def equivalent_name(classifier: Any) -> str | None:
    """Return the name of the regressor that is equivalent to a classifier, ``None`` if there is none.

    The Gini impurity of a node is the sum over classes of the variance of their one-hot columns,
    so a multi-output regression tree on squared error grows the same tree and its leaves hold the
    same class shares; a nearest-neighbour vote is a mean of one-hot rows. Both hold for soft rows
    as they are. What breaks the identity: another criterion, class weights, monotonic constraints,
    and an out-of-bag score, which would be that of a regressor.

    Source: Breiman, Friedman, Olshen, Stone, *Classification and Regression Trees* (1984), 4.3.
    """
    from importlib import import_module

    name = type(classifier).__name__
    if name not in _MODULES:
        return None
    if type(classifier) is not getattr(import_module(f"sklearn.{_MODULES[name]}"), name):
        return None  # a subclass may vote in its own way
    parameters = classifier.get_params(deep=False)
    same = (
        parameters.get("criterion", "gini") == "gini"
        and parameters.get("class_weight") is None
        and parameters.get("monotonic_cst") is None
        and parameters.get("oob_score", False) is False
    )
    return name.replace("Classifier", "Regressor") if same else None


def soft_label_equivalent(classifier: Any, n_classes: int) -> Any:
    """Make the regressor that is equivalent to a classifier, for targets with ``n_classes`` columns.

    Squared error is averaged over outputs where Gini sums over classes, so thresholds on impurity
    are divided by the number of columns.

    Args:
        classifier: one that :func:`equivalent_name` has a name for.
        n_classes: columns of the targets.
    """
    from importlib import import_module

    name = type(classifier).__name__
    module = import_module(f"sklearn.{_MODULES[name]}")
    parameters = classifier.get_params(deep=False)
    if "criterion" in parameters:
        parameters["criterion"] = "squared_error"
        parameters["min_impurity_decrease"] /= n_classes
        parameters["ccp_alpha"] /= n_classes
        del parameters["class_weight"]
    return getattr(module, name.replace("Classifier", "Regressor"))(**parameters)

"""Soft-label equivalents: regressors equal to a classifier trained on soft labels."""

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
    """Return the name of a classifier's equivalent regressor, ``None`` if there is none.

    The Gini impurity of a node is the sum over classes of the variance of their one-hot columns. A
    multi-output regression tree on squared error therefore grows the same tree, and its leaves contain the
    same class shares. A nearest-neighbour vote is a mean of one-hot rows. Both identities extend to soft
    rows. They do not hold with another criterion, class weights or monotonic constraints; a classifier with
    an out-of-bag score has no equivalent either, because the score would be that of a regressor.

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
    """Make a classifier's equivalent regressor, for targets with ``n_classes`` columns.

    Squared error is averaged over outputs, but Gini is summed over classes. Thresholds on impurity are
    therefore divided by the number of columns.

    Args:
        classifier: a classifier for which :func:`equivalent_name` returns a name.
        n_classes: columns of the targets.

    Returns:
        The regressor, unfitted.
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

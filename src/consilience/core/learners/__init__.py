"""Models of any kind behind ``fit`` and ``predict``.

>>> from sklearn.tree import DecisionTreeClassifier
>>> as_learner(DecisionTreeClassifier()).abilities.soft_targets
'native'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.learners.base import (
    Abilities,
    FixedLearner,
    GradientCorrection,
    Learner,
    Model,
    Parametric,
    Phase,
    Steps,
    suited_to,
)
from consilience.core.registry import registered_names, registered_object
from consilience.core.validation.arrays import as_array
from consilience.core.validation.labels import Kind

__all__ = [
    "Abilities",
    "FixedLearner",
    "GradientCorrection",
    "Kind",
    "Learner",
    "Model",
    "Parametric",
    "Phase",
    "Steps",
    "as_learner",
    "kind_told_by",
    "refuse_recipe",
    "suited_to",
]

_ADAPTERS = "consilience.learners"
"""Group of entry points that make learners of further models: ``f(model, *, kind, recipe) -> Learner``.

The name of one is the package whose classes it takes, such as ``torch``; ``text`` for names of models, and
``function`` for functions that build one."""


def as_learner(model: Any, *, kind: Kind | None = None, recipe: Any = None) -> Learner:
    """Make a learner of a model.

    Args:
        model: a scikit-learn, XGBoost or LightGBM estimator, or a pipeline that ends in one; any object with
            ``fit`` and ``predict``; a :class:`Learner`, which is returned unchanged; or a model that another
            package supports by its entry point: a ``torch.nn.Module``, a function
            ``(input_shape, n_outputs) -> Module``, or the name of a preset or an import path
            (:func:`consilience.models.make`).
        kind: ``"classification"`` or ``"regression"``, required if the model does not indicate it; a torch
            model classifies by default.
        recipe: training recipe of a torch model.

    Returns:
        The learner, not bound to a number of outputs yet.

    Raises:
        InvalidInput: the argument is not a model, or not a model of that kind.
    """
    if kind not in (None, "classification", "regression"):
        raise InvalidInput(f"kind is {kind!r}", mend="Known: classification, regression.")
    if isinstance(model, Learner):
        if kind not in (None, model.abilities.kind):
            raise InvalidInput(f"the learner is for {model.abilities.kind}, not {kind}")
        if recipe is not None:
            raise InvalidInput(
                "only torch models take a recipe",
                where=getattr(model, "name", type(model).__name__),
                mend="That of a weak learner goes into its own table: weak = { name = …, recipe = … }.",
            )
        return model
    known = registered_names(_ADAPTERS)
    if (name := next((one for one in _taken_by(model) if one in known), None)) is not None:
        learner = registered_object(_ADAPTERS, name)(model, kind=kind, recipe=recipe)
        assert isinstance(learner, Learner)
        return learner
    refuse_recipe(model, recipe)
    from consilience.core.learners.sklearn.learner import SklearnLearner

    return SklearnLearner(model, kind=kind)


def refuse_recipe(model: object, recipe: object) -> None:
    """Raise ``InvalidInput`` if a model that takes no recipe was given one."""
    if recipe is not None:
        raise InvalidInput("only torch models take a recipe", where=type(model).__name__)


def _taken_by(model: Any) -> Iterator[str]:
    """Names of the adapters that a model is for, by its class alone: no library is imported to find out."""
    if isinstance(model, str):
        yield "text"
        return
    steps = getattr(model, "steps", None)  # a pipeline is taken by what takes its last step
    last = steps[-1][1] if isinstance(steps, list) and steps else model
    for base in (*type(model).__mro__, *type(last).__mro__):
        yield base.__module__.partition(".")[0]
    if callable(model) and not isinstance(model, type) and not hasattr(model, "fit"):
        yield "function"


def kind_told_by(model: Any, y: Any) -> Kind | None:
    """Infer classification or regression from the labels, for a model that does not indicate its kind.

    Args:
        model: an object with ``fit`` and ``predict``.
        y: labels; the first hundred are inspected.

    Returns:
        ``"regression"`` if a label is a floating-point number, else ``"classification"``; ``None`` if the
        model indicates its kind.
    """
    if isinstance(model, str | Learner) or not hasattr(model, "fit"):
        return None
    if any(hasattr(model, name) for name in ("__sklearn_tags__", "predict_proba", "classes_")):
        return None
    kinds = {as_array(label, where="labels").dtype.kind for label in list(y)[:100]}
    return "classification" if kinds <= set("USObiu") else "regression"

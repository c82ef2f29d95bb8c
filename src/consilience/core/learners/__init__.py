"""Models of any kind behind ``fit`` and ``predict``.

>>> from sklearn.tree import DecisionTreeClassifier
>>> as_learner(DecisionTreeClassifier()).abilities.soft_targets
'native'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InvalidInput, MissingExtra
from consilience.core.learners.base import (
    Abilities,
    GradientCorrection,
    Learner,
    Model,
    Parametric,
    Phase,
    Steps,
)
from consilience.core.validation.arrays import as_array
from consilience.core.validation.labels import Kind
from consilience.models.files.trust import ForeignCode, trusting
from consilience.models.presets import LEARNERS, LearnerEntry, model_of, named_code
from consilience.models.torch.recipe import Augmentation, TorchRecipe

if TYPE_CHECKING:
    from consilience.models.kernel_ridge import KernelRidge

__all__ = [
    "LEARNERS",
    "Abilities",
    "Augmentation",
    "LearnerEntry",
    "ForeignCode",
    "KernelRidge",
    "Kind",
    "Learner",
    "Model",
    "Parametric",
    "Phase",
    "GradientCorrection",
    "Steps",
    "TorchRecipe",
    "as_learner",
    "foreign_code",
    "kind_told_by",
    "make",
    "trusting",
]


def __getattr__(name: str) -> Any:
    """Import ``KernelRidge`` when it is first used: nobody else pays for importing scikit-learn."""
    if name != "KernelRidge":
        raise AttributeError(f"module 'consilience.core.learners' has no attribute {name!r}")
    from consilience.models.kernel_ridge import KernelRidge

    return KernelRidge


def as_learner(
    model: Any,
    *,
    kind: Kind | None = None,
    recipe: TorchRecipe | Mapping[str, Any] | None = None,
) -> Learner:
    """Make a learner of a model.

    Args:
        model: a scikit-learn, XGBoost or LightGBM estimator, or a pipeline that ends in one; a
            ``torch.nn.Module``, or a function ``(input_shape, n_outputs) -> Module``; any object
            with ``fit`` and ``predict``; the name of a preset or an import path (:func:`make`);
            a :class:`Learner`, which is returned as it is.
        kind: ``"classification"`` or ``"regression"``, where the model does not say; a torch
            model classifies by default.
        recipe: how to train a torch model.

    Raises:
        InvalidInput: this is no model, or not one of that kind.
    """
    if kind not in (None, "classification", "regression"):
        raise InvalidInput(f"kind is {kind!r}", mend="Known: classification, regression.")
    if isinstance(model, str):
        return make(model, kind=kind, recipe=recipe)
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
    if _is_torch(model):
        try:
            from consilience.models.torch.learner import TorchLearner
        except ModuleNotFoundError as error:
            raise MissingExtra("torch", extra="torch") from error
        return TorchLearner(model, kind=kind, recipe=TorchRecipe.of(recipe))
    if recipe is not None:
        raise InvalidInput("only torch models take a recipe", where=type(model).__name__)
    from consilience.core.learners.sklearn.estimators import parts
    from consilience.core.learners.sklearn.learner import SklearnLearner

    if type(parts(model)[1]).__module__.startswith("sksurv."):
        from consilience.tables.outcomes.survival_models import SurvivalLearner

        return SurvivalLearner(model)
    return SklearnLearner(model, kind=kind)


def kind_told_by(model: Any, y: Any) -> Kind | None:
    """Tell classification from regression by the labels, for models of both: all but fractions are classes.

    ``None`` where the model knows.
    """
    if isinstance(model, str | Learner) or not hasattr(model, "fit"):
        return None
    if any(hasattr(model, name) for name in ("__sklearn_tags__", "predict_proba", "classes_")):
        return None
    kinds = {as_array(label, where="labels").dtype.kind for label in list(y)[:100]}
    return "classification" if kinds <= set("USObiu") else "regression"


def make(
    name: str,
    *,
    kind: Kind | None = None,
    recipe: TorchRecipe | Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Learner:
    """The learner that a configuration file names.

    Args:
        name: a preset of :data:`LEARNERS`, or ``"package.module:Class"`` of an estimator of scikit-learn,
            XGBoost, LightGBM or consilience; of anything else inside of :func:`trusting` alone, since names
            come from files as a rule. A class of your own can be given to :func:`as_learner` as an object.
        kind: as for :func:`as_learner`.
        recipe: how to train a torch model; a table of :class:`TorchRecipe`'s fields will do.
        parameters: of the model; those of a preset with transformers in front go to the model.

    Raises:
        InvalidInput: unknown name or parameter, with the nearest known one.
        ForeignCode: an import path that leads elsewhere; it was not imported.
        MissingExtra: the model's library is not installed.

    >>> make("random-forest", n_estimators=5).model
    RandomForestClassifier(n_estimators=5)
    """
    if kind is not None and name in LEARNERS and "kind" in LEARNERS[name].parameters():
        parameters["kind"] = kind
    return as_learner(model_of(name, parameters), kind=kind, recipe=recipe)


def foreign_code(name: str, parameters: Mapping[str, Any]) -> tuple[ForeignCode, ...]:
    """Find all that :func:`make` refuses to import outside of :func:`trusting`.

    Raises:
        InvalidInput, MissingExtra: as :func:`make`, where there is nothing of that kind.
    """
    if not (found := tuple(named_code(name, parameters))):
        with trusting(False):
            make(name, **parameters)
    return found


def _is_torch(model: Any) -> bool:
    # By name, so that nobody pays for importing torch who does not use it.
    if any(
        base.__name__ == "Module" and base.__module__.startswith("torch.")
        for base in type(model).__mro__
    ):
        return True
    return callable(model) and not isinstance(model, type) and not hasattr(model, "fit")

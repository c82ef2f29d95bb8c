"""Learners by name, for configuration files and ``consilience list learners``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from consilience.core.errors import InvalidInput, MissingExtra, nearest
from consilience.core.learners import Learner, as_learner
from consilience.core.validation.labels import Kind
from consilience.models.files.trust import (
    ForeignCode,
    check_packages,
    find,
    foreign_packages,
    model_at,
    trusting,
)
from consilience.models.torch.recipe import TorchRecipe


@dataclass(frozen=True)
class LearnerEntry:
    """A named model.

    Attributes:
        summary: one line for ``consilience list learners``.
        target: the class or function that makes it, as ``"package.module:name"``.
        kind: ``"classification"`` or ``"regression"``; ``None`` if it can do both.
        before: transformers in front of it in a pipeline, as import paths.
        defaults: parameters that differ from the library's own.
        extra: the extra of this package that the model requires.
    """

    summary: str
    target: str
    kind: Kind | None = "classification"
    before: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None

    def parameters(self) -> tuple[str, ...]:
        """The names that :func:`make` takes for it, imported to find out."""
        return tuple(dict.fromkeys((*_parameters(self.load()), *self.defaults)))

    def load(self) -> Any:
        """The class or function.

        Raises:
            MissingExtra: its library is not installed.
        """
        try:
            return find(self.target)
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise MissingExtra(self.extra, extra=self.extra) from error


_SCALER = ("sklearn.preprocessing:StandardScaler",)
_ENCODED = "consilience.models.encoders.transformer"
_TFIDF = ("sklearn.feature_extraction.text:TfidfVectorizer",)
_NETS = "consilience.models.torch.networks"

# One thread each: parties may train in parallel, and the same bits come out everywhere.
_XGB = {"n_jobs": 1, "verbosity": 0}
_LGBM = {"n_jobs": 1, "verbose": -1, "deterministic": True, "force_row_wise": True}
_CATBOOST = {"thread_count": 1, "verbose": 0, "allow_writing_files": False}

LEARNERS: dict[str, LearnerEntry] = {
    "logistic-regression": LearnerEntry(
        "linear classifier on standardised inputs",
        "sklearn.linear_model:LogisticRegression",
        before=_SCALER,
        defaults={"max_iter": 1000},
    ),
    "tfidf-logistic": LearnerEntry(
        "linear classifier on tf-idf word weights, for texts",
        "sklearn.linear_model:LogisticRegression",
        before=_TFIDF,
        defaults={"max_iter": 1000, "C": 10.0},  # tf-idf weights are small
    ),
    "static-logistic": LearnerEntry(
        "linear classifier on static word embeddings, for texts",
        "sklearn.linear_model:LogisticRegression",
        before=(f"{_ENCODED}:static_words", *_SCALER),
        defaults={"max_iter": 1000, "C": 0.02},  # by cross-validation on TREC and 20 newsgroups
        extra="embeddings",
    ),
    "encoded-logistic": LearnerEntry(
        "linear classifier on features of a network trained on ImageNet, for photographs",
        "sklearn.linear_model:LogisticRegression",
        before=(f"{_ENCODED}:photographs", *_SCALER),
        defaults={"max_iter": 1000, "C": 0.02},
        extra="images",
    ),
    "naive-bayes": LearnerEntry(
        "one Gaussian per class and feature",
        "sklearn.naive_bayes:GaussianNB",
        defaults={"var_smoothing": 1e-2},  # the library's 1e-9 fails on pixels that never change
    ),
    "knn": LearnerEntry("vote of the nearest neighbours", "sklearn.neighbors:KNeighborsClassifier"),
    "decision-tree": LearnerEntry("one tree", "sklearn.tree:DecisionTreeClassifier"),
    "random-forest": LearnerEntry(
        "mean of bootstrapped trees", "sklearn.ensemble:RandomForestClassifier"
    ),
    "extra-trees": LearnerEntry(
        "mean of trees with random thresholds", "sklearn.ensemble:ExtraTreesClassifier"
    ),
    "gradient-boosting": LearnerEntry(
        "boosted trees on binned inputs (takes missing values)",
        "sklearn.ensemble:HistGradientBoostingClassifier",
    ),
    "svc": LearnerEntry(
        "kernel machine on standardised inputs; probabilities by softmax of its scores",
        "sklearn.svm:SVC",
        before=_SCALER,
    ),
    "mlp-sklearn": LearnerEntry(
        "scikit-learn's neural network on standardised inputs",
        "sklearn.neural_network:MLPClassifier",
        before=_SCALER,
        defaults={"max_iter": 500},
    ),
    "xgboost": LearnerEntry(
        "XGBoost's boosted trees (takes missing values)",
        "xgboost:XGBClassifier",
        defaults=_XGB,
        extra="xgboost",
    ),
    "lightgbm": LearnerEntry(
        "LightGBM's boosted trees (takes missing values)",
        "lightgbm:LGBMClassifier",
        defaults=_LGBM,
        extra="lightgbm",
    ),
    "catboost": LearnerEntry(
        "CatBoost's boosted trees (takes missing values and categories)",
        "catboost:CatBoostClassifier",
        defaults=_CATBOOST,
        extra="catboost",
    ),
    "survival-forest": LearnerEntry(
        "scikit-survival's random survival forest (takes missing values), for survival",
        "sksurv.ensemble:RandomSurvivalForest",
        defaults={"min_samples_leaf": 10},
        extra="survival",
    ),
    "cox": LearnerEntry(
        "Cox's proportional hazards on standardised inputs, for survival",
        "sksurv.linear_model:CoxPHSurvivalAnalysis",
        before=_SCALER,
        defaults={"alpha": 1.0},
        extra="survival",
    ),
    "mlp": LearnerEntry("torch: fully connected layers", f"{_NETS}:mlp", kind=None, extra="torch"),
    "cnn": LearnerEntry(
        "torch: two convolutions, for images", f"{_NETS}:cnn", kind=None, extra="torch"
    ),
    "lenet5": LearnerEntry(
        "torch: LeNet-5, for images", f"{_NETS}:lenet5", kind=None, extra="torch"
    ),
    "resnet8": LearnerEntry(
        "torch: ResNet-8, for images such as CIFAR-10's",
        f"{_NETS}:resnet8",
        kind=None,
        extra="torch",
    ),
    "resnet18": LearnerEntry(
        "torch: ResNet-18 for small images and a GPU; width = 8 for a CPU",
        f"{_NETS}:resnet18",
        kind=None,
        extra="torch",
    ),
    "vgg16": LearnerEntry(
        "torch: VGG-16, for images and a GPU", f"{_NETS}:vgg16", kind=None, extra="torch"
    ),
    "text-embedding": LearnerEntry(
        "torch: mean of word vectors, hashed, for texts",
        f"{_NETS}:text_embedding",
        kind=None,
        extra="torch",
    ),
    "transformer": LearnerEntry(
        "a pretrained transformer such as BERT-tiny, for texts; "
        'pretrained = "a folder" or "owner/name"',
        "consilience.models.torch.transformer:transformer",
        kind=None,
        extra="text",
    ),
    "ridge": LearnerEntry(
        "linear regression with an L2 penalty on standardised inputs",
        "sklearn.linear_model:Ridge",
        kind="regression",
        before=_SCALER,
    ),
    "kernel-ridge": LearnerEntry(
        "kernel ridge regression in closed form; inputs should be on one scale at all parties",
        "consilience.models.kernel_ridge:KernelRidge",
        kind="regression",
    ),
    "tree-regressor": LearnerEntry(
        "one tree", "sklearn.tree:DecisionTreeRegressor", kind="regression"
    ),
    "knn-regressor": LearnerEntry(
        "mean of the nearest neighbours",
        "sklearn.neighbors:KNeighborsRegressor",
        kind="regression",
    ),
    "random-forest-regressor": LearnerEntry(
        "mean of bootstrapped trees",
        "sklearn.ensemble:RandomForestRegressor",
        kind="regression",
    ),
    "extra-trees-regressor": LearnerEntry(
        "mean of trees with random thresholds",
        "sklearn.ensemble:ExtraTreesRegressor",
        kind="regression",
    ),
    "gradient-boosting-regressor": LearnerEntry(
        "boosted trees on binned inputs (takes missing values)",
        "sklearn.ensemble:HistGradientBoostingRegressor",
        kind="regression",
    ),
    "svr": LearnerEntry(
        "kernel machine on standardised inputs",
        "sklearn.svm:SVR",
        kind="regression",
        before=_SCALER,
    ),
    "xgboost-regressor": LearnerEntry(
        "XGBoost's boosted trees (takes missing values)",
        "xgboost:XGBRegressor",
        kind="regression",
        defaults=_XGB,
        extra="xgboost",
    ),
    "lightgbm-regressor": LearnerEntry(
        "LightGBM's boosted trees (takes missing values)",
        "lightgbm:LGBMRegressor",
        kind="regression",
        defaults=_LGBM,
        extra="lightgbm",
    ),
    "catboost-regressor": LearnerEntry(
        "CatBoost's boosted trees (takes missing values and categories)",
        "catboost:CatBoostRegressor",
        kind="regression",
        defaults=_CATBOOST,
        extra="catboost",
    ),
    "boosted": LearnerEntry(
        "a sum of weak regressors fitted to a loss's gradients, for functional_gradient_boosting; "
        "weak = { name = … }",
        "consilience.methods.functional_boosting.boosted:Boosted",
        kind=None,
        defaults={"weak": {"name": "tree-regressor", "max_depth": 4}},
    ),
    "frozen": LearnerEntry(
        'a function that answers and is never trained; answer = "package.module:name", classes = […], '
        "most = … rows",
        "consilience.models.fixed:frozen",
        kind=None,
    ),
}
"""The presets. All except those for texts accept flat rows and images."""


def make(
    name: str,
    *,
    kind: Kind | None = None,
    recipe: TorchRecipe | Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Learner:
    """Make the learner that a configuration file names.

    Args:
        name: a preset of :data:`LEARNERS`, or ``"package.module:Class"`` of an estimator of scikit-learn,
            XGBoost, LightGBM or consilience. Other import paths are accepted only inside of :func:`trusting`,
            since names usually come from files. An object of a user's class can be given to
            :func:`as_learner`.
        kind: as for :func:`as_learner`.
        recipe: training recipe of a torch model, as a :class:`TorchRecipe` or a mapping of its fields.
        parameters: of the model; those of a preset with transformers in front go to the model.

    Returns:
        The learner, untrained.

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
    """Find all import paths that :func:`make` refuses to follow outside of :func:`trusting`.

    Returns:
        One error for each path, not raised.

    Raises:
        InvalidInput, MissingExtra: as :func:`make`, if there is no such path.
    """
    if not (found := tuple(named_code(name, parameters))):
        with trusting(False):
            make(name, **parameters)
    return found


_OURS = frozenset(entry.target for entry in LEARNERS.values())


def check_name(name: str) -> None:
    """Raise ``InvalidInput`` unless the name is a preset or looks like an import path."""
    if name not in LEARNERS and ":" not in name:
        raise InvalidInput(f"unknown learner {name!r}", mend=nearest(name, LEARNERS))


def model_of(name: str, parameters: Mapping[str, Any]) -> Any:
    """The unwrapped model (or torch factory) of a preset or an import path.

    Raises:
        InvalidInput: unknown name, import path or parameter.
        ForeignCode: code of others, outside of :func:`~consilience.models.files.trust.trusting`.
    """
    check_name(name)
    check_packages(parameters)
    if name in LEARNERS:
        entry = LEARNERS[name]
        _known(name, parameters, entry.parameters())
        model = _call(entry.load(), {**entry.defaults, **parameters}, name)
        if entry.before:
            from sklearn.pipeline import make_pipeline

            return make_pipeline(*(find(path)() for path in entry.before), model)
        return model
    target = model_at(name, _OURS)
    _known(name, parameters, known_parameters(target))
    return _call(target, parameters, name)


def named_code(name: str, parameters: Mapping[str, Any]) -> Iterator[ForeignCode]:
    """Find all foreign code that a model and the models in its parameters name; none of it is imported."""
    check_name(name)
    try:
        with trusting(False):
            if name not in LEARNERS:
                model_at(name, _OURS)
    except ForeignCode as error:
        yield error
    for package in foreign_packages(parameters):
        yield ForeignCode(package, "trusts")
    answer = parameters.get("answer")
    if name == "frozen" and isinstance(answer, str):
        yield ForeignCode(answer, "answer")
    weak = parameters.get("weak")  # the one parameter that is a model
    table = {"name": weak} if isinstance(weak, str) else weak
    if isinstance(table, Mapping) and isinstance(table.get("name"), str):
        rest = {key: value for key, value in table.items() if key != "name"}
        for one in named_code(table["name"], rest):
            yield one.within("weak")


def known_parameters(target: Any) -> tuple[str, ...]:
    """The keyword parameters of a class or function; empty where it takes any.

    >>> known_parameters(dict.fromkeys)
    ()
    """
    try:
        signature = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ()
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [one.name for one in signature if one.kind in keywords]
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature):
        if not hasattr(target, "get_params"):
            return ()
        names += target().get_params()  # XGBoost lists its parameters there only
    return tuple(dict.fromkeys(names))


_parameters = cache(known_parameters)  # of presets, which are made anew for every party and seed


def _known(name: str, parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    recipe = {f.name for f in fields(TorchRecipe)}
    for word in parameters:
        if known and word not in known:
            mend = nearest(word, known)
            if word in recipe:
                mend = f"How a torch model is trained goes into recipe = {{{word} = …}}."
            raise InvalidInput(f"unknown parameter {word!r}", where=name, mend=mend)


def _call(target: Any, parameters: Mapping[str, Any], name: str) -> Any:
    try:
        return target(**parameters)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot be made: {error}", where=name) from error

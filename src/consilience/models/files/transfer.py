"""Serialise trained models to bytes, so that another party can predict with them.

A model is sent as a description and its saved form. Models with scikit-learn's interface are sent in skops
form, which names every class in it. Networks are sent as numbers, with the name and the parameters of the
function that builds them. The receiver does not unpickle data or run code from the message, and builds only
models of trusted packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ConsilienceError, InvalidInput, KnowledgeRefused
from consilience.core.files import temporary_file
from consilience.core.learners import Learner, as_learner
from consilience.core.learners.sklearn.estimators import make_of
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.models.files.store import blob_of, read
from consilience.models.files.trust import find
from consilience.models.files.vetting import PACKAGES, parts

Bytes = NDArray[np.uint8]

TRUSTED = PACKAGES
"""Packages from which a party accepts models by default."""

NETWORKS = "consilience.models.torch.networks"
"""The module whose functions may build a network; others a party trusts by their full name."""

PRETRAINED = "consilience.models.torch.transformer"
"""Module of networks that load named files or hub models; they are not built from a received message."""

HOLDS_ROWS = frozenset(
    {
        "CountVectorizer", "DictVectorizer", "GaussianProcessClassifier", "GaussianProcessRegressor",
        "Isomap", "KNeighborsClassifier", "KNeighborsRegressor", "KNNImputer", "KernelPCA", "KernelRidge",
        "LabelPropagation", "LabelSpreading", "LocalOutlierFactor", "LocallyLinearEmbedding",
        "NearestNeighbors", "NuSVC", "NuSVR", "Nystroem", "OneClassSVM", "RadiusNeighborsClassifier",
        "RadiusNeighborsRegressor", "SVC", "SVR",
    }
)  # fmt: skip
"""Classes of models whose saved form contains training rows or words; subclasses count too."""


def rows_held_by(learner: Learner) -> str | None:
    """Name the part of a model that will hold rows it is trained on, also in pipelines and ensembles."""
    model: Any = getattr(learner, "model", None)
    members = [model]
    if hasattr(model, "get_params"):
        members += model.get_params(deep=True).values()
    return next(
        (
            type(part).__name__
            for part in members
            if any(kind.__name__ in HOLDS_ROWS for kind in type(part).__mro__)
        ),
        None,
    )


def holds_rows_of(learner: Learner, X: NDArray[Any]) -> bool:
    """Check whether two or more of the rows ``X``, shape ``(n, d)``, lie in an array of a trained model.

    Only unchanged rows are found; rows in a transformed form are not. Rows of one column are not checked.
    """
    if X.ndim != 2 or X.shape[1] < 2 or X.dtype.kind not in "biuf":
        return False
    tables = [
        part.toarray() if hasattr(part, "toarray") else part
        for part, _ in parts(learner)
        if getattr(part, "ndim", 0) == 2
        and part.shape[1] == X.shape[1]
        and getattr(part.dtype, "kind", "other") in tuple("biuf")
    ]
    return any(_shared_rows(X, table, width) > 1 for table in tables for width in (float, "f4"))


def _shared_rows(one: NDArray[Any], other: NDArray[Any], width: Any) -> int:
    """Count the rows that two arrays share, compared as numbers of a width."""
    first, second = (
        set(map(bytes, np.ascontiguousarray(rows, dtype=width))) for rows in (one, other)
    )
    return len(first & second)


def check_rows(learner: Learner, X: NDArray[Any], *, where: str) -> None:
    """Raise ``InvalidInput`` if a model holds rows of ``X``, or will once it is trained on them.

    Args:
        learner: the model.
        X: private rows, shape ``(n, ...)``.
        where: the party, for the error.
    """
    part = rows_held_by(learner)
    if part is None and learner.fitted and holds_rows_of(learner, X):
        part = type(getattr(learner, "model", learner)).__name__
    if part is not None:
        raise InvalidInput(
            f"a trained {part} holds rows of its private data, and would be sent to others",
            where=where,
            mend="Take another model, or allow it: sends_rows = true, in a configuration under its "
            "[[models]], in Python at its Party.",
        )


def check_packing(learner: Learner) -> None:
    """Raise ``InvalidInput`` on a model, trained or not, that :func:`pack` could not send."""
    learner.check_saving()
    if hasattr(learner, "base"):
        raise InvalidInput(
            "models of several labels are not sent",
            where=getattr(learner, "name", type(learner).__name__),
            mend="Take ensemble_distillation, which exchanges predictions.",
        )
    if hasattr(learner, "weak"):
        raise InvalidInput(
            "a sum of weak learners is not sent as a whole",
            where=getattr(learner, "name", type(learner).__name__),
            mend="Take functional_gradient_boosting, which sends the weak learners one by one, or another "
            "model.",
        )
    if not isinstance(learner, SklearnLearner):
        _construction(learner)


def pack(learner: Learner, *, classes: Sequence[str] = ()) -> tuple[str, Bytes]:
    """Serialise a trained learner: its description, as JSON, and its bytes, shape ``(n_bytes,)``.

    Args:
        learner: a trained model.
        classes: names of its columns, for readers of the file.

    Returns:
        The description and the bytes.

    Raises:
        InvalidInput: the learner is untrained, cannot be saved safely, or is a network given as a module,
            which no other party could build.
    """
    about: dict[str, Any] = {"kind": learner.abilities.kind, "outputs": learner.n_outputs}
    if classes:
        about["classes"] = list(classes)
    if isinstance(learner, SklearnLearner):
        about["model"] = _import_path(make_of(learner.model)[-1])
        prototype = blob_of({"model": learner.model}, given=learner.model, where=learner.name)
        about["prototype"] = len(prototype)
    else:
        check_packing(learner)
        about |= _construction(learner)
        prototype = b""
    with temporary_file() as path:
        learner.save(path)
        saved = path.read_bytes()
    return json.dumps(about, sort_keys=True), np.frombuffer(prototype + saved, dtype=np.uint8)


def unpack(about: str, data: Bytes, *, trusted: Sequence[str] = TRUSTED) -> Learner:
    """Build the learner that :func:`pack` described, ready to predict.

    Args:
        about: the description.
        data: its bytes, shape ``(n_bytes,)``.
        trusted: packages from which models are accepted.

    Returns:
        The learner.

    Raises:
        KnowledgeRefused: the model's package is not trusted, or the bytes are damaged or hold another object.
    """
    try:
        described = json.loads(about)
        model = str(described["model"])
        package = model.partition(":")[0].partition(".")[0]
        if package not in trusted:
            raise KnowledgeRefused(
                f"a model of {package!r}, which is not trusted here", where=model
            )
        learner, saved = _built(described, np.asarray(data, dtype=np.uint8).tobytes(), trusted)
        learner.bind(int(described["outputs"]))
        with temporary_file() as path:
            path.write_bytes(saved)
            if isinstance(learner, SklearnLearner):
                learner.load(path, packages=trusted)
            else:
                learner.load(path)
    except KnowledgeRefused:
        raise
    except ConsilienceError as error:
        raise KnowledgeRefused(
            f"a model that cannot be used: {error.what}", where="model"
        ) from error
    except Exception as error:  # what a stranger's bytes may raise has no list
        raise KnowledgeRefused(f"a model that cannot be read: {error}", where="model") from error
    return learner


def _built(
    described: Mapping[str, Any], data: bytes, trusted: Sequence[str]
) -> tuple[Learner, bytes]:
    """Build the untrained learner; return it with the bytes of its trained state."""
    if "prototype" in described:
        length = int(described["prototype"])
        with temporary_file() as path:
            path.write_bytes(data[:length])
            model = read(path, given=None, packages=trusted)["model"]
        if _import_path(make_of(model)[-1]) != described["model"]:
            raise KnowledgeRefused(
                "a model that is not what it is called", where=described["model"]
            )
        return as_learner(model, kind=described["kind"]), data[length:]
    from consilience.models.torch.recipe import TorchRecipe

    name = str(described["model"])
    module = name.partition(":")[0]
    if module == PRETRAINED:
        raise KnowledgeRefused("a pretrained model is not built from a message", where=module)
    # A package is trusted for its models; which functions are called is said by a module's full name.
    if module != NETWORKS and (module not in trusted or module in TRUSTED):
        raise KnowledgeRefused("its networks are not trusted here", where=module)
    function = find(name)
    if getattr(function, "__module__", None) != module or isinstance(function, type):
        raise KnowledgeRefused("no function of that module builds networks", where=name)
    factory = partial(function, **_tuples(described["parameters"]))
    recipe = TorchRecipe.of(described["recipe"])
    return as_learner(factory, kind=described["kind"], recipe=recipe), data


def _construction(learner: Any) -> dict[str, Any]:
    """Describe the function that builds a network, with its parameters."""
    given = getattr(learner, "factory", None)
    function = given.func if isinstance(given, partial) else given
    parameters = dict(given.keywords) if isinstance(given, partial) else {}
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if name.startswith(f"{PRETRAINED}:"):
        raise InvalidInput(
            "a pretrained transformer is not sent to others, who would load what they are told to",
            where=learner.name,
            mend="Exchange predictions (ensemble_distillation) or parameters (federated_averaging), or take "
            "'text-embedding'.",
        )
    try:
        known = find(name) is function and not (isinstance(given, partial) and given.args)
        json.dumps(parameters)
    except (ImportError, ConsilienceError, TypeError, ValueError):
        known = False
    if not known:
        raise InvalidInput(
            "no other party could build this network",
            where=learner.name,
            mend="Give it by a preset such as 'mlp', or as a function at the top level of a module that "
            "every party has, with plain keyword parameters.",
        )
    return {"model": name, "parameters": parameters, "recipe": asdict(learner.recipe)}


def _tuples(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}


def _import_path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__name__}"

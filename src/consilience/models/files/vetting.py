"""Vetting of model files: their contents, before an object is built, and then the built model.

skops names every object of a file with a loader, and some loaders call a class or a function with arguments
from the file: ``subprocess.Popen`` and ``numpy.memmap`` are classes. This module accepts only plain
containers, arrays, and objects of classes from the trusted packages whose state is set without a call. Tree
models index arrays with numbers from the file, in compiled code without bounds checks; this module checks
their indices.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

PACKAGES = ("catboost", "consilience", "lightgbm", "sklearn", "sksurv", "xgboost")
"""Packages whose classes a file may hold by default."""

EVERYWHERE = ("builtins", "collections", "numpy", "scipy")
"""Packages that every model uses; of numpy and scipy only skops' trusted names and scipy's objects."""

SURE = (
    "sklearn.ensemble", "sklearn.linear_model", "sklearn.naive_bayes", "sklearn.neighbors",
    "sklearn.neural_network", "sklearn.pipeline", "sklearn.preprocessing", "sklearn.svm", "sklearn.tree",
)  # fmt: skip
"""Packages in which skops accepts every estimator; it rejects some from other packages."""

_CONTAINERS = {
    "DictNode", "DefaultDictNode", "ListNode", "SetNode", "TupleNode",
}  # fmt: skip
_CONTAINER_TYPES = {
    "builtins.dict", "builtins.list", "builtins.set", "builtins.tuple",
    "collections.OrderedDict", "collections.defaultdict", "sklearn.utils._bunch.Bunch",
}  # fmt: skip
_OBJECTS = {"ObjectNode", "TreeNode", "LossNode"}
"""Loaders that make an object of a class without arguments from the file, and put its state in place."""

_VALUES = {
    "BytesNode", "BytearrayNode", "DTypeNode", "FunctionNode", "JsonNode", "MaskedArrayNode", "NdArrayNode",
    "RandomGeneratorNode", "RandomStateNode", "SliceNode", "SparseMatrixNode", "TypeNode",
}  # fmt: skip
"""Loaders whose types are those that skops trusts, and no others."""


_NEEDLESS = "sklearn.externals.array_api_compat.torch"
"""A package of scikit-learn that imports PyTorch and has no estimators."""


def skops_io() -> ModuleType:
    """Import the module ``skops.io`` without importing PyTorch.

    skops searches every package of scikit-learn for estimators, and one of these packages imports PyTorch if
    it is installed, which takes most of the import time. During the search, the import of that package is
    blocked, as if PyTorch were not installed.
    """
    if "skops.io" not in sys.modules and _NEEDLESS not in sys.modules:
        sys.modules[_NEEDLESS] = None  # type: ignore[assignment]  # importing it raises ImportError
        try:
            return import_module("skops.io")
        finally:
            sys.modules.pop(_NEEDLESS, None)
    return import_module("skops.io")


def plain(part: object) -> bool:
    """Check whether an untrained model consists only of estimators of :data:`SURE`, numbers and names.

    Such a model can be written and read. It does not require the check by skops, which imports all of
    scikit-learn.
    """
    if type(part) in (list, tuple):
        return all(map(plain, part))  # type: ignore[call-overload]
    if type(part) in (type(None), bool, int, float, str):
        return True
    sure = ".".join(type(part).__module__.split(".")[:2]) in SURE and hasattr(part, "get_params")
    return sure and all(map(plain, vars(part).values()))


def refused(blob: bytes, *, known: set[str], packages: Sequence[str] = PACKAGES) -> list[str]:
    """List the refused contents of a skops file, in words, without building an object.

    Args:
        blob: the file.
        known: full names of classes and functions that its reader has brought along.
        packages: packages whose classes are accepted.

    Returns:
        The refused contents; an empty list if the file is safe.

    Raises:
        Exception: of many kinds, if the file is damaged.
    """
    return vetted(blob, known=known, packages=packages)[0]


def vetted(
    blob: bytes, *, known: set[str], packages: Sequence[str] = PACKAGES
) -> tuple[list[str], list[str]]:
    """Vet a file of skops: its unsafe contents as of :func:`refused`, and the names for skops to trust.

    Args:
        blob: the file.
        known: full names of classes and functions that its reader has brought along.
        packages: packages whose classes are accepted.

    Returns:
        The refused contents, and the names.

    Raises:
        Exception: of many kinds, if the file is damaged.
    """
    skops = skops_io()
    with zipfile.ZipFile(io.BytesIO(blob)) as file:
        if any(part.compress_type != zipfile.ZIP_STORED for part in file.infolist()):
            # skops writes none, and their size is not known beforehand.
            return ["compressed parts"], []
        schema = json.loads(file.read("schema.json"))
    untrusted = skops.get_untrusted_types(data=blob)
    doubtful = set(untrusted) - _CONTAINER_TYPES
    nodes = list(_nodes(schema))
    found = [
        name
        for loader, name in nodes
        if name not in known and not _accepted(loader, name, name in doubtful, packages)
    ]
    found += sorted(doubtful - {name for _, name in nodes} - known)
    return list(dict.fromkeys(found)), untrusted


def _nodes(part: Any) -> Iterator[tuple[str, str]]:
    """Loader and full name of every object in a schema."""
    if isinstance(part, dict):
        if "__loader__" in part:
            yield str(part["__loader__"]), f"{part.get('__module__')}.{part.get('__class__')}"
        for inner in part.values():
            yield from _nodes(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _nodes(inner)


def _accepted(loader: str, name: str, doubtful: bool, packages: Sequence[str]) -> bool:
    package = name.partition(".")[0]
    if (loader, name) == ("DTypeNode", "numpy.dtype"):
        return True  # read off an empty array
    if loader in _CONTAINERS:
        return name in _CONTAINER_TYPES
    if package not in EVERYWHERE and package not in packages:
        return False
    if not doubtful:
        return loader in _OBJECTS or loader in _VALUES
    return (
        loader in _OBJECTS and package not in ("builtins", "collections", "numpy") and defined(name)
    )


def defined(name: str) -> bool:
    """True if a module defines a class of that full name, and has not merely imported it."""
    module, _, attribute = name.rpartition(".")
    found = found_at(name)
    return isinstance(found, type) and (found.__module__, found.__qualname__) == (module, attribute)


def found_at(name: str) -> object:
    """Import the object of a full name; ``None`` if there is none."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        return None


def unsound(model: object) -> str | None:
    """Describe a fault in the indices of a built model's trees; ``None`` if they are sound.

    Compiled models of other kinds, such as support vector machines and k-d trees, are not looked into.
    """
    for part, columns in parts(model):
        if hasattr(part, "children_left") and hasattr(part, "node_count"):
            children = np.stack([part.children_left, part.children_right])
            split = children[0] != -1
            fault = _fault(children[:, split], np.flatnonzero(split), part.node_count)
            fault = fault or _beyond(part.feature[split], columns)
        elif type(part).__name__ == "TreePredictor":
            fault = _unsound_predictor(part, columns)
        else:
            continue
        if fault:
            return f"a tree with {fault}"
    return None


def _unsound_predictor(part: Any, columns: int | None) -> str | None:
    nodes = part.nodes
    split = nodes["is_leaf"] == 0
    children = np.stack([nodes["left"], nodes["right"]]).astype(np.int64)[:, split]
    fault = _fault(children, np.flatnonzero(split), len(nodes))
    fault = fault or _beyond(nodes["feature_idx"][split], columns)
    categorical = nodes["bitset_idx"][split & (nodes["is_categorical"] != 0)]
    sets = min(len(part.binned_left_cat_bitsets), len(part.raw_left_cat_bitsets))
    return fault or ("a category set that is not there" if (categorical >= sets).any() else None)


def _fault(children: Any, parents: Any, count: int) -> str | None:
    """Children come after their parents, so that there are no loops."""
    if ((children <= parents) | (children >= count)).any():
        return "a branch that leads nowhere"
    return None


def _beyond(features: Any, columns: int | None) -> str | None:
    if columns is None or ((features < 0) | (features >= columns)).any():
        return "a column that its inputs do not have"
    return None


def parts(model: object) -> Iterator[tuple[Any, int | None]]:
    """Yield all objects and arrays of a model, with the number of columns that their owner takes."""
    return _parts(model, None, {})


def _parts(
    part: Any, columns: int | None, seen: dict[int, object]
) -> Iterator[tuple[Any, int | None]]:
    if id(part) in seen or isinstance(part, str | bytes | type | int | float | None):
        return
    seen[id(part)] = part  # held, so that nothing else comes to lie there
    if isinstance(part, np.ndarray):
        yield part, columns
        inner: Any = part.ravel().tolist() if part.dtype == object else ()
    elif isinstance(part, dict):
        inner = part.values()
    elif isinstance(part, list | tuple | set):
        inner = part
    else:
        own = getattr(part, "__dict__", {})
        columns = own.get("n_features_in_", columns)
        yield part, columns if isinstance(columns, int) else None
        inner = own.values()
    for one in inner:
        yield from _parts(one, columns, seen)

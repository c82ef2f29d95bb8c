"""Options of a model that name columns of its rows, such as ``monotonic_cst``, by name or by position.

A model whose options have names of columns is given a table. Positions are those of the columns that the
model is given: in the order of the public rows, and one for each category if it takes numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from consilience.core.learners.sklearn.per_class import inner_models, parameters

_BY_POSITION = ("feature_types", "feature_weights", "feature_contri")
_OPTIONS = {
    *_BY_POSITION,
    *("monotonic_cst", "interaction_cst", "monotone_constraints", "interaction_constraints"),
    *("categorical_features", "categorical_feature", "cat_features", "ignored_features"),
    *("cols", "variables"),  # transformers of category_encoders, mlxtend and feature_engine
}

How = Literal["name", "position"]


def column_option(model: Any, how: How) -> str:
    """Find an option that identifies columns by name, or by position.

    Args:
        model: an estimator or a pipeline, with models inside of it.
        how: which of the two.

    Returns:
        Name of the first such option; empty if there is none.

    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> model = HistGradientBoostingClassifier(monotonic_cst={"age": 1})
    >>> column_option(model, "name"), column_option(model, "position")
    ('monotonic_cst', '')
    """
    return next((name for name, value in _options(model) if how in _how(name, value)), "")


def _options(model: Any) -> Iterator[tuple[str, Any]]:
    """List the options that identify columns of the model's input rows, with their values.

    A step may choose, add or order columns. Positions in later steps refer to its output columns, and are
    omitted.
    """
    if hasattr(model, "steps"):
        in_place = True
        for _, step in model.steps:
            for name, value in _options(step):
                if in_place or "name" in _how(name, value):
                    yield name, value
            in_place = in_place and _keeps_columns(step)
        return
    for name, value in parameters(model).items():
        if name in _OPTIONS:
            yield name, value
        elif name == "transformers" and type(model).__name__ == "ColumnTransformer":
            yield from (("columns", columns) for _, _, columns in value)
        else:
            for one in inner_models(value):
                yield from _options(one)


def _keeps_columns(step: Any) -> bool:
    from sklearn.base import OneToOneFeatureMixin

    return step is None or step == "passthrough" or isinstance(step, OneToOneFeatureMixin)


def _how(name: str, value: Any) -> set[How]:
    """Return whether a value identifies columns by name, by position, or both; empty if it names none."""
    if name in _BY_POSITION:
        return set() if value is None else {"position"}
    if isinstance(value, str) and name != "columns":
        if value.startswith("name:"):  # LightGBM
            return {"name"}
        # XGBoost's "(1,-1)" and LightGBM's "0,1"; "from_dtype" and the like say no columns.
        return {"position"} if any(map(str.isdigit, value)) and not _letters(value) else set()
    return {"name" if isinstance(one, str) else "position" for one in _leaves(value)}


def _letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _leaves(value: Any) -> Iterator[Any]:
    """List names and positions in a value; of a table its keys."""
    if isinstance(value, slice):
        yield from (one for one in (value.start, value.stop) if one is not None)
    elif isinstance(value, Mapping):
        yield from value
    elif isinstance(value, np.ndarray):
        yield from _leaves(value.tolist())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str | int | float | np.number):
        yield value

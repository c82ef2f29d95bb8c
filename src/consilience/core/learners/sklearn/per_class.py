"""Options of a model that differ by class, such as ``class_weight``, translated to codes.

A party's model is fitted to the codes 0 … k−1 of the classes that its rows have, and its options name classes
of the federation. So each of them, nested ones too, is translated before each fit:

- ``class_weight``, ``class_weights`` and ``sampling_strategy`` by class: keys are labels of the party, or
  names of the federation's classes. A class without a key has weight 1.
- ``priors``, ``class_prior`` and ``class_weights`` in order: one value for each class of the federation, in
  its order. Priors of the classes that a party has are scaled to sum to 1.
- ``pos_label``, and ``constant`` of a dummy classifier: a label. Scorers (``scoring``) have ``pos_label`` and
  ``labels`` too, and those by name, such as ``"f1"``, are of the class 1 if there is one.
- ``scale_pos_weight``: for two classes only; the second one is the positive one.
- ``"balanced"``: computed from the weights of the classes if rows are weighted, because some libraries count
  rows.

Models of pairs of classes, such as ``OneVsRestClassifier``, give their inner model the labels 0 and 1. Its
options are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import label_names
from consilience.core.validation.printing import prints_no_rows

_BY_CLASS = ("class_weight", "class_weights", "sampling_strategy")
_IN_ORDER = ("priors", "class_prior", "class_weight", "class_weights")
_OF_TWO = ("scale_pos_weight", "is_unbalance", "unbalance", "unbalanced_sets")
_OF_CLASS_1 = ("f1", "precision", "recall", "jaccard", "average_precision")
"""Names of scorers whose ``pos_label`` is 1 unless it is given."""

_OPTIONS = {*_BY_CLASS, *_IN_ORDER, *_OF_TWO, "pos_label", "constant"}

_OF_PAIRS = {
    "OneVsRestClassifier",
    "OneVsOneClassifier",
    "OutputCodeClassifier",
    "MultiOutputClassifier",
    "ClassifierChain",
}
"""Models whose inner model is fitted to 0 and 1."""


@dataclass(frozen=True)
class Option:
    """An option of a model, or of one inside of it.

    Attributes:
        owner: the model whose option it is.
        name: of the option.
        value: as the user gave it.
        put: sets another value.
        of_pairs: whether its model is fitted to 0 and 1 by one around it.
    """

    owner: Any
    name: str
    value: Any
    put: Callable[[Any], None]
    of_pairs: bool


@prints_no_rows
@dataclass(frozen=True)
class Coding:
    """Codes of a federation's classes for a model before its fit.

    Attributes:
        columns: label of a class to its column among the federation's classes; a class may have several.
        codes: column to code, for each class present in the rows.
        totals: summed weights of the rows of each code, shape ``(k,)``; ``None`` if rows are not weighted.
        where: the model, for errors.
    """

    columns: Mapping[str, int]
    codes: Mapping[int, int]
    totals: Array | None
    where: str

    @property
    def classes(self) -> int:
        """Number of the federation's classes."""
        return len(set(self.columns.values()))

    @property
    def names(self) -> str:
        """The classes in their order, for errors."""
        first = {column: label for label, column in reversed(list(self.columns.items()))}
        return ", ".join(repr(first[column]) for column in sorted(first)[:20])

    def column(self, label: Any, option: str) -> int:
        """Find the column of a label.

        Raises:
            InvalidInput: it is no class.
        """
        try:
            name = str(label_names([label], where=option)[0])
        except InvalidInput:  # no label at all, such as NaN or half a number
            name = ""
        if name not in self.columns:
            raise InvalidInput(
                f"{option} names {label!r}, which is no class of the federation",
                where=self.where,
                mend=f"Its classes are {self.names}.",
            )
        return self.columns[name]


def check_options(model: Any, columns: Mapping[str, int], where: str) -> None:
    """Raise ``InvalidInput`` if an option of a model is for other classes than the federation has.

    Args:
        model: a classifier, unfitted.
        columns: label of a class to its column.
        where: the model, for errors.
    """
    codes = {column: column for column in set(columns.values())}
    coding = Coding(columns, codes, None, where)
    for option in options_of(model):
        _translated(option, coding)


def translate_options(model: Any, coding: Coding) -> None:
    """Translate the options of an unfitted copy of a model, in place.

    Args:
        model: an unfitted classifier, to be fitted to codes.
        coding: the codes.

    Raises:
        InvalidInput: an option is for other classes than the federation has.
    """
    for option in list(options_of(model)):
        value = _translated(option, coding)
        if value is not option.value:
            option.put(value)


def neutralise_options(model: Any) -> None:
    """Replace options that distinguish classes, in place, by ones that treat two codes equally, for a trial.

    Args:
        model: a classifier, unfitted.
    """
    for option in list(options_of(model)):
        value, name = option.value, option.name
        if value is None or option.of_pairs:
            continue
        if name in ("pos_label", "labels"):
            option.put(1 if name == "pos_label" else [0, 1])
            continue
        if isinstance(value, str | bool) or callable(value):
            continue
        if isinstance(value, Mapping):
            option.put({0: 1, 1: 1})
        elif name in _IN_ORDER:
            option.put([0.5, 0.5] if name in ("priors", "class_prior") else [1, 1])
        else:
            option.put(1)


def options_of(model: Any) -> Iterator[Option]:
    """List all options of a model that differ by class, those of models inside of it too."""
    yield from _options(model, False, set())


def parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of a model by name.

    They come from ``get_params`` if the model has this method, else from its attributes.
    """
    if hasattr(model, "get_params"):
        return dict(model.get_params(deep=False))
    return dict(getattr(model, "__dict__", {}))


def inner_models(value: Any) -> Iterator[Any]:
    """List the models in a parameter, which may be one, or a list or table of some."""
    if isinstance(value, str | bytes | np.ndarray | type):
        return
    if hasattr(value, "fit"):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from inner_models(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from inner_models(one)


def _options(model: Any, of_pairs: bool, seen: set[int]) -> Iterator[Option]:
    if id(model) in seen:
        return
    seen.add(id(model))
    inside = of_pairs or type(model).__name__ in _OF_PAIRS
    for name, value in parameters(model).items():
        if name in _OPTIONS:
            yield Option(model, name, value, partial(_set, model, name), of_pairs)
            continue
        if name == "scoring":
            yield from _scorer_options(model, value, partial(_set, model, name), of_pairs)
        yield from _candidates(model, value, inside)
        for one in inner_models(value):
            yield from _options(one, inside, seen)


def _scorer_options(
    owner: Any, value: Any, put: Callable[[Any], None], of_pairs: bool
) -> Iterator[Option]:
    """List the labels that a scorer, or each of a table of scorers, names."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _scorer_options(owner, one, partial(value.__setitem__, key), of_pairs)
        return
    if isinstance(value, str) and value in _OF_CLASS_1:
        yield Option(owner, "scoring", value, put, of_pairs)
    named = getattr(value, "_kwargs", None)
    if not isinstance(named, dict):
        return
    for key in ("pos_label", "labels"):
        if key in named:
            yield Option(owner, key, named[key], partial(named.__setitem__, key), of_pairs)


def _candidates(model: Any, value: Any, of_pairs: bool) -> Iterator[Option]:
    """List the options among the candidates of a search, such as ``{"svc__class_weight": [...]}``."""
    for grid in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(grid, dict):
            continue
        for name, some in grid.items():
            last = name.rpartition("__")[2] if isinstance(name, str) else ""
            if last in _OPTIONS and isinstance(some, list | tuple | np.ndarray):
                grid[name] = tried = list(some)
                for place, candidate in enumerate(tried):
                    yield Option(
                        model, last, candidate, partial(tried.__setitem__, place), of_pairs
                    )


def _set(owner: Any, name: str, value: Any) -> None:
    if hasattr(owner, "set_params"):
        owner.set_params(**{name: value})
    else:
        setattr(owner, name, value)


def _translated(option: Option, coding: Coding) -> Any:
    """Return the value of an option for the codes; the same object if no change is needed."""
    value, name = option.value, option.name
    if value is None:
        return value
    if callable(value) and not isinstance(value, type):
        if name not in _BY_CLASS:
            return value
        raise InvalidInput(
            f"{name} is a function, which would be given codes and not classes",
            where=coding.where,
            mend="Give a dictionary from classes to numbers.",
        )
    if isinstance(value, Mapping):
        return _by_class(option, coding) if name in _BY_CLASS else value
    if name in _OF_TWO:
        return _of_two(option, coding)
    if name == "labels":
        wanted = [coding.column(label, name) for label in value]
        return [coding.codes[column] for column in wanted if column in coding.codes]
    if name == "scoring":
        return _scoring(option, coding)
    if name == "pos_label" or (name == "constant" and hasattr(option.owner, "strategy")):
        return _label(option, coding)
    if isinstance(value, str):
        return _balanced(option, coding)
    if name in _IN_ORDER and isinstance(value, Sequence | np.ndarray):
        return value if option.of_pairs else _in_order(option, coding)
    return value


def _by_class(option: Option, coding: Coding) -> Mapping[Any, Any]:
    if option.of_pairs:
        if others := [key for key in option.value if key not in (0, 1)]:
            raise InvalidInput(
                f"{option.name} of the inner model names {others[0]!r}, and its labels are 1 for a class "
                "and 0 for the rest",
                where=coding.where,
                mend="Give weights for 0 and 1, or take the inner model by itself.",
            )
        return option.value  # type: ignore[no-any-return]
    found: dict[int, Any] = {}
    for key, weight in option.value.items():
        column = coding.column(key, option.name)
        if column in found:
            raise InvalidInput(
                f"{option.name} names class {key!r} a second time", where=coding.where
            )
        found[column] = weight
    if option.name == "sampling_strategy":
        return {coding.codes[column]: found[column] for column in found if column in coding.codes}
    # All of them: scikit-learn refuses some tables that lack a class, and takes others.
    return {code: found.get(column, 1) for column, code in coding.codes.items()}


def _in_order(option: Option, coding: Coding) -> Any:
    try:
        values = np.asarray(option.value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{option.name} is a list of {type(option.value[0]).__name__}",
            where=coding.where,
            mend=f"Give a number for each class, in this order: {coding.names}.",
        ) from error
    if values.shape != (coding.classes,):
        raise InvalidInput(
            f"{option.name} has {values.size} values, and the federation {coding.classes} classes",
            where=coding.where,
            mend=f"Give one for each class, in this order: {coding.names}.",
        )
    present = sorted(coding.codes, key=coding.codes.__getitem__)
    if option.name in ("priors", "class_prior") and len(present) < coding.classes:
        values = values[present]
        if not values.sum() > 0:
            raise InvalidInput(
                f"{option.name} is 0 for all classes that its rows have", where=coding.where
            )
        return values / values.sum()
    if len(present) == coding.classes:
        return option.value
    return values[present].tolist()


def _of_two(option: Option, coding: Coding) -> Any:
    """Options that single out the class of code 1."""
    value, usual = option.value, 1 if option.name == "scale_pos_weight" else False
    if value == usual or option.of_pairs:
        return value
    if coding.classes != 2:
        raise InvalidInput(
            f"{option.name} is for two classes, and the federation has {coding.classes}",
            where=coding.where,
            mend="Leave it out, or take a model with class_weight.",
        )
    if option.name == "scale_pos_weight" or coding.totals is None or len(coding.totals) < 2:
        return value
    # LightGBM counts rows here, so that copies of soft rows would count alike.
    weights = coding.totals.max() / coding.totals
    option.owner.set_params(class_weight=dict(enumerate(weights.tolist())))
    return False


def _scoring(option: Option, coding: Coding) -> Any:
    """A scorer by name, which is of class 1, as one of the code that this class has."""
    code = coding.codes.get(coding.columns.get("1", -1), 1)
    if option.of_pairs or code == 1:
        return option.value
    from sklearn.metrics import get_scorer

    scorer = get_scorer(option.value)  # a copy
    scorer._kwargs["pos_label"] = code
    return scorer


def _label(option: Option, coding: Coding) -> Any:
    if option.of_pairs:
        return option.value
    column = coding.column(np.ravel(option.value)[0].item(), option.name)
    if column not in coding.codes:
        raise InvalidInput(
            f"{option.name} is {option.value!r}, a class that it has no rows of", where=coding.where
        )
    return coding.codes[column]


def _balanced(option: Option, coding: Coding) -> Any:
    """Balanced class weights by sums of weights, as scikit-learn computes them by numbers of rows."""
    balanced = option.name == "class_weight" and option.value.startswith("balanced")
    if not balanced or coding.totals is None or option.of_pairs:
        return option.value
    return dict(enumerate((coding.totals.mean() / coding.totals).tolist()))

"""Targets of tables: classes, values, and outcomes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.outcomes import Outcome
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.numbers import numbers_only
from consilience.tables.dataset import Dataset, as_texts
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.several_labels import MultiLabel, rarest
from consilience.tables.outcomes.survival import Survival
from consilience.tables.outcomes.survival_scores import survival_rows
from consilience.tables.table import Table
from consilience.tables.texts import Mark, is_number, number_text, read_texts


class LabelColumns(tuple[str, ...]):
    """Names of the columns of several labels; a row may have any number of the labels."""


Target = str | tuple[str, str] | LabelColumns | None
"""Name of the column of labels or values; or names of those of times and events, or of several labels."""


def outcome_for(outcome: Outcome | None, dataset: Dataset) -> Outcome | None:
    """Choose the outcome that a dataset is predicted by; ``None`` for classes and values.

    Args:
        outcome: the outcome of the configuration, if it has one.
        dataset: the rows.

    Raises:
        InvalidInput: the dataset has other targets.
    """
    if dataset.labels:
        if outcome is not None:
            raise InvalidInput(
                "rows have several labels, which are no times and no values",
                where="outcome",
                mend="Leave out the section outcome, or data.labels.",
            )
        return MultiLabel(dataset.labels)
    if isinstance(outcome, MultiLabel):
        raise InvalidInput(
            "the columns of several labels are a matter of the data here",
            where="outcome.labels",
            mend="Name them as data.labels, and leave out outcome and data.target.",
        )
    if dataset.survival and not isinstance(outcome, Survival):
        when = dataset.y[dataset.y[:, 1] > 0, 0]
        near = float(f"{np.quantile(when, 0.9) if len(when) else dataset.y[:, 0].max():.1g}")
        raise InvalidInput(
            "no bins of time are said",
            where="outcome",
            mend=f"For ten bins up to the time {near:g} add: outcome = {{ horizon = {near:g}, bins = 10 }}",
        )
    if isinstance(outcome, Survival) and not dataset.survival:
        raise InvalidInput(
            "survival is of a time and an event, and the dataset has none",
            where="outcome",
            mend="Name the columns: data.time and data.event. For quantiles of a number: "
            "outcome.quantiles = [0.1, 0.5, 0.9].",
        )
    if isinstance(outcome, Quantiles) and dataset.classes is not None:
        raise InvalidInput(
            "quantiles are of a number, and the dataset has classes",
            where="outcome",
            mend='Where its labels are numbers say data.kind = "regression".',
        )
    return outcome


def target_columns(
    target: str | None,
    time: str | None,
    event: str | None,
    labels: Sequence[str] | None = None,
    *,
    where: str,
) -> Target:
    """Return the names of the target columns.

    Args:
        target: the column of labels or values.
        time: the column of times.
        event: the column of events.
        labels: the columns of several labels.
        where: the file, for errors.

    Returns:
        The name of the target, the names of time and event, or the names of the labels; ``None`` if none is
        given.

    Raises:
        InvalidInput: a time without an event, more than one of these, or labels of one name.
    """
    if labels is not None:
        if any(one is not None for one in (target, time, event)) or isinstance(labels, str):
            raise InvalidInput(
                f"labels is {labels!r}, target {target!r}, time {time!r} and event {event!r}",
                where=where,
                mend="Give a list of the labels' columns, and no target, time or event.",
            )
        return LabelColumns(MultiLabel(labels).columns)
    if time is None and event is None:
        return target
    if time is None or event is None or target is not None:
        raise InvalidInput(
            f"target is {target!r}, time {time!r} and event {event!r}",
            where=where,
            mend="For survival name the columns of both time and event, and no target.",
        )
    return time, event


def joined_target(parts: Sequence[Any], named: Target, where: str) -> Array:
    """Read the columns of times and events, shape ``(n, 2)``, or of L labels, ``(n, L)``; one is as it is.

    Args:
        parts: the columns.
        named: their names.
        where: the file, for errors.
    """
    if isinstance(named, LabelColumns):
        rows = np.array([np.asarray(part, dtype=object) for part in parts], dtype=object).T
        return MultiLabel(named).read(rows, where=where)
    if not isinstance(named, tuple):
        return np.asarray(parts[0])
    columns = " and ".join(map(repr, named or ()))
    return survival_rows(*parts, where=f"{where}, columns {columns}")


def roles_of(target: Target) -> tuple[str, ...]:
    """Name the role of each column of a target: ``"label"``, ``"time"``, ``"event"`` or ``"target"``."""
    if isinstance(target, LabelColumns):
        return ("label",) * len(target)
    return ("time", "event") if isinstance(target, tuple) else ("target",)


def strata_of(y: Array, target: Target) -> Array:
    """Give what rows are divided by: labels, events, or the rarest of several labels; shape ``(n,)``."""
    if isinstance(target, LabelColumns):
        return rarest(y)
    return y[:, 1].astype(np.int64) if y.ndim == 2 else y


def lacks(table: Table, label: str, labels: Sequence[str]) -> bool:
    """Tell whether a party's own table has no column of a label, nor one that seems misspelt.

    Args:
        table: the party's rows.
        label: name of the label.
        labels: names of all labels.
    """
    free = [name for name in table.columns if name not in labels]
    return label not in table.columns and not get_close_matches(label, free)


def target_column(table: Table, name: str, where: str, *, labels: bool = False) -> Array:
    """Give a target or group column, which needs a value in every row; of a label it may lack some, or all.

    Args:
        table: the rows.
        name: of the column.
        where: the file, for errors.
        labels: whether it is one of several labels.

    Raises:
        InvalidInput: a row has no value.
    """
    if labels and name not in table.columns:
        return np.full(len(table), None, dtype=object)
    values = table.columns[name]
    absent = np.array([one is None or one != one for one in values.tolist()], dtype=bool)
    if absent.any() and not labels:
        raise InvalidInput(
            f"{int(absent.sum()):,} of {len(values):,} rows have no value in {name!r}",
            where=where,
            mend="Drop these rows, or move them to a file of public data.",
        )
    return values


def values_or_classes(
    values: Array, target: str | tuple[str, ...], kind: Kind | None, mark: Mark, where: str
) -> Array:
    """Read a target of decimal numbers in texts, such as ``64,1``, unless they are classes.

    Args:
        values: the column, shape ``(n,)``.
        target: name of the column; or names of the columns of times and events, if the values are times.
        kind: ``"classification"``, ``"regression"``, or ``None`` if the values decide.
        mark: decimal mark of the table.
        where: the file, for errors.

    Returns:
        Numbers, or the unchanged values, shape ``(n,)``.

    Raises:
        InvalidInput: numbers in several formats, or numbers that may be thousands or decimals.
    """
    name, kind = (target, kind) if isinstance(target, str) else (target[0], "regression")
    texts = values.tolist()
    if values.dtype.kind != "O" or kind == "classification" or not all(map(is_number, texts)):
        return values
    digits = all(text.isdigit() for text in texts)
    read = read_texts(values, name, where=where, mark=mark)
    return values if kind is None and digits else read


def encoded(
    target: Array, tail: Array, kind: str, where: str
) -> tuple[Array, Array, tuple[str, ...] | None]:
    """Read targets as values, or as codes into the classes of all rows, sorted.

    Args:
        target: of training rows, shape ``(n,)``, or ``(n, …)`` for times and events or several labels.
        tail: of test rows; there may be none.
        kind: ``"classification"`` or ``"regression"``.
        where: the file, for errors.
    """
    if kind == "regression":
        if {target.dtype.kind, tail.dtype.kind} - set("iufOSU"):  # truth values, dates
            raise InvalidInput("targets of a regression must be numbers", where=where)
        read = partial(numbers_only, name="targets of a regression", where=where)
        return read(target), read(tail), None
    both = [as_texts(values) if values.dtype.kind in "OSU" else values for values in (target, tail)]
    numbers = [values.dtype.kind in "iufb" for values in both]
    if len(tail) and numbers[0] != numbers[1]:
        texts = both[numbers.index(False)].tolist()
        if all(
            re.fullmatch(r"\d+", text) for text in texts
        ):  # codes, of which one file has 01 and one 10
            both = [as_texts(values) for values in both]
            numbers = [False, False]
    if len(tail) and numbers[0] != numbers[1]:
        raise InvalidInput(
            "labels are of mixed type: text in one file, numbers in the other", where=where
        )
    everything = np.concatenate(both)
    if everything.dtype == object:  # one text a class, not one as wide as the longest for each row
        known = sorted(set(everything.tolist()))
        place = {name: code for code, name in enumerate(known)}
        codes = np.array([place[name] for name in everything.tolist()], dtype=np.int64)
        names = known
    else:
        distinct, codes = np.unique(everything, return_inverse=True)
        names = list(map(_class_name, distinct))
    return codes[: len(target)], codes[len(target) :], tuple(names)


def _class_name(label: Any) -> str:
    if isinstance(label, np.bool_):
        return "true" if label else "false"
    return number_text(label) if isinstance(label, np.floating) else str(label)

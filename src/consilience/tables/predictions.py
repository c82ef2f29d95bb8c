"""Predictions of a trained model for the rows of a file, which are scaled as those of its training were."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed, as_cell
from consilience.core.learners import Model
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array, precision_for
from consilience.core.validation.printing import prints_no_rows
from consilience.tables.load import read_rows
from consilience.tables.text_columns import with_text_columns


@prints_no_rows
@dataclass(frozen=True)
class Scaling:
    """Standardisation ``(x - centre) / spread`` of each column, estimated from the public rows.

    Attributes:
        centre: the columns' means, the shape of one row.
        spread: their standard deviations, 1 for a column that never changes.
    """

    centre: Array
    spread: Array

    @classmethod
    def of(cls, X: Array) -> Scaling:
        """The scaling that gives these rows' columns mean 0 and standard deviation 1."""
        X = X.astype(np.float64)
        constant = X.min(axis=0) == X.max(axis=0)
        return cls(X.mean(axis=0), np.where(constant, 1.0, X.std(axis=0)))

    @property
    def precision(self) -> type[np.float32] | type[np.float64]:
        """Precision that rows need before they are scaled."""
        return precision_for(self.centre, self.spread)

    def __call__(self, X: Array) -> Array:
        """Scaled rows, float32, shaped like ``X``."""
        # An overflow to infinity is refused where it is used, with the name of the column.
        with np.errstate(over="ignore"):
            return ((X - self.centre) / self.spread).astype(np.float32)


@dataclass(frozen=True)
class Kept:
    """A saved model, loaded from a file.

    Attributes:
        model: ready to predict.
        schema: its training columns; ``None`` if they had no names.
        row_shape: the shape of one row, empty for texts; ``None`` if unknown.
        scaling: transformation of every row before training; ``None`` for no transformation.
        about: description of the model's owner and content, for people.
        rename: name of a column in the party's files to its name in the schema.
        units: name in the schema to a factor on the numbers of the party's files, or a scale of temperature.
    """

    model: Model
    schema: Schema | None
    row_shape: tuple[int, ...] | None
    scaling: Scaling | None
    about: str
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float | str] = field(default_factory=dict)


def predictions(model: Kept, data: Path, report: Callable[[str], None] = lambda line: None) -> str:
    """Predict a line of CSV per row of a file: the class and every class's probability, or the values.

    The columns of an outcome are those of :attr:`~consilience.core.numerics.outcomes.Outcome.columns`.
    Classes are written by :func:`consilience.core.errors.as_cell`, so that no spreadsheet computes one.

    Args:
        model: a party's.
        data: the file of rows.
        report: is called with each remark on the file; by default they are dropped.

    Returns:
        The text of the CSV, with a header.

    Raises:
        InvalidInput: the file cannot be read, or its columns are not the model's.
    """
    schema = model.schema
    if schema is not None and model.scaling is not None:
        schema = schema.without_units()  # those that it has are of scaled rows
    found = read_rows(
        data,
        like=schema,
        unknown="missing",
        rename=model.rename,
        units=model.units,
        prepared=lambda table: table if schema is None else with_text_columns(table, schema),
        precision=None if model.scaling is None else model.scaling.precision,
    )
    for note in found.notes:
        report(f"note: {note}")
    rows = found.X
    width = int(np.prod(model.row_shape or ()))
    if model.row_shape and int(np.prod(rows.shape[1:])) != width:
        raise InvalidInput(
            f"a row has {int(np.prod(rows.shape[1:]))} numbers, and the model was trained on {width}",
            where=str(data),
            mend="Give the inputs alone, in the order of training.",
        )
    if model.row_shape is not None:
        rows = rows.reshape(len(rows), *model.row_shape)
    if model.scaling is not None:
        rows = model.scaling(rows)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    if (outcome := model.model.outcome) is not None:
        lines.writerow(outcome.columns)
        lines.writerows([f"{one:.6g}" for one in line] for line in model.model.predict(rows))
    elif model.model.classes:
        shares = model.model.predict_proba(rows)
        if not np.isfinite(shares).all():
            raise RunFailed("the model answers with NaN or infinite numbers", where=model.about)
        names = {name: as_cell(name) for name in model.model.classes}
        lines.writerow(["prediction", *names.values()])
        for name, line in zip(model.model.predict(rows).tolist(), shares, strict=True):
            lines.writerow([names[name], *(f"{share:.6f}" for share in line)])
    else:
        values = model.model.predict(rows)
        many = values.shape[1] > 1
        lines.writerow(
            f"prediction_{i + 1}" if many else "prediction" for i in range(values.shape[1])
        )
        lines.writerows([f"{value:.9g}" for value in line] for line in values)
    return text.getvalue()

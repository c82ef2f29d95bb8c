"""Sections that a party's own configuration shares with an experiment's: its rows, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from consilience.core.errors import InvalidInput
from consilience.core.numerics.outcomes import MOST_EDGES, Outcome
from consilience.core.validation.labels import Kind
from consilience.core.validation.tables import Lenient
from consilience.lab.config.sections import Flag, Number, Section, Whole
from consilience.tables.load import load_own, load_unlabelled
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.several_labels import MultiLabel
from consilience.tables.outcomes.survival import Survival

Share = Annotated[Number, Field(gt=0, lt=1)]


class PrivateDataSpec(Section):
    """The party's own rows.

    Attributes:
        path: a ``.csv``, ``.parquet``, ``.xlsx`` or ``.npz`` file, as :func:`consilience.lab.data.load_table`
            reads it; a frozen model needs none.
        labels: whether the rows have labels; without them the party learns only, and is measured only if
            ``test`` is a file of labelled rows.
        target: the column of labels or values; in an ``.npz`` the array, ``"y"`` by default.
        time: for survival, in place of a target, the column of times.
        event: the column that indicates whether the time ended with the event.
        columns: the input columns; by default those of the public rows, in whatever order the file has them.
        kind: ``"classification"`` or ``"regression"``; needed only if the values of the target leave it open.
        test: held-out rows for measurement: a share of the rows, or a file with the same columns. With a
            privacy budget no share is set aside, because metrics are then not released.
        classes: names of the classes, which a party with a privacy budget declares; with them, the party
            agrees to no further class in mid-run.
        calibration: share of the other rows kept from training, for choices along the way.
        aliases: own label to the name that the federation uses, for labels that differ.
        encoder: makes the features by which rows are compared, if the federation agreed on an encoder: a name
            (``consilience list encoders``), or the import path or ``"file.py:name"`` of a callable with a
            ``key``.
        rename: own name of a column to its name in the public rows.
        units: the public rows' name of a column to a factor on own numbers, or ``"F to C"``, ``"C to F"``.
        missing: whether it may lack columns of the public rows, and take part with the others.
        unknown: categories absent from the public rows: ``"refused"``, or read as ``"missing"``.
        rows_are_independent: whether a file is accepted in which one column seems to name persons on several
            rows (:mod:`~consilience.tables.persons`).
    """

    path: Path | None = None
    labels: Flag = True
    target: str | None = None
    time: str | None = None
    event: str | None = None
    columns: tuple[str, ...] | None = None
    kind: Kind | None = None
    test: Share | Path = 0.2
    classes: tuple[str, ...] = ()
    calibration: Number = Field(default=0.2, ge=0, lt=1)
    aliases: Mapping[str, str] = {}
    encoder: str | None = None
    rename: Mapping[str, str] = {}
    units: Mapping[str, Number | Literal["F to C", "C to F"]] = {}
    missing: Literal["refused", "allowed"] = "refused"
    unknown: Lenient = "refused"
    rows_are_independent: Flag = False

    def rows(
        self, several: tuple[str, ...] | None = None, *, whole: bool = False
    ) -> tuple[tuple[Any, Any], tuple[Any, Any] | None, bool | None]:
        """Load own rows and targets, test rows with theirs, and whether these are classes; ``None`` for none.

        Args:
            several: names of several labels, which are columns in place of a target.
            whole: whether to set no share of the rows aside, because one more row would change the choice.

        Returns:
            Inputs and targets; the same of the test rows; and whether targets are classes.

        Raises:
            InvalidInput: a file or a column is not there, or cannot be used.
        """
        tests, classes = None, None
        options: dict[str, Any] = {
            "time": self.time, "event": self.event, "labels": several, "columns": self.columns,
            "kind": self.kind, "rows_are_independent": self.rows_are_independent,
        }  # fmt: skip
        if self.path is not None and self.labels:
            test = None if whole and isinstance(self.test, float) else self.test
            return load_own(self.path, self.target, test=test, **options)
        if isinstance(self.test, Path):
            _, tests, classes = load_own(self.test, self.target, test=self.test, **options)
        X = None if self.path is None else load_unlabelled(self.path, self.columns)
        return (X, None), tests, classes


class OutcomeSpec(Section):
    """Section ``[outcome]`` of a configuration: the bins, which all parties have to agree on.

    Attributes:
        edges: of the bins; or ``horizon`` or ``range``, with ``bins``.
        horizon: of survival: bins of equal width from 0 to this time, and one after it.
        range: of values: bins of equal width from the first number to the second.
        bins: how many of equal width, by default 10.
        quantiles: predict these of a number; without them the outcome is survival.
        labels: of a party's own configuration, several labels in place of all this: names of their columns.
    """

    edges: tuple[Number, ...] | None = None
    horizon: Number | None = Field(default=None, gt=0)
    range: tuple[Number, Number] | None = None
    bins: Whole | None = Field(default=None, ge=2, lt=MOST_EDGES)
    quantiles: tuple[Number, ...] | None = None
    labels: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        way = "horizon" if self.quantiles is None else "range"
        given = [name for name in ("edges", "horizon", "range") if getattr(self, name) is not None]
        if self.labels is not None:
            if self.model_fields_set != {"labels"}:
                raise ValueError("several labels have no bins: give labels alone")
        elif given not in (["edges"], [way]):
            raise ValueError(
                f"give edges, or {way} and bins; not {' and '.join(given) or 'neither'}"
            )
        if self.edges is not None and self.bins is not None:
            raise ValueError("edges say how many bins there are: leave bins out")
        self.outcome()
        return self

    def outcome(self) -> Outcome:
        """Make the outcome.

        Raises:
            ValueError: edges or quantiles that cannot be.
        """
        low, high = self.range or (0.0, self.horizon or 0.0)
        equal = np.linspace(low, high, (self.bins or 10) + 1).tolist()
        try:
            if self.labels is not None:
                return MultiLabel(self.labels)
            if self.quantiles is None:
                return Survival(self.edges or equal[1:])
            return Quantiles(self.edges or equal, self.quantiles)
        except InvalidInput as error:
            raise ValueError(f"{error.what}. {error.mend}") from error

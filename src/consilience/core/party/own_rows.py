"""Private rows and test rows of a party: read by the public rows' columns, compared, coded and split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput
from consilience.core.learners import FixedLearner, Learner
from consilience.core.messages.columns import Schema
from consilience.core.messages.schema import Agreement, Public
from consilience.core.metrics.metrics import own_weights
from consilience.core.numerics.outcomes import Classes, Outcome
from consilience.core.party.nearness import PublicComparison
from consilience.core.party.rows import (
    as_test,
    calibration_rows,
    check_like_own,
    checked_inputs,
    checked_rows,
    in_order,
    target_names,
    target_rows,
)
from consilience.core.validation.arrays import Array, check_alike, read_only
from consilience.core.validation.labels import (
    Kind,
    check_aliases,
    check_same_order,
    class_order,
    label_names,
)
from consilience.core.validation.tables import RowSource, is_table, table_reader

MOST_SHARED = 0.25
"""Largest share of a party's own rows that may be excluded because they are also public rows.

A coordinator that could exclude all but a few rows would learn about these.
"""


class OwnRows:
    """Private rows and test rows of a party.

    Args:
        party: name of the party.
        X: private inputs, as for :class:`.Party`.
        y: private labels or values, as for :class:`.Party`.
        test: test rows, as for :class:`.Party`.
        calibration: share of held-out calibration rows, as for :class:`.Party`.
        learner: the untrained learner.
        outcome: coding of the targets, as for :class:`.Party`.

    Attributes:
        X: private inputs, shape ``(n, ...)``, read by the public rows' columns once there are public rows.
        y: labels or values of the private rows; empty if there are none.
        test: test inputs and labels; ``None`` if there are none.
        own: weights of the test rows as own rows, shape ``(n_test,)``.
        kind: ``"classification"`` or ``"regression"``.
        outcome: coding of the targets; ``None`` for classes and values.
        labelled: whether there are labels. A party with a trainable model but without labels is only taught.
        declared: class names declared by the party; empty if they are read from the rows.
        target_names: names of the targets of a regression, if they are a table of several columns.
        table: source of the rows, if their columns have names.
        schema: columns of the rows, if they have names or gaps.
        notes: remarks on the table.
        index: index of a pandas table of private rows, for the alignment of values given for each row.
        comparison: comparison of the rows with public ones; its findings are part of the party's state.
    """

    def __init__(
        self,
        party: str,
        X: Any,
        y: Any,
        *,
        test: Any,
        calibration: float,
        learner: Learner,
        outcome: Outcome | Classes | None,
    ) -> None:
        self._where = where = f"party {party!r}"
        self._calibration = calibration
        self._fixed = learner if isinstance(learner, FixedLearner) else None
        self.kind: Kind = learner.abilities.kind
        named = outcome if isinstance(outcome, Classes) else Classes()
        self.outcome = None if isinstance(outcome, Classes) else outcome
        self.declared, self._aliases = named.names, named.aliases
        tests, wanted, own = (None, None, None) if test is None else as_test(test, where=where)
        for inputs, given in ((X, y), (tests, wanted), (tests, own)):
            check_same_order(inputs, given, where=where)
        self.index = getattr(X, "index", None)
        self.table: RowSource | None = None
        self.schema: Schema | None = None
        self.notes: tuple[str, ...] = ()
        if is_table(X if X is not None else tests):
            self.table = table_reader().row_source(X, tests, where=where)
        X, tests = self._numbers(X, tests)
        self.labelled = y is not None
        several = self.outcome is None and self.kind == "regression"
        self.target_names = target_names(y, where=where) if several else ()
        self.X, self.y = self._private(X, y)
        self._check_labels(y)
        self.test: tuple[Array, Array] | None = None
        if test is not None:
            wanted = in_order(wanted, self.target_names, where=f"{where}, test data")
            self.test = self._checked(tests, wanted, "test data")
            self.X = self.test[0][:0] if X is None else self.X
            check_like_own(self.test, self.X, self.targets, where=where)
        known = () if self.outcome is not None else self._classes_held
        self.own = own_weights(
            own, self.y[:0] if self.test is None else self.test[1], known, where=where
        )
        self.comparison = self._compared()
        if undeclared := set(self._classes_held) - set(self.declared or self._classes_held):
            raise InvalidInput(
                f"its rows have a class that is not declared, {min(undeclared)!r}", where=where
            )

    def _numbers(self, X: Any, tests: Any) -> tuple[Any, Any]:
        """Read a table by the schema inferred from its own rows, or its single column of texts."""
        if self.table is None:
            where = self._where
            return (
                table_reader().texts(X, where=where) if is_table(X) else X,
                table_reader().texts(tests, where=where) if is_table(tests) else tests,
            )
        own, read_tests = self.table.rows()
        self.schema, self.notes = own.schema, own.notes
        return (
            None if self.table.tested_alone else own.X,
            tests if read_tests is None else read_tests,
        )

    def _private(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Check private inputs and targets; missing ones become empty arrays."""
        if y is not None:
            return self._checked(X, y, "private data")
        inputs = (
            np.zeros(0) if X is None else checked_inputs(X, where=f"{self._where}, private data")
        )
        return inputs, np.zeros(0, dtype=np.str_ if self.kind == "classification" else np.float64)

    def _checked(self, X: Any, y: Any, what: str) -> tuple[Array, Array]:
        """Check that inputs and targets fit, and make them read-only; ``what`` names them in errors."""
        where = f"{self._where}, {what}"
        return checked_rows(X, y, self.kind, self._aliases, where=where, outcome=self.outcome)

    def _check_labels(self, y: Any) -> None:
        """Raise ``InvalidInput`` if the outcomes cannot be learned from, or if an alias matches no label."""
        where = f"{self._where}, private data"
        if self.outcome is not None:
            if self.labelled:
                self.outcome.check_own(self.y, where=where)
            return
        names = y if self._named is None else self._named
        if self.kind == "classification" and names is not None:
            check_aliases(self._aliases, names, where=where)

    # --- classes and targets ----------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes: the declared classes, else those of the private data and of a fixed model."""
        return class_order(self.declared) or self._classes_held

    @property
    def _classes_held(self) -> tuple[str, ...]:
        """Names of the classes in the private data, or of a fixed model; empty for regression."""
        if self.outcome is not None:
            return self.outcome.classes
        known = () if self._named is None else self.names_of_fixed
        return class_order([*self.y.tolist(), *known]) if self.kind == "classification" else ()

    @property
    def _named(self) -> tuple[str, ...] | None:
        """Classes of a fixed model, by its own names; ``None`` for other models."""
        return self._fixed.classes or None if self._fixed is not None else None

    @property
    def names_of_fixed(self) -> list[str]:
        """Classes of a fixed model, by the names that the federation uses; empty for other models."""
        names = label_names(self._named or (), where=self._where, aliases=self._aliases)
        return [str(name) for name in names]

    @property
    def targets(self) -> int:
        """Number of values that the model predicts; 0 for classes, and for a trained model without labels."""
        if self.kind == "classification":
            return 0
        if self._fixed is not None:
            return self._fixed.targets
        return self.y.shape[1] if self.labelled else 0

    @property
    def target_key(self) -> str:
        """Digest of :attr:`target_names`, in order; empty if there are none."""
        if not self.target_names:
            return ""
        return hashlib.sha256(json.dumps(self.target_names).encode()).hexdigest()[:8]

    def label_columns(self, agreement: Agreement) -> dict[str, int] | None:
        """Map each class, by the federation's name and by the alias, to its column; ``None`` for values."""
        if not agreement.classes:
            return None
        columns = {name: place for place, name in enumerate(agreement.classes)}
        own = label_names(list(self._aliases), where=self._where).tolist()
        named = label_names(list(self._aliases.values()), where=self._where).tolist()
        both = zip(own, named, strict=True)
        return columns | {label: columns[name] for label, name in both if name in columns}

    def coded(self, y: Array, known: Array, agreement: Agreement) -> Array:
        """Code targets as rows of outputs: one-hot in the agreed class order, or values.

        Args:
            y: class names, shape ``(n,)``, values ``(n, n_targets)``, or targets of an outcome.
            known: for an outcome, the targets from which unknown parts of ``y`` are estimated.
            agreement: agreement of the federation.

        Returns:
            Shape ``(n, n_outputs)``.

        Raises:
            InvalidInput: a label is missing from the agreed classes.
        """
        if self.outcome is not None:
            empty = np.zeros((0, agreement.outputs))
            return self.outcome.targets(y, own=known) if len(y) else empty
        return target_rows(y, agreement, where=self._where)

    def held_out(self, y: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Mark the calibration rows: the same share of each class, so that no class is lost."""
        if self.outcome is not None and len(y):
            y = self.outcome.strata(y)
        return calibration_rows(y, self._calibration, self.kind, rng)

    @property
    def calibrated(self) -> bool:
        """Whether a share of the rows is held out."""
        return self._calibration > 0

    def split(
        self,
        apart: NDArray[np.bool_],
        agreement: Agreement,
        rng: Callable[[], np.random.Generator],
    ) -> tuple[Array, Array, NDArray[np.bool_], int]:
        """Exclude rows from training, and mark the calibration rows among the remaining ones.

        Args:
            apart: mark of the private rows that may be trained on, shape ``(n,)``.
            agreement: agreement of the federation.
            rng: makes the generator that draws the calibration rows, in the same state on each call.

        Returns:
            Inputs and labels of the remaining rows, the mark of their calibration rows, and the number of
            training rows before the exclusion.
        """
        if not self.labelled and self.kind == "regression":
            self.y = np.zeros((0, agreement.outputs))
        train_rows = int((~self.held_out(self.y, rng())).sum())
        X, y = (self.X if apart.all() else self.X[apart]), self.y
        if self.labelled and not apart.all():
            y = self.y[apart]
        return X, y, self.held_out(y, rng()), train_rows

    # --- beside public rows -----------------------------------------------------------------------

    def form(self, secret: bytes) -> str:
        """Describe one input: ``"text"``, or its shape, for a table with a digest of the columns.

        Args:
            secret: enters the digest of columns with categories or gaps, so that others cannot guess values
                of the table from it.

        Returns:
            The description; ``"any"`` for a party without private rows.
        """
        if not len(self.X):
            return "any"
        if self.X.dtype.kind in "UO":
            return "text"
        shape, schema = str(self.X.shape[1:]), self.schema
        if self.table is None or schema is None:
            return shape
        told = json.dumps(schema.names) if schema.plain else f"{secret.hex()}{schema.key}"
        return f"{shape} with columns {hashlib.sha256(told.encode()).hexdigest()[:8]}"

    @property
    def has_gaps(self) -> bool:
        """Whether a number of the private rows or the test rows is missing."""
        both = (self.X,) if self.test is None else (self.X, self.test[0])
        return any(bool(np.isnan(rows).any()) for rows in both if rows.dtype.kind == "f")

    @property
    def outputs_held(self) -> int:
        """Number of rows of outputs that private and test rows need, for targets and answers."""
        return 2 * len(self.X) + (0 if self.test is None else 2 * len(self.test[0]))

    def _compared(self) -> PublicComparison:
        tests = self.X[:0] if self.test is None else self.test[0]
        return PublicComparison(self.X, tests, self.schema)

    def read_by(self, public: Public, *, discreet: bool, redact: bool) -> Public:
        """Read the rows by the columns of public rows.

        Args:
            public: the public rows.
            discreet: whether the party has a privacy budget. The check then compares only the form of the
                rows, because a check of their scale would reveal information about them.
            redact: remove private values from errors.

        Returns:
            The public rows, without columns that the party lacks.

        Raises:
            InvalidInput: the public rows have other columns, or their values differ too much from the private
                rows.
        """
        before = self.schema
        if len(public) and public.schema is not None and self.table is not None:
            public = self._read_table(self.table, public, public.schema, redact=redact)
        elif len(public) and public.schema is None and before is not None and not before.plain:
            raise InvalidInput(
                "its columns have names or gaps, and those of the public rows have no names",
                where=self._where,
                mend="Give the public rows as a table too.",
            )
        if len(public) or public.schema is not None:
            self.schema = public.schema
            if self.schema is None and self.has_gaps:
                self.schema = Schema.of_numbers(public.X)
        if not len(self.X) and self.test is None:
            self.X = public.X[:0]
        if self.schema != before or self.table is not None:
            found, self.comparison = self.comparison.found, self._compared()
            self.comparison.recall(found)
        if len(public) and len(self.X):
            texts = "UO"
            formed = self.X.shape[1:] == public.X.shape[1:]
            formed &= (self.X.dtype.kind in texts) == (public.X.dtype.kind in texts)
            if not formed or not discreet:
                _check_like(self.X, public.X, self.schema, where=self._where, discreet=redact)
        return public

    def _read_table(
        self, table: RowSource, public: Public, schema: Schema, *, redact: bool
    ) -> Public:
        """Read a table by the schema of public rows; return these, without columns that the table lacks."""
        precision = public.X.dtype if public.X.dtype.kind == "f" else np.dtype(np.float64)
        rows, tests = table.rows_by(schema, precision, discreet=redact)
        if rows.absent:
            public = public.only(rows.kept)
        own = slice(0 if table.tested_alone else None)
        self.X = read_only(rows.X[own][:, rows.kept])
        self.notes = rows.notes + (table.remarks(self.y) if len(self.y) else ())
        if self.test is not None and tests is not None:
            self.test = read_only(tests), self.test[1]
        return public

    def private_apart(self, public: Public, *, discreet: bool) -> NDArray[np.bool_]:
        """Mark the private rows that differ from every public row, shape ``(n,)``.

        Args:
            public: the public rows.
            discreet: whether the party has a privacy budget; the size of the overlap then raises no error.

        Returns:
            Shape ``(n,)``, bool.

        Raises:
            InvalidInput: too many private rows are public rows too.
        """
        if not len(public) or not len(self.X):
            return np.ones(len(self.X), dtype=bool)
        apart = ~self.comparison.private_among(public)
        if not discreet and apart.mean() < 1 - MOST_SHARED:
            raise InvalidInput(
                f"more than {MOST_SHARED:.0%} of its rows are among the public rows",
                where=self._where,
                mend="Take public rows of others; or let the party's engineer set limits.overlap = true.",
            )
        return apart

    def tests_apart(self, public: Public) -> tuple[Array, Array, Array]:
        """Select the test rows that differ from every public row.

        Args:
            public: the public rows.

        Returns:
            Their inputs, shape ``(n, ...)``, their labels or values, and their weights as own rows, shape
            ``(n,)``.

        Raises:
            InvalidInput: all of them are public rows.
        """
        assert self.test is not None
        apart = ~self.comparison.tests_among(public)
        if not apart.any():
            raise InvalidInput("all its test rows are among the public rows", where=self._where)
        return self.test[0][apart], self.test[1][apart], self.own[apart]


def _check_like(
    X: Array, public: Array, schema: Schema | None, *, where: str, discreet: bool
) -> None:
    """Raise ``InvalidInput`` unless private rows look like the public ones: type, shape and scale.

    Args:
        X: private rows.
        public: the public rows.
        schema: their columns; ``None`` for rows without names and gaps.
        where: the party, for the error.
        discreet: remove private values from the error.
    """
    names = list[str]()
    if schema is not None and X.shape[1:] == public.shape[1:] and X.dtype.kind not in "UO":
        schema.check(X, where=where)
        X, public = schema.levels(X), schema.levels(public)
        names = [column.name for column in schema.columns if column.kind == "number"]
        if not names:
            return
    check_alike(X, public, where=where, discreet=discreet, names=names)

"""Several labels per row, each with a separate probability, on one simplex (multi-label classification).

L labels make 2 L + 1 classes: "has it" and "has it not" of every label, and one for "not known". Draw a label
at random, each with probability 1/L, and take its true class: this defines a distribution over the classes,
and every label has the share 1/L of it. Therefore a mean over parties is the mean of each label's
probability over the parties with a known value of it, and a rule that weighs rows or classes weighs those of
each label. Aggregators, compression and privacy of classes work for labels without a change.

>>> two = MultiLabel(["cough", "fever"])
>>> two.classes
('1: cough', '2: not cough', '3: fever', '4: not fever', '5: not known')
>>> y = two.read([[1, 0], [0, None]], where="rows")
>>> two.targets(y, own=y).tolist()
[[0.5, 0.0, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.0, 0.5]]
>>> two.answers(np.array([[0.1, 0.1, 0.2, 0.0, 0.6]])).tolist()
[[0.5, 1.0]]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, nearest, odd_name
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.metrics.base import Metric
from consilience.core.metrics.ranking import area_under_curve, average_precision
from consilience.core.numerics.losses import LEAST_LIKELIHOOD
from consilience.core.numerics.outcomes import Outcome
from consilience.core.validation.arrays import Array, read_only, unmasked
from consilience.core.validation.labels import is_gap
from consilience.core.validation.tables import is_table
from consilience.tables.columns import truth_of
from consilience.tables.outcomes.per_label import PerLabel, known_pairs, pairs_of
from consilience.tables.table import Table

MOST_LABELS = 200
"""Most labels of a row."""


HAMMING_LOSS = Metric("hamming_loss", None, label="Hamming loss", larger_is_better=False, main=True)
MACRO_AUC = Metric("macro_auc", None, label="macro AUC")
MACRO_AVERAGE_PRECISION = Metric("macro_average_precision", None, printed=False)
SUBSET_ACCURACY = Metric("subset_accuracy", None, printed=False)


class MultiLabel(Outcome):
    """Labels that a row has or has not, in any number; a gap means that a label is unknown.

    Metrics are ``hamming_loss``, the share of a row's known labels with a wrong prediction, at probability
    0.5; ``log_loss``, the mean over these of the two-class log loss in nats;
    ``subset_accuracy``, the share of rows whose known labels are all predicted rightly; ``macro_auc`` and
    ``macro_average_precision``, the means over the labels that some rows have and others have not.

    Args:
        labels: their names, one or more.
    """

    several = True
    metrics = (
        "hamming_loss",
        "log_loss",
        "macro_auc",
        "macro_average_precision",
        "subset_accuracy",
    )

    def __init__(self, labels: Sequence[str]) -> None:
        names = [str(label) for label in labels]
        odd = [why for name in names if (why := odd_name(name) or ("" if name else "it is empty"))]
        if odd or not 1 <= len(set(names)) == len(names) <= MOST_LABELS:
            raise InvalidInput(
                f"labels are {names[:5]}" + (f": {odd[0]}" if odd else ""),
                where="labels",
                mend=f"Give 1 to {MOST_LABELS} different names.",
            )
        self.edges = np.zeros(0)
        self.columns = tuple(names)
        sides = [side for name in names for side in (name, f"not {name}")] + ["not known"]
        width = len(str(len(sides)))
        self.classes = tuple(f"{i:0{width}d}: {side}" for i, side in enumerate(sides, start=1))

    def suited(self, learner: Any) -> Any:
        """Give a model for each label in place of one; a network is one for all labels as it is."""
        suited = super().suited(learner)
        return PerLabel(suited) if isinstance(suited, SklearnLearner) else suited

    @classmethod
    def said(cls, said: Mapping[str, Any]) -> MultiLabel | None:
        """Make the outcome from its parsed key; return ``None`` for another outcome's key."""
        return cls(said["labels"]) if "labels" in said else None

    @property
    def key(self) -> str:
        """Return a text that describes the outcome, identical at all parties."""
        return json.dumps({"labels": list(self.columns)})

    def read(self, y: Any, *, where: str) -> Array:
        """Read labels, shape ``(n, L)``: 1, 0, and NaN for an unknown label.

        Args:
            y: a table with a column a label, in which a missing column means that the label is unknown; or
                rows in the order of the labels. Truth values, numbers and words (yes, no, true, false) will
                do.
            where: the party and the table, for errors.

        Returns:
            The labels, read-only.

        Raises:
            InvalidInput: other columns or values, or a row without a known label.
        """
        if is_table(y):
            given = Table.of(y, where=where).columns
            if strange := [name for name in given if name not in self.columns]:
                raise InvalidInput(
                    f"there is no label {strange[0]!r}",
                    where=where,
                    mend=nearest(strange[0], self.columns),
                )
            gap = np.full(len(next(iter(given.values()), ())), None, dtype=object)
            columns = [given.get(name, gap) for name in self.columns]
        else:
            table = np.asarray(unmasked(y), dtype=object)
            if table.ndim != 2 or table.shape[1] != len(self.columns):
                raise InvalidInput(
                    f"targets have shape {table.shape}",
                    where=where,
                    mend=f"Give a column for each of the {len(self.columns)} labels.",
                )
            columns = list(table.T)
        pairs = zip(self.columns, columns, strict=True)
        found = np.column_stack([_truths(values, name, where) for name, values in pairs])
        if blank := int(np.isnan(found).all(axis=1).sum()):
            raise InvalidInput(
                f"of {blank:,} of {len(found):,} rows no label is known",
                where=where,
                mend="Drop these rows, or make them public ones.",
            )
        return read_only(found)

    def check_own(self, y: Array, *, where: str) -> None:
        if not any(len(set(column[~np.isnan(column)])) > 1 for column in y.T):
            raise InvalidInput(
                "no label is known of it both ways, so that nothing can be learned",
                where=where,
                mend="Give it rows that have a label and rows that have not.",
            )

    def targets(self, y: Array, *, own: Array) -> Array:
        return self.coded(y)

    def coded(self, probabilities: Any) -> Array:
        """Code a probability a label, ``(n, L)``, NaN if unknown, as a distribution ``(n, 2 L + 1)``.

        >>> MultiLabel(["a"]).coded([[0.25]]).tolist()
        [[0.25, 0.75, 0.0]]
        """
        has = np.asarray(probabilities, dtype=np.float64)
        sides = np.nan_to_num(np.stack([has, 1 - has], axis=2)).reshape(len(has), -1)
        return np.column_stack([sides, np.isnan(has).sum(axis=1)]) / len(self.columns)

    def strata(self, y: Array) -> Array:
        """Name the rarest label that each row has, ``""`` for none, shape ``(n,)``."""
        return np.asarray(np.array(["", *self.columns])[rarest(y) + 1])

    def answers(self, outputs: Array) -> Array:
        """Return the probability of every label, shape ``(n, L)``; 0.5 if the outputs give it no mass."""
        sides = pairs_of(outputs)
        total = sides.sum(axis=2)
        half = np.full(total.shape, 0.5)
        return np.asarray(np.divide(sides[:, :, 0], total, out=half, where=total > 0))

    def row_losses(self, outputs: Array, targets: Array, y: Array | None = None) -> Array:
        """Compute the mean log loss of each row's known labels, shape ``(n,)``.

        Args:
            outputs: probabilities of the classes, shape ``(n, 2 L + 1)``.
            targets: the same of targets, or of a teacher.
            y: not used.
        """
        said = np.clip(self.answers(outputs), LEAST_LIKELIHOOD, 1 - LEAST_LIKELIHOOD)
        sides, known = known_pairs(targets)
        loss = -(sides * np.log(np.stack([said, 1 - said], axis=2))).sum(axis=2) * known
        return np.asarray(loss.sum(axis=1) / np.maximum(known.sum(axis=1), 1))

    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        known = ~np.isnan(y)
        wrong = ((self.answers(outputs) >= 0.5) != (y == 1)) & known
        return {
            "hamming_loss": wrong.sum(axis=1) / known.sum(axis=1),
            "subset_accuracy": (~wrong.any(axis=1)).astype(np.float64),
        }

    def further(self, outputs: Array, y: Array, weights: Array) -> dict[str, float]:
        said, areas, precisions = self.answers(outputs), [], []
        for label, column in enumerate(y.T):
            counted = ~np.isnan(column) & (weights > 0)
            positive = column[counted] == 1
            if positive.any() and not positive.all():
                given = said[counted, label], positive, weights[counted]
                areas.append(area_under_curve(*given))
                precisions.append(average_precision(*given))
        if not areas:
            return {}
        return {
            "macro_auc": float(np.mean(areas)),
            "macro_average_precision": float(np.mean(precisions)),
        }


def rarest(y: Array) -> Array:
    """Find the rarest label that each row has, shape ``(n,)``: its place, -1 for none.

    Args:
        y: labels, shape ``(n, L)``, 1 or 0, NaN where not known.
    """
    has = y == 1
    order = np.argsort(has.sum(axis=0), kind="stable")
    return np.where(has.any(axis=1), order[has[:, order].argmax(axis=1)], -1)


def _truths(values: Array, name: str, where: str) -> Array:
    """Numbers 1 and 0 of a column, NaN for gaps."""
    said = [None if one != one else one for one in values.tolist()]  # each NaN is another key
    known = {one: _truth(one) for one in dict.fromkeys(said)}
    if bad := [one for one, truth in known.items() if truth is None]:
        raise InvalidInput(
            f"label {name!r} is {bad[0]!r}",
            where=where,
            mend="Write 1 where a row has it and 0 where it has not; yes and no, true and false do too.",
        )
    return np.array([known[one] for one in said], dtype=np.float64)


def _truth(value: Any) -> float | None:
    """Return 1 or 0 for a truth value, NaN for a gap, and ``None`` for any other value."""
    if is_gap(value):
        return float("nan")
    truth = truth_of(f"{value:g}" if isinstance(value, float | np.floating) else str(value))
    return None if truth is None else float(truth)

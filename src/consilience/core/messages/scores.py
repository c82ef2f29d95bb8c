"""Scores: replies that an aggregator may need with predictions, such as how typical a public row looks.

A new score consists of a class here, the function of :mod:`consilience.core.party.row_scores` that computes
it, a task in :mod:`consilience.core.tasks.scores` with the class as ``reply_type``, and the aggregator that
needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.base import (
    Form,
    PrivacyCost,
    Reply,
    check_array,
    check_count,
    check_finite,
    check_same,
)
from consilience.core.messages.message import message
from consilience.core.messages.schema import LARGEST, MOST_ROWS, Agreement, TaskLike
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.printing import prints_no_rows


class Score(Reply):
    """Base of replies that an aggregator may need with predictions; the aggregator reads their ``values``.

    The task that requests a score is the one with the score's class as ``reply_type``
    (:func:`consilience.core.tasks.scores.score_task`).
    """


@prints_no_rows
@dataclass(frozen=True, eq=False, kw_only=True)
class PublicScores(Score):
    """Base of scores of every public row, one number a row, or one a row and class.

    A subclass states how its values look::

        @message
        class Surprise(PublicScores, privacy="unbudgeted", at_least=0.0): ...

    Attributes:
        public: digest of the public data.
        values: shape ``(n_public,)``, or ``(n_public, n_classes)`` where ``per_class``.
        absent: whether the party has no rows to compute them of; they are 0 then, and an aggregator takes the
            mean of the others' in their place.
        precision: data type of the values.
        per_class: whether there is a number for each class.
        above: exclusive lower bound of the values.
        at_least: inclusive lower bound.
        at_most: inclusive upper bound.
    """

    public: str
    values: Array
    absent: bool = False
    precision: ClassVar[type[np.generic]] = np.float32
    per_class: ClassVar[bool] = False
    above: ClassVar[float] = -math.inf
    at_least: ClassVar[float] = -math.inf
    at_most: ClassVar[float] = math.inf

    def __init_subclass__(
        cls,
        *,
        privacy: PrivacyCost | None = None,
        lossy: Mapping[str, Form] | None = None,
        precision: type[np.generic] = np.float32,
        per_class: bool = False,
        above: float = -math.inf,
        at_least: float = -math.inf,
        at_most: float = math.inf,
    ) -> None:
        cls.precision, cls.per_class = precision, per_class
        cls.above, cls.at_least, cls.at_most = above, at_least, at_most
        super().__init_subclass__(privacy=privacy, lossy=lossy)

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is a number for each public row, within its bounds."""
        assert agreement is not None
        check_same("public data", self.public, agreement.public, where=self.party)
        columns, precision = self.form(agreement.kind, agreement.outputs)
        check_array(self.values, (agreement.rows, *columns), precision, where=self.party)
        check_finite(self.values, where=self.party)
        if self.absent:
            check_same("scores of a party without rows", self.values.any(), False, where=self.party)
            return
        low, high = self.bounds(task)
        if not self.values.size:
            return
        least, most = self.values.min(), self.values.max()
        if not (low <= least and self.above < least and most <= high):
            wanted = f"{low:g} to {high:g}"
            if self.above > low:
                wanted = f"more than {self.above:g} and at most {high:g}"
            raise KnowledgeRefused(
                f"{type(self).__name__} from {least:g} to {most:g}, where {wanted} can be",
                where=self.party,
            )

    @classmethod
    def form(cls, kind: Kind, outputs: int) -> tuple[tuple[int, ...], type[np.generic]]:
        """Give the shape of one row's scores, and the data type of all.

        Args:
            kind: of the parties, ``"classification"`` or ``"regression"``.
            outputs: number of classes, or of targets.
        """
        return ((outputs,) if cls.per_class else ()), cls.precision

    def bounds(self, task: TaskLike) -> tuple[float, float]:
        """Give the least and the largest value that there can be in reply to a task."""
        return self.at_least, self.at_most


@message
class LogDensities(PublicScores, privacy="unbudgeted", lossy={"values": "scores"}):
    """Log-densities of the public rows as a party sees them, natural logarithms, shape ``(n_public,)``.

    Attributes:
        notes: warnings for the ledger.
    """

    notes: tuple[str, ...] = ()


@prints_no_rows
@dataclass(frozen=True, eq=False, kw_only=True)
class ClassRatios(PublicScores, per_class=True):
    """Base of density ratios: how much denser a party's rows of each class lie than the public ones.

    Attributes:
        classes: the column order.
    """

    classes: tuple[str, ...]

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are one number for each public row and class."""
        assert agreement is not None
        check_same("classes", self.classes, agreement.classes, where=self.party)
        super().check(task, agreement)


def exact_bounds(task: TaskLike) -> tuple[float, float]:
    """Give the least and the largest exact ratio that there can be with the ridge of a task.

    With ``n`` rows none is beyond ``n / (2 sqrt(ridge))``, of either sign: the ratios are ``K^½ (K + ridge
    I)⁻¹ s`` with ``|s| ≤ n`` and the eigenvalues of K at least 0.
    """
    reach = MOST_ROWS / (2 * math.sqrt(getattr(task, "ridge", 0.25)))
    return -reach, reach


@message
class DensityRatios(ClassRatios, privacy="unbudgeted", per_class=True):
    """Density ratios at each public row, exactly: shape ``(n_public, n_classes)``, float32.

    Each estimates how many of the party's rows of the class come on one public row there
    (:class:`consilience.core.numerics.density.PublicRatio`); below 0 where it overshoots. A logistic
    regression's are from 0 to the number of rows.
    """

    def bounds(self, task: TaskLike) -> tuple[float, float]:
        """Give the least and the largest ratio that there can be with the ridge of a task."""
        if getattr(task, "estimator", "kernel") == "logistic":
            return 0, MOST_ROWS
        return exact_bounds(task)


@message
class CoarseRatios(
    ClassRatios, privacy="unbudgeted", per_class=True, at_least=0, at_most=MOST_ROWS
):
    """Density ratios by round counts, in a party's settings (:func:`.density.coarse_ratios`).

    Shape ``(n_public, n_classes)``, float32, from 0 to the party's rows of the class.
    """


@message
class RowCount(Score, privacy="unbudgeted"):
    """Number of private rows that a party trains on; ``absent`` as of :class:`PublicScores`, 1 then."""

    rows: int
    absent: bool = False

    @property
    def values(self) -> int:
        """The count, as aggregators stack it."""
        return self.rows

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless it is a count that a party can have."""
        check_count(self.rows, where=self.party)


# --- scores that the rule ``auto`` chooses by ---------------------------------------------------------


@message
class InputRatios(PublicScores, privacy="unbudgeted"):
    """Density ratios like :class:`DensityRatios`, of all rows together: shape ``(n_public,)``, float32."""

    def bounds(self, task: TaskLike) -> tuple[float, float]:
        """Give the least and the largest ratio that there can be with the ridge of a task."""
        return exact_bounds(task)


@message
class CalibrationSums(PublicScores, privacy="unbudgeted", precision=np.float64):
    """Sums over the calibration rows that each public row is the nearest public row of.

    Shape ``(n_public, n_classes)``, how many of each class; for values ``(n_public, 1 + n_outputs)``, how
    many, and the sum of each target.

    Attributes:
        notes: warnings for the ledger.
    """

    notes: tuple[str, ...] = ()

    @classmethod
    def form(cls, kind: Kind, outputs: int) -> tuple[tuple[int, ...], type[np.generic]]:
        """Give the shape of one row's sums, and the data type of all."""
        return (outputs + (kind == "regression"),), cls.precision

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are sums that there can be, counts 0 or more."""
        super().check(task, agreement)
        assert agreement is not None
        counts = self.values[:, :1] if agreement.kind == "regression" else self.values
        if counts.size and not 0 <= counts.min() <= counts.max() <= MOST_ROWS:
            raise KnowledgeRefused("counts of rows that there cannot be", where=self.party)

    def bounds(self, task: TaskLike) -> tuple[float, float]:
        """Give the least and the largest sum that there can be."""
        return -LARGEST, LARGEST

"""Limits of a party on what leaves it of its rows, by a number."""

from __future__ import annotations

import math

from pydantic import Field

from consilience.errors import KnowledgeRefused
from consilience.tasks.base import Task
from consilience.transforms.accounting import Adjacency
from consilience.transforms.privacy import Budget
from consilience.validation.sections import Number, Section


class PrivacyLimits(Section):
    """Limits of privacy.

    Attributes:
        epsilon: ε of all that leaves the party in all its life, of whatever federation, seed and public rows:
            class sums (:class:`~consilience.tasks.class_sums.SumClasses`) and certainties
            (:class:`~consilience.tasks.scores.ScoreCertainty`) with noise. Whatever has no stated cost does
            not leave then: predictions, scores, counts, metrics, notes. ``None`` for no limit, and no
            guarantee.
        delta: δ of it, below one in ten of the number of units.
        epsilon_each: ε of one release of class sums; by default all of ``epsilon``, so that there is one.
        adjacency: what ``epsilon`` hides: that a unit is there, or what it is (``"replace"``).
        unit: ``"row"``, or the column of its file whose values are units, such as patients.
    """

    epsilon: Number | None = Field(default=None, gt=0, lt=math.inf)
    delta: Number = Field(default=1e-5, gt=0, lt=1)
    epsilon_each: Number | None = Field(default=None, gt=0, lt=math.inf)
    adjacency: Adjacency = "add-remove"
    unit: str = "row"

    @property
    def budget(self) -> Budget | None:
        """The budget of privacy, if there is one."""
        if self.epsilon is None:
            return None
        return Budget(self.epsilon, self.delta, self.adjacency, self.unit, self.epsilon_each)

    def refuse_costless(self, task: type[Task]) -> None:
        """Raise ``KnowledgeRefused`` if a reply has no stated cost, and there is a budget."""
        if not self.affords(task):
            raise KnowledgeRefused(
                f"limits.epsilon: {task.reply_type.__name__} states no privacy cost, and it has a budget",
                mend="Run the protocol private_sums; or the party's engineer takes epsilon off.",
                code="budget",
            )

    def affords(self, task: type[Task]) -> bool:
        """Return true if what a task asks for has a stated cost, or there is no budget."""
        cost = getattr(task.reply_type, "privacy_cost", None)
        return self.epsilon is None or cost in ("nothing", "charged")

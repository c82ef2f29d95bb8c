"""Limits of a party on what leaves it of its rows, by a number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from consilience.errors import KnowledgeRefused, RunFailed
from consilience.site.audit import AUDIT, read_log
from consilience.tasks.base import Task, task_types
from consilience.transforms.accounting import Adjacency
from consilience.transforms.privacy import Accountant, Budget
from consilience.transforms.privacy_ledger import BEGINNING, FOLDER, Release, entries
from consilience.validation.sections import Number, Section


def spending(state: Path, limits: PrivacyLimits, *, after: str | None = None) -> dict[str, Any]:
    """Say what a party has spent of its budget of privacy, and by what; nobody needs to stop it for that.

    Args:
        state: the folder of its state.
        limits: its limits.
        after: digest of a line that has to be in the ledger, as it was once shown.

    Raises:
        RunFailed: the ledger was changed, or lacks that line: it was cut or set back.
    """
    lines = entries(state / FOLDER)
    if after is not None and after not in {BEGINNING, *(line["sha256"] for line in lines)}:
        raise RunFailed(
            "its privacy ledger lacks the line of that digest: it was cut or set back",
            where=str(state / FOLDER),
            mend="Restore the party's folder from its latest copy.",
        )
    accountant = Accountant()
    budget = accountant.budget = limits.budget
    releases = [Release.of_line(line) for line in lines]
    accountant.restore({one.to_json(): np.zeros(0) for one in releases})
    spent = accountant.spent
    limit = "none"
    if budget is not None:
        limit = f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, {budget.adjacency} of one {budget.unit}"
    return {
        "limit": limit,
        "spent": f"epsilon {spent.epsilon(limits.delta):.4g}, {spent.adjacency} of one {spent.unit}",
        "releases": [
            {"time": line["time"], "kind": one.kind, "epsilon": one.loss.epsilon(limits.delta)}
            for line, one in zip(lines, releases, strict=True)
        ],
        "answers_without_budget": _bare(state / AUDIT),
        "last_line": lines[-1]["sha256"] if lines else BEGINNING,
    }


def _bare(log: Path) -> int:
    """Count the answers of an audit log that no budget lets out: the guarantee does not speak of them."""
    known, budgeted = task_types(), PrivacyLimits(epsilon=1)
    return sum(
        any(name not in known or not budgeted.affords(known[name]) for name in names)
        for entry in (read_log(log).entries if log.exists() else ())
        if entry.get("status") in ("ok", "repeated") and (names := str(entry["tasks"]).split("+"))
    )


class PrivacyLimits(Section):
    """Limits of privacy.

    Attributes:
        epsilon: ε of all that leaves the party from then on, of whatever federation, seed and public
            rows: class sums (:class:`~consilience.tasks.class_sums.SumClasses`) and certainties
            (:class:`~consilience.tasks.scores.ScoreCertainty`) with noise. Whatever has no stated cost does
            not leave then: predictions, scores, counts, metrics, notes. ``None`` for no limit, and no
            guarantee.
        delta: δ of it, at most 1 / (10 n) for n units.
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

"""Limits of a party on differential privacy: its budget, and the replies that may use it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open

from consilience.core.errors import KnowledgeRefused, RunFailed
from consilience.core.messages.replies import Predictions
from consilience.core.party.state import read_about
from consilience.core.tasks.base import Task, task_types
from consilience.lab.config.sections import Number, Section
from consilience.privacy.accounting.budget import Budget, Noise
from consilience.privacy.accounting.ledger import BEGINNING, FOLDER, Release, entries, lacks
from consilience.privacy.accounting.losses import Adjacency, NoisyTraining
from consilience.privacy.accounting.privacy_of import RELEASED
from consilience.privacy.accounting.stage import Accountant
from consilience.sites.party.audit import AUDIT, read_log
from consilience.sites.party.state import current_state


def spending(state: Path, limits: PrivacyLimits, *, after: str | None = None) -> dict[str, Any]:
    """Report how much of its privacy budget a party has spent, and on which releases.

    The party can keep running meanwhile.

    Args:
        state: the folder of its state.
        limits: its limits.
        after: digest of a ledger line, from an earlier report, that must still be in the ledger.

    Returns:
        The ledger's folder, the limit, the spent ε, the releases, the answers without a budget, and the
        digest of the last line.

    Raises:
        RunFailed: as :func:`whole_ledger`, or the ledger lacks that line.
    """
    folder = limits.ledger_in(state)
    lines = whole_ledger(state, folder)
    if after is not None and after not in {BEGINNING, *(line["sha256"] for line in lines)}:
        raise RunFailed(
            "its privacy ledger lacks the line of that digest: it was cut or set back",
            where=str(folder),
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
        "ledger": str(folder),
        "limit": limit,
        "spent": f"epsilon {spent.epsilon(limits.delta):.4g}, {spent.adjacency} of one {spent.unit}",
        "releases": [
            {
                "time": line["time"],
                "kind": one.kind + (f", arrival {one.arrival}" if one.arrival else ""),
                "epsilon": one.loss.epsilon(limits.delta),
            }
            for line, one in zip(lines, releases, strict=True)
        ],
        "answers_without_budget": _bare(state / AUDIT),
        "last_line": lines[-1]["sha256"] if lines else BEGINNING,
    }


def whole_ledger(state: Path, ledger: Path) -> list[Mapping[str, Any]]:
    """Read the lines of a party's ledger, and compare them with the releases recorded in the party's state.

    Args:
        state: the folder of its state; the party can keep running.
        ledger: the folder of the ledger (:meth:`PrivacyLimits.ledger_in`).

    Returns:
        The lines, in order.

    Raises:
        RunFailed: the ledger was changed, cut or set back and lacks releases; the state cannot be read; or
            one of them has another format.
    """
    known: set[Release] = set()
    while (folder := current_state(state)) is not None:
        try:
            read_about(folder, whole=state)
            known = _known(folder / RELEASED)
            break
        except (OSError, ValueError, SafetensorError, RunFailed) as error:
            if current_state(state) == folder:  # else it was replaced while it was read
                if isinstance(error, RunFailed):
                    raise
                raise RunFailed(f"its state is damaged: {error}", where=str(folder)) from error
    lines = entries(ledger)  # after the state, whose releases are in the ledger before
    if known - {Release.of_line(line) for line in lines}:
        raise lacks(ledger)
    return lines


def _known(file: Path) -> set[Release]:
    """Read the releases with a privacy loss from a state; the ledger must contain all of them."""
    if not file.parent.exists():
        raise FileNotFoundError(f"there is no {file.parent.name}")
    if not file.exists():
        return set()
    with safe_open(file, "numpy") as arrays:
        found = {Release.from_json(name) for name in arrays.keys()}  # noqa: SIM118
    return {one for one in found if one.loss}


def _bare(log: Path) -> dict[str, int]:
    """Count the answers of an audit log that no budget lets out, by task: outside of every guarantee."""
    known, budgeted = task_types(), PrivacyLimits(epsilon=1)
    found = Counter(
        name
        for entry in (read_log(log).entries if log.exists() else ())
        if entry.get("status") in ("ok", "repeated")
        for name in str(entry["tasks"]).split("+")
        if name not in known or not budgeted.affords(known[name])
    )
    return dict(sorted(found.items()))


_UNSAID = (None, "add-remove", "row", "own")


class PrivacyLimits(Section):
    """Limits on differential privacy.

    Attributes:
        epsilon: total ε of all replies of the party from then on, over all federations, seeds and public
            rows: class sums (:class:`~consilience.privacy.class_sums.tasks.SumClasses`) and certainties
            (:class:`~consilience.privacy.accounting.certainty.ScoreCertainty`) with noise. Replies without
            a stated cost (predictions, scores, counts, metrics, notes) are then refused. ``None`` for no
            limit and no guarantee.
        delta: total δ, at most 1 / (10 n) for n units.
        epsilon_each: ε of one release of class sums; by default all of ``epsilon``, which allows one release.
        adjacency: neighbouring data sets: with or without one unit (``"add-remove"``), or with another value
            of one unit (``"replace"``).
        unit: ``"row"``, or the column of the file whose values identify units, such as patients.
        arrival: column of the file with the number of the arrival of each row, 0 for the first.
        arrivals: number of arrivals so far; rows of later ones are not counted. One more arrival permits the
            release of the sums of its rows; if the unit is a row, this costs the earlier rows no budget.
        training: settings of noisy training of the party's network, as a table; the training is one release,
            after which the network's predictions may be sent.
        noise: noise on class sums: ``"own"``; or ``"shared"``, a part of the noise, which requires secure
            aggregation and a roster of the other parties' keys.
        colluding: with shared noise, the number of parties that may reveal their parts to the coordinator; at
            most 2 t - n - 1 if t of n parties can open a sum.
        subjects: identifier of the people in the rows: the SHA-256 of the party's file at the time when a
            budget was first set, the same in all federations with rows of these people; ``None`` for a
            ledger in the party's folder.
        ledger: folder in which these federations keep their ledgers, each under its ``subjects``.
    """

    epsilon: Number | None = Field(default=None, gt=0, lt=math.inf)
    delta: Number = Field(default=1e-5, gt=0, lt=1)
    epsilon_each: Number | None = Field(default=None, gt=0, lt=math.inf)
    adjacency: Adjacency = "add-remove"
    unit: str = "row"
    arrival: str = ""
    arrivals: int = Field(default=1, ge=1)
    training: NoisyTraining | None = None
    noise: Noise = "own"
    colluding: int = Field(default=1, ge=1)
    subjects: str | None = None
    ledger: Path | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        said = self.epsilon_each, self.adjacency, self.unit, self.noise
        if self.epsilon is None and said != _UNSAID:
            raise ValueError(
                "epsilon_each, adjacency, unit and noise bound nothing without epsilon"
            )
        if (self.epsilon_each or 0) > (self.epsilon or math.inf):
            raise ValueError(f"epsilon_each is {self.epsilon_each:g}, and epsilon {self.epsilon:g}")
        return self

    @model_validator(mode="after")
    def _names_a_ledger(self) -> Self:
        if (self.subjects is None) != (self.ledger is None):
            raise ValueError(
                "subjects and ledger go together: whose rows they are, and the folder of the ledger that all "
                "federations with rows of these people spend from"
            )
        if self.subjects is not None and not re.fullmatch("[0-9a-f]{64}", self.subjects):
            raise ValueError(
                f"subjects is {self.subjects!r}, and no SHA-256: sha256sum FILE prints that of a file"
            )
        return self

    def ledger_in(self, state: Path) -> Path:
        """Folder of the ledger that the party spends from: its own, or that of its subjects.

        Args:
            state: the folder of its state.
        """
        if self.ledger is None or self.subjects is None:
            return state / FOLDER
        return self.ledger / self.subjects

    @property
    def budget(self) -> Budget | None:
        """The budget of privacy, if there is one."""
        if self.epsilon is None:
            return None
        return Budget(
            self.epsilon,
            self.delta,
            self.adjacency,
            self.unit,
            self.epsilon_each,
            arrivals=self.arrivals,
            training=self.training,
            noise=self.noise,
            colluding=self.colluding,
        )

    def refuse_costless(self, task: type[Task]) -> None:
        """Raise ``KnowledgeRefused`` if a reply has no stated cost, and there is a budget."""
        if not self.affords(task):
            raise KnowledgeRefused(
                f"limits.epsilon: {task.reply_type.__name__} states no privacy cost, and it has a budget",
                mend="Run the protocol private_sums; or the party's engineer takes epsilon off.",
                code="budget",
            )

    def affords(self, task: type[Task]) -> bool:
        """Return true if the reply to a task has a stated privacy cost, or if there is no budget."""
        cost = getattr(task.reply_type, "privacy_cost", None)
        trained = self.training is not None and task.reply_type is Predictions
        return self.epsilon is None or trained or cost in ("nothing", "charged")

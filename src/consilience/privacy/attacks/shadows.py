"""Shadow parties: copies of a party with chosen rows, which answer the requests of a recorded run.

A recomputation of the run's rounds records all requests of the coordinator, including the teachers in them.
Each shadow then answers the same requests, up to the last one whose reply depends on private rows. The attack
therefore sees the same kind of replies from a shadow as from the party, under any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.messages.base import PartyMessage
from consilience.core.messages.replies import Failure, Predictions
from consilience.core.messages.schema import Public
from consilience.core.networks import LocalNetwork
from consilience.core.networks.incoming import Arrival
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import Outcome, answer
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.accounting.privacy_of import privacy_of

FEWEST_ROWS = 10
"""Minimum number of matched pairs of a party's row and another row of the same class."""


class Question(NamedTuple):
    """A request to a party in a run, and its replies.

    Attributes:
        tasks: tasks of the request.
        replies: one reply per task; empty if the party failed.
    """

    tasks: tuple[Task, ...]
    replies: tuple[PartyMessage, ...]


@dataclass
class RecordedNetwork(LocalNetwork):
    """Network in this process that records every request to its parties, and their replies.

    Args:
        members: the parties.
        public: the public data.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.questions: dict[str, list[Question]] = {name: [] for name in self.parties}

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        arrival = super()._answer(name, tasks, request)
        self.questions[name].append(Question(tasks, _replies(arrival.outcome)))
        return arrival

    def first(self, party: str, kind: type[Any]) -> Any:
        """Return the first reply of a kind from a party; ``None`` if there is none."""
        replies = (reply for question in self.questions[party] for reply in question.replies)
        return next((reply for reply in replies if isinstance(reply, kind)), None)

    def spent(self, party: str) -> PrivacyLoss:
        """Return the privacy loss of all releases of a party."""
        return privacy_of(self._members[party]).accountant.spent


def _replies(outcome: Outcome) -> tuple[PartyMessage, ...]:
    """Replies of a party; compressed ones as they were before."""
    return () if isinstance(outcome, Failure) else tuple(getattr(outcome, "whole", outcome))


def _telling(reply: PartyMessage) -> bool:
    """Return whether a reply depends on private rows; metrics are ignored, as they only evaluate a run."""
    return reply.privacy_cost not in ("nothing", "measured")


def numbers(replies: Sequence[PartyMessage]) -> list[Array]:
    """List all numbers in replies that depend on private rows, one vector for each field of each reply.

    Probabilities become ``log(p + 0.01)``. Models in bytes are excluded.
    """
    found = []
    for reply in filter(_telling, replies):
        for field in fields(reply):  # type: ignore[arg-type]  # every message is a dataclass
            value = np.asarray(getattr(reply, field.name))
            if field.name == "round" or value.dtype.kind not in "biuf" or value.dtype == np.uint8:
                continue
            vector = np.nan_to_num(value.ravel().astype(np.float64), posinf=1e6, neginf=-1e6)
            if isinstance(reply, Predictions) and reply.kind == "probabilities":
                vector = np.log(np.maximum(vector, 0) + 0.01)
            found.append(vector)
    return found


def on_one_scale(parties: Sequence[Sequence[Array]], *, like: int) -> Array:
    """Concatenate each party's vectors, each divided by its spread among the first ``like`` parties.

    Vectors whose length differs between parties, such as those of trees, are excluded.

    Args:
        parties: vectors of each party, in the form of :func:`numbers`.
        like: number of parties that determine the spread.

    Returns:
        Shape ``(n_parties, n_numbers)``; vectors without variation among the first ``like`` parties are
        excluded.
    """
    blocks = [np.zeros((len(parties), 0))]
    for vectors in zip(*parties, strict=False):
        if len({len(vector) for vector in vectors}) == 1:
            block = np.stack(vectors)
            if block[:like].var(axis=0).any():
                blocks.append(block / np.sqrt(block[:like].var(axis=0).mean()))
    return np.concatenate(blocks, axis=1)


@prints_no_rows
@dataclass(frozen=True)
class AttackedParties:
    """Parties of a recomputed run, and all rows that a party can receive.

    Attributes:
        names: names of the parties.
        rows: positions of each party's rows.
        X: inputs of all rows.
        labels: class names or values of all rows.
        strata: class codes of all rows, shape ``(n_rows,)``; zeros for values.
        by_class: whether the parties predict classes.
        public: the public rows.
        with_rows: creates a party from a name, the positions of its rows, and a privacy budget or ``None``.
    """

    names: tuple[str, ...]
    rows: tuple[Array, ...]
    X: Array
    labels: Array
    strata: Array
    by_class: bool
    public: Public
    with_rows: Callable[[str, Array, Budget | None], PartyView]


@prints_no_rows
@dataclass(frozen=True)
class Candidates:
    """Candidate rows of a membership attack; the attacker has all of this except the membership.

    Attributes:
        rows: positions among all rows, shape ``(n_rows,)``: first rows of the party, then as many other rows
            of the same classes.
        own: number of candidates from the party.
        fixed: positions of the party's remaining rows, which every shadow has.
        aside: positions of the remaining rows outside of all parties.
    """

    rows: Array
    own: int
    fixed: Array
    aside: Array

    @classmethod
    def of(
        cls, setup: AttackedParties, party: str, n: int, most: int, rng: np.random.Generator
    ) -> Candidates:
        """Draw rows of a party, and as many rows of each class from outside of all parties.

        Args:
            setup: the parties and all rows; rows from position ``n`` on belong to no party.
            party: name of the party.
            n: number of rows that may belong to parties.
            most: maximum number of candidates, from inside and outside of the party together.
            rng: random generator of the draw.

        Raises:
            InvalidInput: there are fewer than :data:`FEWEST_ROWS` pairs of the same class.
        """
        strata, own = setup.strata, setup.rows[setup.names.index(party)]
        others, pairs = np.arange(n, len(strata)), np.zeros((0, 2), dtype=np.int64)
        for kind in np.unique(strata[own]):
            alike = [rng.permutation(rows[strata[rows] == kind]) for rows in (own, others)]
            count = min(map(len, alike))
            pairs = np.concatenate([pairs, np.stack([rows[:count] for rows in alike], axis=1)])
        if len(pairs) < FEWEST_ROWS:
            raise InvalidInput(
                f"{len(pairs)} rows of the hold-out are like those of party {party!r} in class, and "
                f"{FEWEST_ROWS} are needed",
                where="--holdout",
                mend="Name a file with more rows of its classes.",
            )
        mine, theirs = pairs[rng.permutation(len(pairs))[: most // 2]].T
        rows = np.concatenate([mine, theirs])
        return cls(rows, len(mine), np.setdiff1d(own, mine), np.setdiff1d(others, theirs))


class Answers(NamedTuple):
    """Answers of the shadows, followed by those of the run's party.

    Attributes:
        members: membership of each candidate, shape ``(n_parties, n_rows)``.
        numbers: vectors of each party's replies.
        rows: probability of each candidate's class at each model, shape ``(n_parties, n_rows)``; empty if
            models are not queried on rows.
        others: the same for rows other than candidates, shape ``(n_parties, n_others)``.
    """

    members: Array
    numbers: list[list[Array]]
    rows: Array
    others: Array


@dataclass(frozen=True)
class Shadows:
    """Copies of a party of a run, with rows of the attacker's choice.

    Args:
        setup: parties of the run; its rows include the candidates.
        party: name of the party.
        questions: all requests to the party; requests after the last informative reply are dropped.
        budget: privacy budget of the party; ``None`` for none.
    """

    setup: AttackedParties
    party: str
    questions: Sequence[Question]
    budget: Budget | None

    def __post_init__(self) -> None:
        told = [i for i, one in enumerate(self.questions) if any(map(_telling, one.replies))]
        object.__setattr__(self, "questions", self.questions[: max(told, default=-1) + 1])

    @property
    def cannot_be_asked(self) -> str:
        """Reason why the party's model cannot be queried on single rows; empty if it can."""
        if self.budget is not None and self.budget.training is None:
            return "a party with a budget predicts no rows"
        return "" if self.setup.by_class else "it is for classes"

    def answers(
        self,
        known: Candidates,
        count: int,
        rng: np.random.Generator,
        report: Callable[[str, int, int], None] = lambda party, done, all: None,
        *,
        ask_rows: bool = False,
    ) -> Answers:
        """Collect the replies of shadows with random halves of the candidates, and of the run's party.

        Args:
            known: the candidates.
            count: number of shadows.
            rng: random generator of the memberships.
            report: callback with the name of the party, the number of finished parties, and the total.
            ask_rows: also query the models on the candidates and on other rows.

        Returns:
            Answers of the shadows, then of the run's party.

        Raises:
            RunFailed: a shadow cannot answer with its rows.
        """
        own = np.arange(len(known.rows)) < known.own
        members = np.concatenate([rng.random((count, len(own))) < 0.5, own[None]])
        told, rows, others = [], [], []
        for done, there in enumerate(members):
            report(self.party, done, len(members))
            party, said = self._with_rows(np.append(known.fixed, known.rows[there]))
            told.append(said)
            if ask_rows and not self.cannot_be_asked:
                rows.append(self._sureness(party, known.rows))
                others.append(self._sureness(party, known.aside[:500]))
        report(self.party, len(members), len(members))
        return Answers(members, told, np.array(rows), np.array(others))

    def _with_rows(self, rows: Array) -> tuple[PartyView, list[Array]]:
        """Return the party with these rows, and all numbers in its replies."""
        party = self.setup.with_rows(self.party, np.sort(rows), self.budget)
        found: list[Array] = []
        for question in self.questions:
            outcome = answer(party, question.tasks)
            if isinstance(outcome, Failure):
                raise RunFailed(outcome.reason, where=f"a shadow of party {self.party!r}")
            found += numbers(_replies(outcome))
        return party, found

    def _sureness(self, party: PartyView, rows: Array) -> Array:
        """Return the probability of each row's class at the party's model."""
        model = party.trainer.model()
        if not len(rows):
            return np.zeros(0)
        places = [model.classes.index(name) for name in self.setup.labels[rows]]
        return np.asarray(model.outputs(self.setup.X[rows]))[np.arange(len(rows)), places]

"""Shadow parties: others' rows at a party's model, asked all that the party itself was asked in a run.

What a coordinator asked, the teachers in it too, is recorded while the rounds of a run are computed again;
a shadow is then asked the same, up to the last question with an answer. So an attack sees of it what it sees
of the party, whatever the protocol is.
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
"""Own rows, and others like them, without which nothing is measured."""


class Question(NamedTuple):
    """A request of a run to a party, and what left the party in reply.

    Attributes:
        tasks: its tasks.
        replies: a reply for each; none where the party failed.
    """

    tasks: tuple[Task, ...]
    replies: tuple[PartyMessage, ...]


@dataclass
class RecordedNetwork(LocalNetwork):
    """Network in this process that keeps every request to its parties, and their replies.

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
        """Give the first reply of a kind that left a party; ``None`` where none did."""
        replies = (reply for question in self.questions[party] for reply in question.replies)
        return next((reply for reply in replies if isinstance(reply, kind)), None)

    def spent(self, party: str) -> PrivacyLoss:
        """Give the privacy loss of all that left a party with a budget."""
        return privacy_of(self._members[party]).accountant.spent


def _replies(outcome: Outcome) -> tuple[PartyMessage, ...]:
    """Replies of a party; compressed ones as they were before."""
    return () if isinstance(outcome, Failure) else tuple(getattr(outcome, "whole", outcome))


def _telling(reply: PartyMessage) -> bool:
    """Tell whether private rows have part in a reply; metrics, which a run is judged by, are left aside."""
    return reply.privacy_cost not in ("nothing", "measured")


def numbers(replies: Sequence[PartyMessage]) -> list[Array]:
    """List all numbers that private rows have part in, a vector for each field of each reply.

    Probabilities are as ``log(p + 0.01)``; models that were sent as bytes are left out.
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
    """Put parties' vectors side by side, each divided by its spread among the first ``like`` parties.

    Vectors of other lengths at some parties than at others, such as those of trees, are left out.

    Args:
        parties: each party's vectors, as :func:`numbers` gives them.
        like: number of parties whose spread counts.

    Returns:
        Shape ``(n_parties, n_numbers)``; numbers that are the same at all are left out.
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
    """Parties of a run that is computed again, and all rows that they can be given.

    Attributes:
        names: of the parties.
        rows: per party, places of its own rows.
        X: inputs of all rows.
        labels: class names or values of all rows.
        strata: classes of all rows as numbers, shape ``(n_rows,)``; zeros for values.
        by_class: whether the parties predict classes.
        public: the public rows.
        with_rows: makes a new party of a name, with rows at these places and a privacy budget or none.
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
    """Rows that may be a party's own, of which the attacker knows all but who is there.

    Attributes:
        rows: places among all rows, shape ``(n_rows,)``: own ones, then as many others of the same classes.
        own: number of own ones.
        fixed: places of the party's other rows, which are always there.
        aside: places of rows that are nobody's, and no candidates.
    """

    rows: Array
    own: int
    fixed: Array
    aside: Array

    @classmethod
    def of(
        cls, setup: AttackedParties, party: str, n: int, most: int, rng: np.random.Generator
    ) -> Candidates:
        """Draw own rows of a party, and as many of each class that are not its own.

        Args:
            setup: the parties; rows behind the first ``n`` are nobody's.
            party: name of the party.
            n: see above.
            most: number of rows, own and others together.
            rng: draws them.

        Raises:
            InvalidInput: fewer than :data:`FEWEST_ROWS` are alike.
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
    """Answers of shadows and of the run's own party, which is the last.

    Attributes:
        members: which candidates each has, shape ``(n_parties, n_rows)``.
        numbers: vectors that left each.
        rows: probability that the model of each gives a candidate's class; empty where it is not asked.
        others: the same of rows that are no candidates.
    """

    members: Array
    numbers: list[list[Array]]
    rows: Array
    others: Array


@dataclass(frozen=True)
class Shadows:
    """A party of a run with rows of the attacker's choice.

    Args:
        setup: the run's parties; its rows hold the candidates too.
        party: name of the party.
        questions: all that the party was asked; those behind the last with an answer are left out.
        budget: of privacy, as the party's.
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
        """Reason for which its model is not asked about the rows themselves, or empty."""
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
        """Ask parties that have each candidate with probability ½, and the run's own.

        Args:
            known: the candidates.
            count: number of parties before the last.
            rng: draws who has which.
            report: is called with the party, parties done, and parties in all.
            ask_rows: whether their models are asked about candidates, and about rows that are none.

        Raises:
            RunFailed: one cannot answer with its rows.
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
        """The party with these rows, and all numbers that leave it."""
        party = self.setup.with_rows(self.party, np.sort(rows), self.budget)
        found: list[Array] = []
        for question in self.questions:
            outcome = answer(party, question.tasks)
            if isinstance(outcome, Failure):
                raise RunFailed(outcome.reason, where=f"a shadow of party {self.party!r}")
            found += numbers(_replies(outcome))
        return party, found

    def _sureness(self, party: PartyView, rows: Array) -> Array:
        """The probability that its model gives the class of each row."""
        model = party.trainer.model()
        if not len(rows):
            return np.zeros(0)
        places = [model.classes.index(name) for name in self.setup.labels[rows]]
        return np.asarray(model.outputs(self.setup.X[rows]))[np.arange(len(rows)), places]

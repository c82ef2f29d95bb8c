"""Task that asks for the answers of models of a party's shards to some public rows."""

from __future__ import annotations

import hashlib

import numpy as np

from consilience.errors import InvalidInput
from consilience.messages.message import message
from consilience.messages.scores import ShardAnswers
from consilience.numerics.class_sums import SCALE
from consilience.party.party import Party
from consilience.party.shards import answers_of
from consilience.tasks.base import Task
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_number

MOST_TEACHERS = 10_000
"""Most shards that a party trains models of."""


@message
class PollShards(
    Task,
    reply_type=ShardAnswers,
    exchanges="predictions",
    protocol="private_answers",
    static=True,
    keeps_model=True,
    exposure="noised",
):
    """Train a model on each shard of your rows, and sum up their answers to these public rows.

    Nothing in it says how much noise there is to be: that is the party's own affair.

    Attributes:
        rows: places of public rows, shape ``(n_rows,)``, int64, in their order.
        teachers: number of shards, K.
        votes: whether a model answers with the likeliest class alone.
        confident: share of the teachers that must seem to agree on a row, for it to be answered; 0 for any.
        low: lower bound of values, in regression.
        high: upper bound.
        parties: how many parties are asked, for the party to judge whether its budget is well spent.
        anyway: whether it is to answer even if noise drowns the answers.
    """

    round: int
    rows: Array
    teachers: int
    votes: bool = True
    confident: float = 0.0
    low: float = 0.0
    high: float = 1.0
    parties: int = 1
    anyway: bool = False

    def __post_init__(self) -> None:
        where = type(self).__name__
        if self.rows.ndim != 1 or self.rows.dtype != np.int64 or not len(self.rows):
            raise InvalidInput("the rows are no list of places", where=where)
        if (np.diff(self.rows) <= 0).any():
            raise InvalidInput("the rows are not in their order", where=where)
        check_number(
            "teachers", self.teachers, at_least=2, at_most=MOST_TEACHERS, whole=True, where=where
        )
        check_number("confident", self.confident, at_least=0, at_most=1, where=where)
        check_number("parties", self.parties, at_least=1, whole=True, where=where)
        check_number("low", self.low, where=where)
        check_number("high", self.high, above=self.low, where=where)

    @property
    def question(self) -> str:
        """Digest of all that the answer depends on: not of the round, nor of what others do."""
        said = (self.teachers, self.votes, self.confident, self.low, self.high)
        return hashlib.sha256(repr(said).encode() + self.rows.astype("<i8").tobytes()).hexdigest()

    @property
    def threshold(self) -> int:
        """Steps of the grid that the largest sum of a row must seem to reach, for it to be answered."""
        return round(self.confident * self.teachers * SCALE)

    @property
    def steps(self) -> int:
        """Steps of the grid in one vote."""
        return SCALE

    def run(self, party: Party) -> ShardAnswers:
        """Sum them up exactly; the party's privacy adds its noise where the reply leaves."""
        values = answers_of(
            party, self.rows, self.teachers, votes=self.votes, bounds=(self.low, self.high)
        )
        return ShardAnswers(
            party=party.name,
            round=self.round,
            values=values,
            answered=values.max(axis=1) >= self.threshold,
            threshold=self.threshold,
        )

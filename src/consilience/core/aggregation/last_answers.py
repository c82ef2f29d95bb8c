"""Replace missing answers of absent parties by their last ones, with a weight that decreases with age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Predictions, Receipt, Replies
from consilience.core.validation.arrays import Array

_ABSENT = ("late", "failed")
"""Kinds of failures of parties whose last answers are used; a party that refuses is not among them."""


@dataclass(frozen=True)
class LastAnswers:
    """Use the last answers of absent parties in place of new ones.

    An answer of age ``a`` rounds is blended: ``fade ** a`` times the answer, plus ``1 - fade ** a`` times
    the mean of this round's new answers, without those that a screen excludes. In the mean of m parties it
    has the weight ``fade ** a / m``, and the new answers share the rest. Any other rule of predictions
    works as well.

    Args:
        age: maximum age of an answer, in rounds.
        fade: factor on the weight of an old answer per round, in (0, 1].

    Raises:
        InvalidInput: a number is out of its range.

    Example:
        >>> LastAnswers(age=3, fade=0.5)
        LastAnswers(age=3, fade=0.5)
    """

    age: int
    fade: float = 0.5

    def __post_init__(self) -> None:
        if self.age < 1 or not 0 < self.fade <= 1:
            raise InvalidInput(
                f"age is {self.age} and fade {self.fade}",
                where="last answers",
                mend="Give an age of 1 or more, and a fade in (0, 1].",
            )

    def __call__(
        self, replies: Replies, memory: Mapping[str, Any]
    ) -> tuple[Replies, Mapping[str, int], Mapping[str, Any]]:
        """Complete the replies of a round with old answers; without absent parties they are bit-identical.

        Args:
            replies: those of the round, with answers of earlier rounds that arrived since.
            memory: memory of the round before: party to ``[age, answers]``.

        Returns:
            The replies, including unblended old ones; the age of each old answer by party; and the memory.
        """
        known = {party: (age + 1, tuple(said)) for party, (age, said) in memory.items()}
        for party, (age, said) in replies.late.items():
            if party not in known or age < known[party][0]:
                known[party] = age, said
        fresh = {party: _scored(said) for party, said in replies.answers.items()}
        if not fresh:
            return replies, {}, {}
        kinds = list(map(type, next(iter(fresh.values()))))
        old = {}
        for party, (age, said) in sorted(known.items()):
            absent = party in replies.missing and replies.missing[party].kind in _ABSENT
            if absent and age <= self.age and list(map(type, _scored(said))) == kinds:
                old[party] = age, _scored(said)
        kept = {party: (0, said) for party, said in fresh.items()}
        kept = {party: one for party, one in (known | kept).items() if one[0] < self.age}
        if not old:
            return replies, {}, kept
        answers = {**replies.answers, **{party: said for party, (_, said) in old.items()}}
        missing = {party: why for party, why in replies.missing.items() if party not in answers}
        completed = Replies(dict(sorted(answers.items())), missing)
        return completed, {party: age for party, (age, _) in old.items()}, kept

    def faded(self, heard: Replies, ages: Mapping[str, int]) -> Replies:
        """Blend each old answer with the mean of the new answers that the rule uses.

        Args:
            heard: replies, without those that a screen excluded, which are therefore not in that mean.
            ages: ages of the old answers, by party.

        Returns:
            The replies with blended answers, of the same shapes.
        """
        if not ages:
            return heard
        new = [one for one in heard.of(Predictions) if one.party not in ages]
        values = [one.values for one in new or heard.of(Predictions)]
        mean: Array = np.stack(values, dtype=np.float64).mean(axis=0)
        answers = {
            party: tuple(
                _blended(one, self.fade ** ages[party], mean)
                if party in ages and isinstance(one, Predictions)
                else one
                for one in said
            )
            for party, said in heard.answers.items()
        }
        return Replies(answers, heard.missing)

    def notes(self, ages: Mapping[str, int]) -> tuple[str, ...]:
        """List, for the ledger, the age and the weight of each old answer."""
        return tuple(
            f"{party} is absent: its answer of {age} rounds ago counts by {self.fade**age:.3g}"
            for party, age in ages.items()
        )


def still_at_work(replies: Replies) -> tuple[str, ...]:
    """Return the names of the late parties, which receive a teacher when they are done."""
    return tuple(party for party, why in replies.missing.items() if why.kind == "late")


def _scored(said: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the replies that a rule uses, without receipts of training."""
    return tuple(one for one in said if not isinstance(one, Receipt))


def _blended(old: Predictions, share: float, mean: Array) -> Predictions:
    """Compute the weighted mean of old predictions and a mean."""
    values = share * old.values.astype(np.float64) + (1 - share) * mean
    return replace(old, values=values.astype(old.values.dtype))

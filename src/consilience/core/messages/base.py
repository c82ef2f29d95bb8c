"""Base classes of the messages that leave a party, with the traits and checks that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

import numpy as np

from consilience.core.errors import KnowledgeRefused, odd_name
from consilience.core.messages.schema import LARGEST, MOST_ROWS, Agreement, TaskLike
from consilience.core.validation.arrays import Array

PrivacyCost = Literal["nothing", "charged", "measured", "unbudgeted"]
"""Privacy cost of a kind of reply, as its class states it.

``"nothing"``: it says nothing of private rows. ``"charged"``: it leaves with noise, and the accountant of
the party is charged; a party with a budget sends none without noise. The noise is the party's own, by a
:class:`~consilience.privacy.accounting.mechanisms.Mechanism` for any kind of reply, or what the task asked
for, where scores are computed with it (:class:`~consilience.privacy.accounting.mechanisms.GaussianNoise`).
``"measured"``: metrics, which leave a party with a budget in an experiment alone, outside of the guarantee.
``"unbudgeted"``: it depends on private rows, and nobody bounds what it tells of them: it leaves parties
without a budget alone, as far as their limits let it. So does a reply whose author states nothing.
"""

Form = Literal["rows", "scores", "numbers"]
"""Kind of a message's array that compression may change (:mod:`consilience.methods.compression.codec`).

``"rows"``: a row of outputs for each public row. ``"scores"``: one number for each public row. ``"numbers"``:
any others, such as parameters. Arrays without a form are compressed without loss.
"""


def checked_forms(cls: type, lossy: Mapping[str, Form] | None) -> dict[str, Form]:
    """Give the forms that a class states for its fields, which have to be known ones."""
    for field, form in (lossy or {}).items():
        if form not in get_args(Form):
            raise TypeError(f"{cls.__name__}.{field}: no form of an array is called {form!r}")
    return dict(lossy or {})


class PartyMessage(ABC):
    """A message from a party, validated where it arrives.

    A subclass states its traits where it is defined::

        @message
        class Surprise(PublicScores, privacy="unbudgeted", lossy={"values": "scores"}):
            ...

    Attributes:
        privacy_cost: its :data:`PrivacyCost`; ``None`` where its author states none.
        lossy: fields that compression may change, and their :data:`Form`.
    """

    privacy_cost: ClassVar[PrivacyCost | None] = None
    lossy: ClassVar[Mapping[str, Form]] = MappingProxyType({})

    def __init_subclass__(
        cls, *, privacy: PrivacyCost | None = None, lossy: Mapping[str, Form] | None = None
    ) -> None:
        if privacy is not None and privacy not in get_args(PrivacyCost):
            raise TypeError(f"{cls.__name__}: no privacy cost is called {privacy!r}")
        cls.privacy_cost = privacy
        cls.lossy = MappingProxyType(checked_forms(cls, lossy))
        super().__init_subclass__()

    @abstractmethod
    def validate(self, *, party: str, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless this is what the party was asked for.

        Args:
            party: name of the party that sent it.
            task: what it was asked.
            agreement: what the federation agreed on; ``None`` before the parties have joined.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Reply(PartyMessage):
    """A reply to a task of a round.

    Attributes:
        party: name of the party.
        round: round of the task.
    """

    party: str
    round: int

    def validate(self, *, party: str, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless party and round are the ones asked, and :meth:`check` passes.

        Args:
            party: name of the party that sent it.
            task: what it was asked.
            agreement: what the federation agreed on; ``None`` before the parties have joined.
        """
        check_same("party", self.party, party, where=party)
        check_same("round", self.round, task.round, where=party)
        self.check(task, agreement)

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the further fields are what was asked for.

        Args:
            task: what the party was asked.
            agreement: what the federation agreed on; ``None`` before the parties have joined.
        """


def check_count(rows: int, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on a number of rows that no party has."""
    if not 1 <= rows <= MOST_ROWS:
        raise KnowledgeRefused(f"a row count of {rows}", where=where)


def check_reach(what: str, values: Array, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on finite numbers beyond :data:`~consilience.core.messages.schema.LARGEST`.

    Args:
        what: name of the numbers, for the error.
        values: the numbers.
        where: the party, for the error.
    """
    if max(values.max(initial=0), -values.min(initial=0)) > LARGEST:
        raise KnowledgeRefused(f"{what} beyond {LARGEST:g}", where=where)


def check_names(*names: str, where: str) -> None:
    """Raise ``KnowledgeRefused`` on a text that is no name."""
    for name in names:
        if why := odd_name(name):
            raise KnowledgeRefused(f"a name that is none: {why}", where=where)


def check_same(what: str, got: object, expected: object, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` unless a field is what was expected.

    Args:
        what: name of the field, for the error.
        got: its value.
        expected: the value that it should have.
        where: the party, for the error.
    """
    if got != expected:
        raise KnowledgeRefused(f"{what} is {got!r}, expected {expected!r}", where=where)


def check_array(
    values: Array, shape: tuple[int, ...], precision: type[np.generic], *, where: str
) -> None:
    """Raise ``KnowledgeRefused`` unless an array has a shape and a data type.

    Args:
        values: the array.
        shape: the shape that it should have.
        precision: the data type that it should have.
        where: the party, for the error.
    """
    if values.dtype != precision:
        expected = np.dtype(precision)
        raise KnowledgeRefused(f"values are {values.dtype}, expected {expected}", where=where)
    if values.shape != shape:
        raise KnowledgeRefused(f"values have shape {values.shape}, expected {shape}", where=where)


def check_finite(values: Array, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on NaN and infinite numbers."""
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise KnowledgeRefused(f"{count} of {values.size} values are NaN or infinite", where=where)

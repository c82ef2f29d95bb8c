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

``"nothing"``: the reply carries no information about private rows. ``"charged"``: the reply is sent with
noise, and the party's accountant is charged; a party with a budget sends no such reply without noise. The
noise is the party's own, by a :class:`~consilience.privacy.accounting.mechanisms.Mechanism` for any kind of
reply, or set by the task, if scores are computed with noise
(:class:`~consilience.privacy.accounting.mechanisms.GaussianNoise`). ``"measured"``: metrics; a party with a
budget sends them only in an experiment, outside of the guarantee. ``"unbudgeted"``: the reply depends on
private rows without a bound on the leaked information; only parties without a budget send it, within their
limits. The same holds for a reply whose class states no cost.
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
        """Raise ``KnowledgeRefused`` unless this message is a valid answer to the party's task.

        Args:
            party: name of the party that sent the message.
            task: the task that the party received.
            agreement: the federation's agreement; ``None`` before the parties have joined.
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
        """Raise ``KnowledgeRefused`` unless party and round match the request, and :meth:`check` passes.

        Args:
            party: name of the party that sent the message.
            task: the task that the party received.
            agreement: the federation's agreement; ``None`` before the parties have joined.
        """
        check_same("party", self.party, party, where=party)
        check_same("round", self.round, task.round, where=party)
        self.check(task, agreement)

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the remaining fields are a valid answer to the task.

        Args:
            task: the task that the party received.
            agreement: the federation's agreement; ``None`` before the parties have joined.
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
    """Raise ``KnowledgeRefused`` if a text is not a valid name."""
    for name in names:
        if why := odd_name(name):
            raise KnowledgeRefused(f"a name that is none: {why}", where=where)


def check_same(what: str, got: object, expected: object, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` unless a field has the expected value.

    Args:
        what: name of the field, for the error.
        got: its value.
        expected: the required value.
        where: the party, for the error.
    """
    if got != expected:
        raise KnowledgeRefused(f"{what} is {got!r}, expected {expected!r}", where=where)


def check_array(
    values: Array, shape: tuple[int, ...], precision: type[np.generic], *, where: str
) -> None:
    """Raise ``KnowledgeRefused`` unless an array has the expected shape and data type.

    Args:
        values: the array.
        shape: the required shape.
        precision: the required data type.
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

"""Replies of a party to the four steps of a secure sum: keys, sealed shares, a masked input, an opening."""

from __future__ import annotations

import json

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.base import Reply, check_array
from consilience.core.messages.message import message
from consilience.core.messages.schema import MOST_SUMMED, Agreement, TaskLike
from consilience.core.validation.arrays import Array
from consilience.privacy.class_sums.messages import ClassSums

KEY, SHARE, SEALED = 32, 33, 82
"""Bytes of a key, of a share of a secret, and of two shares that are sealed."""

ANSWERS = "answers"
"""Kind of an input to a sum without noise: it is in sums over one set of parties, of one rule, alone."""

_LONGEST_SIGNATURE, _LONGEST_DIGEST = 256, 64


@message
class SumKeys(Reply, privacy="nothing"):
    """Public keys of a party for one sum.

    Attributes:
        sealing: X25519 key that shares for the party are sealed with, shape ``(32,)``, uint8.
        masking: X25519 key that its masks with others are made of, alike.
        commitment: SHA-256 of the seed of the mask that it has for itself, alike.
        history: digest of all that its answers depend on and that the coordinator chose.
        bound: names of the parties that all its sums of answers are over; empty before the first.
        signature: of all these and the round, by the key that the others know it by; of length 0 if it has
            none.
    """

    sealing: Array
    masking: Array
    commitment: Array
    history: str = ""
    bound: tuple[str, ...] = ()
    signature: Array

    def __post_init__(self) -> None:
        for values in (self.sealing, self.masking, self.commitment):
            check_array(values, (KEY,), np.uint8, where=self.party)
        if len(self.history) > _LONGEST_DIGEST or len(self.bound) > MOST_SUMMED:
            raise KnowledgeRefused("a history or a set of parties that is none", where=self.party)
        if self.signature.ndim != 1 or self.signature.size > _LONGEST_SIGNATURE:
            raise KnowledgeRefused("a signature that is none", where=self.party)
        check_array(self.signature, self.signature.shape, np.uint8, where=self.party)

    @property
    def signed(self) -> bytes:
        """All that is signed, beside the name of the sum."""
        keys = (self.sealing, self.masking, self.commitment)
        said = json.dumps([self.party, self.round, self.history, self.bound])
        return b"".join([*(one.tobytes() for one in keys), said.encode()])


@message
class SealedShares(Reply, privacy="nothing"):
    """Shares of a party's two secrets, sealed for every other party.

    Attributes:
        values: a row for each other party by name, shape ``(n - 1, 82)``, uint8.
        checked: whether it held the others' keys against a roster of its own.
    """

    values: Array
    checked: bool = False

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is a row for each other party of the task."""
        others: int = len(task.keys) - 1  # type: ignore[attr-defined]
        check_array(self.values, (others, SEALED), np.uint8, where=self.party)


@message
class MaskedInput(Reply, privacy="nothing"):
    """Input of a party to a sum, under masks: uniform integers for whoever lacks one of the masks.

    Attributes:
        values: integers modulo 2^64, shape ``(n,)``, uint64.
        stated: of class sums, what the party guarantees, without any sums; else ``None``.
    """

    values: Array
    stated: ClassSums | None = None

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there are as many integers as the task sums up."""
        asked = task.asked  # type: ignore[attr-defined]
        check_array(self.values, (asked.length(agreement),), np.uint64, where=self.party)
        if (self.stated is None) == (asked.form == "class-sums"):
            raise KnowledgeRefused(
                "a guarantee where none was asked for, or none", where=self.party
            )
        if self.stated is not None:
            self.stated.validate(party=self.party, task=asked.tasks[0], agreement=agreement)
            if self.stated.values.any():
                raise KnowledgeRefused("sums beside the masked ones", where=self.party)


@message
class SumOpening(Reply, privacy="nothing"):
    """Shares that a party hands out to open a sum.

    Attributes:
        values: a share of each party's that had shared its secrets, by name: of the mask for itself where its
            input is in the sum, else of its masking key; shape ``(n, 33)``, uint8.
    """

    values: Array

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is a share for each party that had shared."""
        count: int = task.sharing  # type: ignore[attr-defined]
        check_array(self.values, (count, SHARE), np.uint8, where=self.party)

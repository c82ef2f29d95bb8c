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
"""Bytes of a key, of a share of a secret, and of two sealed shares."""

ANSWERS = "answers"
"""Kind of a sum input without noise; all such sums must have the same parties and the same rule."""

_LONGEST_SIGNATURE, _LONGEST_DIGEST = 256, 64


@message
class SumKeys(Reply, privacy="nothing"):
    """Public keys of a party for one sum.

    Attributes:
        sealing: X25519 key that encrypts shares for the party, shape ``(32,)``, uint8.
        masking: X25519 key of its masks with other parties, of the same shape.
        commitment: SHA-256 of the seed of its self-mask, of the same shape.
        history: digest of the coordinator's choices that affect the party's answers.
        bound: names of the parties of all its sums of answers; empty before the first.
        signature: signature of all these and the round, by the party's identity key; of length 0 if it has
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
        """The signed bytes, without the name of the sum."""
        keys = (self.sealing, self.masking, self.commitment)
        said = json.dumps([self.party, self.round, self.history, self.bound])
        return b"".join([*(one.tobytes() for one in keys), said.encode()])


@message
class SealedShares(Reply, privacy="nothing"):
    """Shares of a party's two secrets, encrypted for every other party.

    Attributes:
        values: a row for each other party by name, shape ``(n - 1, 82)``, uint8.
        checked: whether the party verified the other parties' keys with a local roster.
    """

    values: Array
    checked: bool = False

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is a row for each other party of the task."""
        others: int = len(task.keys) - 1  # type: ignore[attr-defined]
        check_array(self.values, (others, SEALED), np.uint8, where=self.party)


@message
class MaskedInput(Reply, privacy="nothing"):
    """Masked input of a party to a sum: uniform integers to anyone who lacks one of the masks.

    Attributes:
        values: integers modulo 2^64, shape ``(n,)``, uint64.
        stated: for class sums, the party's declared guarantee, with all sums zero; else ``None``.
    """

    values: Array
    stated: ClassSums | None = None

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the length of the input and its guarantee fit the task."""
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
    """Shares of a party that open a sum.

    Attributes:
        values: one share for each party that shared its secrets, by name, shape ``(n, 33)``, uint8: a share
            of the self-mask if its input is in the sum, else of its masking key.
    """

    values: Array

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is one share for each party that shared its secrets."""
        count: int = task.sharing  # type: ignore[attr-defined]
        check_array(self.values, (count, SHARE), np.uint8, where=self.party)

"""Tasks around a protocol: description, public rows, joining, evaluation and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.base import check_reach
from consilience.core.messages.columns import Schema
from consilience.core.messages.message import message
from consilience.core.messages.replies import Description, Metrics, Receipt
from consilience.core.messages.schema import Agreement, Public
from consilience.core.numerics.feature_space import count_features
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array


@message
class Describe(
    Task,
    reply_type=Description,
    exchanges="predictions",
    protocol=None,
    exposure="nothing",
    limits=(),
    lifecycle="describe",
):
    """Describe yourself: classes and kind of learner, without data."""

    round: int = 0

    @property
    def remembered(self) -> bool:
        """False: the task changes no state, and not all parties receive it equally often."""
        return False

    def run(self, party: PartyView) -> Description:
        """Describe the party."""
        return party.describe()


@message
class TakePublic(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    exposure="nothing",
    limits=("public_bytes", "public_sets"),
    lifecycle="public",
):
    """Take these rows as the public rows; sent before joining to parties without public rows.

    Attributes:
        public: digest of the rows, :attr:`consilience.core.messages.schema.Public.key`.
        values: numbers, shape ``(n_public, ...)``; for texts, their concatenated UTF-8 bytes, uint8.
        lengths: number of bytes of each text, shape ``(n_public,)``, int64; ``None`` for numbers.
        gaps: for a table with gaps, a bit for each number, set if the number is missing and 0 in ``values``;
            ``None`` without gaps.
        schema: schema of a table's columns, as JSON; empty for columns without names.
    """

    public: str
    values: Array
    lengths: Array | None = None
    gaps: Array | None = None
    schema: str = ""
    round: int = 0

    @classmethod
    def of(cls, public: Public) -> TakePublic:
        """Make the task that sends these rows."""
        if public.X.dtype.kind not in "UO":
            schema = "" if public.schema is None else public.schema.to_json()
            if public.X.dtype.kind != "f" or not (missing := np.isnan(public.X)).any():
                return cls(public=public.key, values=public.X, schema=schema)
            values, gaps = np.where(missing, 0, public.X), np.packbits(missing)
            return cls(public=public.key, values=values, gaps=gaps, schema=schema)
        texts = [str(text).encode() for text in public.X]
        return cls(
            public=public.key,
            values=np.frombuffer(b"".join(texts), dtype=np.uint8),
            lengths=np.array([len(text) for text in texts], dtype=np.int64),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on the wire."""
        lengths = 0 if self.lengths is None else self.lengths.nbytes
        return self.values.nbytes + lengths + len(self.schema)

    @property
    def unpacked(self) -> int:
        """Estimate of the bytes of memory that the rows take.

        A number takes 8 bytes in any wire format, a byte of the schema 10, a text 80, and a byte of a text 4.
        If rows are compared by more numbers than they have, such as one for each category, each of these
        takes 16, because scaling needs a second copy.

        Python stores every character of a text in as many bytes, up to 4, as its widest character needs.
        """
        if self.lengths is not None:
            return 4 * self.values.nbytes + 80 * self.lengths.size
        schema = None
        with suppress(InvalidInput):  # rows() says so
            schema = Schema.from_json(self.schema) if self.schema else None
        shape = self.values.shape
        expands = count_features(shape) if schema is None or schema.plain else schema.width
        numbers = 8 * self.values.size
        if expands > prod(shape[1:]):
            numbers = max(numbers, 16 * prod(shape[:1]) * expands)
        return numbers + 10 * len(self.schema)

    def rows(self) -> Public:
        """Read the rows, and check them against the digest.

        Returns:
            The public rows.

        Raises:
            KnowledgeRefused: the data are no public rows, or have another digest.
        """
        try:
            X = self.values if self.lengths is None else _texts(self.values, self.lengths)
            if self.gaps is not None:
                X = _with_gaps(X, self.gaps)
            public = Public(X, Schema.from_json(self.schema) if self.schema else None)
        except InvalidInput as error:
            raise KnowledgeRefused(f"what was sent are no public rows: {error.what}") from error
        if self.values.dtype.kind == "f":
            check_reach("public rows", self.values, where="TakePublic")
        if public.key != self.public:
            raise KnowledgeRefused(
                f"the public rows that were sent have the digest {public.key}, and not "
                f"{self.public[:_LONGEST_DIGEST]!r}"
            )
        return public

    @property
    def limited(self) -> Mapping[str, float]:
        """Bytes of memory that the rows take."""
        return {"public_bytes": self.unpacked}

    def rows_for(self, party: PartyView) -> Public:
        """Read the rows for a party, before the comparison with its own rows.

        Args:
            party: the party.

        Returns:
            The public rows.

        Raises:
            InvalidInput: the party accepts no public rows from the coordinator.
            KnowledgeRefused: the data are no public rows, or have another digest or kind.
        """
        party.rules.public.check_sent(party.name)
        X = party.rows.X
        if len(X) and (self.lengths is None) == (
            X.dtype.kind in "UO"
        ):  # before texts are made of bytes
            raise KnowledgeRefused("private and public data: one is text, the other numbers")
        return self.rows()

    def run(self, party: PartyView) -> Receipt:
        """Check the rows against the party's own, and take them."""
        party.take_public(self.rows_for(party))
        return Receipt(party=party.name, round=self.round)


_LONGEST_DIGEST = 64
"""Largest number of characters of an announced digest in an error."""


def _with_gaps(values: Array, gaps: Array) -> Array:
    """Replace numbers by NaN if their bit marks them as missing."""
    fits = values.dtype.kind == "f" and values.ndim == 2 and gaps.dtype == np.uint8
    if not fits or gaps.shape != (-(-values.size // 8),):
        raise InvalidInput("the bits of gaps do not fit the numbers")
    missing = np.unpackbits(gaps, count=values.size).astype(bool).reshape(values.shape)
    return np.where(missing, np.asarray(np.nan, dtype=values.dtype), values)


def _texts(values: Array, lengths: Array) -> Array:
    """Split bytes into texts of these lengths."""
    whole = values.dtype == np.uint8 and values.ndim == lengths.ndim == 1
    if (
        not whole
        or lengths.dtype != np.int64
        or ((lengths < 0) | (lengths > len(values))).any()
        or lengths.sum() != len(values)
    ):
        raise InvalidInput("the lengths of the texts do not fit their bytes")
    ends = np.cumsum(lengths).tolist()
    try:
        texts = [
            values[end - length : end].tobytes().decode()
            for end, length in zip(ends, lengths.tolist(), strict=True)
        ]
    except UnicodeDecodeError as error:
        raise InvalidInput("the texts are not UTF-8") from error
    return np.array(texts, dtype=object)


@message
class Join(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    deferrable=True,
    exposure="nothing",
    limits=("classes",),
    lifecycle="join",
):
    """Accept the agreement and start from an untrained model."""

    agreement: Agreement
    round: int = 0

    @property
    def limited(self) -> Mapping[str, float]:
        """Number of classes, which increases the cost of models and answers."""
        return {"classes": len(self.agreement.classes)}

    def run(self, party: PartyView) -> Receipt:
        """Check the agreement against the party's own data, and join."""
        notes = party.join(self.agreement)
        return Receipt(party=party.name, round=self.round, notes=notes)


@message
class Evaluate(
    Task,
    reply_type=Metrics,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    bookkeeping=True,
    exposure="usual",
    limits=("metrics", "metrics_in_all", "digits"),
    lifecycle="measure",
):
    """Measure your model on your own test rows."""

    round: int

    def run(self, party: PartyView) -> Metrics:
        """Compute accuracy and log loss, or squared error."""
        rows, values = party.evaluate()
        return Metrics(party=party.name, round=self.round, rows=rows, values=values)


@message
class Checkpoint(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    bookkeeping=True,
    exposure="nothing",
    limits=(),
    lifecycle="checkpoint",
):
    """Write your state to your own disk.

    Attributes:
        previous: round of the last checkpoint known to be complete at every party; 0, the default, for none.
    """

    round: int
    previous: int = 0

    def run(self, party: PartyView) -> Receipt:
        """Write the state completely or not at all; the state of round ``previous`` is kept."""
        party.save(checkpoint_name(self.round), keep=checkpoint_name(self.previous))
        return Receipt(party=party.name, round=self.round)


@message
class Restore(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    bookkeeping=True,
    exposure="nothing",
    limits=(),
    lifecycle="restore",
):
    """Load the state that you wrote after a round."""

    round: int

    def run(self, party: PartyView) -> Receipt:
        """Load the model and the memory of that round, bit-identical."""
        party.restore(checkpoint_name(self.round))
        return Receipt(party=party.name, round=self.round)


def checkpoint_name(round: int) -> str:
    """Return the name of the folder of the state after a round."""
    return f"round-{round:05d}"

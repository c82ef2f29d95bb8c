"""Rows of a party after it joined a federation: read, coded and split."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from consilience.core.messages.schema import Agreement, Public
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

CodedRows = tuple[Array, Array]
"""Inputs ``(n, ...)`` and targets ``(n, n_outputs)``."""


@prints_no_rows
@dataclass(frozen=True)
class JoinedRows:
    """Rows of a party after it joined a federation.

    Attributes:
        party: name of the party.
        agreement: agreement of the federation.
        public: the public rows.
        used: private rows with their targets, without the excluded rows.
        train: private training rows with their targets.
        held_out: calibration rows with their targets; may be empty.
        whole: inputs of all private rows, including excluded ones. Which rows are excluded depends on the
            other rows.
        left_out: number of private rows excluded because they are also public rows.
        train_rows: number of private training rows before any row is excluded. The number after exclusion
            would reveal how many rows are also public.
        held_out_y: uncoded targets of the calibration rows, for an outcome; ``None`` without one.
        secret: bytes mixed into the random streams of the party.
    """

    party: str
    agreement: Agreement
    public: Public
    used: CodedRows
    train: CodedRows
    held_out: CodedRows
    whole: Array
    left_out: int = 0
    train_rows: int = 0
    held_out_y: Array | None = None
    secret: bytes = field(default=b"", repr=False)

    def stream(self, round: int, purpose: str) -> np.random.Generator:
        """Make random numbers for one purpose in one round (:func:`.randomness.stream`)."""
        return stream(self.agreement.seed, self.party, round, purpose, secret=self.secret)

    @property
    def validation(self) -> CodedRows | None:
        """The calibration rows; ``None`` if there are none."""
        return self.held_out if len(self.held_out[0]) else None

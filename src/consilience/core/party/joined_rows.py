"""Rows of a party in the federation that it has joined: read, coded and split."""

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
    """Rows of a party in the federation that it has joined.

    Attributes:
        party: name of the party.
        agreement: agreement of the federation.
        public: the public rows.
        used: private rows with their targets, without those that are left out of training.
        train: private rows that are trained on.
        held_out: calibration rows; there may be none.
        whole: inputs of all private rows; which are left out depends on other rows.
        left_out: number of private rows that are left out because they are public rows too.
        train_rows: number of private rows to train on, with those that are left out: the number without them
            would tell who they are.
        held_out_y: for an outcome, what the targets of the calibration rows were coded from.
        secret: bytes that the random streams of the party are mixed with.
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

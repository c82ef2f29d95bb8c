"""Scores that the rules of other papers need in addition to predictions."""

from __future__ import annotations

import math

import numpy as np

from consilience.core.messages.base import (
    Reply,
    check_array,
    check_finite,
)
from consilience.core.messages.message import message
from consilience.core.messages.schema import Agreement, TaskLike
from consilience.core.messages.scores import PublicScores
from consilience.core.validation.arrays import Array


@message
class Certainties(PublicScores, privacy="charged", above=0.0, at_most=1.0):
    """Certainty that each public row is of a party's own kind, in (0, 1], shape ``(n_public,)``."""


@message
class Selection(PublicScores, privacy="unbudgeted", precision=np.bool_):
    """Choice of the public rows that a party speaks for, shape ``(n_public,)``, bool.

    Attributes:
        notes: warnings for the ledger.
    """

    notes: tuple[str, ...] = ()


LARGEST_LOG_ODDS = math.log(1e4 - 1)
"""Largest log odds that a party sends: those of the probability 1 - 1e-4."""


@message
class LogOdds(
    PublicScores,
    privacy="unbudgeted",
    at_least=-LARGEST_LOG_ODDS - 1e-5,
    at_most=LARGEST_LOG_ODDS + 1e-5,
):
    """Log odds that each public row is one of a party's own, against a reference: ``(n_public,)``."""


@message
class SubspaceLikeness(PublicScores, privacy="unbudgeted", at_least=0.0, at_most=1.0):
    """Share of each public row's squared length that lies in the subspace of a party's rows, in [0, 1]."""


@message
class Moments(Reply, privacy="unbudgeted"):
    """Second moments of a party's features φ and targets y: ``[sum φ φᵀ | sum φ yᵀ]``.

    The shape is ``(d, d + n_outputs)``, float64. If a class has a single row, the moments reveal this row.
    """

    values: Array

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the moments are finite and their shape matches the request."""
        assert agreement is not None
        d: int = task.features  # type: ignore[attr-defined]
        check_array(self.values, (d, d + agreement.outputs), np.float64, where=self.party)
        check_finite(self.values, where=self.party)

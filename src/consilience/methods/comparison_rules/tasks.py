"""Tasks that request the scores of other papers' rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from consilience.core.messages.message import message
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.scores import of_rows, scored
from consilience.core.validation.numbers import check_number
from consilience.methods.comparison_rules.party import likeness, log_odds, moments
from consilience.methods.comparison_rules.scores import (
    LogOdds,
    Moments,
    Selection,
    SubspaceLikeness,
)


@message
class SelectPublic(
    Task,
    reply_type=Selection,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="usual",
    limits=("quantile",),
    summed="score",
):
    """Select the public rows with at least the density ratio of the party's rows, up to a quantile.

    Attributes:
        quantile: share of the party's calibration rows that may be classified as foreign.
        reference: denominator of the density ratio, ``"uniform"`` or ``"public"``.
    """

    round: int
    quantile: float
    reference: Literal["uniform", "public"]

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, at_least=0, below=1, where=type(self).__name__)

    @property
    def limited(self) -> Mapping[str, float]:
        """The quantile, which a party can limit because extreme quantiles reveal single rows."""
        return {"quantile": self.quantile}

    @of_rows
    def run(self, party: PartyView) -> Selection:
        """Answer yes or no for each public row, the same in every round."""
        values, notes = party.trainer.scores.selection(self.quantile, self.reference)
        return scored(Selection, self, party, values, notes=notes)


@message
class TellApart(
    Task,
    reply_type=LogOdds,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="unmeasured",
    limits=(),
):
    """Compute the log odds that each public row is one of the party's rows rather than a reference row.

    Attributes:
        reference: ``"public"`` for the public rows, or ``"generated"`` for draws from a mixture fitted to
            them; the same at every party.
    """

    round: int
    reference: Literal["public", "generated"]

    @of_rows
    def run(self, party: PartyView) -> LogOdds:
        """Compute one number for each public row, the same in every round."""
        return scored(LogOdds, self, party, log_odds(party.trainer.scores, self.reference))


@message
class MeasureAngles(
    Task,
    reply_type=SubspaceLikeness,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="unmeasured",
    limits=(),
):
    """Compute the share of each public row's squared length in the subspace of the party's rows.

    Attributes:
        energy: share of the squared length of the party's rows that the subspace holds, in (0, 1].
    """

    round: int
    energy: float

    def __post_init__(self) -> None:
        check_number("energy", self.energy, above=0, at_most=1, where=type(self).__name__)

    @of_rows
    def run(self, party: PartyView) -> SubspaceLikeness:
        """Compute one number for each public row, the same in every round."""
        return scored(SubspaceLikeness, self, party, likeness(party.trainer.scores, self.energy))


@message
class SendMoments(
    Task,
    reply_type=Moments,
    exchanges="predictions",
    protocol="analytic_federation",
    static=True,
    keeps_model=True,
    exposure="rows",
    limits=(),
):
    """Add up the second moments of your rows' features, and of these with your targets.

    Attributes:
        features: their number, as :func:`public_features` has it.
    """

    round: int
    features: int

    def run(self, party: PartyView) -> Moments:
        """Compute them of all your rows."""
        return Moments(party=party.name, round=self.round, values=moments(party.trainer.scores))

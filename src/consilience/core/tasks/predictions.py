"""Tasks of protocols that exchange predictions: train, predict public rows, learn from a teacher."""

from __future__ import annotations

from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.messages.message import message
from consilience.core.messages.replies import Predictions, Receipt
from consilience.core.messages.schema import PRECISION, OutputKind
from consilience.core.party.trainer import Teaching
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number


@message
class FitPrivate(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    deferrable=True,
    exposure="nothing",
    limits=("epsilon",),
):
    """Train on your private rows."""

    round: int

    def releases(self, party: PartyView) -> tuple[Any, ...]:
        """List the costs of the training if it adds noise."""
        if party.agreement is None or party.trainer.private_training is None:
            return ()
        return party.trainer.private_training.costs()

    def run(self, party: PartyView) -> Receipt:
        """Train: stage 1 of the round."""
        with party.outbox.suppressing_errors():
            party.trainer.fit_private(self.round)
        return Receipt(party=party.name, round=self.round)


@message
class PredictPublic(
    Task,
    reply_type=Predictions,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="usual",
    limits=(),
    summed="predictions",
):
    """Predict every public row.

    Attributes:
        outputs: ``"probabilities"``, ``"logits"`` or ``"values"``.
        calibrated: whether to calibrate them first with the party's calibration rows; not for values.
    """

    round: int
    outputs: OutputKind = "probabilities"
    calibrated: bool = False

    def __post_init__(self) -> None:
        if self.calibrated and self.outputs == "values":
            raise InvalidInput("values are not calibrated", where=type(self).__name__)

    def run(self, party: PartyView) -> Predictions:
        """Predict, in the precision of the outputs' kind."""
        agreed = party.trainer.agreement
        return Predictions(
            party=party.name,
            round=self.round,
            kind=self.outputs,
            classes=agreed.classes,
            public=agreed.public,
            values=party.trainer.outputs(self.outputs, calibrated=self.calibrated).astype(
                PRECISION[self.outputs]
            ),
        )


@message
class Distill(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    lossy={"targets": "rows"},
    exposure="nothing",
    limits=("alpha",),
):
    """Train towards the teacher on the public rows.

    Attributes:
        targets: shape ``(n_public, n_outputs)``: soft labels (float32) or values (float64).
        alpha: weight of the private rows, for learners that refit on both.
        share: weight of a party's own rows among all parties' rows, for the purpose ``"everyone"``; ``None``,
            the default, uses ``alpha``.
        free_alpha: whether a party may take a larger weight to improve predictions for its own rows. The
            default is false.
        taught: mask of the public rows to train on, shape ``(n_public,)``, bool; ``None``, the default, for
            all.
    """

    round: int
    targets: Array
    alpha: float
    taught: Array | None = None
    free_alpha: bool = False
    share: float | None = None

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, at_least=0, at_most=1, where=type(self).__name__)
        if self.share is not None:
            check_number("share", self.share, at_least=0, at_most=1, where=type(self).__name__)

    def run(self, party: PartyView) -> Receipt:
        """Train towards the teacher: stage 2 of the round."""
        notes: tuple[str, ...] = ()
        teaching = Teaching(
            self.round, self.targets, self.alpha, self.taught, self.free_alpha, self.share
        )
        with party.outbox.suppressing_errors():
            notes = party.trainer.distill(teaching)
        return Receipt(party=party.name, round=self.round, notes=notes)

"""Section ``[pace]`` of a coordinator's configuration: rounds without the late, and the end of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.last_answers import LastAnswers
from consilience.core.errors import InvalidInput
from consilience.core.protocols import Protocol
from consilience.core.protocols.rounds import SECURE
from consilience.core.validation.arrays import Array
from consilience.lab.config.sections import Section, Whole


class PaceSpec(Section):
    """Deadlines of rounds and early stopping of a deployed run.

    Attributes:
        share: share of the queried parties that must answer before a round can continue without the others,
            which are late.
        grace: further seconds for the others after this share has answered.
        age: maximum age, in rounds, of a last answer that replaces the new answer of a late or absent party;
            0 disables this.
        fade: share of such an answer that remains per round of its age; the mean of the new answers replaces
            the rest (:class:`~consilience.core.aggregation.last_answers.LastAnswers`).
        early_stop: number of successive rounds with an unchanged teacher after which the run is done;
            ``None`` runs all rounds.
        still: largest change of the teacher (:func:`teacher_change`) that counts as unchanged.
    """

    share: float = Field(default=1.0, gt=0, le=1)
    grace: float = Field(default=0.0, ge=0)
    age: Whole = Field(default=0, ge=0)
    fade: float = Field(default=0.5, gt=0, le=1)
    early_stop: Whole | None = Field(default=None, ge=1)
    still: float = Field(default=0.01, gt=0)

    def applied(self, protocol: Protocol) -> Protocol:
        """Make the protocol whose rule takes the last answers of the absent, if it is to.

        Raises:
            InvalidInput: it has no rule of single answers, or no teacher that could stay.
        """
        rule = protocol.options.get("aggregate")
        if not isinstance(rule, Aggregator) and (self.age or self.early_stop):
            key = "age" if self.age else "early_stop"
            raise InvalidInput(
                f"protocol {protocol.name} has no teacher made of predictions: an old model is no answer to "
                "a new one",
                where=f"pace.{key}",
                mend="Leave it out, or take ensemble_distillation with an aggregator.",
            )
        if not self.age:
            return protocol
        if protocol.options.get(SECURE) is not None:
            raise InvalidInput(
                "of secure sums nobody has a single party's last answer",
                where="pace.age",
                mend=f"Leave it out, or {SECURE}.",
            )
        assert isinstance(rule, Aggregator)
        last = LastAnswers(self.age, self.fade)
        return protocol.with_options(aggregate=replace(rule, last=last))

    def rounds_still(self, before: int, old: Array | None, new: Array | None) -> int:
        """Count the rounds in a row in which the teacher stayed.

        Args:
            before: the count without this round.
            old: the teacher of the round before, shape ``(n_public, n_outputs)``; ``None`` before the first.
            new: the teacher of this round.
        """
        if old is None or new is None or self.early_stop is None:
            return 0
        return before + 1 if teacher_change(old, new) <= self.still else 0

    def is_over(self, still: int) -> bool:
        """Tell whether a run is done after so many rounds in a row in which the teacher stayed."""
        return self.early_stop is not None and still >= self.early_stop


def teacher_change(old: Array, new: Array) -> float:
    """Compute how much a teacher changed from one round to the next.

    Of probabilities the mean total variation distance; of values the root mean square of the difference over
    the standard deviation of the old ones.

    >>> import numpy as np
    >>> teacher_change(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.8, 0.2], [0.5, 0.5]])).__round__(6)
    0.1
    """
    difference = new.astype(np.float64) - old
    if old.shape[1] > 1 and np.allclose(old.sum(axis=1), 1, atol=1e-3):
        return float(np.abs(difference).sum(axis=1).mean() / 2)
    spread = float(old.std(axis=0).mean())
    size = float(np.sqrt((difference**2).mean()))
    return size / spread if spread > 0 else size

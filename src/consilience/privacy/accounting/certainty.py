"""Certainties: the estimated probability of each public row to be a private row, optionally with noise.

The aggregation rule :func:`consilience.methods.comparison_rules.reliability.certainty_weighted` uses them as
weights. The noise is added to the classifier that separates private rows from public rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from consilience.core.messages.message import message
from consilience.core.party.row_scores import Scores
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.scores import of_rows, scored
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.methods.comparison_rules import membership
from consilience.methods.comparison_rules.scores import Certainties
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.accounting.mechanisms import GaussianNoise
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.privacy.accounting.stage import Accountant


@message
class ScoreCertainty(
    Task,
    reply_type=Certainties,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="noised",
    limits=("regularization", "epsilon"),
    summed="score",
):
    """Estimate the probability of each public row to be one of the party's private rows.

    Attributes:
        regularization: λ of the logistic regression that separates private rows from public rows.
        epsilon: ε of the noise on its weights; ``None`` adds no noise.
        delta: δ of that noise.
    """

    round: int
    regularization: float
    epsilon: float | None
    delta: float

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_number("regularization", self.regularization, above=0, where=where)
        check_number("epsilon", self.epsilon, above=0, below=1, optional=True, where=where)
        check_number("delta", self.delta, above=0, below=1, where=where)

    @property
    def limited(self) -> Mapping[str, float | None]:
        """The regularization, and ε; without noise ε is ``None``."""
        return {"regularization": self.regularization, "epsilon": self.epsilon}

    @of_rows
    def run(self, party: PartyView) -> Certainties:
        """Compute one number for each public row, the same in every round."""
        accountant = privacy_of(party).accountant
        values = certainties(
            party.trainer.scores, self.regularization, self._noise, accountant=accountant
        )
        return scored(Certainties, self, party, values)

    def releases(self, party: PartyView) -> tuple[Release, ...]:
        """List the certainties with noise; there are none without."""
        if self._noise is None or not party.rows.labelled:
            return ()
        return (certainties_release(party.trainer.scores, self.regularization, self._noise.loss),)

    @property
    def _noise(self) -> GaussianNoise | None:
        """Noise on the weights, or ``None``."""
        return None if self.epsilon is None else GaussianNoise(self.epsilon, self.delta)


def certainties(
    scores: Scores, regularization: float, noise: GaussianNoise | None, *, accountant: Accountant
) -> Array:
    """Estimate the probability of each public row to be one of the party's private rows.

    With noise, the certainties are released once per question, i.e. public rows, seed and settings. They then
    use all private rows, because the split into training and held-out rows can depend on a single row or
    class.

    Args:
        scores: scores of the party.
        regularization: λ of :func:`~consilience.methods.comparison_rules.membership.certainties`.
        noise: noise on the weights of the logistic regression; ``None`` adds no noise.
        accountant: accountant of the party, which is charged for the noise and keeps past releases.

    Returns:
        Certainties in (0, 1], shape ``(n_public,)``.
    """
    X = scores.rows.train[0] if noise is None else scores.rows.whole

    def computed() -> Array:
        return membership.certainties(
            scores.space.coordinates(X),
            scores.space.public,
            regularization=regularization,
            noise=None if noise is None else noise.add,
        )

    if noise is None:
        return scores.once(f"certainties {regularization!r}", computed)
    return accountant.release(certainties_release(scores, regularization, noise.loss), computed)


def certainties_release(scores: Scores, regularization: float, loss: PrivacyLoss) -> Release:
    """Return the release record of certainties with noise.

    Args:
        scores: scores of the party.
        regularization: as in :func:`certainties`.
        loss: privacy loss of the noise.
    """
    question = (repr(regularization), str(scores.rows.agreement.seed), scores.compared_with)
    return replace(Release.of("certainties", question, loss), chosen=True)

"""A party's choice of the weights of its local model and its distilled model.

Each party chooses locally, and sends none of the choice. For the purpose ``"own"``, the local model dominates
near own rows. It gets less weight only if the calibration rows, which are held out from the training of both
models, show that the predictions for own rows improve. A party without rows of some class has more
information: its future rows are unlikely to be of that class. The distilled model is then corrected for this
prior, and takes part from the start. For the purpose ``"everyone"``, the choice minimises the loss on the
calibration rows and on the public rows with the teacher's labels.
:class:`~consilience.core.party.mixed_model.MixedModel` mixes the two models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import ndtr, stdtrit

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner
from consilience.core.numerics.losses import row_losses
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.party.mixed_model import Choice, OwnRegion, class_odds
from consilience.core.party.row_scores import Scores
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.printing import prints_no_rows

Purpose = Literal["own", "everyone", "taught"]
"""Target of a party's predictions: own rows, all parties' rows, or the unmixed distilled model."""

WEIGHTS = (0.5, 0.25)
"""Further candidate weights of the local model near own rows.

The smallest is 0.25 and not 0: the log loss of a row then exceeds that of the local model by at most ln 4
nats. Rows too rare to appear among a few calibration rows therefore do little harm.
"""

EVIDENCE = 0.5
"""Number of standard errors by which calibration rows must favour a mixture.

A mixture whose true loss is one standard error of the difference higher passes with a probability of 7 %; at
two standard errors, 0.6 %. A mixture with an equal true loss passes more often, without harm.
"""

BEGUN = 0.75
"""Initial weight of the local model at a party without rows of some class.

After the correction for the missing class, the distilled model is seldom the worse of the two on own rows.
"""

RARE = 0.05
"""Factor for the probability of a class without own rows in the distilled model near own rows."""

MARGIN = 0.25
"""Part of the least nearness of the present own rows at which future own rows are expected."""

QUANTILES = (0.1, 0.5)
"""Quantiles of the nearness of own rows that are tried as reach for the purpose ``"everyone"``."""

SCARCE = 0.5
"""A class is scarce if its share among own rows is below this part of its share among all rows."""

NOBODY = 0.02
"""A class is absent from the federation below this part of an equal share of the teacher's probability.

No party lacks an absent class. The threshold is above 0, because smoothing rules give such a class a small
probability.
"""

STILL = 0.05
"""Change of the teacher up to which a refitted model is kept.

For classes it is the mean change of probability over the public rows; for values the root mean square change
in standard deviations.
"""

ALPHAS = (0.5, 0.8)
"""Larger refit weights of own rows, tried if the requested weight increases the loss on own rows.

The second is tried only if the first lowers the loss.
"""


@prints_no_rows
@dataclass(frozen=True)
class Lesson:
    """Public rows and the teacher's targets for the training of a party in a round.

    Attributes:
        round: the round.
        public: inputs, shape ``(n, ...)``.
        targets: the teacher, shape ``(n, n_outputs)``.
    """

    round: int
    public: Array
    targets: Array


class Chooser:
    """Part of a party that keeps the local model and chooses its mixture with the distilled model.

    Args:
        purpose: target of the predictions, ``"own"`` or ``"everyone"``.
        scores: own rows and public rows, and the space in which they are compared.
    """

    def __init__(self, purpose: Purpose, scores: Scores) -> None:
        rows = scores.rows
        self.purpose, self._kind, self._scores = purpose, rows.agreement.kind, scores
        self._train, self._held_out = rows.train, rows.held_out
        self._outcome = outcome_of(rows.agreement.outcome)
        self.alone: Learner | None = None
        """Local model, from before the first teacher; part of the party's state."""
        self.saved: Path | None = None
        """File of the local model, if there is one."""
        self.choices: list[Choice] = []
        """Choices after each teacher; part of the party's state."""
        self._said: tuple[Learner | None, Array] = None, np.zeros(0)

    def moved_to(self, folder: Path) -> None:
        """Update the path of the local model's file after its folder was moved."""
        if self.saved is not None:
            self.saved = folder / self.saved.name

    @cached_property
    def region(self) -> OwnRegion | None:
        """Density ratio of own rows; ``None`` if it cannot be fitted, as with equal public rows."""
        try:
            return OwnRegion.of(self._scores.space, self._train[0])
        except InvalidInput:
            return None

    def _ratios(self, X: Array) -> Array:
        """Compute the density ratios of rows, shape ``(n,)``; 0 without a region."""
        return np.zeros(len(X)) if self.region is None or not len(X) else self.region(X)

    @cached_property
    def _held_out_ratios(self) -> Array:
        """Density ratios of the calibration rows."""
        return self._ratios(self._held_out[0])

    @cached_property
    def _train_ratios(self) -> Array:
        """Density ratios of the training rows, by cross-fitting."""
        assert self.region is not None
        return self.region.among_themselves(self._train[0])

    def _held_out_alone(self) -> Array:
        """Predict the calibration rows with the local model, once, because it never changes."""
        assert self.alone is not None
        if self._said[0] is not self.alone:
            self._said = self.alone, self.alone.predict(self._held_out[0])
        return self._said[1]

    def _most(self) -> float:
        """Compute the largest weight of the local model.

        For regression it is 1. A classifier gives no probability to classes absent from its training rows. A
        mixture with none of the distilled model could then have an infinite log loss on other parties' rows.
        Laplace's rule of succession gives the probability that the next row is of an unseen kind, after n own
        rows without one: 1 / (n + 2). The distilled model gets at least this weight. The cost on own rows is
        about as many nats, far below the standard error of a mean of n losses.
        """
        if self._kind == "regression":
            return 1.0
        return 1 - 1 / (len(self._train[0]) + len(self._held_out[0]) + 2)

    def _candidates(self, lesson: Lesson, taught: Learner, held_out: Array) -> list[Choice]:
        """List the candidate choices; the first is the default of :func:`surely_best`.

        Args:
            lesson: public rows and teacher of the round.
            taught: the distilled model.
            held_out: its predictions on the calibration rows, shape ``(n, n_outputs)``.
        """
        familiar, reaches, most = self._familiar(lesson), [0.0], self._most()
        lacks = self.purpose == "own" and 0.0 in familiar
        chance = 1 - most if lacks else 0.0  # that the next row is of no kind that was there
        if self.region is not None:
            near = np.append(self._train_ratios, self._held_out_ratios)
            near = np.where(near > 0, np.maximum(near, chance), 0.0)
            if familiar:
                said = np.concatenate([taught.predict(self._train[0]), held_out])
                near = near * class_odds(said, familiar)
            reaches = [min(MARGIN * float(near.min()), chance if lacks else np.inf)]
            if self.purpose == "everyone":
                reaches += [0.0, *np.quantile(near, QUANTILES).tolist()]
        if lacks:
            owns = (min(BEGUN, most), most, *WEIGHTS)
            return [Choice(own, reaches[0], familiar, RARE, chance) for own in owns]
        mixed = [Choice(own, one, familiar) for own in (most, *WEIGHTS) for one in reaches]
        return mixed if self.purpose == "own" else [*mixed, Choice(0.0, 0.0)]

    def _familiar(self, lesson: Lesson) -> tuple[float, ...]:
        """Compute each class's share among own rows, relative to all rows; empty if no class is scarce.

        Regression and bins of an outcome give an empty result: an empty bin does not indicate whether a row
        belongs to the party.
        """
        if self._kind == "regression" or self._outcome is not None:
            return ()
        everyone = lesson.targets.mean(axis=0)
        somebody = everyone * len(everyone) > NOBODY
        familiar = np.ones(len(everyone))
        np.divide(self._train[1].mean(axis=0), everyone, out=familiar, where=somebody)
        familiar = np.minimum(familiar, 1)
        return tuple(map(float, familiar)) if familiar.min() < SCARCE else ()

    def choose(
        self, taught: Learner, lesson: Lesson, *, alpha: float | None, share: float
    ) -> tuple[Choice, Array]:
        """Choose the mixture of the distilled model with the local model.

        Args:
            taught: the distilled model.
            lesson: public rows and teacher of the round.
            alpha: weight of own rows in the refit, for the record; ``None`` without a weighted refit.
            share: weight of own rows in the loss for the purpose ``"everyone"``.

        Returns:
            The choice, and its loss on each calibration row, shape ``(n,)``.
        """
        X, targets = self._held_out
        theirs = taught.predict(X) if len(X) else targets
        candidates = self._candidates(lesson, taught, theirs)
        if not len(X):
            return replace(candidates[0], round=lesson.round, alpha=alpha), np.zeros(0)
        ours, ratios = self._held_out_alone(), self._held_out_ratios
        first = candidates[0]
        if first.rare < 1:  # its own voice is nearly always right: another must mend errors
            errors, least = wrong(ours, targets), first.own
            candidates = [
                one
                for one in candidates
                if one.own >= least or wrong(one.mixed(ours, theirs, ratios), targets) < errors
            ]
        y = self._scores.rows.held_out_y
        losses = self._losses(candidates, ours, theirs, ratios, (targets, y))
        alone, all_taught = (
            self._row_losses(said, targets, y) for said in (ours, first.corrected(theirs))
        )
        if self.purpose == "everyone":
            public = self._public_losses(candidates, taught, lesson)
            best = int((share * losses.mean(axis=0) + (1 - share) * public).argmin())
        else:
            against = [losses[:, 0] if one.own > first.own else alone for one in candidates]
            best = surely_best(losses, np.stack(against, axis=1))
        chosen = losses[:, best]
        found = replace(
            candidates[best],
            round=lesson.round,
            alpha=alpha,
            rows=len(X),
            counted=candidates[best].own * float(candidates[best].near(ratios, theirs).mean()),
            losses=tuple(float(one.mean()) for one in (alone, all_taught, chosen)),
        )
        return found, chosen

    def _public_losses(
        self, candidates: Sequence[Choice], taught: Learner, lesson: Lesson
    ) -> Array:
        """Compute the mean loss of every candidate on the public rows against the teacher."""
        assert self.alone is not None
        ours, theirs = (model.predict(lesson.public) for model in (self.alone, taught))
        ratios = self._ratios(lesson.public)
        losses = self._losses(candidates, ours, theirs, ratios, (lesson.targets, None))
        return np.asarray(losses.mean(axis=0))

    def _losses(
        self,
        candidates: Sequence[Choice],
        ours: Array,
        theirs: Array,
        ratios: Array,
        told: tuple[Array, Array | None],
    ) -> Array:
        """Compute the losses of every candidate, ``(n, n_candidates)``, from both models' predictions."""
        said = (one.mixed(ours, theirs, ratios) for one in candidates)
        return np.stack([self._row_losses(one, *told) for one in said], axis=1)

    def _row_losses(self, outputs: Array, targets: Array, y: Array | None) -> Array:
        """Compute losses of rows, shape ``(n,)``; several values are scaled by their spread in own rows."""
        if self._outcome is not None:
            return self._outcome.row_losses(outputs, targets, y)
        return row_losses(outputs, targets, self._kind, self._train[1])


def stands_still(before: Array, now: Array, kind: Kind) -> bool:
    """Return true if a teacher has changed little since an earlier one, by :data:`STILL`.

    Args:
        before: the earlier teacher, shape ``(n_public, n_outputs)``.
        now: the present teacher, of the same shape; with another shape the result is false.
        kind: ``"classification"`` or ``"regression"``.
    """
    if before.shape != now.shape:
        return False
    moved = np.abs(now - before)
    if kind == "classification":
        return bool(moved.sum(axis=1).mean() / 2 <= STILL)
    return bool(((moved**2).mean(axis=0) <= STILL**2 * before.var(axis=0)).all())


def wrong(outputs: Array, targets: Array) -> int:
    """Count the rows with a wrong likeliest class."""
    return int((outputs.argmax(axis=1) != targets.argmax(axis=1)).sum())


def surely_best(losses: Array, others: Array) -> int:
    """Pick the candidate of the lowest mean loss among those that reliably improve predictions for own rows.

    The first candidate always qualifies. Another one qualifies if its losses pass the test of
    :func:`surely_lower` against its reference.

    Args:
        losses: losses on the calibration rows, shape ``(n, n_candidates)``.
        others: losses of each candidate's reference, of the same shape: those of the local model, or those of
            the first candidate if this one gives the local model more weight.

    Returns:
        Position of the candidate.
    """
    pairs = zip(losses.T[1:], others.T[1:], strict=True)
    sure = [True, *(surely_lower(mine, theirs) for mine, theirs in pairs)]
    return int(np.where(sure, losses.mean(axis=0), np.inf).argmin())


def surely_lower(losses: Array, others: Array) -> bool:
    """Test whether losses are lower than others by :data:`EVIDENCE` standard errors of the difference.

    The threshold is a quantile of Student's t distribution. The test fails for fewer than two rows.

    Args:
        losses: losses of one model, one per calibration row, shape ``(n,)``.
        others: losses of the other model on the same rows, shape ``(n,)``.

    Returns:
        True if the losses are reliably lower.
    """
    gains, n = others - losses, len(losses)
    if n < 2:
        return False
    error = gains.std(ddof=1) / np.sqrt(n)
    return bool(gains.mean() > stdtrit(n - 1, ndtr(EVIDENCE)) * error)

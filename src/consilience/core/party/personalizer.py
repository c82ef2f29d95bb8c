"""A party's choice of how much its model trained alone counts beside the taught one.

It is made by own rows alone, and nothing of it leaves the party. For own rows the model trained alone counts
as far as they lie, and less of it only where the calibration rows, which neither model was trained on, show
that its own rows gain. A party without rows of some class knows more: hardly one of its rows to come is of
that class. There the taught model is corrected for it, and takes part from the start. For everyone's rows the
choice is by calibration rows and by the public rows, as the teacher labels them. The two models are mixed by
:class:`~consilience.core.party.mixed_model.MixedModel`.
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
"""Rows that a party's predictions are for: its own, everyone's, or the taught model whatever it is for."""

WEIGHTS = (0.5, 0.25)
"""Further weights of the model trained alone where own rows lie. Not 0 for own rows: with a quarter no row
costs more than ln 4 nats over the model trained alone, so that rows too rare for a few calibration rows to
hold any do little harm."""

EVIDENCE = 0.5
"""Standard errors by which calibration rows must favour a mixture. One that is in truth worse by as much as a
standard error of the difference seems so by a chance of 7 %, by two of them 0.6 %; one that is in truth as
good does so more often, and harms nobody."""

BEGUN = 0.75
"""Weight of the model trained alone that a party without rows of some class starts from: corrected for that,
the taught model is seldom the worse of the two on own rows."""

RARE = 0.05
"""Part of the probability of a class without own rows that the taught model keeps where own rows lie."""

MARGIN = 0.25
"""Own rows to come are taken to lie as far as this part of the least nearness of those that are there."""

QUANTILES = (0.1, 0.5)
"""Quantiles of the nearness of own rows that are tried as reach for everyone's rows, who may ask for more."""

SCARCE = 0.5
"""A class of which a party has fewer rows than such a part of what it would have as one among all."""

NOBODY = 0.02
"""A class of which a teacher sees less than such a part of an equal share is nobody's, and no party lacks it;
rules that smooth leave it some."""

STILL = 0.05
"""Probability, in the mean over public rows, that a teacher may move before a model that starts anew on every
fit is fitted to it again; of values so many standard deviations, as a root mean square."""

ALPHAS = (0.5, 0.8)
"""Weights of own rows in a refit that are tried where the one that is asked for costs own rows, the second if
the first serves them better."""


@prints_no_rows
@dataclass(frozen=True)
class Lesson:
    """Public rows that a party is taught in a round.

    Attributes:
        round: the round.
        public: inputs, shape ``(n, ...)``.
        targets: the teacher, shape ``(n, n_outputs)``.
    """

    round: int
    public: Array
    targets: Array


class Chooser:
    """The half of a party that keeps the model trained alone and chooses between it and the taught one.

    Args:
        purpose: rows that the choice is for, ``"own"`` or ``"everyone"``.
        scores: own rows and public rows, and the space in which they are compared.
    """

    def __init__(self, purpose: Purpose, scores: Scores) -> None:
        rows = scores.rows
        self.purpose, self._kind, self._scores = purpose, rows.agreement.kind, scores
        self._train, self._held_out = rows.train, rows.held_out
        self._outcome = outcome_of(rows.agreement.outcome)
        self.alone: Learner | None = None
        """The model trained alone, from before its first teacher; part of the party's state."""
        self.saved: Path | None = None
        """A file that holds it, where there is one."""
        self.choices: list[Choice] = []
        """Choices after each teacher; part of the party's state."""
        self._said: tuple[Learner | None, Array] = None, np.zeros(0)

    def moved_to(self, folder: Path) -> None:
        """Note that the file of the model trained alone is in another folder now."""
        if self.saved is not None:
            self.saved = folder / self.saved.name

    @cached_property
    def region(self) -> OwnRegion | None:
        """Region of own rows; ``None`` where public rows say nothing of what lies near what."""
        try:
            return OwnRegion.of(self._scores.space, self._train[0])
        except InvalidInput:
            return None

    def _ratios(self, X: Array) -> Array:
        """Compute the density ratios of rows, shape ``(n,)``; 0 where there is no region, or no row."""
        return np.zeros(len(X)) if self.region is None or not len(X) else self.region(X)

    @cached_property
    def _held_out_ratios(self) -> Array:
        """Density ratios of the calibration rows."""
        return self._ratios(self._held_out[0])

    @cached_property
    def _train_ratios(self) -> Array:
        """Density ratios of the training rows, each from the others."""
        assert self.region is not None
        return self.region.among_themselves(self._train[0])

    def _held_out_alone(self) -> Array:
        """Predictions of the model trained alone on the calibration rows; it never changes."""
        assert self.alone is not None
        if self._said[0] is not self.alone:
            self._said = self.alone, self.alone.predict(self._held_out[0])
        return self._said[1]

    def _most(self) -> float:
        """The largest weight of the model trained alone.

        For values 1. A classifier gives classes that it was never shown no probability, and a mixture with
        none of the taught model would have an infinite log loss on everyone's rows. By Laplace's rule of
        succession, after n own rows of which none was beyond its own voice, the next one is with a chance of
        1 / (n + 2): that share is the taught model's. It costs own rows less than so many nats, far below
        the standard error of a mean of n losses.
        """
        if self._kind == "regression":
            return 1.0
        return 1 - 1 / (len(self._train[0]) + len(self._held_out[0]) + 2)

    def _candidates(self, lesson: Lesson, taught: Learner, held_out: Array) -> list[Choice]:
        """Choices that are tried: first the model trained alone as far as own rows lie.

        Args:
            lesson: what was taught.
            taught: the taught model.
            held_out: its predictions on the calibration rows.
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
        """Share of own rows of each class, as a part of everyone's share; empty where none is scarce.

        Bins of an outcome are no classes: that one is empty does not say whose a row is.
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
        """Choose how the taught model is mixed with the one trained alone.

        Args:
            taught: the taught model.
            lesson: what it was taught.
            alpha: weight of own rows that it was refitted with, for the record.
            share: weight of own rows among everyone's, for the purpose ``"everyone"``.

        Returns:
            The choice, and its loss on each calibration row.
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
        """Mean losses of every candidate on the public rows as the teacher labels them."""
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
        """Losses of every candidate at rows, ``(n, n_candidates)``, given both models' answers."""
        said = (one.mixed(ours, theirs, ratios) for one in candidates)
        return np.stack([self._row_losses(one, *told) for one in said], axis=1)

    def _row_losses(self, outputs: Array, targets: Array, y: Array | None) -> Array:
        """Losses of rows; of several values as if all varied alike among own rows."""
        if self._outcome is not None:
            return self._outcome.row_losses(outputs, targets, y)
        return row_losses(outputs, targets, self._kind, self._train[1])


def stands_still(before: Array, now: Array, kind: Kind) -> bool:
    """Tell whether a teacher is much as an earlier one, by :data:`STILL`.

    Args:
        before: the earlier teacher, shape ``(n_public, n_outputs)``.
        now: the teacher.
        kind: ``"classification"`` or ``"regression"``.
    """
    if before.shape != now.shape:
        return False
    moved = np.abs(now - before)
    if kind == "classification":
        return bool(moved.sum(axis=1).mean() / 2 <= STILL)
    return bool(((moved**2).mean(axis=0) <= STILL**2 * before.var(axis=0)).all())


def wrong(outputs: Array, targets: Array) -> int:
    """Count the rows whose likeliest class is another one."""
    return int((outputs.argmax(axis=1) != targets.argmax(axis=1)).sum())


def surely_best(losses: Array, others: Array) -> int:
    """Pick the choice of the lowest mean loss among those that surely serve own rows.

    The first one does by itself; another one if its losses are surely lower than those it is held against.

    Args:
        losses: on the calibration rows, shape ``(n, n_candidates)``.
        others: losses that each is held against, of the same shape: those of the model trained alone; those
            of the first choice for one that leaves this model more.

    Returns:
        Position of the choice.
    """
    pairs = zip(losses.T[1:], others.T[1:], strict=True)
    sure = [True, *(surely_lower(mine, theirs) for mine, theirs in pairs)]
    return int(np.where(sure, losses.mean(axis=0), np.inf).argmin())


def surely_lower(losses: Array, others: Array) -> bool:
    """Tell whether losses are lower than others by :data:`EVIDENCE` standard errors of the difference.

    With few rows the quantile is that of Student's t; one row shows nothing.

    Args:
        losses: one number a calibration row, shape ``(n,)``.
        others: the same of another model.
    """
    gains, n = others - losses, len(losses)
    if n < 2:
        return False
    error = gains.std(ddof=1) / np.sqrt(n)
    return bool(gains.mean() > stdtrit(n - 1, ndtr(EVIDENCE)) * error)

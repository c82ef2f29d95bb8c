"""A party's choice between the model trained alone and the taught one, row by row.

    prediction(x) = g(x) alone(x) + (1 − g(x)) taught(x),      g(x) = own min(1, r(x) / reach)^8

r(x) says how near x is to the party's own rows: the density ratio of these to the public ones
(:class:`OwnRegion`), times what the taught model says for a class that the party has rows of and against one
that it lacks (:func:`class_odds`). So the model trained alone counts where own rows lie, and the taught one
elsewhere. ``own`` and ``reach`` are chosen on calibration rows, which neither model was trained on; nothing
of this leaves the party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.errors import InvalidInput
from consilience.learners import Learner, Model
from consilience.party.row_scores import Scores
from consilience.party.shared_space import SharedSpace
from consilience.validation.arrays import Array, same_view
from consilience.validation.labels import Kind
from consilience.validation.numbers import check_number

Purpose = Literal["own", "everyone", "taught"]
"""Rows that a party's predictions are for: its own, everyone's, or the taught model whatever it is for."""

MOST: Mapping[Kind, float] = {"classification": 0.95, "regression": 1.0}
"""Largest weight of the model trained alone: one that was never shown a class gives it no probability, and no
row is surely of one's own classes."""

WEIGHTS = (0.75, 0.5, 0.25)
"""Further weights of the model trained alone that are tried, where own rows lie; 0 is tried too."""

QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75)
"""Quantiles of r on calibration rows that are tried as reach, beside half of its least."""

FEW = 30
"""Calibration rows that are too few for quantiles: training rows count with them."""

FALL = 8
"""Exponent by which g falls beyond the reach."""

LEAST = 1e-3
"""Least probability that odds are taken of."""

SCARCE = 0.5
"""A class of which a party has fewer rows than such a part of what it would have as one among all."""

SLACK = 0.5
"""Standard errors of the loss on calibration rows that own rows may lose, where others are heard for it."""

ALPHAS = (0.5, 0.8)
"""Weights of own rows in a refit that are tried where the one that is asked for costs own rows."""

RIDGE = 1.0
"""Of the density ratio."""

LIKELIHOOD_FLOOR = 1e-6
"""Of the log loss that choices are judged by: one calibration row must not decide alone."""


@dataclass(frozen=True)
class Choice:
    """Weights by which a party mixes its two models, and the losses that they were chosen by.

    Attributes:
        own: weight of the model trained alone where own rows lie, in [0, 1].
        reach: nearness r below which that weight falls; with 0 it is the same everywhere.
        familiar: share of own rows of each class, as a part of its share among everyone's, 1 at most; empty
            where the party lacks none, and classes say nothing of what is its own.
        round: round after which it was chosen.
        alpha: weight of own rows in the refit; ``None`` where the model was not refitted on own rows.
        rows: number of calibration rows that it was judged by.
        counted: mean weight of the model trained alone on these.
        losses: mean losses on these of the model trained alone, of the taught one and of the mixture, in nats
            or squared units; empty where there are no calibration rows.

    Raises:
        InvalidInput: a weight or an exponent out of range.
    """

    own: float
    reach: float
    familiar: tuple[float, ...] = ()
    round: int = 0
    alpha: float | None = None
    rows: int = 0
    counted: float = 0.0
    losses: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_number("own", self.own, at_least=0, at_most=1, where="choice")
        check_number("reach", self.reach, at_least=0, where="choice")
        for share in self.familiar:
            check_number("familiar", share, at_least=0, at_most=1, where="choice")

    def weights(self, ratios: Array, taught: Array) -> Array:
        """Compute g of rows, shape ``(n,)``.

        Args:
            ratios: density ratios of the rows, shape ``(n,)``.
            taught: predictions of the taught model, shape ``(n, n_outputs)``.
        """
        if not self.reach:
            return np.full(len(ratios), float(self.own))
        near = ratios * class_odds(taught, self.familiar)
        return np.asarray(self.own * (np.minimum(near, self.reach) / self.reach) ** FALL)

    def mixed(self, alone: Array, taught: Array, ratios: Array) -> Array:
        """Mix two models' predictions.

        Args:
            alone: of the model trained alone, shape ``(n, n_outputs)``.
            taught: of the taught one.
            ratios: density ratios of the rows, shape ``(n,)``.
        """
        weights = self.weights(ratios, taught)[:, None]
        return np.asarray(weights * alone + (1 - weights) * taught)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Choice:
        """Read a choice from a file.

        Raises:
            KeyError, TypeError, ValueError, InvalidInput: it is damaged.
        """
        alpha = record["alpha"]
        return cls(
            own=record["own"],
            reach=record["reach"],
            familiar=tuple(map(float, record["familiar"])),
            round=int(record["round"]),
            alpha=None if alpha is None else float(alpha),
            rows=int(record["rows"]),
            counted=float(record["counted"]),
            losses=tuple(map(float, record["losses"])),
        )

    @property
    def asks_region(self) -> bool:
        """True if it depends on where a row lies."""
        return self.own > 0 and self.reach > 0

    @property
    def taught_is_worse(self) -> bool:
        """True if the taught model has the larger loss on the calibration rows."""
        return bool(self.losses) and self.losses[1] > self.losses[0]

    def __str__(self) -> str:
        """Say the choice in one line."""
        if not self.own:
            words = "the taught model everywhere"
        elif not self.reach:
            words = f"own model {self.own:g}, taught {1 - self.own:g}, everywhere"
        else:
            words = f"own model up to {self.own:g} where own rows lie, taught elsewhere"
        if self.alpha is not None:
            words += f"; alpha {self.alpha:g}"
        if not self.losses:
            return f"{words}; no calibration rows to judge by"
        alone, taught, chosen = (f"{loss:.3f}" for loss in self.losses)
        return (
            f"{words}; on {self.rows:,} calibration rows it counts {self.counted:.2f}, loss alone {alone}, "
            f"taught {taught}, chosen {chosen}"
        )


class OwnRegion:
    """The region where a party's own rows lie: their density ratio to the public rows, at any row.

    It is made of own rows: whoever has it and the public rows learns where they lie.

    Args:
        space: the space in which rows are compared.
        coefficients: of the ratio (:class:`~consilience.numerics.density.PublicRatio`), one a landmark.
    """

    def __init__(self, space: SharedSpace, coefficients: Array) -> None:
        self.space, self.coefficients = space, coefficients
        self._last: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, space: SharedSpace, rows: Array) -> OwnRegion:
        """Find the region of rows.

        Args:
            space: the space in which rows are compared.
            rows: own training rows, shape ``(n, ...)``.
        """
        ratio = space.ratio(RIDGE)
        found = ratio.coefficients(space.features(rows), np.ones((len(rows), 1)))
        return cls(space, found[:, 0])

    def __call__(self, X: Array) -> Array:
        """Compute the ratio at rows, shape ``(n,)``; kept for the last rows that were asked about."""
        if not len(X):
            return np.zeros(0)
        if self._last is None or not same_view(self._last[0], X):
            ratio = self.space.ratio(RIDGE)
            found = ratio.at(self.space.features(X), self.coefficients[:, None])
            # A row with a gap lies nowhere: it is the others'.
            self._last = X, np.maximum(np.nan_to_num(found[:, 0]), 0)
        return self._last[1]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be computed again."""
        return {**self.__dict__, "_last": None}


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


class MixedModel(Model):
    """A party's model after it was taught: the model trained alone and the taught one, mixed as it chose.

    Args:
        learner: the taught model's.
        classes: column order of its outputs, empty for regression.
        alone: learner of the model trained alone.
        choices: what was chosen after each round; the last counts.
        region: where own rows lie; ``None`` where no choice can ask for it.
    """

    alone: Model

    def __init__(
        self,
        learner: Learner,
        classes: tuple[str, ...],
        *,
        alone: Learner,
        choices: Sequence[Choice],
        region: OwnRegion | None,
    ) -> None:
        super().__init__(learner, classes)
        self.taught, self.alone = Model(learner, classes), Model(alone, classes)
        self.choices, self.region = tuple(choices), region

    def outputs(self, X: Array) -> Array:
        choice = self.choices[-1]
        if not choice.own:
            return self.taught.outputs(X)
        if choice.own == 1 and not choice.reach:
            return self.alone.outputs(X)
        # Before the region is asked: they refuse what does not fit.
        alone, taught = self.alone.outputs(X), self.taught.outputs(X)
        ratios = np.zeros(len(X)) if self.region is None else self.region(np.asarray(X))
        return choice.mixed(alone, taught, ratios)


class Chooser:
    """The half of a party that keeps the model trained alone and chooses between it and the taught one.

    Args:
        purpose: rows that the choice is for, ``"own"`` or ``"everyone"``.
        scores: own rows and public rows, and the space in which they are compared.
    """

    def __init__(self, purpose: Purpose, scores: Scores) -> None:
        self.purpose, self._kind, self._scores = purpose, scores.agreement.kind, scores
        self._train, self._held_out = scores.train, scores.held_out
        self.alone: Learner | None = None
        """The model trained alone, from before its first teacher; part of the party's state."""
        self.saved: Path | None = None
        """A file that holds it, where there is one."""
        self.choices: list[Choice] = []
        """Choices after each teacher; part of the party's state."""

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

    def _candidates(self, lesson: Lesson, taught: Learner, held_out: Array) -> list[Choice]:
        """Choices that are tried: first the model trained alone, then that as far as own rows reach.

        Args:
            lesson: what was taught.
            taught: the taught model.
            held_out: its predictions on the calibration rows.
        """
        reaches, familiar = [0.0], self._familiar(lesson)
        if self.region is not None:
            near = self._held_out_ratios * class_odds(held_out, familiar)
            if len(near) < FEW:
                X = self._train[0]
                odds = class_odds(taught.predict(X), familiar) if familiar else 1.0
                near = np.concatenate([near, self._ratios(X) * odds])
            least = max(float(near.min()) / 2, float(np.finfo(float).tiny))
            reaches = [
                least,
                *(max(least, float(np.quantile(near, one))) for one in QUANTILES),
                0.0,
            ]
        weights = (MOST[self._kind], *WEIGHTS)
        mixed = (Choice(own, reach, familiar) for own in weights for reach in reaches)
        return [Choice(1.0, 0.0), *mixed, Choice(0.0, 0.0)]

    def _familiar(self, lesson: Lesson) -> tuple[float, ...]:
        """Share of own rows of each class, as a part of everyone's share; empty where none is scarce."""
        if self._kind == "regression":
            return ()
        everyone = np.maximum(lesson.targets.mean(axis=0), np.finfo(float).tiny)
        familiar = np.minimum(self._train[1].mean(axis=0) / everyone, 1)
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
            return replace(candidates[1], round=lesson.round, alpha=alpha), np.zeros(0)
        losses = self._losses(candidates, theirs, X, targets, self._held_out_ratios)
        ratios = self._ratios(lesson.public)
        if self.purpose == "everyone":
            X_public = lesson.public
            seen = taught.predict(X_public)
            public = self._losses(candidates, seen, X_public, lesson.targets, ratios)
            best = int((share * losses.mean(axis=0) + (1 - share) * public.mean(axis=0)).argmin())
        else:
            voices = [one.weights(ratios, lesson.targets).mean() for one in candidates]
            best = safest(losses, np.array(voices), candidates)
        counted = candidates[best].weights(self._held_out_ratios, theirs).mean()
        found = replace(
            candidates[best],
            round=lesson.round,
            alpha=alpha,
            rows=len(X),
            counted=float(counted),
            losses=tuple(float(losses[:, one].mean()) for one in (0, -1, best)),
        )
        return found, losses[:, best]

    def _losses(
        self,
        candidates: Sequence[Choice],
        theirs: Array,
        X: Array,
        targets: Array,
        ratios: Array,
    ) -> Array:
        """Losses of every candidate at rows, ``(n, n_candidates)``, given the taught model's answers."""
        assert self.alone is not None
        ours = self.alone.predict(X)
        return np.stack(
            [
                row_losses(one.mixed(ours, theirs, ratios), targets, self._kind)
                for one in candidates
            ],
            axis=1,
        )


def class_odds(taught: Array, familiar: Sequence[float]) -> Array:
    """Weigh the classes that a party has rows of against those that it lacks, as the taught model sees rows.

    ``sum_y f_y t_y / sum_y (1 − f_y) t_y``, both sums 0.001 at least.

    Args:
        taught: probabilities t of the taught model, shape ``(n, n_classes)``.
        familiar: f, how far each class is the party's own, shape ``(n_classes,)``; empty for odds of 1.

    Returns:
        Shape ``(n,)``.
    """
    if not familiar:
        return np.ones(len(taught))
    own = np.array(familiar)
    return np.asarray(np.maximum(taught @ own, LEAST) / np.maximum(taught @ (1 - own), LEAST))


def row_losses(outputs: Array, targets: Array, kind: Kind) -> Array:
    """Compute the log loss in nats, or the squared error, of each row, shape ``(n,)``.

    Args:
        outputs: probabilities or values, shape ``(n, n_outputs)``.
        targets: the same shape; probabilities may be soft.
        kind: ``"classification"`` or ``"regression"``.
    """
    if kind == "regression":
        return np.asarray(((outputs - targets) ** 2).sum(axis=1))
    return np.asarray(-(targets * np.log(np.maximum(outputs, LIKELIHOOD_FLOOR))).sum(axis=1))


def safest(losses: Array, voices: Array, candidates: Sequence[Choice]) -> int:
    """Pick the choice that serves own rows, and no chance of a few calibration rows.

    The others are held against the first candidate, the model trained alone. The second, which leaves it all
    rows as far as own rows reach, is safe by itself. Another one is safe if its mean loss is lower by one
    standard error of the difference; or, where ``own`` is as large as the second's, higher by no more than
    :data:`SLACK` standard errors of the mean loss itself. Of the safe ones the lowest mean loss counts, and
    among those that are as good, by one or the other error, the smallest voice: a party listens to the others
    where its own rows allow.

    Args:
        losses: on the calibration rows, shape ``(n, n_candidates)``, two candidates or more.
        voices: mean weight of the model trained alone on the public rows, shape ``(n_candidates,)``.
        candidates: the choices.

    Returns:
        Position of the choice, 1 or more.
    """
    mean, error = _mean_and_error(losses - losses[:, :1])
    _, spread = _mean_and_error(losses[:, :1])
    slack = SLACK * float(spread[0]) if len(losses) > 1 else 0.0
    hands_over = np.array([one.own == candidates[1].own for one in candidates])
    spared = hands_over & (mean <= slack)
    safe = (mean + error <= 0) | spared
    safe[:2] = False, True
    best = int(np.where(safe, mean, np.inf).argmin())
    more, error = _mean_and_error(losses - losses[:, [best]])
    alike = safe & ((more <= error) | (spared & (mean[best] >= 0)))
    return int(np.where(alike, voices, np.inf).argmin())


def surely_lower(losses: Array, others: Array) -> bool:
    """Tell whether losses are lower than others by one standard error of the difference.

    Args:
        losses: one number a calibration row, shape ``(n,)``.
        others: the same of another model.
    """
    mean, error = _mean_and_error((losses - others)[:, None])
    return bool(mean[0] + error[0] < 0)


def _mean_and_error(differences: Array) -> tuple[Array, Array]:
    """Mean of each column and its standard error; that of a single row is infinite, unless it is 0."""
    n = len(differences)
    if n == 1:
        return differences[0], np.where(differences[0] == 0, 0, np.inf)
    return differences.mean(axis=0), differences.std(axis=0, ddof=1) / np.sqrt(n)

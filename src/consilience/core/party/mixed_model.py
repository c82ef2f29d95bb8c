"""Mixture of a party's local model and its distilled model, with a weight for each row.

    prediction(x) = g(x) (own alone(x) + (1 − own) here(x)) + (1 − g(x)) taught(x)
    g(x) = min(1, r(x) / reach)

r(x) measures how near x is to the party's own rows. It is the density ratio of own rows to public rows
(:class:`OwnRegion`), times the odds that the distilled model gives to the classes of the party against the
classes without own rows (:func:`class_odds`). The local model therefore dominates near own rows, and the
distilled model elsewhere. here(x) is the prediction of the distilled model, corrected for own rows: the
probability of a class without own rows is multiplied by ``rare``, and all are scaled to sum to 1 (Bayes' rule
for another prior, Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities",
equation 4). Each party chooses ``own``, ``reach`` and ``rare`` (:mod:`consilience.core.party.personalizer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner, Model
from consilience.core.numerics.outcomes import Outcome
from consilience.core.party.shared_space import SharedSpace
from consilience.core.validation.arrays import Array, same_view
from consilience.core.validation.numbers import check_number

LEAST = 1e-3
"""Lower bound of the two sums in class odds, and of density ratios; a fit cannot resolve smaller ones."""

RIDGE = 1.0
"""Ridge of the density ratio."""

FOLDS = 10
"""Number of folds of own rows; the ratio at the rows of a fold is computed from the other folds."""


@dataclass(frozen=True)
class Choice:
    """Weights of a party's mixture of two models, and the losses of the candidates on calibration rows.

    Attributes:
        own: weight of the local model near own rows, in [0, 1].
        reach: nearness r below which this weight decreases; 0 applies it everywhere.
        familiar: share of each class among own rows, divided by its share among all parties' rows, at most 1;
            empty if no class is scarce, so that classes do not affect the nearness.
        rare: factor for the probability of a class without own rows in the distilled model near own rows, in
            (0, 1].
        least: lower bound of positive density ratios; a fit to few own rows cannot resolve smaller ones.
        round: round of the choice.
        alpha: weight of own rows in the refit; ``None`` if the model was not refitted on own rows.
        rows: number of calibration rows in the comparison.
        counted: mean weight of the local model on these rows.
        losses: mean losses on these rows of the local model, the corrected distilled model and the mixture,
            in nats or squared units; empty without calibration rows.

    Raises:
        InvalidInput: a weight or a loss out of range.
    """

    own: float
    reach: float
    familiar: tuple[float, ...] = ()
    rare: float = 1.0
    least: float = 0.0
    round: int = 0
    alpha: float | None = None
    rows: int = 0
    counted: float = 0.0
    losses: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_number("own", self.own, at_least=0, at_most=1, where="choice")
        check_number("reach", self.reach, at_least=0, where="choice")
        check_number("rare", self.rare, above=0, at_most=1, where="choice")
        check_number("least", self.least, at_least=0, where="choice")
        for share in self.familiar:
            check_number("familiar", share, at_least=0, at_most=1, where="choice")
        for loss in self.losses:
            check_number("losses", loss, where="choice")
        if len(self.losses) not in (0, 3):
            raise InvalidInput(f"{len(self.losses)} losses, expected 3 or none", where="choice")

    def near(self, ratios: Array, taught: Array) -> Array:
        """Compute g of rows.

        Args:
            ratios: density ratios of the rows, shape ``(n,)``.
            taught: predictions of the distilled model, shape ``(n, n_outputs)``.

        Returns:
            Shape ``(n,)``, in [0, 1].
        """
        if not self.reach:
            return np.ones(len(ratios))
        told = np.where(ratios > 0, np.maximum(ratios, self.least), 0.0)
        return np.asarray(np.minimum(told * class_odds(taught, self.familiar) / self.reach, 1.0))

    def mixed(self, alone: Array, taught: Array, ratios: Array) -> Array:
        """Mix the predictions of the two models.

        Args:
            alone: predictions of the local model, shape ``(n, n_outputs)``.
            taught: predictions of the distilled model, shape ``(n, n_outputs)``.
            ratios: density ratios of the rows, shape ``(n,)``.

        Returns:
            Shape ``(n, n_outputs)``.
        """
        near, here = self.near(ratios, taught)[:, None], self.corrected(taught)
        return np.asarray(near * (self.own * alone + (1 - self.own) * here) + (1 - near) * taught)

    def corrected(self, taught: Array) -> Array:
        """Correct predictions of the distilled model for own rows, shape ``(n, n_outputs)``."""
        if self.rare == 1:
            return taught
        here = taught * np.where(np.array(self.familiar) > 0, 1.0, self.rare)
        return np.asarray(here / here.sum(axis=1, keepdims=True))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Choice:
        """Read a choice from a file.

        Raises:
            KeyError, TypeError, ValueError, InvalidInput: the record is damaged.
        """
        alpha = record["alpha"]
        return cls(
            own=record["own"],
            reach=record["reach"],
            familiar=tuple(map(float, record["familiar"])),
            rare=record["rare"],
            least=record["least"],
            round=int(record["round"]),
            alpha=None if alpha is None else float(alpha),
            rows=int(record["rows"]),
            counted=float(record["counted"]),
            losses=tuple(map(float, record["losses"])),
        )

    @property
    def asks_region(self) -> bool:
        """True if the mixture depends on the density ratio of a row."""
        return self.own > 0 and self.reach > 0

    @property
    def taught_is_worse(self) -> bool:
        """True if the distilled model has the larger loss on the calibration rows."""
        return bool(self.losses) and self.losses[1] > self.losses[0]

    def __str__(self) -> str:
        """Describe the choice in one line."""
        if not self.own:
            words = "the taught model everywhere"
        elif not self.reach:
            words = f"own model {self.own:g}, taught {1 - self.own:g}, everywhere"
        else:
            words = f"own model up to {self.own:g} where own rows lie, taught elsewhere"
        if self.own and self.rare < 1:
            words += f"; there classes without own rows count {self.rare:g} times"
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
    """Density ratio of a party's own rows to the public rows, at any row.

    The ratio is fitted to own rows: together with the public rows, it reveals where they lie.

    Args:
        space: space in which rows are compared.
        coefficients: coefficients of the ratio (:class:`~consilience.core.numerics.density.PublicRatio`), one
            for each landmark.
    """

    def __init__(self, space: SharedSpace, coefficients: Array) -> None:
        self.space, self.coefficients = space, coefficients
        self._last: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, space: SharedSpace, rows: Array) -> OwnRegion:
        """Fit the density ratio of own rows to the public rows.

        Args:
            space: space in which rows are compared.
            rows: own training rows, shape ``(n, ...)``.

        Returns:
            The fitted region.
        """
        ratio = space.ratio(RIDGE)
        found = ratio.coefficients(space.features(rows), np.ones((len(rows), 1)))
        return cls(space, found[:, 0])

    def __call__(self, X: Array) -> Array:
        """Compute the ratio at rows, shape ``(n,)``; the result for the latest rows is cached."""
        if not len(X):
            return np.zeros(0)
        if self._last is None or not same_view(self._last[0], X):
            ratio = self.space.ratio(RIDGE)
            found = ratio.at(self.space.features(X), self.coefficients[:, None])
            self._last = X, _told(found[:, 0])
        return self._last[1]

    def among_themselves(self, rows: Array) -> Array:
        """Compute the ratio at the rows of the region by cross-fitting over :data:`FOLDS` folds.

        A fit gives a higher ratio at its own rows than at other rows. The ratio of each row is therefore
        computed from the other folds.

        Args:
            rows: own training rows, shape ``(n, ...)``.

        Returns:
            Shape ``(n,)``; :data:`LEAST` for a single row.
        """
        ratio, features = self.space.ratio(RIDGE), self.space.features(rows)
        part = np.arange(len(rows)) % FOLDS
        pieces = ratio.coefficients(features, np.eye(FOLDS)[part])
        counted = np.maximum(len(rows) - np.bincount(part, minlength=FOLDS), 1)
        others = (pieces.sum(axis=1, keepdims=True) - pieces) * (len(rows) / counted)
        found = ratio.at(features, others)[np.arange(len(rows)), part]
        return _told(found)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the cached result."""
        return {**self.__dict__, "_last": None}


def _told(found: Array) -> Array:
    """Clip ratios below at :data:`LEAST`."""
    return np.asarray(np.maximum(found, LEAST))


class MixedModel(Model):
    """A party's model after distillation: the mixture of its local model and its distilled model.

    Args:
        learner: learner of the distilled model.
        classes: class names in column order; empty for regression.
        alone: learner of the local model.
        choices: choices after each round; predictions use the last.
        region: density ratio of own rows; ``None`` if the last choice does not use it or none can be fitted.
        outcome: coding of the classes as bins of an outcome; ``None`` for ordinary classes and values.
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
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(learner, classes, outcome)
        self.taught = Model(learner, classes, outcome)
        self.alone = Model(alone, classes, outcome)
        self.choices, self.region = tuple(choices), region

    def __repr__(self) -> str:
        return f"MixedModel({self.taught.learner!r})"

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


def class_odds(taught: Array, familiar: Sequence[float]) -> Array:
    """Compute the odds of a party's own classes against the classes that the party lacks.

    ``sum_y f_y t_y / sum_y (1 − f_y) t_y``, both sums 0.001 at least.

    Args:
        taught: probabilities t of the distilled model, shape ``(n, n_classes)``.
        familiar: share f of each class among own rows relative to all rows, shape ``(n_classes,)``; empty for
            odds of 1.

    Returns:
        Shape ``(n,)``.
    """
    if not familiar:
        return np.ones(len(taught))
    own = np.array(familiar)
    return np.asarray(np.maximum(taught @ own, LEAST) / np.maximum(taught @ (1 - own), LEAST))

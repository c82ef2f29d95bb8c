"""Compute a party's scores for the rules of other papers: membership of public rows, and second moments.

Functions of a party's :class:`~consilience.core.party.row_scores.Scores`; each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.randomness import stream
from consilience.core.party.row_scores import Scores
from consilience.core.party.shared_space import SharedSpace
from consilience.core.validation.arrays import Array
from consilience.methods.comparison_rules import membership
from consilience.methods.comparison_rules.scores import LARGEST_LOG_ODDS


def log_odds(scores: Scores, reference: str) -> Array:
    """Compute the log odds that public rows are the party's own, with equal weight for both sides.

    Args:
        scores: the party's scores.
        reference: ``"public"`` for the public rows, scored by cross-fitting, or ``"generated"`` for synthetic
            rows drawn from a mixture fitted to the public rows.

    Returns:
        Shape ``(n_public,)``, clipped to the log odds of the probabilities 1e-4 and 1 - 1e-4.
    """

    def computed() -> Array:
        common = scores.space
        space, against, at = common.words, common.public_words, None
        if reference == "generated":
            space, against, at = common.coordinates, _generated(common), common.public
        codes, others = (
            np.zeros(len(rows[0]), int) for rows in (scores.rows.train, scores.rows.held_out)
        )
        odds = membership.log_odds(
            space(scores.rows.train[0]),
            codes,
            against,
            _halves(scores),
            held_out=_unless_empty(space, scores.rows.held_out[0], others),
            at=at,
            balanced=True,
        )
        return np.asarray(odds[:, 0].clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))

    return scores.once(f"log odds {reference}", computed)


def logistic_ratios(scores: Scores, *, calibration: bool = False) -> Array:
    """Compute density ratios of each class by a logistic regression between classes and public rows.

    Args:
        scores: the party's.
        calibration: of the rows held out alone.

    Returns:
        Shape ``(n_public, n_classes)``, from 0 to the party's rows of the class.

    Raises:
        InvalidInput: the party does regression, or holds out no rows.
    """
    X, targets = scores.rows.held_out if calibration else scores.rows.train
    if scores.rows.agreement.kind == "regression" or not len(X):
        raise InvalidInput(
            "there are no classes, or no rows of them, to compare with public rows",
            where=f"party {scores.rows.party!r}",
            mend="Choose a rule that needs no density ratios, such as avg or mean.",
        )

    def computed() -> Array:
        space, (others, theirs) = scores.space.words, scores.rows.held_out
        odds = membership.log_odds(
            space(X),
            targets.argmax(axis=1),
            scores.space.public_words,
            _halves(scores),
            held_out=None if calibration else _unless_empty(space, others, theirs.argmax(axis=1)),
            groups=targets.shape[1],
        )
        counts = targets.sum(axis=0) + (0 if calibration else theirs.sum(axis=0))
        return np.asarray(np.minimum(np.exp(odds), counts))

    return scores.once(f"logistic ratios {calibration}", computed)


def likeness(scores: Scores, energy: float) -> Array:
    """Compute the share of each public row's squared length in the subspace of the party's rows.

    Args:
        scores: the party's.
        energy: share of the squared length of the party's rows that the subspace holds, in (0, 1].

    Returns:
        Shape ``(n_public,)``, in [0, 1].
    """
    space = scores.space.space

    def computed() -> Array:
        own = space(scores.rows.train[0])
        return membership.subspace_likeness(own, space.public, energy=energy)

    return scores.once(f"likeness {energy!r}", computed)


def moments(scores: Scores) -> Array:
    """Add up second moments of all rows' features, and of these with targets: ``(d, d + n_outputs)``."""
    X, targets = scores.rows.used
    features = scores.space.dense_features(X)
    return np.asarray(features.T @ np.hstack([features, targets]))


def _generated(space: SharedSpace) -> Array:
    """Draw synthetic rows from a mixture fitted to the public rows' coordinates, one for each public row."""

    def computed() -> Array:
        rng = stream(space.seed, "coordinator", 0, "generated rows")
        return membership.rows_like(space.public, rng)

    return space.once("generated rows", computed)


def _halves(scores: Scores) -> np.random.Generator:
    """Stream that draws which public rows are judged by which classifier."""
    return stream(scores.rows.agreement.seed, "coordinator", 0, "halves")


def _unless_empty(
    space: Callable[[Array], Any], X: Array, codes: Array
) -> tuple[Any, Array] | None:
    """Features and groups of rows, ``None`` if there are no rows."""
    return (space(X), codes) if len(X) else None

"""Importance weights of public rows for a party without labels, used only if they improve its own loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner
from consilience.core.numerics.losses import row_losses
from consilience.core.party.personalizer import Lesson, surely_lower
from consilience.core.validation.arrays import Array


def weights_that_serve(
    make: Callable[[], Learner],
    lesson: Lesson,
    weights: Array,
    rng: Callable[[str], np.random.Generator],
) -> Array | None:
    """Return importance weights of public rows, or ``None`` if equal weights are as good.

    Weights reduce the effective number of rows, which hurts a model that fits all rows well anyway. Two-fold
    cross-validation therefore compares models trained with and without the weights. It computes the loss
    against the teacher on the held-out half, weighted by the importance weights. The weights must lower this
    loss by half a standard error.

    Args:
        make: makes an untrained model.
        lesson: public rows and their teacher.
        weights: importance weights of the rows, shape ``(n,)``.
        rng: makes random numbers for a named purpose.

    Returns:
        The weights, shape ``(n,)``; ``None`` if equal weights are as good or a model cannot be fitted.

    Source:
        Sugiyama, Krauledat & Müller 2007, "Covariate shift adaptation by importance weighted cross
        validation".
    """
    half = rng("halves").permutation(len(weights)) % 2
    found = []
    for given in (weights, np.ones(len(weights))):
        losses = np.zeros(len(weights))
        for part in (0, 1):
            seen, learner = half != part, make()
            try:
                learner.fit(
                    lesson.public[seen],
                    lesson.targets[seen],
                    rng=rng("importance"),
                    weights=given[seen],
                    phase="first",
                )
            except InvalidInput:  # too few rows, or of too few classes
                return None
            said = learner.predict(lesson.public[~seen])
            losses[~seen] = row_losses(
                said, lesson.targets[~seen], learner.abilities.kind, lesson.targets
            )
        found.append(weights * losses)
    return weights if surely_lower(*found) else None

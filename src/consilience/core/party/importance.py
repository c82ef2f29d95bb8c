"""Public rows that count more for a party without labels: only where that is seen to serve its own rows."""

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
    """Return weights of public rows, or ``None`` where equal ones are as good.

    Weights make few rows of many, which costs more than it brings where a model fits all rows anyway. So half
    of the rows are predicted by models trained on the other half, with the weights and without, and held
    against the teacher, each row by its weight: the weights have to be better by half a standard error.

    Args:
        make: makes an untrained model.
        lesson: public rows and their teacher.
        weights: of the rows, shape ``(n,)``.
        rng: random numbers for a purpose.

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

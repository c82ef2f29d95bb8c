"""Training with noise at a party: its network's parameters are released, once, and all else comes of them.

Private rows are trained on once in a party's life. What a later round has it train on are public rows; its
predictions cost nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.party.rows import target_rows
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.ledger import Release

if TYPE_CHECKING:
    from consilience.core.party.party import Party
    from consilience.core.party.trainer import Training

WITH_NOISE = "trained with noise"
"""What a party's memory holds while its network comes of the release and of public rows alone."""


def training_releases(party: Party) -> tuple[Release, ...]:
    """Name the release of a party's training with noise; none where it trains without, or has not joined.

    Raises:
        InvalidInput: nothing bounds what a row does to its network, or there are no public rows.
    """
    budget = party.privacy.accountant.budget
    if party.noisy is None or budget is None or party.agreement is None or party.public is None:
        return ()
    if not len(party.public):
        raise InvalidInput(
            "its network is trained with noise, and there are no public rows to build it by",
            where=f"party {party.name!r}",
            mend="Take a protocol with public rows, such as ensemble_distillation.",
            code="budget",
        )
    model: Any = party.untrained()
    network = model.bounded(party.public.X[:2])
    question = (network, repr(party.noisy), str(party.X.shape[1:]), *party.agreement.classes)
    return (Release.of("training with noise", question, budget.training_loss),)


def fit_with_noise(training: Training) -> None:
    """Train on all private rows with noise, once in a party's life; further calls leave its model as it is.

    Where the parameters were released before, whatever the seed and the federation, the model begins with
    those.

    Args:
        training: the party, which has a budget for it.
    """
    party = cast("Party", training)
    if WITH_NOISE in party.memory:
        return
    budget, agreement, public, how = (
        party.privacy.accountant.budget,
        party.agreement,
        party.public,
        party.noisy,
    )
    assert budget is not None and agreement is not None and public is not None and how is not None
    learner: Any = party.changing()
    learner.start(public.X[:2], rng=party.stream(0, "fit"))
    shapes = {name: part.shape for name, part in sorted(learner.parameters().items())}

    def draw() -> Array:
        units = np.arange(len(party.y)) if party.privacy_units is None else party.privacy_units
        learner.fit_with_noise(
            party.X[: len(party.y)],
            target_rows(party.y, agreement, where=f"party {party.name!r}"),
            units,
            rate=how.rate,
            steps=how.steps,
            batch=how.batch,
            clip=how.clip,
            noise=how.noise(budget.each or budget.epsilon, budget.delta),
            source=party.noise,
        )
        drawn = learner.parameters()
        return np.concatenate([drawn[name].ravel() for name in shapes])

    (release,) = training_releases(party)
    values = party.privacy.accountant.release(release, draw)
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])[:-1]
    parts = zip(shapes.items(), np.split(values, ends), strict=True)
    learner.set_parameters({name: part.reshape(shape) for (name, shape), part in parts})
    party.memory[WITH_NOISE] = np.ones(1)


def check_with_noise(training: Training) -> None:
    """Raise ``KnowledgeRefused`` if a network that has to be trained with noise was not yet."""
    if training.noisy is not None and WITH_NOISE not in training.memory:
        raise KnowledgeRefused("its network was not trained with noise yet", code="budget")

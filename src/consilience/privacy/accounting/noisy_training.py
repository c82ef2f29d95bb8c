"""Network training with noise at a party: one release of the parameters, from which all predictions follow.

A party trains on its private rows once in its life. In later rounds it trains only on public rows, and its
predictions cost no more privacy budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.numerics.randomness import NoiseSource
from consilience.core.party.rows import target_rows
from consilience.core.party.trainer import WITH_NOISE
from consilience.core.party.view import PartyView
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.accounting.privacy_of import privacy_of


@dataclass(frozen=True)
class NoisyFit:
    """Training of a party's network with noise, which replaces ordinary training.

    Attributes:
        party: the party.
        budget: privacy budget of the party.
        how: settings of the training.
        source: factory of the noise source.
    """

    party: PartyView
    budget: Budget
    how: NoisyTraining
    source: NoiseSource

    def costs(self) -> tuple[Release, ...]:
        """List the release of the training; the list is empty before the party has joined.

        Raises:
            InvalidInput: the effect of one row on the network cannot be bounded, or there are no public rows.
        """
        party = self.party
        if party.agreement is None:
            return ()
        trainer = party.trainer
        if not len(trainer.public):
            raise InvalidInput(
                "its network is trained with noise, and there are no public rows to build it by",
                where=f"party {party.name!r}",
                mend="Take a protocol with public rows, such as ensemble_distillation.",
                code="budget",
            )
        model: Any = trainer.untrained()
        from consilience.privacy.accounting.dp_sgd import bounded_network  # it imports torch

        network = bounded_network(model, trainer.public.X[:2])
        question = (
            network,
            repr(self.how),
            str(party.rows.X.shape[1:]),
            *trainer.agreement.classes,
        )
        return (Release.of("training with noise", question, self.budget.training_loss),)

    def fit(self) -> None:
        """Train on all private rows with noise, once in a party's life; later calls do not train.

        If parameters of the same network and settings were released before, the model uses those. The seed
        and the federation do not matter for this.
        """
        party, how, budget = self.party, self.how, self.budget
        trainer, rows = party.trainer, party.rows
        if WITH_NOISE in trainer.memory:
            return
        from consilience.privacy.accounting.dp_sgd import fit_with_noise  # it imports torch

        learner: Any = trainer.changing()
        learner.start(trainer.public.X[:2], rng=trainer.rows.stream(0, "fit"))
        shapes = {name: part.shape for name, part in sorted(learner.parameters().items())}

        def draw() -> Array:
            units = privacy_of(party).rows.unit
            units = np.arange(len(rows.y)) if units is None else units
            fit_with_noise(
                learner,
                rows.X[: len(rows.y)],
                target_rows(rows.y, trainer.agreement, where=f"party {party.name!r}"),
                units,
                rate=how.rate,
                steps=how.steps,
                batch=how.batch,
                clip=how.clip,
                noise=how.noise(budget.each or budget.epsilon, budget.delta),
                source=self.source,
            )
            drawn = learner.parameters()
            return np.concatenate([drawn[name].ravel() for name in shapes])

        (release,) = self.costs()
        values = privacy_of(party).accountant.release(release, draw)
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])[:-1]
        parts = zip(shapes.items(), np.split(values, ends), strict=True)
        learner.set_parameters({name: part.reshape(shape) for (name, shape), part in parts})
        trainer.memory.keep(**{WITH_NOISE: np.ones(1)})

    def check_trained(self) -> None:
        """Raise ``KnowledgeRefused`` if the network has not been trained with noise yet."""
        if WITH_NOISE not in self.party.trainer.memory:
            raise KnowledgeRefused("its network was not trained with noise yet", code="budget")

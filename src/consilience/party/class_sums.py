"""Class sums of a party, and the noise that they leave with."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.schema import Agreement
from consilience.messages.scores import ClassSums
from consilience.numerics.class_sums import SCALE, PublicBasis, class_sums
from consilience.numerics.randomness import NoiseSource
from consilience.party.shared_space import shared_space
from consilience.transforms.privacy import Budget, Mechanism
from consilience.transforms.privacy_ledger import Release
from consilience.validation.arrays import Array

if TYPE_CHECKING:
    from consilience.party.party import Party


def sums_of(party: Party, basis: PublicBasis) -> Array:
    """Sum up all private rows of a party by class, those too that training leaves out.

    Which rows are held out, or found among the public ones, may change for all rows when one is added; so
    nothing of that is asked here.

    Args:
        party: the party, which has joined.
        basis: features of public rows, of whatever origin.

    Returns:
        Steps of the grid, shape ``(n_classes, d + 1)``, int64.

    Raises:
        InvalidInput: the party does regression.
        KnowledgeRefused: the basis names public rows that there are not.
    """
    agreement, public = party.agreement, party.public
    assert agreement is not None and public is not None
    if agreement.kind == "regression" or party.outcome is not None:
        raise InvalidInput("class sums are of classes, it has none", where=f"party {party.name!r}")
    if basis.landmarks.min() < 0 or basis.landmarks.max() >= len(public):
        raise KnowledgeRefused("the basis names public rows that there are not")
    space = shared_space(public, 0).space
    place = {name: code for code, name in enumerate(agreement.classes)}
    codes = np.array([place[name] for name in party.y.tolist()], dtype=np.int64)
    rows = basis(space(party.X[: len(codes)]), space.public)
    return class_sums(rows, codes, len(place), party.privacy_units)


class BudgetNoise(Mechanism):
    """Gaussian noise on sums of the grid, exactly of the loss that the budget has for a release.

    Args:
        budget: the party's budget.
        source: makes the source of the noise.
    """

    def __init__(self, budget: Budget, source: NoiseSource) -> None:
        self.loss = budget.release
        self._budget, self._source = budget, source

    def noisy(self, values: Array, sigma: float) -> Array:
        """Add noise to whole numbers of the grid, and round it.

        Args:
            values: steps, int64.
            sigma: standard deviation of the noise, in steps.
        """
        noise = self._source().normal(scale=sigma, size=values.shape)
        return np.asarray(np.rint(values + noise), dtype=np.int64)

    def stated(self, released: Any) -> Any:
        """Say what the party guarantees by its budget of today, which may be larger than it was."""
        said = {k: v for k, v in asdict(self._budget).items() if k in _STATED}
        return replace(released, **said)


_STATED = ("epsilon", "delta", "adjacency", "unit")


class SumsNoise(BudgetNoise):
    """Noise on class sums.

    They are released once for a basis, public rows and classes, whatever the seed, the round and the
    federation. Private rows are no part of the question: sums do not follow rows that change later.
    """

    reply_type = ClassSums

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in each sum, in steps."""
        return SCALE * self._budget.sigma

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Name the release by the basis, the public rows and the classes."""
        assert agreement is not None
        asked = (task.digest, agreement.public, agreement.encoder, *agreement.classes)
        return Release.of("class sums", asked, self.loss)

    def release(self, reply: ClassSums) -> ClassSums:
        """Add the noise, and say how much there is."""
        return replace(reply, values=self.noisy(reply.values, self.sigma), sigma=self.sigma)

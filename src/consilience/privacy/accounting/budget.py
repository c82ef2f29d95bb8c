"""Budget of privacy: the most that all that leaves a party may tell of one unit of its private data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from consilience.core.errors import InvalidInput
from consilience.core.validation.arguments import check_arguments
from consilience.core.validation.numbers import check_choice, check_flag, check_number
from consilience.privacy.accounting.losses import Adjacency, NoisyTraining, PrivacyLoss, gaussian_mu

Noise = Literal["own", "shared"]
"""Noise on class sums: enough by itself, or together with that of the other parties of a secure sum."""


@dataclass(frozen=True)
class Budget:
    """Limit of what all that leaves a party may tell of one unit of its private data, in all its life.

    Attributes:
        epsilon: ε > 0.
        delta: δ in (0, 1), far below one over the number of units: a δ of that size permits publishing one.
        adjacency: neighbouring data: with and without one unit, or with another in its place.
        unit: ``"row"``, or the column whose values are units, such as patients.
        each: ε of one release with the party's own noise; by default all of ``epsilon``.
        measured: whether metrics leave, outside of the guarantee: for experiments, where no data are private.
        arrivals: how many arrivals of rows have come, a number that is declared and not read off the rows.
            Sums of a later one are a release of its rows alone: where a unit is a row, earlier ones spend
            nothing; any other unit may have rows in all of them, and is charged for each.
        training: training of its network with noise, or a table of its fields: that is the one release then,
            and the network's predictions leave. ``None`` for models that nothing of leaves.
        noise: ``"own"`` is enough by itself. ``"shared"`` is a part of it: class sums leave under the masks
            of a secure sum alone, whose fewest parties have enough together, and nobody sees less than that.
        colluding: with shared noise, parties that may know their parts and tell them; 1 at least, for every
            party knows its own.

    Raises:
        InvalidInput: a setting that bounds nothing.
    """

    epsilon: float
    delta: float = 1e-5
    adjacency: Adjacency = "add-remove"
    unit: str = "row"
    each: float | None = None
    measured: bool = False
    arrivals: int = 1
    training: NoisyTraining | None = None
    noise: Noise = "own"
    colluding: int = 1

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_choice("noise", self.noise, get_args(Noise), where=where)
        check_flag("measured", self.measured, where=where)
        if not isinstance(self.unit, str) or not self.unit:
            raise InvalidInput(
                f"unit is {self.unit!r}", where=where, mend='Give "row", or a column.'
            )
        check_number("colluding", self.colluding, at_least=1, whole=True, where=where)
        if self.noise == "shared" and (self.training is not None or self.arrivals > 1):
            raise InvalidInput(
                'noise = "shared" is for class sums of one arrival: a second would use noise twice',
                where=where,
                mend='Take noise = "own" for trainings and for several arrivals.',
            )
        if isinstance(self.training, Mapping):
            check_arguments(NoisyTraining, self.training, where=f"{where}, training")
            object.__setattr__(self, "training", NoisyTraining(**self.training))
        if self.training is not None and self.adjacency != "add-remove":
            raise InvalidInput(
                "the loss of training with noise is known for rows that are added or removed",
                where=where,
                mend='Leave adjacency = "replace" out.',
            )
        check_number("epsilon", self.epsilon, above=0, where=where)
        check_number("delta", self.delta, above=0, below=1, where=where)
        check_choice("adjacency", self.adjacency, get_args(Adjacency), where=where)
        check_number("each", self.each, above=0, at_most=self.epsilon, optional=True, where=where)
        check_number("arrivals", self.arrivals, at_least=1, whole=True, where=where)
        if self.arrivals > 1 and self.adjacency == "replace":
            raise InvalidInput(
                "arrivals are charged alone where a row is added or removed, and not where one is replaced",
                where=where,
                mend='Take adjacency = "add-remove", or one arrival.',
            )

    def check_delta(self, units: int, *, where: str) -> None:
        """Raise ``InvalidInput`` where δ is beyond 1 / (10 n).

        Args:
            units: number n of the units.
            where: whose they are, for the error.
        """
        if self.delta * units * 10 > 1:
            raise InvalidInput(
                f"delta is {self.delta:g} and there are {units:,} units: a δ of one in so many permits "
                "publishing one of them",
                where=f"{where}, delta",
                mend=f"Give 1 / {10 * units:,} or less.",
            )

    @property
    def release(self) -> PrivacyLoss:
        """Loss of one release with the party's own Gaussian noise."""
        mu = gaussian_mu(self.epsilon if self.each is None else self.each, self.delta)
        return PrivacyLoss(mu, (), self.adjacency, self.unit)

    @property
    def training_loss(self) -> PrivacyLoss:
        """Loss of the training with noise, which is one release."""
        assert self.training is not None
        epsilon = self.epsilon if self.each is None else self.each
        return replace(self.training.loss(epsilon, self.delta), unit=self.unit)

    @property
    def sigma(self) -> float:
        """Standard deviation of noise on sums that one unit moves by 1 at most, and replaced by 2."""
        return (1 if self.adjacency == "add-remove" else 2) / self.release.mu

"""Privacy budget of a party: a limit on the total privacy loss of everything that the party sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from consilience.core.errors import InvalidInput
from consilience.core.validation.arguments import check_arguments
from consilience.core.validation.numbers import check_choice, check_flag, check_number
from consilience.privacy.accounting.losses import Adjacency, NoisyTraining, PrivacyLoss, gaussian_mu

Noise = Literal["own", "shared"]
"""Noise on class sums: ``"own"`` suffices alone, ``"shared"`` only within a secure sum of several parties."""


@dataclass(frozen=True)
class Budget:
    """Differential-privacy budget of a party, which limits the privacy loss over the party's whole life.

    Attributes:
        epsilon: ε > 0.
        delta: δ in (0, 1), far below 1 / (number of units), because a δ of that size permits publishing one
            unit.
        adjacency: neighbouring data: ``"add-remove"`` adds or removes one unit, ``"replace"`` replaces one
            unit.
        unit: unit of privacy: ``"row"``, or the name of the column whose values identify units, such as
            patients.
        each: ε of one release with the party's own noise; ``None`` uses all of ``epsilon``.
        measured: send metrics without noise, outside of the guarantee; for experiments without private data.
        arrivals: number of arrivals of rows so far. The party declares this number and does not count rows.
            Class sums of a later arrival are a release of the rows of that arrival only. If the unit is a
            row, earlier rows are not charged for it. Another unit may have rows in every arrival, so each
            release is charged.
        training: settings of network training with noise (DP-SGD), or a mapping of its fields. The training
            is then the one release, and the party sends predictions of the network. ``None`` for other
            models.
        noise: ``"own"``: the noise of this party suffices alone. ``"shared"``: the party adds a part of the
            noise and sends class sums only under the masks of a secure sum. The smallest permitted number of
            parties together adds enough noise, and the coordinator sees only their sum.
        colluding: number of parties that may pool their shares of the noise, with ``noise="shared"``. At
            least 1, because every party has its own share.

    Raises:
        InvalidInput: a setting is out of range, or two settings do not fit together.
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
        """Raise ``InvalidInput`` if δ exceeds 1 / (10 n).

        Args:
            units: number n of units.
            where: owner of the units, for the error message.
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

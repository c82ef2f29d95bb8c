"""Class sums of a party, and the noise that they leave with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.schema import Agreement
from consilience.core.numerics.randomness import NoiseSource, SystemNoise
from consilience.core.party.shared_space import shared_space
from consilience.core.party.view import PartyView
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import PrivacyLoss, skellam_loss
from consilience.privacy.accounting.mechanisms import Mechanism
from consilience.privacy.accounting.privacy_of import arrived_by, privacy_of
from consilience.privacy.accounting.stage import BudgetExceeded
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.sums import (
    NO_BOUNDS,
    SCALE,
    PublicBasis,
    at_the_ends,
    class_sums,
)


def sums_of(
    party: PartyView, basis: PublicBasis, bounds: Array = NO_BOUNDS, arrival: int | None = None
) -> Array:
    """Sum up all private rows of a party by class, those too that training leaves out.

    Which rows are held out, or found among the public ones, may change for all rows when one is added; so
    nothing of that is asked here. Values are shares of a row at both ends of their bounds, and these stand in
    for classes.

    Args:
        party: the party, which has joined.
        basis: features of public rows, of whatever origin.
        bounds: low and high of each target, shape ``(t, 2)``.
        arrival: the arrival whose rows are summed up; by default all that its budget counts.

    Returns:
        Steps of the grid, shape ``(n_classes, d + 1)``, or ``(2 t, d + 1)``, int64.

    Raises:
        InvalidInput: the party predicts neither classes nor as many values as there are bounds.
        KnowledgeRefused: the basis names public rows or columns that there are not.
    """
    agreement, public = party.trainer.agreement, party.trainer.public
    values = agreement.kind == "regression"
    if party.rows.outcome is not None or len(bounds) != (agreement.outputs if values else 0):
        raise InvalidInput(
            "class sums are of classes, or of values with bounds", where=f"party {party.name!r}"
        )
    if basis.landmarks.min() < 0 or basis.landmarks.max() >= len(public):
        raise KnowledgeRefused("the basis names public rows that there are not")
    space = shared_space(public, 0).of_sums
    known = space.public
    columns = basis.trees[..., 0]
    if columns.min(initial=0) < 0 or columns.max(initial=0) >= known.shape[1]:
        raise KnowledgeRefused("the basis names columns that there are not")
    own, units = party.rows, privacy_of(party).rows.unit
    X, y = own.X[: len(own.y)], own.y
    here = arrived_by(party, arrival)
    if here is not None:
        X, y, units = X[here], y[here], None if units is None else units[here]
    rows = basis(space(X), known)
    if not values:
        place = {name: code for code, name in enumerate(agreement.classes)}
        codes = np.array([place[name] for name in y.tolist()], dtype=np.int64)
        return class_sums(rows, codes, len(place), units)
    ends = at_the_ends(y, bounds).T
    units = np.arange(len(y)) if units is None else units
    parts = (ends[:, :, None] * rows).reshape(-1, rows.shape[1])
    return class_sums(
        parts, np.repeat(np.arange(len(ends)), len(y)), len(ends), np.tile(units, len(ends))
    )


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

    def joined(self, released: Sequence[Any]) -> Any:
        """Say what the party guarantees by its budget of today, which may be larger than it was."""
        return replace(released[0], **self._said())

    def _said(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self._budget).items() if k in _STATED}


_STATED = ("epsilon", "delta", "adjacency", "unit")


class SumsNoise(BudgetNoise):
    """Noise on class sums.

    They are released once for a basis, public rows, classes or bounds, and arrival of rows, whatever the
    seed, the round and the federation. Private rows are no part of the question: the sums of an arrival do
    not follow rows that change later. What leaves is the sum over arrivals, each with its own noise.

    Args:
        party: the party.
        budget: its budget.
        source: makes the source of the noise.
    """

    reply_type = ClassSums

    def __init__(self, party: PartyView, budget: Budget, source: NoiseSource) -> None:
        super().__init__(budget, source)
        self._party = party

    @property
    def _summing(self) -> tuple[float, int] | None:
        """While the reply goes into a secure sum: the variance of each party's noise, and the threshold."""
        member = self._party.features.get("sums")
        return None if member is None else member.summing

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in the sums of an arrival, in steps."""
        return SCALE * self._budget.sigma

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Name the release of the first arrival by the basis, the public rows and the classes or bounds.

        Raises:
            BudgetExceeded: the noise is shared with parties that are not there, or are to add too little.
        """
        assert agreement is not None
        bounds = map(repr, task.bounds.ravel().tolist())
        asked = (task.digest, agreement.public, agreement.encoder, *agreement.classes, *bounds)
        loss, (variance, threshold) = self.loss, self._summing or (0.0, 0)
        if self._shared:
            among = len({*agreement.summed, *(self._party.rules.keys.roster or ())})
            loss = self._shared_loss(variance, threshold, among, task.entries(agreement))
            asked += ("shared", repr(variance), str(threshold), str(self._budget.colluding))
        elif variance:
            raise BudgetExceeded(
                "limits.noise: each party is to add a part of the noise, and its own is enough by itself",
                mend='The party\'s engineer may set noise = "shared"; or the coordinator takes epsilon off.',
            )
        return replace(Release.of("class sums", asked, loss), arrival=0)

    @property
    def _shared(self) -> bool:
        return self._budget.noise == "shared"

    def _shared_loss(
        self, variance: float, threshold: int, among: int, entries: int
    ) -> PrivacyLoss:
        """Loss of sums that have so much noise of each of so many parties, but for those that collude.

        Args:
            variance: of a party's noise, in steps.
            threshold: fewest parties of the sum.
            among: parties that it may be in a sum with, itself among them.
            entries: numbers in a party's sums.

        Raises:
            BudgetExceeded: there is none of others, so many may collude that two sums of it could be opened,
                or it is more than a release may cost.
        """
        from consilience.privacy.secure_aggregation.masks import (
            may_collude,  # the room brings cryptography with it
        )

        budget = self._budget
        harmless = may_collude(among, threshold)
        if not variance or budget.colluding > harmless:
            why = f"{harmless} of {among} may collude where {threshold} open a sum, and it counts more"
            raise BudgetExceeded(
                "limits.noise: its noise is a part of what parties have together in a secure sum, and "
                + (why if variance else "the others are to add none"),
                mend="The coordinator gives secure_aggregation an epsilon, or a larger threshold; or the "
                'party\'s engineer sets noise = "own".',
            )
        honest = threshold - budget.colluding
        reach = SCALE * (1.0 if budget.adjacency == "add-remove" else 2.0)
        loss = skellam_loss(
            honest * variance, reach, reach * math.sqrt(entries), adjacency=budget.adjacency
        )
        most = budget.epsilon if budget.each is None else budget.each
        if (cost := loss.epsilon(budget.delta)) > most * (1 + 1e-9):
            raise BudgetExceeded(
                f"limits.epsilon: the parties' noise together would cost {cost:.4g}, and a release may cost "
                f"{most:g}",
                mend="The coordinator may lower epsilon in secure_aggregation, or count more that collude.",
            )
        return replace(loss, unit=budget.unit)

    def parts(
        self, task: Any, agreement: Agreement | None, reply: ClassSums | None = None
    ) -> list[tuple[Release, ClassSums | None]]:
        """Name a release of each arrival, with its own sums where there is a reply.

        Args:
            task: the task.
            agreement: what the federation agreed on.
            reply: the exact sums of all arrivals.
        """
        first = self.planned(task, agreement)
        if self._budget.arrivals == 1:
            return [(first, reply)]
        found = []
        for arrival in range(self._budget.arrivals):
            own = reply
            if reply is not None:
                own = replace(reply, values=sums_of(self._party, task.basis, task.bounds, arrival))
            found.append((replace(first, arrival=arrival), own))
        return found

    def release(self, reply: ClassSums) -> ClassSums:
        """Add the noise, and say how much there is."""
        if self._shared:
            assert self._summing is not None
            variance = self._summing[0]
            noise = SystemNoise().skellam(variance=variance, size=reply.values.shape)
            return replace(reply, values=reply.values + noise, sigma=math.sqrt(variance))
        return replace(reply, values=self.noisy(reply.values, self.sigma), sigma=self.sigma)

    def joined(self, released: Sequence[ClassSums]) -> ClassSums:
        """Add the arrivals up."""
        values = np.sum([one.values for one in released], axis=0)
        sigma = float(np.sqrt(sum(one.sigma**2 for one in released)))
        said = self._said()
        if self._shared:
            checked = self._party.rules.keys.roster is not None
            said |= {"colluding": self._budget.colluding, "checked": checked}
        return replace(released[0], values=values, sigma=sigma, **said)

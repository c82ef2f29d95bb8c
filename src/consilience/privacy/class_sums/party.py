"""Class sums of a party, and the noise on them."""

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
    """Sum all private rows of a party by class, including rows excluded from training.

    Adding one row can change the split into training and held-out rows and the removal of duplicates of
    public rows. The sums therefore use all rows. In regression each row is shared between the two bounds of
    each value, which replace the classes.

    Args:
        party: the party, which has joined.
        basis: features of public rows; may come from an untrusted coordinator.
        bounds: low and high bound of each target, shape ``(t, 2)``.
        arrival: arrival of the rows to sum; ``None`` sums all arrivals that the budget counts.

    Returns:
        Steps of the grid, shape ``(n_classes, d + 1)``, or ``(2 t, d + 1)``, int64.

    Raises:
        InvalidInput: the party has an outcome other than classes or values, or the number of bounds is wrong.
        KnowledgeRefused: the basis names unknown public rows or columns.
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
    """Gaussian noise on sums of the grid, with the privacy loss that the budget sets for one release.

    Args:
        budget: privacy budget of the party.
        source: factory of the noise source.
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
        """Declare the guarantee of the present budget, which may be larger than at the release."""
        return replace(released[0], **self._said())

    def _said(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self._budget).items() if k in _STATED}


_STATED = ("epsilon", "delta", "adjacency", "unit")


class SumsNoise(BudgetNoise):
    """Noise on class sums.

    The party releases them once for each basis, public rows, classes or bounds, and arrival of rows,
    independently of seed, round and federation. Private rows are not part of the question, so later changes
    of rows do not change the sums of an arrival. The reply is the sum over arrivals, each with separate
    noise.

    Args:
        party: the party.
        budget: privacy budget of the party.
        source: factory of the noise source.
    """

    reply_type = ClassSums

    def __init__(self, party: PartyView, budget: Budget, source: NoiseSource) -> None:
        super().__init__(budget, source)
        self._party = party

    @property
    def _summing(self) -> tuple[float, int] | None:
        """Noise variance of each party and threshold of the current secure sum; ``None`` outside of one."""
        member = self._party.features.get("sums")
        return None if member is None else member.summing

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in the sums of one arrival, in steps."""
        return SCALE * self._budget.sigma

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Return the record of the first arrival's release, by basis, public rows, and classes or bounds.

        Raises:
            BudgetExceeded: the budget requires shared noise and the other parties add none or too little; or
                the noise suffices alone and the secure sum requests shared noise.
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
        """Compute the privacy loss of a secure sum with shared noise, without the noise of colluding parties.

        Args:
            variance: variance of one party's noise, in steps.
            threshold: minimum number of parties of the sum.
            among: number of parties that can be in a sum with this one, including itself.
            entries: number of values in a party's sums.

        Raises:
            BudgetExceeded: the other parties add no noise; or the number of colluding parties suffices to
                open two sums with this party's noise; or the loss exceeds the limit of one release.
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
        """List a release for each arrival, with the arrival's exact sums once there is a reply.

        Args:
            task: the task.
            agreement: agreement of the federation.
            reply: the exact sums of all arrivals; ``None`` before the task has run.

        Returns:
            Pairs of a release and its exact reply.
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
        """Add the noise, and set its standard deviation."""
        if self._shared:
            assert self._summing is not None
            variance = self._summing[0]
            noise = SystemNoise().skellam(variance=variance, size=reply.values.shape)
            return replace(reply, values=reply.values + noise, sigma=math.sqrt(variance))
        return replace(reply, values=self.noisy(reply.values, self.sigma), sigma=self.sigma)

    def joined(self, released: Sequence[ClassSums]) -> ClassSums:
        """Add up the sums of all arrivals, and declare the guarantee of the present budget."""
        values = np.sum([one.values for one in released], axis=0)
        sigma = float(np.sqrt(sum(one.sigma**2 for one in released)))
        said = self._said()
        if self._shared:
            checked = self._party.rules.keys.roster is not None
            said |= {"colluding": self._budget.colluding, "checked": checked}
        return replace(released[0], values=values, sigma=sigma, **said)

"""Protection of a party by a differential-privacy budget."""

from __future__ import annotations

from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Predictions
from consilience.core.numerics.randomness import NoiseSource, SystemNoise
from consilience.core.party.party import Party
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.noisy_training import NoisyFit
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.privacy.class_sums.party import SumsNoise


def protect(party: Party, budget: Budget | None, *, noise: NoiseSource = SystemNoise) -> None:
    """Apply a privacy budget to everything that a party sends from now on; ``None`` removes the budget.

    The party then adds noise to class sums and refuses replies without a stated privacy cost.

    Args:
        party: the party.
        budget: the privacy budget.
        noise: factory of the noise source.

    Raises:
        InvalidInput: the party does not declare its classes, the units of the budget and of the rows differ,
            the budget counts several arrivals and the rows have none, the model cannot be trained with noise,
            or δ would permit publishing a unit. The party is then unchanged.
    """
    if budget is not None:
        _check(party, budget)  # before anything changes
    training = None if budget is None else budget.training
    privacy = privacy_of(party)
    privacy.accountant.budget = budget
    kinds, noisy = [], None
    if budget is not None:
        kinds.append(SumsNoise(party, budget, noise))
        noisy = None if training is None else NoisyFit(party, budget, training, noise)
    party.train_privately(noisy)
    privacy.use(kinds, free=[] if training is None else [Predictions])


def _check(party: Party, budget: Budget) -> None:
    """Raise ``InvalidInput`` unless the party can keep to the budget."""
    where = f"party {party.name!r}"
    if not isinstance(budget, Budget):
        raise InvalidInput(
            f"the budget is {budget!r}", where=where, mend="Give a Budget(epsilon=…)."
        )
    if budget.training is not None and not hasattr(party.prototype, "trained_module"):
        raise InvalidInput(
            "nothing bounds what one row does to the training of its model",
            where=where,
            mend="Training with noise is for torch networks; private_sums for all.",
        )
    coded = party.rows.kind == "regression" or party.rows.outcome is not None
    if party.rows.labelled and not coded and not party.rows.declared:
        raise InvalidInput(
            "it has a budget of privacy, and does not declare its classes, which its rows would tell",
            where=where,
            mend='In its file: [data] classes = ["ill", "healthy"]; in Python Party(outcome=Classes(…)).',
        )
    rows = privacy_of(party).rows
    if (budget.unit == "row") != (rows.unit is None):
        raise InvalidInput(
            f"its budget is for one {budget.unit}, and its rows have "
            f"{'no units' if rows.unit is None else 'units of another kind'}",
            where=where,
            mend="Budget(unit=…) needs declare_units(party, units=…); in its file limits.unit is a column.",
        )
    if budget.arrivals > 1 and rows.arrived is None:
        raise InvalidInput(
            f"its budget counts {budget.arrivals} arrivals, and its rows say none",
            where=where,
            mend="Call declare_units(party, arrived=…); in its file limits.arrival is a column.",
        )
    budget.check_delta(rows.count(len(party.rows.X)), where=where)

"""Privacy stage of a party's outbox, which is created at first use."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.party.view import PartyView
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import check_same_order
from consilience.privacy.accounting.stage import Privacy
from consilience.privacy.accounting.units import RowUnits

FEATURE = "released"
"""Name of the privacy feature of a party, and of its state file."""

RELEASED = f"{FEATURE}.safetensors"


def make_privacy(party: PartyView) -> Privacy:
    """Create the privacy stage of a party as the first stage of its outbox."""
    made = Privacy()
    party.outbox.stages.insert(0, made)
    return made


def privacy_of(party: PartyView) -> Privacy:
    """Return the privacy stage of a party, with its mechanisms and the accountant of its releases."""
    return cast(Privacy, party.feature(FEATURE))


def declare_units(party: PartyView, units: Any = None, arrived: Any = None) -> None:
    """Declare the unit of privacy of each private row, such as its patient, and its arrival.

    Args:
        party: the party.
        units: unit of each row, shape ``(n,)``; ``None``, the default, makes each row a unit.
        arrived: arrival of each row, a whole number from 0 on, shape ``(n,)``; ``None``, the default, puts
            all rows into the first arrival. Arrivals are never renumbered.

    Raises:
        InvalidInput: there is not one value per row, all rows have one unit, a unit is missing, an arrival is
            not a whole number, or the order differs from that of the rows; or the party already has a budget,
            which counts by its present units.
    """
    where = f"party {party.name!r}"
    if privacy_of(party).accountant.budget is not None:
        raise InvalidInput(
            "it has a budget, which counts by the units declared before",
            where=where,
            mend="Declare units before protect(party, …); protect(party, None) takes the budget off.",
        )
    for declared in (units, arrived):
        check_same_order(party.rows, declared, where=where)
    privacy_of(party).declare(RowUnits.of(units, arrived, len(party.rows.X), where=where))


def arrived_by(party: PartyView, arrival: int | None) -> Array | None:
    """Return a mask of the rows of an arrival, or of all budgeted arrivals; ``None`` stands for all rows."""
    privacy = privacy_of(party)
    budget, arrived = privacy.accountant.budget, privacy.rows.arrived
    if arrived is None or (arrival is None and budget is None):
        return None
    if arrival is not None:
        return np.asarray(arrived == arrival)
    assert budget is not None
    return np.asarray(arrived < budget.arrivals)

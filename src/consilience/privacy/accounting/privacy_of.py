"""Privacy of a party: the stage of its outbox, made when it is first asked for."""

from __future__ import annotations

from typing import cast

import numpy as np

from consilience.core.party.party import Party
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.stage import Privacy

FEATURE = "released"
"""Name of what privacy keeps at a party, and of the file of its state."""

RELEASED = f"{FEATURE}.safetensors"


def make_privacy(party: Party) -> Privacy:
    """Make the privacy of a party, the first stage of its outbox."""
    made = Privacy()
    party.outbox.stages.insert(0, made)
    return made


def privacy_of(party: Party) -> Privacy:
    """Give the privacy of a party: its mechanisms, and the accountant of what it has released."""
    return cast(Privacy, party.feature(FEATURE))


def arrived_by(party: Party, arrival: int | None) -> Array | None:
    """Mark the rows of an arrival, or of all that the budget counts; ``None`` for all rows."""
    budget = privacy_of(party).accountant.budget
    if party.arrived is None or (arrival is None and budget is None):
        return None
    if arrival is not None:
        return np.asarray(party.arrived == arrival)
    assert budget is not None
    return np.asarray(party.arrived < budget.arrivals)

"""What the parties of a configuration know of its public rows, before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.diagnostics.public_coverage import PublicCoverage
from consilience.experiments.setup import Cohort
from consilience.experiments.spec import Spec
from consilience.federation.federation import Federation
from consilience.messages.schema import Public
from consilience.networks import LocalNetwork

MOST_ROWS = 2000
"""Public rows that are looked at, evenly spread: the standard error of a share is 1.1 points at most, and
time and memory stay small however many there are."""
CALIBRATION = 0.2
"""The share that parties hold out here where they hold out none in training: what a party knows is measured
against rows of its own that it was not fitted to."""


def public_known(spec: Spec, cohort: Cohort, seed: int) -> PublicCoverage:
    """Ask parties of their own for it, so that those of the run are as if they had never been asked.

    Args:
        spec: whose parties.
        cohort: of the seed, with public rows.
        seed: the seed.

    Raises:
        InvalidInput: data, parties and models do not go together.
        QuorumLost: too few parties can say.
    """
    rows = len(cohort.public)
    looked_at = np.linspace(0, rows - 1, min(rows, MOST_ROWS)).astype(int)
    public = Public(cohort.public.X[looked_at])
    asked = replace(cohort, public=public, calibration=cohort.calibration or CALIBRATION)
    network = LocalNetwork(asked.parties(), public)
    federation = Federation.over(
        network, public, seed=seed, strict=spec.strictly, threads=spec.network.threads
    )
    return replace(federation.suitability(), total=rows)

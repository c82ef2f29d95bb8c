"""Coverage of a configuration's public rows by its parties, measured before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.core.party.party import Party
from consilience.lab.config.experiment import Spec
from consilience.lab.diagnostics.coverage import PublicCoverage, suitability
from consilience.lab.experiments.setup import SimulatedParties

MOST_ROWS = 2000
"""Public rows that are looked at, evenly spread: the standard error of a share is 1.1 points at most, and
time and memory stay small however many there are."""
CALIBRATION = 0.2
"""The share that parties hold out here where they hold out none in training: what a party knows is measured
against rows of its own that it was not fitted to."""


def public_known(
    spec: Spec, setup: SimulatedParties, seed: int, parties: list[Party] | None = None
) -> PublicCoverage:
    """Measure how well the parties' private rows cover the public rows.

    The parties can join another federation afterwards.

    Args:
        spec: the configuration.
        setup: data and parties of the seed, with public rows.
        seed: the seed.
        parties: parties made from ``setup``; by default new ones are made. If the setup holds out no rows
            from training, new parties with held-out rows replace them.

    Returns:
        The coverage, measured on at most :data:`MOST_ROWS` public rows.

    Raises:
        InvalidInput: data, parties and models do not go together.
        QuorumLost: too few parties can answer.
    """
    rows = len(setup.public)
    looked_at = np.linspace(0, rows - 1, min(rows, MOST_ROWS)).astype(int)
    public = setup.public.take(looked_at)
    if parties is None or not setup.calibration:
        parties = replace(setup, calibration=setup.calibration or CALIBRATION).parties()
    network = LocalNetwork(parties, public)
    federation = federation_over(
        network, public, seed=seed, strict=spec.strictly, threads=spec.network.threads
    )
    return replace(suitability(federation), total=rows)

"""Functions on deployed federations for the commands on runs, as :class:`.Deployment` lists them."""

from pathlib import Path
from typing import Any

from consilience.sites.cli.coordinator import begin_without, go_on_to_the_end
from consilience.sites.coordinator.configuration import deployed_spec
from consilience.sites.party.configuration import read_party

__all__ = ["begin_without", "deployed_spec", "go_on_to_the_end", "joining_party"]


def joining_party(path: Path) -> dict[str, Any]:
    """Read the part of a party's own configuration that counts in a simulated run."""
    return read_party(path).model_dump(mode="json", include={"name", "data", "model"})

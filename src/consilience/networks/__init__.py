"""Networks, which carry tasks to parties and replies back: in one process, in several, or over Flower."""

from consilience.networks.base import Network
from consilience.networks.incoming import Delivery
from consilience.networks.local import LocalNetwork
from consilience.networks.population import Population, PopulationNetwork
from consilience.networks.processes import ProcessNetwork

__all__ = [
    "Delivery",
    "LocalNetwork",
    "Network",
    "Population",
    "PopulationNetwork",
    "ProcessNetwork",
]

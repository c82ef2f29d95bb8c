"""Networks, which carry tasks to parties and replies back: in one process, in several, or over Flower."""

from consilience.core.networks.base import Network
from consilience.core.networks.incoming import Delivery
from consilience.core.networks.local import LocalNetwork
from consilience.core.networks.population import Population, PopulationNetwork, in_process_network
from consilience.core.networks.processes import ProcessNetwork

__all__ = [
    "Delivery",
    "LocalNetwork",
    "Network",
    "Population",
    "PopulationNetwork",
    "ProcessNetwork",
    "in_process_network",
]

"""Where parties live: in this process, in worker processes, or behind Flower."""

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

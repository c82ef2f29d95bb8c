"""Where parties live: in this process, in worker processes, or behind Flower."""

from consilience.network.base import Delivery, Network
from consilience.network.local import LocalNetwork
from consilience.network.population import Population
from consilience.network.population_network import PopulationNetwork
from consilience.network.processes import ProcessNetwork

__all__ = [
    "Delivery",
    "LocalNetwork",
    "Network",
    "Population",
    "PopulationNetwork",
    "ProcessNetwork",
]

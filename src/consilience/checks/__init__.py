"""The contracts of learners, aggregators, protocols and networks, as checks that anyone can run.

Each of the four runs a list of small named checks and raises ``AssertionError`` at the first that does
not hold, saying what was expected.

>>> from consilience import suwa
>>> check_aggregator(suwa(temperature=0.5))
"""

from consilience.checks.aggregator import AGGREGATOR_CHECKS, check_aggregator
from consilience.checks.example_parties import Cohort, agents, classifiers, regressors
from consilience.checks.learner import LEARNER_CHECKS, check_learner
from consilience.checks.network import NETWORK_CHECKS, check_network
from consilience.checks.protocol import PROTOCOL_CHECKS, check_protocol

__all__ = [
    "AGGREGATOR_CHECKS",
    "LEARNER_CHECKS",
    "NETWORK_CHECKS",
    "PROTOCOL_CHECKS",
    "Cohort",
    "agents",
    "check_aggregator",
    "check_learner",
    "check_network",
    "check_protocol",
    "classifiers",
    "regressors",
]

"""Contract checks for learners, aggregators, protocols and networks; attacks on the data that a party sends.

Each of the four runs a list of small named checks and raises ``AssertionError`` at the first failure, with
the expected behaviour in the message.

>>> from consilience import suwa
>>> check_aggregator(suwa(temperature=0.5))
"""

from consilience.core.checks.aggregator import AGGREGATOR_CHECKS, check_aggregator
from consilience.core.checks.example_parties import (
    PROTOCOL_CASES,
    classifiers,
    regressors,
)
from consilience.core.checks.learner import LEARNER_CHECKS, check_learner
from consilience.core.checks.network import NETWORK_CHECKS, check_network
from consilience.core.checks.protocol import PROTOCOL_CHECKS, check_protocol
from consilience.core.checks.protocol_case import MakeParties, ProtocolCase, ProtocolRun

__all__ = [
    "AGGREGATOR_CHECKS",
    "LEARNER_CHECKS",
    "NETWORK_CHECKS",
    "PROTOCOL_CHECKS",
    "PROTOCOL_CASES",
    "MakeParties",
    "ProtocolCase",
    "ProtocolRun",
    "check_aggregator",
    "check_learner",
    "check_network",
    "check_protocol",
    "classifiers",
    "regressors",
]

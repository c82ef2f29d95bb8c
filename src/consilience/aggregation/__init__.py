"""Aggregators, consensus steps and de-regularisation: pure functions from predictions to a teacher.

A rule is added in one place: a function in the module of its kind, named in the ``__all__`` of that module.
"""

from collections.abc import Callable

from consilience.aggregation import (
    choosing,
    classification,
    regression,
    reliability,
    rivals,
    robust,
)
from consilience.aggregation.base import Aggregator, Stack, Teacher, onto_simplex
from consilience.aggregation.choosing import *
from consilience.aggregation.classification import *
from consilience.aggregation.consensus import ConsensusUpdate, anderson, damped, replace
from consilience.aggregation.deregularization import Deregularization
from consilience.aggregation.regression import *
from consilience.aggregation.reliability import *
from consilience.aggregation.rivals import *
from consilience.aggregation.robust import *

__all__ = [
    "AGGREGATORS",
    "CONSENSUS",
    "Aggregator",
    "ConsensusUpdate",
    "Deregularization",
    "Stack",
    "Teacher",
    "anderson",
    "damped",
    "onto_simplex",
    "replace",
]
__all__ += classification.__all__
__all__ += reliability.__all__
__all__ += rivals.__all__
__all__ += robust.__all__
__all__ += regression.__all__
__all__ += choosing.__all__

_FACTORIES: list[Callable[..., Aggregator]] = [
    getattr(module, name)
    for module in (classification, reliability, rivals, robust, regression, choosing)
    for name in module.__all__
]

AGGREGATORS: dict[str, Callable[..., Aggregator]] = {make().name: make for make in _FACTORIES}
"""The rules that a configuration can name; :mod:`.references` read true labels and are not among them."""

CONSENSUS: dict[str, Callable[..., ConsensusUpdate]] = {
    step.__name__: step for step in (replace, damped, anderson)
}
"""The consensus steps that a configuration can name."""

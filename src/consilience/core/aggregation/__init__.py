"""Aggregators, consensus steps and de-regularisation: pure functions from predictions to a teacher.

A rule is added in one place: a function in the module of its kind, named in the ``__all__`` of that module.
"""

from collections.abc import Callable, Mapping
from types import ModuleType

from consilience.core.aggregation import auto as choosing
from consilience.core.aggregation import classification, regression
from consilience.core.aggregation import density_ratio as reliability
from consilience.core.aggregation.auto import *
from consilience.core.aggregation.base import Aggregator, Combined, Stack, Teacher, onto_simplex
from consilience.core.aggregation.classification import *
from consilience.core.aggregation.density_ratio import *
from consilience.core.aggregation.deregularization import Deregularization
from consilience.core.aggregation.regression import *
from consilience.core.aggregation.target_updates import ConsensusUpdate, anderson, damped, replace
from consilience.core.registry import Registry, named, registered_modules

__all__ = [
    "AGGREGATORS",
    "CONSENSUS",
    "Aggregator",
    "Combined",
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
__all__ += regression.__all__
__all__ += choosing.__all__

_OWN: tuple[ModuleType, ...] = (classification, reliability, regression, choosing)


def _aggregators() -> Mapping[str, Callable[..., Aggregator]]:
    modules = (*_OWN, *registered_modules("consilience.aggregators"))
    factories = [getattr(module, name) for module in modules for name in module.__all__]
    return named(((make().name, make) for make in factories), what="aggregator")


AGGREGATORS: Mapping[str, Callable[..., Aggregator]] = Registry(_aggregators)
"""The rules that a configuration can name: those in ``__all__`` of a module here, or of a module that a
package registers under ``consilience.aggregators``. Rules that read true labels
(:mod:`consilience.lab.experiments.oracles`) are not among them."""

CONSENSUS: dict[str, Callable[..., ConsensusUpdate]] = {
    step.__name__: step for step in (replace, damped, anderson)
}
"""The consensus steps that a configuration can name."""

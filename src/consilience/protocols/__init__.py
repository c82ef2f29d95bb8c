"""Protocols, one method or family of methods a file, sorted by what leaves a party.

All of them take the option ``codec`` (:meth:`Protocol.compressed`).
"""

from consilience.protocols.base import (
    Protocol,
    ProtocolFactory,
    Round,
    RoundState,
    protocol,
)
from consilience.protocols.local_only import local_only
from consilience.protocols.models.conjugate_distillation import conjugate_distillation
from consilience.protocols.models.functional_gradient_boosting import functional_gradient_boosting
from consilience.protocols.models.model_exchange import (
    alternating_distillation,
    averaged_distillation,
    parallel_distillation,
)
from consilience.protocols.parameters.federated_averaging import (
    federated_adagrad,
    federated_adam,
    federated_averaging,
    federated_proximal,
    federated_yogi,
)
from consilience.protocols.parameters.federated_dynamics import federated_dynamics
from consilience.protocols.parameters.federated_fusion import federated_fusion
from consilience.protocols.parameters.scaffold import scaffold
from consilience.protocols.predictions.analytic_federation import analytic_federation
from consilience.protocols.predictions.ensemble_distillation import ensemble_distillation
from consilience.protocols.predictions.iterative_distillation import iterative_distillation

__all__ = [
    "ALSO_CALLED",
    "PROTOCOLS",
    "PYTHON_ONLY",
    "Protocol",
    "ProtocolFactory",
    "Round",
    "RoundState",
    "alternating_distillation",
    "analytic_federation",
    "averaged_distillation",
    "conjugate_distillation",
    "ensemble_distillation",
    "federated_adagrad",
    "federated_adam",
    "federated_averaging",
    "federated_dynamics",
    "federated_fusion",
    "federated_proximal",
    "federated_yogi",
    "functional_gradient_boosting",
    "iterative_distillation",
    "local_only",
    "parallel_distillation",
    "protocol",
    "scaffold",
]

_ALL: list[ProtocolFactory[...]] = [
    value for name in __all__ if isinstance(value := globals().get(name), ProtocolFactory)
]

PROTOCOLS: dict[str, ProtocolFactory[...]] = {p.name: p for p in _ALL if not p.python_only}
"""The protocols that a configuration can name."""

PYTHON_ONLY: dict[str, str] = {p.name: p.python_only for p in _ALL if p.python_only}
"""Protocols that a configuration cannot name, and why."""

ALSO_CALLED: dict[str, str] = {alias: p.name for p in _ALL for alias in p.also_called}
"""Names that papers give the protocols, to the names here."""

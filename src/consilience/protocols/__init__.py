"""Protocols, one method or family of methods a file, sorted by what leaves a party.

All of them take the option ``codec`` (:meth:`Protocol.compressed`).
"""

from consilience.protocols.base import Protocol as Protocol
from consilience.protocols.base import ProtocolFactory as ProtocolFactory
from consilience.protocols.base import Round as Round
from consilience.protocols.base import RoundState as RoundState
from consilience.protocols.base import protocol as protocol
from consilience.protocols.local_only import local_only as local_only
from consilience.protocols.models.conjugate_distillation import (
    conjugate_distillation as conjugate_distillation,
)
from consilience.protocols.models.functional_gradient_boosting import (
    functional_gradient_boosting as functional_gradient_boosting,
)
from consilience.protocols.models.model_exchange import (
    alternating_distillation as alternating_distillation,
)
from consilience.protocols.models.model_exchange import (
    averaged_distillation as averaged_distillation,
)
from consilience.protocols.models.model_exchange import (
    parallel_distillation as parallel_distillation,
)
from consilience.protocols.parameters.federated_averaging import (
    federated_adagrad as federated_adagrad,
)
from consilience.protocols.parameters.federated_averaging import federated_adam as federated_adam
from consilience.protocols.parameters.federated_averaging import (
    federated_averaging as federated_averaging,
)
from consilience.protocols.parameters.federated_averaging import (
    federated_proximal as federated_proximal,
)
from consilience.protocols.parameters.federated_averaging import federated_yogi as federated_yogi
from consilience.protocols.parameters.federated_dynamics import (
    federated_dynamics as federated_dynamics,
)
from consilience.protocols.parameters.federated_fusion import federated_fusion as federated_fusion
from consilience.protocols.parameters.scaffold import scaffold as scaffold
from consilience.protocols.predictions.analytic_federation import (
    analytic_federation as analytic_federation,
)
from consilience.protocols.predictions.ensemble_distillation import (
    ensemble_distillation as ensemble_distillation,
)
from consilience.protocols.predictions.iterative_distillation import (
    iterative_distillation as iterative_distillation,
)
from consilience.protocols.predictions.private_sums import private_sums as private_sums

_ALL: list[ProtocolFactory[...]] = sorted(
    (value for value in list(globals().values()) if isinstance(value, ProtocolFactory)),
    key=lambda factory: factory.name,
)

PROTOCOLS: dict[str, ProtocolFactory[...]] = {p.name: p for p in _ALL if not p.python_only}
"""The protocols that a configuration can name."""

PYTHON_ONLY: dict[str, str] = {p.name: p.python_only for p in _ALL if p.python_only}
"""Protocols that a configuration cannot name, and why."""

ALSO_CALLED: dict[str, str] = {alias: p.name for p in _ALL for alias in p.also_called}
"""Names that papers give the protocols, to the names here."""

"""Protocols: one paper, one file."""

from collections.abc import Callable

from consilience.protocols.base import Protocol, Round, RoundState, protocol
from consilience.protocols.local_only import local_only
from consilience.protocols.models.conjugate_distillation import conjugate_distillation
from consilience.protocols.models.functional_gradient_boosting import functional_gradient_boosting
from consilience.protocols.models.model_exchange import (
    alternating_distillation,
    averaged_distillation,
    parallel_distillation,
)
from consilience.protocols.parameters.federated_averaging import federated_averaging
from consilience.protocols.parameters.federated_dynamics import federated_dynamics
from consilience.protocols.parameters.federated_fusion import federated_fusion
from consilience.protocols.parameters.federated_optimizers import (
    federated_adagrad,
    federated_adam,
    federated_yogi,
)
from consilience.protocols.parameters.federated_proximal import federated_proximal
from consilience.protocols.parameters.scaffold import scaffold
from consilience.protocols.predictions.ensemble_distillation import ensemble_distillation
from consilience.protocols.predictions.iterative_distillation import iterative_distillation

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Round",
    "RoundState",
    "alternating_distillation",
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

PROTOCOLS: dict[str, Callable[..., Protocol]] = {
    "alternating_distillation": alternating_distillation,
    "averaged_distillation": averaged_distillation,
    "ensemble_distillation": ensemble_distillation,
    "federated_adagrad": federated_adagrad,
    "federated_adam": federated_adam,
    "federated_averaging": federated_averaging,
    "federated_dynamics": federated_dynamics,
    "federated_fusion": federated_fusion,
    "federated_proximal": federated_proximal,
    "federated_yogi": federated_yogi,
    "functional_gradient_boosting": functional_gradient_boosting,
    "iterative_distillation": iterative_distillation,
    "local_only": local_only,
    "parallel_distillation": parallel_distillation,
    "scaffold": scaffold,
}
"""The protocols that a configuration can name."""

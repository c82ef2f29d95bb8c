"""Federated learning by exchanging predictions: any models, private data, public rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.aggregation import (
        Deregularization,
        anderson,
        avg,
        certainty_weighted,
        coarse_density_ratio,
        coordinate_median,
        count_weighted,
        damped,
        density_ratio,
        entropy_weighted,
        majority_vote,
        mean,
        mean_logits,
        median,
        power_sharpened_mean,
        replace,
        selective_mean,
        sharpened_mean,
        suwa,
        trimmed_mean,
        uwa,
        variance_weighted,
        weighted_mean,
    )
    from consilience.closed_forms.kernel_federation import KernelFederation
    from consilience.errors import ConsilienceError, InvalidInput
    from consilience.federation.federation import Federation
    from consilience.federation.history import History
    from consilience.learners import KernelRidge, Model, as_learner
    from consilience.networks import LocalNetwork, Population, ProcessNetwork
    from consilience.party.party import Party
    from consilience.protocols import ensemble_distillation, iterative_distillation, local_only

__version__ = "0.1.0"

__all__ = [
    "ConsilienceError",
    "Deregularization",
    "Federation",
    "History",
    "InvalidInput",
    "KernelFederation",
    "KernelRidge",
    "LocalNetwork",
    "Model",
    "Party",
    "Population",
    "ProcessNetwork",
    "anderson",
    "as_learner",
    "avg",
    "certainty_weighted",
    "coarse_density_ratio",
    "coordinate_median",
    "count_weighted",
    "damped",
    "density_ratio",
    "ensemble_distillation",
    "entropy_weighted",
    "iterative_distillation",
    "local_only",
    "majority_vote",
    "mean",
    "mean_logits",
    "median",
    "power_sharpened_mean",
    "replace",
    "selective_mean",
    "sharpened_mean",
    "suwa",
    "trimmed_mean",
    "uwa",
    "variance_weighted",
    "weighted_mean",
]

_HOMES = {
    "consilience.aggregation": (
        "Deregularization",
        "anderson",
        "avg",
        "certainty_weighted",
        "coarse_density_ratio",
        "coordinate_median",
        "count_weighted",
        "damped",
        "density_ratio",
        "entropy_weighted",
        "majority_vote",
        "mean",
        "mean_logits",
        "median",
        "power_sharpened_mean",
        "replace",
        "selective_mean",
        "sharpened_mean",
        "suwa",
        "trimmed_mean",
        "uwa",
        "variance_weighted",
        "weighted_mean",
    ),
    "consilience.errors": (
        "ConsilienceError",
        "InvalidInput",
    ),
    "consilience.federation.federation": ("Federation",),
    "consilience.federation.history": ("History",),
    "consilience.closed_forms.kernel_federation": ("KernelFederation",),
    "consilience.learners": (
        "KernelRidge",
        "Model",
        "as_learner",
    ),
    "consilience.networks": (
        "LocalNetwork",
        "Population",
        "ProcessNetwork",
    ),
    "consilience.party.party": ("Party",),
    "consilience.protocols": (
        "ensemble_distillation",
        "iterative_distillation",
        "local_only",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import consilience`` stays quick."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'consilience' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

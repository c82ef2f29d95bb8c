"""What theory says, computed plainly.

Limits, effective dimension and rates of ensemble distillation (Park et al. 2023); what agents that exchange
models forget, and how they reach the central model all the same (Afonin & Karimireddy 2022).

Nothing here is fast and nothing here is used by a protocol: it is what protocols are tested against, and what
lets anyone check the theorems on data of their own. It needs numpy and scipy only.
"""

from consilience.theory.conjugate import conjugate_distillation, conjugate_rate
from consilience.theory.expansion import KernelExpansion, kernel_ridge
from consilience.theory.limits import (
    Limit,
    blended_kernel,
    deregularized_self_distillation_limit,
    distillation_limit,
    self_distillation_limit,
)
from consilience.theory.model_exchange import (
    ModelExchange,
    Relabelling,
    alternating_distillation,
    averaged_distillation,
    ensembled_distillation,
    exchange_of,
    parallel_distillation,
    residual_distillation,
)
from consilience.theory.projections import (
    ObliqueProjections,
    common_parts,
    degradation_bound,
    oblique_projections,
    principal_cosines,
)
from consilience.theory.rates import Slope, error_exponent, prescribed_regularization, slope
from consilience.theory.rounds import (
    ConsensusMap,
    consensus_map,
    distilled,
    smoothing,
)
from consilience.theory.spectrum import (
    brownian_effective_dimension,
    effective_dimension,
    sample_spectrum,
)

__all__ = [
    "ConsensusMap",
    "KernelExpansion",
    "Limit",
    "ModelExchange",
    "ObliqueProjections",
    "Relabelling",
    "Slope",
    "alternating_distillation",
    "averaged_distillation",
    "blended_kernel",
    "brownian_effective_dimension",
    "common_parts",
    "conjugate_distillation",
    "conjugate_rate",
    "consensus_map",
    "degradation_bound",
    "deregularized_self_distillation_limit",
    "distillation_limit",
    "distilled",
    "effective_dimension",
    "ensembled_distillation",
    "error_exponent",
    "exchange_of",
    "kernel_ridge",
    "oblique_projections",
    "parallel_distillation",
    "prescribed_regularization",
    "principal_cosines",
    "residual_distillation",
    "sample_spectrum",
    "self_distillation_limit",
    "slope",
    "smoothing",
]

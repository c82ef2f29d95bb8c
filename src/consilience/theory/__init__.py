"""What theory says, computed plainly: limits, effective dimension, rates (Park et al. 2023).

Nothing here is fast and nothing here is used by a protocol: it is what protocols are tested against, and what
lets anyone check the theorems on data of their own. It needs numpy and scipy only.
"""

from consilience.theory.expansion import KernelExpansion, kernel_ridge
from consilience.theory.limits import (
    Limit,
    blended_kernel,
    deregularized_self_distillation_limit,
    distillation_limit,
    self_distillation_limit,
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
    "Slope",
    "blended_kernel",
    "brownian_effective_dimension",
    "consensus_map",
    "deregularized_self_distillation_limit",
    "distillation_limit",
    "distilled",
    "effective_dimension",
    "error_exponent",
    "kernel_ridge",
    "prescribed_regularization",
    "sample_spectrum",
    "self_distillation_limit",
    "slope",
    "smoothing",
]

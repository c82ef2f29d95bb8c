"""Theory of the papers, computed plainly.

Limits, effective dimension and rates of ensemble distillation (Park et al. 2023); what agents that exchange
models forget, and how they reach the central model all the same (Afonin & Karimireddy 2022); how near
federated functional gradient boosting comes to the minimiser (Shen et al. 2022), and students to the
optimum that their teacher allows (Kovalchuk et al. 2026).

Nothing here is fast and nothing here is used by a protocol: it is what protocols are tested against, and what
lets anyone check the theorems on data of their own. It needs numpy and scipy only.
"""

from consilience_papers.theory.boosting import (
    Rate,
    best_local_steps,
    boosting_steps,
    decay_exponent,
    error_bound,
    general_rate,
    homogeneous_rate,
    lipschitz_error_bound,
    lipschitz_rate,
)
from consilience_papers.theory.boosting_problems import (
    FiniteProblem,
    adversarial_answers,
    adversarial_oracle,
    adversarial_problem,
    finite_problem,
    functional_gradient_boosting,
    greedy_oracle,
    lipschitz_gradient_boosting,
    shrinking_oracle,
)
from consilience_papers.theory.conjugate import conjugate_distillation, conjugate_rate
from consilience_papers.theory.expansion import KernelExpansion, kernel_ridge
from consilience_papers.theory.limits import (
    Limit,
    blended_kernel,
    deregularized_self_distillation_limit,
    distillation_limit,
    self_distillation_limit,
)
from consilience_papers.theory.mixtures import GaussianParties
from consilience_papers.theory.model_exchange import (
    ModelExchange,
    Relabelling,
    alternating_distillation,
    averaged_distillation,
    ensembled_distillation,
    exchange_of,
    parallel_distillation,
    residual_distillation,
)
from consilience_papers.theory.projections import (
    ObliqueProjections,
    common_parts,
    degradation_bound,
    oblique_projections,
    principal_cosines,
)
from consilience_papers.theory.rates import Slope, error_exponent, prescribed_regularization, slope
from consilience_papers.theory.rounds import (
    ConsensusMap,
    consensus_map,
    distilled,
    smoothing,
)
from consilience_papers.theory.spectrum import (
    brownian_effective_dimension,
    effective_dimension,
    sample_spectrum,
)
from consilience_papers.theory.stage_two import StageTwo, stage_two

__all__ = [
    "StageTwo",
    "stage_two",
    "ConsensusMap",
    "FiniteProblem",
    "GaussianParties",
    "KernelExpansion",
    "Limit",
    "ModelExchange",
    "ObliqueProjections",
    "Rate",
    "Relabelling",
    "Slope",
    "adversarial_answers",
    "adversarial_oracle",
    "adversarial_problem",
    "alternating_distillation",
    "averaged_distillation",
    "best_local_steps",
    "blended_kernel",
    "boosting_steps",
    "brownian_effective_dimension",
    "common_parts",
    "conjugate_distillation",
    "conjugate_rate",
    "consensus_map",
    "decay_exponent",
    "degradation_bound",
    "deregularized_self_distillation_limit",
    "distillation_limit",
    "distilled",
    "effective_dimension",
    "ensembled_distillation",
    "error_bound",
    "error_exponent",
    "exchange_of",
    "finite_problem",
    "functional_gradient_boosting",
    "greedy_oracle",
    "general_rate",
    "homogeneous_rate",
    "kernel_ridge",
    "lipschitz_error_bound",
    "lipschitz_gradient_boosting",
    "lipschitz_rate",
    "oblique_projections",
    "parallel_distillation",
    "prescribed_regularization",
    "principal_cosines",
    "residual_distillation",
    "sample_spectrum",
    "self_distillation_limit",
    "shrinking_oracle",
    "slope",
    "smoothing",
]

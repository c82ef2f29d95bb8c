# ruff: noqa: I001
# The one list of public names, and of the modules that they live in. The package reads it when it is
# imported; type checkers read it in the place of __init__.py.

from consilience.core.aggregation import (
    Deregularization as Deregularization,
    anderson as anderson,
    auto as auto,
    avg as avg,
    coarse_density_ratio as coarse_density_ratio,
    coordinate_median as coordinate_median,
    count_weighted as count_weighted,
    damped as damped,
    density_ratio as density_ratio,
    entropy_weighted as entropy_weighted,
    majority_vote as majority_vote,
    mean as mean,
    mean_logits as mean_logits,
    median as median,
    power_sharpened_mean as power_sharpened_mean,
    replace as replace,
    sharpened_mean as sharpened_mean,
    suwa as suwa,
    trimmed_mean as trimmed_mean,
    uwa as uwa,
    value_density_ratio as value_density_ratio,
    weighted_mean as weighted_mean,
)
from consilience.methods.comparison_rules.reliability import (
    certainty_weighted as certainty_weighted,
    selective_mean as selective_mean,
    variance_weighted as variance_weighted,
)
from consilience.methods.kernel_federations import (
    KernelFederation as KernelFederation,
)
from consilience.core.errors import (
    ConsilienceError as ConsilienceError,
    InvalidInput as InvalidInput,
)
from consilience.lab.estimators import (
    FederatedClassifier as FederatedClassifier,
    FederatedRegressor as FederatedRegressor,
)
from consilience.core.federation.federation import (
    Federation as Federation,
)
from consilience.core.federation.history import (
    History as History,
)
from consilience.core.learners import Model as Model, as_learner as as_learner
from consilience.models.kernel_ridge import KernelRidge as KernelRidge
from consilience.models.fixed import (
    Frozen as Frozen,
)
from consilience.core.networks import (
    LocalNetwork as LocalNetwork,
    Population as Population,
    ProcessNetwork as ProcessNetwork,
)
from consilience.core.numerics.outcomes import Classes as Classes
from consilience.core.party.party import (
    Party as Party,
)
from consilience.core.party.rules import PartyRules as PartyRules
from consilience.core.protocols import (
    ensemble_distillation as ensemble_distillation,
    iterative_distillation as iterative_distillation,
    local_only as local_only,
)
from consilience.tables.reader import PrivateTable as PrivateTable

__version__: str

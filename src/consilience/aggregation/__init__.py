"""Aggregators, consensus steps and de-regularisation: pure functions from predictions to a teacher."""

from collections.abc import Callable

from consilience.aggregation.base import Aggregator, Stack, Teacher, onto_simplex
from consilience.aggregation.classification import (
    avg,
    coordinate_median,
    count_weighted,
    entropy_weighted,
    majority_vote,
    mean_logits,
    oracle,
    power_sharpened_mean,
    sharpened_mean,
    suwa,
    trimmed_mean,
    uwa,
)
from consilience.aggregation.consensus import ConsensusUpdate, anderson, damped, replace
from consilience.aggregation.deregularization import Deregularization
from consilience.aggregation.regression import mean, median, weighted_mean
from consilience.aggregation.reliability import (
    certainty_weighted,
    coarse_density_ratio,
    density_ratio,
    selective_mean,
    variance_weighted,
)

__all__ = [
    "AGGREGATORS",
    "CONSENSUS",
    "Aggregator",
    "ConsensusUpdate",
    "Deregularization",
    "Stack",
    "Teacher",
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
    "onto_simplex",
    "oracle",
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

AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "avg": avg,
    "mean-logits": mean_logits,
    "uwa": uwa,
    "suwa": suwa,
    "entropy": entropy_weighted,
    "era": sharpened_mean,
    "enhanced-era": power_sharpened_mean,
    "fed-et": variance_weighted,
    "certainty": certainty_weighted,
    "selective": selective_mean,
    "vote": majority_vote,
    "median": coordinate_median,
    "trimmed-mean": trimmed_mean,
    "count-weighted": count_weighted,
    "mean": mean,
    "weighted-mean": weighted_mean,
    "value-median": median,
    "density-ratio": density_ratio,
    "coarse-density-ratio": coarse_density_ratio,
}
"""The rules that a configuration can name; :func:`oracle` reads true labels and is not among them."""

CONSENSUS: dict[str, Callable[..., ConsensusUpdate]] = {
    "replace": replace,
    "damped": damped,
    "anderson": anderson,
}
"""The consensus steps that a configuration can name."""

"""Heterogeneity of parties before training: ω_TV and ω_W1 of Shen et al. 2022."""

from consilience.lab.diagnostics.heterogeneity.comparison import (
    compare_labels,
    how_different,
    label_counts,
)
from consilience.lab.diagnostics.heterogeneity.distances import (
    party_weights,
    shortening,
    sliced_wasserstein,
    total_variation,
    total_variation_to_mixture,
    wasserstein_of_atoms,
    wasserstein_on_a_line,
)
from consilience.lab.diagnostics.heterogeneity.inputs import Inputs
from consilience.lab.diagnostics.heterogeneity.result import Distance, Heterogeneity

__all__ = [
    "how_different",
    "Heterogeneity",
    "Distance",
    "label_counts",
    "compare_labels",
    "total_variation",
    "total_variation_to_mixture",
    "wasserstein_on_a_line",
    "wasserstein_of_atoms",
    "sliced_wasserstein",
    "shortening",
    "party_weights",
    "Inputs",
]

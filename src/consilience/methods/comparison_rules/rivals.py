"""Rules of other papers that weigh parties by how likely a public row is one of theirs, and an ablation.

m parties, n public rows, K classes; ``p_c(x)`` is party c's row of probabilities and ``z_c(x)`` of logits,
n_c its number of rows, ``s_c(x, y)`` its density ratios (:func:`.density_ratio`).

Deviations
    - FedGO (Jang et al. 2025) and DaFKD (Wang et al. 2023) train a network to tell own rows from generated
      ones, and send the network; here it is a logistic regression in the space that all parties share, whose
      regularisation is chosen by the party's calibration rows, and what leaves is one number a public row.
    - Their reference is a generator's samples. FedGO's weights need only that it is the same for all, and
      with ``reference="public"`` it is the public rows: every party judges each half of them by a regression
      that was trained on the other half; the coordinator's stream draws the halves. With ``"generated"`` it
      is as many draws from a mixture of Gaussians along the space's principal directions, which every party
      fits to the public rows by itself, with the same stream. That is no adversarial network: it has no
      recipe to choose for every kind of rows, and gives all parties the same bits.
    - FedGO distils into one model of the server; here into every party's. DaFKD trains its discriminator on
      the classifier's trunk, in rounds 1 to 3; here one is trained before round 1. Its temperature of 20 is
      an option, 1 by default.
    - FedD3A (Su et al. 2022) sends each party's projection matrix, of features of the global model, in every
      round; here features are those of the shared space, and what leaves is one number a public row, once.
      How angles become weights, by a softmax with a temperature, and the temperature, are this library's.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import expit, softmax

from consilience.core.aggregation.base import Aggregator, Combined, Stack, weighted_mean_of
from consilience.core.aggregation.density_ratio import ESTIMATORS, RIDGE, Estimator
from consilience.core.messages.scores import DensityRatios, RowCount
from consilience.core.validation.numbers import check_choice, check_number
from consilience.methods.comparison_rules.scores import LogOdds, SubspaceLikeness

__all__ = ["ratios_alone", "fedgo", "dafkd", "fedd3a"]
"""Rules that a configuration can name; :mod:`consilience.core.aggregation` hands them on."""

Reference = Literal["public", "generated"]
REFERENCES = ("public", "generated")

_DOUBT = 1e-3
"""What every party counts for beyond its ratios, as a share of what they come to on the mean."""


def ratios_alone(ridge: float = RIDGE, estimator: Estimator = "kernel") -> Aggregator:
    """Teach what density ratios say by themselves, ``t(x, y) ∝ sum_c s_c(x, y)``: no model is asked.

    The ablation of :func:`.density_ratio`, and as much for simulations. Where a student cannot tell the two
    apart, models did not matter. A row near nobody's rows is taught uniformly.

    Args:
        ridge: how much the ratios are smoothed, above 0; of the kernel's alone.
        estimator: ``"kernel"`` or ``"logistic"``, as in :func:`.density_ratio`.
    """
    check_number("ridge", ridge, above=0, where="ratios-alone")
    check_choice("estimator", estimator, ESTIMATORS, where="ratios-alone")

    def rule(stack: Stack) -> Combined:
        near = np.maximum(stack.further[DensityRatios], 0)
        near = near + (_DOUBT * near.mean() or 1.0)
        total = near.sum(axis=(0, 2))
        return Combined(near.sum(axis=0) / total[:, None], near.sum(axis=2) / total)

    return Aggregator(
        "ratios-alone",
        rule,
        needs=(DensityRatios,),
        options={DensityRatios: {"ridge": ridge, "estimator": estimator}},
        one_class=estimator == "logistic",
    )


def fedgo(reference: Reference = "public") -> Aggregator:
    """FedGO: probabilities weighted by counts and by the odds that a row is one of the party's.

    ``sum_c w_c(x) p_c(x)`` with ``w_c(x) = softmax_c( log n_c + log D_c(x) / (1 - D_c(x)) )``, where
    ``D_c(x)`` is the probability of a balanced classifier that x is one of party c's rows and none of the
    reference. At its optimum the odds are ``p_c(x) / p_reference(x)``, so that the reference cancels and the
    teacher is the pooled rows' posterior. Jang, Park & Lee 2025 (FedGO), theorems 3.4 and 3.6; Mansour,
    Mohri & Rostamizadeh 2008.

    Args:
        reference: ``"public"`` rows, or rows ``"generated"`` after them.
    """
    check_choice("reference", reference, REFERENCES, where="fedgo")

    def rule(stack: Stack) -> Combined:
        counts = np.log(stack.further[RowCount])[:, None]
        weights = softmax(counts + stack.further[LogOdds], axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    return Aggregator(
        "fedgo", rule, needs=(RowCount, LogOdds), options={LogOdds: {"reference": reference}}
    )


def dafkd(reference: Reference = "public", temperature: float = 1.0) -> Aggregator:
    """DaFKD: logits weighted by the probability that a row is one of the party's.

    ``softmax( sum_c w_c(x) z_c(x) / T )`` with ``w_c(x) = D_c(x) / sum_j D_j(x)``, D_c as in :func:`fedgo`: a
    probability and no odds, so that parties which are sure count alike, and without counts. Wang et al. 2023
    (DaFKD), section 3.

    Args:
        reference: ``"public"`` rows, or rows ``"generated"`` after them.
        temperature: T > 0 of the softmax.
    """
    check_choice("reference", reference, REFERENCES, where="dafkd")
    check_number("temperature", temperature, above=0, where="dafkd")

    def rule(stack: Stack) -> Combined:
        sure = expit(stack.further[LogOdds])  # never 0, as log odds are bounded
        weights = sure / sure.sum(axis=0)
        return Combined(
            softmax(weighted_mean_of(stack.outputs, weights) / temperature, axis=1), weights
        )

    return Aggregator(
        "dafkd",
        rule,
        outputs="logits",
        needs=(LogOdds,),
        options={LogOdds: {"reference": reference}},
    )


def fedd3a(temperature: float = 0.1, energy: float = 0.9) -> Aggregator:
    """FedD3A: probabilities weighted by how small the angle is between a row and a party's rows.

    ``sum_c w_c(x) p_c(x)`` with ``w_c(x) = softmax_c( |P_c z|² / (T |z|²) )``, where z are the row's
    features and P_c projects on the subspace that holds most of party c's. Su, Li & Xue 2022 (FedD3A).

    Args:
        temperature: T > 0; T → 0 takes the likest party alone.
        energy: share in (0, 1] of the squared length of a party's rows that its subspace holds.
    """
    check_number("temperature", temperature, above=0, where="fedd3a")
    check_number("energy", energy, above=0, at_most=1, where="fedd3a")

    def rule(stack: Stack) -> Combined:
        weights = softmax(stack.further[SubspaceLikeness] / temperature, axis=0)
        return Combined(weighted_mean_of(stack.outputs, weights), weights)

    return Aggregator(
        "fedd3a",
        rule,
        needs=(SubspaceLikeness,),
        options={SubspaceLikeness: {"energy": energy}},
    )

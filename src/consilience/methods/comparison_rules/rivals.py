"""Aggregators of other papers that weight parties by estimated membership of a public row, and an ablation.

m parties, n public rows, K classes; ``p_c(x)`` is party c's row of probabilities and ``z_c(x)`` of logits,
n_c its number of rows, ``s_c(x, y)`` its density ratios (:func:`.density_ratio`).

Deviations
    - FedGO (Jang et al. 2025) and DaFKD (Wang et al. 2023) train a network to separate own rows from
      generated rows, and send the network. Here a party fits a logistic regression in the feature space that
      all parties share, selects its regularisation on calibration rows, and sends one number per public row.
    - In the papers, the reference is a generator's samples. FedGO's weights require only the same reference
      at all parties. With ``reference="public"`` the reference is the public rows: each half of them is
      scored by a regression fitted on the other half, and the coordinator's random stream draws the halves.
      With ``"generated"`` it is an equal number of draws from a Gaussian mixture in the space's principal
      directions. Every party fits this mixture to the public rows, with the same random stream, so that all
      parties get bit-identical draws. Unlike an adversarial network, the mixture has no training recipe to
      tune for each kind of data.
    - FedGO distils into one model of the server; here every party distils into its model. DaFKD trains its
      discriminator on the classifier's trunk, in rounds 1 to 3; here it is trained before round 1. The
      paper's temperature is 20; here it is an option with default 1.
    - FedD3A (Su et al. 2022) sends each party's projection matrix, of features of the global model, in every
      round. Here features are those of the shared space, and each party sends one number per public row,
      once. The softmax that turns angles into weights, and its temperature, are choices of this library.
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
"""Aggregators that a configuration can name; :mod:`consilience.core.aggregation` exports them too."""

Reference = Literal["public", "generated"]
REFERENCES = ("public", "generated")

_DOUBT = 1e-3
"""Constant that is added to every party's ratios, as a share of the mean ratio."""


def ratios_alone(ridge: float = RIDGE, estimator: Estimator = "kernel") -> Aggregator:
    """Build the teacher from density ratios only, ``t(x, y) ∝ sum_c s_c(x, y)``, without model predictions.

    This is the ablation of :func:`.density_ratio`: if both give equally good students, the models'
    predictions did not contribute. Like :func:`.density_ratio`, it is for simulations only. A row far from
    all private rows gets a uniform teacher.

    Args:
        ridge: smoothing of the ratios, above 0; used by the kernel estimator only.
        estimator: ``"kernel"`` or ``"logistic"``, as in :func:`.density_ratio`.

    Returns:
        An aggregator, named ``ratios-alone``.
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
    """Weight probabilities by row counts and by the odds that a row is one of the party's (FedGO).

    The teacher is ``sum_c w_c(x) p_c(x)`` with ``w_c(x) = softmax_c( log n_c + log D_c(x) / (1 - D_c(x)) )``.
    ``D_c(x)`` is a balanced classifier's probability that x is one of party c's rows and not one of the
    reference. At its optimum the odds are ``p_c(x) / p_reference(x)``, so that the reference cancels and the
    teacher is the pooled rows' posterior. Jang, Park & Lee 2025 (FedGO), theorems 3.4 and 3.6; Mansour,
    Mohri & Rostamizadeh 2008.

    Args:
        reference: ``"public"`` for the public rows, or ``"generated"`` for draws from a mixture fitted to
            them.

    Returns:
        An aggregator of probabilities, named ``fedgo``.
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
    """Weight logits by the probability that a row is one of the party's (DaFKD).

    The teacher is ``softmax( sum_c w_c(x) z_c(x) / T )`` with ``w_c(x) = D_c(x) / sum_j D_j(x)``, D_c as in
    :func:`fedgo`. The weights use probabilities instead of odds, so that all parties with D_c close to 1 have
    almost equal weight, and they ignore row counts. Wang et al. 2023 (DaFKD), section 3.

    Args:
        reference: ``"public"`` for the public rows, or ``"generated"`` for draws from a mixture fitted to
            them.
        temperature: T > 0 of the softmax.

    Returns:
        An aggregator of logits, named ``dafkd``.
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
    """Weight probabilities by the angle between a row and the subspace of a party's rows (FedD3A).

    The teacher is ``sum_c w_c(x) p_c(x)`` with ``w_c(x) = softmax_c( |P_c z|² / (T |z|²) )``. Here z are the
    row's features, and P_c projects on the leading subspace of party c's rows. Su, Li & Xue 2022 (FedD3A).

    Args:
        temperature: T > 0; T → 0 selects the party with the smallest angle.
        energy: share in (0, 1] of the squared length of a party's rows that its subspace holds.

    Returns:
        An aggregator of probabilities, named ``fedd3a``.
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

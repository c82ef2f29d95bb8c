"""Aggregators that weight or exclude parties per public row: Fed-ET, FedAUX and Selective-FD.

m parties, n public rows, K classes; ``z_c(x)`` is party c's row of logits and ``p_c(x)`` of probabilities.

Deviations
    - Fed-ET (Cho et al. 2022) trains a larger model at the server; here every party distils the teacher. Its
      loss is the cross-entropy to the consensus label plus λ KL(q ‖ model), with q the soft label of the
      disagreeing parties. This loss has the gradient of ``1 + λ`` times the cross-entropy to the teacher
      ``(label + λ q) / (1 + λ)``. Rows have weight ``1 + λ`` in the paper and 1 here. Tied classes share the
      label.
    - FedAUX (Sattler et al. 2021) compares private and public rows in the features of a model pre-trained on
      public rows, and initialises the parties' models with it. Here the comparison uses the principal
      directions of the space that all parties share (:mod:`consilience.core.numerics.feature_space`), and
      parties choose their initial models freely. FedAUX fits the regression on one part of the public rows
      and scores another part; here all public rows serve for both. The paper's text regularises the mean of
      the losses by λ = 0.01, as here, which its sensitivity bound requires; its published code regularises
      their sum. FedAUX divides features by the largest norm of private and public rows. Here the divisor is
      the largest norm of a public row, and the constant is regularised too, so that the bound holds.
    - Selective-FD (Shao et al. 2024) compares the density of raw pixels with uniform noise. Here the density
      of a party's rows is compared with the density of the public rows, in the principal directions, because
      high-dimensional noise is far from every row and separates classes badly. ``reference="uniform"``
      selects the paper's comparison. Each party makes one estimate.
    - Rows without a selecting party, or with an ambiguous teacher, are excluded from distillation, as in the
      paper. The teacher still has a value there for display and for a consensus step: the mean over all
      parties, or over the selecting parties. The default of ``ambiguity`` is this library's choice.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import softmax

from consilience.core.aggregation.base import Aggregator, Combined, Stack, weighted_mean_of
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.methods.comparison_rules.scores import Certainties, Selection

__all__ = ["variance_weighted", "certainty_weighted", "selective_mean"]

_TIE = 1e-9


def variance_weighted(diversity: float = 0.05) -> Aggregator:
    """Build the Fed-ET teacher: the label of variance-weighted logits, mixed with the dissenting parties.

    ``v_c(x)`` is the variance of ``z_c(x)`` over classes, and the label y is the likeliest class of
    ``sum_c v_c z_c / sum_c v_c``. The parties that predict another class define
    ``q = softmax(sum_c v_c z_c / sum_c v_c)``, with sums over these parties only. The teacher is
    ``(onehot(y) + λ q) / (1 + λ)``, or onehot(y) if all parties agree. Cho et al. 2022 (Fed-ET), section 3.2.

    Args:
        diversity: weight λ ≥ 0 of the dissenting parties; 0 gives the label only.

    Returns:
        An aggregator of logits, named ``fed-et``.
    """
    check_number("diversity", diversity, at_least=0, where="fed-et")

    def rule(stack: Stack) -> Combined:
        logits = stack.outputs
        variance = logits.var(axis=2)
        weights = _shares(variance)
        consensus = weighted_mean_of(logits, weights)
        largest = consensus.max(axis=1, keepdims=True)
        named = consensus >= largest - _TIE * np.maximum(np.abs(largest), 1)
        label = named / named.sum(axis=1, keepdims=True)
        own = logits == logits.max(axis=2, keepdims=True)
        disagrees = ~(own & named).any(axis=2)
        others = softmax(weighted_mean_of(logits, _shares(variance * disagrees)), axis=1)
        share = diversity / (1 + diversity) * disagrees.any(axis=0)[:, None]
        return Combined((1 - share) * label + share * others, weights)

    return Aggregator("fed-et", rule, outputs="logits", one_class=True)


def certainty_weighted(
    regularization: float = 0.01, epsilon: float | None = None, delta: float = 1e-5
) -> Aggregator:
    """Weight each party's logits, per public row, by its certainty score (FedAUX).

    The teacher is ``softmax( sum_c s_c(x) z_c(x) / sum_c s_c(x) )``. The certainty ``s_c(x)`` is the
    probability that a logistic regression of party c, trained to separate its private rows from the public
    rows, gives x (:func:`consilience.methods.comparison_rules.membership.certainties`). Sattler et al. 2021
    (FedAUX) use λ = 0.01, and with noise ε = 0.1 and δ = 10⁻⁵.

    By default (``epsilon=None``), no noise is added and there is no privacy guarantee. If ``epsilon`` is set,
    only the certainties are differentially private; predictions are not. The coordinator chooses the noise,
    so a party has to trust it, unless the party has set a limit (``limits.epsilon``).

    Args:
        regularization: strength λ > 0 of the logistic regression; the noise scale is inversely proportional.
        epsilon: ε in (0, 1) of the Gaussian noise on the regression weights, spent once for repeated requests
            with the same options; ``None`` adds no noise.
        delta: δ in (0, 1) of that noise.

    Returns:
        An aggregator of logits, named ``certainty``.
    """
    check_number("regularization", regularization, above=0, where="certainty")
    check_number("epsilon", epsilon, above=0, below=1, optional=True, where="certainty")
    check_number("delta", delta, above=0, below=1, where="certainty")

    def rule(stack: Stack) -> Combined:
        weights = _shares(stack.further[Certainties])
        return Combined(softmax(weighted_mean_of(stack.outputs, weights), axis=1), weights)

    asked = {"regularization": regularization, "epsilon": epsilon, "delta": delta}
    return Aggregator(
        "certainty",
        rule,
        outputs="logits",
        needs=(Certainties,),
        options={Certainties: asked},
        summed=("certainty", {}),
    )


def selective_mean(
    quantile: float = 0.25,
    ambiguity: float = 1.5,
    reference: Literal["uniform", "public"] = "public",
) -> Aggregator:
    """Average, per public row, the parties with similar private rows, and drop ambiguous rows (Selective-FD).

    A party selects a public row if its density ratio there is not below a quantile of the density ratios of
    its calibration rows (:func:`consilience.core.numerics.density.selection`). A row is distilled if at least
    one party selects it and the selecting parties' mean p is clear: ``|p - onehot(argmax p)|_1 = 2 (1 - max_k
    p_k)`` is at most ``ambiguity``. The published code of Shao et al. 2024 (Selective-FD) uses the first
    quartile.

    Args:
        quantile: share, in [0, 1), of its calibration rows that a party classifies as foreign.
        ambiguity: largest ℓ1 distance, in (0, 2], for which a row is distilled; 2 keeps all selected rows.
        reference: denominator of the density ratio: the ``"public"`` rows, or ``"uniform"`` noise.

    Returns:
        An aggregator of probabilities, named ``selective``.
    """
    check_number("quantile", quantile, at_least=0, below=1, where="selective")
    check_number("ambiguity", ambiguity, above=0, at_most=2, where="selective")
    check_choice("reference", reference, ["uniform", "public"], where="selective")

    def rule(stack: Stack) -> Combined:
        selected = stack.further[Selection].astype(bool)
        counted = selected | ~selected.any(axis=0)  # all of them, where nobody speaks
        mean = weighted_mean_of(stack.outputs, counted / counted.sum(axis=0))
        clear = 2 * (1 - mean.max(axis=1)) <= ambiguity
        taught = selected & clear
        return Combined(mean, taught / np.maximum(taught.sum(axis=0), 1))

    return Aggregator(
        "selective",
        rule,
        needs=(Selection,),
        options={Selection: {"quantile": quantile, "reference": reference}},
        one_class=True,
        summed=("selected", {"ambiguity": ambiguity}),
    )


def _shares(scores: Array) -> Array:
    """Divide scores ``(m, n)`` by their sum over the parties; equal shares if all are 0."""
    total = scores.sum(axis=0)
    return np.asarray(np.where(total > 0, scores, 1) / np.where(total > 0, total, len(scores)))

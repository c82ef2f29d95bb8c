"""Fed-ET, FedAUX and Selective-FD: parties weighed, or left out, row by row.

m parties, n public rows, K classes; ``z_c(x)`` is party c's row of logits and ``p_c(x)`` of probabilities.

Deviations
    - Fed-ET (Cho et al. 2022) trains a larger model at the server; here every party is taught. Its loss,
      the cross-entropy to the consensus label plus λ KL(q ‖ model) with q the soft label of those who
      disagree, has the gradient of ``1 + λ`` times the cross-entropy to ``(label + λ q) / (1 + λ)``: that is
      the teacher. Rows weigh ``1 + λ`` there, and 1 here. Classes that tie for the label share it.
    - FedAUX (Sattler et al. 2021) compares private and public rows in the features of a model that was
      pre-trained on public rows, and starts the parties' models from it; here they are compared in the
      principal directions of the space that all parties share
      (:mod:`consilience.core.numerics.feature_space`), and models start as they like. One part of its public
      rows is told from the private ones and another part is scored; here all are both. Its text regularises
      the mean of the losses by λ = 0.01, as here, which its bound on the sensitivity needs; its published
      code regularises their sum by it. It divides features by the largest norm of private and public rows;
      here by that of the public ones, and the constant is regularised too, so that the bound holds.
    - Selective-FD (Shao et al. 2024) compares densities of raw pixels with uniform noise; here the parties'
      are compared with that of the public rows, in the same directions, because noise in many dimensions
      is far from every row and tells classes apart badly; ``reference="uniform"`` is the paper's. There is
      one estimate a party.
    - Rows that nobody selects, or whose teacher is ambiguous, are left out of the distillation in
      Selective-FD and here. Their row of the teacher is the mean over all parties, or over those who
      selected it, for whoever looks at it and for a consensus step. The ambiguity above which a
      teacher is not taught is this library's default.
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
    """Fed-ET: the class that logits weighted by their variance name, and a little of who disagrees.

    ``v_c(x)`` is the variance of ``z_c(x)`` over classes, and the label y the likeliest class of
    ``sum_c v_c z_c / sum_c v_c``. Those who would name another class give
    ``q = softmax(sum_c v_c z_c / sum_c v_c)``, sums over them alone, and the teacher is
    ``(onehot(y) + λ q) / (1 + λ)``; onehot(y) where all agree. Cho et al. 2022 (Fed-ET), section 3.2.

    Args:
        diversity: λ ≥ 0; 0 gives the label alone.
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
    """FedAUX's certainty weights: the softmax of logits weighted by how surely a row is of a party's kind.

    ``softmax( sum_c s_c(x) z_c(x) / sum_c s_c(x) )``, where ``s_c(x)`` is what a logistic regression of
    party c's, trained to tell its private rows from the public ones, says of x
    (:func:`consilience.methods.comparison_rules.membership.certainties`). Sattler et al. 2021 (FedAUX), where
    λ = 0.01, and ε = 0.1 and δ = 10⁻⁵ with noise. Without ``epsilon``, which is the default, no noise is
    added and no privacy is promised. With it the certainties alone are private, predictions are not, and the
    coordinator is trusted to ask for them with noise, unless a party has set a limit (``limits.epsilon``).

    Args:
        regularization: λ > 0 of the logistic regression; the scale of the noise is inverse to it.
        epsilon: ε in (0, 1) of Gaussian noise on its weights, spent once for the same question; ``None`` for
            no noise.
        delta: δ in (0, 1) of that noise.
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
    """Selective-FD: the mean of those who know a row's kind; rows that nobody knows are not taught.

    A party speaks for a public row if the density of its private rows there is not below a quantile of
    what it is at calibration rows of its own (:func:`consilience.core.numerics.density.selection`). A row is
    taught if somebody speaks for it and their mean p is clear: ``|p - onehot(argmax p)|_1 = 2 (1 - max_k
    p_k)`` is at most ``ambiguity``. Shao et al. 2024 (Selective-FD), whose published code has the first
    quartile.

    Args:
        quantile: share of its own rows in [0, 1) that a party takes for foreign.
        ambiguity: largest ℓ1 distance, in (0, 2], of a teacher that is taught; 2 teaches all.
        reference: what the density is compared with: the ``"public"`` rows, or ``"uniform"`` ones.
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
    """Scores ``(m, n)`` as shares of their sum over the parties; even where all are 0."""
    total = scores.sum(axis=0)
    return np.asarray(np.where(total > 0, scores, 1) / np.where(total > 0, total, len(scores)))

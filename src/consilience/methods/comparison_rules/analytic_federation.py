"""Distil the ridge regression of all parties' pooled rows, which is exact for every split of the rows (AFL).

He et al. 2025 (AFL, CVPR); Fanì, Camoriano, Caputo & Ciccone 2024 (Fed3R, ICML).

    1  every client c: send A_c = sum_i phi(x_i) phi(x_i)ᵀ and B_c = sum_i phi(x_i) y_iᵀ over its rows
    2  server: W = (sum_c A_c + λ I)⁻¹ sum_c B_c
    3  for round t = 1, 2, … do
         every client c: train f_c on its private data and on { (x, Wᵀ phi(x)) } for every public x

Legend: phi fixed (untrained) features, y_i a one-hot label or values, f_c the party's learner, λ ``ridge``.

Deviations
    - In the papers, phi is the output of a pretrained network. Here phi is the feature space that all parties
      share (:mod:`consilience.core.numerics.feature_space`), or the agreed encoder if there is one, with a
      constant. For texts without an encoder, phi is the projection on the public rows' principal directions.
    - The papers return the linear model W, the same for all clients. Here W is the teacher, and parties keep
      models of any kind (line 3 is not in the papers). For classification, predictions of W are clipped at 0
      and rescaled to sum to 1.
    - Each party sends its moments once. A round's teacher uses the moments of the parties in that round.
    - AFL solves client by client and removes its λ at the end; the sum is the same.
    - B_c reveals the rows of small classes, so use this protocol in simulations only, like
      :func:`.density_ratio`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from consilience.core.aggregation import Teacher, onto_simplex
from consilience.core.errors import QuorumLost
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import PRECISION, Public
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.tasks.base import NetworkView
from consilience.core.tasks.predictions import Distill, FitPrivate
from consilience.core.tasks.scores import public_features
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.methods.comparison_rules.scores import Moments
from consilience.methods.comparison_rules.tasks import SendMoments


@protocol(exchanges="predictions", needs_public=True, also_called=("afl", "fed3r"))
def analytic_federation(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    ridge: float = 1.0,
    alpha: float | None = None,
) -> Rounds:
    """Distil the ridge regression of all parties' rows, computed exactly from second moments (AFL, Fed3R).

    Args:
        rounds: number of rounds t; the teacher stays the same as long as no party drops out.
        ridge: regularisation strength λ > 0.
        alpha: weight of the private targets, as in :func:`.ensemble_distillation`.

    Raises:
        InvalidInput: an option cannot work with these parties.
        QuorumLost: too few parties answered.

    Source:
        He et al. 2025, theorem 1; Fanì et al. 2024, section 4.
    """
    check_options(network, rounds=rounds, alpha=alpha)
    check_number("ridge", ridge, above=0, where="analytic_federation")
    features = public_features(public, network.agreed)
    asked = partial(SendMoments, features=features.shape[1])
    share = 1 / len(network.parties)
    said: dict[str, Array] = {}
    if state is None:
        said = _by_party(network.ask(FitPrivate(round=1), asked(round=1)))  # line 1
        state = RoundState(round=0)
        yield Round(0, state)
    for t in range(state.round + 1, rounds + 1):  # line 3
        there = tuple(said) or network.parties
        if t > 1:
            there = network.ask(FitPrivate(round=t)).parties
        new = tuple(party for party in there if party not in said)
        if new:
            try:
                said |= _by_party(network.ask(asked(round=t), to=new))
            except QuorumLost:  # they miss the round; the others may be enough for it
                if not said:
                    raise
        counted = tuple(party for party in there if party in said)
        teacher = features @ pooled_ridge([said[party] for party in counted], ridge)  # line 2
        if network.agreed.kind == "classification":
            teacher = onto_simplex(teacher).astype(PRECISION["probabilities"])
        distill = Distill(
            round=t,
            targets=teacher,
            alpha=share if alpha is None else alpha,
            free_alpha=alpha is None,
            share=share,
        )
        network.ask(distill, to=counted)
        state = RoundState(round=t)
        yield Round(t, state, Teacher(teacher, None, counted))


def _by_party(replies: Replies) -> dict[str, Array]:
    """Map each party to its moments, in the order of the parties' names."""
    return {moments.party: moments.values for moments in replies.of(Moments)}


def pooled_ridge(moments: Sequence[Array], ridge: float) -> Array:
    """Solve for the weights W of all parties' rows, shape ``(d, n_outputs)``.

    Args:
        moments: the parties' ``[A | B]``, each of shape ``(d, d + n_outputs)``.
        ridge: λ.
    """
    total = np.sum(moments, axis=0)
    d = len(total)
    return np.asarray(np.linalg.solve(total[:, :d] + ridge * np.eye(d), total[:, d:]))

"""The exact pooled ridge regression, whatever the split, as the teacher of every party's model.

He et al. 2025 (AFL, CVPR); Fanì, Camoriano, Caputo & Ciccone 2024 (Fed3R, ICML).

    1  every client c: send A_c = sum_i phi(x_i) phi(x_i)ᵀ and B_c = sum_i phi(x_i) y_iᵀ over its rows
    2  server: W = (sum_c A_c + λ I)⁻¹ sum_c B_c
    3  for round t = 1, 2, … do
         every client c: train f_c on its private data and on { (x, Wᵀ phi(x)) } for every public x

Legend: phi features that nobody trains, y_i a one-hot label or values, f_c the party's learner, λ ``ridge``.

Deviations
    - phi is a pretrained network's in the papers; here it is the space that all parties share
      (:mod:`consilience.core.numerics.feature_space`), or an encoder's where one was agreed on, with a
      constant. Of texts without an encoder it is the public rows' principal directions.
    - The papers' result is the linear model W itself, the same for all. Here it is the teacher, and parties
      keep models of any kind (line 3 is not theirs). Answers for classes are put on the simplex.
    - Moments are sent once. The teacher of a round is made of those of the parties that take part in it.
    - AFL solves client by client and takes its λ off again at the end; the sum is the same.
    - Rows of small classes can be read off B_c: for simulations, as :func:`.density_ratio` is.
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
    """Parties learn from the ridge regression of all rows, which second moments make exactly.

    Args:
        rounds: number of rounds t; the teacher is the same in all of them, while nobody drops out.
        ridge: λ > 0.
        alpha: as of :func:`.ensemble_distillation`.

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
    """The moments that parties sent, by party in the order of their names."""
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

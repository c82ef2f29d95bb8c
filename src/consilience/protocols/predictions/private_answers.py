"""Distillation from noisy answers of models of shards: subsample and aggregate, one release of each party.

Nissim, Raskhodnikova & Smith 2007 (subsample and aggregate); Papernot et al. 2017, 2018 (PATE, GNMax and
Confident-GNMax); Bassily, Thakkar & Thakurta 2018 (for any kind of model).

    1  server: Q <- some public rows; send them
    2  every client c: train K models on disjoint shards of its data;
       n_c(x, y) <- how many of them say y of x, for x in Q; send n_c + noise, once
    3  server: p_A(x) <- the y of the largest sum_c n_c(x, y)
    4  for round t = 1, 2, … do
         every client c: train f_c on its private data, then on { (x, p_A(x)) : x in Q }

Legend: Q ``answers`` rows, K ``teachers``, n_c the :class:`.ShardAnswers` of a party, p_A ``teacher``, f_c
the party's learner. As in :mod:`.private_sums`, everything behind line 2 costs nothing more, no party answers
anything after it, and what a party's noise is, the party decides.

Deviations
    - The papers have one pile of shards, noise once, and data-dependent costs. Here every party has its own
      shards and adds its own noise, so that it takes as many times the teachers as the root of the number of
      parties; and costs are the same whatever the data are.
    - The papers' student is trained on the answers alone, or half-supervised. Students here are the parties.
    - Models answer with classes (``output="votes"``), with probabilities, whose sum is put back among the
      distributions (``"mean"``), or with values, cut at declared bounds.
    - A party that finds that noise would drown the answers refuses before anything is trained or spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from consilience.aggregation import Teacher
from consilience.aggregation.base import onto_simplex
from consilience.errors import InvalidInput
from consilience.messages.schema import PRECISION, Public
from consilience.messages.scores import ShardAnswers
from consilience.numerics.class_sums import SCALE
from consilience.protocols.base import Rounds, RoundState, check_options, protocol
from consilience.protocols.predictions.private_sums import guarantees, released_once
from consilience.tasks.base import NetworkView
from consilience.tasks.shards import PollShards
from consilience.validation.numbers import check_choice, check_number

Output = Literal["votes", "mean"]


@protocol(exchanges="predictions", needs_public=True, any_party=True)
def private_answers(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    teachers: int = 25,
    answers: int = 300,
    output: Output = "votes",
    confident: float = 0.0,
    bounds: Sequence[float] | None = None,
    anyway: bool = False,
    alpha: float | None = None,
) -> Rounds:
    """Parties learn from answers of models of their shards, which leave once, with noise of a stated loss.

    Args:
        rounds: number of rounds t; the teacher is the same in all of them, while nobody drops out.
        teachers: K, models of each party, each trained on a K-th of its rows.
        answers: public rows that are answered, drawn from all; a quarter of them is half of the noise.
        output: what a model says of a row: ``"votes"`` for the likeliest class, ``"mean"`` for probabilities.
        confident: share of a party's models in (0, 1] that must seem to agree on a row for it to be answered;
            half of the rows are at most. 0 answers all.
        bounds: of values, the least and the largest, in regression: declared, not read off any rows.
        anyway: whether parties are to answer where noise is expected to drown the answers.
        alpha: weight of the private rows in (0, 1) for learners that refit; by default 1/m, or the larger one
            that a party finds better for its own rows.

    Raises:
        InvalidInput: an option cannot work with these parties.
        QuorumLost: too few parties answered, or noise would drown what they say.

    Source:
        Papernot et al. 2018; Bassily, Thakkar & Thakurta 2018.
    """
    check_options(network, rounds=rounds, alpha=alpha)
    agreed, where = network.agreed, "private_answers"
    check_choice("output", output, get_args(Output), where=where)
    check_number("answers", answers, at_least=1, whole=True, where=where)
    regression = agreed.kind == "regression"
    if agreed.outcome or regression == (bounds is None) or (regression and confident):
        raise InvalidInput(
            "classes have no bounds, and values need them and are never confident",
            where=where,
            mend="Regression: bounds = [lowest, highest], of all values that there can be.",
        )
    low, high = (0.0, 1.0) if bounds is None else map(float, bounds)
    drawn = np.random.default_rng(0).permutation(len(public))[:answers]  # no new question by a seed
    rows = np.sort(drawn).astype(np.int64)
    holders = [n for n in agreed.answering(network.parties) if n not in agreed.frozen]

    def asked(t: int) -> PollShards:
        return PollShards(
            round=t,
            rows=rows,
            teachers=teachers,
            votes=output == "votes" and not regression,
            confident=float(confident),
            low=low,
            high=high,
            parties=len(holders),
            anyway=anyway,
        )

    def teach(said: Sequence[ShardAnswers]) -> Teacher:
        """Line 3."""
        counted = np.array([one.answered for one in said])
        heard = counted.sum(axis=0)
        total = np.sum([one.values * one.answered[:, None] for one in said], axis=0) / SCALE
        if regression:
            values = low + (high - low) * total / (teachers * len(said))
        elif output == "votes":
            values = np.eye(agreed.outputs)[total.argmax(axis=1)]
        else:
            models = teachers * np.maximum(heard, 1)
            values = onto_simplex(total / models[:, None])
        kind: Literal["values", "probabilities"] = "values" if regression else "probabilities"
        whole = np.full((len(public), agreed.outputs), 0.0 if regression else 1 / agreed.outputs)
        whole[rows] = np.where(heard[:, None] > 0, values, whole[rows])
        weights = np.zeros((len(said), len(public)))
        weights[:, rows] = counted / np.maximum(heard, 1)
        names = tuple(one.party for one in said)
        return Teacher(whole.astype(PRECISION[kind]), weights, names, tuple(guarantees(said)))

    yield from released_once(network, state, rounds=rounds, alpha=alpha, asked=asked, teach=teach)

"""Distillation from noisy class sums: each party makes one release, with a stated privacy loss.

Vu & Slavković 2009, Foulds et al. 2016 (perturbed sufficient statistics); Balog, Tolstikhin & Schölkopf 2018
(private kernel means); Hoech et al. 2022 (one noisy answer of each party for a federated distillation).

    1  server: phi <- features of the public rows; send them
    2  every client c: S_c(y) <- sum of phi(x) over its rows of class y; send S_c + noise, once
    3  server: r(x, y) <- max(0, phi(x)ᵀ (sum_public phi phiᵀ + λ I)⁻¹ B sum_c S_c(y));  p_A(x) ∝ r(x, ·)
    4  for round t = 1, 2, … do
         every client c: train f_c on its private data, then on { (x, p_A(x)) }

Legend: phi of norm 1 at most (:mod:`consilience.privacy.class_sums.sums`), S_c the :class:`.ClassSums` of a
party, λ of ``ridge``, B shrinkage of the sums according to the known width of the noise, p_A ``teacher``, f_c
the party's learner. In regression each row is shared between the two ends of the value's ``bounds``, which
replace the classes, and p_A is the ridge regression of these sums (:func:`.fitted_values`).

All steps after line 2 are post-processing of the releases and cost no more privacy; parties send no further
answers. Each party sets its noise locally (:func:`.protect`, ``limits.epsilon``), independently of the
options of this protocol.

Deviations
    - The papers train one model, and also use noisy sums of private second moments. Here the second moments
      are those of the public rows, and parties keep models of any kind.
    - Line 2 is part of the first training request; the reply is the same at any later time. The teacher of
      a round uses the sums of the parties that take part in the round.
    - Public rows with all ratios 0 are excluded from distillation.
    - The sums have little defence against malicious parties. The coordinator rejects implausibly large sums,
      and ``most_rows`` limits the weight of a party. A party can declare a guarantee without keeping it.
    - Under secure aggregation there is one sum over the parties present at that time. All rounds use it,
      even if one of these parties drops out later.
    - Without a budget the sums have no noise, which is for simulations only, because rows of small classes
      can be reconstructed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from consilience.core.aggregation import Teacher
from consilience.core.aggregation.base import GUARANTEE
from consilience.core.aggregation.guard import capped_at
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.messages.schema import PRECISION, Agreement, Public
from consilience.core.messages.sums import Sum
from consilience.core.protocols.base import Round, Rounds, RoundState, check_options, protocol
from consilience.core.tasks.base import NetworkView, Task
from consilience.core.tasks.predictions import Distill, FitPrivate
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.privacy.class_sums.messages import ClassSums, NoisySums
from consilience.privacy.class_sums.sums import (
    NO_BOUNDS,
    SCALE,
    Features,
    class_ratios,
    fitted_values,
    taught_by,
)
from consilience.privacy.class_sums.tasks import SumClasses, check_bounds, features_by, public_basis


@protocol(exchanges="predictions", needs_public=True, any_party=True, summed="class sums")
def private_sums(
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    *,
    rounds: int,
    features: Features | None = None,
    dimensions: int | None = None,
    ridge: float = 0.5,
    bounds: Sequence[float] | Sequence[Sequence[float]] = (),
    alpha: float | None = None,
    most_rows: float | Literal["median"] | None = None,
) -> Rounds:
    """Distil from one noisy release of class sums per party, with a stated privacy loss (private sums).

    Args:
        rounds: number of rounds t; the teacher is the same in all of them, unless parties drop out.
        features: ``"kernel"``; ``"directions"`` for texts; ``"leaves"`` for columns with far outliers;
            ``None`` chooses by the public rows (:func:`.usual_features`).
        dimensions: number of features; ``None`` uses the number of columns, limited to 10 to 24, which suits
            some 2,000 private rows in total. 100 for 20,000 rows, 300 above: more features help without noise
            and hurt with it.
        ridge: r_0 > 0 of the fit, in rows.
        bounds: low and high bound of the values, or of each target, from domain knowledge and not from
            private rows; values beyond them are clipped. For regression only.
        alpha: weight of the private rows in (0, 1) for learners that refit; ``None`` uses 1/m, or a larger
            weight that a party finds better for its local rows.
        most_rows: limit on the total length of a party's sums, which with little noise is at most its number
            of rows; ``"median"`` for 1.5 times the parties' median. ``None``, the default, sets no limit;
            secure aggregation allows none.

    Raises:
        InvalidInput: an option cannot work with these parties.
        QuorumLost: too few parties answered.

    Source:
        Vu & Slavković 2009; Balog, Tolstikhin & Schölkopf 2018.
    """
    check_options(network, rounds=rounds, alpha=alpha)
    agreed, where = network.agreed, "private_sums"
    check_choice("features", features or "directions", get_args(Features), where=where)
    check_number("dimensions", dimensions, at_least=1, whole=True, optional=True, where=where)
    check_number("ridge", ridge, above=0, where=where)
    if most_rows != "median":
        check_number("most_rows", most_rows, above=0, optional=True, where=where)
    ends = _bounds(bounds, agreed, where)
    basis = public_basis(public, features, dimensions)  # line 1
    rows = features_by(basis, public)
    yield from released_once(
        network,
        state,
        rounds=rounds,
        alpha=alpha,
        asked=lambda t: SumClasses.of(basis, round=t, bounds=ends),
        teach=lambda sums: _teacher(sums, rows, ridge, ends, most_rows),
    )


def released_once(
    network: NetworkView,
    state: RoundState | None,
    *,
    rounds: int,
    alpha: float | None,
    asked: Callable[[int], Task],
    teach: Callable[[Sequence[Any]], Teacher],
) -> Rounds:
    """Run rounds with a teacher from one release of each party (lines 2 to 4).

    Args:
        network: the parties.
        state: state of the previous round; ``None`` to begin.
        rounds: number of rounds.
        alpha: weight of the private rows for learners that refit; ``None`` uses 1/m, or the party's choice.
        asked: creates the task of a round, whose reply is the release.
        teach: computes the teacher from the releases of the participating parties, in their order.

    Raises:
        QuorumLost: too few parties answered.
    """
    agreed, kind = network.agreed, asked(1).reply_type
    holders = tuple(n for n in agreed.answering(network.parties) if n not in agreed.frozen)
    said: dict[str, Any] = {}
    whole = False  # one sum of all, of which no party's own part is known
    if state is None:
        first = network.ask(FitPrivate(round=1), asked(1), to=holders)  # line 2
        said, whole = {one.party: one for one in first.of(kind)}, bool(first.of(Sum))
        state = RoundState(round=0, memory=_kept(said, whole))
        yield Round(0, state)
    elif kept := state.memory.get(_WHOLE):
        said, whole = {one.party: one for one in kept}, True
    for t in range(state.round + 1, rounds + 1):  # line 4
        there = tuple(said) or holders
        if t > 1:
            there = network.ask(FitPrivate(round=t), to=holders).parties
        if not whole and (new := tuple(party for party in there if party not in said)):
            try:
                more = network.ask(asked(t), to=new)
                said |= {one.party: one for one in more.of(kind)}
                whole = bool(more.of(Sum))
            except QuorumLost:  # they miss the round; the others may be enough for it
                if not said:
                    raise
        there = tuple(party for party in there if party in said)
        teacher = teach([said[party] for party in (said if whole else there)])  # line 3
        distill = Distill(
            round=t,
            targets=teacher.values,
            alpha=1 / len(holders) if alpha is None else alpha,
            taught=teacher.taught,
            free_alpha=alpha is None,
        )
        network.ask(distill, to=agreed.taught(there))
        state = RoundState(round=t, memory=_kept(said, whole))
        yield Round(t, state, teacher)


_WHOLE = "sums"


def _kept(said: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """Keep a secure sum in memory, because the parties open no second sum if one of them is missing."""
    return {_WHOLE: tuple(said.values())} if whole else {}


def _bounds(bounds: Sequence[Any], agreed: Agreement, where: str) -> Array:
    """Return the bounds of each target, shape ``(t, 2)``; empty for classes."""
    if agreed.outcome:
        raise InvalidInput(
            "class sums are of classes or values, and not of an outcome", where=where
        )
    if (agreed.kind == "regression") != bool(len(bounds)):
        raise InvalidInput(
            "bounds are of values, and of these alone",
            where=where,
            mend="Give bounds = [low, high] in regression, by what values there can be; none for classes.",
        )
    try:
        found = np.array(bounds, dtype=np.float64).reshape(-1, 2) if len(bounds) else NO_BOUNDS
    except (TypeError, ValueError):
        found = np.zeros(1)
    if found.shape == (1, 2):
        found = np.tile(found, (agreed.outputs, 1))
    check_bounds(found, where=where)
    return found


def _teacher(
    sums: Sequence[ClassSums],
    public: Array,
    ridge: float,
    bounds: Array,
    most_rows: float | Literal["median"] | None = None,
) -> Teacher:
    """Compute the teacher from the parties' sums; public rows with all ratios 0 are excluded."""
    said, shares = [one.values for one in sums], np.ones(len(sums))
    if most_rows is not None:
        length = np.array([np.linalg.norm(one / SCALE, axis=-1).sum() for one in said])
        shares = np.minimum(1, capped_at(length, most_rows) / np.maximum(length, 1 / SCALE))
        said = [values * share for values, share in zip(said, shares, strict=True)]
    total = np.sum(said, axis=0) / SCALE
    noise = sum((one.sigma * share) ** 2 for one, share in zip(sums, shares, strict=True))
    sigma = float(np.sqrt(noise)) / SCALE
    if len(bounds):
        values = fitted_values(total, public, sigma, ridge, bounds, public)
        values, taught = values.astype(PRECISION["values"]), np.ones(len(public), dtype=bool)
    else:
        values, taught = taught_by(class_ratios(total, public, sigma, ridge, public))
        values = values.astype(PRECISION["probabilities"])
    weights = np.tile(taught / len(sums), (len(sums), 1))
    return Teacher(values, weights, tuple(one.party for one in sums), tuple(guarantees(sums)))


def guarantees(sums: Sequence[NoisySums]) -> list[str]:
    """Describe the declared privacy guarantees of parties, one sentence per kind, for ledger and page.

    Args:
        sums: the parties' replies.

    Returns:
        Sentences, each with the names of the parties.
    """
    said: dict[str, list[str]] = {}
    for one in sums:
        hides = "whether it is there" if one.adjacency == "add-remove" else "what it is"
        seen = "who sees all that left under a budget, the coordinator too,"
        if one.colluding:
            seen = (
                f"the coordinator, with what {one.colluding} of the parties know and all that left under a "
                "budget,"
            )
            if not one.checked:
                seen += " unless it lies of the others' keys, of which they hold no roster,"
        what = (
            f"{seen} learns of one {one.unit} {hides} "
            f"within epsilon = {one.epsilon:g}, delta = {one.delta:g} at most, while metrics, and what left "
            "before the budget, are outside of this guarantee"
            if one.sigma
            else "nothing is guaranteed, since sums left without noise"
        )
        said.setdefault(what, []).append(one.party)
    return [f"{GUARANTEE}{what}, as {', '.join(names)} say" for what, names in said.items()]

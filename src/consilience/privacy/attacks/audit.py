"""Audit of a differential-privacy budget: how well replies reveal whether a canary is among a party's rows.

A canary (:mod:`.canaries`) is a unit of the largest influence, known to the attacker. A party has it or not,
and each reply takes the normal path: bytes of a request, task, party, noise, bytes of a reply. The error
rates of a guess from the reply give, with a stated confidence, a *lower* bound of the privacy loss of the
release. A bound above the promised ε proves a violation of the guarantee, independently of the formulas:

- *GDP*, for normal or nearly normal noise: ``μ >= Φ⁻¹(1 − FPR⁺) − Φ⁻¹(FNR⁺)``, and ε from μ;
- *Clopper–Pearson*, for any noise: ``ε >= ln((1 − FNR⁺ − δ) / FPR⁺)``, and with both roles exchanged;
- *one run*: many canaries in a single release, each present with probability ½.

FPR⁺ and FNR⁺ are the upper ends of exact confidence intervals of both error rates. One half of the trials
selects the threshold of the guess, and the other half gives the bounds.

Source:
    Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini & Terzis 2023 (GDP); Jagielski, Ullman & Oprea
    2020 (intervals); Steinke, Nasr & Jagielski 2023, Theorem 5.2 (one run).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, ndtri
from scipy.stats import binom

from consilience.core.errors import RunFailed
from consilience.core.messages.replies import Failure
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.incoming import decode_reply
from consilience.core.numerics.randomness import NoiseSource, SystemNoise, stream
from consilience.core.party.party import Party
from consilience.core.tasks.outgoing import reply_of
from consilience.core.tasks.requests import open_request
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import gaussian_epsilon
from consilience.privacy.accounting.party import protect
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.privacy.attacks.canaries import CANARIES, CLASSES, joined, question_of_sums
from consilience.privacy.class_sums.sums import SCALE
from consilience.privacy.class_sums.tasks import features_by

_WIDE = 400
"""Largest number of features in the one-run audit."""
_GUESSED = (0.05, 0.1, 0.2, 0.5)
"""Shares of the canaries that the one-run audit guesses, most confident first."""


@dataclass(frozen=True)
class Audit:
    """Lower bounds of the ε of one release, and the promised ε.

    Attributes:
        promised: ε of one release under the budget.
        delta: δ of the budget and of all bounds.
        trials: number of audited replies.
        confidence: minimum probability with which each bound holds.
        gdp: bound for normal noise; 0 if the privacy loss has another form.
        clopper_pearson: bound for any noise.
        one_run: bound from many canaries in one release of class sums; 0 for other releases.
        told_beside: whether parts of the replies other than the noisy numbers depend on the canary; then no ε
            holds.
    """

    promised: float
    delta: float
    trials: int
    confidence: float
    gdp: float
    clopper_pearson: float
    one_run: float
    told_beside: bool

    @property
    def broken(self) -> bool:
        """True if a bound or the other parts of the replies contradict the promised ε."""
        largest = max(self.gdp, self.clopper_pearson, self.one_run)
        return self.told_beside or largest > self.promised


def audit(
    budget: Budget,
    trials: int = 10_000,
    *,
    of: str = "sums",
    confidence: float = 0.95,
    noise: NoiseSource = SystemNoise,
) -> Audit:
    """Audit one kind of release under a budget, on the normal path of every reply.

    Each trial uses a new copy of a party with an empty ledger and looks only at the first reply.

    Args:
        budget: budget of the party.
        trials: number of replies, half of them from the party with the canary; at least 100.
        of: kind of release, a name in :data:`.canaries.CANARIES`.
        confidence: probability with which each bound holds, in (0, 1).
        noise: factory of the noise source, as for :func:`.protect`. Certainties always use noise of the
            operating system.

    Returns:
        The bounds and the promised ε.

    Raises:
        InvalidInput: a setting is out of range, or the budget's δ is too large for a few rows.
        RunFailed: a party did not answer.
    """
    check_number("trials", trials, at_least=100, whole=True, where="audit")
    check_number("confidence", confidence, above=0, below=1, where="audit")
    check_choice("of", of, tuple(CANARIES), where="audit")
    canary = CANARIES[of](budget)
    request, budget = encode(list(canary.tasks)), canary.budget
    there = stream(0, "audit", 0, "trials").permutation(trials) % 2
    scores, beside = np.zeros(trials), (set[bytes](), set[bytes]())
    for trial, inside in enumerate(there):
        *others, reply = _replies(canary.parties[inside], request, budget, noise)
        scores[trial] = canary.told(reply)
        beside[inside].add(encode([*others, replace(reply, values=np.zeros_like(reply.values))]))
    doubt = 1 - confidence
    normal = budget.training is None or not budget.training_loss.renyi
    bounds = (gdp_bound, clopper_pearson_bound) if normal else (clopper_pearson_bound,)
    found = [_by_threshold(scores, there, bound, budget.delta, doubt) for bound in bounds]
    return Audit(
        budget.epsilon if budget.each is None else budget.each,
        budget.delta,
        trials,
        confidence,
        gdp=found[0] if normal else 0.0,
        clopper_pearson=found[-1],
        one_run=_one_run(budget, doubt, noise) if of == "sums" else 0.0,
        told_beside=beside[0] != beside[1],
    )


Bound = Callable[[Array, Array, float], Array]
"""Maps upper ends of both error rates, and δ, to lower bounds of ε."""


def gdp_bound(false_positives: Array, false_negatives: Array, delta: float) -> Array:
    """Bound ε from below by error rates, for a μ-GDP release.

    Args:
        false_positives: upper ends of the false-positive rates, shape ``(n,)``.
        false_negatives: upper ends of the false-negative rates, shape ``(n,)``.
        delta: δ.

    Returns:
        Lower bounds of ε, shape ``(n,)``.
    """
    mu = np.maximum(-ndtri(false_positives) - ndtri(false_negatives), 0)
    return np.array([gaussian_epsilon(float(one), delta) for one in mu])


def clopper_pearson_bound(false_positives: Array, false_negatives: Array, delta: float) -> Array:
    """Bound ε from below by error rates, for any release.

    Args:
        false_positives: upper ends of the false-positive rates, shape ``(n,)``.
        false_negatives: upper ends of the false-negative rates, shape ``(n,)``.
        delta: δ.

    Returns:
        Lower bounds of ε, shape ``(n,)``.
    """
    pairs = ((false_positives, false_negatives), (false_negatives, false_positives))
    odds = [np.maximum(1 - other - delta, 0) / one for one, other in pairs]
    return np.asarray(np.log(np.maximum(np.maximum(*odds), 1)))


def one_run_bound(
    canaries: int, guesses: int, right: int, delta: float, *, doubt: float = 0.05
) -> float:
    """Bound ε from below by guesses about which canaries are in a single release.

    Args:
        canaries: number of canaries, each present independently with probability 1/2.
        guesses: number of guesses.
        right: number of correct guesses.
        delta: δ.
        doubt: largest probability of a bound above ε.

    >>> round(one_run_bound(100, 100, 100, 0.0), 2)  # ln(q / (1 − q)) with q ** 100 = 0.05
    3.49
    """
    fewer = np.arange(right - 1, -1, -1)

    def above(epsilon: float) -> float:
        chance = expit(epsilon)
        near = np.cumsum(binom.pmf(fewer, guesses, chance)) / np.arange(1, right + 1)
        by_delta = 2 * canaries * delta * near.max(initial=0)
        return float(binom.sf(right - 1, guesses, chance) + by_delta - doubt)

    return 0.0 if above(0.0) > 0 else float(brentq(above, 0.0, 100.0))


def _upper(errors: Array, trials: int, doubt: float) -> Array:
    """Return upper ends of error rates, which hold for both rates with probability 1 - ``doubt``."""
    some = errors < trials
    return np.where(
        some, betaincinv(errors + 1, np.where(some, trials - errors, 1), 1 - doubt / 2), 1.0
    )


def _by_threshold(scores: Array, there: Array, bound: Bound, delta: float, doubt: float) -> float:
    """Bound ε by a threshold on the scores: one half selects the threshold, the other gives the bound."""

    def bounds(part: slice, thresholds: Array) -> Array:
        out, inside = (np.sort(scores[part][there[part] == one]) for one in (0, 1))
        positives = _upper(len(out) - np.searchsorted(out, thresholds), len(out), doubt)
        negatives = _upper(np.searchsorted(inside, thresholds), len(inside), doubt)
        return bound(positives, negatives, delta)

    half = len(scores) // 2
    thresholds = np.quantile(scores[:half], np.linspace(0.1, 0.9, 17))
    best = int(bounds(slice(half), thresholds).argmax())
    return float(bounds(slice(half, None), thresholds[[best]])[0])


def _replies(party: Party, request: bytes, budget: Budget, noise: NoiseSource) -> tuple[Any, ...]:
    """Return the replies of a fresh copy of a party, encoded and decoded as on the network."""
    anew = party.renewed()
    privacy_of(anew).declare(privacy_of(party).rows)
    protect(anew, budget, noise=noise)
    data = reply_of(anew, open_request(decode(request)), encode)[1]
    outcome = decode_reply(party.name, data, 0.0).outcome
    if isinstance(outcome, Failure):
        raise RunFailed(outcome.reason, where="audit", mend=outcome.mend or None)
    return tuple(outcome)


def _one_run(budget: Budget, doubt: float, noise: NoiseSource) -> float:
    """Bound ε by many canaries in one release: rows along every axis, of every class."""
    wide = min(_WIDE, int(0.1 / budget.delta) // len(CLASSES))  # δ below one in ten units
    if budget.unit != "row" or wide < 1:
        return 0.0
    public, task, length = question_of_sums(wide)
    there = stream(0, "audit", 0, "canaries").random((len(CLASSES), wide)) < 0.5
    codes, axes = np.nonzero(there)
    rows, labels = 5 * public.X[axes], np.array(CLASSES)[codes]
    if budget.adjacency == "replace":
        codes, axes = np.nonzero(~there)
        rows = np.vstack([rows, -5 * public.X[axes]])
        labels = np.append(labels, np.array(CLASSES)[codes])
    party = joined(public, rows, budget, labels)
    (reply,) = _replies(party, encode([task]), budget, noise)
    directions = features_by(task.basis, public)[:wide, :-1] / length
    scores = (reply.values[:, :-1] @ directions.T / SCALE).ravel()
    scores -= 0.0 if budget.adjacency == "replace" else length / 2
    surest, right = np.argsort(-abs(scores)), (scores > 0) == there.ravel()
    return max(
        one_run_bound(
            len(scores),
            count := int(share * len(scores)),
            int(right[surest[:count]].sum()),
            budget.delta,
            doubt=doubt / len(_GUESSED),
        )
        for share in _GUESSED
    )

"""Rules as sums: arrays that each party adds up, and the teacher that comes out of their sums alone.

A rule that is a sum can be computed where nobody sees a single party's answer
(:mod:`consilience_papers.afonin2022.encrypted`). It says which form it has (:attr:`.Aggregator.summed`);
linear rules have one without saying so. Sums are of integers modulo 2^64: numbers are rounded to multiples of
2^-40, or coarser where they may be large, so that a sum of m parties is wrong by at most m half multiples.

``N`` public rows, ``K`` outputs; p_c(x) are party c's outputs, and the weights those of the rule.

| form | each party's arrays |
| --- | --- |
| ``mean`` | p |
| ``rows`` | n p, n, of its number of rows n |
| ``votes`` | its vote |
| ``ratios`` | s p, p, and sum s, of density ratios s above 0 |
| ``input-ratios`` | S p, p, S, of density ratios of inputs to a power |
| ``entropy`` | w p, w, of w = exp(-H(p) / T) |
| ``certainty`` | s z, s, of certainties s and logits z |
| ``densities`` | w p, of w = exp(T l) of log-densities l, T l cut at ±14 |
| ``selected`` | p on the rows that it speaks for, p, and a mark on these rows |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import entr, softmax

from consilience.core.aggregation.base import (
    Aggregator,
    Stack,
    Teacher,
    one_party,
    plain_mean,
)
from consilience.core.aggregation.density_ratio import DOUBT
from consilience.core.errors import KnowledgeRefused, RunFailed
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import PRECISION, Agreement, OutputKind
from consilience.core.messages.scores import (
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from consilience.core.messages.sums import Sum
from consilience.core.validation.arrays import Array
from consilience.methods.comparison_rules.scores import Certainties, Selection

_REACH: Mapping[OutputKind, float] = {"probabilities": 1.001, "logits": 2.0**15, "values": 2.0**31}
"""Largest output of a kind that is added up; beyond it a party refuses."""

_ROWS, _LARGE = 2.0**31, 2.0**37
"""Largest number of rows, and of rows times a value."""

_CUT = 14.0
"""Largest |T l| of log-densities l that weigh by exp(T l): integers of 64 bits hold no more decades."""

LEAST_TEMPERATURE = 0.2
"""Least temperature of weights by entropy: below it the weights of all but the surest party vanish."""

MOST_TEMPERATURE = 1.0
"""Largest temperature of weights by density, that of ``uwa``."""

Parts = Sequence[Array]
Made = tuple[Array, Array | None]
"""A teacher, shape ``(N, K)``, and a mask of the rows that are taught; ``None`` for all."""


@dataclass(frozen=True)
class SumForm:
    """Form of a rule as a sum.

    Attributes:
        arrays: axes of each array, ``"NK"``, ``"N"`` or ``""`` for a number, and its largest number.
        terms: makes a party's arrays of the stack of its own replies.
        teacher: makes the teacher of the arrays' sums over parties, and of the number of parties.
    """

    arrays: tuple[tuple[str, float], ...]
    terms: Callable[[Stack], Parts]
    teacher: Callable[[Parts, int], Made]

    def shapes(self, rows: int, outputs: int) -> list[tuple[int, ...]]:
        """List the arrays' shapes for so many public rows and outputs."""
        size = {"N": rows, "K": outputs}
        return [tuple(size[axis] for axis in axes) for axes, _ in self.arrays]

    def steps(self, stack: Stack) -> Array:
        """Compute a party's integers modulo 2^64, shape ``(n,)``, uint64.

        Raises:
            KnowledgeRefused: a number is beyond the largest.
        """
        parts = []
        for values, (_, most) in zip(self.terms(stack), self.arrays, strict=True):
            if not np.abs(values).max(initial=0) <= most:  # nor is NaN
                raise KnowledgeRefused(f"a number beyond {most:g}, for which a sum has no room")
            parts.append(np.rint(np.ravel(values) * 2.0 ** bits_for(most)).astype(np.int64))
        return np.concatenate(parts).view(np.uint64)

    def made(self, total: Array, parties: int, agreement: Agreement) -> Made:
        """Make the teacher of the sum of the parties' integers.

        Args:
            total: shape ``(n,)``, uint64.
            parties: their number.
            agreement: what they agreed on.
        """
        shapes, start = self.shapes(agreement.rows, agreement.outputs), 0
        parts = []
        for shape, (_, most) in zip(shapes, self.arrays, strict=True):
            end = start + math.prod(shape)
            parts.append(total[start:end].view(np.int64).reshape(shape) * 2.0 ** -bits_for(most))
            start = end
        return self.teacher(parts, parties)


def bits_for(most: float) -> int:
    """Compute the bits after the point of numbers up to a largest one, in sums over 100 parties."""
    return min(40, 62 - 7 - math.ceil(math.log2(most)))


@dataclass(frozen=True)
class SummedRule(Aggregator):
    """A rule that is handed a sum in place of replies.

    Attributes:
        form: of the rule.
        agreement: what the parties agreed on.
    """

    form: SumForm = field(kw_only=True)
    agreement: Agreement = field(kw_only=True)

    def __call__(self, replies: Replies, memory: Mapping[str, Any] | None = None) -> Teacher:
        """Make the teacher of the sum that every reply holds.

        Args:
            replies: those of a round.
            memory: of the round before, which a sum has none of.

        Raises:
            RunFailed: it is of no answers, such as probabilities that do not sum to 1.
        """
        total, m = replies.of(Sum)[0], len(replies)
        with np.errstate(divide="ignore", invalid="ignore"):
            values, taught = self.form.made(total.values, m, self.agreement)
            off = np.abs(values.sum(axis=1) - 1).max() if self.outputs == "probabilities" else 0.0
        if not (np.isfinite(values).all() and off <= 1e-3):
            raise RunFailed(
                "the sum of the parties gives no teacher: one has added what no answers add up to, or all "
                "weights of a row vanish",
                where=f"aggregator {self.name}",
            )
        shares = np.full((m, len(values)), 1 / m) * (True if taught is None else taught)
        return Teacher(values.astype(PRECISION[self.outputs]), shares, total.parties)


def form_named(name: str, settings: Mapping[str, float], outputs: OutputKind) -> SumForm:
    """Make a form by its name, to compute a party's terms by.

    Args:
        name: of the table above.
        settings: of the rule.
        outputs: that the rule reads.

    Raises:
        KnowledgeRefused: there is none of that name, or it has other settings.
    """
    try:
        return _FORMS[name](Aggregator(name, plain_mean, outputs), **settings)
    except (KeyError, TypeError) as error:
        raise KnowledgeRefused(
            f"no form of a sum is called {name!r} and has these settings"
        ) from error


def form_of(rule: Aggregator) -> tuple[str, Mapping[str, float]] | None:
    """Give the name of a rule's form and its settings; ``None`` for a rule that is no sum or screened."""
    if rule.screen is not None:
        return None
    if rule.summed is not None or not rule.linear:
        return rule.summed
    return ("rows" if RowCount in rule.needs else "mean"), {}


def summed_rule(rule: Aggregator, agreement: Agreement) -> SummedRule:
    """Make a rule that is handed sums, of one that has a form."""
    found = form_of(rule)
    assert found is not None
    form = _FORMS[found[0]](rule, **found[1])
    return SummedRule(
        rule.name,
        rule.rule,
        rule.outputs,
        calibrated=rule.calibrated,
        form=form,
        agreement=agreement,
    )


def _vote(outputs: Array) -> Array:
    top = outputs == outputs.max(axis=1, keepdims=True)
    return np.asarray(top / top.sum(axis=1, keepdims=True))


def _weighted(stack: Stack, weights: Array) -> list[Array]:
    """Outputs times weights of rows, and these weights."""
    return [stack.outputs[0] * weights[:, None], weights]


def _near(stack: Stack) -> Array:
    kind = DensityRatios if DensityRatios in stack.further else CoarseRatios
    return np.asarray(np.maximum(stack.further[kind][0], 0))


def _by_entropy(rule: Aggregator, temperature: float) -> SumForm:
    """Make the form of weights by entropy.

    Raises:
        KnowledgeRefused: with the temperature, a sum would tell the answers of the surest party alone; or
            outputs are no probabilities, which alone have an entropy.
    """
    if rule.outputs != "probabilities":
        raise KnowledgeRefused(f"entropies of {rule.outputs}")
    if not temperature >= LEAST_TEMPERATURE:
        raise KnowledgeRefused(
            f"entropies at a temperature of {temperature:g}, of at least {LEAST_TEMPERATURE:g}"
        )
    return SumForm(
        (("NK", _REACH[rule.outputs]), ("N", 1.0)),
        lambda stack: _weighted(stack, np.exp(-entr(stack.outputs[0]).sum(axis=1) / temperature)),
        lambda sums, m: (sums[0] / sums[1][:, None], None),
    )


def _of_densities(rule: Aggregator, temperature: float) -> SumForm:
    """Make the form of weights by density.

    Raises:
        KnowledgeRefused: with the temperature, a sum would tell the answers of one party alone.
    """
    # Beyond 1 most T l are cut at one of the ends, and one party's weight is 12 decades above the others';
    # below 0 it is that of the party that knows a row least.
    if not 0 < temperature <= MOST_TEMPERATURE:
        raise KnowledgeRefused(
            f"log-densities times {temperature:g}, of above 0 and at most {MOST_TEMPERATURE:g}"
        )
    return SumForm(
        (("NK", math.exp(_CUT) * _REACH[rule.outputs]),),
        lambda stack: _weighted(stack, _by_density(stack, temperature))[:1],
        lambda sums, m: (sums[0] / sums[0].sum(axis=1, keepdims=True), None),
    )


def _by_density(stack: Stack, temperature: float) -> Array:
    return np.asarray(np.exp(np.clip(temperature * stack.further[LogDensities][0], -_CUT, _CUT)))


def _by_ratio(sums: Parts, parties: int) -> Made:
    """Make the teacher of :func:`.by_ratio`."""
    votes, near, plain = sums
    doubt = DOUBT * float(near) / (parties * len(plain))
    votes = votes + (doubt or 1.0) * plain
    return votes / votes.sum(axis=1, keepdims=True), None


def _by_input_ratio(sums: Parts, parties: int) -> Made:
    """Make the teacher of :func:`.by_input_ratio`."""
    weighted, near, plain = sums
    doubt = DOUBT * near.sum() / (parties * len(near)) or 1.0
    return (weighted + doubt * plain) / (near + parties * doubt)[:, None], None


def _selected(sums: Parts, parties: int, ambiguity: float) -> Made:
    """Make the teacher of :func:`.selective_mean`."""
    chosen, count, plain = sums
    spoken = count > 0.5
    mean = np.where(spoken[:, None], chosen / np.where(spoken, count, 1)[:, None], plain / parties)
    return mean, spoken & (2 * (1 - mean.max(axis=1)) <= ambiguity)


_FORMS: Mapping[str, Callable[..., SumForm]] = {
    "mean": lambda rule: SumForm(
        (("NK", _REACH[rule.outputs]),),
        lambda stack: [stack.outputs[0]],
        lambda sums, m: (rule.rule(one_party(sums[0] / m))[0], None),
    ),
    "rows": lambda rule: SumForm(
        (("NK", _ROWS if rule.outputs == "probabilities" else _LARGE), ("", _ROWS)),
        lambda stack: [stack.outputs[0] * stack.further[RowCount][0], stack.further[RowCount]],
        lambda sums, m: (sums[0] / sums[1], None),
    ),
    "votes": lambda rule: SumForm(
        (("NK", 1.0),),
        lambda stack: [_vote(stack.outputs[0])],
        lambda sums, m: (sums[0] / m, None),
    ),
    "ratios": lambda rule: SumForm(
        (("NK", _ROWS), ("", _ROWS), ("NK", _REACH[rule.outputs])),
        lambda stack: [_near(stack) * stack.outputs[0], _near(stack).sum(), stack.outputs[0]],
        _by_ratio,
    ),
    "input-ratios": lambda rule, power: SumForm(
        (("NK", _LARGE), ("N", _ROWS), ("NK", _REACH[rule.outputs])),
        lambda stack: [
            *_weighted(stack, np.maximum(stack.further[InputRatios][0], 0) ** power),
            stack.outputs[0],
        ],
        _by_input_ratio,
    ),
    "entropy": _by_entropy,
    "densities": _of_densities,
    "certainty": lambda rule: SumForm(
        (("NK", _REACH[rule.outputs]), ("N", 1.0)),
        lambda stack: _weighted(stack, stack.further[Certainties][0]),
        lambda sums, m: (softmax(sums[0] / sums[1][:, None], axis=1), None),
    ),
    "selected": lambda rule, ambiguity: SumForm(
        (("NK", _REACH[rule.outputs]), ("N", 1.0), ("NK", _REACH[rule.outputs])),
        lambda stack: [*_weighted(stack, stack.further[Selection][0]), stack.outputs[0]],
        lambda sums, m: _selected(sums, m, ambiguity),
    ),
}

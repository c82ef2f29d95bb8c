"""Aggregation rules as sums: arrays that each party adds up, and the teacher computed from their sums.

A rule that can be computed from sums works under secure aggregation, without access to single answers
(:mod:`consilience_papers.afonin2022.encrypted`). Its attribute :attr:`.Aggregator.summed` names its form;
linear rules have a form by default. Sums are of integers modulo 2^64: numbers are rounded to multiples of
2^-40, or coarser if they may be large, so that a sum of m parties is wrong by at most m half multiples.

``N`` public rows, ``K`` outputs; p_c(x) are party c's outputs, and the weights those of the rule.

| form | each party's arrays |
| --- | --- |
| ``mean`` | p |
| ``rows`` | n p, n, for its number of rows n |
| ``votes`` | its vote |
| ``ratios`` | s p, p, and sum s, for density ratios s above 0 |
| ``input-ratios`` | S p, p, S, for density ratios S of inputs to a power |
| ``entropy`` | w p, w, for w = exp(-H(p) / T) |
| ``certainty`` | s z, s, for certainties s and logits z |
| ``densities`` | w p, for w = exp(T l) of log-densities l, T l cut at ±14 |
| ``selected`` | p on its selected rows, p, and a mask of these rows |
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
"""Largest summable output of each kind; a party refuses to sum larger ones."""

_ROWS, _LARGE = 2.0**31, 2.0**37
"""Largest number of rows, and of rows times a value."""

_CUT = 14.0
"""Largest |T l| of log-densities l with weights exp(T l); 64-bit integers cannot represent a larger range."""

LEAST_TEMPERATURE = 0.2
"""Smallest temperature of entropy weights; below it only the most confident party has a notable weight."""

MOST_TEMPERATURE = 1.0
"""Largest temperature of density weights, as in ``uwa``."""

Parts = Sequence[Array]
Made = tuple[Array, Array | None]
"""Teacher, shape ``(N, K)``, and mask of the rows to distil on; ``None`` for all."""


@dataclass(frozen=True)
class SumForm:
    """Form of a rule as a sum.

    Attributes:
        arrays: axes of each array, ``"NK"``, ``"N"`` or ``""`` for a number, and its largest absolute value.
        terms: computes a party's arrays from the stack of its replies.
        teacher: computes the teacher from the sums of the arrays over parties and the number of parties.
    """

    arrays: tuple[tuple[str, float], ...]
    terms: Callable[[Stack], Parts]
    teacher: Callable[[Parts, int], Made]

    def shapes(self, rows: int, outputs: int) -> list[tuple[int, ...]]:
        """List the shapes of the arrays for a number of public rows and outputs."""
        size = {"N": rows, "K": outputs}
        return [tuple(size[axis] for axis in axes) for axes, _ in self.arrays]

    def steps(self, stack: Stack) -> Array:
        """Compute a party's integers modulo 2^64, shape ``(n,)``, uint64.

        Raises:
            KnowledgeRefused: a number exceeds the largest allowed value.
        """
        parts = []
        for values, (_, most) in zip(self.terms(stack), self.arrays, strict=True):
            if not np.abs(values).max(initial=0) <= most:  # nor is NaN
                raise KnowledgeRefused(f"a number beyond {most:g}, for which a sum has no room")
            parts.append(np.rint(np.ravel(values) * 2.0 ** bits_for(most)).astype(np.int64))
        return np.concatenate(parts).view(np.uint64)

    def made(self, total: Array, parties: int, agreement: Agreement) -> Made:
        """Compute the teacher from the sum of the parties' integers.

        Args:
            total: the sum, shape ``(n,)``, uint64.
            parties: number of parties.
            agreement: agreement of the parties.

        Returns:
            The teacher, shape ``(N, K)``, and a mask of the rows to distil on; ``None`` for all.
        """
        shapes, start = self.shapes(agreement.rows, agreement.outputs), 0
        parts = []
        for shape, (_, most) in zip(shapes, self.arrays, strict=True):
            end = start + math.prod(shape)
            parts.append(total[start:end].view(np.int64).reshape(shape) * 2.0 ** -bits_for(most))
            start = end
        return self.teacher(parts, parties)


def bits_for(most: float) -> int:
    """Return the number of fractional bits for numbers up to ``most``, in sums over at most 100 parties."""
    return min(40, 62 - 7 - math.ceil(math.log2(most)))


@dataclass(frozen=True)
class SummedRule(Aggregator):
    """Aggregation rule that takes a sum in place of replies.

    Attributes:
        form: form of the rule as a sum.
        agreement: agreement of the parties.
    """

    form: SumForm = field(kw_only=True)
    agreement: Agreement = field(kw_only=True)

    def __call__(self, replies: Replies, memory: Mapping[str, Any] | None = None) -> Teacher:
        """Compute the teacher from the sum in the replies.

        Args:
            replies: replies of a round; each holds the sum.
            memory: ignored; rules on sums have no memory.

        Returns:
            The teacher; all parties have equal shares in it.

        Raises:
            RunFailed: the sum is not one of valid answers, for example if probabilities do not sum to 1.
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
    """Return a form by its name, to compute a party's terms.

    Args:
        name: name of the form in the table above.
        settings: settings of the rule.
        outputs: kind of outputs that the rule reads.

    Raises:
        KnowledgeRefused: there is no form of that name with these settings.
    """
    try:
        return _FORMS[name](Aggregator(name, plain_mean, outputs), **settings)
    except (KeyError, TypeError) as error:
        raise KnowledgeRefused(
            f"no form of a sum is called {name!r} and has these settings"
        ) from error


def form_of(rule: Aggregator) -> tuple[str, Mapping[str, float]] | None:
    """Return the name and settings of a rule's form; ``None`` if it has no form or is guarded."""
    if rule.screen is not None:
        return None
    if rule.summed is not None or not rule.linear:
        return rule.summed
    return ("rows" if RowCount in rule.needs else "mean"), {}


def summed_rule(rule: Aggregator, agreement: Agreement) -> SummedRule:
    """Convert a rule to its version on sums; the rule must have a form."""
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
    """Create the form of entropy weights.

    Raises:
        KnowledgeRefused: the temperature is so low that a sum would reveal the answers of the most confident
            party; or the outputs are not probabilities.
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
    """Create the form of density weights.

    Raises:
        KnowledgeRefused: with this temperature a sum would reveal the answers of one party.
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

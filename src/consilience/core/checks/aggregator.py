"""The contract of aggregators, as checks on replies made up for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.base import one_party, stack
from consilience.core.checks.example_parties import NAMES
from consilience.core.checks.expectations import expect, same_bits
from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import PRECISION
from consilience.core.messages.scores import (
    PublicScores,
    RowCount,
)
from consilience.core.messages.sums import Weights
from consilience.core.validation.arrays import Array

ROWS, OUTPUTS = 12, 3


def check_aggregator(aggregator: Aggregator, *, parties: Sequence[str] = NAMES) -> None:
    """Check that an aggregator satisfies the contract.

    Args:
        aggregator: the aggregator, such as ``uwa()``.
        parties: names of the answering parties, for a rule with settings for named parties.

    Raises:
        AssertionError: at the first failed check.
    """
    for check in AGGREGATOR_CHECKS:
        check(aggregator, tuple(parties))


def teacher_is_well_formed(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """The teacher has finite rows of the right precision, and its weights are shares.

    Rows are distributions for classification. Weights sum to 1 over the parties, or are all 0 on an excluded
    row.
    """
    teacher = aggregator(_replies(aggregator, parties))
    values, weights = teacher.values, teacher.weights
    precision = np.dtype(PRECISION[aggregator.outputs])
    expect(values.dtype == precision, f"the teacher is {values.dtype}, expected {precision}")
    expect(values.shape == (ROWS, OUTPUTS), f"the teacher has shape {values.shape}")
    expect(np.isfinite(values).all(), "the teacher holds NaN or infinite values")
    if aggregator.kind == "classification":
        expect(values.min() >= 0, "the teacher holds negative probabilities")
        expect(np.allclose(values.sum(axis=1), 1, atol=1e-5), "rows of the teacher do not sum to 1")
    expect(teacher.parties == parties, f"the teacher is of {teacher.parties}, not {parties}")
    if weights is not None:
        expect(weights.shape == (len(parties), ROWS), f"weights have shape {weights.shape}")
        expect(weights.min() >= 0, "weights are negative")
        sums = weights.sum(axis=0)
        expect(
            (np.isclose(sums, 1) | (sums == 0)).all(), "weights do not sum to 1 over the parties"
        )


def same_replies_give_the_same_bits(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """The rule is pure: it is deterministic, stateless, and leaves its input unchanged."""
    replies = _replies(aggregator, parties)
    first = aggregator(replies).values
    aggregator(_replies(aggregator, parties, seed=1))
    expect(same_bits(first, aggregator(replies).values), "the same replies gave another teacher")
    untouched = _replies(aggregator, parties)
    kinds: tuple[type[Any], ...] = (Predictions, *aggregator.needs)
    for kind in kinds:
        for before, after in zip(untouched.of(kind), replies.of(kind), strict=True):
            same = same_bits(np.asarray(before.values), np.asarray(after.values))
            expect(same, "the rule changed what it was given")


def order_of_parties_does_not_matter(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """Parties in another order give the same teacher, and the same weights in that order."""
    replies = _replies(aggregator, parties)
    teacher = aggregator(replies)
    turned = {name: replies.answers[name] for name in reversed(parties)}
    other = aggregator(Replies(turned, {}))
    expect(np.allclose(teacher.values, other.values, atol=1e-6), "another order, another teacher")
    if teacher.weights is not None and other.weights is not None:
        expect(
            np.allclose(teacher.weights[::-1], other.weights), "weights do not follow the parties"
        )


def parties_that_agree_are_believed(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """If all parties agree, the teacher agrees with them: the same likeliest class, the same values."""
    said = np.eye(OUTPUTS)[np.arange(ROWS) % OUTPUTS]
    teacher = aggregator(_replies(aggregator, parties, said=said)).values
    if aggregator.kind == "regression":
        expect(np.allclose(teacher, said), "all parties said the same values, the teacher others")
    expect(
        (teacher.argmax(axis=1) == said.argmax(axis=1)).all(),
        "all parties were sure of one class, and the teacher names another",
    )


def one_party_is_enough(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """One party's replies alone make a teacher with its likeliest classes, or its values."""
    replies = _replies(aggregator, parties[:1])
    said = replies.of(Predictions)[0].values
    teacher = aggregator(replies).values
    if aggregator.kind == "regression":
        expect(np.allclose(teacher, said), "one party's values are not the teacher's")
    else:
        expect(
            (teacher.argmax(axis=1) == said.argmax(axis=1)).all(),
            "one party alone is not followed",
        )


def linear_rules_need_sums_alone(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """A rule declared linear gives the same teacher for all replies and for their weighted mean."""
    if not aggregator.linear:
        return
    expect(
        is_linear(aggregator, parties), "it is declared linear, and the parties' mean does not do"
    )


def is_linear(aggregator: Aggregator, parties: Sequence[str] = NAMES) -> bool:
    """Return whether a rule gives the same teacher for random replies and for their mean.

    Args:
        aggregator: an aggregator; its ``rule`` is called, even if it is not declared linear.
        parties: names of the answering parties; with few parties, rules that exclude some are linear too.
    """
    if not set(aggregator.needs) <= {RowCount}:
        return False
    replies = _replies(aggregator, tuple(parties))
    weights: Weights = "rows" if RowCount in aggregator.needs else "uniform"
    mean = replies.sum(Predictions, weights=weights, over=None).values
    of_all = aggregator.rule(stack(replies, needs=aggregator.needs))[0]
    of_sum = aggregator.rule(one_party(mean, needs=aggregator.needs))[0]
    return np.allclose(of_all, of_sum, rtol=1e-9, atol=1e-12)


def bad_knowledge_is_refused(aggregator: Aggregator, parties: tuple[str, ...]) -> None:
    """The rule refuses empty replies, replies without a required part, and replies of another kind."""
    replies = _replies(aggregator, parties)
    _refuses(aggregator, Replies({}, {}), "no replies")
    needed: tuple[type[Any], ...] = (Predictions, *aggregator.needs)
    for kind in needed:
        short = tuple(given for given in replies.answers[parties[0]] if not isinstance(given, kind))
        lacking = Replies({**replies.answers, parties[0]: short}, {})
        _refuses(aggregator, lacking, f"a party without {kind.__name__}")
    other = "logits" if aggregator.outputs != "logits" else "probabilities"
    foreign = _replies(aggregator, parties, outputs=other)
    _refuses(aggregator, foreign, f"{other} instead of {aggregator.outputs}")


AGGREGATOR_CHECKS: tuple[Callable[[Aggregator, tuple[str, ...]], None], ...] = (
    teacher_is_well_formed,
    same_replies_give_the_same_bits,
    order_of_parties_does_not_matter,
    parties_that_agree_are_believed,
    one_party_is_enough,
    linear_rules_need_sums_alone,
    bad_knowledge_is_refused,
)


def _refuses(aggregator: Aggregator, replies: Replies, what: str) -> None:
    try:
        aggregator(replies)
    except KnowledgeRefused:
        return
    raise AssertionError(f"{what} should be refused with KnowledgeRefused")


def _replies(
    aggregator: Aggregator,
    parties: tuple[str, ...],
    *,
    seed: int = 0,
    said: Array | None = None,
    outputs: str | None = None,
) -> Replies:
    rng = np.random.default_rng(seed)
    kind: Any = outputs or aggregator.outputs
    answers: dict[str, tuple[Any, ...]] = {}
    for name in parties:
        if said is not None:
            values = said
        elif kind == "probabilities":
            values = rng.dirichlet(np.ones(OUTPUTS), ROWS)
        else:
            values = rng.normal(size=(ROWS, OUTPUTS))
        values = values.astype(PRECISION[kind])
        values.flags.writeable = False
        common: dict[str, Any] = {"party": name, "round": 1}
        classes = tuple(map(str, range(OUTPUTS))) if aggregator.kind == "classification" else ()
        answers[name] = (
            Predictions(kind=kind, classes=classes, public="", values=values, **common),
            *(_score(needed, rng, classes, common) for needed in aggregator.needs),
        )
    return Replies(answers, {})


def _score(
    kind: type[Any], rng: np.random.Generator, classes: tuple[str, ...], common: dict[str, Any]
) -> Any:
    """A random score of a kind, within its bounds."""
    if not issubclass(kind, PublicScores):
        return kind(rows=int(rng.integers(1, 100)), **common)
    columns, _ = kind.form("classification" if classes else "regression", OUTPUTS)
    shape = (ROWS, *columns)
    if kind.precision is np.bool_:
        values = rng.random(shape) < 0.5
    else:
        low, high = max(kind.above, kind.at_least, -3.0), min(kind.at_most, 3.0)
        values = rng.uniform(low + 0.1 * (high - low), high, shape).astype(kind.precision)
    values.flags.writeable = False
    more: dict[str, Any] = {"classes": classes} if kind.per_class else {}
    return kind(public="", values=values, **more, **common)

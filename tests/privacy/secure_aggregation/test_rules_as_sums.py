"""Rules as sums: what comes out of the parties' integers is the rule's own teacher, up to the fixed point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience.core.aggregation import AGGREGATORS, Aggregator, suwa, uwa
from consilience.core.aggregation.base import Stack
from consilience.core.errors import KnowledgeRefused, RunFailed
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import Agreement
from consilience.core.messages.scores import (
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from consilience.core.messages.sums import Sum
from consilience.methods.comparison_rules.scores import Certainties, Selection
from consilience.privacy.secure_aggregation.rules_as_sums import (
    bits_for,
    form_named,
    form_of,
    summed_rule,
)

M, N, K = 4, 6, 3
RULES = {name: rule for name, make in AGGREGATORS.items() if form_of(rule := make())}
PARTIES = tuple("abcd")


def stack_for(rule: Aggregator) -> Stack:
    """Replies of four parties; on row 0 nobody speaks, and nobody has rows near it."""
    rng = np.random.default_rng(0)
    outputs = rng.dirichlet(np.full(K, 0.5), size=(M, N)).astype(np.float32).astype(float)
    if rule.outputs != "probabilities":
        outputs = rng.normal(size=(M, N, K)) * 10
    outputs[1, 1] = 1 / K  # a tie
    near = rng.normal(size=(M, N, K))
    near[:, 0] = -1
    scores: dict[type[Any], Any] = {
        RowCount: np.array([10.0, 200, 3, 77]),
        DensityRatios: near,
        CoarseRatios: np.maximum(near, 0),
        InputRatios: near[:, :, 0],
        Certainties: rng.uniform(0.01, 1, size=(M, N)),
        Selection: near[:, :, 1] > 0,
        LogDensities: rng.uniform(-13, 13, size=(M, N)),
    }
    return Stack(PARTIES, outputs, {kind: scores[kind] for kind in rule.needs})


def agreement_for(rule: Aggregator) -> Agreement:
    kind = "regression" if rule.outputs == "values" else "classification"
    classes = () if rule.outputs == "values" else ("x", "y", "z")
    return Agreement(kind=kind, classes=classes, outputs=K, public="", rows=N, seed=0)


def total_of(rule: Aggregator, stack: Stack) -> Any:
    """The sum modulo 2^64 of what each party adds, who knows the form by its name alone."""
    name, settings = form_of(rule) or ("", {})
    form = form_named(name, settings, rule.outputs)
    total = np.zeros(sum(map(np.prod, form.shapes(N, K))).astype(int), dtype=np.uint64)
    for place, party in enumerate(PARTIES):
        further = {kind: values[place : place + 1] for kind, values in stack.further.items()}
        total += form.steps(Stack((party,), stack.outputs[place : place + 1], further))
    return total


def teacher_of(rule: Aggregator, total: Any) -> Any:
    given = Sum(total, np.ones(M), PARTIES)
    summed = summed_rule(rule, agreement_for(rule))
    return summed(Replies({party: (given,) for party in PARTIES}, {}))


@pytest.mark.parametrize("name", RULES)
def test_the_teacher_of_sums_is_that_of_the_replies(name: str) -> None:
    rule = RULES[name]
    stack = stack_for(rule)
    made, expected = teacher_of(rule, total_of(rule, stack)), rule.rule(stack)
    # Rows weigh up to 200 here: 2^-24 of a count, against 2^-40 of a probability.
    np.testing.assert_allclose(
        made.values, expected[0], rtol=0, atol=2e-7 * (1 + np.abs(expected[0]).max())
    )
    np.testing.assert_array_equal(made.weights.any(axis=0), expected[1].any(axis=0))


def test_log_densities_are_cut_at_14() -> None:
    """Of 40 and −40 nothing is left but 14 and −14: the second party counts e^-28 of the first."""
    rule = uwa()
    stack = stack_for(rule)
    far = np.array([[40.0], [-40.0], [-15.0], [13.0]]) * np.ones(N)
    made = teacher_of(rule, total_of(rule, replace(stack, further={LogDensities: far}))).values
    weights = np.exp(np.array([14.0, -14.0, -14.0, 13.0]))
    expected = np.einsum("c,cnk->nk", weights / weights.sum(), stack.outputs)
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-6)


def test_a_mean_is_that_of_the_replies_bit_for_bit() -> None:
    rule = RULES["avg"]
    stack = stack_for(rule)
    made = teacher_of(rule, total_of(rule, stack)).values
    np.testing.assert_array_equal(made, rule.rule(stack)[0].astype(np.float32))


@pytest.mark.parametrize(("most", "bits"), [(1.0, 40), (2.0**15, 40), (2.0**31, 24), (2.0**37, 18)])
def test_a_sum_over_a_hundred_parties_never_wraps(most: float, bits: int) -> None:
    assert bits_for(most) == bits
    assert 100 * most * 2.0**bits < 2**63


def test_what_has_no_room_is_refused() -> None:
    form = form_named("mean", {}, "probabilities")
    with pytest.raises(KnowledgeRefused, match="no room"):
        form.steps(Stack(("a",), np.full((1, N, K), 1.5)))
    with pytest.raises(KnowledgeRefused, match="no form"):
        form_named("median", {}, "probabilities")
    with pytest.raises(KnowledgeRefused, match="settings"):
        form_named("mean", {"power": 2.0}, "probabilities")
    for temperature in (0.19, 0.0, -1.0, float("nan")):  # a hostile coordinator may send any
        with pytest.raises(KnowledgeRefused, match=r"of at least 0\.2"):
            form_named("entropy", {"temperature": temperature}, "probabilities")
    with pytest.raises(KnowledgeRefused, match="entropies of logits"):
        form_named("entropy", {"temperature": 1.0}, "logits")
    for temperature in (1.01, 1e6, 0.0, -1.0, float("nan")):
        with pytest.raises(KnowledgeRefused, match="at most 1"):
            form_named("densities", {"temperature": temperature}, "probabilities")
    assert form_of(suwa(1.0)) and form_of(suwa(1.01)) is None


def test_a_sum_of_no_answers_is_noticed() -> None:
    rule = RULES["avg"]
    total = total_of(rule, stack_for(rule))
    total[0] += np.uint64(2**40)
    with pytest.raises(RunFailed, match="no answers"):
        teacher_of(rule, total)

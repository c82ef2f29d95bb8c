"""What holds for all predictions, not only those worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from consilience.core.aggregation import (
    AGGREGATORS,
    Aggregator,
    avg,
    entropy_weighted,
    mean_logits,
    power_sharpened_mean,
    sharpened_mean,
    suwa,
    trimmed_mean,
    uwa,
)
from consilience.core.aggregation.base import Combined, stack
from consilience.core.checks import check_aggregator
from consilience.core.checks.aggregator import (
    AGGREGATOR_CHECKS,
    is_linear,
    linear_rules_need_sums_alone,
    one_party_is_enough,
    parties_that_agree_are_believed,
)
from consilience.core.errors import InvalidInput
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.scores import LogDensities
from consilience.methods.comparison_rules.reliability import selective_mean, variance_weighted
from consilience.methods.comparison_rules.scores import LARGEST_LOG_ODDS
from helpers.replies import replies

MEAN_LIKE = [
    "avg",
    "uwa",
    "suwa",
    "entropy",
    "median",
    "trimmed-mean",
    "count-weighted",
    "selective",
    "mean",
    "weighted-mean",
    "value-median",
]
WEIGHTED = tuple(name for name in MEAN_LIKE if name not in ("median", "trimmed-mean"))


@st.composite
def federations(draw, alone=False):
    """Random probabilities, also exact zeros, log-densities and counts of up to six parties."""
    m, n, k = (
        1 if alone else draw(st.integers(1, 6)),
        draw(st.integers(1, 4)),
        draw(st.integers(2, 4)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shares = rng.dirichlet(np.ones(k), (m, n))
    hard = rng.random((m, n, 1)) < 0.3
    outputs = np.where(hard, np.eye(k)[shares.argmax(axis=2)], shares)
    spread = draw(st.sampled_from([0.1, 10.0, 1e4]))
    return outputs, spread * rng.normal(size=(m, n)), rng.integers(1, 1000, m).tolist()


def told(name: str, outputs, density, rows) -> Replies:
    """What parties say; those to whom a row looks typical are also sure of it and speak for it."""
    ratios = density[:, :, None] * outputs  # as likely below 0 as above, and different by class
    return replies(
        *outputs,
        kind=AGGREGATORS[name]().outputs,
        log_density=density,
        rows=rows,
        ratios=ratios,
        certainties=np.maximum(expit(density), 1e-8),
        selected=density > 0,
        odds=np.clip(density, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS),
        likeness=expit(density),
    )


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "ratios-alone"])
def test_the_contract(name):
    check_aggregator(AGGREGATORS[name]())


@pytest.mark.parametrize("check", AGGREGATOR_CHECKS)
def test_the_contract_of_a_rule_that_asks_no_model(check):
    rule, parties = AGGREGATORS["ratios-alone"](), ("a", "b", "c")
    if check in (parties_that_agree_are_believed, one_party_is_enough):
        with pytest.raises(AssertionError, match=r"one class|not followed"):
            check(rule, parties)
    else:
        check(rule, parties)


@pytest.mark.parametrize("name", AGGREGATORS)
@given(federation=federations(), seed=st.integers(0, 1000))
def test_another_order_of_parties_is_the_same_teacher(name, federation, seed):
    outputs, density, rows = federation
    order = np.random.default_rng(seed).permutation(len(outputs))
    straight = AGGREGATORS[name]()(told(name, outputs, density, rows))
    turned = AGGREGATORS[name]()(
        told(name, outputs[order], density[order], [rows[i] for i in order])
    )
    np.testing.assert_allclose(straight.values, turned.values, atol=1e-6)
    if straight.weights is not None:
        np.testing.assert_allclose(straight.weights[order], turned.weights, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in AGGREGATORS if AGGREGATORS[n]().kind != "regression"])
@given(federation=federations())
def test_the_teacher_is_a_distribution(name, federation):
    teacher = AGGREGATORS[name]()(told(name, *federation))
    assert teacher.values.min() >= 0
    np.testing.assert_allclose(teacher.values.sum(axis=1), 1, atol=1e-5)
    if teacher.weights is not None:
        sums = teacher.weights.sum(axis=0)
        np.testing.assert_allclose(sums, 1 if teacher.taught is None else teacher.taught, atol=1e-9)


@pytest.mark.parametrize("name", MEAN_LIKE)
@given(federation=federations(alone=True))
def test_one_party_is_its_own_teacher(name, federation):
    teacher = AGGREGATORS[name]()(told(name, *federation))
    np.testing.assert_allclose(teacher.values, federation[0][0], atol=1e-6)


@pytest.mark.parametrize("name", WEIGHTED)
@given(federation=federations())
def test_the_teacher_lies_between_the_parties(name, federation):
    """A weighted mean does, whatever the weights; rescaling after a median need not."""
    outputs = federation[0]
    values = AGGREGATORS[name]()(told(name, *federation)).values
    assert (values >= outputs.min(axis=0) - 1e-6).all()
    assert (values <= outputs.max(axis=0) + 1e-6).all()


@given(federation=federations())
def test_a_temperature_near_zero_makes_suwa_the_mean(federation):
    given_ = told("suwa", *federation)
    mean = avg()(given_).values
    np.testing.assert_allclose(suwa(temperature=1e-12)(given_).values, mean, atol=1e-6)


@given(federation=federations())
def test_a_large_temperature_makes_suwa_the_most_confident_party(federation):
    outputs, density, _ = federation
    sole = suwa(temperature=1e9)(told("suwa", *federation)).values
    best = np.float32(density).argmax(axis=0)
    np.testing.assert_allclose(sole, outputs[best, np.arange(len(best))], atol=1e-6)


@given(federation=federations())
def test_a_temperature_of_one_makes_suwa_uwa(federation):
    given_ = told("suwa", *federation)
    np.testing.assert_array_equal(suwa(temperature=1)(given_).values, uwa()(given_).values)


@given(federation=federations())
def test_a_large_temperature_makes_entropy_weighting_the_mean(federation):
    given_ = told("entropy", *federation)
    mean = avg()(given_).values
    np.testing.assert_allclose(entropy_weighted(temperature=1e9)(given_).values, mean, atol=1e-6)


@given(federation=federations())
def test_a_temperature_near_zero_makes_sharpening_the_likeliest_class(federation):
    given_ = told("era", *federation)
    mean = np.mean([p.values.astype(float) for p in given_.of(Predictions)], axis=0)
    top = mean == mean.max(axis=1, keepdims=True)
    sharp = sharpened_mean(temperature=1e-12)(given_).values
    assert (sharp[~top] < 1e-2).all()


@given(federation=federations())
def test_trimming_nothing_is_the_mean(federation):
    given_ = told("trimmed-mean", *federation)
    mean = avg()(given_).values
    np.testing.assert_allclose(trimmed_mean(share=0)(given_).values, mean, atol=1e-6)


@given(federation=federations())
def test_a_power_of_one_is_the_mean(federation):
    given_ = told("enhanced-era", *federation)
    mean = avg()(given_).values
    np.testing.assert_allclose(power_sharpened_mean(exponent=1)(given_).values, mean, atol=1e-6)


@given(federation=federations(), exponent=st.floats(1, 1e6))
def test_a_power_above_one_raises_the_likeliest_class(federation, exponent):
    given_ = told("enhanced-era", *federation)
    mean = avg()(given_).values
    sharp = power_sharpened_mean(exponent=exponent)(given_).values
    assert (sharp.max(axis=1) >= mean.max(axis=1) - 1e-6).all()


@given(federation=federations())
def test_parties_as_sure_as_one_another_have_their_logits_averaged(federation):
    outputs, density, rows = federation
    given_ = told("certainty", outputs, np.zeros_like(density), rows)
    mean = mean_logits()(given_).values
    np.testing.assert_allclose(AGGREGATORS["certainty"]()(given_).values, mean, atol=1e-6)


@given(federation=federations(), diversity=st.floats(0, 1e3))
def test_the_consensus_label_keeps_its_share(federation, diversity):
    """Of 1 + λ it has 1, however many disagree, and ties share it."""
    outputs, density, rows = federation
    given_ = told("fed-et", outputs, density, rows)
    label = variance_weighted(diversity=0)(given_).values
    values = variance_weighted(diversity=diversity)(given_).values
    assert (values >= label / (1 + diversity) - 1e-6).all()


@given(federation=federations())
def test_where_all_speak_and_nothing_is_ambiguous_selection_is_the_mean(federation):
    outputs, density, rows = federation
    given_ = told("selective", outputs, np.abs(density) + 1, rows)
    teacher = selective_mean(ambiguity=2)(given_)
    np.testing.assert_allclose(teacher.values, avg()(given_).values, atol=1e-6)
    assert teacher.taught is None


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_rule_says_whether_it_is_linear_in_the_parties(name):
    """Of many parties, so that a rule that leaves the outermost out does leave some out."""
    rule = AGGREGATORS[name]()
    assert is_linear(rule, [f"party {i}" for i in range(11)]) == rule.linear


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if AGGREGATORS[name]().linear])
def test_a_sum_in_place_of_single_replies_changes_no_bit(name):
    rng, rule = np.random.default_rng(0), AGGREGATORS[name]()
    given_ = told(name, rng.dirichlet(np.ones(3), (7, 20)), np.zeros((7, 20)), range(1, 8))
    of_all, weights, *_ = rule.rule(stack(given_, needs=rule.needs))
    teacher = rule(given_)
    np.testing.assert_array_equal(teacher.values, of_all.astype(teacher.values.dtype))
    np.testing.assert_array_equal(teacher.weights, weights)


def test_a_rule_that_needs_more_than_sums_is_not_linear():
    with pytest.raises(InvalidInput, match="a linear rule that needs LogDensities"):
        Aggregator(
            "own",
            lambda stack: Combined(stack.outputs[0], None),
            needs=(LogDensities,),
            linear=True,
        )
    first = Aggregator("first", lambda stack: Combined(stack.outputs[0], None), linear=True)
    with pytest.raises(AssertionError, match="it is declared linear"):
        linear_rules_need_sums_alone(first, ("a", "b"))


def test_a_rule_that_returns_something_else_is_told_what_to_return():
    rule = Aggregator("mine", lambda stack: (stack.outputs[0], None))
    with pytest.raises(InvalidInput, match="rule returned tuple"):
        rule(replies(np.eye(2), np.eye(2)))

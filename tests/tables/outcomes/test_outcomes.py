"""Outcomes coded as bins, and scores of survival, held against numbers by hand and scikit-survival."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.metrics.metrics import metrics_of, outcome_scores
from consilience.core.numerics.outcomes import outcome_of
from consilience.lab.config.party_sections import OutcomeSpec
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.survival import Survival
from consilience.tables.outcomes.survival_scores import (
    KaplanMeier,
    brier_scores,
    concordance,
    integrated,
    seen_weights,
    survival_rows,
)

Y = np.array([[1, 1], [2, 0], [3, 1], [4, 1], [5, 0.0]])


def test_kaplan_meier_by_hand():
    # 5 at risk at 1, 3 at 3, 2 at 4: 4/5, 4/5 · 2/3, 4/5 · 2/3 · 1/2
    assert KaplanMeier.of(Y).at(np.array([0, 1, 2, 3, 4, 9])) == pytest.approx(
        [1, 0.8, 0.8, 8 / 15, 4 / 15, 4 / 15]
    )


def test_censored_rows_are_spread_by_kaplan_meier():
    targets = Survival([1, 3, 4.5]).targets(Y, own=Y)
    # Censored at 2: of 0.8, 8/15 survive 3 and 4/15 survive 4.5. At 5 it has outlived the last edge.
    assert targets[1] == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert targets[[0, 2, 3, 4]].argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert targets.sum(axis=1) == pytest.approx(np.ones(5))


def test_a_row_that_nobody_outlives_is_taken_to_stay():
    own = np.array([[1, 1], [2, 1.0]])
    assert Survival([1, 3]).targets(np.array([[2.5, 0]]), own=own).tolist() == [[0, 0, 1]]


def test_an_event_at_an_edge_is_before_it():
    assert Survival([1, 2]).targets(np.array([[1, 1.0]]), own=Y)[0].tolist() == [1, 0, 0]


def test_a_row_censored_at_an_edge_has_outlived_it():
    assert Survival([90, 180]).targets(np.array([[180, 0.0]]), own=Y).tolist() == [[0, 0, 1]]
    # At 3: of the 8/15 that survive it, half survive 4.5.
    inner = Survival([1, 3, 4.5]).targets(np.array([[3, 0.0]]), own=Y)
    assert inner[0] == pytest.approx([0, 0, 0.5, 0.5])


def test_nobody_is_taken_for_dead_at_an_edge_where_all_are_censored():
    """Two of ten die at 50, and eight are last seen at 180, where all of these are alive."""
    days, y = Survival([90, 180]), np.array([[50, 1]] * 2 + [[180, 0]] * 8, dtype=float)
    true, dead = (np.tile(one, (10, 1)) for one in ([0.2, 0, 0.8], [0.2, 0.8, 0]))
    # 2/10 of 0.8² and 8/10 of 0.2² at both edges; of all dead, 8/10 at the second one.
    assert days.row_scores(true, y)["ibs"].mean() == pytest.approx(0.16)
    assert days.row_scores(dead, y)["ibs"].mean() == pytest.approx((0.16 + 0.8) / 2)


def test_an_event_at_the_last_time_counts_beside_a_row_censored_then():
    found = brier_scores(np.zeros((2, 1)), np.array([[2, 1], [2, 0.0]]), np.array([2.0]))
    assert found.tolist() == [[0], [1]]


def test_edges_after_all_measured_rows_are_not_scored():
    y, outputs = np.array([[1, 1], [3, 0.0]]), np.array([[0.5, 0.2, 0.2, 0.1]] * 2)
    assert Survival([1, 2, 4]).row_scores(outputs, y)["ibs"] == pytest.approx(
        Survival([1, 2]).row_scores(outputs[:, :3] + [0, 0, 0.1], y)["ibs"]
    )
    assert Survival([4, 5, 6]).row_scores(outputs, y) == {}
    with pytest.raises(InvalidInput, match="seen at 4"):
        brier_scores(outputs[:, :1], y, np.array([4.0]))


def test_the_log_loss_of_a_censored_row_is_of_all_bins_that_are_left_to_it():
    """At an edge the bin that ends there is over; within a bin it is not; an event has its own bin."""
    y = np.array([[50, 1], [90, 1], [90, 0], [100, 0], [180, 0], [200, 1.0]])
    outputs = np.tile([0.5, 0.25, 0.25], (6, 1))
    losses = outcome_scores(Survival([90, 180]), outputs, y)["log_loss"]
    assert np.exp(-losses) == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.25, 0.25])


def test_the_log_loss_does_not_ask_for_the_tail_of_kaplan_meier():
    """Two of a group that outlives all edges are censored: a curve that says so may not lose by it."""
    y = np.array([[1, 1], [2, 0], [2, 0], [3, 1.0]])
    stays = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0.0]])
    like_others = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0.0]])
    one, other = (
        metrics_of(said, y, outcome=Survival([1, 3]))["log_loss"] for said in (stays, like_others)
    )
    assert one == other == 0


def test_survival_answers_the_share_that_outlives_each_edge():
    days = Survival([90, 365.5])
    assert days.answers(np.array([[0.2, 0.3, 0.5]])) == pytest.approx(np.array([[0.8, 0.5]]))
    assert days.columns == ("survival_90", "survival_365.5")


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    time = np.round(rng.exponential(5, 300), 1) + 0.1
    y = np.column_stack([time, rng.random(300) < 0.6])
    return y, rng.dirichlet([1, 1, 1, 1], 300)


def test_metrics_are_those_of_scikit_survival(drawn):
    metrics = pytest.importorskip("sksurv.metrics")
    y, outputs = drawn
    edges = np.array([2, 4, 9])
    days = Survival(edges)
    structured = np.array([(e > 0, t) for t, e in y], dtype=[("e", bool), ("t", float)])
    survival = days.survival(outputs)
    expected = metrics.integrated_brier_score(structured, structured, survival, edges)
    assert days.row_scores(outputs, y)["ibs"].mean() == pytest.approx(expected, rel=1e-12)
    risk = np.round(outputs @ [3, 2, 1, 0], 1)  # with ties
    harrell = metrics.concordance_index_censored(y[:, 1] > 0, y[:, 0], risk)[0]
    assert concordance(risk, y, np.ones(300)) == pytest.approx(harrell, rel=1e-12)
    uno = metrics.concordance_index_ipcw(structured, structured, risk)[0]
    squared = seen_weights(y, y) ** 2
    assert concordance(risk, y, np.ones(300), of_events=squared) == pytest.approx(uno, rel=1e-12)


def test_a_row_of_weight_two_is_two_rows(drawn):
    y, outputs = drawn
    twice = np.repeat(np.arange(300), np.where(np.arange(300) < 50, 2, 1))
    weights = np.where(np.arange(300) < 50, 2.0, 1.0)
    risk = outputs[:, 0]
    assert concordance(risk, y, weights) == pytest.approx(
        concordance(risk[twice], y[twice], np.ones(350)), rel=1e-12
    )


def test_own_rows_are_measured_apart(drawn):
    y, outputs = drawn
    own = (np.arange(300) < 100).astype(float)
    found = metrics_of(outputs, y, own, outcome=Survival([2, 4, 9]))
    assert set(found) == {
        name + side for name in ("ibs", "log_loss", "harrell_c", "uno_c") for side in ("", "_own")
    }
    scores = brier_scores(Survival([2, 4, 9]).survival(outputs), y, np.array([2, 4, 9.0]))
    assert found["ibs_own"] == pytest.approx(integrated(scores, np.array([2, 4, 9.0]))[:100].mean())


def test_quantiles_are_read_between_the_edges():
    lengths = Quantiles([0, 10, 20, 40], [0.1, 0.5, 0.9])
    # Half of the mass lies below 10: the median is that edge; a tenth lies a fifth into the first bin.
    assert lengths.answers(np.array([[0.5, 0.25, 0.25]])) == pytest.approx(np.array([[2, 10, 32]]))
    assert lengths.answers(np.array([[0, 1, 0.0]])) == pytest.approx(np.array([[11, 15, 19]]))
    assert lengths.targets(np.array([-3, 10, 99.0]), own=np.zeros(0)).argmax(axis=1).tolist() == [
        0,
        0,
        2,
    ]


def test_metrics_of_quantiles_by_hand():
    lengths = Quantiles([0, 10, 20], [0.1, 0.9])
    outputs = np.array([[0.5, 0.5]] * 2)  # quantiles 2 and 18
    found = metrics_of(outputs, np.array([4, 19.0]), outcome=lengths)
    # 4: 0.1 · 2 and 0.1 · 14, 19: 0.1 · 17 and 0.9 · 1; their means 0.8 and 1.3
    assert found["pinball"] == pytest.approx(1.05)
    assert (found["coverage"], found["width"]) == (0.5, 16)
    assert found["log_loss"] == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    "event", [["yes", "no"], [True, False], [1, 0], [1.0, 0.0], ["TRUE", "false"]]
)
def test_events_are_truth_values_in_any_words(event):
    assert survival_rows([3, 4], event, where="x").tolist() == [[3, 1], [4, 0]]


@pytest.mark.parametrize(
    ("time", "event", "said"),
    [
        ([1, -2], [1, 0], "row 2: -2"),
        ([1, np.nan], [1, 0], "row 2"),
        ([1, 2], [1, 2], "an event is 2"),
        ([1, 2], ["dead", "no"], "'dead'"),
        (["a", 2], [1, 0], "not numbers"),
    ],
)
def test_rows_that_are_none_are_refused(time, event, said):
    with pytest.raises(InvalidInput, match=said):
        survival_rows(time, event, where="x")


def test_own_rows_that_teach_nothing_are_refused():
    days = Survival([10, 20])
    with pytest.raises(InvalidInput, match="censored"):
        days.check_own(np.array([[5, 0], [30, 0.0]]), where="x")
    with pytest.raises(InvalidInput, match="first edge is 10, and its last time is 3"):
        days.check_own(np.array([[1, 1], [3, 0.0]]), where="x")
    with pytest.raises(InvalidInput, match="one bin"):
        days.check_own(np.array([[5, 1], [12, 1.0]])[:1].repeat(2, axis=0) * [3, 1], where="x")
    with pytest.raises(InvalidInput, match="from 1 to 2"):
        Quantiles([10, 20, 30]).check_own(np.array([1, 2.0]), where="x")


@pytest.mark.parametrize("edges", [[], [3, 2], [2, 2], [0, 1], [np.inf], ["a"]])
def test_edges_that_cannot_be_are_refused(edges):
    with pytest.raises(InvalidInput):
        Survival(edges)


def test_an_outcome_is_said_and_read_again():
    for one in (Survival([90, 180.5]), Quantiles([0, 1, 2], [0.5])):
        again = outcome_of(one.key)
        assert (type(again), again.key, again.classes) == (type(one), one.key, one.classes)
    with pytest.raises(InvalidInput):
        outcome_of("{}")


def test_a_section_says_edges_or_equal_widths():
    assert OutcomeSpec(horizon=300, bins=3).outcome().edges.tolist() == [100, 200, 300]
    assert OutcomeSpec(range=(0, 10), bins=2, quantiles=(0.5,)).outcome().edges.tolist() == [
        0,
        5,
        10,
    ]
    for wrong in (
        {},
        {"edges": (1,), "horizon": 3},
        {"horizon": 3, "quantiles": (0.5,)},
        {"edges": (2, 1)},
    ):
        with pytest.raises(ValueError):
            OutcomeSpec(**wrong)

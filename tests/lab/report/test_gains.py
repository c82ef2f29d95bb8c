"""Gains and their intervals: every number from rows written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from consilience.core.errors import RunFailed
from consilience.lab.experiments import Ledger
from consilience.lab.experiments.measured_rows import _encoded, decoded, row_scores
from consilience.lab.report import read_results, verdict
from consilience.lab.report.gains import Gain, _averages, _gain, _Pair, gains_of, worse_off

Make = Callable[..., Path]


def scored(
    run: Path, scores: Mapping[str, Mapping[str, np.ndarray]], own: np.ndarray, seeds: int = 1
) -> Path:
    """Add scores of single rows to a run: ``{method: {metric: (parties, rows)}}``, in round 1."""
    ledger = Ledger(run / "ledger.sqlite")
    for seed in range(seeds):
        for party, weights in zip("ab", own, strict=True):
            ledger.write("own_rows", [(seed, party, "rows", weights.astype("<f4").tobytes())])
            for method, by_metric in scores.items():
                for metric, values in by_metric.items():
                    data = _encoded(metric, values["ab".index(party)] > 0)
                    ledger.write("row_scores", [(method, seed, 1, party, metric, data)])
    ledger.close()
    return run


def metrics(right: np.ndarray, own: np.ndarray) -> dict[str, list[list[float]]]:
    """The metrics that such rows come to, the same in rounds 0 and 1."""
    weighted = ((own * right).sum(axis=1) / own.sum(axis=1)).tolist()
    return {"accuracy": [right.mean(axis=1).tolist()] * 2, "accuracy_own": [weighted] * 2}


def of_rows(make_run: Make, alone: np.ndarray, after: np.ndarray, own: np.ndarray) -> Path:
    run = make_run({"local": {0: metrics(alone, own)}, "avg": {0: metrics(after, own)}})
    return scored(run, {"local": {"accuracy": alone}, "avg": {"accuracy": after}}, own)


def test_the_interval_of_a_share_of_rows_is_that_of_the_binomial(make_run: Make) -> None:
    """Half of 400 rows are gained by both: 0.5, with sqrt(0.25/400) = 0.025 and 1.96 of it each side."""
    alone = np.zeros((2, 400))
    after = np.tile(np.arange(400) % 2, (2, 1)).astype(float)
    own = np.stack([np.arange(400) < 200, np.arange(400) >= 200]).astype(float)
    gains = gains_of(read_results(of_rows(make_run, alone, after, own)))["avg"]
    for name, deviation in (("accuracy", 0.025), ("accuracy_own", 0.025)):
        gain = gains[name]
        assert gain.over == "rows" and gain.mean == 0.5 and gain.interval is not None
        assert gain.interval == pytest.approx(
            (0.5 - 1.96 * deviation, 0.5 + 1.96 * deviation), abs=0.004
        )
    # A party has half of the rows for its own, and a standard error sqrt 2 times as large.
    assert gains["accuracy_own"].errors["a"] == pytest.approx(0.025 * 2**0.5, abs=0.002)


def test_few_seeds_widen_the_interval() -> None:
    """Gains of 0.4 and 0.6 over seeds: a variance of the mean of 0.01; over draws of rows one of 0.0025.

    The freedom is (0.0125 / 0.01)² = 1.5625, where Student's 97.5 % point is far above 1.96.
    """
    after = np.array([[0.4, 0.4], [0.6, 0.6]])
    pair = _Pair("accuracy", (0, 1), np.zeros((2, 2)), after, {})
    gain = _gain("ab", pair, np.array([[[0.45, 0.45], [0.55, 0.55]], [[0.0, 0.1], [0.0, 0.3]]]))
    half = stdtrit(1.5625, 0.975) * 0.0125**0.5
    assert gain.interval == pytest.approx((0.5 - half, 0.5 + half)) and half > 0.5
    assert gain.errors["a"] == pytest.approx(0.0125**0.5)
    assert gain.errors["b"] == pytest.approx((0.01 + 0.1**2) ** 0.5)  # its figure alone varies more


def test_rows_are_paired_so_that_equal_losses_cancel(make_run: Make) -> None:
    """What is right before is right after, and one row more in ten: no draw loses anything."""
    alone = np.tile(np.arange(100) % 2 == 0, (2, 1)).astype(float)
    after = np.where(np.arange(100) % 10 == 1, 1.0, alone)
    results = read_results(of_rows(make_run, alone, after, np.ones((2, 100))))
    gain = gains_of(results)["avg"]["accuracy"]
    assert gain.interval is not None and gain.interval[0] > 0.03 and gain.mean == pytest.approx(0.1)


def test_the_same_run_has_the_same_interval(make_run: Make) -> None:
    rng = np.random.default_rng(0)
    alone, after = (rng.random((2, 50)) < share for share in (0.4, 0.6))
    run = of_rows(make_run, alone.astype(float), after.astype(float), np.ones((2, 50)))
    first, second = (gains_of(read_results(run))["avg"]["accuracy"].interval for _ in range(2))
    assert first == second


def test_who_is_worse_off_by_more_than_chance(make_run: Make) -> None:
    """Of 100 own rows a loses 20, b gains 1 and loses 2: ((2 + 1)/100 − 0.01²)/100 is 0.017 squared."""
    alone = np.ones((2, 100))
    alone[1, 0] = 0
    after = np.ones((2, 100))
    after[0, :20] = 0
    after[1, 1:3] = 0
    results = read_results(of_rows(make_run, alone, after, np.ones((2, 100))))
    gain = gains_of(results)["avg"]["accuracy"]
    assert gain.errors["b"] == pytest.approx(0.017, abs=0.002)
    assert gain.worse == ("a",) and str(worse_off(results, "avg")) == "1 of 2"
    assert gain.errors["a"] == pytest.approx(0.04, abs=0.003)  # of its gain; alone it has none
    found = verdict(results)
    assert found is not None and found.opening == "Exchange did harm"


def test_a_loss_within_the_chance_of_the_figure_alone_leaves_nobody_worse_off(
    make_run: Make,
) -> None:
    """50 of 100 right alone: 0.05. Three rows fewer are a sure loss, and within that."""
    alone = np.tile(np.arange(100) < 50, (2, 1)).astype(float)
    after = alone.copy()
    after[0, :3], after[1, :8] = 0, 0
    results = read_results(of_rows(make_run, alone, after, np.ones((2, 100))))
    gain = gains_of(results)["avg"]["accuracy"]
    assert gain.errors["a"] == pytest.approx(0.05, abs=0.003) and gain.worse == ("b",)


def test_own_rows_weigh_in_every_draw() -> None:
    """Two rows right of three; drawn 2, 1 and 0 times, with weights 1, 2 and 5: (2·1·1 + 0)/(2 + 2)."""
    counts, weights = np.array([[2.0, 1.0, 0.0]]), np.array([[1.0, 2.0, 5.0]])
    assert _averages(counts, weights, np.array([[1.0, 0.0, 1.0]]), "accuracy") == [[0.5]]


def test_the_curve_of_a_draw_is_that_of_its_rows() -> None:
    """The third row is left out and the first counts twice, as in scikit-learn with these weights."""
    from sklearn.metrics import roc_auc_score

    scores, truth = np.array([0.2, 0.2, 0.9, 0.4, 0.6]), np.array([0, 1, 0, 0, 1])
    counts = np.array([[2.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    signed = np.where(truth == 1, scores, -scores)
    found = _averages(counts, np.ones((1, 5)), signed[None], "auc")[:, 0]
    expected = [roc_auc_score(truth, scores, sample_weight=weights) for weights in counts]
    np.testing.assert_allclose(found, expected)


def test_parties_stand_for_chance_where_one_seed_and_metrics_are_all(make_run: Make) -> None:
    """Gains 0.1, 0.2 and 0.3: 0.2 ± 4.303 · 0.1/sqrt 3."""
    run = make_run(
        {"avg": {0: {"accuracy": [[0.5] * 3, [0.6, 0.7, 0.8]]}}},
        parties=("a", "b", "c"),
        rows=((1, 1),) * 3,
    )
    gain = gains_of(read_results(run))["avg"]["accuracy"]
    assert gain.over == "parties"
    assert gain.interval == pytest.approx((0.2 - 0.2484, 0.2 + 0.2484), abs=1e-4)


def test_scores_come_back_as_they_went() -> None:
    class Sure:
        classes = ("no", "yes")

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.stack([1 - X, X], axis=1)

    X, y = np.array([0.25, 0.75, 0.5]), np.array(["no", "no", "yes"])
    found = {
        metric: decoded(metric, data, 3, RunFailed)
        for _, metric, data in row_scores({"a": Sure()}, X, y)  # type: ignore[dict-item]
    }
    assert found["accuracy"].tolist() == [1, 0, 0]  # a tie goes to the first class
    np.testing.assert_allclose(found["log_loss"], -np.log([0.75, 0.25, 0.5]), rtol=1e-3)
    assert found["auc"].tolist() == [-0.25, -0.75, 0.5]


@pytest.mark.parametrize("data", [b"", b"\0" * 5, np.array([np.nan, 1], "<f2").tobytes()])
def test_scores_that_are_none(data: bytes) -> None:
    with pytest.raises(RunFailed, match="scores of rows"):
        decoded("log_loss", data, 2, RunFailed)


def test_a_gain_within_rounding_is_none() -> None:
    gain = Gain("accuracy", *(None,) * 2, 0.0, None, "", {"a": -1e-15}, {"a": 0.0})  # type: ignore[arg-type]
    assert gain.worse == ()

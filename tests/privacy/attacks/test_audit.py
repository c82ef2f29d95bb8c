"""An audit through the shipped door: it agrees with ε, and finds noise that is too little or known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput
from consilience.core.numerics.randomness import NoiseSource, Normal
from consilience.core.validation.arrays import Array
from consilience.lab.cli.main import app
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.accounting.mechanisms import GaussianNoise
from consilience.privacy.attacks.audit import (
    Audit,
    _upper,
    audit,
    clopper_pearson_bound,
    gdp_bound,
    one_run_bound,
)
from consilience.privacy.class_sums.party import SumsNoise


class Scaled:
    """Noise of a generator with a seed, some times as wide as it is asked for."""

    def __init__(self, factor: float = 1.0) -> None:
        self.rng, self.factor = np.random.default_rng(0), factor

    def normal(self, *, scale: float, size: tuple[int, ...]) -> Array:
        return self.rng.normal(scale=self.factor * scale, size=size)


def drawn(factor: float = 1.0) -> NoiseSource:
    source = Scaled(factor)
    return lambda: source


def test_bounds_by_hand() -> None:
    one = np.array([0.158655])  # Φ(−1): μ is 2, whose ε at this δ is 10
    assert gdp_bound(one, one, 1e-5) == pytest.approx(10, abs=0.01)
    assert gdp_bound(np.array([0.6]), np.array([0.5]), 1e-5) == 0
    few, many = np.array([0.1]), np.array([0.2])
    assert clopper_pearson_bound(few, many, 0.0) == pytest.approx(np.log(8))
    assert clopper_pearson_bound(many, few, 0.0) == pytest.approx(np.log(8))
    assert clopper_pearson_bound(few, many, 0.1) == pytest.approx(np.log(7))
    # of no error in 10, one of both intervals' halves: (1 − p) ** 10 = 0.025
    np.testing.assert_allclose(_upper(np.array([0, 10]), 10, 0.05), [1 - 0.025**0.1, 1])


def test_the_bound_of_one_run_by_hand() -> None:
    """Both of two right: q² + 2 m δ times the larger of 2 q (1 − q) and (1 − q²) / 2."""
    assert one_run_bound(100, 100, 50, 0.0) == 0
    q = np.sqrt(0.5)
    assert one_run_bound(10, 2, 2, 0.0, doubt=0.5) == pytest.approx(np.log(q / (1 - q)))
    odds = np.exp(one_run_bound(10, 2, 2, 0.01, doubt=0.5))
    q = odds / (1 + odds)
    assert q**2 + 0.2 * max(2 * q * (1 - q), (1 - q**2) / 2) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(3.0),
        Budget(3.0, 1e-3, adjacency="replace"),
        Budget(3.0, 1e-3, unit="patient"),
        Budget(6.0, 1e-3, each=3.0),
    ],
)
def test_the_noise_that_is_shipped_keeps_its_promise_and_half_of_it_does_not(
    budget: Budget,
) -> None:
    kept = audit(budget, 300, noise=drawn())
    assert not kept.broken and kept.promised == 3.0
    assert audit(budget, 300, noise=drawn(0.4)).broken


def test_training_keeps_its_promise_and_with_a_fifth_of_the_noise_it_does_not() -> None:
    """With random batches a step sees a row or not, so that no bound of normal noise holds."""
    pytest.importorskip("torch")
    how = NoisyTraining(rows=21, batch=7, epochs=1, clip=0.1)
    kept = audit(Budget(3.0, 1e-3, training=how), 100, of="training", noise=drawn())
    assert kept.gdp == 0 and not kept.broken
    assert audit(Budget(3.0, 1e-3), 100, of="training", noise=drawn(0.2)).broken


def test_certainties_keep_their_promise_and_with_a_tenth_of_the_noise_they_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By chance alone the first comes out otherwise once in a million times."""
    budget = Budget(0.9, 1e-3, adjacency="replace")
    assert not audit(budget, 100, of="certainties", confidence=1 - 1e-6).broken
    less_noise(monkeypatch, 0.1)
    assert audit(budget, 200, of="certainties").broken
    with pytest.raises(InvalidInput, match="replaced row alone"):
        audit(Budget(0.9, 1e-3), 100, of="certainties")


def less_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Make noise of tasks some times as wide as it is asked for."""
    scale = GaussianNoise.scale
    monkeypatch.setattr(GaussianNoise, "scale", lambda noise, by: factor * scale(noise, by))


def test_noise_that_is_known_or_a_word_beside_the_sums_breaks_the_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: Callable[[], Normal] = lambda: Scaled()  # noqa: E731  # drawn from the same seed again
    assert audit(Budget(3.0), 100, noise=known).gdp > 10

    def joined(self, released):
        return replace(
            released[0], epsilon=float(self.rows), delta=1e-5, adjacency="replace", unit="row"
        )

    def release(self, reply):
        self.rows = abs(reply.values[0, -1])
        return replace(reply, sigma=1.0)

    monkeypatch.setattr(SumsNoise, "joined", joined)
    monkeypatch.setattr(SumsNoise, "release", release)
    assert audit(Budget(3.0), 100).told_beside


def test_the_command_prints_bounds_beside_the_promise_and_fails_where_one_is_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound of the wrong noise is 10 ± 0.9 at 400 trials; at 200 it is 5.5 ± 0.8, at times below the 3.
    words = ["audit", "--trials", "400", "--confidence", "0.999999"]
    words += ["--json", str(tmp_path / "a")]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0 and "promised" in found.output, found.output
    assert json.loads((tmp_path / "a").read_text())["promised"] == 3.0
    narrow = Budget(60.0).sigma
    monkeypatch.setattr(Budget, "sigma", property(lambda budget: narrow))
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1 and "more than was promised" in found.output
    assert CliRunner().invoke(app, ["audit", "--trials", "5"]).exit_code == 2


def test_what_cannot_be_audited() -> None:
    for budget, trials, why in (
        (Budget(3.0), 99, "trials is 99"),
        (Budget(3.0, 0.01), 100, "a δ of one in so many"),
    ):
        with pytest.raises(InvalidInput, match=why):
            audit(budget, trials)
    with pytest.raises(InvalidInput, match="of is 'models'"):
        audit(Budget(3.0), 100, of="models")
    with pytest.raises(InvalidInput, match="confidence"):
        audit(Budget(3.0), 100, confidence=1.0)


def test_a_promise_is_broken_by_any_of_its_bounds() -> None:
    fine = Audit(3.0, 1e-5, 100, 0.95, 2.0, 1.0, 2.9, told_beside=False)
    assert not fine.broken
    assert replace(fine, one_run=3.1).broken and replace(fine, told_beside=True).broken


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("trials", "least"), [(10_000, 2.0), (100_000, 2.7)])
def test_the_bound_is_near_the_promise_with_many_trials(trials: int, least: float) -> None:
    assert least <= audit(Budget(3.0), trials, noise=drawn()).gdp <= 3.0
    if trials == 10_000:
        assert audit(Budget(3.0), trials, noise=drawn(0.5)).gdp > 3.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_half_of_the_noise_is_found_in_training() -> None:
    budget = Budget(3.0, 1e-3)
    assert 0.5 <= audit(budget, 1_000, of="training", noise=drawn()).gdp <= 3.0
    assert audit(budget, 1_000, of="training", noise=drawn(0.5)).gdp > 3.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quarter_of_the_noise_is_found_in_certainties(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is known that moves them by more than 0.7 of what the proof allows."""
    budget = Budget(0.9, 1e-3, adjacency="replace")
    assert audit(budget, 2_000, of="certainties", confidence=0.999).gdp <= 0.9
    less_noise(monkeypatch, 0.25)
    assert audit(budget, 2_000, of="certainties").gdp > 0.9

"""The plan says what an ε buys, as was measured on MNIST: ten parties of 5,000 rows, 25 models each."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.diagnostics.private_sums_plan import (
    plan_others,
    plan_private_sums,
    simulate_others,
)
from consilience.errors import InvalidInput
from consilience.messages.schema import Public
from consilience.transforms.budget import Budget

MNIST = {"parties": 10, "rows": 5000, "classes": 10}


@pytest.mark.parametrize(
    ("epsilon", "sigma", "right", "verdict"),
    [(8.0, 15, 0.98, "works"), (3.0, 34, 0.60, "works"), (1.0, 91, 0.24, "noise drowns it")],
)
def test_answers_of_shards(epsilon: float, sigma: float, right: float, verdict: str) -> None:
    found = plan_others(Budget(epsilon), **MNIST)["private_answers"]
    assert found["sigma"] == pytest.approx(sigma, abs=0.5)
    assert found["right_with_noise"] == pytest.approx(right, abs=0.01)
    assert found["verdict"] == verdict and found["models"] == 250


def test_other_mechanisms() -> None:
    found = plan_others(Budget(3.0), parties=10, rows=600, classes=10, answers=100)
    assert found["private_answers"]["models_needed"] == 243  # 3.9 √(2 · 100 · 10) / 0.719
    assert found["training with noise"]["noise_multiplier"] == pytest.approx(2.4, abs=0.05)
    assert found["training with noise"]["verdict"] == "works"
    assert found["noise on predictions"]["verdict"] == "noise drowns it"
    few = plan_others(Budget(1.0), parties=10, rows=94, classes=10, answers=100)
    assert few["private_answers"]["verdict"] == "94 rows are few for 25 models"
    assert few["training with noise"]["verdict"].startswith("noise drowns a model")
    with pytest.raises(InvalidInput, match="classes"):
        plan_others(Budget(1.0), parties=1, rows=9, classes=1)


@pytest.mark.parametrize("classes", [4, 0])
def test_every_mechanism_is_simulated_and_noise_is_what_it_loses_by(classes: int) -> None:
    """Four crowds far apart, or a plane: all is told without noise, and little at ε = 0.001."""
    rng = np.random.default_rng(0)
    corners = np.vstack([2 * np.eye(3), [[-1.0, -1.0, -1.0]]])
    X = rng.normal(size=(60, 3)) / 4 + corners[np.arange(60) % 4]
    how = {"parties": 2, "rows": 120, "classes": classes}
    few = {"teachers": 3, "answers": 20}
    for epsilon, told in ((60.0, True), (0.001, False)):
        others = simulate_others(Public(X), Budget(epsilon, 1e-3), **how, **few)
        sums = plan_private_sums(Public(X), Budget(epsilon, 1e-3), **how)
        for found in others.values():
            assert found["simulated_without_noise"] > 0.8
        right = [
            sums["right_with_noise"],
            *(one["simulated_with_noise"] for one in others.values()),
        ]
        assert all((one > 0.8) == told for one in right), (epsilon, right)
    assert plan_others(Budget(3.0), **how, **few)["private_answers"]["models"] == 6
    with pytest.raises(InvalidInput, match="60 public rows for 31 classes"):
        simulate_others(Public(X), Budget(1.0), parties=1, rows=9, classes=31)


def test_how_far_values_are_off() -> None:
    """250 models, and noise of σ √10 in their sum: 24.1 at ε = 3, over 79.1."""
    found = plan_others(Budget(3.0), parties=10, rows=600, classes=0)["private_answers"]
    assert found["off_by"] == pytest.approx(24.1 / (25 * 10**0.5), abs=0.001)


@pytest.mark.parametrize("dimensions", [0, -3])
def test_dimensions_that_are_none_are_refused(dimensions: int) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    how = {"parties": 2, "rows": 120, "classes": 2, "dimensions": dimensions}
    with pytest.raises(InvalidInput, match=f"dimensions is {dimensions}"):
        plan_private_sums(Public(X), Budget(3.0, 1e-4), **how)

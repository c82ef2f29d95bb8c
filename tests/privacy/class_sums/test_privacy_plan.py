"""The plan says what an ε buys, with private sums and with training with noise."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.class_sums.plan import (
    plan_others,
    plan_private_sums,
    simulate_others,
)


def test_other_mechanisms() -> None:
    found = plan_others(Budget(3.0), parties=10, rows=600, classes=10)
    assert found["training with noise"]["noise_multiplier"] == pytest.approx(2.4, abs=0.05)
    assert found["training with noise"]["verdict"] == "works"
    few = plan_others(Budget(1.0), parties=10, rows=94, classes=10)
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
    for epsilon, told in ((60.0, True), (0.001, False)):
        others = simulate_others(Public(X), Budget(epsilon, 1e-3), **how)
        sums = plan_private_sums(Public(X), Budget(epsilon, 1e-3), **how)
        for found in others.values():
            assert found["simulated_without_noise"] > 0.8
        right = [
            sums["right_with_noise"],
            *(one["simulated_with_noise"] for one in others.values()),
        ]
        assert all((one > 0.8) == told for one in right), (epsilon, right)
    with pytest.raises(InvalidInput, match="60 public rows for 31 classes"):
        simulate_others(Public(X), Budget(1.0), parties=1, rows=9, classes=31)


@pytest.mark.parametrize("dimensions", [0, -3])
def test_dimensions_that_are_none_are_refused(dimensions: int) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    how = {"parties": 2, "rows": 120, "classes": 2, "dimensions": dimensions}
    with pytest.raises(InvalidInput, match=f"dimensions is {dimensions}"):
        plan_private_sums(Public(X), Budget(3.0, 1e-4), **how)

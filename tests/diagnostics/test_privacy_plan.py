"""The plan says what an ε buys, as was measured on MNIST: ten parties of 5,000 rows, 25 models each."""

from __future__ import annotations

import pytest

from consilience.diagnostics.private_sums_plan import plan_others
from consilience.errors import InvalidInput
from consilience.transforms.privacy import Budget

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
    assert few["training with noise"]["verdict"] == "noise drowns it"
    with pytest.raises(InvalidInput, match="classes"):
        plan_others(Budget(1.0), parties=1, rows=9, classes=1)

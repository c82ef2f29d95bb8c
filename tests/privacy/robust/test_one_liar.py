"""What one party of four that lies does to a teacher; docs/threat-model.md says it in words.

Three parties say class 0 with 0.9 on the only public row, or the value 1. The fourth says class 1 as surely
as it can, or the value 10¹⁷, and of itself whatever makes it count for most. Each message would be accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.aggregation import AGGREGATORS, Aggregator, trimmed_mean
from consilience.methods.comparison_rules.scores import LARGEST_LOG_ODDS
from helpers.replies import replies

SAID: dict[str, tuple[Any, Any]] = {
    "probabilities": ([[0.9, 0.1]], [[0.0, 1.0]]),
    "logits": ([[np.log(9), 0.0]], [[0.0, 1e17]]),
    "values": ([[1.0]], [[1e17]]),
}
OF_ITSELF: dict[str, Any] = {
    "log_density": [[0.0]] * 3 + [[1e17]],
    "rows": [100] * 3 + [10**12],
    "certainties": [[0.1]] * 3 + [[1.0]],
    "selected": [[True]] * 4,
    "odds": [[np.log(0.1 / 0.9)]] * 3 + [[LARGEST_LOG_ODDS]],
    "likeness": [[0.1]] * 3 + [[1.0]],
}

FIRM = {"cronus", "geometric-median", "median", "nearest-neighbours", "value-median"}
"""The teacher is what the other three say."""

OUTVOTED = {
    "avg", "centred-clipping", "entropy", "era", "enhanced-era", "exp-guard", "selective", "trimmed-mean",
    "vote",
}  # fmt: skip
"""The liar moves the teacher, by its share or a little more, and the class stays that of the three."""

TAKEN = {
    "auto", "certainty", "coarse-density-ratio", "count-weighted", "dafkd", "density-ratio", "fed-et",
    "fedd3a", "fedgo", "mean", "mean-logits", "ratios-alone", "suwa", "uwa", "value-density-ratio",
    "weighted-mean",
}  # fmt: skip
"""The teacher is what the liar says, or nearly: Fed-ET leaves a twentieth to those who disagree."""


def teacher(rule: Aggregator) -> float:
    """What it says of class 0, or its value."""
    honest, lie = SAID[rule.outputs]
    columns = len(honest[0])
    ratios = [[[1.0] * columns]] * 3 + [[[0.0] * (columns - 1) + [1e17]]]
    said = replies(honest, honest, honest, lie, kind=rule.outputs, **OF_ITSELF, ratios=ratios)
    return float(rule(said).values[0, 0])


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_how_far_it_gets(name: str) -> None:
    rule = AGGREGATORS[name]()
    values, said = rule.outputs == "values", teacher(rule)
    if name in FIRM:
        assert said == pytest.approx(1.0 if values else 0.9)
    elif name in OUTVOTED:
        assert 0.5 < said < 1.0
    else:
        assert name in TAKEN
        assert said > 1e16 if values else said < 0.05


def test_the_mean_by_hand() -> None:
    """(3 × 0.9 + 0)/4 = 0.675."""
    assert teacher(AGGREGATORS["avg"]()) == pytest.approx(0.675)


def test_of_four_parties_a_fifth_is_none() -> None:
    """floor(0.2 × 4) = 0 are cut, and the mean is left; floor(0.25 × 4) = 1 at each end, and 0.9 is."""
    assert teacher(trimmed_mean()) == pytest.approx(0.675)
    assert teacher(trimmed_mean(0.25)) == pytest.approx(0.9)

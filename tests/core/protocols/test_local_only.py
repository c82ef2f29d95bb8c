"""The baseline: training, and nothing else."""

from __future__ import annotations

import pytest

from consilience import Federation, local_only
from consilience.core.checks import classifiers
from consilience.core.errors import InvalidInput


def test_nothing_leaves_anybody():
    parties, public = classifiers()
    history = Federation(parties, public).run(local_only(rounds=3))
    asked = [d for row in history.deliveries for d in row if d.tasks == "FitPrivate"]
    assert len(asked) == 4 * 3
    assert {d.left for d in asked} == {""}
    assert all(round.teacher is None for round in history.rounds)


def test_rounds_are_at_least_one():
    parties, public = classifiers()
    with pytest.raises(InvalidInput, match="rounds is 0"):
        Federation(parties, public).run(local_only(rounds=0))

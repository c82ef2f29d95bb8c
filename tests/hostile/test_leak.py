"""The strongest attack on membership, small: it reaches the bound of a budget, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from consilience.privacy.accounting.losses import PrivacyLoss, gaussian_mu
from consilience.privacy.attacks.membership import highest_area
from helpers import leak_attack


@pytest.fixture
def leak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The attack, which asks for private sums alone."""
    asked = [one for one in leak_attack.questions() if one[0].startswith("private sums")]
    monkeypatch.setattr(leak_attack, "questions", lambda: iter(asked))
    return leak_attack


def test_rows_and_a_basis_of_the_attackers_reach_the_bound_and_not_more(leak: Any) -> None:
    """The constant takes a part of a row's length: 0.98 of it is left for the feature of its own."""
    found = leak.strongest(0, 24, laid=True)
    assert found["private sums, no noise"][0] == 1.0
    for epsilon in (8.0, 3.0, 1.0):
        area = highest_area(PrivacyLoss(0.96**0.5 * gaussian_mu(epsilon, leak.DELTA)))
        assert found[leak.named(epsilon)][0] == pytest.approx(area, abs=0.03)

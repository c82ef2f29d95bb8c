"""What a secure sum costs, as ``benchmarks/secure_sum.py`` measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_fifty_thousand_numbers_of_ten_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from secure_sum import Cost

    cost = Cost(10, 50_000, 0)
    assert cost.parties + cost.coordinator < 0.5  # seconds of CPU, in all
    assert cost.bytes_up < 3 * cost.plain

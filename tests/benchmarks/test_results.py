"""Pages of runs: which run a page is of."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_run_of_other_code_is_not_taken_for_one_of_todays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import results

    today = results.folder_of("digits")
    assert today == results.folder_of("digits") != results.folder_of("hospitals")
    monkeypatch.setattr(results, "digest", lambda: "another")
    assert results.folder_of("digits") != today

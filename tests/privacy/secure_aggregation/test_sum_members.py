"""Choice of the parties of a sum by what their keys state, true or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.errors import QuorumLost
from consilience.privacy.secure_aggregation.members import check_whole, fixed_set, members_of
from consilience.privacy.secure_aggregation.messages import SumKeys

KEY = np.arange(32, dtype=np.uint8)


def keys(bound: dict[str, str], history: dict[str, str] | None = None) -> dict[str, SumKeys]:
    """Keys of some parties, bound to the parties of a text, of some histories."""
    made: Any = {"round": 1, "sealing": KEY, "masking": KEY, "commitment": KEY}
    return {
        name: SumKeys(
            party=name,
            bound=tuple(text),
            history=(history or {}).get(name, "h"),
            signature=KEY[:0],
            **made,
        )
        for name, text in bound.items()
    }


@pytest.mark.parametrize(
    ("bound", "fixed"),
    [
        (dict.fromkeys("abcdef", ""), ""),
        (dict.fromkeys("abcdef", "abcdef"), "abcdef"),
        (dict.fromkeys("abcde", "abcdef"), "abcdef"),  # one is missing, and no other sum is opened
        ({**dict.fromkeys("abcdef", ""), "a": "abcdef"}, "abcdef"),  # opened by one, before a crash
        ({**dict.fromkeys("abcdef", ""), "a": "abcde"}, ""),  # or a lie that would leave one out
        ({**dict.fromkeys("abcde", "abcde"), "f": ""}, "abcde"),
        ({**dict.fromkeys("abcd", "abcde"), "e": "bcdef", "f": ""}, "abcde"),
    ],
    ids=str,
)
def test_the_set_is_that_of_most_parties_that_could_open_a_sum(
    bound: dict[str, str], fixed: str
) -> None:
    assert fixed_set(keys(bound), threshold=5) == tuple(fixed)


def test_those_of_the_set_and_of_the_history_of_most_are_left() -> None:
    given = keys({"a": "abc", "b": "", "c": "abc", "d": "", "e": "cde"}, {"c": "other"})
    missing: dict[str, Any] = {}
    assert list(members_of(given, tuple("abc"), missing)) == ["a", "b"]
    why = {name: one.reason for name, one in missing.items()}
    assert "was not in the first sum" in why["d"] and "its sums are over c, d, e" in why["e"]
    assert "it missed or failed at something" in why["c"]
    with pytest.raises(
        QuorumLost, match=r"c of the parties of the first sum \(a, b, c\) is missing"
    ) as e:
        check_whole({"a": 1, "b": 1}, tuple("abc"), missing, where="round 2")
    assert "Start c again, and resume the run" in str(e.value)
    assert "c (refused: it missed or failed" in str(e.value)
    check_whole({"a": 1}, (), {}, where="round 1")

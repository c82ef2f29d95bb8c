"""Attendance: the parties that took part in each round of a run, and those left out with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from consilience.lab.runs.ledger import Ledger


@dataclass(frozen=True)
class Attendance:
    """Consecutive rounds with the same participating and the same excluded parties.

    Attributes:
        method: label of the method.
        first: the first of the rounds; 0 is the set-up.
        last: the last of them.
        present: parties that answered every request.
        left_out: excluded party to the first reason.
    """

    method: str
    first: int
    last: int
    present: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_attendance(ledger: Ledger, seed: int) -> tuple[Attendance, ...]:
    """Read the attendance from the deliveries of a run; questions that only serve its record do not count.

    Args:
        ledger: of the run.
        seed: whose rounds to read.
    """
    asked: dict[tuple[str, int], dict[str, str | None]] = {}
    for method, round, party, tasks, status, detail in ledger.read(
        "SELECT method, round, party, tasks, status, detail FROM deliveries WHERE seed = ? "
        "AND NOT bookkeeping ORDER BY method, round, rowid",
        seed,
    ):
        parties = asked.setdefault((method, round), {})
        parties.setdefault(party, None)
        if status != "ok" and parties[party] is None:
            parties[party] = f"{status} at {tasks.replace('+', ', ')}: {detail}"
    found: list[Attendance] = []
    for (method, round), parties in asked.items():
        present = tuple(sorted(party for party, why in parties.items() if why is None))
        left_out = {party: why for party, why in sorted(parties.items()) if why is not None}
        one = Attendance(method, round, round, present, left_out)
        if found and found[-1] == replace(one, first=found[-1].first, last=round - 1):
            found[-1] = replace(found[-1], last=round)
        else:
            found.append(one)
    return tuple(found)

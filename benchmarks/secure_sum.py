"""Measure sums that nobody can look into: CPU seconds of all ends together, and bytes against a plain round.

python benchmarks/secure_sum.py    # seconds; writes docs/results/secure-sums.md
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from consilience.core.messages.replies import Predictions
from consilience.core.messages.wire import encode
from consilience.core.numerics.randomness import limited_threads
from consilience.lab.runs.folder import machine, versions
from consilience.privacy.secure_aggregation.masks import least_threshold
from consilience.privacy.secure_aggregation.messages import ANSWERS, MaskedInput
from consilience.privacy.secure_aggregation.opened_sum import open_sum
from consilience.privacy.secure_aggregation.secure_sum import SumMember

PAGE = Path(__file__).parent.parent / "docs" / "results" / "secure-sums.md"
DOMAIN = bytes(32)


class Cost:
    """CPU seconds of the parties and of the coordinator, and bytes that parties send and receive."""

    def __init__(self, parties: int, entries: int, dropped: int) -> None:
        names = [f"party{i:03d}" for i in range(parties)]
        staying = names[dropped:]
        rng = np.random.default_rng(0)
        inputs = {n: rng.integers(2**40, size=entries, dtype=np.uint64) for n in names}
        members, threshold = {n: SumMember(n) for n in names}, least_threshold(parties)
        self.parties = self.coordinator = 0.0
        self.bytes_up = 0

        def by_parties(who: list[str], answer: Callable[[str], Any]) -> dict[str, Any]:
            start = process_time()
            replies = {name: answer(name) for name in who}
            self.parties += process_time() - start
            self.bytes_up += sum(len(encode([one])) for one in replies.values())
            return replies

        def masked(name: str) -> MaskedInput:
            return members[name].mask(
                tuple(sealed.values()),
                "q",
                lambda masks: (
                    MaskedInput(party=name, round=1, values=masks(inputs[name])),
                    ANSWERS,
                ),
                round=1,
            )

        keys = by_parties(
            names, lambda n: members[n].open(DOMAIN, threshold, "q", among=names, round=1)
        )
        sealed = by_parties(names, lambda n: members[n].share(tuple(keys.values())))
        given = {name: one.values for name, one in by_parties(staying, masked).items()}
        opened = by_parties(staying, lambda n: members[n].reveal(staying, round=1))
        start = process_time()
        total = open_sum(DOMAIN, threshold, keys, names, given, opened)
        self.coordinator += process_time() - start
        self.bytes_down = len(encode([*keys.values(), *sealed.values()]))
        assert np.array_equal(total, sum(inputs[name] for name in staying))
        plain = Predictions(
            party=names[0],
            round=1,
            kind="probabilities",
            classes=("a", "b"),
            public="0" * 16,
            values=np.zeros((entries // 2, 2), dtype=np.float32),
        )
        self.plain = parties * len(encode([plain]))


def page() -> str:
    packages = versions()
    lines = [
        "# Sums that nobody can look into",
        "",
        f"`python benchmarks/secure_sum.py` · medians of three · {date.today().isoformat()}",
        "",
        f"{machine()}, on one core. python {packages['python']}, consilience {packages['consilience']}, "
        f"cryptography {version('cryptography')}.",
        "",
        "Seconds of CPU and bytes of one sum: keys, shares, masked inputs, opening. Bytes are beside those "
        "of a plain round, in which every party sends as many numbers of 4 bytes; integers modulo 2^64 take "
        "8. [Sum up without looking](../howto/secure-sums.md) says how to use it.",
        "",
        "| parties | entries | drop out before their input | all parties, s | coordinator, s | in all, s "
        "| bytes up, of the plain round | keys and shares down, bytes a party |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for parties, entries, dropped in (
        (10, 5_000, 0),
        (10, 50_000, 0),
        (10, 50_000, 3),
        (30, 50_000, 9),
    ):
        runs = sorted(
            (Cost(parties, entries, dropped) for _ in range(3)),
            key=lambda one: one.parties + one.coordinator,
        )
        one = runs[1]
        lines.append(
            f"| {parties} | {entries:,} | {dropped} | {one.parties:.3f} | {one.coordinator:.3f} "
            f"| {one.parties + one.coordinator:.3f} | {one.bytes_up / one.plain:.2f} × "
            f"| {one.bytes_down:,} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    with limited_threads(1):
        _, *deployed = PAGE.read_text().partition("\n## ")  # what tests/deploy/sums.py gave
        PAGE.write_text(page() + "".join(deployed))
    print(PAGE.read_text())

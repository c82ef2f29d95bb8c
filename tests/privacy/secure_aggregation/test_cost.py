"""What a secure sum costs: CPU seconds of all ends together, and bytes against a plain round."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from consilience.core.messages.replies import Predictions
from consilience.core.messages.wire import encode
from consilience.privacy.secure_aggregation.masks import least_threshold
from consilience.privacy.secure_aggregation.messages import ANSWERS, MaskedInput
from consilience.privacy.secure_aggregation.opened_sum import open_sum
from consilience.privacy.secure_aggregation.secure_sum import SumMember

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


def test_fifty_thousand_numbers_of_ten_parties() -> None:
    cost = Cost(10, 50_000, 0)
    assert cost.parties + cost.coordinator < 0.5  # seconds of CPU, in all
    assert cost.bytes_up < 3 * cost.plain

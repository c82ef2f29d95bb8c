"""Random streams keyed by what they are for, so that no order of events can change a number."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits


def stream(seed: int, party: str, round: int, purpose: str) -> np.random.Generator:
    """The generator for one purpose of one party in one round.

    Two calls with the same key give the same numbers, in whatever process and order; calls with
    different keys give independent streams (``np.random.SeedSequence``).

    Args:
        seed: the run's seed, a non-negative integer.
        party: the party's name; ``"coordinator"`` for draws made by the coordinator.
        round: the round, 0 for what happens before the first.
        purpose: what the numbers are for, such as ``"fit"`` or ``"participation"``.

    >>> bool(stream(0, "a", 1, "fit").random() == stream(0, "a", 1, "fit").random())
    True
    """
    key = f"{seed}\0{round}\0{party}\0{purpose}".encode()
    entropy = int.from_bytes(hashlib.sha256(key).digest()[:16], "little")
    return np.random.default_rng(np.random.SeedSequence(entropy))


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Let numerical libraries in this process use ``threads`` threads for a while.

    Sums come out differently over another number of threads; a run that is to be repeated bit for bit,
    in one process or in several, fixes it. Libraries must be loaded before.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    with threadpool_limits(limits=threads):
        if torch:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before)

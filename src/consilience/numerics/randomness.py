"""Random streams keyed by what they are for, so that no order of events can change a number."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray
from scipy.special import ndtri
from threadpoolctl import ThreadpoolController

from consilience.validation.arrays import Array


class _Digest(ISeedSequence):
    """A SHA-256 digest as the seed of a bit generator.

    The digest is already as well mixed as ``np.random.SeedSequence`` would make it, at a seventh of the
    cost; a round of many small parties is made of such things.
    """

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.sha256(key).digest()

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.frombuffer(self._digest, dtype=np.dtype(dtype).newbyteorder("<"), count=n_words)


def stream(
    seed: int, party: str, round: int, purpose: str, *, secret: bytes = b""
) -> np.random.Generator:
    """The generator for one purpose of one party in one round.

    Two calls with the same key give the same numbers, in whatever process and order; calls with
    different keys give independent streams.

    Args:
        seed: the run's seed, a non-negative integer.
        party: the party's name; ``"coordinator"`` for draws made by the coordinator.
        round: the round, 0 for what happens before the first.
        purpose: what the numbers are for, such as ``"fit"`` or ``"participation"``.
        secret: the party's own, which makes its streams unknown to whoever knows the rest of the key.

    >>> bool(stream(0, "a", 1, "fit").random() == stream(0, "a", 1, "fit").random())
    True
    """
    key = f"{seed}\0{round}\0{party}\0{purpose}".encode() + (b"\0" + secret if secret else b"")
    # numpy takes any ISeedSequence; its type stubs know only its own.
    return np.random.Generator(np.random.PCG64(_Digest(key)))  # type: ignore[arg-type]


class Threads:
    """A number of numerical threads to work with, taken and given back as often as one likes.

    Sums come out differently over another number of threads; a run that is to be repeated bit for bit,
    in one process or in several, fixes it.

    Args:
        count: threads of the numerical libraries that are loaded by now.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._libraries = (
            ThreadpoolController()
        )  # finding them takes milliseconds, limiting does not

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Work with that many threads, then with as many as before."""
        torch = sys.modules.get("torch")
        before = torch.get_num_threads() if torch else 0
        with self._libraries.limit(limits=self._count):
            if torch:
                torch.set_num_threads(self._count)
            try:
                yield
            finally:
                if torch:
                    torch.set_num_threads(before)


def limited_threads(threads: int) -> AbstractContextManager[None]:
    """Limit the threads of numerical libraries in this process, within a ``with`` block.

    Args:
        threads: their number.
    """
    return Threads(threads).limited()


class Normal(Protocol):
    """Source of normal numbers: :class:`SystemNoise`, and in tests a generator whose seed is known."""

    def normal(self, *, scale: float, size: tuple[int, ...]) -> Array:
        """Draw numbers of mean 0, float64.

        Args:
            scale: their standard deviation.
            size: their shape.
        """


class SystemNoise:
    """Normal numbers made of the operating system's random bytes, with no generator in between.

    Each takes 64 bits: one for the sign, and 63 for a uniform tail probability in (0, 1/2], whose normal
    quantile is the number; none is beyond 9.2 standard deviations.
    """

    def normal(self, *, scale: float, size: tuple[int, ...]) -> Array:
        """Draw numbers of mean 0, float64.

        Args:
            scale: their standard deviation.
            size: their shape.
        """
        bits = np.frombuffer(os.urandom(8 * math.prod(size)), dtype="<u8").reshape(size)
        tails = ((bits >> np.uint64(1)) + 0.5) * 2.0**-64
        signs = np.where(bits & np.uint64(1), -1.0, 1.0)
        return np.asarray(scale * signs * ndtri(tails))


NoiseSource = Callable[[], Normal]
"""Makes the source of one release's noise."""

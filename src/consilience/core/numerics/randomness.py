"""Random streams keyed by their purpose, so that the order of events cannot change a number."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray
from scipy.special import ndtri
from threadpoolctl import ThreadpoolController

from consilience.core.validation.arrays import Array

_LITTLE = {kind: np.dtype(kind).newbyteorder("<") for kind in (np.uint32, np.uint64)}
"""Unsigned integers of bytes in the order of a digest, whatever the machine's."""


class _Digest(ISeedSequence):
    """A SHA-256 digest as the seed of a bit generator.

    The digest is already as well mixed as ``np.random.SeedSequence`` would make it, at a seventh of the
    cost; a round of many small parties is made of such things.
    """

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.sha256(key).digest()

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.frombuffer(self._digest, dtype=_LITTLE[dtype], count=n_words)


def stream(
    seed: int, party: str, round: int, purpose: str, *, secret: bytes = b""
) -> np.random.Generator:
    """Create the random generator for one purpose of one party in one round.

    Two calls with the same key give the same numbers, in whatever process and order; calls with
    different keys give independent streams.

    Args:
        seed: the run's seed, a non-negative integer.
        party: the party's name; ``"coordinator"`` for draws made by the coordinator.
        round: the round, 0 for draws before the first round.
        purpose: purpose of the numbers, such as ``"fit"`` or ``"participation"``.
        secret: secret of the party; without it, the rest of the key does not suffice to reproduce the stream.

    >>> bool(stream(0, "a", 1, "fit").random() == stream(0, "a", 1, "fit").random())
    True
    """
    key = f"{seed}\0{round}\0{party}\0{purpose}".encode() + (b"\0" + secret if secret else b"")
    # numpy takes any ISeedSequence; its type stubs know only its own.
    return np.random.Generator(np.random.PCG64(_Digest(key)))  # type: ignore[arg-type]


class Threads:
    """A fixed number of numerical threads, which can be set and restored any number of times.

    Sums differ in rounding if the number of threads changes. A run fixes the number to be bit-identical when
    repeated, in one process or in several.

    Args:
        count: number of threads of the numerical libraries loaded at the time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._libraries = _libraries(len(sys.modules))

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


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the numerical libraries of this process, and cache them.

    The search takes milliseconds, and a party needs the libraries for every request; limiting their threads
    is fast.

    Args:
        modules: number of imported modules, the cache key: an import changes it, which repeats the search.
    """
    return ThreadpoolController()


class Normal(Protocol):
    """Source of normal numbers: :class:`SystemNoise`, and in tests a generator whose seed is known."""

    def normal(self, *, scale: float, size: tuple[int, ...]) -> Array:
        """Draw numbers of mean 0, float64.

        Args:
            scale: their standard deviation.
            size: their shape.
        """


class SystemNoise:
    """Noise made of the operating system's random bytes, with no generator in between.

    A normal number takes 64 bits: one for the sign, and 63 for a uniform tail probability in (0, 1/2], whose
    normal quantile is the number; none is beyond 9.2 standard deviations.
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

    def skellam(self, *, variance: float, size: tuple[int, ...]) -> Array:
        """Draw differences of two Poisson numbers, which are integers of mean 0, int64.

        Args:
            variance: their variance, 100 or more.
            size: their shape.
        """
        first, second = (self._poisson(variance / 2, math.prod(size)) for _ in range(2))
        return (first - second).reshape(size)

    def _poisson(self, mean: float, count: int) -> Array:
        """Draw Poisson numbers of a mean of 50 or more, by transformed rejection.

        Source:
            Hörmann 1993, "The transformed rejection method for generating Poisson random variables", PTRS
            without its squeeze. Densities are by Stirling's series, in which large means cancel no digits.
        """
        assert mean >= 50
        b = 0.931 + 2.53 * math.sqrt(mean)
        a = -0.059 + 0.02483 * b
        scale = 1.1239 + 1.1328 / (b - 3.4)
        found = np.zeros(0, dtype=np.int64)
        while len(found) < count:
            bits = np.frombuffer(os.urandom(16 * 2 * count), dtype="<u8").reshape(2, -1)
            u, v = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53
            edge = 0.5 - np.abs(u - 0.5)
            k = np.floor((2 * a / edge + b) * (u - 0.5) + mean + 0.43)
            k = np.where(k < 1, np.nan, k)  # the chance of 0 is below 1e-21
            off = (k - mean) / mean
            log_density = -mean * _deviance(off) - np.log(2 * np.pi * k) / 2 - 1 / (12 * k)
            log_density += 1 / (360 * k**3)
            here = np.log(v * scale / (a / edge**2 + b)) <= log_density
            found = np.concatenate([found, k[here].astype(np.int64)])
        return found[:count]


def _deviance(off: Array) -> Array:
    """Compute ``(1 + u) log(1 + u) − u`` to all digits for small u too."""
    near = off**2 / 2 - off**3 / 6 + off**4 / 12 - off**5 / 20
    return np.where(np.abs(off) < 1e-3, near, (1 + off) * np.log1p(off) - off)


NoiseSource = Callable[[], Normal]
"""Makes the source of one release's noise."""

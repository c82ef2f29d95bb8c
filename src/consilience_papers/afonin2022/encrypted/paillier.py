"""Paillier's scheme on packed fixed-point numbers; the scheme itself is python-paillier's (``phe``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused, MissingExtra
from consilience.core.validation.arrays import Array

SHORTEST_KEY = 2048
"""Bits of a key below which nothing is encrypted or answered: 112 bits of security."""

LONGEST_KEY = 8192
"""Bits of a key above which nothing is answered: a stranger's key may not keep the relay busy for ever."""

EMPTY = 128
"""Bits of every plaintext that stay empty. What was damaged, or encrypted for another key, decrypts to a
random plaintext, which leaves them empty once in 2^128."""


@dataclass(frozen=True)
class FixedPoint:
    """Fixed-point format of numbers before they are encrypted.

    Inputs and coefficients are rounded to multiples of ``2^-fraction``, an answer is a multiple of
    ``2^-(2 fraction)`` that is computed exactly. So it is wrong by at most

        2^-(fraction + 1) (‖w‖₁ + ‖x‖₁ + d 2^-(fraction + 1)) + 2^-(2 fraction + 1),

    besides its rounding to float64. An answer takes ``2 fraction + answers + 1`` bits of a plaintext, 96 with
    the defaults, so that a key of 3072 bits encrypts 30 rows at once.

    Args:
        fraction: bits after the point.
        inputs: bits before the point of an input: ``|x| < 2^inputs``.
        answers: bits before the point of an answer: ``‖w‖₁ 2^inputs + |b| < 2^answers``, so that no
            input can make an answer overflow.

    Raises:
        InvalidInput: not whole numbers, or out of range.
    """

    fraction: int = 32
    inputs: int = 15
    answers: int = 31

    def __post_init__(self) -> None:
        ranges = {"fraction": (8, 52), "inputs": (1, 128), "answers": (1, 256)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InvalidInput(
                    f"{name} is {value!r}",
                    where="FixedPoint",
                    mend=f"It is a whole number of bits from {low} to {high}.",
                )

    @property
    def slot(self) -> int:
        """Number of a plaintext's bits that one row takes."""
        return 2 * self.fraction + self.answers + 1

    def rows(self, key_length: int) -> int:
        """Number of rows that one ciphertext holds.

        Args:
            key_length: bits of the key.
        """
        return (key_length - 2 - EMPTY) // self.slot

    def whole(self, values: Iterable[float], *, times: int = 1) -> list[int]:
        """Round values to integers, ``round(2^(times · fraction) v)``, exactly.

        Args:
            values: numbers.
            times: factors of the scale: 1 for inputs, 2 for products.
        """
        return [round(Fraction(value) * 2 ** (times * self.fraction)) for value in values]

    def real(self, wholes: Iterable[int]) -> Array:
        """Turn integers of answers into float64, rounded once."""
        unit = 1 << (2 * self.fraction)
        return np.array([whole / unit for whole in wholes], dtype=np.float64)

    def pack(self, wholes: Sequence[int]) -> int:
        """Pack rows into one integer, ``Σ_i v_i 2^(slot i)``: sums and multiples act on the rows.

        Every result has to fit its slot.
        """
        total = 0
        for whole in reversed(wholes):
            total = (total << self.slot) + whole
        return total

    def unpack(self, total: int, count: int) -> list[int]:
        """The rows of a plaintext.

        Raises:
            KnowledgeRefused: it is no packing of so many rows.
        """
        half = 1 << (self.slot - 1)
        wholes = []
        for _ in range(count):
            wholes.append(((total + half) & (2 * half - 1)) - half)
            total = (total - wholes[-1]) >> self.slot
        if total:
            raise KnowledgeRefused(
                "it decrypts to no answer: it was damaged on its way, or encrypted for another key",
                where="secure relay",
            )
        return wholes


class PublicKey:
    """Public key: encrypts, and computes on ciphertexts.

    Args:
        modulus: n, big-endian, uint8 of shape ``(key_length / 8,)``.

    Raises:
        KnowledgeRefused: it cannot be a modulus, or is too short or too long.
        MissingExtra: phe is not installed.
    """

    def __init__(self, modulus: Array) -> None:
        n = int.from_bytes(modulus.tobytes())
        if not SHORTEST_KEY <= 8 * len(modulus) == n.bit_length() <= LONGEST_KEY or n % 2 == 0:
            raise KnowledgeRefused(
                f"no public key of {SHORTEST_KEY} to {LONGEST_KEY} bits", where="secure relay"
            )
        self.modulus = modulus
        self.length = n.bit_length()
        self._key = _phe().PaillierPublicKey(n)

    def encrypt(self, plaintexts: Iterable[int]) -> Array:
        """Encrypt plaintexts, at random, to ciphertexts: uint8 of shape ``(n, key_length / 4)``."""
        return self._written(self._key.raw_encrypt(p % self._key.n) for p in plaintexts)

    def combine(self, ciphertexts: Array, factors: Array, constants: Sequence[int]) -> Array:
        """``Enc(Σ_j F_jk m_j + c_k)`` of ``Enc(m_j)``: ciphertexts that tell nothing else of F and c.

        Args:
            ciphertexts: uint8 of shape ``(d, key_length / 4)``.
            factors: whole numbers, dtype object, shape ``(d, k)``.
            constants: ``k`` whole numbers.

        Returns:
            uint8 of shape ``(k, key_length / 4)``.
        """
        number = _phe().EncryptedNumber
        encrypted = [number(self._key, c) for c in self.read(ciphertexts)]
        sums = []
        for column, constant in zip(factors.T, constants, strict=True):
            # A fresh encryption, so the sum is one too.
            total = number(self._key, self._key.raw_encrypt(constant % self._key.n))
            for one, factor in zip(encrypted, column, strict=True):
                total += one * factor
            sums.append(total.ciphertext(be_secure=False))
        return self._written(sums)

    def read(self, ciphertexts: Array) -> list[int]:
        """Ciphertexts as numbers.

        Raises:
            KnowledgeRefused: one that no plaintext encrypts to.
        """
        numbers = [int.from_bytes(row.tobytes()) for row in ciphertexts]
        if not all(0 < c < self._key.nsquare and math.gcd(c, self._key.n) == 1 for c in numbers):
            raise KnowledgeRefused("not a ciphertext of this key", where="secure relay")
        return numbers

    def _written(self, ciphertexts: Iterable[int]) -> Array:
        data = b"".join(c.to_bytes(self.length // 4) for c in ciphertexts)
        return np.frombuffer(data, dtype=np.uint8).reshape(-1, self.length // 4)


class PrivateKey:
    """A key pair made here; the private half cannot be copied, printed or saved.

    Args:
        length: bits of the modulus, a multiple of 16.

    Raises:
        InvalidInput: too short, too long, or no multiple of 16.
        MissingExtra: phe is not installed.
    """

    def __init__(self, length: int) -> None:
        if type(length) is not int or length % 16 or not SHORTEST_KEY <= length <= LONGEST_KEY:
            raise InvalidInput(
                f"the key length is {length!r}",
                where="secure relay",
                mend=f"It is a multiple of 16 from {SHORTEST_KEY} to {LONGEST_KEY}, in bits.",
            )
        public, self._key = _phe().generate_paillier_keypair(n_length=length)
        modulus = np.frombuffer(public.n.to_bytes(length // 8), dtype=np.uint8)
        self.public = PublicKey(modulus)

    def decrypt(self, ciphertexts: Array) -> list[int]:
        """Decrypt to plaintexts, between ``-n/2`` and ``n/2``."""
        n = self._key.public_key.n
        plaintexts = (self._key.raw_decrypt(c) for c in self.public.read(ciphertexts))
        return [p - n if 2 * p > n else p for p in plaintexts]

    def __reduce__(self) -> NoReturn:
        raise InvalidInput("a private key does not leave its party", where="secure relay")


def _phe() -> Any:
    try:
        import phe  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("phe", extra="secure", where="secure relay") from error
    return phe

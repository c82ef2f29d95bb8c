"""Compression of messages: shorter numbers, and fewer bytes for these.

A :class:`Codec` holds two settings. Numbers have 16 bits (``float16()``) or are quantised to b bits
(``quantized(b)``). Then the bytes are compressed without loss (``zstd()``). ``chain(quantized(8), zstd())``
does both. Each message is compressed by itself: neither end remembers what was sent before.

Any protocol takes a codec: ``federated_averaging(rounds=10).compressed(chain(quantized(8), zstd()))``. Tables
of predictions on the public rows (:mod:`consilience.methods.compression.rows`) and parameters
(:mod:`consilience.methods.compression.numbers`) take both settings, all other arrays the second.

Sources: Sattler et al. 2022, "CFD: Communication-Efficient Federated Distillation via Soft-Label
Quantization and Delta Coding" (quantised and compressed soft labels; its delta coding is left out); Reznik
2011, "An Algorithm for Quantization of Discrete Probability Distributions" (multiples of 1/N that sum to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import message


@message
class Codec:
    """Settings of compression; made by the functions of this module.

    Attributes:
        bits: bits of a number: 1 to 8, or 16; 0 for as many as it has.
        level: level of zstd, 1 to 22; 0 for none.

    Raises:
        InvalidInput: a setting out of its range.
    """

    bits: int = 0
    level: int = 0

    def __post_init__(self) -> None:
        if self.bits != 16:
            _in_range("quantized", "bits", self.bits, 0, 8)
        _in_range("zstd", "level", self.level, 0, 22)

    @property
    def name(self) -> str:
        """Name that reports show.

        >>> chain(quantized(4), zstd()).name
        'quantized(4) + zstd(19)'
        """
        number = {0: "", 16: "float16"}.get(self.bits, f"quantized({self.bits})")
        return (
            " + ".join(filter(None, [number, f"zstd({self.level})" if self.level else ""]))
            or "as it is"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that are not the defaults, as they cross the wire."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(type(self), name)}

    def error_bound(self, classes: int) -> float:
        """Bound the distance of a row of probabilities from the one that arrives, in total variation.

        ``½ Σ_c |p_c − q_c|``, which also bounds every ``|p_c − q_c|``:

        - for multiples of 1/N, N = 2^b − 1, of C classes ``a(C − a) / (CN)``, a = min(⌊C/2⌋, N)
          (Reznik 2011); at most ``C/(4N)``;
        - for float16 ``2^−11 + C 2^−25``.

        Rounding to float32 comes on top, 1e-7 or so. zstd loses nothing.

        >>> round(quantized(8).error_bound(10), 4), round(float16().error_bound(10), 4)
        (0.0098, 0.0005)
        """
        if self.bits == 16:
            return min(1.0, 2**-11 + classes * 2**-25)
        if not self.bits:
            return 0.0
        levels = (1 << self.bits) - 1
        up = min(classes // 2, levels)
        return min(1.0, up * (classes - up) / (classes * levels))

    def number_error_bound(self, low: float, high: float) -> float:
        """Bound the distance of a number, such as a parameter, from the one that arrives.

        With b bits it is half a step, ``(high − low) / (2 (2^b − 1))``; with float16
        ``2^−11 max(|low|, |high|) + 2^−25``. Rounding to float32 comes on top, at most
        ``2^−22 max(|low|, |high|)``.

        Args:
            low: least of the numbers that are quantised together
                (:data:`~consilience.methods.compression.numbers.BLOCK` of an array).
            high: largest of these.

        >>> quantized(8).number_error_bound(-0.51, 0.51)
        0.002
        """
        largest = max(abs(low), abs(high))
        if self.bits == 16:
            return 2**-11 * largest + 2**-25
        return (high - low) / (2 * ((1 << self.bits) - 1)) if self.bits else 0.0


def _in_range(function: str, option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(
            f"{option} is {value}",
            where=function,
            mend=f"It lies in {least:g} to {most:g}.",
        )


def float16() -> Codec:
    """Numbers of 16 bits: half the bytes, an error of 5e-4 of each number."""
    return Codec(bits=16)


def quantized(bits: int = 8) -> Codec:
    """Shares as multiples of ``1/(2^bits - 1)`` that sum to 1, a byte each or less.

    Of all such rows the nearest is sent (largest remainders). The last share follows from the others and is
    not sent. Scores, one number a row, have 16 bits.

    Args:
        bits: of a share, 1 to 8. With 1 a row is its likeliest class.
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 8:
        raise InvalidInput(
            f"bits is {bits!r}",
            where="quantized",
            mend="Give a whole number, 1 to 8; or take float16(), or no codec for all bits.",
        )
    return Codec(bits=bits)


def zstd(level: int = 19) -> Codec:
    """Compressed without loss; whole bytes that are often alike take a few bits.

    Args:
        level: 1, quick, to 22, small.
    """
    _in_range("zstd", "level", level, 1, 22)
    return Codec(level=level)


def chain(*codecs: Codec) -> Codec:
    """All of them together.

    Raises:
        InvalidInput: there are none, or two say different things of the same.
    """
    if not codecs:
        raise InvalidInput("there is nothing to chain", where="codec", mend="Give at least one.")
    said: dict[str, tuple[Any, Codec]] = {}
    for codec in codecs:
        if not isinstance(codec, Codec):
            raise InvalidInput(
                f"{codec!r} is not a codec", where="codec", mend="Call what makes one: zstd()."
            )
        for field in fields(codec):
            value = getattr(codec, field.name)
            if value == field.default:
                continue
            before, by = said.setdefault(field.name, (value, codec))
            if before != value:
                raise InvalidInput(
                    f"{by.name} and {codec.name} do not go together",
                    where="codec",
                    mend="Each thing can be done once.",
                )
    return Codec(**{name: value for name, (value, _) in said.items()})


def read_codec(settings: Mapping[str, Any]) -> Codec:
    """Make the codec of a request's settings.

    Raises:
        KnowledgeRefused: these are none.
    """
    try:
        return Codec(**settings)
    except (TypeError, InvalidInput) as error:
        raise KnowledgeRefused(f"no settings of a codec ({error})") from error


CODECS: dict[str, Callable[..., Codec]] = {
    "float16": float16,
    "quantized": quantized,
    "zstd": zstd,
}
"""The codecs that a configuration can name, alone or in a list."""

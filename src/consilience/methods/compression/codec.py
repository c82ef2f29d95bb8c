"""Settings for message compression: lower numeric precision, and lossless compression of the bytes.

A :class:`Codec` holds two settings. The first reduces numbers to 16 bits (``float16()``) or quantises them to
b bits (``quantized(b)``). The second compresses the bytes without loss (``zstd()``).
``chain(quantized(8), zstd())`` combines both. Each message is compressed independently, without state from
earlier messages.

Any protocol takes a codec: ``federated_averaging(rounds=10).compressed(chain(quantized(8), zstd()))``. Both
settings apply to tables of predictions on the public rows (:mod:`consilience.methods.compression.rows`) and
to parameters (:mod:`consilience.methods.compression.numbers`). Only the second applies to all other arrays.

Sources: Sattler et al. 2022, "CFD: Communication-Efficient Federated Distillation via Soft-Label
Quantization and Delta Coding" (quantised and compressed soft labels, without its delta coding); Reznik 2011,
"An Algorithm for Quantization of Discrete Probability Distributions" (multiples of 1/N that sum to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import message


@message
class Codec:
    """Compression settings; use the functions of this module to make them.

    Attributes:
        bits: bits per number: 1 to 8, or 16; 0 keeps the original precision.
        level: zstd level, 1 to 22; 0 disables zstd.

    Raises:
        InvalidInput: a setting is out of range.
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
        """Settings other than the defaults, as sent in a message."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(type(self), name)}

    def error_bound(self, classes: int) -> float:
        """Bound the total variation distance between a row of probabilities and its decoded version.

        ``½ Σ_c |p_c − q_c|``, which also bounds every ``|p_c − q_c|``:

        - for multiples of 1/N, N = 2^b − 1, of C classes ``a(C − a) / (CN)``, a = min(⌊C/2⌋, N)
          (Reznik 2011); at most ``C/(4N)``;
        - for float16 ``2^−11 + C 2^−25``.

        Rounding to float32 adds about 1e-7. zstd is lossless.

        Args:
            classes: number of classes C.

        Returns:
            The bound, in [0, 1]; 0 if the codec is lossless.

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
        """Bound the distance between a number, such as a parameter, and its decoded version.

        With b bits the bound is half a step, ``(high − low) / (2 (2^b − 1))``. With float16 it is
        ``2^−11 max(|low|, |high|) + 2^−25``. Rounding to float32 adds at most ``2^−22 max(|low|, |high|)``.

        Args:
            low: smallest number in the quantisation block
                (:data:`~consilience.methods.compression.numbers.BLOCK` numbers of an array).
            high: largest number in the block.

        Returns:
            The bound; 0 if the codec is lossless.

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
    """Send numbers as 16-bit floats, with a relative error of about 5e-4."""
    return Codec(bits=16)


def quantized(bits: int = 8) -> Codec:
    """Quantise probabilities to multiples of ``1/(2^bits - 1)`` that sum to 1, with a byte or less for each.

    A row is rounded to the nearest such row (largest remainders). The last probability follows from the
    others and is not sent. Scores, one number per row, have 16 bits.

    Args:
        bits: bits per probability, 1 to 8. With 1 bit, only the likeliest class is sent.

    Raises:
        InvalidInput: ``bits`` is out of range.
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 8:
        raise InvalidInput(
            f"bits is {bits!r}",
            where="quantized",
            mend="Give a whole number, 1 to 8; or take float16(), or no codec for all bits.",
        )
    return Codec(bits=bits)


def zstd(level: int = 19) -> Codec:
    """Compress messages without loss by zstd; frequently repeated bytes take a few bits.

    Args:
        level: from 1 (fastest) to 22 (smallest).

    Raises:
        InvalidInput: ``level`` is out of range.
    """
    _in_range("zstd", "level", level, 1, 22)
    return Codec(level=level)


def chain(*codecs: Codec) -> Codec:
    """Combine codecs into one.

    Raises:
        InvalidInput: no codec is given, or two codecs have conflicting settings.
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
    """Make a codec from a request's settings.

    Raises:
        KnowledgeRefused: the settings are invalid.
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

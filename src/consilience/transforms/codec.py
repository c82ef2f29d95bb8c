"""Compression of messages: fewer numbers, shorter ones, fewer rows, and fewer bytes for these.

A :class:`Codec` holds the settings. They act in this order, whatever order they were chained in:

    1  of a row of probabilities the k largest are kept    ``top_k(k)``
    2  numbers have 16 bits, or are quantised to b bits    ``float16()``, ``quantized(b)``
    3  rows are left out that the receiver has, or nearly  ``changed_rows()``
    4  parties are not asked for rows whose teacher rests  ``cached_rows()``
    5  the bytes are compressed, without loss              ``zstd()``

``chain(top_k(2), quantized(4), changed_rows(), zstd())`` does all but the fourth. There is one order
because there is one that works: what the receiver has is known only in the numbers it was sent, and
compressed bytes have no rows. So a codec is a few settings, which cross the wire as numbers, and not a list
of functions, which could not.

Any protocol takes one: ``federated_averaging(rounds=10).compressed(chain(quantized(8), zstd()))``. Tables of
predictions on the public rows take all settings (:mod:`consilience.transforms.row_coder`), parameters the
second and the fifth (:mod:`consilience.transforms.number_coder`), all other arrays the fifth. Where messages
are compressed and restored, :mod:`consilience.transforms` says.

Sources: Sattler et al. 2022, "CFD: Communication-Efficient Federated Distillation via Soft-Label
Quantization and Delta Coding" (quantised, changed and compressed soft labels); Azuma et al. 2025,
"Soft-Label Caching and Sharpening for Communication-Efficient Federated Distillation" (SCARLET; rows that
are not asked for); Reznik 2011, "An Algorithm for Quantization of Discrete Probability Distributions"
(multiples of 1/N that sum to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.message import message


@message
class Codec:
    """Settings of compression; made by the functions of this module.

    Attributes:
        largest: number of shares of a row that are kept; 0 for all.
        renormalized: whether these are rescaled to sum to 1, or the others share alike what is left.
        bits: bits of a number: 1 to 8, or 16; 0 for as many as it has.
        tolerance: a row that moved no further is not sent again; ``None`` to send all rows in every round.
        still: a row rests whose teacher moved no further (total variation) in a round.
        rest: number of rounds in which a resting row is not asked for; 0 to ask for all.
        level: level of zstd, 1 to 22; 0 for none.

    Raises:
        InvalidInput: a setting out of its range.
    """

    largest: int = 0
    renormalized: bool = False
    bits: int = 0
    tolerance: float | None = None
    still: float = 0.0
    rest: int = 0
    level: int = 0

    def __post_init__(self) -> None:
        _in_range("top_k", "k", self.largest, 0, 65_536)
        if self.bits != 16:
            _in_range("quantized", "bits", self.bits, 0, 8)
        _in_range("changed_rows", "tolerance", self.tolerance or 0.0, 0, float("inf"))
        _in_range("cached_rows", "tolerance", self.still, 0, 1)
        _in_range("cached_rows", "rounds", self.rest, 0, 1_000_000)
        _in_range("zstd", "level", self.level, 0, 22)
        if self.rest and self.tolerance is None:
            raise InvalidInput("rows rest that are sent in every round", where="codec")

    @property
    def name(self) -> str:
        """Name that reports show.

        >>> chain(top_k(2), quantized(4), zstd()).name
        'top_k(2) + quantized(4) + zstd(19)'
        """
        number = {0: "", 16: "float16"}.get(self.bits, f"quantized({self.bits})")
        rescaled = ", renormalized" if self.renormalized else ""
        parts = [f"top_k({self.largest}{rescaled})" if self.largest else "", number]
        if self.rest:
            parts.append(f"cached_rows({self.still:g}, {self.rest})")
        if self.tolerance is not None and not (self.rest and self.tolerance == 0):
            parts.append(f"changed_rows({self.tolerance:g})")
        parts.append(f"zstd({self.level})" if self.level else "")
        return " + ".join(filter(None, parts)) or "as it is"

    @property
    def remembers(self) -> bool:
        """Need of both ends to know what was sent before."""
        return self.tolerance is not None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that are not the defaults, as they cross the wire."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(type(self), name)}

    def error_bound(self, classes: int) -> float:
        """Bound the distance of a row of probabilities from the one that arrives, in total variation.

        ``½ Σ_c |p_c − q_c|``, which also bounds every ``|p_c − q_c|``. It is the sum of

        - ``max_j j/(k + j) (1 − j/(C − k))``, j = 1, …, C − k, for keeping k of C, of rows with k + j equal
          shares. Renormalised: ``1 − k/C``, of an even row. Peaked rows lose less: never more than what is
          left beside the k largest shares;
        - ``a(m − a) / (mN)``, a = min(⌊m/2⌋, N), for multiples of 1/N, N = 2^b − 1, of m numbers (Reznik
          2011): C of them, k that are renormalised, or k and what is left; at most ``m/(4N)``;
        - ``2^−11 + m 2^−25`` for float16;
        - the tolerance below which a row is not sent again.

        Rounding to float32 comes on top, 1e-7 or so. zstd loses nothing; rows that rest are not sent, and the
        teacher there is what it was.

        >>> round(quantized(8).error_bound(10), 4), round(float16().error_bound(10), 4)
        (0.0098, 0.0005)
        """
        kept = min(self.largest, classes) if self.largest else classes
        others, bound, numbers = classes - kept, 1 - kept / classes, kept
        if others and not self.renormalized:
            bound = max(j / (kept + j) * (1 - j / others) for j in range(1, others + 1))
            numbers = kept + 1
        if self.bits == 16:
            bound += 2**-11 + numbers * 2**-25
        elif self.bits:
            levels = (1 << self.bits) - 1
            up = min(numbers // 2, levels)
            bound += up * (numbers - up) / (numbers * levels)
        return min(1.0, bound + (self.tolerance or 0.0))

    def number_error_bound(self, low: float, high: float) -> float:
        """Bound the distance of a number, such as a parameter, from the one that arrives.

        With b bits it is half a step, ``(high − low) / (2 (2^b − 1))``; with float16
        ``2^−11 max(|low|, |high|) + 2^−25``. Rounding to float32 comes on top, at most
        ``2^−22 max(|low|, |high|)``.

        Args:
            low: least of the numbers that are quantised together
                (:data:`~consilience.transforms.number_coder.BLOCK` of an array).
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
            mend=f"It lies in {max(least, 0):g} to {most:g}.",
        )


def _wanted(function: str, option: str, value: object, least: int) -> None:
    """Raise ``InvalidInput`` unless it is a whole number, so many at least: 0 is how a codec says "not"."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(
            f"{option} is {value!r}", where=function, mend=f"Give a whole number, {least} or more."
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


def top_k(k: int, *, renormalize: bool = False) -> Codec:
    """The k largest shares of a row and which classes they are of; the others share alike what is left.

    What is left over is never further from the truth than a row without it, and keeps a teacher from sounding
    surer than it is.

    Args:
        k: at least 1.
        renormalize: rescale the k shares to sum to 1 in its place.
    """
    _wanted("top_k", "k", k, 1)
    return Codec(largest=k, renormalized=bool(renormalize))


def changed_rows(tolerance: float = 0.0) -> Codec:
    """Rows that are not what the receiver has of them already, and which they are.

    A row is compared with what was last sent of it, so that small steps in one direction add up until they
    are.

    Args:
        tolerance: how far a row may have moved and not be sent: in total variation for probabilities, in the
            largest difference for all other numbers. 0 loses nothing.
    """
    return Codec(tolerance=float(tolerance))


def cached_rows(tolerance: float = 0.01, *, rounds: int = 5) -> Codec:
    """Parties are not asked for rows whose teacher rests; unchanged rows are not sent either.

    A row whose teacher moved by no more than ``tolerance`` in a round is left as it is, and asked for again
    when ``rounds`` rounds have passed.

    Args:
        tolerance: in total variation, [0, 1]. With 1 all rows rest by turns, as in SCARLET.
        rounds: D, at least 1.
    """
    _wanted("cached_rows", "rounds", rounds, 1)
    return Codec(still=float(tolerance), rest=rounds, tolerance=0.0)


def zstd(level: int = 19) -> Codec:
    """Compressed without loss; whole bytes that are often alike take a few bits.

    Args:
        level: 1, quick, to 22, small.
    """
    _wanted("zstd", "level", level, 1)
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
            if field.name == "tolerance" and 0.0 in (before, value):
                # cached_rows() leaves out unchanged rows too, and a tolerance may come on top.
                said[field.name] = (max(before, value), codec)
            elif before != value:
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
    "top_k": top_k,
    "changed_rows": changed_rows,
    "cached_rows": cached_rows,
    "zstd": zstd,
}
"""The codecs that a configuration can name, alone or in a list."""

"""What a hostile sender makes of honest messages: bytes that nobody may take for an answer."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import load, save


class Choices:
    """Numbers drawn beforehand, one for each thing to be decided; 0 when they are used up.

    Drawn beforehand, because what a test draws inside of a protocol would end the protocol when hypothesis
    has had enough.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)[::-1]

    def below(self, count: int) -> int:
        return (self.numbers.pop() if self.numbers else 0) % count

    def of(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def bytes(self, most: int) -> bytes:
        return Random(self.below(2**32)).randbytes(self.below(most + 1))


CHOICES = st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=16).map(Choices)


def parts(data: bytes) -> tuple[list[Any], dict[str, np.ndarray]]:
    """The document and the arrays of an honest message."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["consilience"]), load(data)


def written(document: Any, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Bytes that a sender who does not use our encoder could send."""
    return save(dict(arrays), metadata={"consilience": json.dumps(document)})


def raw(header: Any, body: bytes = b"", *, size: int | None = None) -> bytes:
    """A file whose header says what it likes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def legal(data: bytes, honest: bytes) -> bool:
    """Whether bytes are an answer that could be meant: the honest one's fields, and numbers as allowed.

    Written without the package, so that it does not share its mistakes.
    """
    try:
        document, arrays = parts(data)
        expected, like = parts(honest)
        if sorted(arrays) != sorted(like) or len(document) != len(expected):
            return False
        for one, other in zip(document, expected, strict=True):
            ((name, fields),), ((meant, given),) = one.items(), other.items()
            usual = {key: value for key, value in given.items() if key != "notes"}
            if name != meant or {k: v for k, v in fields.items() if k != "notes"} != usual:
                return False
            notes = fields.get("notes", [])
            if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
                return False
            "".join(notes).encode()
    except Exception:
        return False
    for name, values in arrays.items():
        if values.dtype != like[name].dtype or values.shape != like[name].shape:
            return False
        wide = values.astype(np.float64)
        if not np.isfinite(wide).all():
            return False
        if wide.ndim == 2 and (wide.min() < 0 or np.abs(wide.sum(axis=1) - 1).max() > 0.9e-3):
            # What lies between 0.9e-3 and 1.1e-3 is rounding, and nobody's concern.
            return bool(wide.min() >= 0 and np.abs(wide.sum(axis=1) - 1).max() < 1.1e-3)
    return True


# --- one forgery each -------------------------------------------------------------------------------

NUMBERS = [np.nan, np.inf, -np.inf, -1.0, 1e-3, 2.0, 1e18, 3.0e38, -3.0e38, 1e300, 1.7e308]
WORDS = ["", "a", "ash", "x" * 5000, "\x1b[2J\r\n", "ü\u202e", "../../x", "\ud800"]
COUNTS = [-(2**63), -1, 0, 2, 7, 10**18, 2**63 - 1, 2**63, 10**30]
DTYPES = ["F16", "F32", "F64", "BF16", "F8_E4M3", "C64", "BOOL", "U8", "I64", "X9"]
SIDES = [0, 1, 2, 3, 2**20, 2**31, 2**40, 2**60, 2**63, 2**64 - 1]


def random_bytes(choose: Choices, honest: bytes) -> bytes:
    return choose.bytes(400)


def truncated(choose: Choices, honest: bytes) -> bytes:
    return honest[: choose.below(len(honest))]


def flipped(choose: Choices, honest: bytes) -> bytes:
    data = bytearray(honest)
    for _ in range(1 + choose.below(5)):
        data[choose.below(len(data))] ^= 1 + choose.below(255)
    return bytes(data)


def spliced(choose: Choices, honest: bytes) -> bytes:
    before, after = honest[: choose.below(len(honest))], honest[choose.below(len(honest)) :]
    return before + choose.bytes(20) + after


def overlong(choose: Choices, honest: bytes) -> bytes:
    size = choose.of([2**23 + 1, 10**8, 2**40, 2**63, 2**64 - 1])
    return raw(honest[8:], size=size)


def nested(choose: Choices, honest: bytes) -> bytes:
    depth = choose.of([50, 900, 5_000, 100_000])
    before, after = choose.of(
        [("[", "]"), ('{"map":{"a":', "}}"), ('{"Compressed":{"notes":[', "]}}")]
    )
    text = before * depth + "1" + after * depth
    if choose.below(2):
        return raw(text.encode())
    return raw({"__metadata__": {"consilience": f"[{text}]"}})


def giant(choose: Choices, honest: bytes) -> bytes:
    """Arrays that say they are larger than any memory, or of numbers that nobody knows."""
    document, _ = parts(honest)
    sides = [choose.of(SIDES) for _ in range(choose.below(4))]
    shape = choose.of([sides, sides, sides, [1] * 100, [0, 2**62]])
    end = choose.of([0, 8, 2**40])
    entry = {"dtype": choose.of(DTYPES), "shape": shape, "data_offsets": [0, end]}
    header = {"__metadata__": {"consilience": json.dumps(document)}, "0": entry}
    return raw(header, bytes(min(end, 8)))


def crowded(choose: Choices, honest: bytes) -> bytes:
    """A document of very many things."""
    count = choose.of([10, 1_000, 200_000])
    document, arrays = parts(honest)
    item = choose.of([document[0], [], 1, {"map": {}}, {"array": "0"}])
    return written([item] * (count if len(json.dumps(item)) < 20 else min(count, 1_000)), arrays)


def renamed(choose: Choices, honest: bytes) -> bytes:
    """A plain field that says something else."""
    document, arrays = parts(honest)
    ((_, fields),) = choose.of(document).items()
    name = choose.of([name for name in fields if name not in ("values", "notes")])
    said, other = fields[name], choose.of([*COUNTS, *WORDS, None, True, False])
    fields[name] = other
    if isinstance(said, list):
        lists = [said[::-1], said[:-1], [*said, "more"], [*said, *said], [], "x", {"array": "0"}]
        fields[name] = choose.of(lists)
    return written(document, arrays)


def reshaped(choose: Choices, honest: bytes) -> bytes:
    document, arrays = parts(honest)
    name = choose.of(sorted(arrays))
    values = arrays[name]
    arrays[name] = choose.of(
            [values[1:], values[:0], values.T.copy(), values[None], values.ravel()[:, None, None],
             np.concatenate([values, values]), values.astype(np.float64), values.astype(np.float16),
             values.astype(np.int64), values > 0.5, values.view(np.uint8), np.array(0.5, np.float32)],
    )  # fmt: skip
    return written(document, arrays)


def spoilt(choose: Choices, honest: bytes) -> bytes:
    """Numbers that are none, or too large, or do not sum to 1."""
    document, arrays = parts(honest)
    name = choose.of(sorted(arrays))
    values = arrays[name].copy()
    with np.errstate(over="ignore"):
        number = np.asarray(choose.of(NUMBERS)).astype(values.dtype)
    everywhere, at = choose.below(2), choose.below(values.size)
    if everywhere:
        values[...] = number
    else:
        values.flat[at] = number
    arrays[name] = values
    return written(document, arrays)


def mixed(choose: Choices, honest: bytes) -> bytes:
    """Other messages than were asked for, or of another number."""
    document, arrays = parts(honest)
    failure = {"Failure": {"party": "ash", "reason": "\x1b[31m" * 10_000, "mend": "y" * 100_000}}
    strange = [
        failure,
        {"FitPrivate": {"round": 1}},
        {"Nobody": {}},
        {"Codec": {"level": 99}},
        1,
        "x",
    ]
    more = choose.of([*document, *strange])
    return written(
        choose.of(
            [[], document[:-1], document[::-1], [*document, more], [more], [*document, *document]],
        ),
        arrays,
    )


FORGERIES = (
    random_bytes, truncated, flipped, spliced, overlong, nested, giant, crowded, renamed, reshaped,
    spoilt, mixed,
)  # fmt: skip


def forged(choose: Choices, honest: bytes, said_before: Sequence[bytes] = ()) -> bytes:
    """One of all these, or what was said in another round or by another party."""
    how = choose.of([*FORGERIES, None] if said_before else FORGERIES)
    if how in (reshaped, spoilt) and not parts(honest)[1]:
        how = renamed
    return choose.of(said_before) if how is None else how(choose, honest)

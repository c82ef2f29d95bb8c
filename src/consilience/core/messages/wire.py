"""Messages as bytes: a safetensors file whose metadata holds the plain fields as JSON.

Only numbers, strings and arrays can be written, and only registered message classes can be read: no pickle,
no code. The arrays' bytes are stored unchanged, so that a message of one array needs the array's size and a
header of a few hundred bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.message import (
    REGISTRY,
    Brief,
    load_registered,
    sent_fields,
    values_of,
)

LONGEST_HEADER = 1 << 23
"""Maximum size in bytes of a message without its arrays. Decoded JSON takes about twenty times its size in
memory."""

_KEY = "consilience"
_PLAIN = frozenset({type(None), bool, int, float, str})
_SEQUENCES, _TEXT = (tuple, list), {str}
_SIZES: dict[object, int] = {}
_MOST_SIZES = 10_000
_json = json.JSONEncoder(separators=(",", ":")).encode


def encode(messages: Sequence[object]) -> bytes:
    """The bytes of a sequence of messages; the same messages always give the same bytes."""
    arrays: dict[str, np.ndarray] = {}
    document = [_pack(message, arrays) for message in messages]
    return save_arrays(arrays, metadata={_KEY: _json(document)})


def size(messages: Sequence[object]) -> int:
    """Return ``len(encode(messages))``, for a network that passes objects and counts bytes as on a real one.

    The size depends on the shapes and on the text of the plain fields, not on the numbers in arrays. Sizes
    are therefore cached by these.
    """
    outline = tuple([_outline(message) for message in messages])
    found = _SIZES.get(outline)
    if found is None:
        if len(_SIZES) >= _MOST_SIZES:
            _SIZES.clear()
        found = _SIZES[outline] = len(encode(messages))
    return found


def decode(data: bytes, *, allow: Collection[str] | None = None) -> tuple[Any, ...]:
    """The messages that :func:`encode` wrote.

    Args:
        data: the bytes.
        allow: tasks and groups of tasks that may be imported for it (:func:`.load_registered`); ``None``, the
            default, for all.

    Raises:
        KnowledgeRefused: the bytes are damaged, name an unknown message, or do not fit its fields.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        if size > LONGEST_HEADER:
            raise ValueError(f"a header of {size:,} bytes, of at most {LONGEST_HEADER:,}")
        document = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_KEY])
        arrays = load_arrays(data)
        if any(
            values.dtype == bool and (values.view(np.uint8) > 1).any() for values in arrays.values()
        ):
            raise ValueError("a bool that is neither true nor false")
        return tuple(_unpack(entry, arrays, allow) for entry in document)
    except KnowledgeRefused:
        raise
    except Exception as error:  # what a stranger's bytes may raise in JSON or NumPy has no list
        raise KnowledgeRefused(f"unreadable message ({error})", where="wire") from error


def _outline(value: Any) -> object:
    """All of a value that the length of its bytes depends on."""
    kind = type(value)
    if kind is str:
        return value
    if kind is int:
        return len(str(value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    if isinstance(value, _SEQUENCES):
        return tuple(value) if _TEXT.issuperset(map(type, value)) else tuple(map(_outline, value))
    if REGISTRY.get(kind.__name__) is kind:
        if issubclass(kind, Brief):  # which fields are sent depends on their values
            return kind, *[(name, _outline(item)) for name, item in sent_fields(value)]
        return kind, *map(_outline, values_of(value))
    if isinstance(value, Mapping):
        return kind, *[(key, _outline(item)) for key, item in value.items()]
    return kind, repr(value)


def _pack(value: object, arrays: dict[str, np.ndarray]) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        if value.dtype.kind not in "biuf":
            raise TypeError(f"arrays of {value.dtype} cannot cross the wire")
        arrays[name] = np.asarray(value, order="C")
        return {"array": name}
    if isinstance(value, tuple | list):
        return [item if type(item) in _PLAIN else _pack(item, arrays) for item in value]
    if REGISTRY.get(kind.__name__) is kind:
        return {kind.__name__: {name: _pack(item, arrays) for name, item in sent_fields(value)}}
    if isinstance(value, Mapping):
        return {"map": {str(key): _pack(item, arrays) for key, item in value.items()}}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{kind.__name__} cannot cross the wire")


def _unpack(value: Any, arrays: Mapping[str, np.ndarray], allow: Collection[str] | None) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(item, arrays, allow) for item in value)
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "array":
        return arrays[content]
    items = {name: _unpack(item, arrays, allow) for name, item in content.items()}
    if tag == "map":
        return items
    if tag not in REGISTRY:
        load_registered(allow)  # a party is asked tasks that it has not imported yet
    if tag not in REGISTRY:
        allowed = (
            "" if allow is None else f", or limits.allow ({', '.join(allow)}) does not cover it"
        )
        raise ValueError(f"no message is called {tag!r}{allowed}")
    return REGISTRY[tag](**items)

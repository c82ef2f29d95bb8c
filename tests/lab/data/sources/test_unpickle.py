from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data.sources.unpickle import read_pickle


class Evil:
    """On loading, makes a folder."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made-by-a-pickle"
    content = pickle.dumps({"data": Evil(os.mkdir, str(target))}, protocol=protocol)
    with pytest.raises(InvalidInput, match=r"batch: the pickle wants to use \w+\.mkdir"):
        read_pickle(content, "batch")
    assert not target.exists()
    pickle.loads(content)  # the test is about something: a plain pickle.loads does it
    assert target.exists()


@pytest.mark.parametrize("call", [eval, getattr, np.load, np.frombuffer, np.array])
def test_no_other_function_may_be_named(call: Any) -> None:
    with pytest.raises(InvalidInput, match="wants to use"):
        read_pickle(pickle.dumps(Evil(call, "1")), "batch")


def test_dotted_names_do_not_reach_further() -> None:
    """Protocol 4 may name attributes of attributes: numpy dtype.__class__ is refused as a name."""
    content = b"\x80\x04\x8c\x05numpy\x8c\x0fdtype.__class__\x93."
    with pytest.raises(InvalidInput, match=r"numpy\.dtype\.__class__"):
        read_pickle(content, "batch")


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_and_plain_objects_are_read(protocol: int) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    content = pickle.dumps([{"a": [1, "x"]}, np.asarray(array)], protocol=protocol)
    if protocol == 2:  # Python 3 writes bytes in protocol 2 as a call of _codecs.encode
        with pytest.raises(InvalidInput, match="_codecs"):
            read_pickle(content, "batch")
        return
    plain, read = read_pickle(content, "batch")
    assert plain == {"a": [1, "x"]}
    assert read.tolist() == array.tolist()


def test_arrays_of_objects_are_refused() -> None:
    content = pickle.dumps(np.array([{}, []], dtype=object))
    with pytest.raises(InvalidInput, match="array of object"):
        read_pickle(content, "batch")


def test_damage_is_named() -> None:
    for content in (b"", b"\x80\x02}q", b"hello", pickle.dumps([1, 2])[:-1]):
        with pytest.raises(InvalidInput, match="batch: the pickle is damaged"):
            read_pickle(content, "batch")

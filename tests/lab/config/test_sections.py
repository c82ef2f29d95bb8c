"""Configurations that are no configurations: other files, other encodings, and texts made to take long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.config.sections import parse_toml, read_toml


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_a_byte_order_mark_is_nothing(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "t.toml").write_bytes(mark + 'seeds = 1\nname = "größe"'.encode())
    assert read_toml(tmp_path / "t.toml") == {"seeds": 1, "name": "größe"}


def test_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("seeds = 1", encoding="utf-16")
    with pytest.raises(InvalidInput, match=r"this is not TOML[^$]*Save it as UTF-8"):
        read_toml(tmp_path / "t.toml")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "zero.toml"):
        with pytest.raises(InvalidInput, match=f"{name}: cannot be read: it is no regular file"):
            read_toml(tmp_path / name)
    (tmp_path / "long.toml").write_bytes(b"#" * ((1 << 22) + 1))
    with pytest.raises(InvalidInput, match="of at most 4,194,304"):
        read_toml(tmp_path / "long.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"a{'.a' * 100_000} = 1", "deeper than 20 times"),
        ('"a"' + " . 'a'" * 100_000 + " = 1", "deeper than 20 times"),
        (f"[a{'.a' * 100_000}]", "deeper than 20 times"),
        ("." * 200_000, "not TOML"),
        (f"a = {'[' * 100_000}", "deeper than 20 times"),
        (f"a = {'[' * 50}{']' * 50}", "deeper than 20 times"),
        (f"a = {'{a=' * 100_000}", "deeper than 20 times"),
        (f"a = {'9' * 5_000}", "a number is too long"),
        ("a = [1, 9223372036854775808]", "a whole number has more than 64 bits"),
        (f"a = 0x{'f' * 200_000}", "a whole number has more than 64 bits"),
        ('"' * 200_000, "not TOML"),
    ],
)
def test_texts_made_to_take_long_are_refused_at_once(text: str, said: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InvalidInput, match=f"t.toml: .*{said}"):
        parse_toml(text, where="t.toml")
    assert time.perf_counter() - start < 2


def test_what_a_configuration_may_hold() -> None:
    text = f'a.b.c = {"[" * 10}-9223372036854775808{"]" * 10}\nd = "{"a." * 30} {"b. " * 10}"'
    assert parse_toml(text, where="t.toml").keys() == {"a", "d"}

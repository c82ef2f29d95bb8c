"""Base classes of a configuration's sections, checks of their fields, and errors in plain words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Strict,
    ValidationError,
    model_validator,
)

from consilience.core.errors import InvalidInput, nearest, odd_name
from consilience.core.files import read_text

_LONGEST = 1 << 22
"""Bytes of a configuration."""

_DEEPEST = 20
"""Parts of a key, and lists and tables in one another."""

_MANY_DOTS = re.compile(
    rf"""(?m)(?:^|[{{,\[])[ \t]*(("[^"\n]*"|'[^'\n]*'|[\w-]+)[ \t]*\.[ \t]*){{{_DEEPEST}}}"""
)


def check_address(text: str) -> str:
    """Return an address unchanged if it is a host and a port.

    Raises:
        ValueError: it is something else.

    >>> check_address("coordinator.example.org:9092")
    'coordinator.example.org:9092'
    """
    found = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?:(\d{1,5})", text)
    if not found or not 0 < int(found[1]) < 65_536:
        raise ValueError(f"{text!r} is not HOST:PORT, with a name or an IPv4 address and a port")
    return text


def check_name(text: str) -> str:
    """Return a party's name unchanged if it can be shown.

    Raises:
        ValueError: it is not.
    """
    if why := odd_name(text):
        raise ValueError(f"this is no name of a party: {why}")
    return text


Name = Annotated[str, AfterValidator(check_name)]
"""The name of a party."""

Address = Annotated[str, AfterValidator(check_address)]
"""Host and port, such as ``"coordinator.example.org:9092"``."""


Whole = Annotated[int, Strict()]
"""A whole number; no text of one, and no ``true``, which Python takes for 1."""

Number = Annotated[float, Strict()]
"""A number, whole or not; no text of one, and no ``true``."""

Flag = Annotated[bool, Strict()]
"""``true`` or ``false``, and nothing that could stand for them."""


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # Python takes True for 1
        raise ValueError(f"it should be a number of parties or a share, not {value}")
    return value


Quorum = Annotated[int | float, BeforeValidator(_no_truth)]
"""A number of parties (int), or a share of them (float)."""


def write_new(path: Path, text: str) -> None:
    """Write a configuration for the user to fill in.

    Raises:
        InvalidInput: there is one already, or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInput(
            "there is something already", where=str(path), mend="Give another folder."
        ) from error
    except OSError as error:
        raise InvalidInput(f"cannot be written ({error.strerror})", where=str(path)) from error


def read_toml(path: Path, *, missing: str | None = None, file: str | None = None) -> dict[str, Any]:
    """Read a file of TOML.

    Args:
        path: the file.
        missing: what to do where there is no such file, for the error.
        file: the usual name of such a file in a folder, for the error where a folder was given.

    Raises:
        InvalidInput: no such file, a folder, not TOML, or it cannot be read.
    """
    where = str(path)
    try:
        return parse_toml(read_text(path, _LONGEST), where=where)
    except FileNotFoundError as error:
        raise InvalidInput("there is no such file", where=where, mend=missing) from error
    except IsADirectoryError as error:
        mend = f"Give its configuration: {path / file}" if file else None
        raise InvalidInput(
            "this is a folder, and a file is wanted", where=where, mend=mend
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"this is not TOML: {error}", where=where, mend="Save it as UTF-8."
        ) from error
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"cannot be read: {error}", where=where) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=where) from error


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """Read a text of TOML, which may be a stranger's.

    Args:
        text: at most a few megabytes.
        where: its file, for errors.

    Raises:
        InvalidInput: it is not TOML; keys, lists or tables lie in one another too deeply; a whole number has
            more than 64 bits; or a text holds a zero byte.
    """
    deep = InvalidInput(
        f"keys, lists or tables lie in one another deeper than {_DEEPEST} times", where=where
    )
    if _MANY_DOTS.search(text):  # tomllib takes time with the square of them
        raise deep
    try:
        document = tomllib.loads(text)
    except RecursionError as error:
        raise deep from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"this is not TOML: {error}", where=where) from error
    except ValueError as error:  # of Python, for more than some thousand digits
        raise InvalidInput("this is not TOML: a number is too long", where=where) from error
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, int) and not -(1 << 63) <= one < 1 << 63:
                raise InvalidInput(
                    "this is not TOML: a whole number has more than 64 bits", where=where
                )
            if isinstance(one, str) and "\0" in one:  # which ends the name of a file
                raise InvalidInput("a text holds a zero byte", where=where)
            if isinstance(one, dict | list):
                inner += one.values() if isinstance(one, dict) else one
        level = inner
    if level:
        raise deep
    return document


class Section(BaseModel):
    """A section whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Open(BaseModel):
    """A section that names something and passes its other keys on as options; a name alone will do."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) and "name" in cls.model_fields else given

    @property
    def options(self) -> dict[str, Any]:
        """The keys without a field in the section."""
        return dict(self.model_extra or {})


def first_of(error: ValidationError, where: str, section: Any) -> InvalidInput:
    """Turn pydantic's first complaint into an error in plain words, unknown keys with the nearest.

    Args:
        error: error of pydantic.
        where: the file.
        section: the model class of the failed check.

    Returns:
        The error, to be raised by the caller.
    """
    errors = error.errors()
    # A misspelt name is why another is missing.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    # Pydantic names the type it tried last, which is no place in the file.
    tried = re.compile(r"^(int|float|str|tuple\[.*|dict\[.*)$")
    place = [str(part) for part in first["loc"] if not tried.match(str(part))]
    if first["type"] == "extra_forbidden":
        for part in place[:-1]:
            section = (
                section if part.isdigit() else _value_type(section.model_fields[part].annotation)
            )
        return InvalidInput(
            f"unknown {'section' if isinstance(first['input'], dict) else 'key'} {'.'.join(place)!r}",
            where=where,
            mend=_place_of(place[-1], section) or nearest(place[-1], section.model_fields),
        )
    complaint = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("model_type", "dict_type"):
        complaint = "it should be a table"
    elif first["type"] != "value_error":
        complaint = complaint[:1].lower() + complaint[1:]
    what = f"{'.'.join(place)}: {complaint.replace('tuple', 'list')}".removeprefix(": ")
    if first["type"] not in ("missing", "too_short", "value_error"):  # ours say it themselves
        what += f", not {first['input']!r}"
    return InvalidInput(what, where=where)


def _place_of(key: str, section: type[BaseModel]) -> str | None:
    """Say which section inside of this one has a key."""
    for name, field in section.model_fields.items():
        inner = _value_type(field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel) and key in inner.model_fields:
            return f"It belongs under [{name}]."
    return None


def _value_type(annotation: Any) -> Any:
    """Return the type of a key's value, without the ``None`` of one that may be left out."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if isinstance(annotation, UnionType) else annotation


def known(
    name: str, registry: Mapping[str, Any], what: str, also: Mapping[str, str] | None = None
) -> None:
    """Raise ``InvalidInput`` unless a registry has a name.

    Args:
        name: as the user wrote it.
        registry: the known names.
        what: the kind of thing, for the error.
        also: names in other libraries or papers, to the known names.
    """
    if name not in registry:
        raise InvalidInput(f"unknown {what} {name!r}", mend=nearest(name, registry, also))

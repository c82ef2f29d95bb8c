"""Read the configuration of a file or a run folder, put settings in, and validate it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from consilience.core.errors import InvalidInput, command
from consilience.lab.config.experiment import Spec
from consilience.lab.config.sections import first_of, parse_toml, read_toml
from consilience.lab.runs.folder import read_configuration


def read_spec(
    path: Path, settings: Sequence[str] = (), *, overrides: Mapping[str, Any] = {}
) -> Spec:
    """Read a configuration file without making or importing any of its models.

    Args:
        path: a TOML file.
        settings: ``key=value`` pairs that replace values of the file; dots reach into sections and
            lists (``models.0.name``), values are TOML (bare words are strings).
        overrides: the same, already parsed; they win.

    Returns:
        The checked configuration.

    Raises:
        InvalidInput: no such file, not TOML, unknown keys or values, each with the nearest valid name.
    """
    document = read_toml(path)
    given = [_setting(text) for text in settings]
    for key, value in [*given, *overrides.items()]:
        _put(document, key, value)
    document.setdefault("name", re.sub(r"[^A-Za-z0-9._]+", "-", path.stem).strip("-._") or "run")
    where = " ".join([str(path), *(f"--set {text}" for text in settings)])
    return parse_spec(document, where=where, relative_to=path.parent)


def stored_spec(folder: Path) -> Spec:
    """Read the configuration of a simulated run without making or importing any of its models.

    Returns:
        The checked configuration.

    Raises:
        InvalidInput: not the folder of a simulated run.
        RunFailed: the run has another format, or the configuration is damaged.
    """
    stored = read_configuration(folder)
    if stored.kind != "simulated":
        raise InvalidInput(
            "this is the run of a deployed federation, which has no parties of its own",
            where=str(folder),
            mend=f"Go on with it by: {command('coordinator', 'resume', folder.parent)}",
        )
    try:
        return parse_spec(stored.values, where=str(stored.path))
    except (ValueError, RecursionError) as error:
        raise stored.damaged(error) from error


def parse_spec(document: Mapping[str, Any], *, where: str, relative_to: Path | None = None) -> Spec:
    """Validate a parsed configuration without making or importing any model.

    The parameters of models are not validated.

    Args:
        document: the configuration.
        where: source of the configuration, for errors.
        relative_to: base folder of relative file names in it; by default they stay as they are.

    Returns:
        The checked configuration.

    Raises:
        InvalidInput: unknown keys or values, each with the nearest valid name.
    """
    document = json.loads(json.dumps(document, default=str))
    late = document.get("late")
    for section in [document, *(late if isinstance(late, list) else [])]:
        data = section.get("data") if isinstance(section, dict) else None
        for key in ("path", "test", "public_file"):
            if (
                relative_to is not None
                and isinstance(data, dict)
                and isinstance(data.get(key), str)
            ):
                data[key] = str((relative_to / data[key]).resolve())
    try:
        spec = Spec.model_validate(document)
    except ValidationError as error:
        raise first_of(error, where, Spec) from error
    spec.check()
    return spec


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(f"{text!r} is not key=value", where="--set")
    try:
        return key.strip(), parse_toml(f"value = {value}", where=f"--set {key}")["value"]
    except InvalidInput as error:
        if not isinstance(error.__cause__, tomllib.TOMLDecodeError):
            raise
        return key.strip(), value.strip()


_NAMED = ("methods", "models", "partition", "protocol")
"""Sections that a name alone may stand for."""


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    place: Any = document
    for section in sections:
        holder = place
        place = (
            place.setdefault(section, {})
            if isinstance(place, dict)
            else _entry(place, section, key)
        )
        if isinstance(place, str) and sections[0] in _NAMED and section != "name":
            place = {"name": place}
            holder[section if isinstance(holder, dict) else int(section)] = place
    if isinstance(place, dict):
        place[last] = value
    else:
        _entry(place, last, key)
        place[int(last)] = value


def _entry(place: Any, position: str, key: str) -> Any:
    """One entry of a list, as in ``models.0.name``."""
    if not isinstance(place, list):
        raise InvalidInput(
            f"what stands before {position!r} in {key!r} is not a section", where="--set"
        )
    if not position.isdecimal() or int(position) >= len(place):
        raise InvalidInput(
            f"{position!r} in {key!r} is not from 0 to {len(place) - 1}", where="--set"
        )
    return place[int(position)]

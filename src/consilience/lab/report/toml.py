"""A configuration written back as the TOML file that would run it again."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import tomli_w

from consilience.core.errors import visible
from consilience.lab.runs.folder import RunSpec


def to_toml(spec: RunSpec, *, paths: bool = True) -> str:
    """Write the configuration as TOML, defaults spelled out; reading it gives an equal one.

    Args:
        spec: the configuration.
        paths: whether files stand with their folders; else by their names alone, for a page that others see.
    """
    document = _without_none(spec.model_dump(mode="json"))
    if not paths:
        document = _without_folders(document)
    for method in document.get("methods", [document.get("method")]):
        if not method[
            "protocol"
        ]:  # as it is by default: a table with nothing in it tells a reader nothing
            del method["protocol"]
    # Characters that hide can stand in strings and quoted keys alone: there TOML knows this spelling.
    return visible(tomli_w.dumps(document), spelt=lambda sign: f"\\U{ord(sign):08X}")


def _without_folders(value: Any) -> Any:
    """Reduce every absolute path in a value to its file name."""
    if isinstance(value, dict):
        return {key: _without_folders(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    is_path = isinstance(value, str) and PurePath(value).is_absolute()
    return PurePath(value).name or "." if is_path else value


def _without_none(value: Any) -> Any:
    """Remove keys with value ``None``, because TOML cannot represent it."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value

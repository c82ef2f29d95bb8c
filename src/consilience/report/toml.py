"""A configuration written back as the TOML file that would run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from consilience.errors import visible
from consilience.experiments import Spec


def to_toml(spec: Spec) -> str:
    """The configuration as TOML, defaults spelled out; reading it gives an equal one."""
    document = spec.model_dump(mode="json", exclude_none=True)
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    models = plain.pop("models")
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, section in document.items():
        if isinstance(section, dict):
            lines += ["", f"[{_key(key)}]", *_pairs(section)]
    for model in models:
        lines += ["", "[[models]]", *_pairs(model)]
    return "\n".join(lines) + "\n"


def _pairs(section: Mapping[str, Any]) -> list[str]:
    return [f"{_key(k)} = {_value(v)}" for k, v in section.items() if v is not None]


def _key(key: str) -> str:
    bare = key.replace("_", "a").replace("-", "a")
    return key if bare.isascii() and bare.isalnum() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(_pairs(value))
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        if value and all(isinstance(entry, Mapping) for entry in value):
            return "[\n" + "".join(f"    {_value(entry)},\n" for entry in value) + "]"
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for the delete character and signs of two halves.
        return visible(
            json.dumps(value, ensure_ascii=False), spelt=lambda sign: f"\\U{ord(sign):08X}"
        )
    return json.dumps(value)

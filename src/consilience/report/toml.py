"""A configuration written back as the TOML file that would run it again."""

from __future__ import annotations

from typing import Any

import tomli_w

from consilience.errors import visible
from consilience.federation.run_folder import RunSpec


def to_toml(spec: RunSpec) -> str:
    """Write the configuration as TOML, defaults spelled out; reading it gives an equal one."""
    document = _without_none(spec.model_dump(mode="json"))
    for method in document.get("methods", [document.get("method")]):
        if not method[
            "protocol"
        ]:  # as it is by default: a table with nothing in it tells a reader nothing
            del method["protocol"]
    # Characters that hide can stand in strings and quoted keys alone: there TOML knows this spelling.
    return visible(tomli_w.dumps(document), spelt=lambda sign: f"\\U{ord(sign):08X}")


def _without_none(value: Any) -> Any:
    """The value without keys that are ``None``, which TOML cannot say."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value

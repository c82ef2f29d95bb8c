"""Configurations of experiments that differ from a text in a few keys."""

from __future__ import annotations

import tomllib
from typing import Any

from consilience.lab.experiments import Spec, parse_spec


def spec_with(text: str, **changes: Any) -> Spec:
    """Read a configuration with keys changed: ``section__key`` or ``key``; ``None`` takes one away."""
    document = tomllib.loads(text)
    for key, value in changes.items():
        section, _, last = key.rpartition("__")
        place = document.setdefault(section, {}) if section else document
        place[last] = value
        if value is None:
            del place[last]
    return parse_spec(document, where="test")

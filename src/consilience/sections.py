"""What all sections of a configuration have in common, and how a mistake in one is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from consilience.errors import InvalidInput, nearest


class Section(BaseModel):
    """A section whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Open(BaseModel):
    """A section that names something and passes its other keys on as options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not the section's own."""
        return dict(self.model_extra or {})


def first_of(error: ValidationError, where: str, section: Any) -> InvalidInput:
    """The first complaint about a section in our own words, unknown keys with their nearest valid name."""
    first = error.errors()[0]
    # Pydantic names the type it tried last, which is no place in the file.
    tried = re.compile(r"^(int|float|str|tuple\[.*|dict\[.*)$")
    place = [str(part) for part in first["loc"] if not tried.match(str(part))]
    if first["type"] == "extra_forbidden":
        for part in place[:-1]:
            section = section.model_fields[part].annotation if not part.isdigit() else section
        return InvalidInput(
            f"unknown key {'.'.join(place)!r}",
            where=where,
            mend=nearest(place[-1], section.model_fields),
        )
    said = (
        "it should be a table"
        if first["type"] in ("model_type", "dict_type")
        else first["msg"][:1].lower() + first["msg"][1:]
    )
    what = f"{'.'.join(place)}: {said.replace('tuple', 'list')}"
    if first["type"] not in ("missing", "too_short"):
        what += f", not {first['input']!r}"
    return InvalidInput(what, where=where)


def known(
    name: str, registry: Mapping[str, Any], what: str, also: Mapping[str, str] | None = None
) -> None:
    """Raise ``InvalidInput`` unless a registry has that name; ``also`` as :func:`nearest` takes it."""
    if name not in registry:
        raise InvalidInput(f"unknown {what} {name!r}", mend=nearest(name, registry, also))

"""Memory of a party: arrays kept from round to round, for the party or for a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

from consilience.core.validation.arrays import Array


class Memory:
    """Arrays by name, as part of the party's state; empty after each join."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    @overload
    def get(self, name: str) -> Array | None: ...

    @overload
    def get(self, name: str, default: Array) -> Array: ...

    def get(self, name: str, default: Array | None = None) -> Array | None:
        """Return the array of a name, or a default."""
        return self._arrays.get(name, default)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """All arrays, by name."""
        return self._arrays

    def replace(self, arrays: Mapping[str, Array]) -> None:
        """Discard all arrays, and keep these instead."""
        self._arrays = dict(arrays)

    def keep(self, **arrays: Array) -> None:
        """Add arrays to the memory; an array replaces an earlier one of the same name."""
        self._arrays |= arrays

    def drop(self, name: str) -> None:
        """Remove an array, if there is one of this name."""
        self._arrays.pop(name, None)

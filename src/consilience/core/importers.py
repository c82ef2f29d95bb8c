"""Importers of modules in a folder, for this process and for processes that receive their objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder


@dataclass(frozen=True)
class Beside:
    """An importer of one module or package of a folder, used after all other importers.

    The folder stays out of ``sys.path``, so that libraries do not import other modules of it. A pickled
    importer serves in the process that loads it.
    """

    folder: str
    name: str

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Find the module in the folder, if it is the one."""
        return PathFinder.find_spec(name, [self.folder]) if name == self.name else None

    def __reduce__(self) -> tuple[object, ...]:
        return serve, (self.folder, self.name)


def serve(folder: str, name: str) -> Beside:
    """Make a module of a folder importable in this process."""
    beside = Beside(folder, name)
    if beside not in sys.meta_path:
        sys.meta_path.append(beside)
    return beside


def importers() -> tuple[object, ...]:
    """Return the importers of modules in folders, to send to processes that receive their objects."""
    return tuple(one for one in sys.meta_path if isinstance(one, Beside))

"""Federated learning by exchanging predictions: any models, private data, public rows.

The public names are listed in ``__init__.pyi``. Each is imported when it is first used, so that ``import
consilience`` stays quick.
"""

import ast
from importlib import import_module
from pathlib import Path

__version__ = "0.2.0"

_HOMES = {
    name.name: imported.module
    for imported in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(imported, ast.ImportFrom)
    for name in imported.names
}
"""Each public name and the module that it is imported from."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'consilience' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name] or ""), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

"""Decide which import paths in files are followed, and find the source file of their code.

A configuration or a run folder names its models, as presets or as ``"package.module:name"``. The author of
the file chose the name, and following it runs code. Unless the user trusts the file, a path is followed only
into the packages of :data:`~consilience.models.files.vetting.PACKAGES`, and the object at the path is called
only if it is the class of an estimator of these packages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module, util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.importers import serve
from consilience.models.files.vetting import PACKAGES


@dataclass(frozen=True)
class _Trust:
    """Code that the user trusts.

    Attributes:
        folders: folders to search for modules of these names, if they are not installed.
        names: trusted import paths and packages; ``None`` for all.
    """

    folders: tuple[Path, ...]
    names: frozenset[str] | None


_trust: ContextVar[_Trust | None] = ContextVar("trust", default=None)


class ForeignCode(InvalidInput):
    """An import path in a file leads outside of the trusted packages; its code was not imported or called.

    Args:
        path: the import path, or the package that would have to be trusted.
        field: the key in the file, such as ``"models.0.name"``.
        file: the file; ``None`` if it is unknown.
    """

    def __init__(self, path: str, field: str = "name", file: str | None = None) -> None:
        self.path, self.field, self.file = path, field, file
        super().__init__(
            f"it would import and run {path!r}, which is no model of {', '.join(PACKAGES)}",
            where=field if file is None else f"{file}: {field}",
            mend="If you know that code and trust whoever wrote this: --trust\n"
            "  (in Python: with consilience.models.trusting(): …)",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return ForeignCode, (self.path, self.field, self.file)

    def within(self, section: str) -> ForeignCode:
        """Return the same error with the field's name prefixed by a section."""
        return ForeignCode(self.path, f"{section}.{self.field}", self.file)

    def said_in(self, file: Path) -> ForeignCode:
        """Return the same error with the name of the file in which the import path stands."""
        return ForeignCode(self.path, self.field, str(file))

    def source(self, folder: Path) -> str:
        """Find the file that the code would be read from, without importing it.

        Args:
            folder: folder to search for the module, if it is not installed.

        Returns:
            The path of the file, or ``"not found"``.
        """
        name, places, spec = "", list[str](), None
        for part in self.path.partition(":")[0].split("."):
            spec = PathFinder.find_spec(f"{name}.{part}", places) if name else _spec(part, folder)
            if spec is None:
                return "not found"
            name, places = spec.name, list(spec.submodule_search_locations or ())
        return str(spec and (spec.origin or places[0]))


@contextmanager
def trusting(
    yes: bool = True, *, folders: Sequence[Path] = (), names: Iterable[str] | None = None
) -> Iterator[None]:
    """Trust import paths: inside of the block, models of any origin are imported and called.

    It holds for every function of consilience that makes models by name:
    :func:`consilience.models.make`, :func:`consilience.lab.experiments.start`,
    :func:`consilience.lab.experiments.resume`, ….

    Args:
        yes: ``False`` withdraws the trust.
        folders: folders to search for named modules, if they are not installed. Other modules are not
            imported from there.
        names: the only import paths and packages to trust; by default all.

    Example:
        >>> from consilience.models.presets import make
        >>> with trusting():
        ...     learner = make("my_models:Centre")  # doctest: +SKIP
    """
    only = None if names is None else frozenset(names)
    token = _trust.set(_Trust(tuple(folders), only) if yes else None)
    try:
        yield
    finally:
        _trust.reset(token)


def trusted(name: str) -> bool:
    """Return true inside of :func:`trusting` if it covers this import path or package."""
    trust = _trust.get()
    return trust is not None and (trust.names is None or name in trust.names)


def model_at(path: str, ours: Container[str]) -> Any:
    """Import the class or function that a file names.

    Args:
        path: ``"package.module:name"``.
        ours: further accepted paths, in addition to the classes of estimators.

    Returns:
        The class or function.

    Raises:
        ForeignCode: the path is not accepted, and the file is not trusted.
        InvalidInput: the path cannot be imported, or its object cannot be called.
    """
    if not trusted(path) and path.partition(":")[0].partition(".")[0] not in PACKAGES:
        raise ForeignCode(path)
    try:
        found = find(path)
    except ImportError as error:
        raise InvalidInput(
            f"cannot import {path.partition(':')[0]!r}: {error}",
            where=path,
            mend="Write package.module:Class; the package must be importable where this runs.",
        ) from error
    if not callable(found):
        raise InvalidInput("this is not a class or function", where=path)
    if not (trusted(path) or path in ours or _is_estimator(found)):
        raise ForeignCode(path)
    return found


def check_packages(parameters: Mapping[str, Any]) -> None:
    """Raise ``ForeignCode`` where a model's parameter ``trusts`` would have more packages trusted."""
    for package in foreign_packages(parameters):
        if not trusted(package):
            raise ForeignCode(package, "trusts")


def foreign_packages(parameters: Mapping[str, Any]) -> list[str]:
    """List the packages in a model's parameter ``trusts`` beyond those trusted by default."""
    given = parameters.get("trusts")
    packages = [given] if isinstance(given, str) else given if isinstance(given, Iterable) else []
    return [str(package) for package in packages if package not in PACKAGES]


def find(path: str) -> Any:
    """Import the object at ``"package.module:name"``, whatever it is.

    Raises:
        InvalidInput: this is no import path, or the module has no such name.
        ImportError: there is no such module, or it cannot be imported.
    """
    module_name, _, attribute = path.partition(":")
    first, *rest = module_name.split(".")
    if not attribute or not all(map(str.isidentifier, (first, *rest))):
        raise InvalidInput(f"{path!r} is no import path", mend="Write package.module:Class.")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != first or not _serve(first):
            raise
        module = import_module(module_name)
    if not hasattr(module, attribute):
        close = get_close_matches(attribute, dir(module), n=1)
        raise InvalidInput(
            f"{module_name} has no {attribute!r}",
            mend=f"Did you mean {close[0]!r}?" if close else None,
        )
    return getattr(module, attribute)


def _serve(name: str) -> bool:
    """Make a module of the folders importable; true if one of them has it."""
    trust = _trust.get()
    for folder in trust.folders if trust else ():
        if PathFinder.find_spec(name, [str(folder)]) is not None:
            serve(str(folder), name)
            return True
    return False


def _spec(name: str, folder: Path) -> ModuleSpec | None:
    """The place of a top-level module: installed, or else in a folder; ``None`` if it is nowhere."""
    try:
        spec = util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    return spec or PathFinder.find_spec(name, [str(folder)])


def _is_estimator(found: object) -> bool:
    """True for a class with ``fit`` and ``predict`` that a trusted package defines."""
    return (
        isinstance(found, type)
        and found.__module__.partition(".")[0] in PACKAGES
        and all(callable(getattr(found, name, None)) for name in ("fit", "predict"))
    )

"""The folder of a run, simulated or deployed: one format for report, compare, resume and predict.

config.json        the format number, the version that wrote it, the kind of run, and the configuration
ledger.sqlite      rounds, deliveries, metrics (:mod:`consilience.lab.runs.ledger`)
models/            trained models if available to the run, and the mixture that each party chose
public/            public rows by seed, if a party's mixture depends on their similarity to its rows
state/             parties' checkpoints of a simulated run until it ends
lock.sqlite        held by the process that works on the run
"""

from __future__ import annotations

import json
import os
import platform
import re
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

from pydantic import BaseModel

from consilience import __version__
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import (
    FORMAT,
    check_format,
    database,
    read_text,
    without_links,
    write_whole,
)
from consilience.lab.config.methods import MethodSpec, ProtocolSpec

CONFIGURATION = "config.json"
LEDGER = "ledger.sqlite"

ANEW = "run its configuration anew into another folder"
"""Advice for a run folder of another format."""

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "xgboost", "lightgbm", "catboost", "flwr")
"""Packages whose versions a run records, where they are installed."""

RunKind = Literal["simulated", "deployed"]


class RunSpec(Protocol):
    """The part of a configuration that every kind of run has."""

    @property
    def name(self) -> str:
        """Name of the experiment or of the federation."""

    @property
    def methods(self) -> tuple[MethodSpec, ...]:
        """The methods of the run."""

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds that every method is run with."""

    @property
    def metric(self) -> str | None:
        """The metric that counts; ``None`` for the usual one."""

    @property
    def protocol(self) -> ProtocolSpec:
        """The protocol and its options."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Give all settings, with ``mode="json"`` as JSON has them."""


@dataclass(frozen=True)
class StoredConfiguration:
    """The configuration in a run folder, not validated further.

    Attributes:
        kind: the kind of run.
        values: the configuration itself.
        path: the file, for errors.
    """

    kind: RunKind
    values: Mapping[str, Any]
    path: Path

    def damaged(self, why: object) -> RunFailed:
        """Make the error for values that do not form a configuration."""
        return _damaged(self.path, why)


def store_configuration(folder: Path, kind: RunKind, spec: BaseModel) -> None:
    """Write the configuration of a run, with the format number and the version that writes it.

    Args:
        folder: the run folder.
        kind: the kind of run.
        spec: the configuration.

    Raises:
        OSError: it cannot be written.
    """
    document = {
        "format": FORMAT,
        "consilience": __version__,
        "kind": kind,
        "configuration": spec.model_dump(mode="json"),
    }
    write_whole(folder / CONFIGURATION, json.dumps(document, indent=2))


def read_configuration(folder: Path) -> StoredConfiguration:
    """Read the configuration of a run without making or importing any object named in it.

    Returns:
        The stored configuration.

    Raises:
        InvalidInput: not a run folder.
        RunFailed: the run has another format, or the configuration is damaged.
    """
    path = folder / CONFIGURATION
    try:
        document = json.loads(read_text(path))
    except FileNotFoundError as error:
        raise InvalidInput(
            "this is not a run folder: it has no config.json", where=str(folder)
        ) from error
    except NotADirectoryError as error:
        raise InvalidInput("this is a file, not a run folder", where=str(folder)) from error
    except (OSError, ValueError, RecursionError) as error:  # not JSON or UTF-8, or without bottom
        raise _damaged(path, error) from error
    if not isinstance(document, dict):
        raise _damaged(path, "it is no table")
    check_format(document, path, anew=ANEW)
    kind, values = document.get("kind"), document.get("configuration")
    if kind not in get_args(RunKind) or not isinstance(values, dict):
        raise _damaged(path, "it does not say which kind of run it is, or holds no configuration")
    return StoredConfiguration(cast(RunKind, kind), values, path)


def _damaged(path: Path, why: object) -> RunFailed:
    what = why.what if isinstance(why, InvalidInput) else why
    return RunFailed(f"the configuration is damaged ({what})", where=str(path))


def run_of(folder: Path) -> Path:
    """Find the run folder: the one given, or the one in a coordinator's folder."""
    run = folder / "run"
    return (
        run if not (folder / CONFIGURATION).exists() and (run / CONFIGURATION).exists() else folder
    )


def locked(folder: Path, *, wait: float = 0.0) -> sqlite3.Connection:
    """Hold a run folder until the connection is closed or the process ends, however it ends.

    Args:
        folder: the run folder.
        wait: seconds to wait for another process to let go of it.

    Raises:
        InvalidInput: another process holds it.
        RunFailed: it cannot be written, or something in it is a link out of it.
    """
    path = database(without_links(folder) / "lock.sqlite")
    lock = sqlite3.connect(path, timeout=wait, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise RunFailed(f"cannot be locked ({error})", where=str(folder)) from error
        raise InvalidInput(
            "this run is going on in another process",
            where=str(folder),
            mend="Wait for it, or stop it first.",
        ) from error
    return lock


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds a run folder."""
    try:
        locked(folder).close()
    except InvalidInput:
        return True
    return False


def model_folder(run: Path, method: str, seed: int, party: str) -> Path:
    """Name the folder of a party's trained model.

    Args:
        run: the run folder.
        method: label of the method.
        seed: the seed.
        party: name of the party.
    """
    return run / "models" / file_name(method) / f"seed-{seed}" / file_name(party)


def public_file(run: Path, seed: int) -> Path:
    """Name the file of a seed's public rows, for models that depend on them.

    Args:
        run: the run folder.
        seed: the seed.
    """
    return run / "public" / f"seed-{seed}.safetensors"


def file_name(name: str) -> str:
    """Write a method's or party's name as a file name, with ``%XX`` for characters unsafe in file names.

    >>> file_name("a/b"), file_name("..")
    ('a%2Fb', '%2E.')
    """
    return re.sub(r'[%/\\\\:*?"<>|\x00-\x1f]|^\.', lambda found: f"%{ord(found[0]):02X}", name)


def versions() -> dict[str, str]:
    """List the versions of Python, of consilience, and of the installed packages among :data:`PACKAGES`."""
    found = {"python": platform.python_version(), "consilience": __version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Describe the machine: processor, cores, system."""
    about = Path("/proc/cpuinfo")  # elsewhere than on Linux the system may say it
    named = (
        re.search(r"^model name\s*: (.+)$", about.read_text(encoding="utf-8"), re.M)
        if about.exists()
        else None
    )
    processor = named[1].strip() if named else platform.processor()
    parts = platform.machine(), processor, f"{os.cpu_count()} cores", platform.system()
    return ", ".join([*dict.fromkeys(filter(None, parts)), sys.implementation.name])


def now() -> str:
    """Give the time as run folders have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")

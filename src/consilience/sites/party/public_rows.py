"""Public rows received from a coordinator, stored in the party's folder by digest.

    home/public-rows/0123456789abcdef0123456789abcdef.safetensors
    home/public-sets.json       every set ever received, and the answer to it

The file's name is the digest. The file gets this name once all of it is on the disk, and is not changed
afterwards. On reading, the digest of the rows is verified; damaged files are deleted, and the rows are sent
again.

A refusal of public rows reveals a little about the location of the private rows. Each set is therefore
recorded before it is compared with the private rows, and the result after it. A repeated set gets the same
answer, even after a crash between the two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.files import PART, force, inside, write_whole
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.party.party import Party
from consilience.core.tasks.lifecycle import TakePublic
from consilience.sites.party.limits import Limits

FOLDER, SETS = "public-rows", "public-sets.json"

_SUFFIX = ".safetensors"


def kept_public(home: Path) -> tuple[str, ...]:
    """List the digests of all stored sets of public rows, sorted."""
    return tuple(sorted(file.stem for file in (home / FOLDER).glob(f"[!.]*{_SUFFIX}")))


def read_public(home: Path, digest: str) -> Public | None:
    """Read the rows of a digest; ``None`` if they are not stored, or damaged (the file is then deleted)."""
    path = _path(home, digest)
    if digest not in kept_public(home):  # a digest that was sent may be any text
        return None
    try:
        (task,) = decode(path.read_bytes())
        public: Public = task.rows()
        if public.key != digest:
            raise ValueError(f"they are {public.key}")
    except (OSError, ValueError, AttributeError, ConsilienceError):
        with suppress(OSError):
            path.unlink()
        return None
    return public


def write_public(home: Path, public: Public) -> None:
    """Store rows under their digest, replacing an existing file.

    Raises:
        RunFailed: they cannot be written; a partial file is removed.
    """
    path = _path(home, public.key)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
            force(home)
        write_whole(path, encode([TakePublic.of(public)]), sync=True)
        force(path.parent)
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise _unwritten("the public rows", path, error) from error


def sweep_public(home: Path, keep: Container[str] | None = None) -> None:
    """Delete half-written files after a crash; with ``keep``, delete also all rows with other digests."""
    for file in inside(home / FOLDER, home).glob("*"):
        stale = keep is not None and file.suffix == _SUFFIX and file.stem not in keep
        if stale or file.name.startswith(PART):
            with suppress(OSError):
                file.unlink()


def keep_sent(home: Path, public: Public, in_use: Set[str]) -> bool:
    """Store received rows in addition to the rows in use, and delete all others.

    Args:
        home: the party's folder.
        public: the rows.
        in_use: digests of the rows to keep.

    Returns:
        True if the rows are new.

    Raises:
        KnowledgeRefused: rows of this digest are in use with other columns.
        RunFailed: they cannot be written.
    """
    kept = read_public(home, public.key)
    # The digest of plain numbers covers the columns' names alone, and a median fills the gaps of private
    # rows: another one would change the model of this party, and its history would stay that of the others.
    other = kept is not None and kept.columns_key != public.columns_key
    if other and public.key in in_use:
        raise KnowledgeRefused(
            "the same public rows are in use with other columns (kinds, categories, gaps or medians)",
            where="public rows",
            mend="Send them as they were sent before the party joined.",
        )
    held = kept is not None and kept.schema == public.schema
    # Before the new ones are written, so that no more than two sets are ever on the disk.
    sweep_public(home, in_use | {public.key} if held else in_use)
    if not held:
        write_public(home, public)
    return not held


def check_sent(home: Path, party: Party, public: Public, limits: Limits) -> None:
    """Raise an error unless received rows have the form of the party's private rows.

    Each set is checked once. It is checked again only if the columns of the private rows, or the limit on
    private rows among the public rows, have changed since, which requires an edit by the party's engineer.

    Args:
        home: the party's folder, with the record of all received sets.
        party: the party.
        public: the rows.
        limits: its limits on the number of sets.

    Raises:
        InvalidInput: the rows have another form.
        KnowledgeRefused: the party has reached its limit on sets.
        RunFailed: the record cannot be read or written.
    """
    name, sets = name_of_set(public), sent_sets(home)
    if name not in sets:
        refused = sum(said.get("refusal") is not None for said in sets.values())
        limits.refuse_sets(len(sets) - refused, refused)
        sets[name] = {}
        write_sets(home, sets)
    own = party.rows
    names = own.X.shape[1:] if own.table is None else own.table.names
    form = [*map(str, names), *["own rows may be public rows"] * party.rules.public.overlap]
    if sets[name].get("form") != form:
        refusal = None
        try:
            party.check_public(public)
        except InvalidInput as error:
            refusal = {"what": error.what, "where": error.where, "mend": error.mend}
        sets[name] = {"form": form, "refusal": refusal}
        write_sets(home, sets)
    if refusal := sets[name]["refusal"]:
        raise InvalidInput(**refusal)


def sent_sets(home: Path) -> dict[str, dict[str, Any]]:
    """Read the record of received sets, by :func:`name_of_set`, with the answer to each.

    Returns:
        Name of the set to its answer.

    Raises:
        RunFailed: the record cannot be read. No further set is checked then.
    """
    path = home / SETS
    try:
        found: dict[str, dict[str, Any]] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        )
        if not all(isinstance(said, dict) for said in found.values()):
            raise ValueError("it holds something else")
    except (OSError, ValueError, AttributeError) as error:
        raise RunFailed(
            f"the record of the public rows that were sent is damaged: {error}",
            where=str(path),
            mend="Restore it from a copy; without it their number is counted from 0.",
        ) from error
    return found


def write_sets(home: Path, sets: dict[str, dict[str, Any]]) -> None:
    """Write the record of received sets atomically.

    Raises:
        RunFailed: it cannot be written; the previous record stays valid.
    """
    path = home / SETS
    try:
        write_whole(path, json.dumps(sets), sync=True)
        force(home)
    except OSError as error:
        raise _unwritten("the record of the public rows that were sent", path, error) from error


def name_of_set(public: Public) -> str:
    """Name of a set of public rows, by which it is counted: a digest of rows and of their schema."""
    names = json.dumps([public.key, public.schema.key if public.schema else ""])
    return hashlib.sha256(names.encode()).hexdigest()[:32]


def _path(home: Path, digest: str) -> Path:
    """The file of the rows of a digest."""
    return home / FOLDER / f"{digest}{_SUFFIX}"


def _unwritten(what: str, path: Path, error: OSError) -> RunFailed:
    """The error for a file that cannot be written."""
    return RunFailed(
        f"{what} cannot be written ({error.strerror})",
        where=str(path),
        mend="Free some space or mend the permissions; they are sent again.",
    )

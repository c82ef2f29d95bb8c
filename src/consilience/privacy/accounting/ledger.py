"""Ledger of a party's releases, which records each privacy loss and all values before the party sends them.

    folder/lock            held by the spending process; for a shared ledger, only while it spends
    folder/ledger.jsonl    a line for each release: format number, time, kind, question, loss, the digest of
                           its values, and the SHA-256 of the line before
    folder/<digest>        the released values, named by the digest of the release record

The values are on the disk before their line, and the line is on the disk before the party sends the values.
A crash between these steps leaves either temporary values without a line, which are deleted, or a line, which
counts. A ledger is rejected if a line was changed, removed or inserted, if values lack their line or a line
lacks its values, or if the party's state contains a release that the ledger lacks. A truncated or restored
older ledger is therefore detected, unless *all* of the party's folder was restored with it. To detect that
case too, keep the digest of the last line elsewhere: ``consilience party budget`` prints the digest and can
search the ledger for a given one.

Parties of several federations can share one ledger if their rows describe the same people. Each party adds
its releases under a separate scope and repeats only its own releases, because other parties may have other
targets and columns. The budget is charged for the releases of all of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import FORMAT, check_format, force, private_folder, write_whole
from consilience.core.validation.arrays import Array
from consilience.privacy.accounting.losses import PrivacyLoss

BEGINNING = "0" * 64
"""Digest that the first line uses in place of a previous line."""

FOLDER = "privacy"
"""Name of a ledger's folder in a party's folder."""

_WAIT = 60.0
"""Seconds to wait for another party to spend; its computation of a release may take that long."""

_SPENT_AGAIN = "start with an empty one, which spends the same rows' budget again"

_LINES, _DRAWN = "ledger.jsonl", ".drawn"


@dataclass(frozen=True)
class Release:
    """Record of one release by a party.

    Attributes:
        kind: kind of release, such as ``"certainties"``.
        question: digest of all inputs of the release; an equal question gets the same release again.
        loss: privacy loss of the release.
        arrival: arrival of rows, if the release uses only these rows; ``None`` if it uses all rows.
        chosen: whether the requester chooses the loss, so that another loss makes another question. If the
            party chooses the loss, a later change of its budget does not change the release.
        scope: digest of the releasing party in a shared ledger; empty in a ledger of one party.
    """

    kind: str
    question: str
    loss: PrivacyLoss
    arrival: int | None = None
    chosen: bool = False
    scope: str = ""

    @property
    def asked(self) -> tuple[Any, ...]:
        """Key of the question; releases with equal keys are one release."""
        loss = self.loss if self.chosen else None
        return (self.kind, self.question, self.arrival, loss, self.scope)

    @classmethod
    def of(cls, kind: str, question: Sequence[str], loss: PrivacyLoss) -> Release:
        """Create the record of a release.

        Args:
            kind: kind of release, such as ``"certainties"``.
            question: all inputs of the release: settings and digests of rows.
            loss: privacy loss of the first release; a repetition costs no more.
        """
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:32]
        return cls(kind, digest, loss)

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Release:
        """Create the record from a parsed line of the ledger, or from parsed output of :meth:`to_json`."""
        arrival = line["arrival"]
        return cls(
            str(line["kind"]),
            str(line["question"]),
            PrivacyLoss(**line["loss"]),
            None if arrival is None else int(arrival),
            bool(line["chosen"]),
            str(line["scope"]),
        )

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))

    @property
    def digest(self) -> str:
        """Digest of the record."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Parse the output of :meth:`to_json`.

        Raises:
            ValueError: the text is not the record of a release.
        """
        try:
            return cls.of_line(json.loads(text))
        except (InvalidInput, TypeError, ValueError, KeyError) as error:
            raise ValueError(f"no record of a release ({error})") from error


class PrivacyLedger:
    """Ledger in a folder, from which one process at a time can spend.

    Args:
        folder: folder of the ledger; created if it does not exist.
        shared: whether several processes have the ledger open. A shared ledger is locked only while a process
            reads it or spends (:meth:`spending`); otherwise it is locked until :meth:`close`.

    Raises:
        RunFailed: another process holds the lock, the ledger cannot be read or written, it has another
            format, or it was truncated, restored from an older copy or changed.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        self.folder, self.shared = folder, shared
        self._depth = 0
        """How many blocks of :meth:`spending` are entered."""
        self.released: dict[Release, Array] = {}
        """Releases and their values, in the order in which they were made."""
        try:
            new = not folder.exists()
            private_folder(folder)
            if new:
                force(folder.parent)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _failed(folder, error) from error
        try:
            if shared:
                with self.spending():
                    pass
            else:
                self._take(0.0)
                self._read()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Lock the ledger for this block, and reload the releases of all parties first if it is shared.

        Raises:
            RunFailed: another process keeps the lock, or the ledger is damaged.
        """
        if self.shared and not self._depth:
            self._take(_WAIT)
        self._depth += 1
        try:
            if self.shared and self._depth == 1:
                self._read()
            yield
        finally:
            self._depth -= 1
            if self.shared and not self._depth:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _take(self, wait: float) -> None:
        """Lock the ledger, or raise ``RunFailed`` after ``wait`` seconds."""
        until = monotonic() + wait
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if monotonic() >= until:
                    raise RunFailed(
                        "another process spends from this privacy ledger",
                        where=str(self.folder),
                        mend="It can be asked again once that has answered."
                        if self.shared
                        else "Stop that process first.",
                    ) from error
            sleep(0.05)

    def _read(self) -> None:
        """Read the lines and values of the ledger."""
        self._lines = read_lines(self.folder)
        self.released = self._values()

    def close(self) -> None:
        """Release the lock, so that another process can spend."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def head(self) -> str:
        """The SHA-256 of the last line."""
        return _digest(self._lines[-1]) if self._lines else BEGINNING

    def add(self, release: Release, values: Array) -> None:
        """Record a release on the disk; the party may send the values after this call returns.

        Args:
            release: record of the release, which is not in the ledger yet.
            values: the values to send.

        Raises:
            RunFailed: the ledger cannot be written; the values must not be sent then.
        """
        content = save({"values": np.ascontiguousarray(values)})
        line = {
            "format": FORMAT,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            **asdict(release),
            "values": _digest(content),
            "before": self.head,
        }
        lines = [*self._lines, json.dumps(line).encode()]
        drawn = self.folder / f"{release.digest}{_DRAWN}"
        try:
            write_whole(drawn, content, sync=True)
            force(self.folder)
            write_whole(self.folder / _LINES, b"\n".join(lines) + b"\n", sync=True)
            force(self.folder)
            drawn.rename(drawn.with_suffix(""))
            force(self.folder)
        except OSError as error:
            raise _failed(self.folder, error) from error
        self._lines = lines
        self.released[release] = values

    def _values(self) -> dict[Release, Array]:
        """Read the values of all lines, and delete temporary values that never got a line."""
        found = _values_of(self.folder, self._lines, _kept(self.folder))
        digests = {release.digest for release in found}
        for drawn in self.folder.glob(f"*{_DRAWN}"):
            if drawn.stem in digests:
                drawn.rename(drawn.with_suffix(""))
            else:
                drawn.unlink()  # a crash came before its line: it never left
        return found


def _kept(folder: Path) -> set[str]:
    """Return the file names of all values in a ledger's folder; each must have a line."""
    return {file.name for file in folder.glob("?" * 32)}


def _values_of(folder: Path, lines: Sequence[bytes], kept: Set[str]) -> dict[Release, Array]:
    """Read the values of all lines.

    Args:
        folder: folder of the ledger.
        lines: lines of the ledger.
        kept: file names of values that must have a line.

    Raises:
        RunFailed: values lack their line, or a line lacks its values.
    """
    found: dict[Release, Array] = {}
    for line in lines:
        entry = json.loads(line)
        release = Release.of_line(entry)
        file = folder / release.digest
        try:
            try:
                content = file.read_bytes()
            except FileNotFoundError:  # a crash came before it was given its name
                content = file.with_suffix(_DRAWN).read_bytes()
            if _digest(content) != entry["values"]:
                raise ValueError("other values than were released")
            found[release] = load(content)["values"]
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise _broken(folder, f"the values of a release are gone ({error})") from error
    if kept - {release.digest for release in found}:
        raise _broken(folder, "a release lacks its line: the ledger was cut or set back")
    return found


def read_lines(folder: Path) -> list[bytes]:
    """Read the lines of a ledger and verify their hash chain; empty if there is no ledger.

    Raises:
        RunFailed: the ledger cannot be read, has another format, or a line was changed, removed or inserted.
    """
    try:
        content = (folder / _LINES).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _failed(folder, error) from error
    before, lines = BEGINNING, content.split(b"\n")
    if lines.pop():
        raise _broken(folder, "its last line is not whole")
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if isinstance(
            entry, dict
        ):  # before the chain, which another format may have in another form
            check_format(entry, folder / _LINES, anew=_SPENT_AGAIN)
        if not isinstance(entry, dict) or entry.get("before") != before:
            raise _broken(folder, f"line {number} does not follow the line before")
        before = _digest(line)
    return lines


def entries(folder: Path) -> list[Mapping[str, Any]]:
    """Read the entry of each release in a ledger, with the digest of its line as ``sha256``.

    Returns:
        One mapping per release, in the order of the releases.

    Raises:
        RunFailed: as for :func:`read_lines`; or values lack their line, or a line lacks its values.
    """
    kept, lines = _kept(folder), read_lines(folder)  # in this order: a party at work adds both
    _values_of(folder, lines, kept)
    return [{**json.loads(line), "sha256": _digest(line)} for line in lines]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _broken(folder: Path, why: str) -> RunFailed:
    """Create the error for an incomplete ledger."""
    return RunFailed(
        f"its privacy ledger is not whole: {why}",
        where=str(folder),
        mend="Restore the party's folder from its latest copy. Who starts with an empty one spends the same "
        "rows' budget again.",
    )


def lacks(folder: Path) -> RunFailed:
    """Create the error for a ledger without a release that the party's state contains."""
    return _broken(
        folder, "the party's state knows a release that it lacks: it was cut or set back"
    )


def _failed(folder: Path, error: OSError) -> RunFailed:
    """Create the error for an unreadable or unwritable ledger."""
    return RunFailed(
        f"its privacy ledger cannot be read or written ({error.strerror})",
        where=str(folder),
        mend="Free some space or mend the permissions: nothing leaves that is not in it.",
    )

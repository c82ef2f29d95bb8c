"""Ledger of a party's releases: what each cost and what left, written before it leaves.

    folder/lock            held by the process that spends; of a ledger that parties share, while it does
    folder/ledger.jsonl    a line for each release: format number, time, kind, question, loss, the digest of
                           its values, and the SHA-256 of the line before
    folder/<digest>        the values as they were released, by the digest of the release's name

Values are on the disk before their line, and the line before they leave; a crash in between leaves either
values without a line under another name, which are dropped, or a line, which counts. The ledger is not
taken up where a line was changed, removed or inserted, where values lack their line or a line its values, or
where the party's state knows a release that the ledger lacks. So a ledger that was cut or set back is found
out unless *all* of the party's folder was set back with it: who fears that keeps the digest of the last line
elsewhere (``consilience party budget`` prints it, and looks for one that it is given).

Parties of several federations that hold rows of the same people share one ledger. Each adds its releases
under a scope of its own, and gives its own alone again: others may have other targets and columns. All are
charged for.
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
"""What stands for the line before the first."""

FOLDER = "privacy"
"""Name of a ledger's folder in a party's folder."""

_WAIT = 60.0
"""Seconds to wait for another party to have spent: computing what it releases may take as long."""

_SPENT_AGAIN = "start with an empty one, which spends the same rows' budget again"

_LINES, _DRAWN = "ledger.jsonl", ".drawn"


@dataclass(frozen=True)
class Release:
    """One thing that a party has released, for good.

    Attributes:
        kind: what it is, such as ``"certainties"``.
        question: digest of all that it depends on; the same question is answered with the same release.
        loss: its privacy loss.
        arrival: the arrival whose rows alone it is of; ``None`` where it is of all rows.
        chosen: whether who asks chooses the loss, so that another loss is another question; where it is the
            party's own, the release stays what it was when the party's budget changes.
        scope: digest of the party that made it, in a ledger that several share; empty in a party's own.
    """

    kind: str
    question: str
    loss: PrivacyLoss
    arrival: int | None = None
    chosen: bool = False
    scope: str = ""

    @property
    def asked(self) -> tuple[Any, ...]:
        """Question that is answered by one release."""
        loss = self.loss if self.chosen else None
        return (self.kind, self.question, self.arrival, loss, self.scope)

    @classmethod
    def of(cls, kind: str, question: Sequence[str], loss: PrivacyLoss) -> Release:
        """Name a release.

        Args:
            kind: what it is, such as ``"certainties"``.
            question: all that it depends on: settings, digests of rows.
            loss: what it costs the first time.
        """
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:32]
        return cls(kind, digest, loss)

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Release:
        """Name the release of a line of the ledger, or of what :meth:`to_json` wrote."""
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
        """Write its name as JSON."""
        return json.dumps(asdict(self))

    @property
    def digest(self) -> str:
        """Digest of its name."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read the name that :meth:`to_json` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls.of_line(json.loads(text))
        except (InvalidInput, TypeError, ValueError, KeyError) as error:
            raise ValueError(f"no record of a release ({error})") from error


class PrivacyLedger:
    """Ledger in a folder, which one process at a time spends from.

    Args:
        folder: the folder; made if it is not there.
        shared: whether several processes have it open: it is locked while one reads it or spends
            (:meth:`spending`), and otherwise from here to :meth:`close`.

    Raises:
        RunFailed: another process has it, it cannot be read or written, it has another format, or it was cut,
            set back or changed.
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
        """Have no other process spend in this block, which begins with what all have released.

        Raises:
            RunFailed: another process does not let go of it, or it is not whole any more.
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
        """Lock it, or raise ``RunFailed`` when the seconds are over."""
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
        """Read what is in it."""
        self._lines = read_lines(self.folder)
        self.released = self._values()

    def close(self) -> None:
        """Let another process spend."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def head(self) -> str:
        """The SHA-256 of the last line."""
        return _digest(self._lines[-1]) if self._lines else BEGINNING

    def add(self, release: Release, values: Array) -> None:
        """Write down a release; it is on the disk when this returns, and may leave then.

        Args:
            release: its name, which is not in the ledger.
            values: as they are to leave.

        Raises:
            RunFailed: it cannot be written; then nothing may leave.
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
        """Read the values of all lines, and drop what was drawn and never came to have one."""
        found = _values_of(self.folder, self._lines, _kept(self.folder))
        digests = {release.digest for release in found}
        for drawn in self.folder.glob(f"*{_DRAWN}"):
            if drawn.stem in digests:
                drawn.rename(drawn.with_suffix(""))
            else:
                drawn.unlink()  # a crash came before its line: it never left
        return found


def _kept(folder: Path) -> set[str]:
    """Names of the values in a ledger's folder, each of which has a line."""
    return {file.name for file in folder.glob("?" * 32)}


def _values_of(folder: Path, lines: Sequence[bytes], kept: Set[str]) -> dict[Release, Array]:
    """Read the values of all lines.

    Args:
        folder: the ledger's.
        lines: its lines.
        kept: names of values that have to be among them.

    Raises:
        RunFailed: values lack their line, or a line its values.
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
    """Read the lines of a ledger and verify their chain; none where there is no ledger.

    Raises:
        RunFailed: it cannot be read, has another format, or a line was changed, removed or inserted.
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
    """Read what a ledger says of each release, ``sha256`` being the digest of its line.

    Raises:
        RunFailed: as :func:`read_lines`, or values lack their line, or a line its values.
    """
    kept, lines = _kept(folder), read_lines(folder)  # in this order: a party at work adds both
    _values_of(folder, lines, kept)
    return [{**json.loads(line), "sha256": _digest(line)} for line in lines]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _broken(folder: Path, why: str) -> RunFailed:
    """The error for a ledger that is not whole."""
    return RunFailed(
        f"its privacy ledger is not whole: {why}",
        where=str(folder),
        mend="Restore the party's folder from its latest copy. Who starts with an empty one spends the same "
        "rows' budget again.",
    )


def lacks(folder: Path) -> RunFailed:
    """Make the error for a ledger that lacks what the party's state knows."""
    return _broken(
        folder, "the party's state knows a release that it lacks: it was cut or set back"
    )


def _failed(folder: Path, error: OSError) -> RunFailed:
    """The error for a ledger that cannot be read or written."""
    return RunFailed(
        f"its privacy ledger cannot be read or written ({error.strerror})",
        where=str(folder),
        mend="Free some space or mend the permissions: nothing leaves that is not in it.",
    )

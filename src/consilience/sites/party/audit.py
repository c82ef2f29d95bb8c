"""Audit log of a party: one line for each answer, written before the answer is sent.

Every line is one JSON object. Its key ``before`` is the SHA-256 of the previous line, so that changing,
removing or inserting a line breaks the chain. Each line is first announced: it is written to a second file
next to the log, ``audit.next``. If a line is then cut from the end of the log, or a power failure prevented
its append, it is appended when the log is next opened. If more lines are missing, opening the log fails.
The party's state also contains the digest of the last line at the time when the state was written.
An attacker with write access to all three files can rewrite the log: keep a copy of the last digest
elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import RunFailed, as_json
from consilience.core.files import force, write_whole
from consilience.core.messages.message import REGISTRY, fields

BEGINNING = "0" * 64
"""What stands for the line before the first."""

AUDIT = "audit.jsonl"
"""Name of a party's audit log, in the folder of its state."""

_TORN = b" (torn)\n"
"""Ends a torn line, so that it is no line even where only its end was missing."""

_MISSING = "lines are missing"


class AuditLog:
    """Append-only audit log of one party.

    If the last line is torn, because of a power failure or a full disk during the write, the torn bytes stay
    and a line that records their number and digest is added after them. An announced line is appended if the
    log lacks it.

    Args:
        path: the file; created with the first line.
        written_after: SHA-256 of a line that the log must contain, as recorded in the party's state.
        tail: number of bytes from the end in which the last whole line is searched for first.

    Raises:
        RunFailed: the log cannot be read or written, or lines are missing.
    """

    def __init__(
        self, path: Path, *, written_after: str | None = None, tail: int = 1 << 20
    ) -> None:
        self.path = path
        self._tail = tail
        self.head = BEGINNING
        """The SHA-256 of the last line."""
        self._torn = b""
        self._look()
        announced = self._announced(written_after)
        if self._torn:
            self._mend()
        if announced is not None:
            self._write(b"", announced)

    def _announced(self, written_after: str | None) -> Mapping[str, Any] | None:
        """Return the announced line if the log lacks it and it follows the log's last line; else ``None``."""
        if self._ends_with({written_after, _digest(_content(_next(self.path))[:-1])} - {None}):
            return None
        log = read_log(self.path, written_after=written_after)
        if missing := [fault for fault in log.faults if fault.startswith(_MISSING)]:
            raise RunFailed(
                f"its audit log is not whole: {missing[0]}",
                where=str(self.path),
                mend="Restore it from a copy; or move the party's folder away, and the party starts anew.",
            )
        return log.announced

    def append(self, **entry: Any) -> None:
        """Add a line; it is on the disk when this returns.

        Raises:
            RunFailed: it cannot be written.
        """
        if self._torn:
            self._mend()
        self._write(b"", entry)

    def _mend(self) -> None:
        """Add a line that records the number and the digest of the torn bytes before it."""
        torn = self._torn + _TORN
        what = f"the {len(torn)} bytes before this line are torn: the power failed, or the disk was full"
        self._write(_TORN, {"status": "mended", "detail": what, "torn": _digest(torn)})
        self._torn = b""

    def _write(self, prefix: bytes, entry: Mapping[str, Any]) -> None:
        """Announce and add a line; ``prefix`` ends a torn one before it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        document = {"time": now, **entry, "before": self.head}
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        line = as_json(text).encode()
        data = prefix + line + b"\n"
        new = not self.path.exists()
        try:
            if not prefix:  # what mends is written again when it is torn
                write_whole(_next(self.path), line + b"\n", sync=True)
                force(self.path.parent)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                while data:
                    data = data[os.write(handle, data) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            if new:
                force(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # what it speaks of does not leave
                _next(self.path).unlink(missing_ok=True)
            self._look()
            raise _failed(self.path, error, "written") from error
        self.head = _digest(line)

    def _ends_with(self, lines: Set[str | None]) -> bool:
        """Return true if these are among the last lines: then the log need not be read from its beginning."""
        ending = _content(self.path, self._tail).splitlines(keepends=True)
        return lines <= {BEGINNING, *(_digest(line[:-1]) for line in ending)}

    def _look(self) -> None:
        """Find the last whole line and the torn bytes after it."""
        try:
            if not self.path.exists():
                return
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                for start in (max(0, size - self._tail), 0):
                    file.seek(start)
                    found = _ending(file.read())
                    if found is not None:
                        self.head, self._torn = found
                        return
                file.seek(0)
                self.head, self._torn = BEGINNING, file.read()
        except OSError as error:
            raise _failed(self.path, error, "read") from error


@dataclass(frozen=True)
class Log:
    """Contents of an audit log and the faults of its chain.

    Attributes:
        entries: its lines, in order.
        faults: descriptions of the places at which the chain is broken; empty if it is whole.
        notes: torn lines and a line still to be appended, both possible effects of a power failure.
        head: the SHA-256 of the last line.
        sealed: number of the last line whose digest is in a later line, before the chain breaks; this
            protects all lines before it as well. The last line if the chain is whole, 0 if there is none.
        announced: the last line, if it is still to be appended; ``None`` otherwise.
    """

    entries: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    head: str
    sealed: int
    announced: Mapping[str, Any] | None = None


def read_log(path: Path, *, written_after: str | None = None) -> Log:
    """Read an audit log and verify its chain.

    Args:
        path: the file.
        written_after: the SHA-256 of a line that must be there, as a party's state names it.

    Raises:
        RunFailed: it cannot be read.
    """
    last = _content(_next(path))  # first: a party at work may add to the log meanwhile
    content = _content(path)
    entries, faults, notes = [], [], []
    head, torn, known = BEGINNING, b"", {BEGINNING}
    earlier, latest, sealed = 0, 0, None  # numbers of lines
    # What a line that was announced may follow: the last one, or one that lines which mend come after.
    ends = {BEGINNING}
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        entry = _entry(line)
        if entry is None:
            torn += line
            continue
        mended = entry.get("status") == "mended"
        if (torn or mended) and not (mended and entry.get("torn") == _digest(torn)):
            faults.append(f"line {number}: what is damaged before it no power cut explains")
        elif mended:
            notes.append(f"line {number}: {entry.get('detail')}")
        if entry["before"] != head:
            faults.append(f"line {number}: it does not follow the line before")
        if faults and sealed is None:  # one that it does not follow may be the one that was changed
            sealed = latest if entry["before"] == head else earlier
        earlier, latest = latest, number
        torn, head = b"", _digest(line[:-1])
        known.add(head)
        ends = {*ends, head} if mended else {head}
        entries.append(entry)
    if torn:
        notes.append(f"the last {len(torn)} bytes are torn; the party says so when it next starts")
    announced = None
    if _digest(last[:-1]) not in known and (announced := _entry(last)) is not None:
        if announced["before"] in ends:
            notes.append("the last line is still to be added, or was cut off; the party adds it")
        else:
            announced = None
            faults.append(f"{_MISSING} that were there when the last one was written")
    if written_after is not None and written_after not in known:
        faults.append(f"{_MISSING} that were there when the party's state was written")
    if sealed is None:  # where lines are missing after it, nothing seals the last one
        sealed = earlier if faults else latest
    return Log(tuple(entries), tuple(faults), tuple(notes), head, sealed, announced)


def contents(messages: Sequence[object]) -> list[dict[str, Any]]:
    """Contents of messages: the name and type of every field, and the shape of every array."""
    return [part for message in messages for part in _parts(type(message).__name__, message)]


def _parts(name: str, value: object) -> Iterator[dict[str, Any]]:
    """Yield the contents of one field and of all fields nested in it."""
    if isinstance(value, np.ndarray):
        yield {"name": name, "type": str(value.dtype), "shape": list(value.shape)}
    elif REGISTRY.get(type(value).__name__) is type(value):
        for field, item in fields(value):
            yield from _parts(f"{name}.{field}", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts(f"{name}.{key}", item)
    elif isinstance(value, tuple | list) and not all(isinstance(item, str) for item in value):
        for index, item in enumerate(value):
            yield from _parts(f"{name}.{index}", item)
    elif isinstance(value, tuple | list):
        yield {"name": name, "type": "text", "shape": [len(value)]}
    elif value is not None:
        yield {"name": name, "type": "text" if isinstance(value, str) else type(value).__name__}


def _ending(tail: bytes) -> tuple[str, bytes] | None:
    """Return the digest of the last whole line and the bytes after it; ``None`` without a whole line."""
    after = b""
    for line in reversed(tail.splitlines(keepends=True)):
        if _entry(line) is not None:
            return _digest(line[:-1]), after
        after = line + after
    return None


def _entry(line: bytes) -> dict[str, Any] | None:
    """Parse one line; ``None`` if it is not a whole line of an audit log."""
    if not line.endswith(b"\n"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and _is_line(entry) else None


_KINDS = {
    "time": str, "tasks": str, "status": str, "detail": str, "bytes": int, "left": list
}  # fmt: skip


def _is_line(entry: Mapping[str, Any]) -> bool:
    """Return true if every known key of a line has a value of the type that a party writes."""
    kinds = all(isinstance(entry[key], kind) for key, kind in _KINDS.items() if key in entry)
    return (
        isinstance(entry.get("before"), str) and kinds and all(map(_is_part, entry.get("left", ())))
    )


def _is_part(part: object) -> bool:
    return (
        isinstance(part, dict)
        and {"name", "type"} <= part.keys()
        and isinstance(part.get("shape", []), list)
    )


def _content(path: Path, most: int | None = None) -> bytes:
    """Read the file, or at most its last ``most`` bytes; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            if most is not None:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _failed(path, error, "read") from error


def _next(path: Path) -> Path:
    """The file in which the next line is announced."""
    return path.with_suffix(".next")


def _digest(data: bytes) -> str:
    """The SHA-256 of a line, as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _failed(path: Path, error: OSError, done: str) -> RunFailed:
    """The error for a log that cannot be read or written."""
    return RunFailed(
        f"its audit log cannot be {done} ({error.strerror})",
        where=str(path),
        mend="Free some space or mend the permissions: nothing leaves that is not in the log.",
    )

"""Folder of a party's state, which one process at a time replaces atomically.

    home/lock              locked by the working process; contains its process number
    home/current           name of the valid state folder
    home/state-00000012/   the state (consilience.core.party.state) and the session
    home/audit.jsonl       the audit log
    home/audit.next        last line of the log, written before its append

A new state is a new folder. It is filled, forced to the disk, and becomes valid when ``current`` is replaced.
A crash before this moment leaves the old state, and a crash after it the new one. Needs a POSIX system and a
local disk: file locks on network drives are unreliable.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Container
from pathlib import Path
from time import monotonic, sleep

from consilience.core.errors import RunFailed
from consilience.core.files import force, private_folder, without_links, write_whole
from consilience.core.party.state import share_file
from consilience.core.tasks.lifecycle import checkpoint_name
from consilience.privacy.secure_aggregation.party import SUMS

CHECKPOINTS, REPLIES, SESSION = "checkpoints", "replies", "session.json"
"""What a site keeps in a state's folder beside the party's state."""

_NAME = re.compile(r"state-(\d{8,})")
Fill = Callable[[Path, Path | None], None]
"""Fills a new folder, given the one before."""


class StateFolder:
    """Folder of one party's state, locked from here to :meth:`close`.

    Args:
        home: the folder; made if it is not there.
        wait: seconds to wait for another process to let go of it.

    Raises:
        RunFailed: another process works on it, it cannot be written, or something in it is a link out of it.
    """

    def __init__(self, home: Path, *, wait: float = 0.0) -> None:
        self.home = home
        try:
            new = not home.exists()
            private_folder(home)
            if new:
                force(home.parent)
            without_links(home)
            self._lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._take(wait)
            self._sweep()
        except BaseException:
            self.close()
            raise

    def _take(self, wait: float) -> None:
        """Lock the folder, or raise ``RunFailed`` when the seconds are over."""
        until = monotonic() + wait
        try:
            while True:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if monotonic() >= until:
                        raise
                    sleep(0.1)
        except BlockingIOError as error:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            raise RunFailed(
                f"another process works on this party's state (PID {holder})",
                where=str(self.home),
                mend="A party is started once: stop that process, or give this one another folder.",
            ) from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Let another process take over."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def current(self) -> Path | None:
        """The folder that counts; ``None`` before anything was written.

        Raises:
            RunFailed: it is gone, which no crash can bring about.
        """
        return current_state(self.home)

    def write(self, fill: Fill) -> None:
        """Let ``fill`` make the next state, and have it count.

        Raises:
            RunFailed: it cannot be written; the state before still counts.
        """
        before = self.current
        number = int(before.name.removeprefix("state-")) + 1 if before else 1
        after = self.home / f"state-{number:08d}"
        try:
            shutil.rmtree(after, ignore_errors=True)
            after.mkdir(mode=0o700)
            fill(after, before)
            for folder, _, files in os.walk(after, topdown=False):
                for name in files:
                    if os.stat(path := Path(folder, name)).st_nlink == 1:
                        force(path)  # those that the state before shares are on the disk
                force(Path(folder))
            force(self.home)  # that the folder is there must be on the disk before its name is
            write_whole(self.home / "current", after.name, sync=True)
            force(self.home)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self._sweep()

    def _sweep(self) -> None:
        """Delete all invalid state folders: earlier states, and leftovers of a crash."""
        current = self.current
        for folder in self.home.glob("state-*"):
            if folder != current and _NAME.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def _unwritable(self, error: OSError) -> RunFailed:
        """The error for a state that cannot be written."""
        return RunFailed(
            f"its state cannot be written ({error.strerror})",
            where=str(self.home),
            mend="Free some space or mend the permissions; nothing that was written before is lost.",
        )


def current_state(home: Path) -> Path | None:
    """The folder in ``home`` that counts, looked up without the lock; see :class:`StateFolder`."""
    try:
        name = (home / "current").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFailed(f"its state cannot be read ({error.strerror})", where=str(home)) from error
    if not _NAME.fullmatch(name) or not (home / name).is_dir():
        raise RunFailed(
            f"its state is gone: there is no folder {name!r}",
            where=str(home),
            mend="Restore it from a copy; or move the folder away, and the party starts anew.",
        )
    return home / name


def share_files(before: Path, after: Path, *, but: Container[str] = ()) -> None:
    """Link the files of a folder into another one, without writing them again.

    Args:
        before: the folder; if it does not exist, no file is linked.
        after: the other one.
        but: names of top-level files and folders of ``before`` to skip.
    """
    for path in sorted(before.rglob("*")):
        within = path.relative_to(before)
        if within.parts[0] in but:
            continue
        if path.is_dir():
            (after / within).mkdir(parents=True)
        else:
            share_file(path, after / within)


def share_checkpoint(before: Path, checkpoints: Path, round: int) -> None:
    """Have a party's state be the checkpoint of a round too.

    Args:
        before: the folder of the state.
        checkpoints: the folder of the checkpoints.
        round: the round.
    """
    but = {CHECKPOINTS, REPLIES, SESSION, SUMS}  # no sum is gone back to
    share_files(before, checkpoints / checkpoint_name(round), but=but)

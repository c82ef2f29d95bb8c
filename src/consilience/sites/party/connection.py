"""Connection of a party to the coordinator: dialling it, and the causes of an end."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from consilience.core.errors import RunFailed
from consilience.sites.operations.processes import Processes
from consilience.sites.party import ConnectionSpec

DIALLED = 20.0
"""Seconds that somebody who was dialled has to answer."""

PAUSE = 3.0
"""Seconds before the coordinator is dialled, or a SuperNode started, again."""

STALE = 45.0
"""Seconds without an answer of the coordinator, or a step of the SuperNode, until that is reported. Flower's
heartbeat comes about every 20 s, and is all that is sent while a party trains."""

STUCK = 300.0
"""Seconds without a step of the SuperNode's loop until it is ended. A call takes at most 30 s each to
connect, to send and to wait, and is repeated after at most 20 s."""

FORGOTTEN = 75.0
"""Seconds after which Flower believes that a node that was killed is gone, and takes another with its key."""


def dial(connection: ConnectionSpec, *, say: Callable[[str], None], pause: float = PAUSE) -> None:
    """Connect repeatedly until the coordinator answers with the expected certificate.

    Args:
        connection: address and certificate of the coordinator.
        say: called once for each new reason why the coordinator does not answer.
        pause: seconds between two attempts.

    Raises:
        RunFailed: another server answers, or the certificate is not the expected one.
    """
    host, _, port = connection.address.rpartition(":")
    context = ssl.create_default_context(cafile=connection.certificate)
    told = ""
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=DIALLED) as raw:
                context.wrap_socket(raw, server_hostname=host).close()
                return
        except ssl.SSLCertVerificationError as error:
            raise RunFailed(
                f"who answers at {connection.address} is not the coordinator that {connection.certificate} "
                f"vouches for ({error.verify_message})",
                where="coordinator.certificate",
                mend="Compare the address, and the file with the coordinator's tls/ca.pem.",
            ) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, TimeoutError) as error:
            why = f"{connection.address} does not finish its answer ({type(error).__name__})"
        except ssl.SSLError as error:
            raise RunFailed(
                f"who answers at {connection.address} speaks no TLS ({error.reason})",
                where="coordinator.address",
                mend="Is it the coordinator's port? A proxy on the way must let it through whole.",
            ) from error
        except OSError as error:
            why = f"nobody answers at {connection.address} yet ({error.strerror or error})"
        if why != told:
            say(f"{why}; it is dialled until somebody does")
            told = why
        time.sleep(pause)


def watch_supernode(
    processes: Processes, pause: float = 0.5, *, stuck: float = STUCK
) -> tuple[bool, bool]:
    """Wait until the SuperNode ends, and end it if its loop makes no step.

    Args:
        processes: it is one of these. It touches the files ``progress``, ``connected`` and ``lost`` of their
            folder (:func:`consilience.sites.transport.flower.supernode.supernode`).
        pause: seconds between two looks.
        stuck: seconds without a step after which it is ended.

    Returns:
        Whether it ever was connected, and whether it was ended here.
    """
    folder = processes.folder
    progress, before = folder / "progress", _touched(folder / "connected")
    progress.touch(0o600)
    # The time since a step is measured by a clock that nobody sets, and that stops while the machine sleeps.
    step, seen = _touched(progress), time.monotonic()
    hung = False
    while processes.ended("supernode") is None:
        time.sleep(pause)
        if connected_now(folder) and _touched(folder / "connected") != before:
            (folder / "trouble").unlink(missing_ok=True)
        if (now := _touched(progress)) != step:
            step, seen = now, time.monotonic()
        elif time.monotonic() - seen > stuck:
            hung = True
            processes.stop("supernode")
    progress.unlink(missing_ok=True)
    return _touched(folder / "connected") != before, hung


def connected_now(folder: Path) -> bool:
    """Return true if the coordinator answered the last call of the SuperNode, and lately."""
    answered = _touched(folder / "connected")
    return answered > _touched(folder / "lost") and time.time() - answered < STALE


def idle_seconds(folder: Path) -> float:
    """Seconds since the last step of a SuperNode's loop; 0 if none is watched in this folder."""
    step = _touched(folder / "progress")
    return max(time.time() - step, 0.0) if step else 0.0


def _touched(file: Path) -> float:
    """Time at which a file was touched last; 0 if there is none."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def ending_cause(processes: Processes) -> tuple[str, bool]:
    """Cause of the SuperNode's end, and true if it would end so again after :data:`FORGOTTEN` seconds."""
    said, marker = processes.output("supernode"), processes.folder / "connected"
    if "Failed to activate SuperNode" in said:
        why = (
            "the coordinator does not take this party's key: the party was not added yet, was removed, or "
            "has another line in [parties]"
        )
        ago = time.time() - marker.stat().st_mtime if marker.exists() else FORGOTTEN
        if ago < FORGOTTEN:
            return f"{why}; or it still holds the node from {ago:.0f} s ago for connected", False
        return f"{why}; or it still holds an earlier node of this party for connected", True
    if "certificate" in said.lower():
        return "the coordinator showed another certificate", False
    if processes.ended("supernode") == 0:  # how Flower takes that it is not authorized
        return (
            "the coordinator cut this party off: its key was taken out, or the clocks differ",
            False,
        )
    found = re.findall(r"Exit Code: \d+\n(.*?)\n\n", said, re.DOTALL)
    words = " ".join(found[-1].split()) if found else processes.last_lines("supernode")
    return f"the SuperNode ended with status {processes.ended('supernode')}: {words}", False

"""Answers requests in processes that are killed; started by tests/sites/party/test_kills.py as a process of
its own.

It forks, so that a life costs milliseconds and not the seconds of imports; nothing here may start a thread.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience import Party
from consilience.core.checks import classifiers
from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.lifecycle import Join, TakePublic
from consilience.privacy.accounting.ledger import FOLDER as LEDGER
from consilience.privacy.accounting.ledger import entries
from consilience.privacy.class_sums.tasks import SumClasses, public_basis
from consilience.sites.party import AUDIT, Limits, PartySite, kept_public, read_log, read_session
from consilience.sites.party.public_rows import FOLDER, read_public
from helpers.party_sites import agreement, ask, one_party, requests, without_rows

FEWEST = 40
"""Kills at random moments."""


def said(home: Path, asked: list[bytes]) -> list[bytes]:
    """The answers, one process and no disturbance."""
    with PartySite(one_party, home) as site:
        return [site.answer(request) for request in asked]


def state(home: Path) -> dict[str, Any]:
    """All that is in the state, and whether there is anything beside it."""
    (folder,) = home.glob("state-*")  # one alone
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes().hex()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "session.json"
    }
    session = read_session(home)
    assert session is not None
    return found | {"session": [session.federation, session.round, session.rounds]}


def life(home: Path, asked: list[bytes], seconds: float) -> tuple[list[bytes], bool]:
    """The answers of a process that is killed after some seconds, and whether it was still at work."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(out)
        with PartySite(one_party, home) as site:
            for request in asked:
                reply = site.answer(request)
                os.write(into, len(reply).to_bytes(8, "big") + reply)
        os._exit(0)
    os.close(into)
    end, data, killed = time.monotonic() + seconds, b"", False
    while True:
        left = end - time.monotonic()
        if left <= 0 and not killed:
            os.kill(pid, signal.SIGKILL)
            killed = True
        if not select.select([out], [], [], None if killed else left)[0]:
            continue
        if not (part := os.read(out, 1 << 16)):
            break
        data += part
    os.close(out)
    _, status = os.waitpid(pid, 0)
    assert killed or status == 0, status
    return list(whole(data)), os.WIFSIGNALED(status)


def whole(data: bytes) -> Iterator[bytes]:
    """The answers that arrived to their end."""
    while len(data) >= 8 and len(data) >= 8 + (size := int.from_bytes(data[:8], "big")):
        yield data[8 : 8 + size]
        data = data[8 + size :]


def at_random(folder: Path) -> dict[str, Any]:
    """Killed again and again until it has been often enough, then left alone."""
    asked, rng = requests(60), np.random.default_rng(0)
    start = time.monotonic()
    replies, _ = life(folder / "killed", asked[:2], 60.0)
    wait = time.monotonic() - start
    kills = 0
    while kills < FEWEST and len(replies) < len(asked):
        more, killed = life(folder / "killed", asked[len(replies) :], wait * rng.uniform(0, 2))
        replies += more
        kills += killed
        wait *= 0.7 ** len(more) if more else 1.3  # most are to end within their first answers
    asked = asked[: len(replies) + 3]
    replies += said(folder / "killed", asked[len(replies) :])
    expected = said(folder / "undisturbed", asked)
    log = read_log(folder / "killed" / AUDIT)
    return {
        "kills": kills,
        "requests": len(asked),
        "replies": replies == expected,
        "state": state(folder / "killed") == state(folder / "undisturbed"),
        "faults": log.faults,
        "repeated": sum(entry["status"] == "repeated" for entry in log.entries),
        "failed": [entry["detail"] for entry in log.entries if entry["status"] == "failed"],
    }


def at_every_step(folder: Path) -> dict[str, Any]:
    """Killed before every single file is opened, renamed, linked or removed while one request is answered."""
    *before, last = requests(2)[:-1]
    said(folder / "base", before)
    shutil.copytree(folder / "base", folder / "expected", copy_function=shutil.copy2)
    (expected,) = said(folder / "expected", [last])
    after, untouched = state(folder / "expected"), state(folder / "base")
    steps, wrong, old, new = 0, [], 0, 0
    while True:
        steps += 1
        home = folder / f"step-{steps}"
        shutil.copytree(folder / "base", home, copy_function=shutil.copy2)
        if not dies_at(steps, home, last):
            break
        with PartySite(one_party, home):  # sweeps
            found = state(home)
        old, new = old + (found == untouched), new + (found == after)
        same = said(home, [last]) == [expected] and state(home) == after
        if not same or found not in (untouched, after) or read_log(home / AUDIT).faults:
            wrong.append(steps)
        shutil.rmtree(home)
    return {"steps": steps - 1, "wrong": wrong, "old": old, "new": new}


def while_rows_are_taken(folder: Path) -> dict[str, Any]:
    """The same while public rows are written: they are there whole, under their digest, or not at all."""
    _, public = classifiers()
    request = encode([TakePublic.of(public)])
    steps, wrong, without, held = 0, [], 0, 0
    while True:
        steps += 1
        home = folder / f"step-{steps}"
        PartySite(without_rows, home).close()
        if not dies_at(steps, home, request, without_rows):
            break
        with PartySite(without_rows, home) as site:  # sweeps
            found, files = kept_public(home), sorted((home / FOLDER).glob("*"))
            whole = all(read_public(home, digest).key == public.key for digest in found)
            without, held = without + (not found), held + bool(found)
            site.answer(request)
            again = kept_public(home) == (public.key,)
        if len(files) != len(found) or not (whole and again) or read_log(home / AUDIT).faults:
            wrong.append(steps)
    return {"steps": steps - 1, "wrong": wrong, "without": without, "held": held}


def while_a_budget_is_spent(folder: Path) -> dict[str, Any]:
    """The same while a release is made: it is in the ledger when it leaves, and never made twice."""
    limits = Limits(epsilon=3.0, delta=1e-3)
    _, public = classifiers()
    task = SumClasses.of(public_basis(public, "directions", 2), round=1)
    request = encode([task])
    other = SumClasses.of(public_basis(public, "kernel", 2), round=1)
    with PartySite(declared, folder / "base", limits=limits) as site:
        ask(site, Join(agreement=agreement()))
    steps, wrong, unspent, spent = 0, [], 0, 0
    while True:
        steps += 1
        home = folder / f"step-{steps}"
        shutil.copytree(folder / "base", home, copy_function=shutil.copy2)
        if not dies_at(steps, home, request, declared, limits):
            break
        kept = entries(home / LEDGER)  # as it was when it was killed
        unspent, spent = unspent + (not kept), spent + bool(kept)
        with PartySite(declared, home, limits=limits) as site:
            first, again = site.answer(request), site.answer(request)
            later, refused = ask(site, replace(task, round=2)), ask(site, other)
        lines = entries(home / LEDGER)
        same = first == again and decode(first)[0].values.tobytes() == later.values.tobytes()
        if not same or len(lines) != 1 or lines[: len(kept)] != kept or refused.code != "budget":
            wrong.append(steps)
        shutil.rmtree(home)
    return {"steps": steps - 1, "wrong": wrong, "unspent": unspent, "spent": spent}


def declared() -> Party:
    """A party that may have a budget."""
    party = one_party()
    party.rows.declared = party.rows.classes
    return party


def dies_at(
    step: int,
    home: Path,
    request: bytes,
    make: Callable[[], Party] = one_party,
    limits: Limits | None = None,
) -> bool:
    """Answer in a process that kills itself at a step; whether it came to that."""
    if (pid := os.fork()) == 0:
        with PartySite(make, home, limits=limits) as site:
            count = 0

            def hook(event: str, arguments: tuple[Any, ...]) -> None:
                nonlocal count
                if changes(event, arguments) and any(
                    str(home) in os.fsdecode(one)
                    for one in arguments
                    if isinstance(one, str | bytes | Path)
                ):
                    count += 1
                    if count == step:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(hook)
            site.answer(request)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0


def changes(event: str, arguments: tuple[Any, ...]) -> bool:
    """Tell whether Python is about to change a folder; to die before a look is to die before what follows."""
    if event == "open":
        return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event.startswith(("os.", "shutil.")) and event not in ("os.listdir", "os.scandir")


if __name__ == "__main__":
    os.fsync = lambda handle: None  # the system holds what was written, whoever is killed
    scenes = {
        "random": at_random,
        "steps": at_every_step,
        "rows": while_rows_are_taken,
        "sums": while_a_budget_is_spent,
    }
    for name in scenes:
        (Path(sys.argv[1]) / name).mkdir()
    print(json.dumps({name: scene(Path(sys.argv[1]) / name) for name, scene in scenes.items()}))

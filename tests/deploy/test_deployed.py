"""Five machines' processes on this one: TLS, keys, four kinds of model, the same bits as in one process."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from consilience.core.messages.wire import encode
from consilience.core.tasks.lifecycle import TakePublic
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.operations.processes import BIN, Processes, environment, free_port
from consilience.sites.party.public_rows import FOLDER
from helpers.command_line import shell
from helpers.deployed_example import Deployed
from helpers.modes import open_to_others, umask

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,  # whole processes: minutes
    pytest.mark.timeout(1500),
    pytest.mark.needs_data("heart-disease"),
]


def test_the_same_bits_as_in_one_process_and_nothing_left_running(tmp_path: Path) -> None:
    # Whoever starts them may have a umask that lets others write.
    with Deployed(tmp_path / "heart", rounds=2) as deployed, umask(0):
        deployed.start()
        deployed.said("coordinator", "start", deployed.center, "--detach")
        again = shell("coordinator", "start", deployed.center)
        assert again.returncode == 2
        twice = shell("party", "start", deployed.party("va"))
        assert twice.returncode == 2 and "runs already" in twice.stderr
        strangers(deployed)
        found = deployed.wait()
        assert found["round"] == 2
        assert {party["left_out"] for party in found["parties"]} == {0}
        sent = {party["party"]: party["public_sent"] for party in found["parties"]}
        rows = TakePublic.of(read_coordinator(deployed.center).rows())
        assert sent == dict.fromkeys(deployed.names, 0) | {"switzerland": len(encode([rows]))}
        kept = deployed.folder / "switzerland" / "state" / FOLDER
        assert [file.stem for file in kept.iterdir()] == [rows.public]
        said = json.loads(
            deployed.said("party", "audit", deployed.party("va"), "--json", "-", "--quiet")
        )
        assert said["faults"] == []
        assert {entry["federation"] for entry in said["entries"]} == {"coordinator"}
        assert not open_to_others(deployed.center / "run")
        for name in deployed.names:
            assert not open_to_others(deployed.folder / name / "state")
    assert deployed.different() == []
    until = time.monotonic() + 30
    while running := left_running(tmp_path):
        assert time.monotonic() < until, running
        time.sleep(0.5)


def test_one_joins_and_one_leaves_and_nothing_starts_anew(tmp_path: Path) -> None:
    """Two hospitals; a third is invited in round 2, and one is removed once the third takes part.

    Done again without the one that left, all is as if it had never been there.
    """
    with Deployed(tmp_path / "heart", rounds=40, parties=3) as deployed:
        first, second, third = deployed.names
        deployed.said("coordinator", "remove", deployed.center, third)
        deployed.start(first, second)
        deployed.said("coordinator", "start", deployed.center, "--detach")
        deployed.wait(round=2)
        before = deployed.of_coordinator(), deployed.of_party(first)
        file = deployed.folder / "invitation.json"
        deployed.said("coordinator", "invite", deployed.center, third, "--out", file)
        home = deployed.folder / third
        line = deployed.said("party", "join", file, "--folder", home).strip()
        deployed.said("coordinator", "add", deployed.center, line)
        deployed.start(third)
        joined = until_taught(deployed, third)
        deployed.said("coordinator", "remove", deployed.center, second)
        deployed.wait(round=joined + 2)
        assert (deployed.of_coordinator(), deployed.of_party(first)) == before
        found = deployed.ended()
        assert sorted(one["party"] for one in found["parties"]) == sorted([first, third])
        last = found["round"]
        assert taught(deployed, first) == list(range(1, last + 1))
        assert taught(deployed, third) == list(range(joined, last + 1))
        assert last not in taught(deployed, second) and joined - 1 in taught(deployed, second)
        status = json.loads(deployed.said("party", "status", deployed.party(second), "--json", "-"))
        assert "takes part" not in status["state"]
        deployed.said("resume", deployed.center, "--without", second)
        assert deployed.wait()["round"] == last
        assert (deployed.center / "run" / "certificate.txt").exists()
        assert taught(deployed, third) == list(range(1, last + 1)) and not taught(deployed, second)
    deployed.names = (first, third)
    assert deployed.different() == []


def taught(deployed: Deployed, name: str) -> list[int]:
    """The rounds in which a party learned from the teacher."""
    with deployed.ledger() as ledger:
        found = ledger.read(
            "SELECT DISTINCT round FROM deliveries WHERE party = ? AND status = 'ok' "
            "AND tasks LIKE 'Distill%' ORDER BY 1",
            name,
        )
    return [round for (round,) in found]


def until_taught(deployed: Deployed, name: str) -> int:
    """Wait for the first round that a party takes part in."""
    until = time.monotonic() + 600
    while not (found := taught(deployed, name)):
        assert time.monotonic() < until, deployed.status()
        time.sleep(2)
    return found[0]


def strangers(deployed: Deployed) -> None:
    """No TLS, a key that is not registered, and a certificate of another authority get nowhere."""
    plaintext(deployed)
    home = deployed.folder / "stranger"
    home.mkdir()
    for name in ("patients.csv", "public.csv", "test.csv", "ca.pem", "party.toml"):
        (home / name).write_bytes((deployed.folder / "va" / name).read_bytes())
    deployed.said("party", "key", home / "party.toml")  # one of its own
    refused(deployed, home)
    deployed.said("coordinator", "init", home / "other", "--parties", "a")
    (home / "ca.pem").write_bytes((home / "other" / "tls" / "ca.pem").read_bytes())
    (home / "party.key").unlink()
    (home / "party.key").write_bytes((deployed.folder / "va" / "party.key").read_bytes())
    refused(deployed, home)


def plaintext(deployed: Deployed) -> None:
    """A SuperNode without TLS, and a call that any program could make."""
    address = read_coordinator(deployed.center).address
    command = [BIN / "flower-supernode", "--insecure", "--superlink", address]
    home = deployed.folder / "plaintext"
    with Processes(home, "a SuperNode without TLS") as processes:
        port = ("--port", str(free_port()))
        processes.start("supernode", [*command, *port], environment(home / "home"))
        with pytest.raises((OSError, HTTPException)), closing(HTTPConnection(address)) as call:
            call.request("POST", "/v1/fleet/register-node", b"")
            call.getresponse()
        time.sleep(20)
    log = (home / "supernode.log").read_text()
    assert "Starting Flower SuperNode" in log and "SuperNode ID" not in log


def refused(deployed: Deployed, home: Path) -> None:
    """It tries for some time, and is never asked anything."""
    shell("party", "start", home / "party.toml", "--detach")  # it may have given up by then
    time.sleep(30)
    deployed.said("party", "stop", home / "party.toml")
    log = (home / "state" / "flower" / "supernode.log").read_text()
    assert "Starting Flower SuperNode" in log and "SuperNode ID" not in log
    assert not (home / "state" / "audit.jsonl").exists()


def left_running(folder: Path) -> list[str]:
    """Processes whose environment names the folder, as Flower's home does (where /proc tells)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            mine = int(process.name) != os.getpid()
            if mine and str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found

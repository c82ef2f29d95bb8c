"""What is looked at before a party starts, whom it dials, and why its SuperNode ended."""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.sites.operations.certificates import exposed, make_authority, make_key
from consilience.sites.operations.processes import Processes, environment, free_port
from consilience.sites.pages.party import PartyPage
from consilience.sites.party import AUDIT, AuditLog, ConnectionSpec, Session, read_party, state_of
from consilience.sites.party import process as party
from consilience.sites.party.connection import (
    FORGOTTEN,
    STALE,
    connected_now,
    dial,
    ending_cause,
    watch_supernode,
)
from consilience.sites.party.process import (
    check_connection,
    check_party,
    party_status,
    serve_party,
)

UNREGISTERED = """\
ERROR :     Exit Code: 305
Failed to initialize the connection to the SuperLink.
[code: 2004] Failed to activate SuperNode.
The SuperNode could not establish a connection to the SuperLink.

For more information, visit: <https://flower.ai>
INFO:     Shutting down
"""


@pytest.fixture
def site(center: Path) -> Path:
    """North's folder, ready to take part."""
    home = center.parent / "north"
    (home / "ca.pem").write_bytes((center / "tls" / "ca.pem").read_bytes())
    return home


def connection(site: Path) -> ConnectionSpec:
    found = read_party(site / "party.toml").coordinator
    assert found is not None
    return found


def test_a_party_is_looked_at_before_it_starts(site: Path) -> None:
    assert check_party(site / "party.toml").name == "north"
    (site / "party.toml").write_text(
        (site / "party.toml").read_text().replace('"decision-tree"', '"decision-trie"')
    )
    with pytest.raises(InvalidInput, match="Did you mean 'decision-tree'"):
        serve_party(site / "party.toml")
    assert not (site / "state").exists()


@pytest.mark.parametrize(
    ("file", "other", "said"),
    [
        ("ca.pem", "", "holds nothing, not the certificate of an authority"),
        ("ca.pem", "party.key", "holds a private key, not the certificate"),
        ("ca.pem", "party.key.pub", "holds a public key, not the certificate"),
        ("ca.pem", "patients.csv", "holds something that is no PEM"),
        ("ca.pem", "../center/tls/server.pem", "is the certificate of a server"),
        ("ca.pem", ".", "is a folder"),
        ("ca.pem", None, r"there is no file .*ca\.pem\n.*tls/ca\.pem"),
        ("party.key", "", "holds nothing, not a party's private key"),
        ("party.key", "ca.pem", "holds a certificate, not a party's private key"),
        ("party.key", "party.key.pub", "holds a public key, not a party's private key"),
        ("party.key", "../center/tls/server.key", "holds a private key as PEM, not a party's"),
        ("party.key", None, r"there is no file .*party\.key\n.*party key makes one"),
    ],
)
def test_another_file(site: Path, file: str, other: str | None, said: str) -> None:
    check_connection(connection(site))
    content = (site / other).read_bytes() if other and other != "." else b""
    (site / file).unlink()
    if other == ".":
        (site / file).mkdir()
    elif other is not None:
        (site / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        check_connection(connection(site))


def test_a_key_that_others_can_read(site: Path) -> None:
    key = site / "party.key"
    assert exposed(key) == ""
    key.chmod(0o644)
    assert exposed(key).endswith(f"chmod 600 {key}")


def test_a_party_that_runs_is_named_with_what_stops_it(site: Path) -> None:
    path = site / "party.toml"
    with (
        Processes(party.folder_of(site / "state"), "the test"),
        pytest.raises(
            InvalidInput, match=rf"party 'north' runs already \(PID {os.getpid()}\)"
        ) as it,
    ):
        check_party(path)
    assert it.value.mend == f"Stop it first: consilience party stop {path}"


def test_the_state_says_how_far_a_party_is(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, path = party.folder_of(site / "state"), site / "party.toml"

    def state() -> str:
        return str(party_status(path)["state"])

    assert state() == "stopped"
    with Processes(folder, "the test"):
        assert state().startswith("is not connected, and tries to be (PID ")
        (folder / "connected").touch()
        assert state().startswith("is connected, and has not been let in yet")
        log = AuditLog(site / "state" / AUDIT)
        log.append(status="refused", tasks="Join", detail="limits.federation: no", bytes=10)
        assert state().startswith("is connected, and said no to what it was asked last")
        log.append(status="ok", tasks="Join", bytes=10)
        monkeypatch.setattr(party, "read_session", lambda _: Session(federation="center"))
        assert state().startswith("takes part (PID ")
        before = time.time() - STALE - 1
        os.utime(folder / "connected", (before, before))
        assert state().startswith("is not connected")
        party.write_connection(connection(site), folder)
        (folder / "progress").touch()
        assert "it is dialled on" in party_status(path)["note"]
        page = PartyPage(path)
        responding = page.changed()
        os.utime(folder / "progress", (before, before))
        assert page.changed() != responding
        assert state().startswith("does not respond (PID ")
        assert (
            "done nothing for 46 s; it is started again after 300 s" in party_status(path)["note"]
        )


@pytest.fixture
def address(center: Path) -> Iterator[str]:
    """Where somebody answers who has the coordinator's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(center / "tls" / "server.pem", center / "tls" / "server.key")
    yield from answering(context)


def answering(context: ssl.SSLContext | None) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                with listening.accept()[0] as raw:
                    if context is None:
                        raw.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    else:
                        context.wrap_socket(raw, server_side=True).close()
            except OSError:
                pass

        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        with socket.socket() as last:  # for a test that dialled nobody
            last.connect_ex(listening.getsockname())
        thread.join()


def test_the_coordinator_is_known_by_its_certificate(site: Path, address: str) -> None:
    dial(connection(site).model_copy(update={"address": address}), say=pytest.fail)


def test_who_has_another_certificate_is_not_believed(site: Path, address: str) -> None:
    make_authority(site / "other", "127.0.0.1")
    (site / "ca.pem").write_bytes((site / "other" / "ca.pem").read_bytes())
    with pytest.raises(RunFailed, match=r"is not the coordinator that .*ca\.pem vouches for") as it:
        dial(connection(site).model_copy(update={"address": address}), say=pytest.fail)
    assert "tls/ca.pem" in str(it.value.mend)


def test_who_speaks_no_tls_is_not_the_coordinator(site: Path) -> None:
    for address in answering(None):
        with pytest.raises(RunFailed, match="speaks no TLS"):
            dial(connection(site).model_copy(update={"address": address}), say=pytest.fail)


def test_a_coordinator_that_is_not_there_yet_is_dialled_until_it_is(
    center: Path, site: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(center / "tls" / "server.pem", center / "tls" / "server.key")
    port, said = free_port(), list[str]()

    def later(line: str) -> None:
        said.append(line)
        listening = socket.create_server(("127.0.0.1", port))

        def serve() -> None:
            with listening, listening.accept()[0] as raw:
                context.wrap_socket(raw, server_side=True).close()

        Thread(target=serve).start()

    there = connection(site).model_copy(update={"address": f"127.0.0.1:{port}"})
    dial(there, say=later, pause=0.01)
    (line,) = said
    assert line.startswith(f"nobody answers at 127.0.0.1:{port} yet (Connection refused)")


def ended(
    folder: Path, words: str, *, does: str = "true", status: int = 1
) -> tuple[str, bool, bool]:
    """Why a SuperNode that said and did this ended, whether for good, and whether it had been connected."""
    folder.mkdir(exist_ok=True)
    with Processes(folder, "the test") as processes:
        (folder / "words").write_text(words)
        # Nothing is touched before it is watched, however slowly the machine starts a process.
        command = ["/bin/sh", "-c", f"cat words; sleep 0.3; {does}; sleep 0.4; exit {status}"]
        processes.start("supernode", command, environment(folder / "home"))
        connected, hung = watch_supernode(processes, 0.05)
        assert not hung
        return *ending_cause(processes), connected


def test_a_key_that_the_coordinator_does_not_know_ends_it_at_once(tmp_path: Path) -> None:
    why, final, connected = ended(tmp_path, UNREGISTERED)
    assert "does not take this party's key" in why and "[parties]" in why
    assert final and not connected


def test_a_node_that_was_killed_is_in_the_way_for_a_minute(tmp_path: Path) -> None:
    assert ended(tmp_path, "", does="touch connected", status=9)[2]
    why, final, _ = ended(tmp_path, UNREGISTERED)
    assert re.search("still holds the node from [01] s ago", why) and not final
    before = time.time() - FORGOTTEN - 1
    os.utime(tmp_path / "connected", (before, before))
    assert ended(tmp_path, UNREGISTERED)[1]


def test_a_coordinator_that_is_gone_is_seen(tmp_path: Path) -> None:
    gone = "touch connected; sleep 0.05; touch lost"
    assert ended(tmp_path / "a", "", does=gone)[2]
    assert not connected_now(tmp_path / "a")
    ended(tmp_path / "b", "", does=f"{gone}; sleep 0.05; touch connected")
    assert connected_now(tmp_path / "b")


def test_a_supernode_that_does_nothing_is_ended(tmp_path: Path) -> None:
    """One that makes steps is left alone: this one does so for longer than the limit."""
    with Processes(tmp_path, "the test") as processes:
        (tmp_path / "trouble").write_text("nobody answers")
        # It waits until it is watched: what it did before is not seen.
        watched = "until [ -e progress ]; do sleep 0.02; done; sleep 0.1; touch connected"
        steps = "i=0; while [ $((i += 1)) -le 15 ]; do touch progress; sleep 0.1; done"
        command = ["/bin/sh", "-c", f"{watched}; {steps}; touch stopped; exec sleep 60"]
        processes.start("supernode", command, environment(tmp_path / "home"))
        begun = time.monotonic()
        assert watch_supernode(processes, 0.02, stuck=1.0) == (True, True)
        assert (tmp_path / "stopped").exists() and time.monotonic() - begun < 10
        assert processes.ended("supernode") is not None
        assert not (tmp_path / "trouble").exists() and not (tmp_path / "progress").exists()


def test_a_supernode_that_hangs_is_started_again_and_that_is_said(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = site / "tries"
    hangs = f"open({str(tries)!r}, 'a').write('x'); import time; time.sleep(60)"
    monkeypatch.setattr(party, "dial", lambda *_, **__: None)
    monkeypatch.setattr(party, "_SUPERNODE", hangs)
    monkeypatch.setattr(party, "STUCK", 0.3)
    monkeypatch.setattr(party, "GIVEN_UP", 0.8)
    said: list[str] = []
    with pytest.raises(RunFailed, match=r"it did nothing for 0.3 s, and was ended"):
        serve_party(site / "party.toml", say=said.append, pause=0.01)
    assert len(tries.read_text()) > 1
    assert said[1] == "it did nothing for 0.3 s, and was ended; the SuperNode is started again"


def test_other_ends_are_told_in_flowers_words(tmp_path: Path) -> None:
    why, final, _ = ended(tmp_path, UNREGISTERED.replace("2004] Failed to activate", "9] No"))
    assert "status 1: Failed to initialize the connection" in why and not final
    assert "cut this party off" in ended(tmp_path, "bye\n", status=0)[0]


def test_why_a_party_ended_is_in_its_status(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party, "dial", lambda *_, **__: None)
    monkeypatch.setattr(party, "_SUPERNODE", f"print({UNREGISTERED!r}); raise SystemExit(1)")
    said: list[str] = []
    with pytest.raises(RunFailed, match="does not take this party's key"):
        serve_party(site / "party.toml", say=said.append, pause=0.01, forgotten=0.3)
    # Flower may hold an earlier node of the party for connected: it is tried again for a while.
    assert (
        len(said) == 2
        and "or it still holds an earlier node of this party for connected" in said[1]
    )
    found = party_status(site / "party.toml")
    assert found["state"] == "stopped" and "does not take this party's key" in found["note"]


def test_one_whose_own_process_was_killed_goes_on_answering_and_says_so(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert party_status(site / "party.toml")["state"] == "stopped"
    monkeypatch.setattr(party, "held", lambda folder: True)  # by what it started
    found = party_status(site / "party.toml")
    assert found["state"] == "unattended" and "goes on answering" in found["note"]
    view = PartyPage(site / "party.toml").read()
    assert ">unattended</span>" in view.main
    assert [one.value for one in view.samples if one.name == "party_runs"] == [0]


def test_what_was_edited_since_it_was_started_is_said(site: Path) -> None:
    with Processes(party.folder_of(site / "state"), "the test") as processes:
        party.write_connection(connection(site), processes.folder)
        assert party_status(site / "party.toml")["note"] is None
        text = (site / "party.toml").read_text()
        (site / "party.toml").write_text(text.replace(":9092", ":9093"))
        found = party_status(site / "party.toml")
        assert f"PID {os.getpid()}" in found["state"] and "was edited since" in found["note"]


def test_the_state_of_a_broken_configuration(site: Path) -> None:
    path = site / "party.toml"
    path.write_text(path.read_text() + "[unknown]\n")
    assert state_of(path) == site / "state"
    path.write_text("nonsense")
    with pytest.raises(InvalidInput, match="give the folder of its state itself"):
        state_of(path)
    (site / "state").mkdir()
    (site / "state" / "current").touch()
    assert state_of(site / "state") == site / "state"
    with pytest.raises(InvalidInput, match=r"this is a folder.*\n.*party\.toml"):
        state_of(site)


def test_a_key_is_replaced_when_that_is_asked(site: Path) -> None:
    before = make_key(site / "party.key", "north")
    assert make_key(site / "party.key", "north") == before
    after = make_key(site / "party.key", "north", replace=True)
    assert after != before and make_key(site / "party.key", "north") == after
    assert (site / "party.key").stat().st_mode & 0o777 == 0o600

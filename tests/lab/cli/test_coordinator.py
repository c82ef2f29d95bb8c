"""consilience coordinator, and the commands of a party that takes part; none starts Flower."""

from __future__ import annotations

import json
import socket
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from consilience.core.errors import RunFailed
from consilience.core.messages.schema import Public
from consilience.lab.data import read_rows
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator import process as coordinator
from consilience.sites.coordinator.configuration import (
    read_coordinator,
    store_coordinator,
    stored_coordinator,
)
from consilience.sites.coordinator.rounds import OUTCOME, STAGE
from consilience.sites.operations.certificates import public_key
from consilience.sites.operations.processes import Processes, free_port
from consilience.sites.party import AUDIT, AuditLog
from helpers.command_line import Call
from helpers.deployed_run import last_line


@pytest.fixture
def center(folder: Path, call: Call) -> Path:
    done = call("coordinator", "init", "center", "--parties", "north, south")
    assert done.exit_code == 0 and "center/coordinator.toml" in done.output
    return folder / "center"


def party(folder: Path, call: Call) -> str:
    """A party that says where the coordinator is."""
    call("party", "init", "north")
    path = folder / "north" / "party.toml"
    text = path.read_text().replace("# [coordinator]  ", "[coordinator]  ")
    path.write_text(text.replace("# address =", "address ="))
    return str(path)


def test_init_says_what_to_do_next(call: Call, center: Path) -> None:
    text = (center / "coordinator.toml").read_text()
    assert 'name = "center"' in text and '"north" = ""' in text
    assert sorted(path.name for path in (center / "tls").iterdir()) == [
        "ca.pem",
        "server.key",
        "server.pem",
    ]
    again = call("coordinator", "init", "center", "--parties", "a")
    assert again.exit_code == 2 and "something already" in again.output


def test_start_asks_for_the_keys(call: Call, center: Path) -> None:
    for verb in ("start", "check"):
        refused = call("coordinator", verb, center)
        assert refused.exit_code == 2, refused.output
        assert "parties.north: the public key is missing" in refused.output


def test_before_there_is_a_run(call: Call, center: Path, folder: Path) -> None:
    path = party(folder, call)
    line = call("party", "key", path).output.strip()
    text = (center / "coordinator.toml").read_text().replace('"south" = ""\n', "")
    (center / "coordinator.toml").write_text(text.replace('"north" = ""', line))
    found = call("coordinator", "status", center, "--json", "status.json")
    assert found.exit_code == 0 and "no run" in found.output
    said = json.loads((folder / "status.json").read_text())
    assert [one["party"] for one in said["parties"]] == ["north"]
    assert call("coordinator", "stop", center).output == "nothing was running\n"
    resumed = call("coordinator", "resume", center)
    assert resumed.exit_code == 2 and "coordinator start" in resumed.output
    started = call("coordinator", "start", center)
    assert started.exit_code == 2 and "public.csv" in started.output  # it is not there
    (center / "public.csv").write_text("age,pressure\n50,100\n")
    (center / "coordinator.toml").write_text(
        (center / "coordinator.toml").read_text().replace("127.0.0.1:9092", "10.1.2.3:9092")
    )
    elsewhere = call("coordinator", "start", center)
    assert elsewhere.exit_code == 2 and "the certificate is for" in elsewhere.output
    assert not (center / "run" / "ledger.sqlite").exists()


@pytest.fixture
def ready(folder: Path, call: Call, center: Path) -> Path:
    """A coordinator that could start, of one party."""
    line = call("party", "key", party(folder, call)).output.strip()
    text = (center / "coordinator.toml").read_text().replace('"south" = ""\n', "")
    (center / "coordinator.toml").write_text(text.replace('"north" = ""', line))
    (center / "public.csv").write_text("age,pressure\n50,100\n")
    return center


def started(center: Path, status: str, rounds: int) -> None:
    """A run that was started, and how it ended, without Flower."""
    run = center / "run"
    run.mkdir()
    store_coordinator(read_coordinator(center), center)
    with closing(Ledger(run / "ledger.sqlite", create=True)) as ledger:
        for number in range(rounds):
            ledger.write("rounds", [("uwa", 0, number, 1.0, None, 1, None)])
    (run / OUTCOME).write_text(json.dumps({"status": status, "what": "too few", "mend": "Wait."}))


@pytest.mark.parametrize("how", [[], ["--detach"]], ids=["here", "detached"])
@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("quorum = 0.5", "quorum = 1.5", "quorum is 1.5, and there are 1 parties"),
        ("quorum = 0.5", "quorum = 2", "Give a number of parties, 1 to 1"),
        ("public.csv", "nothing.csv", "nothing.csv"),
        ("", "", "not possible to listen on 127.0.0.1:"),
    ],
    ids=["share", "number", "no file", "address"],
)
def test_what_cannot_start_leaves_nothing(
    call: Call, ready: Path, was: str, now: str, said: str, how: list[str]
) -> None:
    path = ready / "coordinator.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = path.read_text().replace("9092", str(taken.getsockname()[1]))
        path.write_text(text.replace(was, now))
        for verb in ("start", "resume"):
            done = call("coordinator", verb, ready, *how)
            assert done.exit_code in (1, 2)
            assert ("there is no run yet" if verb == "resume" else said) in done.output
            assert not (ready / "run").exists()


def test_certificates_are_looked_at_before_anything_starts(call: Call, ready: Path) -> None:
    assert call("coordinator", "init", "other", "--parties", "a").exit_code == 0
    tls, others = ready / "tls", ready.parent / "other" / "tls"
    right = {file.name: file.read_bytes() for file in tls.iterdir()}
    for name, content, said in (
        ("server.key", b"", "server.pem and server.key are no certificate and its key"),
        ("server.key", (others / "server.key").read_bytes(), "key values mismatch"),
        ("ca.pem", (others / "ca.pem").read_bytes(), "ca.pem does not vouch for server.pem"),
        ("ca.pem", b"nothing", "ca.pem is no certificate"),
    ):
        (tls / name).write_bytes(content)
        done = call("coordinator", "check", ready)
        assert done.exit_code == 2 and said in done.output, done.output
        (tls / name).write_bytes(right[name])
    (tls / "server.key").unlink()
    assert "there is no file" in call("coordinator", "check", ready).output


def test_both_sides_print_the_same_digest(call: Call, ready: Path) -> None:
    path = ready / "coordinator.toml"
    path.write_text(path.read_text().replace("9092", str(free_port())))
    done = call("coordinator", "check", ready, "--json", "found.json")
    assert done.exit_code == 0 and "ready to start" in done.output
    digest = json.loads(Path("found.json").read_text())["public"]
    assert digest in done.output
    rows = read_rows(ready / "public.csv")
    assert digest == Public(rows.X, rows.schema).key


@pytest.mark.parametrize("verb", ["check", "start"])
def test_where_it_cannot_listen_it_is_not_ready(call: Call, ready: Path, verb: str) -> None:
    path = ready / "coordinator.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = path.read_text().replace("9092", str(taken.getsockname()[1]))
        path.write_text(text)
        done = call("coordinator", verb, ready)
        assert done.exit_code == 1 and "Stop what listens there" in done.output
    for host in ("not a host", "a..b", "192.0.2.1"):
        path.write_text(text.replace('# listen = "0.0.0.0"', f'listen = "{host}"'))
        done = call("coordinator", verb, ready)
        assert done.exit_code == 1 and "has no address" in done.output
        assert "Set listen" in done.output and "Stop what" not in done.output


def test_what_runs_is_not_in_its_own_way(call: Call, ready: Path) -> None:
    path = ready / "coordinator.toml"
    with (
        Processes(ready / "run" / "flower", "the test"),
        socket.create_server(("127.0.0.1", 0)) as own,
    ):
        path.write_text(path.read_text().replace("9092", str(own.getsockname()[1])))
        done = call("coordinator", "check", ready)
    assert done.exit_code == 0 and "center: running (PID " in done.output


def test_a_run_that_goes_on_forgets_why_somebody_was_outside(
    call: Call, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ready / "coordinator.toml"
    path.write_text(path.read_text().replace("9092", str(free_port())))
    started(ready, "failed", rounds=1)
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger:
        ledger.note(excluded={"north": ("other rows", False), "south": ("too late", True)})
    monkeypatch.setattr(coordinator, "_serve", lambda *_: None)
    assert call("coordinator", "resume", ready).exit_code == 0
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger:
        north, south = (ledger.meta["excluded"][name] for name in ("north", "south"))
    assert north == ["it is asked again to join", False] and south == ["too late", True]


def test_a_run_without_a_round_is_started_anew(
    call: Call, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(ready, "failed", rounds=0)
    path = ready / "coordinator.toml"
    text = path.read_text().replace("9092", str(free_port()))
    path.write_text(text.replace("seed = 0", "seed = 1"))
    served = []
    monkeypatch.setattr(coordinator, "_serve", lambda spec, *_: served.append(spec.seed))
    assert "it starts anew, with coordinator.toml" in call("coordinator", "resume", ready).output
    again = call("coordinator", "resume", ready)
    assert again.exit_code == 0 and "anew" not in again.output
    assert call("coordinator", "start", ready).exit_code == 0
    assert served == [1, 1, 1] and stored_coordinator(ready).seed == 1


class Mortal:
    """A SuperLink, its gate and its process, which ends in every run, ten times."""

    address, folder = "127.0.0.1:1", Path("nowhere")
    lives = 0

    def __init__(self, *_: object) -> None: ...

    def start(self, parties: object) -> None:
        Mortal.lives += 1

    def busy(self) -> bool:
        return False

    def submit(self) -> None: ...

    def ready(self) -> None: ...

    def close(self) -> None: ...

    def ended(self, name: str) -> int | None:
        return 1 if Mortal.lives <= 10 else None


@pytest.mark.parametrize(("steady", "runs"), [(0.0, 10 + 4), (60.0, 4)])
def test_a_superlink_that_is_killed_again_and_again_is_started_again(
    ready: Path, monkeypatch: pytest.MonkeyPatch, steady: float, runs: int
) -> None:
    """Each end counts for the run where it comes at once; a run that ends by itself is tried four times."""
    started(ready, "failed", rounds=1)
    for name in ("SuperLink", "Gate"):
        monkeypatch.setattr(coordinator, name, Mortal)
    monkeypatch.setattr(Mortal, "lives", 0)
    submitted: list[None] = []
    monkeypatch.setattr(Mortal, "submit", lambda self: submitted.append(None))
    said: list[str] = []
    spec = read_coordinator(ready)
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger:
        ledger.mark(spec.method.label, spec.seed, "done")  # before there were more rounds
    with pytest.raises(RunFailed, match="the run ended 4 times without a round"):
        coordinator._serve(spec, ready, Mortal(), said.append, steady=steady)
    assert len(submitted) == runs
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger:
        assert not ledger.done  # it goes on, and is not done until it says so
    assert "waits up to 600 s" in said[1] and "consilience party start party.toml" in said[1]


def test_status_and_stop_need_the_folder_alone(call: Call, ready: Path) -> None:
    started(ready, "failed", rounds=2)
    path = ready / "coordinator.toml"
    assert "coordinator.toml" not in call("coordinator", "status", ready).output
    path.write_text(path.read_text().replace("timeout = 600", "timeout = 60"))
    done = call("coordinator", "status", ready, "--json", "status.json")
    said = json.loads(Path("status.json").read_text())
    assert (said["federation"], said["state"], said["round"]) == ("center", "stopped", 1)
    assert "it ended: too few\n  Wait." in done.output
    assert "coordinator.toml was edited since" in done.output
    path.write_text("nonsense")
    done = call("coordinator", "status", ready)
    assert done.exit_code == 0 and "north" in done.output and "this is not TOML" in done.output
    stopped = call("coordinator", "stop", ready)
    assert (stopped.exit_code, stopped.output) == (0, "nothing was running\n")
    refused = call("coordinator", "start", ready)
    assert refused.exit_code == 2 and "not TOML" in refused.output


def test_status_says_what_is_asked_now(
    call: Call, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(ready, "running", rounds=2)
    asked = {"round": 1, "tasks": "FitPrivate+PredictPublic", "since": 0.0, "awaited": ["south"]}
    (ready / "run" / STAGE).write_text(json.dumps(asked))
    assert "awaited" not in call("coordinator", "status", ready).output
    room = "consilience.sites.coordinator"
    monkeypatch.setattr(f"{room}.status.running", lambda home: 7)
    monkeypatch.setattr("consilience.sites.transport.superlink.flwr", lambda *_: {"nodes": []})
    done = call("coordinator", "status", ready, "--json", "status.json")
    assert "round 1: FitPrivate, PredictPublic, asked" in done.output
    assert "s ago; awaited: south" in done.output
    assert json.loads(Path("status.json").read_text())["stage"]["awaited"] == ["south"]


def test_a_file_in_the_place_of_a_folder(call: Call, ready: Path) -> None:
    for verb in ("start", "status", "stop", "resume", "check"):
        done = call("coordinator", verb, ready / "coordinator.toml")
        assert done.exit_code == 2 and f"Give its folder: {ready}" in done.output
        done = call("coordinator", verb, "nowhere")
        assert done.exit_code == 2 and "there is no such folder" in done.output


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", "there are no parties"),
        ("a,", "a name is empty"),
        ("a,a", "two parties are called 'a'"),
    ],
)
def test_names_of_parties(call: Call, folder: Path, names: str, said: str) -> None:
    done = call("coordinator", "init", "center", "--parties", names)
    assert done.exit_code == 2 and said in done.output
    assert not (folder / "center").exists()


def test_a_party_without_what_it_needs(call: Call, folder: Path) -> None:
    call("party", "init", "south")
    for verb in ("key", "start"):
        refused = call("party", verb, "south/party.toml")
        assert refused.exit_code == 2 and "where the coordinator is" in refused.output
    path = party(folder, call)
    refused = call("party", "start", path)
    assert refused.exit_code == 2 and "tls/ca.pem" in refused.output
    for verb in ("check", "start"):
        refused = call("party", verb, path)
        assert refused.exit_code == 2 and "coordinator.certificate: " in refused.output
    call("coordinator", "init", "center", "--parties", "north")
    certificate = (folder / "center" / "tls" / "ca.pem").read_bytes()
    (folder / "north" / "ca.pem").write_bytes(certificate)
    refused = call("party", "start", path)
    assert refused.exit_code == 2 and "consilience party key" in refused.output
    call("party", "key", path)
    assert "chmod" not in call("party", "check", path).output
    (folder / "north" / "party.key").chmod(0o640)
    assert "warning: others can read or change" in call("party", "check", path).output


def test_the_line_of_a_key_is_one_of_the_coordinators_file(call: Call, folder: Path) -> None:
    path = party(folder, call)
    (name, key), *rest = tomllib.loads(call("party", "key", path).output).items()
    assert (name, rest) == ("north", [])
    assert public_key(key, where="parties.north")


def test_a_party_that_has_not_started(call: Call, folder: Path) -> None:
    path = party(folder, call)
    found = call("party", "status", path, "--json", "-")
    assert found.exit_code == 0
    said = json.loads(found.output[found.output.index("{") :])
    assert (said["state"], said["federation"], said["answers"]) == ("stopped", None, 0)
    assert call("party", "stop", path).output == "nothing was running\n"


def test_status_and_stop_of_a_party_whose_configuration_is_broken(call: Call, folder: Path) -> None:
    path = Path(party(folder, call))
    answered = folder / "north" / "elsewhere"
    path.write_text(path.read_text().replace('state = "state"', 'state = "elsewhere"'))
    answered.mkdir()
    log = AuditLog(answered / AUDIT)
    log.append(status="refused", tasks="SendModel", detail="limits.allow: no", bytes=10)
    path.write_text(path.read_text() + "\n[metod]\n")
    found = call("party", "status", path, "--json", "status.json")
    assert found.exit_code == 0 and "unknown section 'metod'" in found.output
    said = json.loads(Path("status.json").read_text())
    assert (said["answers"], said["refusals"]) == (0, 1)
    assert said["last_refusal"].endswith(": SendModel: limits.allow: no")


def test_check_knows_of_a_run(call: Call, ready: Path) -> None:
    path, run = ready / "coordinator.toml", ready / "run"
    path.write_text(path.read_text().replace("9092", str(free_port())))
    run.mkdir()
    spec = read_coordinator(ready)
    store_coordinator(spec, ready)
    label = spec.method.label
    with closing(Ledger(run / "ledger.sqlite", create=True)) as ledger, ledger.transaction():
        ledger.write("method_runs", [(label, 0, "running", 0.0)])
        ledger.write("rounds", [(label, 0, 1, 0.0, b"", 1, None)])
    assert "ready to resume after round 1" in call("coordinator", "check", ready).output
    path.write_text(path.read_text().replace("seed = 0", "seed = 1"))
    done = call("coordinator", "check", ready)
    assert done.exit_code == 2 and "seed is another than the run was started with" in done.output


def test_metrics_stand_with_the_round_that_they_are_of(call: Call, ready: Path) -> None:
    started(ready, "failed", rounds=2)
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger, ledger.transaction():
        row = (
            "uwa",
            0,
            "north",
            1,
            "Evaluate",
            "refused",
            "",
            9,
            9,
            1.0,
            "limits.metrics: no",
            1,
            1,
        )
        note = (*row[:4], "Distill", "ok", *row[6:10], "private rows weigh 0.1", 1, 0)
        ledger.write("deliveries", [note, row])
        ledger.write("metrics", [("uwa", 0, 0, "north", "accuracy", 0.75)])
    said = " ".join(call("coordinator", "status", ready).output.split())
    assert "accuracy after round" in said and "0.750 0" in said
    assert "north noted: private rows weigh 0.1" in said and "left out:" not in said
    assert "left out" not in last_line(ready)


def test_why_a_party_is_left_out_is_said_as_long_as_it_is(call: Call, ready: Path) -> None:
    started(ready, "failed", rounds=2)
    reason = "its columns are not, in this order, those of the public rows: " + "cholesterol, " * 9
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger, ledger.transaction():
        row = ("uwa", 0, "north", 1, "Predict", "failed", "", 9, 9, 1.0, reason, 1, 0)
        ledger.write("deliveries", [row])
    said = " ".join(call("coordinator", "status", ready).output.split())
    assert f"north is left out: round 1: {reason}".strip() in said
    assert "it ended: too few" in said and "then: consilience coordinator resume" in said
    assert reason in last_line(ready)
    with closing(Ledger(ready / "run" / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.write("deliveries", [(*row[:5], "ok", *row[6:10], "", 1, 0)])
    assert "left out:" not in call("coordinator", "status", ready).output
    assert "left out" not in last_line(ready)

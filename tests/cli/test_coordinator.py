"""consilience coordinator, and the commands of a party that takes part; none starts Flower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Call


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
    for verb in ("start", "resume", "status", "stop"):
        refused = call("coordinator", verb, center)
        assert refused.exit_code == 2, refused.output
        assert "parties.north: the public key is missing" in refused.output


def test_before_there_is_a_run(call: Call, center: Path, folder: Path) -> None:
    path = party(folder, call)
    line = call("party", "key", path).output.strip()
    text = (center / "coordinator.toml").read_text().replace('"south" = ""\n', "")
    (center / "coordinator.toml").write_text(text.replace('"north" = ""', f'"north" = "{line}"'))
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


def test_a_party_without_what_it_needs(call: Call, folder: Path) -> None:
    call("party", "init", "south")
    for verb in ("key", "start"):
        refused = call("party", verb, "south/party.toml")
        assert refused.exit_code == 2 and "where the coordinator is" in refused.output
    path = party(folder, call)
    refused = call("party", "start", path)
    assert refused.exit_code == 2 and "tls/ca.pem" in refused.output
    (folder / "north" / "ca.pem").write_text("a certificate")
    refused = call("party", "start", path)
    assert refused.exit_code == 2 and "consilience party key" in refused.output


def test_a_party_that_has_not_started(call: Call, folder: Path) -> None:
    path = party(folder, call)
    found = call("party", "status", path, "--json", "-")
    assert found.exit_code == 0
    said = json.loads(found.output[found.output.index("{") :])
    assert (said["state"], said["federation"], said["answers"]) == ("stopped", None, 0)
    assert call("party", "stop", path).output == "nothing was running\n"

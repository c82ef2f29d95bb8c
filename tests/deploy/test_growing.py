"""A run that goes on while parties are added and removed: from the next round, nothing starts anew."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience.core.messages.wire import decode
from consilience.core.tasks.predictions import Distill
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.leaving import CERTIFICATE, READABLE, certify, record_of
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator import parties, process
from consilience.sites.coordinator.configuration import read_coordinator, store_coordinator
from consilience.sites.coordinator.parties import leave, note_on_sums
from consilience.sites.coordinator.process import start_coordinator
from consilience.sites.coordinator.status import coordinator_status
from helpers.deployed_run import (
    NAMES,
    attended,
    east,
    grid,
    node,
    predictions,
    rounds,
    served,
    started,
)
from helpers.flower_grid import Grid, Info, Message, in_a_run


class Killed(Exception):
    """The process ends here."""


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


def changing(run: Path, nodes: Grid, parties: dict[str, str], *, at: int) -> None:
    """Have the coordinator's process store other parties while a round goes on."""
    usual = nodes.nodes[100]

    def answer(message: Message) -> list[Message]:
        task = decode(message.content.array_records["consilience"]["consilience"].data)[0]
        if isinstance(task, Distill) and task.round == at:
            spec = read_coordinator(run)
            kept = {**spec.parties, **parties}
            kept = {name: key for name, key in kept.items() if key}
            store_coordinator(spec.model_copy(update={"parties": kept}), run)
        return usual(message)

    nodes.nodes[100] = answer


def test_one_is_added_and_one_removed_while_the_run_goes_on(run: Path) -> None:
    rounds(run, 4)
    home, key = east(run)
    toml = home / "party.toml"
    toml.write_text(re.sub(r"(?m)^public = .*", "", toml.read_text()))  # it is sent them
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    changing(run, nodes, {"east": key, "south": ""}, at=2)
    assert served(run, nodes) is True
    assert attended(run, "north") == [1, 2, 3, 4]
    assert attended(run, "east") == [3, 4] and attended(run, "south") == [1, 2]
    status = {party.party: party for party in coordinator_status(run).parties}
    assert set(status) == {"north", "east"} and status["east"].measured == 4
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        said = [text for (text,) in ledger.read("SELECT text FROM notes WHERE round = 2")]
        assert ledger.read("SELECT round FROM rounds") == [(0,), (1,), (2,), (3,), (4,)]
        of_east = "SELECT tasks, status FROM deliveries WHERE party = 'east' ORDER BY rowid LIMIT 3"
        asked = [("Describe", "ok"), ("TakePublic", "ok"), ("Join", "ok")]
        assert ledger.read(of_east) == asked
    assert "east was added after round 2" in said and "south was removed after round 2" in said


def test_secure_sums_go_on_with_the_parties_of_the_first_one_alone(run: Path) -> None:
    """Who adds or removes a party is told before a run ends for it."""
    assert note_on_sums(run) == note_on_sums(run, added=True) == ""
    toml = run / "coordinator.toml"
    text = toml.read_text()
    toml.write_text(text.replace("[parties]", "[protocol.secure_aggregation]\n\n[parties]"))
    assert "each party's engineer changes its [roster]" in note_on_sums(run)
    assert "it is taught" in note_on_sums(run, added=True)
    (run / "run" / LEDGER).unlink()
    assert note_on_sums(run) == ""  # no run has begun


def test_one_that_is_added_before_it_is_there_joins_when_it_is(run: Path) -> None:
    """It only learns, which it says of itself before it joins."""
    rounds(run, 4)
    home, key = east(run)
    toml = home / "party.toml"
    toml.write_text(toml.read_text().replace("[data]", "[data]\nlabels = false"))
    nodes = grid(run)
    nodes.nodes[98] = node(home)
    changing(run, nodes, {"east": key}, at=1)
    usual = nodes.nodes[99]

    def comes(message: Message) -> list[Message]:
        task = decode(message.content.array_records["consilience"]["consilience"].data)[0]
        if isinstance(task, Distill) and task.round == 2:
            nodes.infos[98] = Info(98, "east")
        return usual(message)

    nodes.nodes[99] = comes
    assert served(run, nodes) is True
    assert attended(run, "east") == [3, 4]
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.meta["learners"] == ["east"]


def test_one_with_classes_that_were_not_agreed_on_stays_outside(run: Path) -> None:
    rounds(run, 3)
    home, key = east(run)
    file = home / "patients.csv"
    file.write_text(file.read_text().replace("yes", "perhaps"))
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    changing(run, nodes, {"east": key}, at=1)
    assert served(run, nodes) is True
    (found,) = (party for party in coordinator_status(run).parties if party.party == "east")
    assert "class 'perhaps' is none of those that were agreed on" in found.why
    assert attended(run, "north") == [1, 2, 3] and attended(run, "east") == []


def killed(*_: object) -> None:
    raise Killed


def test_left_exactly_the_bits_are_those_of_a_federation_that_never_had_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parties need do nothing: they are asked to join anew, and keep what their bits hang on."""
    home, key = east(run)
    with (run / "coordinator.toml").open("a") as file:
        file.write(f'"east" = "{key}"\n')
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    assert served(run, nodes) is True
    with monkeypatch.context() as patch:  # killed: it is done again
        patch.setattr(parties, "keep_record", killed)
        with pytest.raises(Killed):
            leave(run, ["east"])
    assert leave(run, ["east"]) == run / "run-1"
    (run / "run").rename(run / "run-next")  # killed just before: the next start goes on
    with monkeypatch.context() as patch:
        patch.setattr(process, "check_start", killed)
        with pytest.raises(Killed):
            start_coordinator(run)
    Ledger(run / "run" / "ledger.sqlite", create=True).close()
    assert served(run, grid(run)) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        certify(run / "run", ledger)
        after = record_of(run / "run", ledger, [])
    left, certificate = predictions(run), json.loads((run / "run" / CERTIFICATE).read_text())
    assert certificate["left"] == ["east"] and certificate["parties"] == list(NAMES)
    assert [one["round"] for one in certificate["rounds"]] == [0, 1, 2]
    assert all(one["before"] != one["after"] for one in certificate["rounds"])
    assert "No models were kept in this folder." in (run / "run" / READABLE).read_text()
    shutil.rmtree(run / "run")  # one that never had it, with the same secrets
    started(run)
    assert served(run, grid(run)) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert record_of(run / "run", ledger, [])["rounds"] == after["rounds"]
    for name, never in predictions(run).items():
        np.testing.assert_array_equal(left[name], never)


def done_without_east(run: Path, nodes: Grid, *, key: str, rounds: int = 2) -> str:
    """The certificate of a run with a third party that is done again without it, with other rounds."""
    text = (run / "coordinator.toml").read_text()
    (run / "coordinator.toml").write_text(f'{text}"east" = "{key}"\n')
    home = run.parent / "east"
    first = grid(run)
    first.nodes[98], first.infos[98] = node(home), Info(98, "east")
    assert served(run, first) is True
    leave(run, ["east"])
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", f"rounds = {rounds}"))
    Ledger(run / "run" / "ledger.sqlite", create=True).close()
    assert served(run, nodes) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        certify(run / "run", ledger)
    return (run / "run" / READABLE).read_text()


def test_what_was_prepared_for_a_run_without_one_is_gone_where_the_run_goes_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that is begun later in the folder would be certified."""
    assert served(run, grid(run)) is True
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(Killed):
        leave(run, ["south"])
    assert (run / "run-next").exists()
    monkeypatch.setattr(process, "check_resume", lambda folder: None)  # it is done
    process.resume_coordinator(run)
    assert not (run / "run-next").exists()


def test_the_certificate_names_one_that_came_back(run: Path) -> None:
    home, key = east(run)
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    changing(run, nodes, {"east": key}, at=1)
    said = done_without_east(run, nodes, key=key)
    assert attended(run, "east") == [2]
    assert 'without "east", who came back while this was done: "east" since round' in said
    assert "as if" not in said


def test_the_certificate_names_one_that_was_away(run: Path) -> None:
    """It holds the model that the one that left has taught."""
    _, key = east(run)
    path = run / "coordinator.toml"
    text = re.sub(r"(?m)^wait = .*", "wait = 0.01", path.read_text())
    path.write_text(re.sub(r"(?m)^(# )?quorum = .*", "quorum = 1", text))
    nodes = grid(run)
    del nodes.infos[99]
    said = done_without_east(run, nodes, key=key, rounds=1)
    assert f"{'-' * 16}  a round that was not computed again" in said
    assert 'joined       "north"\n' in said
    assert 'each with the model that it had in the run before: "south"' in said


def test_a_run_goes_on_without_one_that_was_removed_meanwhile(run: Path) -> None:
    assert served(run, grid(run)) is True
    rounds(run, 3)
    path = run / "coordinator.toml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith('"south"')))
    assert served(run, grid(run)) is True
    assert attended(run, "north") == [1, 2, 3] and attended(run, "south") == [1, 2]


def test_a_run_goes_on_with_others_alone(run: Path) -> None:
    """Nobody of before is left whose state could be restored."""
    assert served(run, grid(run)) is True
    rounds(run, 3)
    home, key = east(run)
    path = run / "coordinator.toml"
    lines = path.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(tuple(f'"{name}"' for name in NAMES))]
    path.write_text("\n".join([*kept, f'"east" = "{key}"']) + "\n")
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    assert served(run, nodes) is True
    assert attended(run, "east") == [3] and attended(run, "north") == [1, 2]

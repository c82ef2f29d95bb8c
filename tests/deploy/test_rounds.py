"""The rounds of a deployed federation, without Flower's processes: kept, gone on with, the same bits."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import LocalNetwork
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join, TakePublic
from consilience.core.tasks.predictions import Distill, FitPrivate
from consilience.lab.runs.folder import locked
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import (
    CoordinatorSpec,
    read_coordinator,
)
from consilience.sites.coordinator.rounds import OUTCOME, outcome
from consilience.sites.coordinator.status import coordinator_status
from consilience.sites.operations.processes import Processes, free_port
from consilience.sites.party import AUDIT, read_log, read_party, read_session
from consilience.sites.party.process import party_key, party_status
from consilience.sites.transport import superlink
from helpers.deployed_run import NAMES, begun, grid, last_line, node, predictions, served
from helpers.flower_grid import Grid, Info, Message, Node, in_a_run
from helpers.party_sites import as_deployed


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


def in_process(center: Path) -> dict[str, np.ndarray]:
    spec = read_coordinator(center)
    parties = [as_deployed(read_party(center.parent / name / "party.toml")) for name in NAMES]
    federation = federation_over(LocalNetwork(parties, spec.rows()), spec.rows(), seed=spec.seed)
    list(federation.rounds(spec.make_protocol()))
    return {party.name: party.trainer.learner.predict(spec.rows().X) for party in parties}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name in NAMES:
        np.testing.assert_array_equal(one[name], other[name])


def question(message: Message) -> tuple:
    return decode(message.content.array_records["consilience"]["consilience"].data)


def breaking(usual: Node, when: Callable[[tuple], bool]) -> Node:
    """A node at which the coordinator is killed, before or after the party has answered."""

    def answer(message: Message) -> list[Message]:
        if when(question(message)):
            raise KeyboardInterrupt
        return usual(message)

    return answer


def test_the_same_bits_as_in_one_process(run: Path) -> None:
    assert served(run, grid(run)) is True
    same(predictions(run), in_process(run))
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.read("SELECT round FROM rounds ORDER BY round") == [(0,), (1,), (2,)]
        assert ledger.read("SELECT status FROM method_runs") == [("done",)]
        assert ledger.read("SELECT count(*) FROM deliveries WHERE status != 'ok'") == [(0,)]
    found = coordinator_status(run)
    assert (found.state, found.round, found.rounds) == ("done", 2, 2)
    assert [party.party for party in found.parties] == list(NAMES)
    assert all(party.bytes_up and "accuracy" in party.metrics for party in found.parties)
    sent = len((nodes := grid(run)).sent)
    assert served(run, nodes) is True  # a finished run is left as it is
    assert len(nodes.sent) - sent <= 2 * len(NAMES)  # joined and restored, no more


def test_a_party_that_does_not_let_itself_be_measured_is_kept_all_the_same(run: Path) -> None:
    path = run.parent / "south" / "party.toml"
    tasks = ["Describe", "Join", "FitPrivate", "PredictPublic", "ScorePublic", "Distill"]
    tasks.append("Restore")
    allowed = f"[limits]\nallow = {json.dumps(tasks)}"
    path.write_text(path.read_text().replace("[limits]", allowed))
    nodes = grid(run)
    nodes.nodes[100] = breaking(nodes.nodes[100], lambda tasks: tasks[0].round == 2)
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    assert served(run, grid(run)) is True
    same(predictions(run), in_process(run))
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.read("SELECT DISTINCT party FROM metrics") == [("north",)]


def limited(run: Path, name: str, limits: str) -> None:
    """Give a party another line of limits."""
    path = run.parent / name / "party.toml"
    path.write_text(path.read_text().replace("[limits]", f"[limits]\n{limits}"))


def measured(run: Path, party: str) -> list[int]:
    """The rounds after which it was."""
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        found = ledger.read("SELECT DISTINCT round FROM metrics WHERE party = ?", party)
    return [round for (round,) in found]


@pytest.mark.parametrize(
    ("asked", "north", "south"),
    [(2, [3], [0, 3]), (9, [3], [0, 1, 3]), (0, [], [])],
)
def test_parties_are_measured_as_often_as_they_allow(
    run: Path, asked: int, north: list[int], south: list[int]
) -> None:
    """North once, which is after the last round, south three times; nobody is asked in vain."""
    limited(run, "south", "metrics = 3")
    path = run / "coordinator.toml"
    text = path.read_text().replace("rounds = 2", "rounds = 3")
    path.write_text(text.replace("metrics = 2", f"metrics = {asked}"))
    assert served(run, grid(run)) is True
    assert (measured(run, "north"), measured(run, "south")) == (north, south)
    found = coordinator_status(run).parties
    assert [(one.left_out, one.why) for one in found] == [(0, "")] * 2
    assert [one.measured for one in found] == [
        rounds[-1] if rounds else -1 for rounds in (north, south)
    ]


@pytest.mark.parametrize(("number", "answered"), [(0, True), (2, True), (2, False)])
def test_a_crash_while_it_is_measured_costs_a_party_no_second_answer(
    run: Path, number: int, answered: bool
) -> None:
    """The coordinator is killed before or after north has answered; then each has said it once."""
    for name in NAMES:
        limited(run, name, "metrics = 2")
    nodes = grid(run)
    usual = nodes.nodes[100]

    def killed(message: Message) -> list[Message]:
        task = question(message)[0]
        if isinstance(task, Evaluate) and task.round == number:
            if answered:
                usual(message)
            raise KeyboardInterrupt
        return usual(message)

    nodes.nodes[100] = killed
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    assert number not in measured(run, "north")
    assert served(run, grid(run)) is True
    same(predictions(run), in_process(run))
    for name in NAMES:
        assert measured(run, name) == [0, 2]
        session = read_session(run.parent / name / "state")
        assert (session.metrics, session.measured) == (2, 2)


def test_who_says_no_to_being_measured_is_not_left_out(run: Path) -> None:
    """South allowed it when it was asked who it is, and does so no more."""
    nodes, usual = grid(run), node(run.parent / "south")

    def narrower(message: Message) -> list[Message]:
        if isinstance(question(message)[0], Evaluate):
            limited(run, "south", "metrics = 0")
        return usual(message)

    nodes.nodes[99] = narrower
    assert served(run, nodes) is True
    found = {party.party: party for party in coordinator_status(run).parties}
    assert (found["south"].left_out, found["south"].why, found["south"].measured) == (0, "", -1)
    assert found["north"].measured == 2
    line = last_line(run)
    assert "2 of 2 parties, accuracy" in line and "left out" not in line
    status = party_status(run.parent / "south" / "party.toml")
    assert "said no" not in status["state"] and "limits.metrics" in status["last_refusal"]


def test_who_does_not_train_is_named_as_left_out(run: Path) -> None:
    """Its node answers: it looks well, and its rows are in no teacher."""
    nodes, usual = grid(run), node(run.parent / "south")

    def narrower(message: Message) -> list[Message]:
        task = question(message)[0]
        if isinstance(task, FitPrivate) and task.round == 2:
            limited(run, "south", 'allow = ["Describe", "Join", "TakePublic"]')
        return usual(message)

    nodes.nodes[99] = narrower
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("quorum = 0.5", "quorum = 1"))
    assert served(run, nodes) is True
    found = {party.party: party for party in coordinator_status(run).parties}
    assert found["south"].why.startswith("round 2: limits.allow") and not found["north"].why
    line = last_line(run)
    assert "1 of 2 parties, " in line and "left out: south (limits.allow" in line


def test_a_run_with_more_rounds_later_does_not_ask_again(run: Path) -> None:
    assert served(run, grid(run)) is True
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 3"))
    nodes = grid(run)
    assert served(run, nodes) is True
    assert "Evaluate" not in asked(nodes, 99)
    assert measured(run, "south") == [2]


def test_what_parties_note_is_in_the_status(run: Path) -> None:
    path = run / "coordinator.toml"
    text = path.read_text().replace("rounds = 2", "rounds = 2\nalpha = 0.05")
    path.write_text(text)
    assert served(run, grid(run)) is True
    found = {party.party: party.notes for party in coordinator_status(run).parties}
    assert found["north"] == ("private rows weigh 0.1, its least, and not 0.05",)


CRASHES = [(3,), (4, 2), (5,), (6, 1, 2), (7, 3), (8,)]
# The coordinator asks both parties the same: the usual suite has one of them, by turns.
PLACES = [
    pytest.param(crashes, party, marks=() if i % 2 == j else pytest.mark.slow)
    for i, crashes in enumerate(CRASHES)
    for j, party in enumerate(NAMES)
]


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(("crashes", "party"), PLACES)
def test_crashes_anywhere_give_the_same_bits(
    run: Path, crashes: tuple[int, ...], party: str, answered: bool
) -> None:
    """The coordinator is killed at the n-th message to a party, before or after the answer, and again."""
    for (
        name
    ) in NAMES:  # networks go on from where they are: no answer may be lost, and none counts twice
        path = run.parent / name / "party.toml"
        model = '[model]\nname = "mlp"\nhidden = [4]\nrecipe = {epochs = 2, batch_size = 16}\n#'
        path.write_text(path.read_text().replace("[model]\n", model))
    for number in crashes:
        nodes, left = grid(run), iter(range(1, number))
        (place,) = (info.node_id for info in nodes.infos.values() if info.name == party)

        def killed(
            message: Message, left: Iterator[int] = left, usual: Node = nodes.nodes[place]
        ) -> list[Message]:
            if next(left, None) is not None:
                return usual(message)
            if answered:
                usual(message)
            raise KeyboardInterrupt

        nodes.nodes[place] = killed
        with pytest.raises(KeyboardInterrupt):
            begun(run, nodes)
    assert served(run, grid(run)) is True
    same(predictions(run), in_process(run))
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.read("SELECT * FROM deliveries WHERE status != 'ok'") == []


def test_a_party_that_is_away_when_a_run_goes_on_comes_back(run: Path) -> None:
    nodes = grid(run)
    nodes.nodes[100] = breaking(nodes.nodes[100], lambda tasks: tasks[0].round == 2)
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("wait = 600", "wait = 0.01"))
    nodes = grid(run)
    gone = nodes.infos.pop(99)

    def back(message: Message) -> list[Message]:
        if isinstance(question(message)[0], Distill):
            nodes.infos[99] = gone
        return usual(message)

    usual, nodes.nodes[100] = nodes.nodes[100], back
    assert served(run, nodes) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        (status,) = ledger.read(
            "SELECT status FROM deliveries WHERE party = 'south' ORDER BY rowid DESC LIMIT 1"
        )
        (last,) = ledger.read("SELECT max(round) FROM metrics WHERE party = 'south'")
    assert (status, last) == (("ok",), (2,))


def losing_its_state(run: Path) -> Grid:
    """Three rounds, in the first of which south's state is gone before it learns from the teacher."""
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 3"))
    nodes, usual = grid(run), node(run.parent / "south")

    def lost(message: Message) -> list[Message]:
        tasks = question(message)
        if isinstance(tasks[0], Distill) and tasks[0].round == 1:
            shutil.rmtree(run.parent / "south" / "state")
        return usual(message)

    nodes.nodes[99] = lost
    return nodes


def test_a_party_whose_state_is_gone_joins_anew(run: Path) -> None:
    assert served(run, losing_its_state(run)) is True
    assert rounds_of(run, "south") == [2, 3]


def three(run: Path) -> Grid:
    """A third party, east, with north's rows."""
    home = run.parent / "east"
    shutil.copytree(run.parent / "north", home)
    (home / "party.key").unlink()
    (home / "party.toml").write_text((home / "party.toml").read_text().replace("north", "east"))
    key = party_key(read_party(home / "party.toml"))
    with (run / "coordinator.toml").open("a") as file:
        file.write(f'"east" = "{key}"\n')
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    return nodes


@pytest.mark.parametrize("kind", ["labelled", "learns only"])
def test_a_party_that_is_added_later_takes_part_in_the_next_round(run: Path, kind: str) -> None:
    assert served(run, grid(run)) is True
    path = run / "coordinator.toml"
    nodes = three(run)
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 3"))
    toml = run.parent / "east" / "party.toml"
    if kind != "labelled":
        toml.write_text(toml.read_text().replace("[data]", "[data]\nlabels = false"))
    assert served(run, nodes) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        found = ledger.read(
            "SELECT tasks, status FROM deliveries WHERE party = 'east' AND round = 3"
        )
        assert ledger.meta["learners"] == ([] if kind == "labelled" else ["east"])
    tasks = {part for names, status in found if status == "ok" for part in names.split("+")}
    assert "Distill" in tasks and ("PredictPublic" in tasks) == (kind == "labelled")
    assert {status for _, status in found} == {"ok"}


def other_rows(home: Path) -> None:
    (home / "public.csv").write_text("age,pressure\n50,100\n")


def other_classes(home: Path) -> None:
    text = (home / "patients.csv").read_text()
    (home / "patients.csv").write_text(text.replace("yes", "1").replace("no", "0"))


def narrow_limits(home: Path) -> None:
    text = (home / "party.toml").read_text()
    (home / "party.toml").write_text(text.replace('"center"', '"another"'))


REFUSALS = {
    other_rows: "public data are not the ones agreed on",
    other_classes: "labels of classes that were not agreed on",
    narrow_limits: "limits.federation",
}


@pytest.mark.parametrize("refuse", REFUSALS, ids=lambda refuse: refuse.__name__)
def test_a_party_that_does_not_join_is_left_out_until_it_does(
    run: Path, refuse: Callable[[Path], None]
) -> None:
    nodes, home = three(run), run.parent / "south"
    toml = (home / "party.toml").read_text().replace("../public.csv", "public.csv")
    (home / "party.toml").write_text(toml)
    shutil.copy(run.parent / "public.csv", home / "public.csv")
    right = {file: file.read_bytes() for file in home.iterdir() if file.is_file()}
    refuse(home)
    usual, seen = nodes.nodes[100], []

    def mended(message: Message) -> list[Message]:
        """South is mended in round 1, whose end it joins at; its status was seen before that."""
        tasks = question(message)
        if isinstance(tasks[0], Distill) and tasks[0].round == 1:
            seen.extend(coordinator_status(run).parties)
            for file, content in right.items():
                file.write_bytes(content)
        return usual(message)

    nodes.nodes[100] = mended
    assert served(run, nodes) is True
    (south,) = (party for party in seen if party.party == "south")
    assert f"it has not joined: {'' if refuse is narrow_limits else 'party '}" in south.why
    assert REFUSALS[refuse] in south.why
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        measured = ledger.read("SELECT round FROM metrics WHERE party = 'south' GROUP BY round")
        assert measured == [(2,)]
        assert ledger.meta["excluded"] == {}


def test_who_joins_after_a_round_is_not_measured_in_it(run: Path) -> None:
    """South joins when round 0 is complete: its model is untrained, and its limit counts what it is asked."""
    limited(run, "south", "metrics = 3")
    path, home = run / "coordinator.toml", run.parent / "south" / "party.toml"
    path.write_text(path.read_text().replace("metrics = 2", "metrics = 9"))
    nodes, usual, allowed = grid(run), node(run.parent / "south"), home.read_text()

    def narrow_at_first(message: Message) -> list[Message]:
        first = isinstance(question(message)[0], Join) and "Join" not in asked(nodes, 99)[:-1]
        narrowed = allowed.replace("[limits]", '[limits]\nallow = ["Describe"]')
        home.write_text(narrowed if first else allowed)
        return usual(message)

    nodes.nodes[99] = narrow_at_first
    assert served(run, nodes) is True
    joined = ["Describe", "Join", "Join"]
    assert asked(nodes, 99)[:4] == [*joined, "PredictPublic"]
    assert measured(run, "south") == [2]


def test_where_too_few_join_the_status_says_who_and_why(run: Path) -> None:
    nodes = three(run)
    for name in ("north", "south"):
        narrow_limits(run.parent / name)
    with pytest.raises(RunFailed, match="1 of 3 parties answered Describe"):
        served(run, nodes)
    found = coordinator_status(run)
    assert (found.state, found.round) == ("stopped", -1)
    assert "the quorum is 0.5" in found.notes[0] and "north (refused: " in found.notes[0]
    whys = {party.party: party.why for party in found.parties}
    assert "limits.federation" in whys["north"] and "limits.federation" in whys["south"]
    assert whys["east"] == ""


def test_a_run_that_goes_on_knows_who_has_not_joined(run: Path) -> None:
    nodes = three(run)
    other_rows(run.parent / "south")
    toml = run.parent / "south" / "party.toml"
    toml.write_text(toml.read_text().replace("../public.csv", "public.csv"))
    nodes.nodes[100] = breaking(nodes.nodes[100], lambda tasks: tasks[0].round == 2)
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(run.parent / "east"), Info(98, "east")
    assert served(run, nodes) is True
    sent = [question(m)[0] for m in nodes.sent if m.metadata.dst_node_id == 99]
    assert {type(task) for task in sent} == {Join}  # south is asked nothing else


def test_who_missed_what_the_protocol_made_sure_of_stays_outside(run: Path) -> None:
    path = run / "coordinator.toml"
    text = path.read_text().replace('aggregate = "uwa"', 'protocol = "averaged_distillation"')
    text = text.replace('name = "ensemble_distillation"\n', "")
    path.write_text(text.replace('public = "../public.csv"', ""))
    nodes = three(run)
    for name in ("north", "east", "south"):
        toml = run.parent / name / "party.toml"
        toml.write_text(toml.read_text().replace('public = "../public.csv"', ""))
        if name != "south":
            limits = '[limits]\nallow = ["predictions", "models"]'
            toml.write_text(toml.read_text().replace("[limits]", limits))
    assert served(run, nodes) is True
    found = {party.party: party for party in coordinator_status(run).parties}
    assert "does not let 'CheckSharing' be asked" in found["south"].why
    asked = [question(m)[0] for m in nodes.sent if m.metadata.dst_node_id == 99]
    assert [type(task).__name__ for task in asked] == ["Describe", "Join", "CheckSharing"]


def test_what_goes_wrong_is_written_with_its_kind(run: Path) -> None:
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace('"../public.csv"', '"nothing.csv"'))
    with pytest.raises(InvalidInput, match=r"nothing\.csv"):
        served(run, grid(run))
    (run / "run" / OUTCOME).write_text(json.dumps({"status": "failed", "what": "no"}))
    with pytest.raises(RunFailed, match="no"):
        outcome(run)
    (run / "run" / OUTCOME).unlink()
    assert outcome(run) is False


def test_a_run_is_conducted_once_at_a_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is, nobody asks Flower how it does, with a command that costs seconds."""
    link = superlink.SuperLink(run, Processes(run / "run" / "flower", "the test"), 1)
    monkeypatch.setattr(Processes, "ended", lambda *_: None)
    monkeypatch.setattr(superlink, "flwr", lambda *_: {"runs": []})
    assert not link.busy()
    link._ask_at = 0.0
    with closing(locked(run / "run")):
        assert link.busy()
        with pytest.raises(InvalidInput, match="going on in another process"):
            served(run, grid(run), lock=0.1)


@pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # Flower's
def test_a_database_of_a_newer_flower_is_refused_with_what_to_do(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SuperLink here says what Flower's own migration says of such a database."""
    from alembic.util import CommandError
    from flwr.supercore.state.alembic.utils import run_migrations
    from sqlalchemy import create_engine

    home = run / "run" / "flower"
    with Processes(home, "the test") as processes:
        with closing(sqlite3.connect(home / "superlink.sqlite")) as database:
            database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
            database.execute("INSERT INTO alembic_version VALUES ('of_the_future')")
            database.commit()
        engine = create_engine(f"sqlite:///{home / 'superlink.sqlite'}")
        with pytest.raises(CommandError) as error:
            run_migrations(engine)
        engine.dispose()
        (home / "nodes.json").write_text(json.dumps({"keys": {}, "nodes": {}}))
        programs = run / "bin"
        programs.mkdir()
        (programs / "flower-superlink").write_text(f'#!/bin/sh\necho "{error.value}"; exit 1\n')
        (programs / "flower-superlink").chmod(0o700)
        monkeypatch.setattr(superlink, "BIN", programs)
        link = superlink.SuperLink(run, processes, free_port())
        with pytest.raises(
            RunFailed, match=rf"a newer Flower wrote the .*\({version('flwr')}\)"
        ) as refused:
            link.start({})
        assert (home / "superlink.sqlite").exists()
        # What the error names is what has to be deleted.
        assert (
            refused.value.mend is not None and f"delete {home / 'nodes.json'}" in refused.value.mend
        )
        (home / "nodes.json").unlink()
        with pytest.raises(RunFailed):
            link.start({})
        assert not (home / "superlink.sqlite").exists()


# --- public rows from the coordinator -------------------------------------------------------------


def without_file(run: Path, *names: str) -> None:
    """Have parties wait for the public rows."""
    for name in names:
        path = run.parent / name / "party.toml"
        path.write_text(path.read_text().replace('public = "../public.csv"\n', ""))


def asked(nodes: Grid, number: int) -> list[str]:
    """What a node was asked, in order; 99 is south."""
    sent = [question(m)[0] for m in nodes.sent if m.metadata.dst_node_id == number]
    return [type(task).__name__ for task in sent]


def public_sent(run: Path) -> list[tuple[str, str]]:
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        return ledger.read("SELECT party, status FROM deliveries WHERE tasks = 'TakePublic'")


def test_rows_are_sent_once_to_who_has_none_and_give_the_same_bits(run: Path) -> None:
    without_file(run, "south")
    assert served(run, grid(run)) is True
    same(predictions(run), in_process(run))
    assert public_sent(run) == [("south", "ok")]
    size = len(encode([TakePublic.of(read_coordinator(run).rows())]))
    found = {party.party: party.public_sent for party in coordinator_status(run).parties}
    assert found == {"north": 0, "south": size}
    home = run.parent / "south"
    entries = read_log(home / "state" / AUDIT).entries
    assert [entry["tasks"] for entry in entries].count("TakePublic") == 1
    key = read_coordinator(run).rows().key
    assert party_status(home / "party.toml")["public_rows"] == f"from the coordinator, digest {key}"
    north = party_status(run.parent / "north" / "party.toml")
    assert north["public_rows"] == str(run.parent / "north" / ".." / "public.csv")
    shutil.rmtree(run / "run")  # another run with the same rows: they are known by their digest
    (run / "run").mkdir()
    Ledger(run / "run" / "ledger.sqlite", create=True).close()
    nodes = grid(run)
    assert served(run, nodes) is True
    assert "TakePublic" not in asked(nodes, 99)


def test_rows_are_sent_again_to_a_party_that_lost_them(run: Path) -> None:
    without_file(run, "south")
    assert served(run, losing_its_state(run)) is True
    assert public_sent(run) == [("south", "ok"), ("south", "ok")]
    assert rounds_of(run, "south") == [2, 3]


@pytest.mark.parametrize("moment", [Describe, TakePublic, Join], ids=lambda task: task.__name__)
def test_a_crash_while_rows_are_sent(run: Path, moment: type) -> None:
    without_file(run, "south")
    nodes = grid(run)
    nodes.nodes[100] = breaking(nodes.nodes[100], lambda tasks: isinstance(tasks[0], moment))
    nodes.nodes[99] = breaking(nodes.nodes[99], lambda tasks: isinstance(tasks[0], moment))
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    nodes = grid(run)
    assert served(run, nodes) is True
    same(predictions(run), in_process(run))
    assert asked(nodes, 99).count("TakePublic") == (0 if moment is Join else 1)


def narrow_bytes(home: Path) -> None:
    path = home / "party.toml"
    path.write_text(path.read_text().replace("[limits]", "[limits]\npublic_bytes = 7"))


def fewer_columns(home: Path) -> None:
    path = home / "party.toml"
    path.write_text(path.read_text().replace("[data]", '[data]\ncolumns = ["age"]'))


NOT_TAKEN = {
    narrow_bytes: "limits.public_bytes",
    fewer_columns: "there is no input column 'pressure', which the public rows have",
}


@pytest.mark.parametrize("refuse", NOT_TAKEN, ids=lambda refuse: refuse.__name__)
def test_a_party_that_does_not_take_the_rows_is_left_out_until_it_does(
    run: Path, refuse: Callable[[Path], None]
) -> None:
    nodes, home = three(run), run.parent / "south"
    without_file(run, "south", "east")
    toml, seen = (home / "party.toml").read_text(), []
    refuse(home)
    usual = nodes.nodes[100]

    def mended(message: Message) -> list[Message]:
        """South is mended in round 1, whose end it joins at; its status was seen before that."""
        tasks = question(message)
        if isinstance(tasks[0], Distill) and tasks[0].round == 1:
            seen.extend(coordinator_status(run).parties)
            (home / "party.toml").write_text(toml)
        return usual(message)

    nodes.nodes[100] = mended
    assert served(run, nodes) is True
    (south,) = (party for party in seen if party.party == "south")
    assert "it has not joined: party " in south.why
    assert NOT_TAKEN[refuse] in south.why
    narrow = refuse is narrow_bytes  # then nothing is sent before it takes as much
    before = ["Describe", "Describe", "Join"] if narrow else ["TakePublic", "Join", "TakePublic"]
    assert asked(nodes, 99)[:4] == ["Describe", *before]
    assert asked(nodes, 99).count("TakePublic") == (1 if narrow else 3)
    assert asked(nodes, 98).count("TakePublic") == 1
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        measured = ledger.read("SELECT round FROM metrics WHERE party = 'south' GROUP BY round")
        assert measured == [(2,)]
        assert ledger.meta["excluded"] == {}


def test_where_too_few_take_the_rows_nothing_starts(run: Path) -> None:
    without_file(run, "north", "south")
    for name in NAMES:
        narrow_bytes(run.parent / name)
    with pytest.raises(RunFailed, match="0 of 2 parties answered Describe"):
        served(run, grid(run))
    found = coordinator_status(run)
    assert found.round == -1 and "limits.public_bytes" in found.notes[0]


def rounds_of(run: Path, party: str) -> list[int]:
    """Those in which a party learned from the teacher."""
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        taught = "tasks = 'Distill' AND status = 'ok'"
        found = ledger.read(f"SELECT round FROM deliveries WHERE party = ? AND {taught}", party)
    return [round for (round,) in found]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_party_that_lost_its_rows_alone_goes_on(run: Path, damaged: bool) -> None:
    """It misses what it is asked in that round, and is sent them at its end; its model stays."""
    without_file(run, "south")
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 4"))
    nodes, usual = grid(run), node(run.parent / "south")

    def lost(message: Message) -> list[Message]:
        tasks = question(message)
        if isinstance(tasks[0], Distill) and tasks[0].round == 1:
            (file,) = (run.parent / "south" / "state" / "public-rows").iterdir()
            file.write_bytes(b"damaged") if damaged else file.unlink()
        return usual(message)

    nodes.nodes[99] = lost
    assert served(run, nodes) is True
    assert public_sent(run) == [("south", "ok"), ("south", "ok")]
    assert rounds_of(run, "south") == [2, 3, 4]
    assert asked(nodes, 99).count("Join") == 1


def test_a_run_that_goes_on_sends_rows_to_a_party_that_lost_them_meanwhile(run: Path) -> None:
    without_file(run, "south")
    nodes = grid(run)
    nodes.nodes[100] = breaking(nodes.nodes[100], lambda tasks: tasks[0].round == 2)
    with pytest.raises(KeyboardInterrupt):
        begun(run, nodes)
    shutil.rmtree(run.parent / "south" / "state" / "public-rows")
    nodes = grid(run)
    assert served(run, nodes) is True
    assert asked(nodes, 99)[:3] == ["Restore", "TakePublic", "Restore"]
    same(predictions(run), in_process(run))


@pytest.mark.parametrize("refuse", NOT_TAKEN, ids=lambda refuse: refuse.__name__)
def test_a_party_that_never_takes_the_rows_costs_little(
    run: Path, refuse: Callable[[Path], None]
) -> None:
    """They are sent so many times at most, not at all where it said that they are too large."""
    nodes = three(run)
    without_file(run, "south")
    refuse(run.parent / "south")
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 3"))
    assert served(run, nodes, sends=1) is True
    tasks = asked(nodes, 99)
    if refuse is narrow_bytes:
        assert set(tasks) == {"Describe"} and len(tasks) <= 1 + 3  # one question a round
    else:
        assert tasks.count("TakePublic") == 1 and tasks[-2:] == ["Join", "Join"]
    (south,) = (party for party in coordinator_status(run).parties if party.party == "south")
    assert "it has not joined" in south.why


def test_a_member_that_says_for_ever_that_it_lacks_the_rows(run: Path) -> None:
    nodes, usual = three(run), node(run.parent / "south")
    without_file(run, "south")
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 3"))

    def lacking(message: Message) -> list[Message]:
        if question(message)[0].round:
            shutil.rmtree(run.parent / "south" / "state" / "public-rows", ignore_errors=True)
        return usual(message)

    nodes.nodes[99] = lacking
    assert served(run, nodes, sends=2) is True
    assert asked(nodes, 99).count("TakePublic") == 2
    assert rounds_of(run, "north") == [1, 2, 3]


def test_the_specification_is_kept_whole(run: Path) -> None:
    spec = read_coordinator(run)
    assert CoordinatorSpec.model_validate_json(spec.model_dump_json()) == spec


def set_back(run: Path, rounds: int, *, wait: str = "600") -> None:
    """Do six rounds, and put the coordinator's folder back to a copy of earlier ones."""
    path = run / "coordinator.toml"
    text = path.read_text().replace("wait = 600", f"wait = {wait}")
    path.write_text(text.replace("rounds = 2", f"rounds = {rounds}"))
    assert served(run, grid(run)) is True
    shutil.copytree(run / "run", run.parent / "copy")
    path.write_text(text.replace("rounds = 2", "rounds = 6"))
    assert served(run, grid(run)) is True
    shutil.rmtree(run / "run")
    shutil.copytree(run.parent / "copy", run / "run")


def test_set_back_while_a_party_is_away_it_joins_anew_once_it_is_there(run: Path) -> None:
    """What it has learned in rounds that nobody remembers teaches nobody."""
    set_back(run, 2, wait="0.01")
    nodes = grid(run)
    usual, away = nodes.nodes[100], nodes.infos.pop(99)

    def back(message: Message) -> list[Message]:
        if isinstance(task := question(message)[0], Distill) and task.round == 3:
            nodes.infos[99] = away
        return usual(message)

    nodes.nodes[100] = back
    assert served(run, nodes) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        said = ledger.read(
            "SELECT round, tasks, status FROM deliveries WHERE party = 'south' AND within > 3 "
            "AND status != 'failed' ORDER BY rowid"
        )
    assert said[:2] == [(4, "FitPrivate+PredictPublic+ScorePublic", "refused"), (0, "Join", "ok")]
    taught = [round for round, tasks, status in said if (tasks, status) == ("Distill", "ok")]
    assert taught == [5, 6]


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_set_back_to_a_copy_the_run_goes_on(run: Path, behind: int) -> None:
    """Parties keep a state of one round alone: who has none of that round joins anew."""
    set_back(run, 6 - behind)
    assert served(run, grid(run)) is True
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.last_round()[0] == 6
        joined = ledger.read("SELECT party FROM deliveries WHERE tasks = 'Join' AND status = 'ok'")
        taught = ledger.read(
            "SELECT party FROM deliveries WHERE tasks = 'Distill' AND status = 'ok'"
        )
    assert len(joined) == len(NAMES) * (1 if behind == 1 else 2)
    assert len(taught) == len(NAMES) * 6

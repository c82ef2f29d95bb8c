"""Rounds that do not wait for the late, whose answers are not lost; runs that end when nothing changes."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.messages.wire import decode
from consilience.core.tasks.lifecycle import Evaluate
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.checks import _is_done
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.coordinator.pace import PaceSpec, teacher_change
from consilience.sites.coordinator.status import coordinator_status
from helpers.deployed_run import assert_same_models_in_one_process, grid, served
from helpers.flower_grid import Message, in_a_run


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


def paced(run: Path, section: str, rounds: int) -> None:
    path = run / "coordinator.toml"
    text = path.read_text().replace("rounds = 2", f"rounds = {rounds}")
    path.write_text(text.replace("[parties]", f"[pace]\n{section}\n[parties]"))


def read(run: Path, query: str) -> list[tuple[object, ...]]:
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        return ledger.read(query)


def test_where_nobody_is_late_the_bits_are_the_same(run: Path) -> None:
    paced(run, "share = 0.5\nage = 3", 2)
    assert served(run, grid(run)) is True
    assert_same_models_in_one_process(run)


@pytest.mark.parametrize("age", [1, 0])
def test_an_answer_that_is_late_counts_in_the_next_round(run: Path, age: int) -> None:
    """South's first predictions arrive in round 2, where it is silent; then it is there again."""
    paced(run, f"share = 0.5\nage = {age}", 3)
    nodes = grid(run)
    north, south, held = nodes.nodes[100], nodes.nodes[99], []

    def slow(message: Message) -> list[Message]:
        tasks = decode(message.content.array_records["consilience"]["consilience"].data)
        names = [type(task).__name__ for task in tasks]
        if "PredictPublic" not in names or tasks[0].round == 3:
            return south(message)
        held.extend(south(message) if tasks[0].round == 1 else [])
        return []

    def meanwhile(message: Message) -> list[Message]:
        tasks = decode(message.content.array_records["consilience"]["consilience"].data)
        late = [held.pop()] if tasks[0].round == 2 and held else []
        return [*late, *north(message)]

    nodes.nodes[99], nodes.nodes[100] = slow, meanwhile
    assert served(run, nodes) is True
    said = read(run, "SELECT round, text FROM notes WHERE text LIKE '%absent%'")
    once = [(2, "south is absent: its answer of 1 rounds ago counts by 0.5")]
    assert said == (once if age else [])
    late = "SELECT round, within, left FROM deliveries WHERE detail LIKE 'arrived after its time%'"
    assert [one[:2] for one in read(run, late)] == [(1, 2)]
    taught = "SELECT round FROM deliveries WHERE party = 'south' AND tasks = 'Distill' ORDER BY 1"
    assert read(run, taught) == ([(1,), (2,), (3,)] if age else [(3,)])
    assert read(run, "SELECT round FROM rounds") == [(0,), (1,), (2,), (3,)]


def test_who_is_through_with_a_round_is_waited_for_and_who_is_at_work_is_not(run: Path) -> None:
    """South is slow to measure itself; from round 2 on nothing is heard of it."""
    paced(run, "share = 0.5", 3)
    path, home = run / "coordinator.toml", run.parent / "south" / "party.toml"
    path.write_text(path.read_text().replace("timeout = 600", "timeout = 30"))
    home.write_text(home.read_text().replace("[limits]", "[limits]\nmetrics = 2"))
    nodes, held, looks = grid(run), list[Message](), count(1)
    south, usual = nodes.nodes[99], nodes.pull_messages

    def slow(message: Message) -> list[Message]:
        tasks = decode(message.content.array_records["consilience"]["consilience"].data)
        if tasks[0].round > 1:
            return []
        if not isinstance(tasks[0], Evaluate):
            return south(message)
        held.extend(south(message))
        return []

    def looked(identities: list[str]) -> list[Message]:
        if held and next(looks) % 3 == 0:
            nodes.replies.append(held.pop())
        return usual(identities)

    nodes.nodes[99], nodes.pull_messages = slow, looked
    assert served(run, nodes) is True
    assert read(run, "SELECT DISTINCT round FROM metrics WHERE party = 'south'") == [(0,)]
    assert not read(run, "SELECT round, tasks FROM deliveries WHERE seconds >= 30")


def test_a_run_ends_when_its_teacher_stays(run: Path) -> None:
    """Any change is small enough: the teachers of rounds 2 and 3 count as those before them."""
    paced(run, "early_stop = 2\nstill = 9.0", 20)
    assert served(run, grid(run)) is True
    assert read(run, "SELECT max(round) FROM rounds") == [(3,)]
    found = coordinator_status(run)
    assert (found.state, found.round) == ("done", 3)
    assert all(party.measured == 3 for party in found.parties)
    assert _is_done(run, read_coordinator(run))
    assert served(run, grid(run)) is True
    assert read(run, "SELECT max(round) FROM rounds") == [(3,)]
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("early_stop = 2", "early_stop = 4"))
    assert not _is_done(run, read_coordinator(run))
    assert served(run, grid(run)) is True  # it counts on where it was
    assert read(run, "SELECT max(round) FROM rounds") == [(5,)]


def test_one_that_changes_goes_on(run: Path) -> None:
    paced(run, "early_stop = 1\nstill = 1e-9", 3)
    assert served(run, grid(run)) is True
    assert read(run, "SELECT max(round) FROM rounds") == [(3,)]


def test_the_change_of_values_is_relative_to_their_spread() -> None:
    old = np.array([[0.0], [2.0]])  # standard deviation 1
    assert teacher_change(old, old + 0.5) == pytest.approx(0.5)
    pace = PaceSpec(early_stop=2, still=0.5)
    assert [pace.rounds_still(1, old, old + by) for by in (0.4, 0.6)] == [2, 0]
    assert pace.rounds_still(1, None, old) == 0


@pytest.mark.parametrize(
    ("method", "section", "said"),
    [
        ('protocol = "averaged_distillation"', "age = 1", "no teacher made of predictions"),
        ('protocol = "averaged_distillation"', "early_stop = 1", "no teacher"),
        ('aggregate = "avg"', "age = 1", "nobody has a single party's last answer"),
        ('aggregate = "uwa"', "share = 0", "pace.share"),
        ('aggregate = "uwa"', "agee = 1", "agee"),
    ],
)
def test_what_cannot_be_is_refused_beforehand(
    center: Path, method: str, section: str, said: str
) -> None:
    paced(center, section, 2)
    path = center / "coordinator.toml"
    text = path.read_text().replace('aggregate = "uwa"', method)
    if "protocol" in method:
        text = text.replace('name = "ensemble_distillation"\n', "")
    if "avg" in method:
        text = text.replace("rounds = 2", "rounds = 2\nsecure_aggregation = {}")
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_coordinator(center)

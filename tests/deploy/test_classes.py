"""Classes that are added while a run goes on: named by the operator, considered by every party."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import Federation
from consilience.deployment.coordinator.classes import add_class, remove_class
from consilience.deployment.coordinator.configuration import read_coordinator, store_coordinator
from consilience.deployment.coordinator.membership import MembershipNetwork
from consilience.deployment.coordinator.parties import leave
from consilience.deployment.coordinator.status import coordinator_status
from consilience.errors import InvalidInput, RunFailed
from consilience.federation.ledger import Ledger
from consilience.messages.wire import decode
from consilience.networks import LocalNetwork
from consilience.site import read_party
from consilience.tasks.lifecycle import ConsiderClasses
from consilience.tasks.predictions import Distill, PredictPublic
from helpers.deployed_run import NAMES, attended, east, grid, node, rounds, served
from helpers.flower_grid import Grid, Info, Message, in_a_run
from helpers.party_sites import as_deployed


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


def asked(message: Message) -> Any:
    return decode(message.content.array_records["consilience"]["consilience"].data)


def during(nodes: Grid, round: int, then: Callable[[], object], kind: type = Distill) -> None:
    """Do something once, while north is asked in a round."""
    usual, done = nodes.nodes[100], []

    def answer(message: Message) -> list[Message]:
        if not done and any(
            isinstance(task, kind) and task.round == round for task in asked(message)
        ):
            done.append(then())
        return usual(message)

    nodes.nodes[100] = answer


def name_class(run: Path, name: str = "perhaps") -> None:
    """Name a class, as the operator and the coordinator's process do."""
    add_class(run, name)
    store_coordinator(read_coordinator(run), run)


def third(run: Path, party: str = "south") -> str:
    """Make every third row of a party one of a third class; gives the rows of before."""
    file = run.parent / party / "patients.csv"
    before = file.read_text()
    header, *lines = before.splitlines()
    lines = [
        f"{one.rpartition(',')[0]},perhaps" if i % 3 == 0 else one for i, one in enumerate(lines)
    ]
    file.write_text("\n".join([header, *lines]) + "\n")
    return before


def named_in_round_2(run: Path) -> tuple[Grid, list[str]]:
    """A grid on which south has the class, and it is named, in round 2; and south's rows of before, then."""
    nodes, old = grid(run), list[str]()

    def named() -> None:
        name_class(run)
        old.append(third(run))

    during(nodes, 2, named)
    return nodes, old


def notes(run: Path) -> list[tuple[int, str]]:
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        return ledger.read(
            "SELECT round, text FROM notes WHERE text LIKE '%class%' AND text NOT LIKE 'malicious%' "
            "ORDER BY rowid"
        )


def said(run: Path) -> str:
    return "\n".join(coordinator_status(run).classes)


def answers(run: Path) -> dict[str, np.ndarray]:
    found = {}
    for name in NAMES:
        with read_party(run.parent / name / "party.toml").site() as site:
            party = site.party()
            assert party is not None and party.agreement is not None
            assert party.agreement.classes == ("no", "perhaps", "yes")
            found[name] = party.predict(party.public.X)
    return found


def assert_as_in_one_process(run: Path, before: str, after: int) -> None:
    """Hold the models against those of one process, where south's class is added after that round."""
    spec, file = read_coordinator(run), run.parent / "south" / "patients.csv"
    now = file.read_text()
    file.write_text(before)
    parties = [as_deployed(read_party(run.parent / name / "party.toml")) for name in NAMES]
    file.write_text(now)
    south = as_deployed(read_party(run.parent / "south" / "party.toml"))
    federation = Federation.over(LocalNetwork(parties, spec.rows()), spec.rows(), seed=spec.seed)
    protocol = spec.make_protocol()
    history = federation.run(protocol.with_options(rounds=after), evaluate=False)
    federation.resume(history, protocol, join=[south], classes=["perhaps"], evaluate=False)
    held = answers(run)
    for party in (parties[0], south):
        np.testing.assert_array_equal(held[party.name], party.predict(spec.rows().X))


def test_a_class_is_added_and_the_bits_are_those_of_one_process(run: Path) -> None:
    """South writes rows of it into its file in mid-round, and is out of it from then on until all agree."""
    rounds(run, 4)
    nodes, old = named_in_round_2(run)
    assert served(run, nodes) is True
    assert attended(run, "north") == [1, 2, 3, 4] and attended(run, "south")[-2:] == [3, 4]
    (added, agreed) = notes(run)
    assert added == (2, "class 'perhaps' was added after round 2")
    assert agreed[0] == 2 and "classes no, perhaps, yes; digest " in agreed[1]
    assert "class 'perhaps' was added after round 2" in said(run)
    assert all(not party.why for party in coordinator_status(run).parties)
    assert_as_in_one_process(run, old[0], 2)
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        assert ledger.read("SELECT round FROM rounds") == [(0,), (1,), (2,), (3,), (4,)]
        (state,) = decode(
            ledger.last_checkpoint(*ledger.read("SELECT method, seed FROM rounds")[0])[1]
        )
        assert state.consensus.shape[1] == 3
    assert (run.parent / "south" / "state" / "audit.jsonl").read_text().count(
        "ConsiderClasses"
    ) == 1


STAGES = ("considered", "recorded", "joined", "in the next round")


@pytest.mark.parametrize("stage", STAGES)
def test_killed_around_the_boundary_nothing_is_lost(
    run: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    rounds(run, 4)
    nodes, old = named_in_round_2(run)
    real, kills = MembershipNetwork.take_on, []

    def killed(*_: Any) -> None:
        if not kills:
            kills.append(stage)
            raise RuntimeError("killed")

    def taking(network: MembershipNetwork, agreement: Any) -> None:
        if stage == "recorded":
            killed()
        real(network, agreement)
        if stage == "joined":
            killed()

    monkeypatch.setattr(MembershipNetwork, "take_on", taking)
    if stage == "considered":
        during(nodes, 0, killed, ConsiderClasses)
    if stage == "in the next round":
        during(nodes, 3, killed)
    assert served(run, nodes) is False and kills
    assert served(run, nodes) is True
    assert attended(run, "north") == [1, 2, 3, 4]
    assert notes(run)[0] == (2, "class 'perhaps' was added after round 2")
    assert_as_in_one_process(run, old[0], 2)


def test_a_coordinator_that_was_stopped_adds_it_before_it_goes_on(run: Path) -> None:
    rounds(run, 2)
    assert served(run, grid(run)) is True
    add_class(run, "perhaps")
    old = third(run)
    assert served(run, grid(run)) is True  # no round follows: nothing is begun anew
    assert notes(run) == []
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 4"))
    assert served(run, grid(run)) is True
    assert notes(run)[0] == (2, "class 'perhaps' was added after round 2")
    assert_as_in_one_process(run, old, 2)


def test_where_all_have_rows_of_it_too_early_the_run_stops_and_is_resumed(run: Path) -> None:
    rounds(run, 3)
    nodes = grid(run)
    during(nodes, 2, lambda: (third(run), third(run, "north")), PredictPublic)
    with pytest.raises(RunFailed, match=r"labels of classes that were not agreed on: .'perhaps'"):
        served(run, nodes)
    name_class(run)
    assert served(run, nodes) is True
    assert notes(run)[0] == (1, "class 'perhaps' was added after round 1")
    assert attended(run, "north") == [1, 2, 3] == attended(run, "south")
    answers(run)


@pytest.mark.parametrize(
    ("section", "mended", "why"),
    [
        ("[limits]\nclasses = 2", "[limits]\nclasses = 3", "limits.classes: the agreement is on 3"),
        ("[limits]\nrounds = 2", "[limits]", "limits.rounds: it has taken part in 2 rounds"),
        (
            '[limits]\nallow = ["Describe", "Join", "FitPrivate", "PredictPublic", "Distill", '
            '"ScorePublic", "Evaluate", "Restore"]',
            "[limits]",
            "limits.allow: it does not let 'ConsiderClasses' be asked",
        ),
    ],
    ids=["classes", "rounds", "allow"],
)
def test_where_a_party_says_no_the_run_goes_on_as_it_was_until_it_says_yes(
    run: Path, section: str, mended: str, why: str
) -> None:
    rounds(run, 6)
    toml = run.parent / "north" / "party.toml"
    toml.write_text(toml.read_text().replace("[limits]", section))
    nodes = grid(run)
    during(nodes, 2, lambda: name_class(run))
    during(nodes, 2, lambda: third(run), PredictPublic)
    during(
        nodes, 3, lambda: toml.write_text(toml.read_text().replace(section, mended)), PredictPublic
    )
    assert served(run, nodes) is True
    assert notes(run)[0][0] == 2
    assert f"is not added yet: north: {why}" in notes(run)[0][1]
    assert notes(run)[1] == (3, "class 'perhaps' was added after round 3")
    answers(run)


def test_a_party_that_was_removed_before_is_not_asked(run: Path) -> None:
    home, key = east(run)
    path = run / "coordinator.toml"
    without = path.read_text()
    path.write_text(f'{without}"east" = "{key}"\n')
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    assert served(run, nodes) is True
    path.write_text(without.replace("rounds = 2", "rounds = 4"))
    add_class(run, "perhaps")
    third(run)
    assert served(run, grid(run)) is True
    assert notes(run)[0] == (2, "class 'perhaps' was added after round 2")
    assert attended(run, "south") == [1, 2, 3, 4]


def test_one_that_names_its_classes_and_one_that_is_away(run: Path) -> None:
    rounds(run, 4)
    toml = run.parent / "north" / "party.toml"
    toml.write_text(toml.read_text().replace("[data]", '[data]\nclasses = ["no", "yes"]'))
    nodes = grid(run)
    during(nodes, 1, lambda: (name_class(run), third(run)))

    def away() -> None:
        toml.write_text(toml.read_text().replace('"no", "yes"', '"no", "perhaps", "yes"'))
        nodes.infos.pop(99)

    during(nodes, 2, away, PredictPublic)
    assert served(run, nodes) is True
    first, second, *more = notes(run)
    assert first[0] == 1 and "data.classes: it names its classes, and 'perhaps' is none" in first[1]
    assert second[0] == 2 and "is not added yet: south: its node is not connected" in second[1]
    assert not more and "south: its node is not connected" in said(run)
    assert attended(run, "north") == [1, 2, 3, 4]


def test_a_hospital_that_waits_outside_brings_it(run: Path) -> None:
    """East was left out for its class, and takes part from the round after which it was agreed on."""
    home, key = east(run)
    third(run, "east")
    text = (run / "coordinator.toml").read_text().replace("rounds = 2", "rounds = 5")
    (run / "coordinator.toml").write_text(f'{text}"east" = "{key}"\n')
    (run / "coordinator.toml").write_text(
        (run / "coordinator.toml").read_text().replace("[method]", "strict = false\n[method]", 1)
    )
    spec = read_coordinator(run)
    later = {name: key for name, key in spec.parties.items() if name != "east"}
    nodes = grid(run)
    nodes.nodes[98], nodes.infos[98] = node(home), Info(98, "east")
    text = (run / "coordinator.toml").read_text()
    (run / "coordinator.toml").write_text(text.replace(f'"east" = "{key}"\n', ""))
    during(nodes, 1, lambda: store_coordinator(spec, run))
    during(nodes, 2, lambda: (run / "coordinator.toml").write_text(text) and name_class(run))
    assert served(run, nodes) is True and "east" not in later
    assert attended(run, "east") == [3, 4, 5] == attended(run, "north")[2:]
    with closing(Ledger(run / "run" / "ledger.sqlite")) as ledger:
        refused = ledger.read("SELECT text FROM notes WHERE text LIKE '%east%'")
    assert refused == [("east was added after round 1",)]
    assert notes(run)[0] == (2, "class 'perhaps' was added after round 2")
    leave(
        run, ["south"]
    )  # computed again as if it had never been there, with the class from the beginning
    Ledger(run / "run" / "ledger.sqlite", create=True).close()
    assert served(run, nodes) is True
    with read_party(run.parent / "north" / "party.toml").site() as site:
        assert site.party().agreement.classes == ("no", "perhaps", "yes")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("[protocol]", "[protocol.secure_aggregation]\n\n[protocol]"), "with secure_aggregation"),
        (
            ("[parties]", '[robustness]\nsecret_labels = "root.csv"\nlabel = "ill"\n[parties]'),
            "secret labels",
        ),
    ],
    ids=["sums", "secret labels"],
)
def test_runs_that_take_in_no_class_refuse_at_the_command(
    run: Path, change: tuple[str, str], why: str
) -> None:
    assert served(run, grid(run)) is True
    path = run / "coordinator.toml"
    path.write_text(path.read_text().replace(*change).replace('"uwa"', '"avg"'))
    store_coordinator(read_coordinator(run), run)
    before = path.read_text()
    with pytest.raises(InvalidInput, match=f"no class can be added to this run: {why}"):
        add_class(run, "perhaps")
    assert path.read_text() == before


def test_the_line_in_the_file(run: Path) -> None:
    assert served(run, grid(run)) is True
    path = run / "coordinator.toml"
    for name, why in {
        "yes": "there is one of that name already",
        " Yes": "blanks around it",
        "YES": "'yes' is a class already",
        "": "empty",
        "a\u202eb": "not seen",
    }.items():
        with pytest.raises(InvalidInput, match=why):
            add_class(run, name)
    add_class(run, "perhaps")
    add_class(run, 'the "other" = [kind]')
    assert read_coordinator(run).classes == ("perhaps", 'the "other" = [kind]')
    with pytest.raises(InvalidInput, match="there is one of that name already"):
        add_class(run, "perhaps")
    with pytest.raises(InvalidInput, match="no class 'perhap' is named"):
        remove_class(run, "perhap")
    remove_class(run, 'the "other" = [kind]')
    assert path.read_text().count("classes = ") == 1
    path.write_text(
        path.read_text().replace('classes = ["perhaps"]', 'classes = [\n  "perhaps",\n]')
    )
    with pytest.raises(InvalidInput, match="By hand, above the first"):
        add_class(run, "more")
    path.write_text(path.read_text().replace('classes = [\n  "perhaps",\n]', 'classes = "perhaps"'))
    with pytest.raises(InvalidInput, match="a list of names"):
        add_class(run, "more")

"""Flower carries the bytes; what the parties do with them is what they do in one process."""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from zipfile import ZipFile

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from consilience import Federation, Party, avg, ensemble_distillation, uwa
from consilience.core.errors import InvalidInput, MissingExtra, QuorumLost, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure, Predictions, Receipt, Replies
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.scores import RowCount
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import LocalNetwork
from consilience.core.networks.incoming import Arrival, Request
from consilience.core.networks.processes import Export
from consilience.core.protocols import Protocol
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Join, Restore
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.tasks.scores import CountRows
from consilience.privacy.secure_aggregation.rounds import SecureAggregation
from consilience.sites.party import EVERYTHING, Limits, PartySite
from consilience.sites.transport.flower.client_app import party_app, run_installed_client, site_app
from consilience.sites.transport.flower.internals import PATIENCE
from consilience.sites.transport.flower.late_answers import LateAnswers, late_delivery
from consilience.sites.transport.flower.network import FlowerNetwork
from helpers.flower_grid import QUICK, Grid, Info, Node, in_a_run
from helpers.party_sites import NodeSites, one_party

with warnings.catch_warnings():  # flwr's command line uses what click has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict

PUBLIC = np.linspace(-2, 2, 31)[:, None] * [1.0, -0.5]
MODELS = {"a": DecisionTreeClassifier(max_depth=3), "b": LogisticRegression(), "c": GaussianNB()}


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_run(monkeypatch)


def party(name: str) -> Party:
    rng = np.random.default_rng(list(MODELS).index(name))
    X = rng.normal(size=(40, 2))
    made = Party(name, MODELS[name], X, np.where(X[:, 0] + X[:, 1] > 0, "yes", "no"))
    made.hold_public(Public(PUBLIC))
    return made


def node(name: str, folder: Path, make: Callable[..., Party] | None = None) -> Node:
    """A node that starts from nothing but its disk for every message."""

    def run(message: Message) -> list[Message]:
        app = party_app(make or (lambda context: party(context.node_config["party"])))
        about = {"party": name, "home": str(folder / name)}
        context = Context(1, 7, about, RecordDict(), {})
        return [app(message, context)]

    return run


def stored(name: str, folder: Path) -> Party:
    """The party as its node left it."""
    with PartySite(lambda: party(name), folder / name, limits=EVERYTHING) as site:
        return site.party()


def nodes(folder: Path) -> dict[str, Node]:
    return {name: node(name, folder) for name in MODELS}


def reply(message: Message, *answers: object) -> Message:
    return raw(message, encode(answers))


def raw(message: Message, data: bytes) -> Message:
    array = Array("uint8", (len(data),), "consilience", data)
    return Message(
        RecordDict({"consilience": ArrayRecord({"consilience": array})}), reply_to=message
    )


def tasks_of(message: Message) -> tuple:
    return decode(message.content.array_records["consilience"]["consilience"].data)


def but(usual: Node, then: Node) -> Node:
    """A node that says and joins as usual, and does ``then`` with every other task."""
    return lambda message: (usual if isinstance(tasks_of(message)[0], Describe | Join) else then)(
        message
    )


def connected(grid: Grid, **options) -> FlowerNetwork:
    return FlowerNetwork(grid, **{"waits": QUICK, **options})


def formed(grid: Grid, **options) -> FlowerNetwork:
    network = connected(grid, nodes=len(grid.nodes), **options)
    federation_over(network, Public(PUBLIC)).form()
    return network


def failure(folder: Path, then: Node, **options) -> Failure:
    """What becomes of party b when its node does ``then``; the other two must not notice."""
    usual = nodes(folder)
    network = formed(Grid(**usual | {"b": but(usual["b"], then)}), **options)
    replies = network.ask(CountRows(round=1))
    assert replies.parties == ("a", "c")
    assert network.deliveries[-2].status == replies.missing["b"].kind
    assert replies.missing["b"].party == "b"
    return replies.missing["b"]


# --- the same bits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "protocol",
    [
        ensemble_distillation(aggregate=uwa(), rounds=2),
        ensemble_distillation(aggregate=avg(), rounds=2, secure_aggregation=SecureAggregation()),
    ],
    ids=["plain", "masked"],
)
def test_same_bits_and_bytes_as_in_process(protocol: Protocol, tmp_path: Path) -> None:
    members = [party(name) for name in MODELS]
    local = LocalNetwork(members, Public(PUBLIC))
    here = list(federation_over(local, Public(PUBLIC)).rounds(protocol))

    network = connected(Grid(**nodes(tmp_path)), nodes=3)
    there = list(federation_over(network, Public(PUBLIC)).rounds(protocol))

    assert len(there) == 3
    for one, other in zip(here[1:], there[1:], strict=True):
        np.testing.assert_array_equal(one.teacher.values, other.teacher.values)
    for member in members:
        again = stored(member.name, tmp_path)
        np.testing.assert_array_equal(
            again.trainer.learner.predict(PUBLIC), member.trainer.learner.predict(PUBLIC)
        )
    books = [
        [
            (d.party, d.round, d.tasks, d.status, d.left, d.bytes_down, d.bytes_up)
            for d in n.deliveries
        ]
        for n in (local, network)
    ]
    assert books[0] == books[1]


def test_parties_are_asked_once_for_their_description(tmp_path: Path) -> None:
    grid = Grid(**nodes(tmp_path))
    formed(grid)
    assert len(grid.sent) == 6  # Describe, Join
    network = connected(grid, nodes=3)
    network.ask(Describe())
    network.ask(Describe())  # later ones are asked again
    assert len(grid.sent) == 12


# --- what may come back ---------------------------------------------------------------------------


def test_there_is_always_a_time_to_live(tmp_path: Path) -> None:
    grid = Grid(**nodes(tmp_path))
    connected(grid, nodes=3)
    connected(grid, nodes=3, timeout=9)
    living = [message.metadata.ttl for message in grid.sent]
    assert living == pytest.approx([PATIENCE] * 3 + [9] * 3, abs=8)


def test_silence_until_time_is_up_is_late_and_the_others_are_not(tmp_path: Path) -> None:
    assert failure(tmp_path, lambda message: [], timeout=1.5) == Anything(
        kind="late", reason="no answer within 1.5 s"
    )


def test_answers_that_are_late_or_to_nothing_are_dropped_and_written_down(tmp_path: Path) -> None:
    kept: list[Message] = []

    def late(message: Message) -> list[Message]:
        kept.append(message)
        answer = RowCount(party="b", round=1, rows=9)
        return [reply(kept[0], answer)] if len(kept) > 1 else []

    usual = nodes(tmp_path)
    network = formed(Grid(**usual | {"b": but(usual["b"], late)}), timeout=1.5)
    for round in (1, 2):
        assert network.ask(CountRows(round=round)).parties == ("a", "c")
    mine = [d for d in network.deliveries if d.party == "b"][2:]
    assert [(d.status, d.round, d.bytes_up > 0) for d in mine] == [
        ("late", 1, False),
        ("late", 1, True),  # what came while round 2 was asked for
        ("late", 2, False),
    ]
    network.grid.replies = [reply(network.grid.sent[0], Receipt(party="a", round=9))]
    network.ask(CountRows(round=3), to=["a"])
    assert [d.detail for d in network.deliveries if d.status == "refused"] == [
        "an answer to nothing that was asked: dropped"
    ]


def test_of_two_answers_the_first_is_taken(tmp_path: Path) -> None:
    usual = nodes(tmp_path)
    # The grid hands replies over in reverse.
    twice = but(usual["b"], lambda message: [raw(message, b"second"), *usual["b"](message)])
    replies = formed(Grid(**usual | {"b": twice})).ask(CountRows(round=1))
    assert replies.parties == ("a", "b", "c")


def test_garbage_is_refused(tmp_path: Path) -> None:
    refused = failure(tmp_path, lambda message: [raw(message, b"\x00" * 99)])
    assert refused.kind == "refused"
    assert refused.reason.startswith("unreadable message")


def test_a_message_without_our_bytes_is_refused(tmp_path: Path) -> None:
    foreign = RecordDict({"consilience": ConfigRecord({"consilience": 1})})
    refused = failure(tmp_path, lambda message: [Message(foreign, reply_to=message)])
    assert (refused.kind, refused.reason) == ("refused", "not a message of consilience")


def test_an_answer_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    refused = failure(tmp_path, lambda message: [reply(message, Receipt(party="b", round=1))])
    assert (refused.kind, refused.reason) == ("refused", "answered Receipt, expected RowCount")


def test_an_error_of_flower_names_the_party_that_was_asked(tmp_path: Path) -> None:
    lost = failure(tmp_path, lambda message: [Message(Error(3, "node gone"), reply_to=message)])
    assert (lost.kind, lost.reason) == ("failed", "Flower error 3: node gone")


def test_a_node_that_flower_takes_for_gone_is_not_connected(tmp_path: Path) -> None:
    gone = Error(import_module("flwr.common.constant").ErrorCode.NODE_UNAVAILABLE, "no heartbeat")
    lost = failure(tmp_path, lambda message: [Message(gone, reply_to=message)])
    assert (lost.kind, lost.reason) == ("failed", "its node is not connected")


def test_a_failure_is_passed_on_and_cannot_blame_another(tmp_path: Path) -> None:
    said = Failure(party="a", reason="no memory", mend="buy some")
    passed = failure(tmp_path, lambda message: [reply(message, said)])
    assert (passed.reason, passed.mend) == ("no memory", "buy some")


def test_the_quorum_holds_over_flower(tmp_path: Path) -> None:
    usual = nodes(tmp_path)
    silent = {name: but(usual[name], lambda message: []) for name in "ab"}
    network = formed(Grid(**usual | silent), timeout=1.5)
    with pytest.raises(QuorumLost, match="1 of 3 parties"):
        network.ask(CountRows(round=1))


# --- meeting --------------------------------------------------------------------------------------


def test_too_few_nodes(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"3 of 4 nodes connected within 0\.01 s"):
        connected(Grid(**nodes(tmp_path)), nodes=4, wait=0.01)


def test_two_nodes_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="two nodes say they are party 'a'"):
        connected(Grid(x=node("a", tmp_path), y=node("a", tmp_path)), nodes=2)


def test_a_party_that_cannot_be_made_is_named_before_anything_runs(tmp_path: Path) -> None:
    def broken(context: Context) -> Party:
        raise InvalidInput("there are no rows", where="party 'b'", mend="Add some.")

    with pytest.raises(InvalidInput, match="there are no rows") as caught:
        connected(Grid(b=node("b", tmp_path, broken)), nodes=1)
    assert caught.value.where == "node 100"
    assert caught.value.mend == "Add some."

    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        connected(Grid(b=node("b", tmp_path, lambda context: 1 / 0)), nodes=1)  # type: ignore


def test_a_node_that_does_not_say_which_party_it_is() -> None:
    with pytest.raises(RunFailed, match="did not say"):
        connected(Grid(b=lambda m: [reply(m, Receipt(party="b", round=0))]), nodes=1)


# --- gone and back --------------------------------------------------------------------------------


def named(folder: Path, **options) -> FlowerNetwork:
    """Nodes that are registered under their parties' names, as with keys."""
    grid = Grid(**nodes(folder))
    for info, name in zip(grid.infos.values(), MODELS, strict=True):
        info.name = name
    network = connected(grid, nodes=tuple(MODELS), federation="heart", **options)
    federation_over(network, Public(PUBLIC)).form()
    return network


def lines(folder: Path, name: str) -> list[dict]:
    text = (folder / name / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_names_that_nodes_are_registered_under_say_who_they_are(tmp_path: Path) -> None:
    network = named(tmp_path, quorum=1)
    assert network.parties == ("a", "b", "c")
    network.grid.infos[100].name, network.grid.infos[99].name = "b", "a"  # keys were swapped
    missing = network.ask(CountRows(round=1), to=["a", "b", "c"]).missing
    assert missing["a"].reason == "the request is for 'a', and this is 'b'"
    assert missing["b"].kind == "refused"


def test_requests_carry_the_federation(tmp_path: Path) -> None:
    network = named(tmp_path)
    assert {line["federation"] for line in lines(tmp_path, "b")} == {"heart"}
    network.federation = "lungs"
    with pytest.raises(QuorumLost, match=r"of federation 'lungs', and it has joined 'heart'"):
        network.ask(CountRows(round=1))


def test_a_node_that_is_started_anew_is_sent_the_same_bytes(tmp_path: Path) -> None:
    """It did the work before it was killed, and its answer was lost: nothing is done twice."""
    network = named(tmp_path, timeout=60)
    usual, times = network.grid.nodes[99], []

    def killed(message: Message) -> list[Message]:
        times.append(message)
        answered = usual(message)
        if len(times) > 1:
            return answered
        network.grid.infos[99] = replace(network.grid.infos[99], last_activated_at="tuesday")
        return []

    network.grid.nodes[99] = killed
    assert network.ask(FitPrivate(round=1), CountRows(round=1)).parties == ("a", "b", "c")
    assert [line["status"] for line in lines(tmp_path, "b")][-2:] == ["ok", "repeated"]
    assert encode(tasks_of(times[0])) == encode(tasks_of(times[1]))


def test_what_fails_in_flower_is_tried_again(tmp_path: Path) -> None:
    network = named(tmp_path)
    usual, times = network.grid.nodes[99], []

    def failing(message: Message) -> list[Message]:
        times.append(message)
        return [Message(Error(3, "gone"), reply_to=message)] if len(times) < 3 else usual(message)

    network.grid.nodes[99] = failing
    assert network.ask(CountRows(round=1)).parties == ("a", "b", "c")


def test_a_party_that_is_gone_is_not_waited_for_and_asked_when_it_is_back(tmp_path: Path) -> None:
    network = named(tmp_path)
    gone = network.grid.infos.pop(99)
    missing = network.ask(CountRows(round=1)).missing
    assert missing["b"].reason == "its node is not connected"
    network.grid.infos[99] = gone
    assert network.ask(CountRows(round=1)).parties == ("a", "b", "c")


def test_a_party_with_another_node_is_met_again(tmp_path: Path) -> None:
    grid = Grid(**nodes(tmp_path))
    network = formed(grid)
    del grid.infos[99]
    grid.nodes[7], grid.infos[7] = grid.nodes.pop(99), Info(7)
    grid.nodes[8], grid.infos[8] = grid.nodes[100], Info(8)  # one more says it is a, who is there
    assert network.ask(FitPrivate(round=1)).parties == ("a", "b", "c")
    assert network.ask(CountRows(round=1)).parties == ("a", "b", "c")
    assert [m.metadata.dst_node_id for m in grid.sent].count(8) == 1


def test_a_node_of_many_federations_answers_what_a_coordinator_asks(tmp_path: Path) -> None:
    """The nodes of a benchmark, started as a whole elsewhere; here the network's own messages ask them."""
    made = site_app(
        lambda context: NodeSites(context, lambda name, _, home: PartySite(one_party, home / name))
    )
    where = {"number": 0, "home": str(tmp_path)}

    def answer(message: Message) -> list[Message]:
        return [made(message, Context(1, 7, where, RecordDict(), {}))]

    network = connected(Grid(a=answer), nodes=1, federation="west")
    assert network.parties == (one_party().name,)


def test_of_late_answers_the_last_round_counts_and_of_one_that_is_gone_none() -> None:
    agreed = Agreement(
        kind="classification", classes=("no", "yes"), outputs=2, public="0", rows=1, seed=0
    )
    answers, missing = LateAnswers(), Failure(party="a", reason="late")

    def keep(round: int) -> bool:
        tasks = (PredictPublic(round=round, outputs="probabilities"),)
        half = np.full((1, 2), 0.5, np.float32)
        said = Predictions(party="a", round=round, kind="probabilities", classes=agreed.classes,
                           public=agreed.public, values=half)  # fmt: skip
        late = late_delivery("a", Request(tasks, b""))
        return answers.keep(late, tasks, Arrival((said,), 0, 0.0), agreed)

    def ages() -> list[int]:
        asked = Request((PredictPublic(round=5, outputs="probabilities"),), b"")
        return [
            age
            for age, _ in answers.added_to(Replies({}, {"a": missing}), {"a": asked}).late.values()
        ]

    assert keep(3) and not keep(2) and ages() == [2]
    assert keep(4) and ages() == [1]
    heard = Request((PredictPublic(round=5, outputs="probabilities"),), b"")
    answers.added_to(Replies({"a": ()}, {}), {"a": heard})
    assert ages() == [] and not keep(4)
    assert keep(6)
    answers.forget("a")
    assert ages() == [] and keep(1)


def test_those_who_are_missing_may_come_later(tmp_path: Path) -> None:
    grid = Grid(**nodes(tmp_path))
    for info, name in zip(grid.infos.values(), MODELS, strict=True):
        info.name = name
    gone = grid.infos.pop(99)
    with pytest.raises(RunFailed, match=r"2 of 3 nodes connected .*; missing: b"):
        connected(grid, nodes=tuple(MODELS), wait=0.01)
    network = connected(grid, nodes=tuple(MODELS), wait=0.01, least=2)
    assert network.parties == ("a", "b", "c")
    assert network.ask(Describe()).parties == ("a", "c")
    grid.infos[99] = gone
    assert network.ask(Describe()).parties == ("a", "b", "c")


# --- the party's side -----------------------------------------------------------------------------


def test_a_party_needs_a_home() -> None:
    app = party_app(lambda context: party("a"))
    context = Context(1, 7, {"party": "a"}, RecordDict(), {})
    with pytest.raises(InvalidInput, match="no folder to keep its state"):
        connected(Grid(a=lambda message: [app(message, context)]), nodes=1)


def test_a_party_that_has_not_joined_says_so(tmp_path: Path) -> None:
    network = connected(Grid(**nodes(tmp_path)), nodes=3, quorum=1)
    with pytest.raises(QuorumLost, match="has not joined"):
        network.ask(FitPrivate(round=1))


def test_joining_forgets_the_model_of_a_run_before(tmp_path: Path) -> None:
    network = formed(Grid(**nodes(tmp_path)))
    network.ask(FitPrivate(round=1))
    assert len(network.ask(PredictPublic(round=1))) == 3
    network = formed(Grid(**nodes(tmp_path)))
    assert not stored("a", tmp_path).trainer.learner.fitted
    with pytest.raises(QuorumLost, match="not been trained"):
        network.ask(PredictPublic(round=1))


def test_state_of_other_public_data_does_not_stand_in_the_way(tmp_path: Path) -> None:
    formed(Grid(**nodes(tmp_path)))

    def moved(context: Context) -> Party:
        made = party(context.node_config["party"])
        made.hold_public(Public(PUBLIC * 0.9))
        return made

    network = connected(Grid(**{name: node(name, tmp_path, moved) for name in MODELS}), nodes=3)
    federation_over(network, Public(PUBLIC * 0.9)).form()
    assert len(network.ask(FitPrivate(round=1))) == 3


def test_public_data_must_be_the_coordinators(tmp_path: Path) -> None:
    network = connected(Grid(**nodes(tmp_path)), nodes=3)
    with pytest.raises(InvalidInput, match="public data are not the ones agreed on"):
        federation_over(network, Public(PUBLIC[:-1])).form()


def test_checkpoints_go_back_and_live_beside_the_state(tmp_path: Path) -> None:
    network = formed(Grid(**nodes(tmp_path)))
    network.ask(FitPrivate(round=1))
    before = network.ask(PredictPublic(round=1), Checkpoint(round=1)).answers["a"][0].values
    network.ask(Join(agreement=network.agreed))
    network.ask(Restore(round=1))
    after = network.ask(PredictPublic(round=1)).answers["a"][0].values
    np.testing.assert_array_equal(before, after)


def test_models_do_not_leave(tmp_path: Path) -> None:
    network = formed(Grid(**nodes(tmp_path)), quorum=1)
    network.ask(FitPrivate(round=1))
    with pytest.raises(QuorumLost, match="does not let 'Export' be asked"):
        network.ask(Export(folder=str(tmp_path)))
    assert network.models() == {}


def test_a_party_says_what_it_lets_itself_be_asked(tmp_path: Path) -> None:
    app = party_app(lambda context: party("a"), limits=Limits(allow=("Describe", "Join")))
    context = Context(1, 7, {"party": "a", "home": str(tmp_path)}, RecordDict(), {})
    network = formed(Grid(a=lambda message: [app(message, context)]))
    with pytest.raises(QuorumLost, match=r"refused: limits\.allow: it does not let 'CountRows'"):
        network.ask(CountRows(round=1))


def test_a_party_runs_what_is_installed_whatever_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = import_module("flwr.supernode.runtime.run_clientapp")
    command = import_module("flwr.supernode.cli.flwr_clientapp")
    names = ("install_from_fab", "get_project_dir", "get_load_client_app_fn")
    for name in names:  # so that they are put back
        monkeypatch.setattr(inside, name, getattr(inside, name))
    ran = []

    def once() -> None:
        assert inside.install_from_fab(b"evil", skip_prompt=True) is None
        load = inside.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        ran.append(load("id", "1.0", "hash"))

    monkeypatch.setattr(command, "flwr_clientapp", once)
    run_installed_client("ours")
    assert ran == ["ours"]
    monkeypatch.delattr(inside, "get_load_client_app_fn")
    with pytest.raises(RunFailed, match="this flwr has no get_load_client_app_fn"):
        run_installed_client("ours")
    assert ran == ["ours"]


def test_without_flwr_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(MissingExtra, match=r"pip install 'consilience\[flower\]'"):
        party_app(lambda context: party("a"))


# --- the real thing -------------------------------------------------------------------------------


def example(path: str) -> ModuleType:
    """A file of examples/flower as a module."""
    file = Path(__file__).parents[3] / "examples" / "flower" / path
    spec = spec_from_file_location(file.stem, file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's
def test_the_app_of_the_example_has_flowers_current_format(tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.fab_format_version import normalize_and_validate_fab_format

    app = Path(__file__).parents[3] / "examples" / "flower" / "app"
    settings = tomllib.loads((app / "pyproject.toml").read_text())
    found = normalize_and_validate_fab_format(settings)
    assert (found.fab_format_version, found.flwr_version_min) == (1, "1.41")
    with ZipFile(BytesIO(build_fab_from_disk(app))) as fab:
        assert {"LICENSE", "digits_federation.py", "pyproject.toml"} <= set(fab.namelist())


@pytest.mark.deploy
@pytest.mark.slow  # a new process for every message: at best 70 s on two cores
@pytest.mark.timeout(600)
def test_a_superlink_and_three_supernodes_give_the_same_bits(tmp_path: Path) -> None:
    run, app = example("run.py"), example("app/digits_federation.py")
    models = run.MODELS
    members = [app.party_of(name, model) for name, model in models.items()]
    here = Federation(members, app.public_rows())
    teachers = {
        f"teacher_{round.number}": round.teacher.values
        for round in here.rounds(app.protocol(2))
        if round.teacher is not None
    }

    found = np.load(run.deploy(tmp_path / "flower", config="evaluate=false", limit=500))
    assert len(teachers) == 2
    for name, values in teachers.items():
        np.testing.assert_array_equal(found[name], values)
    everything = load_digits().data / 16
    for member in members:
        home = tmp_path / "flower" / "parties" / member.name
        make = partial(app.party_of, member.name, models[member.name])
        with PartySite(make, home, limits=EVERYTHING) as site:
            there = site.party()
        assert encode([there.agreement]) == encode([here.network.agreed])
        for ask in ("predict", "logits"):
            one, other = (
                getattr(party.trainer.learner, ask)(everything) for party in (there, member)
            )
            np.testing.assert_array_equal(one, other)
    deadline = monotonic() + 15
    while left_running(tmp_path):
        assert monotonic() < deadline, left_running(tmp_path)
        sleep(0.5)


def left_running(folder: Path) -> list[str]:
    """Processes whose environment names the folder, as Flower's home does (where /proc tells)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


class Anything:
    """Equal to whatever has these attributes."""

    def __init__(self, **attributes: object) -> None:
        self.attributes = attributes

    def __eq__(self, other: object) -> bool:
        return self.attributes == {name: getattr(other, name) for name in self.attributes}

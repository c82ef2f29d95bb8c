"""What every network does with what comes back, whoever sent it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import numpy as np
import pytest
from safetensors.numpy import save

from consilience.core.errors import InvalidInput, KnowledgeRefused, QuorumLost, RunFailed
from consilience.core.messages.replies import Description, Failure, Metrics, Predictions, Receipt
from consilience.core.messages.schema import VERSION, Agreement
from consilience.core.messages.scores import CoarseRatios, DensityRatios, LogDensities, RowCount
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import Network
from consilience.core.networks.incoming import LONGEST_TEXT, Arrival
from consilience.core.tasks.lifecycle import Describe, Evaluate
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.tasks.scores import CompareCoarsely, ComparePublic, CountRows, ScorePublic
from consilience.methods.comparison_rules.scores import Certainties, Selection
from consilience.methods.comparison_rules.tasks import SelectPublic
from consilience.privacy.accounting.certainty import ScoreCertainty
from helpers.forged_messages import parts, written

AGREEMENT = Agreement(
    kind="classification", classes=("x", "y"), outputs=2, public="key", rows=3, seed=0
)
HALVES = np.full((3, 2), 0.5, dtype=np.float32)
NAMES = ("a", "b", "c", "d")


@dataclass
class Scripted(Network):
    """Answers what the test says, as if it had come over a wire."""

    script: Callable[[str], Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def parties(self) -> tuple[str, ...]:
        return NAMES

    def exchange(self, tasks, to, request):
        return {name: Arrival(self.script(name), 10, self.seconds.get(name, 0.1)) for name in to}


def network(script: Callable[[str], Any], **limits: Any) -> Scripted:
    made = Scripted(script, **limits)
    made.agreement = AGREEMENT
    return made


def receipt(party: str, **changed: Any) -> tuple[Any, ...]:
    return (Receipt(**{"party": party, "round": 2} | changed),)


def predictions(party: str, **changed: Any) -> tuple[Any, ...]:
    said: dict[str, Any] = {"kind": "probabilities", "classes": ("x", "y"), "public": "key"}
    return (Predictions(**{"party": party, "round": 2, "values": HALVES} | said | changed),)


def only_b(wrong: Any, right: Callable[[str], Any] = predictions) -> Callable[[str], Any]:
    return lambda party: wrong if party == "b" else right(party)


def test_answers_come_sorted_and_each_once():
    replies = network(receipt).ask(FitPrivate(round=2), to=["c", "a", "c"])
    assert replies.parties == ("a", "c")
    assert [r.party for r in replies.of(Receipt)] == ["a", "c"]
    assert list(replies) == ["a", "c"] and len(replies) == 2


def test_the_books_say_what_left_whom():
    scripted = network(only_b(predictions("b", round=1)), quorum=0.5)
    scripted.ask(PredictPublic(round=2))
    a, b, *_ = scripted.deliveries
    assert (a.party, a.round, a.tasks, a.status) == ("a", 2, "PredictPublic", "ok")
    assert (a.left, a.bytes_up, a.seconds, a.detail) == ("Predictions(3×2)", 10, 0.1, "")
    assert a.bytes_down == len(encode([PredictPublic(round=2)]))
    assert (b.status, b.detail) == ("refused", "round is 1, expected 2")


def test_notes_reach_the_books():
    scripted = network(lambda party: receipt(party, notes=("first", "second")))
    scripted.ask(FitPrivate(round=2))
    assert scripted.deliveries[0].detail == "first; second"


def test_of_what_a_party_says_no_more_is_kept_than_a_terminal_may_show():
    """Of a failure, of notes, of a refusal that quotes it, of messages nobody asked for."""
    long = "\x1b[2J\n" + "x" * 10_000
    for said in (
        Failure(party="b", reason=long, mend=long),
        receipt("b", notes=(long,)),
        predictions("b", public=long),
        receipt("b") * 5_000,
    ):
        scripted = network(lambda party, said=said: said if party == "b" else receipt(party))
        missing = scripted.ask(FitPrivate(round=2)).missing
        for failure in missing.values():
            assert max(len(failure.reason), len(failure.mend)) <= LONGEST_TEXT + 2
            assert failure.reason.isprintable() and failure.mend.isprintable()
        books = scripted.deliveries[1]
        assert len(books.detail) <= LONGEST_TEXT + 2 and books.detail.isprintable()
        assert len(books.left) < 100


def test_an_answer_that_breaks_its_check_is_refused(monkeypatch):
    def broken(self, **against):
        if self.party == "b":
            raise ZeroDivisionError("0 rows")

    monkeypatch.setattr(Receipt, "validate", broken)
    replies = network(receipt).ask(FitPrivate(round=2))
    assert replies.parties == ("a", "c", "d")
    assert replies.missing["b"].kind == "refused"
    assert replies.missing["b"].reason == "its answer cannot be checked (ZeroDivisionError: 0 rows)"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (predictions("c"), "party is 'c', expected 'b'"),
        (predictions("b", round=3), "round is 3, expected 2"),
        (predictions("b", kind="logits"), "kind is 'logits', expected 'probabilities'"),
        (predictions("b", public="other"), "public data is 'other', expected 'key'"),
        (predictions("b", classes=("y", "x")), "class order is ('y', 'x')"),
        (predictions("b", values=HALVES[:2]), "values have shape (2, 2), expected (3, 2)"),
        (predictions("b", values=HALVES.astype(float)), "values are float64, expected float32"),
        (predictions("b", values=HALVES * np.float32(np.nan)), "6 of 6 values are NaN"),
        (predictions("b", values=HALVES * np.float32(np.inf)), "values are NaN or infinite"),
        (predictions("b", values=HALVES * np.float32(0.9)), "do not sum to 1"),
        (predictions("b", values=np.float32([[2, -1]] * 3)), "negative"),
        (predictions("b", values=np.float32([[3e38, 3e38]] * 3)), "do not sum to 1"),
        (receipt("b"), "answered Receipt, expected Predictions"),
        ((), "0 answers to 1 tasks"),
        (predictions("b") + predictions("b"), "2 answers to 1 tasks"),
        (("text",), "answered str, expected Predictions"),
    ],
)
def test_what_was_not_asked_is_refused(wrong, why):
    replies = network(only_b(wrong)).ask(PredictPublic(round=2))
    assert replies.parties == ("a", "c", "d")
    assert replies.missing["b"].kind == "refused"
    assert why in replies.missing["b"].reason


def test_logits_may_be_any_finite_numbers():
    values = np.float32([[-7, 9]] * 3)
    scripted = network(lambda party: predictions(party, kind="logits", values=values))
    assert len(scripted.ask(PredictPublic(round=2, outputs="logits"))) == 4


@pytest.mark.parametrize(
    ("task", "reply", "why"),
    [
        (
            ScorePublic(round=2),
            LogDensities(party="b", round=2, public="key", values=HALVES),
            "shape (3, 2), expected (3,)",
        ),
        (
            ScorePublic(round=2),
            LogDensities(party="b", round=2, public="no", values=HALVES[:, 0]),
            "public data",
        ),
        (
            ScoreCertainty(round=2, regularization=0.1, epsilon=None, delta=0.1),
            Certainties(party="b", round=2, public="key", values=0 * HALVES[:, 0]),
            "Certainties from 0 to 0, where more than 0 and at most 1 can be",
        ),
        (
            SelectPublic(round=2, quantile=0.25, reference="public"),
            Selection(party="b", round=2, public="key", values=HALVES[:, 0]),
            "values are float32, expected bool",
        ),
        (
            ComparePublic(round=2, ridge=0.3),
            DensityRatios(party="b", round=2, classes=("x", "y"), public="key", values=HALVES[:2]),
            "shape (2, 2), expected (3, 2)",
        ),
        (
            ComparePublic(round=2, ridge=0.3),
            DensityRatios(party="b", round=2, classes=("y", "x"), public="key", values=HALVES),
            "classes is ('y', 'x')",
        ),
        (CountRows(round=2), RowCount(party="b", round=2, rows=0), "a row count of 0"),
        (
            Evaluate(round=2),
            Metrics(party="b", round=2, rows=5, values={"accuracy": float("nan")}),
            "metric accuracy is nan",
        ),
        (Evaluate(round=2), Metrics(party="b", round=2, rows=-1, values={}), "a row count of -1"),
        (CountRows(round=2), RowCount(party="b", round=2, rows=10**18), "a row count of 10"),
        (
            Evaluate(round=2),
            Metrics(party="b", round=2, rows=5, values={"accuracy": 1.5}),
            "metric accuracy is 1.5",
        ),
        (
            Evaluate(round=2),
            Metrics(party="b", round=2, rows=5, values={"x" * 2000: 1.0}),
            "2,000 characters",
        ),
        (
            Evaluate(round=2),
            Metrics(party="b", round=2, rows=5, values={str(i): 1.0 for i in range(101)}),
            "more metrics",
        ),
        (
            PredictPublic(round=2, outputs="logits"),
            predictions("b", kind="logits", values=HALVES * np.float32(3e38))[0],
            "values beyond 1e+18",
        ),
        (
            ComparePublic(round=2, ridge=0.3),
            DensityRatios(
                party="b",
                round=2,
                classes=("x", "y"),
                public="key",
                values=HALVES * np.float32(-2e18),
            ),
            "DensityRatios from -1e+18 to -1e+18, where -9.12871e+11 to 9.12871e+11 can be",
        ),
        (
            CompareCoarsely(round=2),
            CoarseRatios(party="b", round=2, classes=("x", "y"), public="key", values=-HALVES),
            "CoarseRatios from -0.5 to -0.5, where 0 to 1e+12 can be",
        ),
        (
            CompareCoarsely(round=2),
            CoarseRatios(
                party="b", round=2, classes=("x", "y"), public="key", values=HALVES * 1e18
            ),
            "where 0 to 1e+12 can be",
        ),
    ],
)
def test_other_knowledge_is_checked_too(task, reply, why):
    replies = network(
        lambda party: (reply,) if party == "b" else Failure(party=party, reason="-"), quorum=1
    )
    with pytest.raises(QuorumLost, match=r"b \(refused"):
        replies.ask(task)
    assert why in replies.deliveries[1].detail


DESCRIPTION: dict[str, Any] = {
    "party": "b",
    "kind": "classification",
    "classes": ("x", "y"),
    "outputs": 0,
    "soft_targets": "",
    "fewest_classes": 1,
    "tested": False,
    "row": "(2,)",
    "version": VERSION,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"classes": ()},
        {"classes": ("x", "x")},
        {"outputs": 1},
        {"fewest_classes": 0},
        {"kind": "regression"},
        {"kind": "regression", "classes": (), "outputs": 0},
        {"kind": "regression", "classes": (), "outputs": 2**40},
        {"outputs": -1},
        {"classes": tuple(map(str, range(70_000)))},
        {"classes": ("x", "y" * 2_000)},
        {"row": "x" * 2_000},
        {"party": "c"},
        {"version": 1},
        {"version": VERSION + 1},
    ],
)
def test_a_description_makes_sense(changed):
    Description(**DESCRIPTION).validate(party="b", task=Describe(), agreement=None)
    with pytest.raises(KnowledgeRefused):
        Description(**DESCRIPTION | changed).validate(party="b", task=Describe(), agreement=None)


def test_a_description_without_a_version_of_the_messages_is_refused():
    document, arrays = parts(encode([Description(**DESCRIPTION)]))
    assert decode(written(document, arrays))
    del document[0]["Description"]["version"]
    with pytest.raises(KnowledgeRefused, match="version"):
        decode(written(document, arrays))


def test_nobody_speaks_for_another_in_failing():
    replies = network(only_b(Failure(party="c", reason="gone"), receipt)).ask(FitPrivate(round=2))
    assert replies.missing["b"].reason == "speaks for 'c'"
    assert replies.missing["b"].party == "b"


def test_a_late_answer_is_dropped():
    scripted = network(receipt, timeout=1.0)
    scripted.seconds = {"c": 1.5}
    replies = scripted.ask(FitPrivate(round=2))
    assert replies.parties == ("a", "b", "d")
    assert replies.missing["c"].kind == "late"
    assert replies.missing["c"].reason == "answered after 1.5 s, the limit is 1 s"


def failing(*names: str) -> Callable[[str], Any]:
    return lambda p: Failure(party=p, reason="broke", mend="rest") if p in names else receipt(p)


@pytest.mark.parametrize(
    ("quorum", "broken", "enough"),
    [
        (0.5, "ab", True),
        (0.5, "abc", False),
        (0.51, "ab", False),
        (1.0, "", True),
        (1.0, "a", False),
        (1, "abc", True),
        (1, "abcd", False),
        (3, "a", True),
        (3, "ab", False),
        (0.001, "abcd", False),
        (9, "", True),
    ],
)
def test_the_quorum(quorum, broken, enough):
    """A share of those asked, rounded up and at least one; or a number, at most all that were asked."""
    scripted = network(failing(*broken), quorum=quorum)
    if enough:
        assert len(scripted.ask(FitPrivate(round=2))) == 4 - len(broken)
        return
    with pytest.raises(QuorumLost) as lost:
        scripted.ask(FitPrivate(round=2))
    assert "a (failed: broke)" in str(lost.value)
    assert lost.value.where == "round 2"


def test_require_names_whoever_failed():
    with pytest.raises(RunFailed, match="party 'c': broke"):
        network(failing("c")).require(FitPrivate(round=2))


def test_require_puts_bad_input_before_other_failures():
    def script(party: str) -> Any:
        kind: Any = {"a": "failed", "d": "invalid"}.get(party)
        return Failure(party=party, reason="no", kind=kind) if kind else receipt(party)

    with pytest.raises(InvalidInput, match="party 'd': no"):
        network(script).require(FitPrivate(round=2))


def test_strangers_cannot_be_asked():
    with pytest.raises(InvalidInput, match="no party is called 'z'"):
        network(receipt).ask(FitPrivate(round=2), to=["a", "z"])


def test_before_they_joined_nothing_is_agreed():
    with pytest.raises(InvalidInput, match="have not joined"):
        _ = Scripted(receipt).agreed


@pytest.mark.parametrize(
    "limits", [{"quorum": 0}, {"quorum": 1.5}, {"quorum": -1}, {"quorum": 0.0}, {"timeout": 0}]
)
def test_limits_are_checked(limits):
    with pytest.raises(InvalidInput):
        Scripted(receipt, **limits)


def test_models_that_live_elsewhere_are_nobody_elses():
    assert network(receipt).models() == {}


LEAVES: list[Any] = [
    *(None, True, False, 0, -1, 7, 2**31, -(2**70), 0.5, -0.0, np.nan, -np.inf, 1e300),
    *("", "a", "ü", "key", HALVES, HALVES[0], np.zeros((), bool)),
    np.full((3, 2), np.nan, np.float32),
]


def hostile(rng: np.random.Generator, depth: int = 2) -> Any:
    """Anything that a field could hold."""
    kind = rng.integers(4) if depth else 0
    if kind < 2:
        return LEAVES[rng.integers(len(LEAVES))]
    inner = [hostile(rng, depth - 1) for _ in range(rng.integers(3))]
    return tuple(inner) if kind == 2 else {"am"[i]: one for i, one in enumerate(inner)}


def forged(kind: Any, fields: dict[str, Any]) -> bytes:
    """A message whose fields were never checked, as a sender with code of its own can write it."""
    arrays: dict[str, np.ndarray] = {}

    def packed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays[str(len(arrays))] = value
            return {"array": str(len(arrays) - 1)}
        if isinstance(value, tuple):
            return [packed(item) for item in value]
        if isinstance(value, dict):
            return {"map": {key: packed(item) for key, item in value.items()}}
        return value

    document = [{kind.__name__: {name: packed(value) for name, value in fields.items()}}]
    return save(arrays, metadata={"consilience": json.dumps(document)})


def test_no_reply_can_crash_the_coordinator():
    """Whatever a hostile party puts in whatever field, it is accepted or refused, nothing else."""
    for seed in range(500):
        receive_hostile(np.random.default_rng(seed))


def receive_hostile(rng: np.random.Generator) -> None:
    """Ask four parties, of whom one sends a reply with hostile fields."""
    kinds: Any = {
        Predictions: PredictPublic(round=2),
        LogDensities: ScorePublic(round=2),
        Certainties: ScoreCertainty(round=2, regularization=0.1, epsilon=None, delta=0.1),
        Selection: SelectPublic(round=2, quantile=0.25, reference="public"),
        DensityRatios: ComparePublic(round=2, ridge=0.3),
        CoarseRatios: CompareCoarsely(round=2),
        RowCount: CountRows(round=2),
        Metrics: Evaluate(round=2),
        Receipt: FitPrivate(round=2),
        Description: Describe(round=2),
        Failure: FitPrivate(round=2),
    }
    kind = list(kinds)[rng.integers(len(kinds))]
    right: dict[str, Any] = {
        **DESCRIPTION,
        "round": 2,
        "public": "key",
        "values": {
            Predictions: HALVES,
            LogDensities: HALVES[:, 0],
            Certainties: HALVES[:, 0],
            Selection: HALVES[:, 0] > 0,
            DensityRatios: HALVES,
            CoarseRatios: HALVES,
        }.get(kind, {"m": 0.5}),
        "rows": 1,
        "reason": "r",
        "mend": "m",
        "notes": (),
    }
    if kind in (Predictions, Failure):
        right["kind"] = {Predictions: "probabilities", Failure: "failed"}[kind]
    fields = {name: right[name] for name in get_type_hints(kind) if name in right}
    for name in rng.choice(sorted(fields), size=rng.integers(1, 3)):
        fields[name] = hostile(rng)
    data_on_the_wire = forged(kind, fields)

    def script(party: str) -> Any:
        try:
            return decode(data_on_the_wire)
        except KnowledgeRefused as refusal:
            return Failure(party=party, reason=refusal.what, kind="refused")

    scripted = network(only_b_decodes(script, kind), quorum=1)
    with suppress(QuorumLost):
        scripted.ask(kinds[kind])
    assert len(scripted.deliveries) == 4
    assert all(isinstance(delivery.detail, str) for delivery in scripted.deliveries)


def only_b_decodes(script: Callable[[str], Any], kind: Any) -> Callable[[str], Any]:
    def outcome(party: str) -> Any:
        got = script(party) if party == "b" else Failure(party=party, reason="-")
        return got[0] if kind is Failure and isinstance(got, tuple) else got

    return outcome

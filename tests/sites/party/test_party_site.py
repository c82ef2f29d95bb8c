"""What a party at its own machine answers, what it refuses, and what it keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from sklearn.linear_model import LogisticRegression

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.messages.message import message
from consilience.core.messages.replies import Failure, Metrics, Predictions, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.party.party import Party
from consilience.core.party.rules import Keys, PartyRules
from consilience.core.party.trainer import Trainer
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Evaluate, Join, Restore
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.scores import CountRows
from consilience.methods.comparison_rules.scores import Certainties
from consilience.methods.compression.stage import CompressedRequest
from consilience.methods.model_exchange.tasks import TrainTowards
from consilience.methods.parameters.tasks import SendParameters
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.sites.party import AUDIT, EVERYTHING, Limits, PartySite, read_log, read_session
from helpers.killed_sites import state
from helpers.party_sites import agreement, ask, one_party, requests

NAME = one_party().name


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with PartySite(one_party, tmp_path, limits=EVERYTHING) as made:
        yield made


@message
class Several(
    Task, reply_type=Receipt, exchanges="predictions", protocol=None, exposure="nothing", limits=()
):
    """A task of another package that runs others."""

    round: int
    tasks: tuple[Any, ...]

    def run(self, party: Party) -> Receipt:
        for task in self.tasks:
            task.run(party)
        return Receipt(party=party.name, round=self.round)


def hidden(round: int, *tasks: Any) -> Several:
    """Tasks inside of another one."""
    return Several(round=round, tasks=tasks)


def refused(site: PartySite, *tasks: Any, **carried: Any) -> str:
    """Why; nothing may have changed."""
    home = site._state.home
    before = (home / "current").exists() and state(home)
    failure = ask(site, *tasks, **carried)
    assert isinstance(failure, Failure) and failure.kind == "refused", failure
    assert failure.party == NAME
    assert ((home / "current").exists() and state(home)) == before
    last = read_log(home / AUDIT).entries[-1]
    assert (last["status"], last["detail"]) == ("refused", failure.reason)
    return failure.reason


def teacher(value: float = 1 / 3) -> np.ndarray:
    agreed = agreement()
    return np.full((agreed.rows, agreed.outputs), value, dtype=np.float32)


# --- once ------------------------------------------------------------------------------------------


def test_a_request_that_comes_again_is_answered_alike_and_done_once(tmp_path: Path) -> None:
    asked = requests(2)
    with PartySite(one_party, tmp_path / "once") as site:
        once = [site.answer(request) for request in asked]
    for request, expected in zip(asked, once, strict=True):
        for _ in range(2):  # the answer was lost, and the process with it
            with PartySite(one_party, tmp_path / "twice") as site:
                assert site.answer(request) == expected
    assert state(tmp_path / "twice") == state(tmp_path / "once")
    statuses = [entry["status"] for entry in read_log(tmp_path / "twice" / AUDIT).entries]
    assert statuses == ["ok"] * 4 + ["ok", "repeated"] * (len(asked) - 2)


def test_what_fails_counts_and_changes_nothing_else(site: PartySite, tmp_path: Path) -> None:
    ask(site, Join(agreement=agreement()))
    ask(site, FitPrivate(round=1), Checkpoint(round=1))
    before = state(site._state.home)
    wrong = Distill(round=1, targets=teacher()[1:], alpha=0.5)
    for _ in range(2):
        failed = ask(site, FitPrivate(round=1), wrong)  # what came before it in the request, too
        assert isinstance(failed, Failure) and failed.kind == "invalid"
        assert state(site._state.home) == before
    assert read_session(site._state.home).requests == 3
    # Nor what is in memory: the party had trained by then.
    with PartySite(one_party, tmp_path / "undisturbed") as other:
        ask(other, Join(agreement=agreement()))
        ask(other, FitPrivate(round=1), Checkpoint(round=1))
        tasks = (FitPrivate(round=2), PredictPublic(round=2))
        expected, found = ask(other, *tasks)[1], ask(site, *tasks)[1]
    np.testing.assert_array_equal(found.values, expected.values)


def test_joining_again_starts_anew_and_keeps_checkpoints(site: PartySite) -> None:
    join = Join(agreement=agreement())
    ask(site, join)
    first = ask(site, FitPrivate(round=1), PredictPublic(round=1), Checkpoint(round=1))[1]
    ask(site, Distill(round=1, targets=teacher(), alpha=0.5))
    moved = ask(site, PredictPublic(round=2))
    assert not np.array_equal(first.values, moved.values)
    ask(site, join)
    assert site.party().trainer.learner.fitted is False
    assert ask(site, Restore(round=1)) == Same(Receipt, round=1)
    back = ask(site, PredictPublic(round=1))
    np.testing.assert_array_equal(back.values, first.values)
    ask(site, Join(agreement=agreement(seed=1)))
    assert ask(site, Restore(round=1)).kind == "failed", "checkpoints of another run are gone"


@pytest.mark.parametrize("went_on", [0, 1, 2])
def test_a_recorded_round_is_gone_back_to_however_far_the_next_one_is(
    tmp_path: Path, went_on: int
) -> None:
    """The state in which a party first hears that round 1 was recorded is that of round 1, in any process."""
    next_round = [
        (PredictPublic(round=2),),
        (Distill(round=2, targets=teacher(), alpha=0.5),),
    ]

    def said(*tasks: Any, recorded: int) -> Any:
        with PartySite(one_party, tmp_path) as site:
            return ask(site, *tasks, recorded=recorded)

    said(Join(agreement=agreement()), recorded=-1)
    said(FitPrivate(round=1), recorded=0)
    said(Distill(round=1, targets=teacher(0.5), alpha=0.9), recorded=0)
    wrong = Distill(round=1, targets=teacher()[1:], alpha=0.5)
    assert said(wrong, recorded=1).kind == "invalid"  # it counts, and changes nothing
    expected = said(PredictPublic(round=1), recorded=0).values
    for tasks in next_round[:went_on]:
        assert not isinstance(said(*tasks, recorded=1), Failure)
    for _ in range(2):
        assert said(Restore(round=1), recorded=1) == Same(Receipt, round=1)
        np.testing.assert_array_equal(said(PredictPublic(round=1), recorded=1).values, expected)
    with PartySite(one_party, tmp_path) as site:
        (kept,) = (site._state.current / "checkpoints").iterdir()
        assert kept.name == "round-00001" and not (kept / "session.json").exists()


def test_who_joins_anew_keeps_no_recorded_round_of_before(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()))
    ask(site, FitPrivate(round=1), recorded=0)
    ask(site, PredictPublic(round=2), recorded=1)
    ask(site, Join(agreement=agreement(seed=1)), recorded=1)
    assert read_session(site._state.home).recorded == -1
    assert ask(site, Restore(round=1), recorded=1) == Same(Receipt, round=1)
    assert not site.party().trainer.learner.fitted


def test_after_restoring_what_was_said_no_longer_holds(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()))
    kept = ask(site, FitPrivate(round=1), PredictPublic(round=1), Checkpoint(round=1))[1]
    ask(site, Distill(round=1, targets=teacher(), alpha=0.5))
    assert not np.array_equal(ask(site, PredictPublic(round=1)).values, kept.values)
    ask(site, Restore(round=1))
    np.testing.assert_array_equal(ask(site, PredictPublic(round=1)).values, kept.values)


def test_the_second_of_two_processes_is_told_who_is_first(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from consilience.sites.party.state import StateFolder\n"
        "StateFolder(Path(sys.argv[1]))"
    )
    with PartySite(one_party, tmp_path):
        with pytest.raises(RunFailed, match=rf"another process .* \(PID {os.getpid()}\)"):
            PartySite(one_party, tmp_path)
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
        )
        assert f"(PID {os.getpid()})" in second.stderr
    PartySite(one_party, tmp_path).close()


def test_models_that_only_speak_are_not_written_again(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()))
    ask(site, FitPrivate(round=1))
    (before,) = site._state.home.glob("state-*/model*")
    number = before.stat().st_ino
    ask(site, PredictPublic(round=1))
    (after,) = site._state.home.glob("state-*/model*")
    assert (after != before, after.stat().st_ino) == (True, number)


# --- refused ----------------------------------------------------------------------------------------


def test_not_joined(site: PartySite) -> None:
    assert "has not joined" in ask(site, FitPrivate(round=1)).reason
    assert site.party() is None


def test_rounds_that_are_over(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()))
    ask(site, FitPrivate(round=1))
    assert ask(site, Evaluate(round=0)) == Same(Metrics, round=0)  # round 1 has begun by then
    assert ask(site, Checkpoint(round=0)) == Same(Receipt, round=0)
    ask(site, PredictPublic(round=3))
    assert refused(site, FitPrivate(round=2)) == "the request is of round 2, and it is in round 3"
    assert "of round 0" in refused(site, Evaluate(round=0))
    assert ask(site, CountRows(round=0)).rows > 0, "depends on the data alone"


def test_what_cannot_be_restored_stays_as_it_is(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()))
    ask(site, FitPrivate(round=1))
    ask(site, Checkpoint(round=1))
    kept = ask(site, PredictPublic(round=1)).values
    ask(site, FitPrivate(round=2))
    later = ask(site, PredictPublic(round=2)).values
    missing = ask(site, Restore(round=0))
    assert isinstance(missing, Failure) and "no state of round-00000" in missing.reason
    np.testing.assert_array_equal(ask(site, PredictPublic(round=2)).values, later)
    assert ask(site, Restore(round=1)) == Same(Receipt, round=1), "also when it is further on"
    np.testing.assert_array_equal(ask(site, PredictPublic(round=1)).values, kept)


def test_another_federation(site: PartySite) -> None:
    ask(site, Join(agreement=agreement()), federation="heart")
    assert read_session(site._state.home).federation == "heart"
    assert ask(site, FitPrivate(round=1), federation="heart") == Same(Receipt)
    assert refused(site, FitPrivate(round=2), federation="lung") == (
        "the request is of federation 'lung', and it has joined 'heart'"
    )


def test_another_party(site: PartySite) -> None:
    assert "is for 'birch', and this is 'ash'" in refused(site, Describe(), to="birch")
    assert ask(site, Describe(), to=NAME).party == NAME


def test_other_public_data(tmp_path: Path) -> None:
    def moved() -> Party:
        party = one_party()
        party.hold_public(Public(party.public.X[1:]))
        return party

    with PartySite(moved, tmp_path) as site:
        failure = ask(site, Join(agreement=agreement()))
        assert "public data are not the ones agreed on" in failure.reason
        assert site.party() is None


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ((), "holds no tasks"),
        ((Receipt(party="a", round=1),), "holds no tasks"),
        ((FitPrivate(round=-1),), "not of one round"),
        ((FitPrivate(round=2), CountRows(round=3)), "not of one round"),
        ((Join(agreement=agreement()), FitPrivate(round=0)), "asked for alone"),
        ((Join(agreement=agreement()), CompressedRequest(codec={"level": 1})), "asked for alone"),
        ((Distill(round=2, targets=teacher(np.nan), alpha=0.5),), "Distill.targets holds NaN"),
        ((FitPrivate(round=2), FitPrivate(round=2)), "for the same more than once"),
        (
            (TrainTowards(round=2, labels=float("nan")),),
            "TrainTowards.labels holds NaN",
        ),
        (
            (hidden(3, FitPrivate(round=2)),),
            "not of one round",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_question(site: PartySite, tasks: Any, reason: str) -> None:
    ask(site, Join(agreement=agreement()))
    assert reason in refused(site, *tasks)


def test_a_party_that_cannot_be_made(tmp_path: Path) -> None:
    def broken() -> Party:
        raise InvalidInput("there are no rows", where="data.csv", mend="Add some.")

    with PartySite(broken, tmp_path, name="north") as site:
        failure = ask(site, Describe())
    assert (failure.party, failure.kind, failure.mend) == ("north", "invalid", "Add some.")


# --- limits -----------------------------------------------------------------------------------------


def test_what_may_leave_by_default(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        assert "limits.allow: it does not let 'SendParameters'" in refused(
            site, SendParameters(round=1, size=3)
        )
        assert "'SendParameters'" in refused(site, hidden(1, SendParameters(round=1, size=3)))


def test_no_more_rounds_than_agreed(tmp_path: Path) -> None:
    join = Join(agreement=agreement())
    with PartySite(one_party, tmp_path, limits=Limits(rounds=2)) as site:
        ask(site, join)
        ask(site, FitPrivate(round=1))
        ask(site, PredictPublic(round=1))
        ask(site, join)  # a run that is started anew counts again
        ask(site, FitPrivate(round=1))
        assert "limits.rounds: it has taken part in 2 rounds" in refused(site, FitPrivate(round=2))
        assert isinstance(ask(site, PredictPublic(round=1)), Predictions)


def test_no_more_joins_than_requests_in_a_round(tmp_path: Path) -> None:
    """A new round lets the party be asked again; what it answers in a round is counted apart."""
    join = Join(agreement=agreement())
    with PartySite(one_party, tmp_path, limits=Limits(requests=5)) as site:
        answered = [not isinstance(ask(site, join), Failure) for _ in range(40)]
        assert answered == [True] * 5 + [False] * 35
        assert "limits.requests: it has joined or gone back 5 times" in refused(site, join)
        assert not isinstance(ask(site, FitPrivate(round=0), PredictPublic(round=0)), Failure)
        for seed in range(5):  # another agreement is no way round it
            assert not isinstance(
                ask(site, Join(agreement=replace(agreement(), seed=seed))), Failure
            )
        assert "limits.requests" in refused(site, Join(agreement=replace(agreement(), seed=9)))


def test_joins_and_restores_that_fail_count(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path, limits=Limits(requests=4)) as site:
        ask(site, Join(agreement=agreement()))
        wrong = Join(agreement=replace(agreement(), rows=7))
        for task in (wrong, wrong, Restore(round=3)):
            failure = ask(site, task)
            assert isinstance(failure, Failure) and "limits." not in failure.reason
        session = read_session(tmp_path)
        assert session is not None and (session.joins, session.round) == (4, -1)
        for task in (wrong, Restore(round=3)):
            assert "limits.requests: it has joined or gone back 4 times" in refused(site, task)
        assert not isinstance(ask(site, FitPrivate(round=0), PredictPublic(round=0)), Failure)


def test_joins_that_fail_before_the_first_one_count_over_restarts(tmp_path: Path) -> None:
    """And their error does not name a class that test rows alone have."""

    def made() -> Party:
        X, y = (given := one_party()).rows.X, given.rows.y
        party = Party(NAME, LogisticRegression(), X, y, test=(X[:2], np.array([y[0], "HIV"])))
        party.hold_public(given.public)
        return party

    for again in range(3):
        with PartySite(made, tmp_path, limits=Limits(requests=4)) as site:
            for number in range(2):
                failure = ask(site, Join(agreement=replace(agreement(), seed=number)))
                assert isinstance(failure, Failure) and "HIV" not in failure.reason
                assert ("limits.requests" in failure.reason) is (2 * again + number >= 4)


def test_no_more_requests_in_a_round_than_agreed(tmp_path: Path) -> None:
    """Joining again, restoring, and asking in round 0 do not get around it."""
    join, numbers = Join(agreement=agreement()), iter(range(100))

    def another(round: int) -> Any:  # whose bytes are new each time
        rates = 0.1 + 0.001 * next(numbers)
        return Distill(round=round, targets=teacher(), alpha=rates)

    with PartySite(one_party, tmp_path, limits=Limits(rounds=2, requests=3)) as site:
        ask(site, join)
        for _ in range(2):
            assert ask(site, FitPrivate(round=0)) == Same(Receipt)  # the second is a repetition
        ask(site, Checkpoint(round=0))
        ask(site, join)
        ask(site, Restore(round=0))
        assert ask(site, another(0)) == Same(Receipt)
        assert "limits.requests: it has answered 3 requests" in refused(site, another(0))
        assert ask(site, another(1)) == Same(Receipt)
        ask(site, join)
        assert "limits.rounds" in refused(site, FitPrivate(round=0))


def test_no_more_work_in_a_round_than_agreed_by_asking_for_what_fails(tmp_path: Path) -> None:
    wrong = Distill(round=1, targets=teacher()[1:], alpha=0.5)
    with PartySite(one_party, tmp_path, limits=Limits(rounds=2, requests=2)) as site:
        ask(site, Join(agreement=agreement()))
        for _ in range(2):
            assert ask(site, FitPrivate(round=1), wrong).kind == "invalid"
        assert "limits.requests: it has answered 2" in refused(site, FitPrivate(round=1), wrong)
        for number in (2, 3):
            later = replace(wrong, round=number)
            failed = ask(site, FitPrivate(round=number), later)
        assert "limits.rounds: it has taken part in 2 rounds" in failed.reason
        assert ask(site, Restore(round=1)).kind == "failed"  # and is in round 2 as before
        assert read_session(tmp_path).round == 2


def test_how_good_it_is_it_says_once_a_run_and_so_often_in_all(tmp_path: Path) -> None:
    """Over restarts; asked again in the same words it says the same, and it does not count."""
    join, limits = Join(agreement=agreement()), Limits(metrics_in_all=2)

    def answered(*tasks: Any) -> Any:
        with PartySite(one_party, tmp_path, limits=limits) as site:
            said = ask(site, *tasks)
            return said.reason if isinstance(said, Failure) else said

    answered(join)
    assert answered(Describe()).metrics == 1
    answered(FitPrivate(round=1))
    first = answered(Evaluate(round=1))
    assert first == Same(Metrics, round=1)
    assert encode([answered(Evaluate(round=1))]) == encode([first])
    for task in (Evaluate(round=2), hidden(2, Evaluate(round=2))):
        assert "limits.metrics: it has said 1 times how good its model is" in answered(task)
    answered(join)
    answered(FitPrivate(round=1))
    assert answered(Evaluate(round=1)) == Same(Metrics)
    assert answered(Describe()).metrics == 0
    answered(join)
    assert "limits.metrics_in_all: it has said 2 times" in answered(Evaluate(round=0))


def test_its_metrics_have_three_digits(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=1))
        said = ask(site, Evaluate(round=1)).values
    assert said == {name: float(f"{value:.3g}") for name, value in said.items()}
    exact = one_party()
    exact.join(agreement())
    exact.trainer.fit_private(1)
    _, values = exact.evaluate()
    assert said != values and said == pytest.approx(values, rel=5e-3)


def test_who_does_not_let_itself_be_measured_says_so(tmp_path: Path) -> None:
    for limits in (Limits(metrics=0), Limits(allow=("Describe", "Join"))):
        with PartySite(one_party, tmp_path, limits=limits) as site:
            assert ask(site, Describe()).metrics == 0


def test_a_weight_below_its_least_is_raised_and_said(tmp_path: Path) -> None:
    def refitting() -> Party:
        party = one_party()
        made = Party(
            party.name,
            "decision-tree",
            party.rows.X,
            party.rows.y,
            rules=PartyRules(keys=Keys(secret=party.rules.keys.secret)),
        )
        made.hold_public(party.public)
        return made

    with PartySite(refitting, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=1))
        (note,) = ask(site, Distill(round=1, targets=teacher(), alpha=0.0)).notes
        low = ask(site, PredictPublic(round=2)).values
        assert ask(site, Distill(round=2, targets=teacher(), alpha=0.1)).notes == ()
        np.testing.assert_array_equal(ask(site, PredictPublic(round=3)).values, low)
    assert note == "private rows weigh 0.1, its least, and not 0"
    lines = [
        one["detail"] for one in read_log(tmp_path / AUDIT).entries if one["tasks"] == "Distill"
    ]
    assert lines == [note, ""]


def test_own_rows_among_the_public_ones_are_noted_in_its_log_alone(tmp_path: Path) -> None:
    def overlapping() -> Party:
        party = one_party()
        party.hold_public(Public(np.concatenate([party.public.X[2:], party.rows.X[:2]])))
        return party

    agreed = replace(agreement(), public=overlapping().public.key)
    with PartySite(overlapping, tmp_path) as site:
        said = ask(site, Join(agreement=agreed))
        assert said == Same(Receipt, notes=())
        rows = ask(site, CountRows(round=1)).rows
    with PartySite(one_party, tmp_path / "without") as site:
        ask(site, Join(agreement=agreement()))
        assert ask(site, CountRows(round=1)).rows == rows
    line = read_log(tmp_path / AUDIT).entries[0]["detail"]
    assert line == "2 of its rows are among the public rows, and are left out"


def test_one_federation_alone(tmp_path: Path) -> None:
    limits = Limits(federation="heart")
    with PartySite(one_party, tmp_path, name=NAME, limits=limits) as site:
        join = Join(agreement=agreement())
        assert "takes part in 'heart' alone" in refused(site, join, federation="lung")
        assert "without a name" in refused(site, join)
        assert ask(site, join, federation="heart") == Same(Receipt)
        assert "'\\udc80'" in refused(site, FitPrivate(round=0), federation="\udc80")


BUDGET = Limits(epsilon=1.0, adjacency="replace")


def declared() -> Party:
    """The same party, whose classes its rows do not tell."""
    party = one_party()
    party.rows.declared = party.rows.classes
    return party


def certainty(epsilon: float | None, round: int = 1, delta: float = 1e-5) -> ScoreCertainty:
    return ScoreCertainty(round=round, regularization=0.5, epsilon=epsilon, delta=delta)


def test_noise_cannot_be_averaged_away(tmp_path: Path) -> None:
    """Restoring, joining again, and a process of its own for each request: it is drawn once."""
    limits = Limits(density_ratios="exact")
    with PartySite(one_party, tmp_path, limits=limits) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=0), Checkpoint(round=0))
        said = [ask(site, certainty(0.5)).values]
    for t, tasks in enumerate([(Restore(round=0),), (), (Join(agreement=agreement()),), ()]):
        with PartySite(one_party, tmp_path, limits=limits) as site:
            if t < 2:
                ask(site, Join(agreement=agreement()))
            for task in tasks:
                assert ask(site, task) == Same(Receipt)
            said.append(ask(site, certainty(0.5, round=t)).values)
    for again in said[1:]:
        np.testing.assert_array_equal(again, said[0])


def test_what_certainties_may_spend(tmp_path: Path) -> None:
    with PartySite(declared, tmp_path, limits=BUDGET) as site:
        ask(site, Join(agreement=agreement()))
        assert "limits.epsilon: it says certainties with noise alone" in refused(
            site, certainty(None)
        )
        assert "Predictions states no privacy cost" in refused(site, PredictPublic(round=1))
        first = ask(site, certainty(0.8))
        assert "would have spent 1.174 in all, of 1" in refused(site, certainty(0.8, delta=1.1e-5))
        np.testing.assert_array_equal(ask(site, certainty(0.8, round=2)).values, first.values)
        ask(site, Join(agreement=agreement(seed=1)))  # other random features: another question
        assert "would have spent 1.17 in all" in refused(site, certainty(0.8))
        assert isinstance(ask(site, certainty(0.5)), Certainties)


@pytest.mark.parametrize("inside", [False, True])
def test_a_budget_that_is_spent_lets_nobody_work_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """What costs too much is refused before anything runs; a task that did not say so counts as it ran."""
    trained: list[int] = []
    monkeypatch.setattr(Trainer, "fit_private", lambda party, round: trained.append(round))
    limits = BUDGET.model_copy(
        update={"allow": ("predictions", "others"), "epsilon": 0.1, "requests": 3}
    )
    tasks: tuple[Task, ...] = (FitPrivate(round=1), certainty(0.5))
    tasks = (hidden(1, *tasks),) if inside else tasks
    with PartySite(declared, tmp_path, limits=limits) as site:
        ask(site, Join(agreement=agreement()))
        failures = [ask(site, *tasks) for _ in range(10)]
    assert all(failure.kind == "refused" for failure in failures)
    reasons = [failure.reason.partition(":")[0] for failure in failures]
    assert (
        reasons == ["limits.epsilon"] * 3 + ["limits.requests" if inside else "limits.epsilon"] * 7
    )
    assert len(trained) == (3 if inside else 0)


def test_a_coordinator_cannot_buy_noise_off_with_delta(tmp_path: Path) -> None:
    with PartySite(declared, tmp_path, limits=BUDGET) as site:
        ask(site, Join(agreement=agreement()))
        assert "limits.epsilon" in refused(site, certainty(0.1, delta=0.9))
        assert isinstance(ask(site, certainty(0.1)), Certainties)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 2**40},
        {"rows": 19},
        {"outputs": 2**40},
        {"classes": ("0", "1", "1")},
        {"classes": tuple(map(str, range(70_000))), "outputs": 70_000},
        {"kind": "regression"},
        {"kind": "regression", "classes": (), "outputs": 3},
    ],
)
def test_an_agreement_that_does_not_fit(site: PartySite, changes: Any) -> None:
    failure = ask(site, Join(agreement=replace(agreement(), **changes)))
    assert failure.kind == "invalid" and "the agreement is of" in failure.reason
    assert site.party() is None


# --- whatever may come ------------------------------------------------------------------------------

ARRAYS = arrays_of.arrays(
    st.sampled_from(["float32", "float64", "int8", "bool", "uint8"]),
    arrays_of.array_shapes(min_dims=0, max_dims=3, max_side=5),
)
ROUNDS = st.integers(-2, 5)
TASKS = st.one_of(
    st.builds(
        Distill, round=ROUNDS, targets=ARRAYS, alpha=st.floats(0, 1), taught=st.none() | ARRAYS
    ),
    st.builds(PredictPublic, round=ROUNDS, outputs=st.sampled_from(["values", "logits"])),
    st.builds(Restore, round=ROUNDS),
    st.builds(Receipt, party=st.text(max_size=3), round=ROUNDS),
    st.builds(
        lambda seed: Join(agreement=replace(agreement(seed=seed), public="another")),
        st.integers(-3, 3),
    ),
)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A party that has trained and moved on to round 9, where nothing of before is taken."""
    with PartySite(one_party, tmp_path_factory.mktemp("standing"), limits=EVERYTHING) as made:
        ask(made, Join(agreement=agreement()))
        ask(made, FitPrivate(round=9))
        yield made


@given(st.binary(max_size=300) | st.lists(TASKS, max_size=3).map(encode))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_malformed_crashes_it_or_changes_its_state(
    standing: PartySite, request_: bytes
) -> None:
    before = state(standing._state.home)
    (failure,) = decode(standing.answer(request_))
    assert isinstance(failure, Failure), failure
    assert state(standing._state.home) == before


@given(st.data())
@settings(max_examples=100)
def test_a_request_with_bits_flipped(standing: PartySite, data: Any) -> None:
    """Of the bytes of a good request any may be wrong; what is still a good request is answered."""
    good = bytearray(encode([Distill(round=8, targets=teacher(), alpha=0.5)]))
    for place in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=4)):
        good[place] ^= data.draw(st.integers(1, 255))
    before = state(standing._state.home)
    replies = decode(standing.answer(bytes(good)))
    if isinstance(replies[0], Failure):
        assert state(standing._state.home) == before


def test_all_of_a_state_is_on_the_disk_before_it_counts(
    site: PartySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses what was not forced to the disk; what is shared with the state before was."""
    asked = requests(2)
    for request in asked[:6]:
        site.answer(request)
    home, flush, forced = site._state.home, os.fsync, set()
    counted, switch = [], os.replace

    def noted(handle: int) -> None:
        forced.add(os.stat(handle).st_ino)
        flush(handle)

    def switched(old: Path, new: Path) -> None:
        if Path(new).name == "current":
            (before, after) = sorted(home.glob("state-*"))
            shared = {path.stat().st_ino for path in before.rglob("*") if path.is_file()}
            written = [after, *after.rglob("*"), home / ".part-current"]
            counted.append(len(written))
            assert {path.stat().st_ino for path in written} - shared <= forced
        switch(old, new)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", switched)
    for request in asked[6:]:
        assert not isinstance(decode(site.answer(request))[0], Failure)
    assert len(counted) == 2 and min(counted) > 8


def test_the_disk_is_full(site: PartySite, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays, and the request is done when there is room again."""
    asked = requests(1)
    for request in asked[:2]:
        site.answer(request)
    before = state(site._state.home)

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("consilience.sites.party.state.force", full)
        (failure,) = decode(site.answer(asked[2]))
        assert "its state cannot be written (No space left on device)" in failure.reason
        assert state(site._state.home) == before
    assert not isinstance(decode(site.answer(asked[2]))[0], Failure)


def test_nothing_leaves_that_is_not_in_the_log(
    site: PartySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(1)
    for request in asked[:2]:
        site.answer(request)
    write, broken = os.write, []

    def full(handle: int, data: bytes) -> int:
        if not broken:
            broken.append(write(handle, data[:20]))
            return 20
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        (failure,) = decode(site.answer(asked[2]))
    assert "audit log cannot be written (No space left on device)" in failure.reason
    assert not isinstance(decode(site.answer(asked[2]))[0], Failure)
    log = read_log(site._state.home / AUDIT)
    assert log.faults == () and [entry["status"] for entry in log.entries[-2:]] == [
        "mended",
        "repeated",
    ]


class Same:
    """Equal to a message of that kind with these fields."""

    def __init__(self, kind: type, **fields: Any) -> None:
        self.kind, self.fields = kind, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.kind) and all(
            getattr(other, name) == value for name, value in self.fields.items()
        )

"""What a party answers, and what becomes of its errors."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import consilience
from consilience import Party
from consilience.core.aggregation import AGGREGATORS
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.federation.forming import negotiate
from consilience.core.messages.message import HEADERS, TaskGroup
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import Score
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import processes
from consilience.core.registry import registered_names, registered_object
from consilience.core.tasks.base import task_types
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Evaluate, Join, Restore
from consilience.core.tasks.outgoing import LONGEST_REASON, answer
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.scores import ComparePublic, CountRows, ScorePublic, score_task
from consilience.methods.comparison_rules.tasks import SelectPublic
from consilience.methods.parameters.tasks import TrainDynamically, TrainParameters
from consilience.privacy.accounting.certainty import ScoreCertainty
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0]])


def joined(**more) -> Party:
    party = Party("a", Share(), POINTS, ["x", "x", "y"], calibration=0, **more)
    party.hold_public(Public(POINTS[:2]))
    agreement = negotiate([Describe().run(party)], party.public, seed=5)
    answer(party, [Join(agreement=agreement)])
    return party


def test_a_description():
    said = Describe().run(Party("a", Share(), POINTS, [9, 10, 9], test=(POINTS, [9, 9, 10])))
    assert (said.party, said.kind, said.classes) == ("a", "classification", ("9", "10"))
    assert (said.outputs, said.fewest_classes, said.tested) == (0, 1, True)
    said = Describe().run(Party("b", Share("regression"), POINTS, np.ones((3, 4))))
    assert (said.kind, said.classes, said.outputs, said.tested) == ("regression", (), 4, False)


def test_several_tasks_in_one_exchange():
    receipt, said, count = answer(
        joined(), [FitPrivate(round=1), PredictPublic(round=1), CountRows(round=1)]
    )
    assert receipt.party == said.party == count.party == "a"
    assert said.values.dtype == np.float32
    np.testing.assert_allclose(said.values, [[2 / 3, 1 / 3]] * 2, rtol=1e-6)
    assert (said.classes, said.kind, count.rows) == (("x", "y"), "probabilities", 3)


def test_values_are_told_in_double_precision():
    """A third keeps all its digits, and a party that rounds it is refused."""
    party = Party("a", Share("regression"), POINTS, [0, 0, 1], calibration=0)
    party.hold_public(Public(POINTS[:2]))
    agreement = negotiate([Describe().run(party)], party.public)
    task = PredictPublic(round=1, outputs="values")
    *_, said = answer(party, [Join(agreement=agreement), FitPrivate(round=1), task])
    assert said.values.dtype == np.float64
    np.testing.assert_array_equal(said.values, [[1 / 3], [1 / 3]])
    said.validate(party="a", task=task, agreement=agreement)
    rounded = replace(said, values=said.values.astype(np.float32))
    with pytest.raises(KnowledgeRefused, match="values are float32, expected float64"):
        rounded.validate(party="a", task=task, agreement=agreement)


def test_logits_and_densities():
    party = joined()
    _, said, density = answer(
        party, [FitPrivate(round=1), PredictPublic(round=1, outputs="logits"), ScorePublic(round=1)]
    )
    np.testing.assert_allclose(said.values, np.log([[2 / 3, 1 / 3]] * 2), rtol=1e-6)
    assert density.values.shape == (2,)
    assert density.notes == (
        "fewer than two calibration rows for 2 of 2 classes: "
        "the density is fitted to the training rows",
    )


def test_an_error_of_ours_keeps_its_mend():
    failure = answer(joined(), [Evaluate(round=1)])
    assert isinstance(failure, Failure)
    assert (failure.party, failure.kind) == ("a", "invalid")
    assert failure.reason == "party 'a': it holds no test data"


def test_other_errors_are_named():
    party = joined()
    party.trainer.fit_private = lambda round: 1 / 0
    failure = answer(party, [FitPrivate(round=1)])
    assert (failure.kind, failure.reason) == ("failed", "ZeroDivisionError: division by zero")

    def full(round):
        raise RunFailed("the disk is full", mend="Free some space.")

    party.trainer.fit_private = full
    failure = answer(party, [FitPrivate(round=1)])
    assert (failure.reason, failure.mend) == ("the disk is full", "Free some space.")


def test_little_of_an_error_leaves():
    party = joined()

    def revealing(round):
        raise ValueError("row 7 is " + "3.14 " * 1000)

    party.trainer.fit_private = revealing
    assert len(answer(party, [FitPrivate(round=1)]).reason) == LONGEST_REASON + len(" …")


def test_a_teacher_that_does_not_fit_is_refused():
    party = joined()
    for targets in (np.ones((5, 2)) / 2, np.ones((2, 3)) / 3):
        task = Distill(round=1, targets=targets.astype(np.float32), alpha=0.5)
        failure = answer(party, [FitPrivate(round=1), task])
        assert "the teacher has shape" in failure.reason


def test_checkpoints_keep_the_newest_and_the_one_before(tmp_path):
    party = joined()
    party.keep_states_in(tmp_path / "a")
    answer(party, [FitPrivate(round=1)])
    for round, previous in ((1, 0), (2, 1), (5, 2)):
        answer(party, [Checkpoint(round=round, previous=previous)])
    assert sorted(p.name for p in party.home.iterdir()) == ["round-00002", "round-00005"]
    party.trainer.learner.mean = None
    answer(party, [Restore(round=5)])
    np.testing.assert_allclose(party.trainer.learner.mean, [2 / 3, 1 / 3])


@pytest.mark.parametrize("task", [Checkpoint(round=1), Restore(round=1)])
def test_without_a_folder_there_is_no_state(task):
    failure = answer(joined(), [FitPrivate(round=1), task])
    assert "no folder" in failure.reason


def test_every_need_of_an_aggregator_has_its_task():
    needs = {kind for make in AGGREGATORS.values() for kind in make().needs}
    replies = {task.reply_type for task in task_types().values()}
    assert needs == {kind for kind in replies if issubclass(kind, Score)}
    assert {score_task(kind).reply_type for kind in needs} == needs


def test_every_task_is_registered_under_its_group_by_its_name():
    """A party at its own machine imports no protocol, and reads tasks from the wire by their names."""
    registered = {
        name: (group, registered_object(f"consilience.tasks.{group}", name))
        for group in get_args(TaskGroup)
        for name in registered_names(f"consilience.tasks.{group}")
    }
    ours = {
        name: (kind.exchanges, kind)
        for name, kind in task_types().items()
        if kind.__module__.startswith("consilience.") and kind is not processes.Export
    }
    assert registered == ours and len(ours) > 40
    headers = {registered_object(HEADERS, name) for name in registered_names(HEADERS)}
    source = Path(consilience.__file__).parent
    marked = [path for path in source.rglob("*.py") if "(Header):" in path.read_text()]
    assert len(headers) == len(marked) == 1


def test_a_score_that_no_task_asks_for_is_named():
    with pytest.raises(TypeError, match="ask for Score, and no task does"):
        score_task(Score)


@pytest.mark.parametrize(
    ("task", "option", "values"),
    [
        (ScoreCertainty, "regularization", (0.0, -1.0, np.inf, np.nan)),
        (ScoreCertainty, "epsilon", (0.0, 1.0, 1e300, np.nan)),
        (ScoreCertainty, "delta", (0.0, 1.0, np.nan)),
        (SelectPublic, "quantile", (-0.1, 1.0, np.nan)),
        (ComparePublic, "ridge", (0.0, -1.0, np.inf, np.nan)),
        (Distill, "alpha", (-0.1, 1.1, np.nan)),
        (TrainParameters, "strength", (-1.0, np.inf, np.nan)),
        (TrainDynamically, "strength", (0.0, np.inf, np.nan)),
        (TrainDynamically, "mean_rows", (0.0, np.nan)),
    ],
)
def test_options_out_of_range_are_refused_at_both_ends(task, option, values):
    usual = {
        "round": 1, "regularization": 0.1, "epsilon": 0.1, "delta": 0.1, "quantile": 0.1, "ridge": 0.1,
        "reference": "public", "alpha": 0.5, "targets": np.ones((1, 1)), "strength": 1.0, "size": 1,
        "counted": {}, "mean_rows": 1.0,
    }  # fmt: skip
    names = {field.name for field in dataclasses.fields(task)}
    (good,) = [task(**{name: value for name, value in usual.items() if name in names})]
    for value in values:
        with pytest.raises(InvalidInput, match=f"{option} is "):
            dataclasses.replace(good, **{option: value})
        broken = object.__new__(task)
        broken.__dict__.update(good.__dict__ | {option: value})
        forged = encode([broken])
        with pytest.raises(KnowledgeRefused, match=f"{option} is "):
            decode(forged)

"""Every task has its place in what a party may allow."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.core import (
    networks,  # noqa: F401 (every task is registered)
    protocols,  # noqa: F401 (every task is registered)
)
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import REGISTRY, message
from consilience.core.messages.replies import Predictions, Receipt
from consilience.core.messages.schema import Public
from consilience.core.tasks.base import Task, bookkeeping_tasks, task_types
from consilience.core.tasks.lifecycle import Join, TakePublic
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.methods.comparison_rules.scores import Certainties
from consilience.methods.comparison_rules.tasks import SelectPublic
from consilience.methods.parameters.tasks import DescribeParameters
from consilience.privacy.accounting.certainty import ScoreCertainty
from consilience.privacy.secure_aggregation.tasks import SumMasked, SumQuestion
from consilience.sites.party import EVERYTHING, GROUPS, Limits
from helpers.party_sites import agreement, one_party

OURS = {
    name: kind for name, kind in task_types().items() if kind.__module__.startswith("consilience.")
}


def test_a_task_that_does_not_say_what_it_belongs_to_cannot_be_made() -> None:
    """So that none can be let through because nobody knows it."""
    declared = {
        "reply_type": Receipt,
        "exchanges": "models",
        "protocol": None,
        "exposure": "nothing",
        "limits": (),
    }
    for missing in declared:
        rest = {name: value for name, value in declared.items() if name != missing}
        with pytest.raises(TypeError, match=missing):
            type("Undeclared", (Task,), {}, **rest)
    with pytest.raises(TypeError, match="no group of tasks is called 'model'"):
        type("Misspelt", (Task,), {}, **declared | {"exchanges": "model"})
    with pytest.raises(TypeError, match="no exposure of rows is called 'none'"):
        type("Misspelt", (Task,), {}, **declared | {"exposure": "none"})
    for wrong in ({"lifecycle": "late"}, {"summed": "anything"}, {"limits": "alpha"}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            type("Misspelt", (Task,), {}, **declared | wrong)
    telling = {"reply_type": Predictions, "exposure": "usual", "lifecycle": "describe"}
    with pytest.raises(TypeError, match="its lifecycle is 'describe'"):
        type("Uncounted", (Task,), {}, **declared | telling)
    with pytest.raises(TypeError, match="either both are 'nothing' or neither is"):
        type("Misstated", (Task,), {}, **declared | {"exposure": "usual"})
    with pytest.raises(TypeError, match="either both are 'nothing' or neither is"):
        type("Misstated", (Task,), {}, **declared | {"reply_type": Predictions})
    with pytest.raises(TypeError, match="standing"):  # a trait that is none
        type("Misspelt", (Task,), {}, **declared, standing=True)


def test_a_permission_does_not_follow_the_file() -> None:
    """A task that is moved into another folder is refused as before."""
    Deeper = type(
        "Deeper",
        (Task,),
        {
            "__module__": "consilience.methods.parameters.exchange.deeper",
            "run": lambda self, party: None,
        },
        reply_type=Receipt,
        exchanges="parameters",
        protocol="scaffold",
        exposure="nothing",
        limits=(),
    )
    try:
        task = message(Deeper)()
        with pytest.raises(KnowledgeRefused, match=r"limits.protocols: 'Deeper' is of 'scaffold'"):
            Limits(allow=("parameters",), protocols=()).refuse([task], federation="")
        with pytest.raises(KnowledgeRefused, match=r"limits.allow"):
            Limits().refuse([task], federation="")
    finally:
        REGISTRY.pop("Deeper")


def test_the_experiment_is_told_from_the_method() -> None:
    assert set(bookkeeping_tasks()) == {"Checkpoint", "Evaluate", "Restore"}


def test_every_task_is_in_one_group() -> None:
    """But Export, which has a party write a file where a coordinator says."""
    tasks = {name: kind.exchanges for name, kind in OURS.items()}
    assert tasks.pop("Export") is None
    assert set(tasks.values()) == set(GROUPS) - {"others"}
    assert "Export" not in EVERYTHING.allowed_replies()


MASKED = {
    "OpenSum": "SumKeys",
    "ShareSecrets": "SealedShares",
    "SumMasked": "MaskedInput",
    "OpenMasks": "SumOpening",
}
"""Exchanges of a secure sum, whose question is held against the limits as if it were asked openly."""


def test_with_predictions_no_model_and_no_parameter_leaves() -> None:
    assert set(Limits().allowed_replies().values()) == {
        "Description",
        "LogDensities",
        "Metrics",
        "Predictions",
        "Receipt",
        "RowCount",
        "Selection",
        *MASKED.values(),
    }


def test_one_protocol_alone() -> None:
    limits = Limits(allow=("predictions", "parameters"), protocols=("scaffold",))
    limits.check_names()
    leaving = limits.allowed_replies()
    assert "TrainControlled" in leaving and "TrainParameters" in leaving
    assert "TrainDynamically" not in leaving


def test_one_task_alone() -> None:
    assert set(Limits(allow=("Describe", "Join")).allowed_replies()) == {"Describe", "Join"}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(allow=("prediction",)), "unknown task or group 'prediction'"),
        (Limits(protocols=("scafold",)), "no protocol 'scafold' has tasks of its own"),
        (Limits(protocols=("ensemble_distillation",)), "has tasks of its own"),
    ],
)
def test_names_that_nobody_knows(limits: Limits, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        limits.check_names()


def test_whose_own_a_task_is() -> None:
    both = Limits(allow=GROUPS, protocols=()).allowed_replies().keys()
    assert {"PredictPublic", "SendParameters", "CheckSharing"} <= both
    assert not {"Descend", "TrainControlled", "TrainTowards"} & both
    boosting = (
        Limits(allow=GROUPS, protocols=("functional_gradient_boosting",)).allowed_replies().keys()
    )
    assert {"Descend", "StartFunction"} <= boosting - both


def test_what_leaves_the_model_as_it_is() -> None:
    """These alone; a task that says nothing has the model written anew."""
    said = {name for name, kind in OURS.items() if kind.keeps_model}
    assert said == {
        "CheckSharing",
        "Checkpoint",
        "CompareCoarsely",
        "CompareInputs",
        "ComparePublic",
        "CountRows",
        "Evaluate",
        "Export",
        "MeasureAngles",
        "PredictPublic",
        "ScoreCertainty",
        "ScorePublic",
        "SelectPublic",
        "SendMoments",
        "SumCalibration",
        "SumClasses",
        "TellApart",
        *MASKED,
    }
    static = {name for name, kind in OURS.items() if kind.static}
    assert static == said - {
        "Checkpoint",
        "Evaluate",
        "Export",
        "PredictPublic",
        "ScorePublic",
        *MASKED,
    }


def test_a_party_may_answer_in_sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bare, alone = PredictPublic(round=1), Limits(masks=True)
    certainty = ScoreCertainty(round=1, regularization=0.1, epsilon=None, delta=1e-5)
    for task in (bare, certainty, replace(certainty, epsilon=0.1)):  # nor with noise of its own
        name = task.reply_type.__name__
        with pytest.raises(KnowledgeRefused, match=rf"limits.masks: {name} would leave it as it"):
            alone.refuse([task], federation="")
    with monkeypatch.context() as patch:
        patch.setattr(Certainties, "privacy_cost", None)  # its author states none
        with pytest.raises(KnowledgeRefused, match=r"limits.masks: Certainties"):
            alone.refuse([certainty], federation="")
    asked = SumQuestion(tasks=(bare,), form="mean", settings={})
    alone.refuse([FitPrivate(round=1), SumMasked(round=1, shared=(), asked=asked)], federation="")
    parameters = Limits(masks=True, allow=("predictions", "parameters"))
    parameters.refuse([DescribeParameters(round=0, counted=False)], federation="")
    with pytest.raises(KnowledgeRefused, match=r"limits.masks: Architecture"):
        parameters.refuse([DescribeParameters(round=0)], federation="")


def test_a_fit_of_rows_leaves_with_noise_alone() -> None:
    """One party's row was rebuilt to four digits from certainties without noise."""
    fit = ScoreCertainty(round=1, regularization=0.1, epsilon=0.5, delta=1e-5)
    with pytest.raises(KnowledgeRefused, match=r"limits.epsilon"):
        Limits().refuse([fit], federation="")
    budget = Limits(epsilon=1.0, delta=1e-4)
    budget.refuse([fit], federation="")
    with pytest.raises(KnowledgeRefused, match=r"limits.epsilon"):
        budget.refuse([replace(fit, epsilon=None)], federation="")
    with pytest.raises(KnowledgeRefused, match=r"limits.regularization"):
        budget.refuse([replace(fit, regularization=1e-12)], federation="")


def test_functions_of_the_coordinators_choice_are_compared_with_rows_by_name_alone() -> None:
    """They count the rows of any region, so that the group of their task is not enough."""
    known = task_types()
    for name in ("ChangeFunction", "Residual", "Image"):
        assert known[name].exposure == "unmeasured"
        assert name not in Limits(allow=GROUPS, protocols=()).allowed_replies()
        assert name in Limits(allow=(*GROUPS, name)).allowed_replies()


def test_masks_need_the_others_keys() -> None:
    """Else a coordinator plays the other parties, and the sum is one party's answer."""
    with pytest.raises(InvalidInput, match="roster"):
        Limits(masks=True).bind(one_party())


def test_the_page_of_tasks_is_that_of_the_code() -> None:
    """Each task has a line with its traits, and words on what one reply reveals and why."""
    page = (Path(__file__).parents[3] / "docs/reference/tasks.md").read_text("utf-8")
    lines = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `") and line.count("|") == 9
    ]
    found = {name: tuple(cells) for name, *cells in lines}
    assert len(found) == len(lines)
    for name, task in OURS.items():
        reply, group, lifecycle, exposure, limits, reveals, why = found.pop(name)
        assert (reply, group) == (task.reply_type.__name__, task.exchanges or "none"), name
        assert (lifecycle, exposure) == (task.lifecycle, task.exposure), name
        stated = tuple(one.strip(" `") for one in limits.split(",")) if limits != "–" else ()
        assert stated == task.limits and set(stated) <= Limits.model_fields.keys(), name
        assert len(reveals) > 5 and len(why) > 5, name
    assert not found


def test_values_that_are_limited_are_of_the_limits_that_the_task_states() -> None:
    classes = agreement()
    for task in (
        Join(agreement=classes),
        TakePublic.of(Public(np.ones((3, 2)))),
        SelectPublic(round=1, quantile=0.2, reference="uniform"),
        ScoreCertainty(round=1, regularization=0.5, epsilon=None, delta=1e-5),
    ):
        assert task.limited and set(task.limited) <= set(task.limits)


LOADED = """
import sys
from pathlib import Path

from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.sites.party import Limits, PartySite
from helpers.party_sites import agreement, ask, one_party

limits = Limits(allow=tuple(sys.argv[2:]), protocols=())
limits.check_names()
with PartySite(one_party, Path(sys.argv[1]), limits=limits) as site:
    for task in (Describe(), Join(agreement=agreement()), FitPrivate(round=1), PredictPublic(round=1)):
        ask(site, task)
print(*(name for name in sys.modules if name.startswith("consilience.methods.")))
"""


@pytest.mark.parametrize(
    ("allow", "loaded"),
    [
        (("predictions",), {"comparison_rules"}),
        # Fusion of models takes the softmax of boosting's losses.
        (("predictions", "parameters"), {"comparison_rules", "parameters", "functional_boosting"}),
        (("Describe", "Join", "FitPrivate", "PredictPublic"), set()),
        (("Describe", "SelectPublic"), {"comparison_rules"}),
    ],
)
def test_a_site_imports_the_tasks_that_its_limits_name(
    allow: tuple[str, ...], loaded: set[str], tmp_path: Path
) -> None:
    """What is not imported cannot be asked; compression is a header, and every request may have one."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "state"), *allow],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    folders = {name.split(".")[2] for name in done.stdout.split()}
    assert folders - {"compression"} == loaded

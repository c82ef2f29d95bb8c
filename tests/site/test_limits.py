"""Every task has its place in what a party may allow."""

from __future__ import annotations

import pytest

from consilience import network, protocols  # noqa: F401 (every task is registered)
from consilience.errors import InvalidInput
from consilience.messages import REGISTRY
from consilience.site import EVERYTHING, GROUPS, Limits


def test_every_task_is_in_one_group() -> None:
    """But Export, which has a party write a file where a coordinator says."""
    tasks = {
        name: getattr(kind, "group", None)
        for name, kind in REGISTRY.items()
        if hasattr(kind, "answers") and kind.__module__.startswith("consilience.")
    }
    assert tasks.pop("Export") is None
    assert set(tasks.values()) == set(GROUPS)
    assert "Export" not in EVERYTHING.leaving()


def test_with_predictions_no_model_and_no_parameter_leaves() -> None:
    assert set(Limits().leaving().values()) == {
        "Certainties",
        "Description",
        "Encoded",
        "LogDensities",
        "Metrics",
        "Predictions",
        "Receipt",
        "RowCount",
        "Selection",
    }


def test_one_protocol_alone() -> None:
    limits = Limits(allow=("predictions", "parameters"), protocols=("scaffold",))
    limits.check_names()
    leaving = limits.leaving()
    assert "TrainControlled" in leaving and "TrainParameters" in leaving
    assert "TrainDynamically" not in leaving


def test_one_task_alone() -> None:
    assert set(Limits(allow=("Describe", "Join")).leaving()) == {"Describe", "Join"}


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
    """The name of its file, unless it says another."""
    both = Limits(allow=GROUPS, protocols=()).leaving().keys()
    assert {"SendEncoded", "SendParameters", "CheckSharing"} <= both
    assert not {"Descend", "TrainControlled", "TrainTowards"} & both
    boosting = Limits(allow=GROUPS, protocols=("functional_gradient_boosting",)).leaving().keys()
    assert {"Descend", "StartFunction"} <= boosting - both


def test_what_leaves_the_model_as_it_is() -> None:
    """These alone; a task that says nothing has the model written anew."""
    said = {name for name, kind in REGISTRY.items() if getattr(kind, "keeps_model", False)}
    assert said == {
        "CheckSharing",
        "Checkpoint",
        "CompareCoarsely",
        "ComparePublic",
        "CountRows",
        "Evaluate",
        "PredictPublic",
        "ScoreCertainty",
        "ScorePublic",
        "SelectPublic",
    }
    standing = {name for name, kind in REGISTRY.items() if getattr(kind, "standing", False)}
    assert standing == said - {"Checkpoint", "Evaluate", "PredictPublic", "ScorePublic"}

"""What is said once: with the first training, by whoever missed that when it is there, and not again."""

from __future__ import annotations

import numpy as np
import pytest

from consilience import Federation, Party, ensemble_distillation
from consilience.core.aggregation import avg, count_weighted
from consilience.core.errors import QuorumLost
from consilience.core.messages.scores import RowCount
from consilience.core.protocols import Round
from consilience.core.protocols.constant_replies import ConstantReplies
from consilience.core.tasks.scores import CountRows
from helpers.stub_models import Share

POINTS = np.array([[0.0], [1.0], [2.0], [3.0]])
LABELS = {"a": ["x", "x", "y"], "b": ["y", "y", "y"], "c": ["x", "x", "y", "y"]}
PUBLIC = np.array([[0.5], [1.5]])


def federation() -> Federation:
    parties = [
        Party(name, Share(), POINTS[: len(y)], y, calibration=0) for name, y in LABELS.items()
    ]
    return Federation(parties, PUBLIC, strict=False)


def asked(federation: Federation, rounds: list[Round]) -> list[str]:
    return [f"{d.party} {d.round}" for d in federation.network.deliveries if "CountRows" in d.tasks]


def test_it_is_asked_with_the_first_training_and_not_again():
    federated = federation()
    rounds = list(federated.rounds(ensemble_distillation(aggregate=count_weighted(), rounds=3)))
    assert asked(federated, rounds) == ["a 1", "b 1", "c 1"]
    for round in rounds[1:]:
        assert round.teacher is not None and round.teacher.weights is not None
        assert round.teacher.weights[:, 0].tolist() == pytest.approx([0.3, 0.3, 0.4])


def test_a_coordinator_that_starts_anew_asks_again_and_goes_on_as_before():
    protocol = ensemble_distillation(aggregate=count_weighted(), rounds=3)
    straight = list(federation().rounds(protocol))
    federated = federation()
    steps = federated.rounds(protocol)
    for _ in range(2):
        last = next(steps)
    resumed = list(federated.rounds(protocol, state=last.state))
    assert asked(federated, resumed) == [*("a 1", "b 1", "c 1"), *("a 2", "b 2", "c 2")]
    assert np.array_equal(resumed[-1].teacher.values, straight[-1].teacher.values)


def test_who_has_not_said_it_is_asked_and_misses_the_round_if_it_cannot(
    monkeypatch: pytest.MonkeyPatch,
):
    federated = federation()
    federated.form()
    constant = ConstantReplies(federated.network, count_weighted())
    honest = CountRows.run

    def of_two(task: CountRows, party: Party) -> RowCount:
        if party.name == "c":
            raise RuntimeError("not now")
        return honest(task, party)

    monkeypatch.setattr(CountRows, "run", of_two)
    assert constant.ask(("a", "c"), round=1) == ("a",)
    assert constant.ask(("a", "b", "c"), round=2) == ("a", "b")
    with pytest.raises(QuorumLost, match="c"):
        constant.ask(("c",), round=3)
    monkeypatch.undo()
    assert constant.ask(("a", "b", "c"), round=4) == ("a", "b", "c")
    federated.network.deliveries.clear()
    assert constant.ask(("a", "b", "c"), round=5) == ("a", "b", "c")
    assert federated.network.deliveries == []


def test_a_rule_that_needs_nothing_of_the_kind_asks_nothing():
    federated = federation()
    federated.form()
    constant = ConstantReplies(federated.network, avg())
    federated.network.deliveries.clear()
    assert constant.questions(round=1) == ()
    assert constant.ask(("a", "c"), round=1) == ("a", "c")
    assert federated.network.deliveries == []

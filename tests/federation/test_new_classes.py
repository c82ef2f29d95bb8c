"""Classes that are added between the rounds of a run in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, Party, avg, damped, density_ratio, ensemble_distillation
from consilience.aggregation import anderson
from consilience.aggregation.guard import Guard, SecretLabels
from consilience.aggregation.lateness import LastAnswers
from consilience.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.messages.schema import Public
from consilience.networks import LocalNetwork, Population
from consilience.protocols.local_only import local_only
from consilience.protocols.predictions.iterative_distillation import iterative_distillation
from consilience.protocols.secure_rounds import SecureAggregation
from consilience.transforms.budget import Budget
from consilience.transforms.codec import cached_rows, changed_rows, quantized

POINTS = np.linspace(-1, 1, 30)[:, None]
TWO = np.where(POINTS[:, 0] < 0, "below", "above")
THREE = np.where(np.abs(POINTS[:, 0]) < 0.3, "middle", TWO)


def clinic(name: str, y: Any = TWO, model: Any = GaussianNB, **more: Any) -> Party:
    return Party(name, model(), POINTS, y, test=(POINTS + 0.01, y), **more)


def protocol(rounds: int, **options: Any) -> Any:
    return ensemble_distillation(rounds=rounds, **({"aggregate": avg()} | options))


def grown(options: dict[str, Any], model: Any = GaussianNB, wire: bool = False) -> Any:
    """A run of two rounds, whose party "c" then comes back with rows of a third class, for two more."""
    network = LocalNetwork(
        [clinic("a", model=model), clinic("c", model=model)], Public(POINTS), wire=wire
    )
    federation = Federation.over(network, Public(POINTS))
    first = federation.run(protocol(2, **options))
    before = [one.state.consensus.copy() for one in first.rounds[1:]]
    whole = federation.resume(
        first, protocol(4, **options), join=[clinic("c", THREE, model)], classes=["middle"]
    )
    assert [one.number for one in whole.rounds] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal([one.state.consensus for one in whole.rounds[1:3]], before)
    return federation, whole


OPTIONS = {
    "avg": {},
    "density-ratio": {"aggregate": density_ratio()},
    "auto": {"aggregate": None},
    "damped": {"consensus": damped()},
    "anderson": {"consensus": anderson()},
    "quantized": {"codec": quantized(8)},
    "changed-rows": {"codec": changed_rows()},
    "cached-rows": {"codec": cached_rows()},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_all_parties_go_on_with_the_class(options: dict[str, Any]) -> None:
    federation, whole = grown(options)
    assert federation.network.agreed.classes == ("above", "below", "middle")
    assert [one.state.consensus.shape[1] for one in whole.rounds[1:]] == [2, 2, 3, 3]
    assert not whole.failures
    assert np.mean(whole.models["c"].predict(POINTS) == THREE) > 0.8
    taught = whole.models["a"].outputs(POINTS)[:, 2]  # which has no row of the class
    assert taught[THREE == "middle"].mean() > taught[THREE != "middle"].mean() > 0


def test_the_bits_are_those_of_a_run_that_remembers_nothing() -> None:
    """Whatever the rounds before were: parties that join anew draw by seed, name, round and purpose."""
    net = lambda: RandomForestClassifier(5)  # noqa: E731
    _, whole = grown({}, net)
    _, again = grown({}, net, wire=True)
    other = Federation([clinic("a", model=net), clinic("c", model=GaussianNB)], POINTS)
    first = other.run(protocol(2, alpha=0.4))
    third = other.resume(first, protocol(4), join=[clinic("c", THREE, net)], classes=["middle"])
    for number in (3, 4):
        taught = whole.rounds[number].teacher.values
        np.testing.assert_array_equal(taught, again.rounds[number].teacher.values)
        np.testing.assert_array_equal(taught, third.rounds[number].teacher.values)


def test_a_party_that_is_new_may_bring_it_and_one_that_joins_later_need_not_know_it() -> None:
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    history = federation.run(protocol(1))
    history = federation.resume(
        history, protocol(2), join=[clinic("b", THREE, LogisticRegression)], classes=["middle"]
    )
    assert history.rounds[2].teacher.parties == ("a", "b", "c")
    history = federation.resume(history, protocol(3), join=[clinic("d")])  # b alone knows the class
    assert history.rounds[3].teacher.parties == ("a", "b", "c", "d") and not history.failures


def test_answers_of_the_absent_from_before_do_not_count() -> None:
    rule = avg()
    rule = type(rule)(**{**rule.__dict__, "last": LastAnswers(age=5)})
    _, whole = grown({"aggregate": rule})
    assert {
        len(one.values[0])
        for _, said in whole.rounds[3].state.trust["last"].values()
        for one in said
    } == {3}


@pytest.mark.parametrize(
    ("classes", "join", "said"),
    [
        (["below"], [clinic("c", THREE)], "'below' cannot be added: there is one of that name"),
        (["middle", "middle"], [clinic("c", THREE)], "there is one of that name already"),
        (["Be low"], [clinic("c", THREE)], "'below' is a class already"),
        ([""], [clinic("c", THREE)], "blanks around it"),
        (["mid\u202edle"], [clinic("c", THREE)], "characters that are not seen"),
        (["m" * 10_000], [clinic("c", THREE)], "characters, of at most"),
        ([3], [clinic("c", THREE)], "a class is named by a text"),
        ("middle", [clinic("c", THREE)], "classes is 'middle'"),
        (["middle"], [], "no party has rows of class 'middle'"),
        (
            ["middle"],
            [clinic("c", np.where(THREE == "middle", "mid", TWO))],
            "no other party has class 'mid'",
        ),
        (
            ["middle"],
            [clinic("c", THREE), Party("d", Ridge(), POINTS, POINTS[:, 0])],
            "classify, others regress",
        ),
    ],
)
def test_bad_input_leaves_all_as_it_was(classes: Any, join: list[Party], said: str) -> None:
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    history = federation.run(protocol(1))
    with pytest.raises(InvalidInput, match=said):
        federation.resume(history, protocol(2), join=join, classes=classes)
    assert federation.network.agreed.classes == ("above", "below")
    assert len(federation.resume(history, protocol(2)).rounds) == 3


@pytest.mark.parametrize(
    ("party", "said"),
    [
        (
            clinic("a", classes=["above", "below"]),
            "data.classes: it names its classes, and 'middle' is none",
        ),
        (clinic("a", classes=["above", "below", "middle"]), ""),
    ],
)
def test_a_party_that_names_its_classes_decides(party: Party, said: str) -> None:
    federation = Federation([clinic("b", THREE), party], POINTS, strict=False)
    if said:
        federation = Federation([clinic("b"), party], POINTS)
    history = federation.run(protocol(1))
    if not said:  # it was agreed on from the beginning
        assert federation.network.agreed.classes == ("above", "below", "middle")
        return
    with pytest.raises(RunFailed, match=said):
        federation.resume(history, protocol(2), join=[clinic("b", THREE)], classes=["middle"])
    assert len(federation.resume(history, protocol(2)).rounds) == 3


def test_a_party_with_a_budget_says_no() -> None:
    parties = [clinic("a"), clinic("c", classes=["above", "below", "middle"])]
    federation = Federation([parties[0], clinic("c")], POINTS)
    history = federation.run(protocol(1))
    parties[1].protect(Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(
        RunFailed, match=r"limits.epsilon: what it released was of the classes agreed on"
    ):
        federation.resume(history, protocol(2), join=[parties[1]], classes=["middle"])


def values(name: str) -> Party:
    return Party(name, Ridge(), POINTS, POINTS[:, 0])


SECRET = SecretLabels(np.arange(4), ("below",) * 4)


@pytest.mark.parametrize(
    ("parties", "made", "said"),
    [
        ([values("a"), values("c")], lambda n: iterative_distillation(rounds=n), "predict values"),
        (
            [clinic("a"), clinic("c")],
            lambda n: local_only(rounds=n),
            "local_only cannot begin anew",
        ),
        (
            [clinic("a"), clinic("b"), clinic("c")],
            lambda n: protocol(n, secure_aggregation=SecureAggregation()),
            "with secure_aggregation it was agreed at the beginning",
        ),
        (
            [clinic("a"), clinic("c")],
            lambda n: protocol(
                n, aggregate=type(avg())(**{**avg().__dict__, "screen": Guard(secret=SECRET)})
            ),
            "secret labels are of the classes of the beginning",
        ),
    ],
    ids=["regression", "local", "sums", "secret-labels"],
)
def test_runs_that_take_in_no_class_say_why(parties: list[Party], made: Any, said: str) -> None:
    federation = Federation(parties, POINTS)
    history = federation.run(made(1))
    with pytest.raises(InvalidInput, match=said):
        federation.resume(history, made(2), classes=["middle"])
    assert len(federation.resume(history, made(2)).rounds) == 3


def test_other_networks_say_so() -> None:
    federation = Federation(Population(["a", "c"], clinic), POINTS)
    history = federation.run(protocol(1))
    with pytest.raises(ConsilienceError, match="takes in no further parties"):
        federation.resume(history, protocol(2), join=[clinic("b", THREE)], classes=["middle"])


def test_a_party_that_gives_no_ratios_is_asked_for_none() -> None:
    federation = Federation([clinic("a"), clinic("c")], POINTS)
    first = federation.run(protocol(1, aggregate=None))
    assert federation.network.agreed.ratios == "exact"
    late = clinic("c", THREE)
    late.ratios = "none"
    whole = federation.resume(first, protocol(2, aggregate=None), join=[late], classes=["middle"])
    assert federation.network.agreed.ratios == "none" and not whole.failures

"""What a party says of where its rows lie: nothing, unless its own limits say how coarsely."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from consilience import Party, auto
from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure, Replies
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import CoarseRatios
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.core.party.rules import PartyRules
from consilience.core.party.trainer import Trainer
from consilience.core.protocols.base import questions, score_questions
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.predictions import FitPrivate
from consilience.core.tasks.scores import CompareCoarsely, ComparePublic
from consilience.methods.comparison_rules.tasks import (
    MeasureAngles,
    SelectPublic,
    SendMoments,
    TellApart,
)
from consilience.sites.party import EVERYTHING, Limits, PartySite
from helpers.party_sites import ask

EXACT, COARSE = ComparePublic(round=1, ridge=0.3), CompareCoarsely(round=1)
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-1, 1, (40, 12)), RNG.normal(1, 1, (30, 12)), np.ones((1, 12))])
Y = np.repeat(["many", "some", "one"], [40, 30, 1])


def rows_of(seed: int) -> Public:
    return Public(np.random.default_rng(seed).normal(size=(150, 12)))


def party(public: Public | None = None) -> Party:
    made = Party("a", GaussianNB(), X, Y)
    made.hold_public(public or rows_of(1))
    return made


def joining(made: Party, seed: int = 0) -> Join:
    assert made.public is not None
    return Join(agreement=negotiate([Describe().run(made)], made.public, seed=seed))


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., Any]:
    """What a party under these limits answers, started anew for the question."""

    def answer(limits: Limits, task: Any, *, public: Public | None = None, seed: int = 0) -> Any:
        made = party(public)
        with PartySite(lambda: made, tmp_path, limits=limits) as site:
            ask(site, joining(made, seed))
            return ask(site, task)

    return answer


@pytest.mark.parametrize("task", [EXACT, COARSE])
@pytest.mark.parametrize(
    "allow", [(), ("predictions",), ("predictions", "ComparePublic", "CompareCoarsely")]
)
def test_nothing_leaves_whatever_is_allowed(asked: Any, task: Any, allow: tuple[str, ...]) -> None:
    limits = Limits(allow=(*allow, "Describe", "Join")) if allow else Limits()
    failure = asked(limits, task)
    assert isinstance(failure, Failure) and failure.kind == "refused"
    assert failure.reason.startswith("limits.density_ratios: ")
    assert "[limits.density_ratios]" in failure.mend and "such as avg" in failure.mend
    assert not {"ComparePublic", "CompareCoarsely"} & set(limits.allowed_replies())


def test_coarse_ones_leave_where_the_party_says_so_and_exact_ones_never(asked: Any) -> None:
    limits = Limits(density_ratios=Coarseness())
    assert isinstance(asked(limits, COARSE), CoarseRatios)
    assert "rows can be rebuilt from exact" in asked(limits, EXACT).reason
    assert limits.allowed_replies()["CompareCoarsely"] == "CoarseRatios"
    assert "ComparePublic" not in limits.allowed_replies()


MOMENTS = SendMoments(round=1, features=13)
UNMEASURED = (TellApart(round=1, reference="public"), MeasureAngles(round=1, energy=0.9))


def test_what_nobody_has_measured_leaves_where_limits_name_it(asked: Any) -> None:
    """Not with its group; and moments, of which rows can be read, leave nobody who has limits."""
    for task in UNMEASURED:
        name = type(task).__name__
        assert f"the risk of {name!r} for single rows" in asked(Limits(), task).reason
        assert name not in Limits().allowed_replies()
        named = Limits(allow=("predictions", name))
        assert asked(named, task).values.shape == (150,) and name in named.allowed_replies()
    named = Limits(allow=("predictions", "SendMoments"), density_ratios=Coarseness())
    assert "rows can be rebuilt" in asked(named, MOMENTS).reason
    for task in (*UNMEASURED, MOMENTS):
        assert len(asked(EVERYTHING, task).values)


def test_simulations_may_ask_for_either(asked: Any) -> None:
    assert asked(EVERYTHING, EXACT).values.shape == asked(EVERYTHING, COARSE).values.shape


def test_small_classes_give_nothing(asked: Any) -> None:
    said = asked(Limits(density_ratios=Coarseness()), COARSE)
    given = dict(zip(said.classes, said.values.any(axis=0).tolist(), strict=True))
    assert given == {"many": True, "one": False, "some": True}
    said = asked(Limits(density_ratios=Coarseness(rows=31, sets=2)), COARSE)
    assert dict(zip(said.classes, said.values.any(axis=0).tolist(), strict=True)) == {
        "many": True,
        "one": False,
        "some": False,
    }


def test_the_coordinator_chooses_nothing(asked: Any) -> None:
    """There is nothing in the task to choose by, and another seed gets the same bits."""
    assert [field.name for field in dataclasses.fields(CompareCoarsely)] == ["round"]
    limits = Limits(density_ratios=Coarseness())
    first, again = (asked(limits, COARSE, seed=seed).values for seed in (0, 7))
    np.testing.assert_array_equal(first, again)
    own = asked(Limits(density_ratios=Coarseness(unit=2, sets=2)), COARSE).values
    assert not np.array_equal(own, first)


def test_a_simulation_says_what_a_site_will(asked: Any) -> None:
    chosen = Coarseness(unit=2)
    alone = Party("a", GaussianNB(), X, Y, rules=PartyRules(density_ratios=chosen))
    alone.hold_public(rows_of(1))
    alone.join(joining(alone).agreement)
    said = asked(Limits(density_ratios=chosen), COARSE).values
    np.testing.assert_array_equal(COARSE.run(alone).values, said)
    assert said.any()


def test_one_set_of_public_rows_and_no_more(asked: Any, tmp_path: Path) -> None:
    """Over all that is joined; what is refused does not leave in a later request either."""
    limits = Limits(density_ratios=Coarseness())
    assert isinstance(asked(limits, COARSE), CoarseRatios)
    for _ in range(2):
        failure = asked(limits, COARSE, public=rows_of(2))
        assert "limits.density_ratios: it has compared its rows with 1 sets" in failure.reason
    assert isinstance(asked(limits, COARSE), CoarseRatios)
    two = Limits(density_ratios=Coarseness(sets=3))  # settings that changed count, too
    assert isinstance(asked(two, COARSE, public=rows_of(2)), CoarseRatios)


def test_a_comparison_too_many_counts_as_the_work_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    monkeypatch.setattr(Trainer, "fit_private", lambda party, round: trained.append(round))
    made = party()
    limits = Limits(density_ratios=Coarseness(), requests=3)
    with PartySite(lambda: made, tmp_path, limits=limits) as site:
        ask(site, joining(made))
        assert isinstance(ask(site, COARSE), CoarseRatios)
        made.hold_public(rows_of(2))
        ask(site, joining(made))
        tasks = (FitPrivate(round=2), CompareCoarsely(round=2))
        failures = [ask(site, *tasks) for _ in range(10)]
    assert {failure.kind for failure in failures} == {"refused"}
    assert len(trained) == 3 and "limits.requests" in failures[-1].reason


def test_refused_in_one_process_as_well(tmp_path: Path) -> None:
    made = party()
    with PartySite(lambda: made, tmp_path, limits=Limits(density_ratios=Coarseness())) as site:
        ask(site, joining(made))
        assert isinstance(ask(site, COARSE), CoarseRatios)
        made.hold_public(rows_of(2))
        ask(site, joining(made))
        for round in (1, 2):
            assert isinstance(ask(site, CompareCoarsely(round=round)), Failure)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (SelectPublic(round=1, quantile=5e-324, reference="public"), "limits.quantile: .* not 4.94066e-324"),
        (SelectPublic(round=1, quantile=0.99, reference="public"), "limits.quantile: .* not 0.99"),
    ],
)  # fmt: skip
def test_extremes_are_refused(asked: Any, task: Any, reason: str) -> None:
    failure = asked(Limits(), task)
    assert failure.kind == "refused" and re.match(reason, failure.reason) and failure.mend
    assert not isinstance(asked(EVERYTHING, task), Failure)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 19), ("directions", 0), ("directions", 31), ("unit", 1), ("sets", 0), ("rows", True)],
)
def test_settings_that_are_too_fine(name: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is {value}"):
        Coarseness(**{name: value})


# --- what a party says that it gives, before it is asked -------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(), "none"),
        (Limits(density_ratios=Coarseness()), "coarse"),
        (Limits(allow=("Describe",), density_ratios=Coarseness()), "none"),
        (EVERYTHING, "exact"),
    ],
)
def test_a_party_says_which_ratios_it_gives(limits: Limits, said: str) -> None:
    made = party()
    limits.bind(made)
    assert Describe().run(made).ratios == said


@pytest.mark.parametrize(
    ("two", "agreed"),
    [(("exact", "exact"), "exact"), (("coarse", "exact"), "coarse"), (("coarse", "none"), "none")],
)
def test_the_agreement_is_on_what_all_give(two: tuple[str, str], agreed: str) -> None:
    said = [
        dataclasses.replace(Describe().run(party()), party=name, ratios=ratios)
        for name, ratios in zip("ab", two, strict=True)
    ]
    assert negotiate(said, rows_of(1)).ratios == agreed


@pytest.mark.parametrize(
    ("limits", "note"),
    [
        (Limits(), "auto: mean of predictions, since not every party gives density ratios"),
        (Limits(density_ratios=Coarseness()), "auto: coarse density ratios"),
    ],
)
def test_between_sites_nothing_is_asked_that_is_refused(
    limits: Limits, note: str, tmp_path: Path
) -> None:
    made = party()
    limits.bind(made)
    agreement = joining(made).agreement
    rule = auto().suited_to(agreement)
    tasks = (*questions(rule, round=1), *score_questions(rule, round=1, static=True))
    with PartySite(lambda: party(), tmp_path, limits=limits) as site:
        ask(site, Join(agreement=agreement))
        answers = ask(site, FitPrivate(round=1), *tasks)[1:]
    others = [dataclasses.replace(one, party="b") for one in answers]
    teacher = rule(Replies({"a": tuple(answers), "b": tuple(others)}, {}))
    assert teacher.notes[0].startswith(note)

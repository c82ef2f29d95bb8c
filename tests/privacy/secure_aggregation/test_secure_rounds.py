"""Protocols under masks: the same teachers as without, of whoever survives; nothing readable leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB

from consilience import (
    Federation,
    LocalNetwork,
    Party,
    avg,
    count_weighted,
    density_ratio,
    ensemble_distillation,
    mean,
)
from consilience.core.aggregation import Aggregator, coordinate_median, majority_vote
from consilience.core.aggregation.base import Screened
from consilience.core.aggregation.guard import Guard
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.sums import Sum
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.incoming import Arrival
from consilience.core.protocols import Protocol, iterative_distillation
from consilience.core.tasks.lifecycle import Checkpoint, Join, Restore
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.methods.parameters.federated_averaging import federated_adam, federated_averaging
from consilience.models.fixed import Frozen
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.party import protect
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.secure_aggregation.party import SUMS, member_of
from consilience.privacy.secure_aggregation.rounds import SecureAggregation, SumsNetwork
from consilience.sites.operations.certificates import make_key
from helpers.party_sites import SiteNetwork
from helpers.quadratic_losses import quadratic_parties

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(100, 3)), Public(RNG.normal(size=(20, 3)))
SECURE = SecureAggregation()


def parties(names: str = "abcde", model: Any = GaussianNB) -> list[Party]:
    y = X[:, 0] if model is Ridge else np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
    size = len(X) // len(names)
    rows = {name: slice(i * size, (i + 1) * size) for i, name in enumerate(names)}
    return [Party(name, model(), X[part], y[part]) for name, part in rows.items()]


def rounds(network: Any, protocol: Protocol) -> list[Any]:
    return list(federation_over(network, PUBLIC, strict=False).rounds(protocol))


def teachers(protocol: Protocol, members: list[Party], **options: Any) -> list[Any]:
    network = LocalNetwork(members, PUBLIC, **options)
    return [one.teacher.values for one in rounds(network, protocol) if one.teacher is not None]


@pytest.mark.parametrize(
    "rule", [avg(), majority_vote(), count_weighted(), density_ratio()], ids=lambda r: r.name
)
def test_teachers_are_those_without_masks(rule: Aggregator) -> None:
    """Without masks a guard bounds density ratios; under masks it cannot, so that it is off in both."""
    unguarded = replace(rule, screen=lambda replies, memory: Screened(replies, {}, {}))
    plain, masked, wire = (
        teachers(
            ensemble_distillation(aggregate=one, rounds=2, secure_aggregation=secure),
            parties(),
            wire=wire,
        )
        for one, secure, wire in (
            (unguarded, None, False),
            (rule, SECURE, False),
            (rule, SECURE, True),
        )
    )
    np.testing.assert_array_equal(masked, wire)
    if rule.name in ("avg", "vote"):
        np.testing.assert_array_equal(masked, plain)
    np.testing.assert_allclose(masked, plain, rtol=0, atol=2**-23)  # float32's own steps are 2^-24


@pytest.mark.parametrize(
    ("protocol", "weights"),
    [(federated_averaging, "rows"), (federated_averaging, "uniform"), (federated_adam, "rows")],
    ids=lambda one: getattr(one, "name", one),
)
def test_means_of_parameters_are_those_without_masks(protocol: Any, weights: Any) -> None:
    """2^-25 of a party's sum of parameters times rows, and as much of float64 without masks."""

    def parameters(**options: Any) -> list[Any]:
        network = LocalNetwork(quadratic_parties(), Public.none())
        federation = federation_over(network, Public.none(), strict=False)
        made = protocol(rounds=3, weights=weights, **options)
        found = [one.state.memory["parameters"] for one in federation.rounds(made)]
        left = {one.left for one in network.deliveries}
        assert ("MaskedInput(3)" in left) == ("secure_aggregation" in options), left
        return found

    plain, masked = parameters(), parameters(secure_aggregation=SECURE)
    np.testing.assert_allclose(masked, plain, rtol=0, atol=2**-20)


def test_means_of_parameters_between_sites_are_the_same_bits(tmp_path: Path) -> None:
    """Every request opens the party's folder anew: what it has trained is there."""
    none, protocol = Public.none(), federated_averaging(rounds=2, secure_aggregation=SECURE)
    here, sites = (
        list(federation_over(network, none, strict=False).rounds(protocol))[-1].state.memory
        for network in (
            LocalNetwork(quadratic_parties(), none),
            SiteNetwork(quadratic_parties(), none, tmp_path),
        )
    )
    np.testing.assert_array_equal(here["parameters"], sites["parameters"])


def test_a_rule_by_rows_asks_for_predictions_and_for_no_parameters() -> None:
    """Its form of a sum has the name of one of parameters, which few hospitals allow."""
    network = LocalNetwork(parties(), PUBLIC)
    rule = count_weighted()
    rounds(network, ensemble_distillation(aggregate=rule, rounds=1, secure_aggregation=SECURE))
    asked = {one.tasks for one in network.deliveries}
    assert "SumMasked" in asked and "SumTrained" not in asked


def test_values_are_those_without_masks() -> None:
    plain, masked = (
        teachers(
            iterative_distillation(aggregate=mean(), rounds=2, secure_aggregation=secure),
            parties(model=Ridge),
        )
        for secure in (None, SECURE)
    )
    np.testing.assert_allclose(masked, plain, rtol=0, atol=2**-24)


@pytest.mark.parametrize("model", [GaussianNB, Ridge])
def test_class_sums_are_the_same_bit_for_bit(model: Any) -> None:
    bounds = (-3.0, 3.0) if model is Ridge else ()
    plain, masked = (
        teachers(
            private_sums(rounds=2, bounds=bounds, secure_aggregation=secure), parties(model=model)
        )
        for secure in (None, SECURE)
    )
    assert len(masked) == 2
    np.testing.assert_array_equal(masked, plain)


def test_class_sums_go_on_from_a_round_without_one_of_the_parties() -> None:
    """There is one sum of all; another one without it would tell its rows, and is not asked for."""
    protocol = private_sums(rounds=2, secure_aggregation=SECURE)
    federation = Federation(parties("abcd"), public=PUBLIC, strict=False)
    federation.form()
    done = list(federation.rounds(protocol.with_options(rounds=1)))[-1]
    (state,) = decode(encode([done.state]))
    federation.network._members.pop("d")  # type: ignore[attr-defined]
    (again,) = federation.rounds(protocol, state=state)
    np.testing.assert_array_equal(again.teacher.values, done.teacher.values)
    asked = {
        one.tasks for one in federation.network.deliveries if "2" in one.tasks or one.round == 2
    }
    assert asked == {"FitPrivate", "Distill"}


def test_a_roster_is_checked_within_a_run(tmp_path: Path) -> None:
    """One party's keys are not signed by the key that the others know it by: they go on without any sum."""
    roster = {name: make_key(tmp_path / name, name) for name in "abc"}
    make_key(tmp_path / "d", "d")
    members = parties("abc")
    network = LocalNetwork(members, PUBLIC)
    (bare,) = rounds(network, ONE_ROUND)[1].notes
    assert "since a, b, c hold no roster of the others' keys" in bare
    for one in members:
        member = member_of(one)
        member.identity, member.roster = (tmp_path / one.name).read_bytes(), roster
    member_of(members[2]).roster = None
    (half,) = rounds(network, ONE_ROUND)[1].notes
    assert "since c hold no roster" in half
    member_of(members[2]).roster = roster
    (held,) = rounds(network, ONE_ROUND)[1].notes
    assert "each holds the others' keys against a roster of its own" in held
    member_of(members[0]).identity = (tmp_path / "d").read_bytes()
    with pytest.raises(QuorumLost, match="keys that party 'a' did not sign"):
        teachers(ONE_ROUND, members)


def test_a_party_with_a_budget_adds_no_predictions() -> None:
    """Masks are no privacy: what has no stated cost is not added up either."""
    members = parties("abc")
    members[1].rows.declared = ("down", "up")
    protect(members[1], Budget(epsilon=1.0, delta=1e-3))
    with pytest.raises(QuorumLost, match="Predictions states no privacy cost"):
        teachers(ONE_ROUND, members)


def test_what_leaves_is_keys_shares_and_masked_integers() -> None:
    network = LocalNetwork(parties(), PUBLIC)
    done = rounds(
        network, ensemble_distillation(aggregate=avg(), rounds=1, secure_aggregation=SECURE)
    )
    left = {delivery.left for delivery in network.deliveries}
    assert left == {
        "Description",
        "",
        "SumKeys",
        "SealedShares(4×82)",
        "MaskedInput(40)",
        "SumOpening(5×33)",
    }
    assert done[1].teacher.weights.tolist() == [[0.2] * 20] * 5
    assert "4 or more parties that join hands" in done[1].notes[0]


class Losing(LocalNetwork):
    """Parties of which some are gone from a task on."""

    gone: Mapping[str, str]

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        arrivals = dict(super().exchange(tasks, to, request))
        for task in tasks:
            for name in self.gone.get(type(task).__name__, ""):
                if name in arrivals:
                    arrivals[name] = Arrival(Failure(party=name, reason="gone"), 0, 0.0)
        return arrivals


class Gone(SiteNetwork):
    """Parties at their own folders, of which some are gone from a task on."""

    gone: Mapping[str, str] = {}

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        arrivals = dict(super().exchange(tasks, to, request))
        for task in tasks:
            for name in self.gone.get(type(task).__name__, ""):
                arrivals[name] = Arrival(Failure(party=name, reason="gone"), 0, 0.0)
        return arrivals


class Between(LocalNetwork):
    """Party e is taught by itself right before a step is asked for the n-th time."""

    before, which = "", 0

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        if self.before in [type(task).__name__ for task in tasks]:
            self.which -= 1
            if self.which == (self.before == "SumMasked"):
                half = np.full((20, 2), 0.5, dtype=np.float32)
                alone = (Distill(round=tasks[0].round, targets=half, alpha=0.999),)
                super().exchange(alone, ("e",), encode(alone))
        return super().exchange(tasks, to, request)


def losing(**gone: str) -> Losing:
    network = Losing(parties("abcdefg"), PUBLIC)
    network.gone = gone
    return network


ONE_ROUND = ensemble_distillation(aggregate=avg(), rounds=1, secure_aggregation=SECURE)


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ({"OpenSum": "c"}, "abdefg"),
        ({"ShareSecrets": "c"}, "abdefg"),
        ({"SumMasked": "cg"}, "abdef"),
        ({"OpenMasks": "ac"}, "abcdefg"),  # their input is in the sum, and five open it
        ({"OpenSum": "a", "SumMasked": "g"}, "bcdef"),
    ],
    ids=str,
)
def test_a_round_goes_on_with_those_that_are_left(gone: dict[str, str], left: str) -> None:
    done = rounds(losing(**gone), ONE_ROUND)
    plain = ensemble_distillation(aggregate=avg(), rounds=1)
    expected = teachers(plain, [one for one in parties("abcdefg") if one.name in left])
    assert done[1].teacher.parties == tuple(left)
    np.testing.assert_array_equal(done[1].teacher.values, expected[0])


@pytest.mark.parametrize("step", ["OpenSum", "ShareSecrets", "SumMasked", "OpenMasks"])
def test_there_is_no_sum_of_fewer_than_the_threshold(step: str) -> None:
    with pytest.raises(QuorumLost, match="4 parties are left, and 5 open the sum"):
        rounds(losing(**{step: "abc"}), ONE_ROUND)


def summed(
    members: Mapping[str, Party], asked: str, rule: Aggregator, round: int, rows: int
) -> Any:
    """The sum of some parties' answers to some of the public rows, in a run that begins with it."""
    some = Public(PUBLIC.X[:rows])
    network = LocalNetwork([members[name] for name in asked], some)
    federation_over(network, some, strict=False).form()
    view = SumsNetwork(network, SECURE, rule)
    view.ask(FitPrivate(round=round))
    return view.ask(PredictPublic(round=round)).of(Sum)[0]


@pytest.mark.parametrize(
    ("rule", "rows"),
    [(avg(), 20), (avg(), 19), (majority_vote(), 20)],
    ids=["another round", "other public rows", "another rule"],
)
def test_a_coordinator_that_asks_twice_learns_no_difference(rule: Aggregator, rows: int) -> None:
    """A second sum that lacks a party would tell what that party says; one of the same parties is opened."""
    members = {one.name: one for one in parties()}
    first = summed(members, "abcde", avg(), 1, 20)
    again = summed(members, "abcde", avg(), 3, 20)
    np.testing.assert_array_equal(again.values, first.values)
    with pytest.raises(
        QuorumLost, match=r"e of the parties of the first sum \(a, b, c, d, e\) is missing"
    ):
        summed(members, "abcd", rule, 2, rows)
    if rule.name == "avg":
        summed(members, "abcde", rule, 4, rows)
    else:
        with pytest.raises(QuorumLost, match="its sums are of another rule"):
            summed(members, "abcde", rule, 4, rows)


def test_a_run_without_a_party_of_an_earlier_one_ends_before_any_training() -> None:
    members = parties()
    rounds(LocalNetwork(members, PUBLIC), ONE_ROUND)
    network = LocalNetwork(members[:4], PUBLIC)
    with pytest.raises(QuorumLost, match="e of the parties of the first sum") as error:
        rounds(network, ONE_ROUND)
    assert "each party's engineer changes its [roster]" in str(error.value)
    assert not network.models()
    rounds(LocalNetwork(parties()[:4], PUBLIC), ONE_ROUND)  # in one process: parties made anew


def test_a_party_that_is_gone_ends_the_run_and_resumed_with_it_the_run_goes_on(
    tmp_path: Path,
) -> None:
    """To the bits of a run without a break; a party that misses the first sum is in none, and taught."""
    two = ONE_ROUND.with_options(rounds=2)
    expected = teachers(two, parties("abcde"))
    network = Gone(parties("abcde"), PUBLIC, tmp_path)
    federation = federation_over(network, PUBLIC, strict=False)
    steps = federation.rounds(two)
    next(steps)
    first = next(steps)
    network.ask(Checkpoint(round=1))
    network.gone = {"SumMasked": "c"}
    with pytest.raises(QuorumLost, match="c of the parties of the first sum") as error:
        next(steps)
    assert "Start c again, and resume the run" in str(error.value)
    network.gone = {}
    network.require(Restore(round=1))
    (last,) = federation.rounds(two, state=first.state)
    np.testing.assert_array_equal(last.teacher.values, expected[1])


def test_a_party_that_misses_the_first_sum_is_taught_and_in_no_sum() -> None:
    network = losing(SumMasked="g")
    federation = federation_over(network, PUBLIC, strict=False)
    steps = federation.rounds(ONE_ROUND.with_options(rounds=3))
    next(steps)
    next(steps)
    network.gone = {}
    second, third = steps
    assert second.teacher.parties == third.teacher.parties == tuple("abcdef")
    assert "taught: g" in str(third.notes)
    assert "it was not in the first sum" in second.replies.missing["g"].reason
    assert "Distill" in {one.tasks for one in network.deliveries if one.party == "g"}


@pytest.mark.parametrize("step", ["OpenSum", "SumMasked"])
def test_one_that_was_asked_otherwise_is_in_no_sum(step: str) -> None:
    """Before the first sum the others go on without it; afterwards they wait for it."""
    network = Between(parties("abcde"), PUBLIC)
    federation = federation_over(network, PUBLIC, strict=False)
    network.before, network.which = step, 2  # the first one asks over whom sums are
    steps = federation.rounds(ONE_ROUND.with_options(rounds=2))
    next(steps)
    assert next(steps).teacher.parties == tuple("abcd")
    federation = federation_over(network := Between(parties(), PUBLIC), PUBLIC, strict=False)
    network.before, network.which = step, 3
    with pytest.raises(QuorumLost, match="e of the parties of the first sum"):
        list(federation.rounds(ONE_ROUND.with_options(rounds=2)))


def test_a_frozen_party_is_in_all_sums() -> None:
    """Its history is that of the others, though it is not taught."""
    rule = Frozen(
        lambda X: np.where(X[:, :1] > 0, [[0.1, 0.9]], [[0.8, 0.2]]), classes=["down", "up"]
    )
    members = [*parties("abc"), Party("f", rule)]
    done = rounds(LocalNetwork(members, PUBLIC), ONE_ROUND.with_options(rounds=3))
    assert {one.teacher.parties for one in done[1:]} == {tuple("abcf")}


def test_a_coordinator_that_asks_fewer_than_agreed_gets_no_sum() -> None:
    """Triples of five parties that agreed would tell each answer."""
    network = LocalNetwork(parties(), PUBLIC)
    federation_over(network, PUBLIC, strict=False).form()
    view = SumsNetwork(network, SECURE, avg())
    view.ask(FitPrivate(round=1))
    with pytest.raises(QuorumLost, match="3 parties are left, and 4 open the sum"):
        view.ask(PredictPublic(round=1), to="abc")
    lying = replace(network.agreed, summed=tuple("abc"))
    with pytest.raises(QuorumLost, match="3 of 5 parties would open the sum, of 4 to 5"):
        network.agreement = lying
        view.ask(PredictPublic(round=1), to="abc")


def test_a_required_reply_is_readable_only_if_it_depends_on_no_row() -> None:
    network = LocalNetwork(parties(), PUBLIC)
    federation_over(network, PUBLIC, strict=False).form()
    view = SumsNetwork(network, SECURE, avg())
    assert len(view.require(FitPrivate(round=1)))
    with pytest.raises(InvalidInput, match="PredictPublic would leave"):
        view.require(PredictPublic(round=1))


def test_a_party_that_comes_later_is_taught_and_in_no_sum() -> None:
    """Without it there are the same sums; a sum of other parties than agreed would tell its answers."""
    members, two = parties("abcd"), ONE_ROUND.with_options(rounds=2)
    federation = Federation(members[:3], public=PUBLIC, strict=False)
    whole = federation.resume(federation.run(ONE_ROUND, progress=False), two, join=members[3:])
    assert whole.rounds[2].teacher.parties == tuple("abc")
    np.testing.assert_array_equal(
        whole.rounds[2].teacher.values, teachers(two, parties("abcd")[:3])[1]
    )
    assert "they were not in the first, and taught: d" in str(whole.rounds[2].notes)
    asked = {one.tasks for some in whole.deliveries for one in some if one.party == "d"}
    assert asked == {"Distill"}, asked


@pytest.mark.parametrize(
    ("protocol", "names", "reason"),
    [
        (
            lambda: ensemble_distillation(rounds=1, secure_aggregation=SECURE),
            "abc",
            "'auto' looks at single",
        ),
        (
            lambda: ensemble_distillation(
                rounds=1, aggregate=coordinate_median(), secure_aggregation=SECURE
            ),
            "abc",
            "'median' looks at single parties' answers",
        ),
        (lambda: ONE_ROUND, "ab", "a sum of 2 parties, of 3"),
        (
            lambda: ONE_ROUND.with_options(participation=2),
            "abcde",
            "2 of 5 parties take part in a round, and all sums are over the same",
        ),
        (
            lambda: ensemble_distillation(
                rounds=1, aggregate=replace(avg(), screen=Guard()), secure_aggregation=SECURE
            ),
            "abc",
            "the guard of 'avg' looks at single parties' answers",
        ),
        (
            lambda: ensemble_distillation(
                rounds=1, aggregate=avg(), secure_aggregation=SecureAggregation(threshold=3)
            ),
            "abcde",
            "3 of 5 parties would open the sum, of 4 to 5",
        ),
    ],
)
def test_what_is_no_sum_is_refused_before_anything_is_trained(
    protocol: Callable[[], Protocol], names: str, reason: str
) -> None:
    federation = Federation(parties(names), public=PUBLIC, strict=False)
    federation.form()
    with pytest.raises(InvalidInput, match=reason):
        protocol().check(federation.network, PUBLIC)
    assert not federation.network.models()  # type: ignore[attr-defined]


def test_a_party_resumes_at_every_step_from_its_folder(tmp_path: Path) -> None:
    """Every request opens the party's folder anew, as after a kill; no checkpoint holds a secret."""
    expected = teachers(ONE_ROUND, parties("abc"))
    network = SiteNetwork(parties("abc"), PUBLIC, tmp_path)
    done = rounds(network, ONE_ROUND)
    np.testing.assert_array_equal(done[1].teacher.values, expected[0])
    network.ask(Checkpoint(round=1))
    held = [path.parent.name.partition("-")[0] for path in tmp_path.rglob(SUMS)]
    assert held == ["state"] * 3  # and none in round-00001


class SetBack(SiteNetwork):
    """Before a task, party c comes back with the folder that it had after it joined."""

    step, times = "", 0

    def exchange(self, tasks: Any, to: Any, request: bytes) -> Any:
        old = self.home / "old"
        asked = [type(task).__name__ for task in tasks]
        self.times += self.step in asked
        if self.step in asked and self.times == 1 + (self.step == "OpenSum"):
            shutil.rmtree(self.home / "c")
            old.rename(self.home / "c")
            self._members["c"] = parties("abcd")[2]  # another process
            self._members["c"].public = PUBLIC
        arrivals = super().exchange(tasks, to, request)
        if isinstance(tasks[0], Join):
            shutil.copytree(self.home / "c", old, symlinks=True)
        return arrivals


@pytest.mark.parametrize(
    ("step", "left"),
    [("OpenSum", "abd"), ("ShareSecrets", "abd"), ("SumMasked", "abd"), ("OpenMasks", "abcd")],
)
def test_a_party_may_come_back_with_an_old_state(step: str, left: str, tmp_path: Path) -> None:
    network = SetBack(parties("abcd"), PUBLIC, tmp_path)
    network.step = step
    done = rounds(network, ONE_ROUND)
    plain = ensemble_distillation(aggregate=avg(), rounds=1)
    expected = teachers(plain, [one for one in parties("abcd") if one.name in left])
    assert done[1].teacher.parties == tuple(left)
    np.testing.assert_array_equal(done[1].teacher.values, expected[0])


def test_neither_restoring_nor_joining_opens_a_sum_again(tmp_path: Path) -> None:
    network = SiteNetwork(parties("abcd"), PUBLIC, tmp_path)
    federation = federation_over(network, PUBLIC, strict=False)
    steps = federation.rounds(ONE_ROUND)
    next(steps)
    network.ask(Checkpoint(round=0))
    next(steps)  # round 1 is opened for four
    network.require(Restore(round=0))
    with network.site("a") as site:
        party = site.party()
        assert party is not None
        state = party.features["sums"].state
        assert state.sets == {"": tuple("abcd")} and not state.private.size
    network._members.pop("d")
    with pytest.raises(QuorumLost, match="d of the parties of the first sum"):
        rounds(network, ONE_ROUND)  # the same seed: the same answers, of three

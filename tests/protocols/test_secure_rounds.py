"""Protocols under masks: the same teachers as without, of whoever survives; nothing readable leaves."""

from __future__ import annotations

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
from consilience.aggregation import Aggregator, coordinate_median, majority_vote
from consilience.aggregation.guard import Guard
from consilience.deployment.certificates import make_key
from consilience.errors import InvalidInput, QuorumLost
from consilience.messages.replies import Failure
from consilience.messages.schema import Public
from consilience.networks.incoming import Arrival
from consilience.party.secure_sums import SUMS, member_of
from consilience.protocols import Protocol, iterative_distillation, private_sums
from consilience.protocols.secure_rounds import SecureAggregation
from consilience.tasks.lifecycle import Checkpoint, Restore
from consilience.transforms.privacy import Budget
from helpers.party_sites import SiteNetwork

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(100, 3)), Public(RNG.normal(size=(20, 3)))
SECURE = SecureAggregation()


def parties(names: str = "abcde", model: Any = GaussianNB) -> list[Party]:
    y = X[:, 0] if model is Ridge else np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
    size = len(X) // len(names)
    rows = {name: slice(i * size, (i + 1) * size) for i, name in enumerate(names)}
    return [Party(name, model(), X[part], y[part]) for name, part in rows.items()]


def rounds(network: Any, protocol: Protocol) -> list[Any]:
    return list(Federation.over(network, PUBLIC, strict=False).rounds(protocol))


def teachers(protocol: Protocol, members: list[Party], **options: Any) -> list[Any]:
    network = LocalNetwork(members, PUBLIC, **options)
    return [one.teacher.values for one in rounds(network, protocol) if one.teacher is not None]


@pytest.mark.parametrize(
    "rule", [avg(), majority_vote(), count_weighted(), density_ratio()], ids=lambda r: r.name
)
def test_teachers_are_those_without_masks(rule: Aggregator) -> None:
    plain, masked, wire = (
        teachers(
            ensemble_distillation(aggregate=rule, rounds=2, secure_aggregation=secure),
            parties(),
            wire=wire,
        )
        for secure, wire in ((None, False), (SECURE, False), (SECURE, True))
    )
    np.testing.assert_array_equal(masked, wire)
    if rule.name in ("avg", "vote"):
        np.testing.assert_array_equal(masked, plain)
    np.testing.assert_allclose(masked, plain, rtol=0, atol=2**-23)  # float32's own steps are 2^-24


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


def test_class_sums_go_on_from_a_round_with_the_same_parties(tmp_path: Path) -> None:
    """One sum of all in every round: resumed it is opened again, for the same set."""
    protocol = private_sums(rounds=2, secure_aggregation=SECURE)
    network = SiteNetwork(parties("abc"), PUBLIC, tmp_path)
    federation = Federation.over(network, PUBLIC, strict=False)
    steps = federation.rounds(protocol)
    done = [next(steps), next(steps)]
    network.ask(Checkpoint(round=1))
    expected = next(steps).teacher.values
    network.require(Restore(round=1))
    (again,) = federation.rounds(protocol, state=done[1].state)
    np.testing.assert_array_equal(again.teacher.values, expected)


def test_a_roster_is_checked_within_a_run(tmp_path: Path) -> None:
    """One party's keys are not signed by the key that the others know it by: they go on without any sum."""
    roster = {name: make_key(tmp_path / name, name) for name in "abcd"}
    members = parties("abc")
    for one in members:
        member = member_of(one)
        member.identity, member.roster = (tmp_path / one.name).read_bytes(), roster
    assert len(teachers(ONE_ROUND, members)) == 1
    member_of(members[0]).identity = (tmp_path / "d").read_bytes()
    with pytest.raises(QuorumLost, match="keys that party 'a' did not sign"):
        teachers(ONE_ROUND, members)


def test_a_party_with_a_budget_adds_no_predictions() -> None:
    """Masks are no privacy: what has no stated cost is not added up either."""
    members = parties("abc")
    members[1].declared = ("down", "up")
    members[1].protect(Budget(epsilon=1.0, delta=1e-3))
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
    assert "4 or more parties that join hands" in done[1].teacher.notes[0]


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


def test_neither_restoring_nor_joining_opens_a_sum_again(tmp_path: Path) -> None:
    network = SiteNetwork(parties("abcd"), PUBLIC, tmp_path)
    federation = Federation.over(network, PUBLIC, strict=False)
    steps = federation.rounds(ONE_ROUND)
    next(steps)
    network.ask(Checkpoint(round=0))
    next(steps)  # round 1 is opened for four
    network.require(Restore(round=0))
    with network.site("a") as site:
        party = site.party()
        assert party is not None and party.sums is not None
        assert party.sums.state.opened and not party.sums.state.private.size
    network._members.pop("d")
    with pytest.raises(QuorumLost, match="over other parties"):
        rounds(network, ONE_ROUND)  # the same seed: the same answers, of three

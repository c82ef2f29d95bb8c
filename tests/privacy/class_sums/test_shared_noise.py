"""Noise that parties share: what a sum costs, how much of it there is, and who adds none."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, poisson
from sklearn.naive_bayes import GaussianNB

from consilience import Federation, LocalNetwork, Party
from consilience.core.errors import InvalidInput, QuorumLost
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.messages.sums import Sum
from consilience.core.numerics.outcomes import Classes
from consilience.core.numerics.randomness import SystemNoise
from consilience.core.protocols import ensemble_distillation, protocol
from consilience.lab.config.reading import parse_spec
from consilience.lab.experiments import start
from consilience.lab.report import read_results
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import gaussian_mu, skellam_loss
from consilience.privacy.accounting.party import protect
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.class_sums.sums import SCALE
from consilience.privacy.class_sums.tasks import SumClasses, public_basis
from consilience.privacy.secure_aggregation.party import checked_roster
from consilience.privacy.secure_aggregation.rounds import SecureAggregation, SumsNetwork
from consilience.sites.operations.certificates import make_key
from consilience.sites.party import Limits, PartySite
from consilience.sites.party.privacy_limits import spending
from helpers.party_rules import set_keys
from helpers.party_sites import SiteNetwork

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(100, 30)), Public(RNG.normal(size=(40, 30)))
SHARED = Budget(epsilon=1.0, delta=1e-4, noise="shared")
SECURE = SecureAggregation(epsilon=1.0, delta=1e-4)
ENTRIES = 2 * (24 + 1)


def parties(budget: Budget | None = SHARED) -> list[Party]:
    found = []
    for i, name in enumerate("abcde"):
        y = np.where(X[:, 0] > 0, "up", "down")
        found.append(
            Party(
                name, GaussianNB(), X[i::5], y[i::5], calibration=0, outcome=Classes(("down", "up"))
            )
        )
        protect(found[-1], budget)
    return found


def total(
    members: list[Party], secure: SecureAggregation = SECURE, to: str = "abcde"
) -> tuple[Any, list[ClassSums]]:
    """The sum of some parties' class sums, and what each states of its own."""
    network = LocalNetwork(members, PUBLIC)
    federation_over(network, PUBLIC, strict=False).form()
    asked = SumClasses.of(public_basis(PUBLIC), round=1)
    replies = SumsNetwork(network, secure, None).ask(asked, to=tuple(to))
    return replies.of(Sum)[0].values.view(np.int64), replies.of(ClassSums)


def test_poisson_numbers_are_poisson() -> None:
    drawn = SystemNoise()._poisson(80.0, 50_000)
    low, high = poisson.ppf([1e-3, 1 - 1e-3], 80).astype(int)
    expected = poisson.pmf(range(low, high), 80) * len(drawn)
    counts = np.bincount(drawn, minlength=high)[low:high]
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, high - low)
    large = SystemNoise().skellam(variance=1e10, size=(50, 1000))  # 50,000 numbers: ± 0.6 %
    assert abs(large.std() / 1e5 - 1) < 0.03 and abs(large.mean()) < 6 * 1e5 / math.sqrt(50_000)


def test_the_noise_of_the_fewest_honest_parties_is_enough_and_no_more() -> None:
    threshold = SECURE.of(5)  # 4 of 5, of which one may collude
    share = SECURE.variance(ENTRIES, threshold)
    reach = {"l2": SCALE, "l1": SCALE * math.sqrt(ENTRIES)}
    assert skellam_loss(3 * share, **reach).epsilon(1e-4) <= 1.0
    assert skellam_loss(3 * share * 0.999, **reach).epsilon(1e-4) > 1.0
    # By Rényi divergences it is some 8 % wider than Gaussian noise of the same ε.
    assert 1 < math.sqrt(3 * share) / SCALE * gaussian_mu(1.0, 1e-4) < 1.12
    replaced = replace(SECURE, adjacency="replace").variance(ENTRIES, threshold)
    assert replaced / share == pytest.approx(4, rel=1e-9)


def test_the_sum_has_the_parts_of_all_and_each_party_is_charged_for_the_fewest() -> None:
    members = parties()
    noisy, stated = total(members)
    exact, _ = total(parties(None), SecureAggregation())
    share = SECURE.variance(ENTRIES, 4)
    square = ((noisy - exact) ** 2).sum() / (5 * share)
    assert chi2.isf(1 - 1e-6, ENTRIES) < square < chi2.isf(1e-6, ENTRIES)
    assert {one.sigma for one in stated} == {math.sqrt(share)}
    assert {one.colluding for one in stated} == {1}
    for one in members:
        spent = privacy_of(one).accountant.spent.epsilon(1e-4)
        assert 0.999 < spent <= 1 + 1e-9


def test_a_repeated_question_gets_the_same_noise_and_no_other_set() -> None:
    members = parties()
    first, _ = total(members)
    again, _ = total(members)
    np.testing.assert_array_equal(first, again)
    with pytest.raises(QuorumLost, match="0 of 4 parties answered OpenMasks"):
        total(members, to="abcd")


@pytest.mark.parametrize(
    ("budget", "secure", "why"),
    [
        (Budget(1.0, 1e-4), SECURE, "its own is enough by itself"),
        (SHARED, SecureAggregation(), "the others are to add none"),
        (replace(SHARED, epsilon=0.9), SECURE, "would cost 1, and a release may cost 0.9"),
        (replace(SHARED, colluding=2), SECURE, "a release may cost 1"),
        (replace(SHARED, colluding=3), SECURE, "2 of 5 may collude where 4 open a sum"),
        (replace(SHARED, adjacency="replace"), SECURE, "a release may cost 1"),
    ],
)
def test_a_party_adds_to_no_sum_with_too_little_noise(
    budget: Budget, secure: SecureAggregation, why: str
) -> None:
    with pytest.raises(QuorumLost, match=why):
        total(parties(budget), secure)


def test_so_many_may_collude_that_no_two_sums_of_the_same_noise_can_be_opened() -> None:
    """Seven of ten open a sum: with four that forget, the other six could open two by three and three."""
    assert replace(SECURE, colluding=3).of(10) == 7
    with pytest.raises(
        InvalidInput, match=r"4 parties may collude, and where 7 of 10 open a sum 3 may"
    ):
        replace(SECURE, colluding=4).of(10)
    assert replace(SECURE, colluding=4, threshold=8).of(10) == 8
    for parties in range(3, 40):
        SECURE.of(parties)  # one always may


@pytest.mark.parametrize(
    "wrong", [{"arrivals": 2}, {"training": {"rows": 100}}, {"colluding": 0}, {"noise": "some"}]
)
def test_a_budget_says_what_it_cannot_share(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Budget(**{"epsilon": 1.0, "noise": "shared", **wrong})


def test_noise_is_shared_in_protocols_that_say_that_they_sum_by_class() -> None:
    """By a trait of theirs, and not by their names."""
    for other in (ensemble_distillation, federated_averaging):
        with pytest.raises(InvalidInput, match="noise that parties share is for class sums"):
            other(rounds=1, secure_aggregation=SECURE)

    def elsewhere(network: Any, public: Public, state: Any, *, rounds: int) -> Any:
        yield from private_sums.__wrapped__(network, public, state, rounds=rounds)  # type: ignore[attr-defined]

    made = protocol(exchanges="predictions", needs_public=True, summed="class sums")(elsewhere)
    run = Federation(parties(), public=PUBLIC, strict=False).run(
        made(rounds=1, secure_aggregation=SECURE), progress=False
    )
    assert "within epsilon = 1" in str(run.rounds[-1].teacher.notes)


def test_a_part_of_the_noise_leaves_under_masks_alone() -> None:
    federation = Federation(parties(), public=PUBLIC, strict=False)
    with pytest.raises(QuorumLost, match="the others are to add none"):
        federation.run(private_sums(rounds=1), progress=False)


class Sites(SiteNetwork):
    """Each party at its own machine, under limits."""

    def _opened(self, name: str) -> PartySite:
        return PartySite(lambda: self._members[name], self.home / name, limits=LIMITS)


LIMITS = Limits(epsilon=1.0, delta=1e-4, noise="shared", masks=True)


def test_a_site_shares_noise_by_its_limits_and_writes_it_into_its_ledger(tmp_path: Path) -> None:
    """And with a roster alone: else nine of ten might be the coordinator's inventions."""
    assert LIMITS.budget == SHARED
    network = Sites(members := parties(None), PUBLIC, tmp_path)
    protocol = private_sums(rounds=1, secure_aggregation=SECURE)
    with pytest.raises(InvalidInput, match="could invent the other parties"):
        LIMITS.bind(members[0])
    keys = {one.name: make_key(tmp_path / f"{one.name}.key", one.name) for one in members}
    for one in members:
        identity = (tmp_path / f"{one.name}.key").read_bytes()
        set_keys(one, identity=identity, roster=checked_roster(one.name, identity, keys))
    *_, last = federation_over(network, PUBLIC, strict=False).rounds(protocol)
    assert "within epsilon = 1, delta = 0.0001 at most" in str(last.teacher.notes)
    assert "unless it lies" not in str(last.teacher.notes)
    for name in "abcde":
        said = spending(tmp_path / name, LIMITS)
        assert said["spent"] == "epsilon 1, add-remove of one row"
        assert [one["kind"] for one in said["releases"]] == ["class sums"]


CONFIG = """
name = "tiny"
[[methods]]
label = "private"
privacy = { epsilon = 1.0, noise = "shared" }
protocol = { name = "private_sums", secure_aggregation = {} }
[data]
name = "digits"
public = 60
test_rows = 50
[partition]
name = "iid"
parties = 4
[protocol]
rounds = 1
[[models]]
name = "naive-bayes"
"""


def test_a_configuration_says_it_in_a_word(tmp_path: Path) -> None:
    start(parse_spec(tomllib.loads(CONFIG), where="tiny"), tmp_path / "run")
    notes = str(read_results(tmp_path / "run").notes)
    assert "the coordinator, with what 1 of the parties know" in notes
    assert "unless it lies of the others' keys, of which they hold no roster" in notes
    assert "within epsilon = 1, delta = 1e-05 at most" in notes
    bare = CONFIG.replace(", secure_aggregation = {}", "")
    with pytest.raises(InvalidInput, match="for secure sums, and there are none"):
        start(parse_spec(tomllib.loads(bare), where="tiny"), tmp_path / "bare")

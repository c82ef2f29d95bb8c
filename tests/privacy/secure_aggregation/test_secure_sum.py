"""Secure sums: exact for every set of enough survivors, through kills at every step; what nobody learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from consilience.core.errors import KnowledgeRefused, RunFailed
from consilience.core.messages.wire import encode
from consilience.privacy.secure_aggregation.masks import (
    combine,
    least_threshold,
    mask,
    public_of,
    shared_key,
)
from consilience.privacy.secure_aggregation.messages import ANSWERS, MaskedInput, SumKeys
from consilience.privacy.secure_aggregation.opened_sum import open_sum
from consilience.privacy.secure_aggregation.secure_sum import SumMember
from consilience.privacy.secure_aggregation.sum_state import roster_digest
from consilience.sites.operations.certificates import make_key

DOMAIN = bytes(range(32))


class Sum:
    """One attempt with members of these names, killed and begun anew after every answer."""

    def __init__(self, names: Iterable[str], inputs: Mapping[str, Any], threshold: int) -> None:
        self.members = {name: SumMember(name) for name in names}
        self.inputs, self.threshold, self.question = inputs, threshold, "q"

    def ask(self, name: str, step: str, *args: Any, **options: Any) -> Any:
        """Ask a member that was killed before it answered, and again one that was killed after."""
        replies = []
        for _ in range(2):
            member = self.members[name]
            self.members[name] = SumMember(name)
            self.members[name].read(member.to_bytes())
            replies.append(getattr(self.members[name], step)(*args, **options))
        assert encode(replies[:1]) == encode(replies[1:])
        return replies[0]

    def keys(self, names: Iterable[str], domain: bytes = DOMAIN) -> None:
        given = {
            name: self.ask(
                name,
                "open",
                domain,
                self.threshold,
                self.question,
                among=sorted(self.members),
                round=1,
            )
            for name in names
        }
        self.domain, self.public = domain, tuple(given.values())

    def shares(self, names: Iterable[str]) -> None:
        self.shared = tuple(self.ask(name, "share", self.public) for name in names)

    def masked(self, names: Iterable[str]) -> None:
        def one(name: str) -> MaskedInput:
            return self.ask(
                name, "mask", self.shared, self.question,
                lambda masked: (
                    MaskedInput(party=name, round=1, values=masked(self.inputs[name])), ANSWERS
                ),
                round=1,
            )  # fmt: skip

        self.given = {name: one(name).values for name in names}

    def opened(self, names: Iterable[str]) -> Any:
        survivors = list(self.given)
        said = {name: self.ask(name, "reveal", survivors, round=1) for name in names}
        return self.total(said)

    def total(self, said: Mapping[str, Any]) -> Any:
        keys = {one.party: one for one in self.public}
        senders = [one.party for one in self.shared]
        return open_sum(self.domain, self.threshold, keys, senders, self.given, said)


def numbers(names: Iterable[str], count: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(2**64, size=count, dtype=np.uint64) for name in names}


def whole(names: str, threshold: int, inputs: Mapping[str, Any]) -> Sum:
    """An attempt up to the masked inputs of all."""
    run = Sum(names, inputs, threshold)
    for step in (run.keys, run.shares, run.masked):
        step(names)
    return run


SETS = [set_ for size in range(1, 6) for set_ in combinations("abcde", size)]


@pytest.mark.parametrize("survivors", SETS, ids="".join)
def test_the_sum_is_exact_of_four_of_five_or_more_and_there_is_none_of_fewer(
    survivors: tuple[str, ...],
) -> None:
    inputs = numbers("abcde")
    run = Sum("abcde", inputs, 4)
    run.keys("abcde")
    run.shares("abcde")
    run.masked(survivors)
    if len(survivors) < 4:
        with pytest.raises(KnowledgeRefused, match="of at least 4"):
            run.opened(survivors)
        with pytest.raises(RunFailed, match="opened the sum"):
            run.total({})
        return
    expected = sum(inputs[name] for name in survivors)  # uint64 wraps by itself
    np.testing.assert_array_equal(run.opened(survivors), expected)


def test_parties_drop_out_at_every_step() -> None:
    inputs = numbers("abcdefghij")
    run = Sum("abcdefghij", inputs, 7)
    run.keys("abcdefghi")  # j is gone, and 7 of 10 are enough
    run.shares("abcdefgh")
    run.masked("abdefgh")
    np.testing.assert_array_equal(run.opened("abdefgh"), sum(inputs[name] for name in "abdefgh"))
    run = whole("abcdefghij", 7, inputs)
    total = run.opened("abcdefg")  # h, i and j are in the sum, and gone before it is opened
    np.testing.assert_array_equal(total, sum(inputs[name] for name in "abcdefghij"))


def statistic(values: Any) -> float:
    """χ² of the bytes of integers against uniform ones; 255 degrees of freedom."""
    counts = np.bincount(np.ascontiguousarray(values).view(np.uint8), minlength=256)
    return float(((counts - counts.mean()) ** 2).sum() / counts.mean())


CHANCE = float(chi2.isf(1e-6, 255))


def test_masked_inputs_are_uniform_integers() -> None:
    nothing = {name: np.zeros(4096, dtype=np.uint64) for name in "abc"}
    run = whole("abc", 3, nothing)
    for values in run.given.values():
        assert statistic(values) < CHANCE
    assert statistic(run.opened("abc")) > CHANCE  # of zeros: the measure can fail


def seen_of(run: Sum, name: str, spies: str) -> Any:
    """A party's masked input less all masks that the coordinator and its spies can compute."""
    state = run.members[name].state
    values = run.given[name] - mask(state.private[2].tobytes(), len(run.given[name]))
    for other in spies:  # they have their own masking keys
        private = run.members[other].state.private[1].tobytes()
        public = public_of(state.private[1].tobytes())
        pair = mask(shared_key(private, public, DOMAIN + b" mask"), len(values))
        values = values - pair if other > name else values + pair
    return values


@pytest.mark.parametrize("first", [0, 2**63 + 12345])
def test_n_minus_two_parties_and_the_coordinator_learn_the_sum_of_two_and_nothing_else(
    first: int,
) -> None:
    """For two inputs with one sum the spies see the same: a uniform number, and what is left to the sum."""
    names, spies, total = "abcdef", "cdef", np.uint64(77)
    inputs = numbers(names, 4096)
    inputs["a"] = np.full(4096, first, dtype=np.uint64)
    inputs["b"] = total - inputs["a"]
    run = whole(names, least_threshold(6), inputs)
    assert (
        len(spies) < run.threshold
    )  # too few shares of a masking key: they are of every key alike
    a, b = (seen_of(run, name, spies) for name in "ab")
    assert statistic(a) < CHANCE and statistic(b) < CHANCE
    np.testing.assert_array_equal(a + b, np.full(4096, total))


def test_as_many_as_the_threshold_learn_everything() -> None:
    """The limit of the protocol, which the threshold sets: three of four hold three shares of every key."""
    inputs = numbers("abcd")
    run = whole("abcd", 3, inputs)
    spies, place = "bcd", {"a": 1, "b": 2, "c": 3, "d": 4}
    held = {place[spy]: run.members[spy].state.shares[0] for spy in spies}  # those of a
    seed, private = (
        combine({x: row[part].tobytes() for x, row in held.items()})
        for part in (slice(33), slice(33, 66))
    )
    assert private == run.members["a"].state.private[1].tobytes()
    assert seed == run.members["a"].state.private[2].tobytes()
    np.testing.assert_array_equal(seen_of(run, "a", spies), inputs["a"])


def test_a_sum_is_opened_once_and_for_one_set() -> None:
    run = whole("abcde", 4, numbers("abcde"))
    run.opened("abcde")
    assert not run.members["a"].state.private.size  # its secrets are gone
    with pytest.raises(KnowledgeRefused, match="in other words"):
        run.ask("a", "reveal", list("abcd"), round=1)
    with pytest.raises(KnowledgeRefused, match="the sum was opened"):
        run.keys("abcde")  # the same attempt


def test_all_sums_are_of_one_rule() -> None:
    """It is refused with the input, and at the latest with the opening."""
    run = whole("abc", 3, numbers("abc"))
    run.opened("abc")
    for other in ("rule", ""):
        run.keys("abc", other.encode().ljust(32, b"1"))
        run.shares("abc")
        member = run.members["a"]
        if other:
            with pytest.raises(KnowledgeRefused, match="its sums are of another rule"):
                member.mask(run.shared, "q", lambda masked: None, round=1, rule=other)
    run.masked("abc")
    member = run.members["a"]
    member.state = replace(member.state, rules={"": "rule"})
    with pytest.raises(KnowledgeRefused, match="its sums are of another rule"):
        run.opened("abc")


@pytest.mark.parametrize("question", ["q", "another"])
def test_nothing_is_summed_up_over_another_set(question: str) -> None:
    """Whatever is asked: at the step of the shares, of the inputs, and of the opening."""
    inputs = numbers("abcde")
    run = whole("abcde", 4, inputs)
    run.opened("abcde")
    run.question = question
    again = DOMAIN[::-1]  # a second attempt, as after a coordinator that died
    run.keys("abcde", again)
    assert {one.bound for one in run.public} == {tuple("abcde")}
    all_keys, run.public = run.public, run.public[:4]
    with pytest.raises(KnowledgeRefused, match="its sums are over a, b, c, d, e"):
        run.shares("abcd")
    run.public = all_keys
    run.shares("abcde")
    all_shares, run.shared = run.shared, run.shared[:4]
    with pytest.raises(KnowledgeRefused, match="its sums are over a, b, c, d, e"):
        run.masked("abcd")
    run.shared = all_shares
    run.masked("abcd")
    with pytest.raises(KnowledgeRefused, match="its sums are over a, b, c, d, e"):
        run.opened("abcd")
    run.masked("abcde")
    np.testing.assert_array_equal(run.opened("abcde"), sum(inputs.values()))


def test_parties_of_different_histories_share_nothing() -> None:
    """And one whose model may have changed since it gave its keys adds nothing."""
    members = {name: SumMember(name) for name in "abc"}

    def keys(same: str, **changed: Any) -> tuple[SumKeys, ...]:
        asked = {name: {"history": same, "round": 1} for name in "abc"}
        asked["c"] |= changed
        domain = same.encode().ljust(32, b"0") + repr(changed).encode()
        return tuple(
            one.open(domain, 3, "q", among=tuple("abc"), **asked[name])
            for name, one in members.items()
        )

    for changed in ({"history": "other"}, {"round": 2}):
        given = keys("same", **changed)
        with pytest.raises(KnowledgeRefused, match="'c' was not asked the same"):
            members["a"].share(given)
    given = keys("same")
    shared = tuple(one.share(given) for one in members.values())
    for changed in ({"history": "later", "round": 1}, {"history": "same", "round": 2}):
        with pytest.raises(KnowledgeRefused, match="asked for more since it gave its keys"):
            members["a"].mask(shared, "q", lambda masked: None, **changed)


def test_another_roster_begins_another_record(tmp_path: Any) -> None:
    """Any change of a line does; the record of the roster before comes back with it."""
    lines = {name: make_key(tmp_path / name, name) for name in "bcde"}
    member = SumMember("a", roster=lines)
    sets = {roster_digest("a", lines): tuple("abcde")}
    member.state = replace(member.state, sets=sets)
    assert member.bound == tuple("abcde")
    member.roster = {name: f"  {line}" for name, line in lines.items()}
    assert member.bound == tuple("abcde")
    member.roster = lines | {"e": lines["e"] + " and vote"}
    assert member.bound == ()
    member.roster = {name: lines[name] for name in "bcd"}
    assert member.bound == ()
    member.roster = lines | {"e": lines["b"]}
    assert member.bound == ()
    member.abandon()
    member.roster = lines
    assert member.bound == tuple("abcde")


def test_an_attempt_that_was_left_is_never_opened() -> None:
    run = whole("abcde", 4, numbers("abcde"))
    run.keys("abcde", DOMAIN[::-1])
    with pytest.raises(KnowledgeRefused, match="no part in"):
        run.ask("a", "reveal", list("abcde"), round=1)
    member = run.members["b"]
    member.abandon()
    with pytest.raises(KnowledgeRefused, match="in no sum"):
        member.reveal(list("abcde"), round=1)


def test_other_words_in_one_attempt_are_refused() -> None:
    run = whole("abcd", 3, numbers("abcd"))
    with pytest.raises(KnowledgeRefused, match="in other words"):
        run.members["a"].mask(run.shared[:3], "q", lambda masked: None, round=1)
    with pytest.raises(KnowledgeRefused, match="in other words"):
        run.members["a"].share(run.public[:3])


def begun(names: str, threshold: int) -> tuple[SumMember, tuple[SumKeys, ...]]:
    run = Sum(names, {}, threshold)
    run.keys(names)
    return run.members[names[0]], run.public


@pytest.mark.parametrize(
    ("names", "threshold", "reason"),
    [
        ("ab", 2, "a sum of 2 parties, of 3"),
        ("abcd", 2, "2 of 4 parties would open"),
        ("abcd", 5, "5 of 4 parties"),
    ],
)
def test_too_few_parties_are_refused(names: str, threshold: int, reason: str) -> None:
    with pytest.raises(KnowledgeRefused, match=reason):
        begun(names, threshold)


def test_keys_that_are_not_right_are_refused() -> None:
    member, keys = begun("abc", 3)
    other, _ = begun("abc", 3)[1][:2]
    for wrong in ((keys[1], keys[1], keys[2]), (other, *keys[1:]), keys[1:], keys[::-1]):
        with pytest.raises(KnowledgeRefused):
            member.share(wrong)


def test_keys_of_an_earlier_attempt_have_nobody_behind_them() -> None:
    """A coordinator that repeats old keys of b, whose secret it may know, gets no input of a."""
    run = whole("abc", 3, numbers("abc"))
    old = run.public[1]
    again = Sum("abc", numbers("abc"), 3)
    again.keys("abc")
    keys = (again.public[0], old, again.public[2])
    mine = again.members["a"].share(keys)
    with pytest.raises(KnowledgeRefused, match="nobody sealed"):
        again.members["a"].mask((mine, *run.shared[1:]), "q", lambda masked: None, round=1)


def test_another_question_than_was_announced_is_refused() -> None:
    run = Sum("abc", numbers("abc"), 3)
    run.keys("abc")
    run.shares("abc")
    with pytest.raises(KnowledgeRefused, match="another question"):
        run.members["a"].mask(run.shared, "q2", lambda masked: None, round=1)


def test_a_wrong_share_is_noticed() -> None:
    run = whole("abc", 3, numbers("abc"))
    said = {name: run.ask(name, "reveal", list("abc"), round=1) for name in "abc"}
    said["b"].values[2, 5] ^= 1
    with pytest.raises(RunFailed, match="'c'"):
        run.total(said)


def test_parties_on_a_roster_take_no_keys_of_others(tmp_path: Any) -> None:
    roster = {name: make_key(tmp_path / name, name) for name in "abc"}
    members = {
        name: SumMember(name, identity=(tmp_path / name).read_bytes(), roster=roster)
        for name in "abc"
    }
    keys = tuple(one.open(DOMAIN, 3, "q", among="abc", round=1) for one in members.values())
    members["a"].share(keys)
    between = SumMember("c").open(DOMAIN, 3, "q", among="abc", round=1)  # the coordinator's, for c
    with pytest.raises(KnowledgeRefused, match="'c' did not sign"):
        members["b"].share((*keys[:2], between))
    with pytest.raises(KnowledgeRefused, match="'d' is not on its roster"):
        members["b"].open(DOMAIN, 3, "q", among="abcd", round=1)
    members["a"].roster = roster | {"d": "", "e": ""}
    with pytest.raises(KnowledgeRefused, match="3 of the 5 on its roster"):
        members["a"].open(DOMAIN, 3, "q", among="abc", round=1)

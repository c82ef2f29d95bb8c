"""Secure aggregation at a party: the client side of Bonawitz et al. 2017, as a state machine.

Every party adds to its input a self-mask and one pairwise mask with each other party; pairwise masks cancel
in the sum. Parties secret-share the keys of their masks, so that the sum can be opened after dropouts. The
other parties reveal the self-mask of a party whose input arrived, or the pairwise masks of a dropped party,
but never both for the same party.

    0  domain: the federation, the question, a number of the attempt, the threshold t of n parties
    1  keys      u: X25519 keys c_u and s_u, a seed b_u; sends the public keys and SHA-256(b_u), signed
    2  shares    u, given the keys of all U1: t-of-n shares of b_u and s_u, sealed for each v by c_u and c_v
    3  input     u, given its sealed shares by U2:
                   y_u = x_u + PRG(b_u) + sum_{v > u} PRG(k_uv) - sum_{v < u} PRG(k_uv)  mod 2^64,  v in U2
    4  opening   u, given the names U3 whose input arrived: of v in U3 its share of b_v, else that of s_v
    5  coordinator: sum_{U3} x = sum_{U3} y - PRG(b) ± PRG(k) of the dropped (:func:`.open_sum`)

If fewer than t parties collude with the coordinator, they learn only the sum of the others; t or more learn
every input. A malicious coordinator may report u as dropped to some parties, and as present to the others.
With :func:`.least_threshold` it then gets too few shares of one kind, unless a third of the parties collude
with it.

Two sums that differ by one party reveal the input of that party. Sums of two rounds nearly do the same,
because a coordinator can keep models almost unchanged between them. Three rules prevent this.

    - **One set.** n is the number of parties that agreed when they joined, however few of them a coordinator
      queries. After a party has opened a sum of answers, it opens later sums only over the same parties, in
      any round, run, attempt and state of its model. Any two sets of t parties have more than a third of all
      parties in common, and these would have to open both sums.
    - **One rule.** All these sums use one rule with its settings, such as one temperature of ``entropy``.
      Sums of several rules over one set are symmetric functions of the parties' answers. For example, six
      temperatures give equations whose solution is the answers of six parties.
    - **One history.** The keys of each party contain a digest of the coordinator's choices that affect its
      model: the agreement, and every later task that changes models. A party shares its secrets only with
      parties of the same digest. Otherwise a coordinator could change the model of one party only, and the
      difference of two sums over one set would reveal that party's answers. With a roster the digest is
      signed.

The record of the set and the rule persists across runs. It belongs to the roster: if the party's engineer
changes a line of the roster, a new record begins. Answers whose noise suffices alone are exempt; an input
with a part of shared noise may be in one sum only. The state of a model does not matter, because a
coordinator can always cause a slightly different state, for example by changing the sixth digit of the
private-row weight.

The sums themselves remain a leak. The difference of two sums over one set is the sum of the changes of all
parties. If all models but one stay unchanged (for example frozen models, or models that refit while one
network trains further), it is the change of that party's answers, and only noise can limit the leak.

Deviations
    - Shares are decrypted, and so authenticated, in line 3 and not in line 4. A coordinator could repeat keys
      of an earlier attempt, but no party can have encrypted shares for the present attempt with them.
    - b_u is committed to, so that the coordinator detects a wrong share in the sum.
    - The question is part of every key, so that parties with different questions produce no valid sum.
    - The threshold replaces the paper's further step against active coordinators, the signatures of U3.

Source:
    Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", figure 4.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.wire import decode, encode
from consilience.core.validation.arrays import Array
from consilience.privacy.secure_aggregation import masks
from consilience.privacy.secure_aggregation.masks import FEWEST, least_threshold, odd_sum
from consilience.privacy.secure_aggregation.messages import (
    ANSWERS,
    KEY,
    SEALED,
    SHARE,
    SealedShares,
    SumKeys,
    SumOpening,
)
from consilience.privacy.secure_aggregation.opened_sum import add_pair
from consilience.privacy.secure_aggregation.sum_state import SumState, as_bytes, roster_digest

Masking = Callable[[Array], Array]
"""Adds all masks of a party to its integers, shape ``(n,)``, uint64."""

T = TypeVar("T")


class SumMember:
    """Member of secure sums at a party, for one sum at a time.

    It answers every step of an attempt once, and repeats the same bytes for a repeated question. Its state
    can be saved after every step and loaded in another process.

    Args:
        name: name of the party.
        identity: private identity key of the party, in OpenSSH format; empty for none.
        roster: maps the names of all other parties that may take part to their public keys, as OpenSSH lines.
            ``None`` accepts keys from the coordinator, which could then act as a man in the middle.
    """

    in_checkpoints = False  # no restoring brings an earlier attempt back

    def __init__(
        self, name: str, identity: bytes = b"", roster: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.identity, self.roster = name, identity, roster
        self.state = SumState()
        self.summing: tuple[float, int] | None = None
        """Noise variance of each party, in grid steps, and threshold; set only while a reply is masked."""

    def to_bytes(self) -> bytes:
        """Write the state, with all its secrets."""
        return encode([self.state])

    def joined(self) -> None:
        """Discard the attempt, because the party has joined a federation again."""
        self.abandon()

    def read(self, data: bytes | None, *, only: bool = False) -> None:
        """Load a state from :meth:`to_bytes`; ``None`` ends the current sum."""
        if data is None:
            self.abandon()
        else:
            (self.state,) = decode(data)

    def abandon(self) -> None:
        """Discard the attempt and its secrets; the record of opened sums remains."""
        self.state = self._recorded()

    @property
    def bound(self) -> tuple[str, ...]:
        """Names of the parties of all its sums of answers; empty before the first."""
        return self.state.sets.get(roster_digest(self.name, self.roster), ())

    def _recorded(self) -> SumState:
        """Return a state without an attempt, with the record of all sums."""
        state = self.state
        return SumState(opened=state.opened, sets=state.sets, rules=state.rules)

    def open(
        self,
        domain: bytes,
        threshold: int,
        question: str,
        *,
        among: Sequence[str],
        round: int,
        history: str = "",
        noisy: bool = False,
    ) -> SumKeys:
        """Answer step 1: begin an attempt, and discard the previous one.

        Args:
            domain: identifier of the attempt.
            threshold: minimum number of parties that open the sum.
            question: digest of the question, without the round.
            among: names of the parties that agreed to be in sums together, sorted.
            round: the round.
            history: digest of the coordinator's choices that affect the party's answers.
            noisy: whether the party's inputs have noise that limits the leak of any sums; the party is then
                not bound to a set of parties.

        Returns:
            Its public keys, with the digest and the fixed set of parties, signed.

        Raises:
            KnowledgeRefused: the party is not in ``among``, there are too few parties, or the threshold is
                too low.
        """
        if self.name not in among:
            raise KnowledgeRefused(
                "it joined after the others had agreed on who is in a sum",
                mend="Begin a run with all of them.",
            )
        if why := odd_sum(len(among), threshold):
            raise KnowledgeRefused(why)
        self._check_roster(among, threshold)
        if self.state.domain.tobytes() != domain:
            self.state = replace(
                self._recorded(),
                domain=as_bytes(domain),
                threshold=threshold,
                question=question,
                among=tuple(among),
                private=as_bytes(secrets.token_bytes(3 * KEY)).reshape(3, KEY),
            )

        def reply() -> SumKeys:
            if not self.state.private.size:
                raise KnowledgeRefused(
                    "the sum was opened, and its secrets are gone", mend="Begin another attempt."
                )
            sealing, masking, seed = (one.tobytes() for one in self.state.private)
            keys = SumKeys(
                party=self.name,
                round=round,
                sealing=as_bytes(masks.public_of(sealing)),
                masking=as_bytes(masks.public_of(masking)),
                commitment=as_bytes(hashlib.sha256(seed).digest()),
                history=history,
                bound=() if noisy else self.bound,
                signature=as_bytes(),
            )
            if self.identity:
                signature = masks.sign(self.identity, domain + keys.signed)
                keys = replace(keys, signature=as_bytes(signature))
            return keys

        return self._once("keys", domain, reply)

    def share(self, keys: Sequence[SumKeys]) -> SealedShares:
        """Answer step 2: given the keys of all parties by name, share the two secrets with them.

        Raises:
            KnowledgeRefused: the party does not accept a sum with these parties.
        """

        def reply() -> SealedShares:
            self._check(keys)
            state, names = self.state, [one.party for one in keys]
            _, masking, seed = (one.tobytes() for one in state.private)
            parts = [masks.split(one, state.threshold, len(keys)) for one in (seed, masking)]
            both = {name: a + b for name, a, b in zip(names, *parts, strict=True)}
            own = as_bytes(both.pop(self.name))[None]
            sealed = [
                masks.seal(self._sealing_key(one, to=one.party), both[one.party])
                for one in keys
                if one.party in both
            ]
            self.state = replace(state, keys=tuple(keys), senders=(self.name,), shares=own)
            rows = as_bytes(b"".join(sealed)).reshape(-1, SEALED)
            held = self.roster is not None
            return SealedShares(party=self.name, round=keys[0].round, values=rows, checked=held)

        return self._once("shares", encode(keys), reply)

    def mask(
        self,
        shared: Sequence[SealedShares],
        question: str,
        reply: Callable[[Masking], tuple[T, str]],
        *,
        round: int,
        rule: str = "",
        history: str = "",
    ) -> T:
        """Answer step 3: decrypt the shares of other parties, and return the masked input.

        Args:
            shared: encrypted shares of all participating parties, including this one, by name.
            question: digest of the question.
            reply: computes the reply from the masks, and its kind (:attr:`.SumState.kind`).
            round: the round.
            rule: digest of the question's rule, without the parts that change from round to round.
            history: digest of the coordinator's choices up to now that affect the party's answers.

        Returns:
            The reply.

        Raises:
            KnowledgeRefused: the question differs from the announced one, the party's model may have changed
                since it sent its keys, or shares are wrong or too few.
        """

        def answer() -> T:
            state, senders = self.state, [one.party for one in shared]
            known = [one for one in state.keys if one.party in senders]
            if question != state.question:
                raise KnowledgeRefused("another question than the parties were told of")
            own = self._own_keys()
            if (round, history) != (own.round, own.history):
                raise KnowledgeRefused(
                    "it was asked for more since it gave its keys, and the others know nothing of that",
                    mend="Begin another attempt.",
                )
            names = [one.party for one in known]
            if own.bound:  # else it has opened no sum, or all its inputs have noise
                self._check_set(own.bound, names)
                self._check_rule(rule)
            if names != senders or self.name not in names or len(names) < state.threshold:
                raise KnowledgeRefused("shares of too few parties, or of ones that take no part")
            shares = [
                state.shares[0].tobytes()
                if one.party == self.name
                else masks.unseal(self._sealing_key(one, to=self.name), self._sealed_for_it(given))
                for one, given in zip(known, shared, strict=True)
            ]
            others = [one for one in known if one.party != self.name]
            made, kind = reply(lambda values: self._masked(values, others))
            rows = as_bytes(b"".join(shares)).reshape(-1, 2 * SHARE)
            self.state = replace(state, senders=tuple(names), shares=rows, kind=kind, rule=rule)
            return made

        return self._once("input", question.encode() + encode(shared), answer)

    def reveal(self, survivors: Sequence[str], *, round: int) -> SumOpening:
        """Answer step 4: reveal the shares that open the sum of some parties, and delete the secrets.

        Args:
            survivors: names of the parties whose input is in the sum, sorted.
            round: the round.

        Raises:
            KnowledgeRefused: the sum has too few parties or other parties than earlier sums, or the party has
                already opened another sum with the same noise.
        """
        state = self.state
        said = repr(list(survivors)).encode()
        chosen = hashlib.sha256(state.question.encode() + said).hexdigest()

        def reply() -> SumOpening:
            known = [name for name in state.senders if name in survivors] == list(survivors)
            if "input" not in state.given or not known or self.name not in survivors:
                raise KnowledgeRefused("a sum that it has no part in")
            if len(survivors) < (least := max(state.threshold, FEWEST)):
                raise KnowledgeRefused(f"a sum of {len(survivors)} parties, of at least {least}")
            recorded = self._recorded()
            if state.kind == ANSWERS:
                self._check_set(self.bound, survivors)
                self._check_rule(state.rule)
                roster = roster_digest(self.name, self.roster)
                recorded = replace(
                    recorded,
                    sets={**state.sets, roster: tuple(survivors)},
                    rules={**state.rules, roster: state.rule},
                )
            elif state.kind:
                if state.opened.get(state.kind, chosen) != chosen:
                    raise KnowledgeRefused(
                        "its part of the noise is in a sum of other parties, or of another question, and a "
                        "second sum would have too little noise",
                        mend="Ask the same of the same parties. In one process, create the parties again.",
                    )
                recorded = replace(recorded, opened={**state.opened, state.kind: chosen})
            inside = np.array([name in survivors for name in state.senders])[:, None]
            values = np.where(inside, state.shares[:, :SHARE], state.shares[:, SHARE:])
            self.state = replace(recorded, domain=state.domain)
            return SumOpening(party=self.name, round=round, values=values)

        return self._once("opening", said, reply)

    def _once(self, step: str, question: bytes, reply: Callable[[], T]) -> T:
        """Compute the reply to a step's first question, or repeat its bytes for the same question."""
        if not self.state.domain.size:
            raise KnowledgeRefused("it is in no sum", mend="Begin another attempt.")
        digest = hashlib.sha256(question).digest()
        kept = self.state.given.get(step)
        if kept is None:
            made = reply()
            given = {**self.state.given, step: as_bytes(digest + encode([made]))}
            self.state = replace(self.state, given=given)
            return made
        if kept[:KEY].tobytes() != digest:
            raise KnowledgeRefused(f"it has given its {step} for this sum, asked in other words")
        again: T = decode(kept[KEY:].tobytes())[0]
        return again

    def _check(self, keys: Sequence[SumKeys]) -> None:
        """Raise ``KnowledgeRefused`` unless these are parties to be in a sum with, each with its own keys."""
        names, domain = [one.party for one in keys], self.state.domain.tobytes()
        if len(keys) < self.state.threshold or not set(names) <= {*self.state.among}:
            raise KnowledgeRefused(
                "keys of too few of the parties that agreed to be in a sum, or of others",
                mend="Begin a run with all parties of the sum.",
            )
        own = self._own_keys()
        there = [one.signed for one in keys if one.party == self.name] == [own.signed]
        publics = {one.tobytes() for pair in keys for one in (pair.sealing, pair.masking)}
        if not there or names != sorted(set(names)) or len(publics) < 2 * len(keys):
            raise KnowledgeRefused("keys that are not its own and those of different parties")
        self._check_set(own.bound, names)
        for one in keys:
            if (one.round, one.history) != (own.round, own.history):
                raise KnowledgeRefused(
                    f"party {one.party!r} was not asked the same as it since they joined, so that its model "
                    "may have changed by itself",
                    mend="Restore the parties to one round; or begin a run with all of them.",
                )
        for one in keys if self.roster is not None else ():
            public = (self.roster or {}).get(one.party, "")
            if one.party == self.name:
                continue
            if not masks.verify(public, domain + one.signed, one.signature.tobytes()):
                raise KnowledgeRefused(f"keys that party {one.party!r} did not sign")

    def _own_keys(self) -> SumKeys:
        """Return the party's public keys of this attempt."""
        own: SumKeys = decode(self.state.given["keys"][KEY:].tobytes())[0]
        return own

    def _check_set(self, bound: Sequence[str], names: Sequence[str]) -> None:
        """Raise ``KnowledgeRefused`` unless a sum has the same parties as all sums before, if any."""
        if bound and list(names) != list(bound):
            raise KnowledgeRefused(
                f"its sums are over {', '.join(bound)}: a sum of other parties and those before would tell "
                "the answers of a single one",
                mend="Start those that are missing again. For a sum of others each party's engineer changes "
                "its [roster]; in one process, create the parties again.",
            )

    def _check_rule(self, rule: str) -> None:
        """Raise ``KnowledgeRefused`` unless a sum has the same rule as all sums before, if any."""
        if self.state.rules.get(roster_digest(self.name, self.roster), rule) != rule:
            raise KnowledgeRefused(
                "its sums are of another rule: sums of a few rules, such as of several temperatures, are "
                "equations that have single answers for a solution",
                mend="Take the rule of the run before. For another one each party's engineer changes a line "
                "of its [roster]; in one process, create the parties again.",
            )

    def _check_roster(self, among: Sequence[str], threshold: int) -> None:
        """Raise ``KnowledgeRefused`` unless the roster lists all parties and the threshold fits it."""
        if self.roster is None:
            return
        known = {*self.roster, self.name}
        if strangers := sorted(set(among) - known):
            raise KnowledgeRefused(f"party {strangers[0]!r} is not on its roster")
        if threshold < (least := least_threshold(len(known))):
            raise KnowledgeRefused(
                f"{threshold} of the {len(known)} on its roster would open the sum, of {least} or more",
                mend="The party's engineer may take those off who take no part.",
            )

    def _sealing_key(self, other: SumKeys, *, to: str) -> bytes:
        """Key of the one message between two parties in one direction."""
        private, domain = self.state.private[0].tobytes(), self.state.domain.tobytes()
        return masks.shared_key(private, other.sealing.tobytes(), domain + b" for " + to.encode())

    def _sealed_for_it(self, given: SealedShares) -> bytes:
        """Find the shares for this party among those that another has sealed."""
        others = [one.party for one in self.state.keys if one.party != given.party]
        return bytes(given.values[others.index(self.name)].tobytes())

    def _masked(self, values: Array, others: Sequence[SumKeys]) -> Array:
        _, masking, seed = (one.tobytes() for one in self.state.private)
        total = np.asarray(values + masks.mask(seed, len(values)))
        for one in others:
            add_pair(total, masking, one, self.name, self.state.domain.tobytes())
        return total

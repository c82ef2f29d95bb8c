"""Sums over parties that nobody can look into: both ends of the protocol, as state machines.

Bonawitz et al. 2017. Every party adds to its input a mask for itself and one with each other party; those
with others cancel in the sum. Parties share the secrets behind their masks with all others, so that the sum
can be opened where some have dropped out: of a party whose input arrived the mask for itself, of one that
dropped the masks with others, never both.

    0  domain: the federation, the question, a number of the attempt, t of the n parties that are enough
    1  keys      u: X25519 keys c_u and s_u, a seed b_u; sends the public keys and SHA-256(b_u), signed
    2  shares    u, given the keys of all U1: t-of-n shares of b_u and s_u, sealed for each v by c_u and c_v
    3  input     u, given its sealed shares by U2:
                   y_u = x_u + PRG(b_u) + sum_{v > u} PRG(k_uv) - sum_{v < u} PRG(k_uv)  mod 2^64,  v in U2
    4  opening   u, given the names U3 whose input arrived: of v in U3 its share of b_v, else that of s_v
    5  coordinator: sum_{U3} x = sum_{U3} y - PRG(b) ± PRG(k) of the dropped

Fewer than t parties that join hands with the coordinator learn the sum of the others; t or more learn every
input. With :func:`.least_threshold` a coordinator that tells some parties that u dropped, and others that it
did not, gets too few shares of one kind, unless a third of the parties help it.

Two sums that differ by one party tell its input. So n are the parties that agreed when they joined, however
few of them a coordinator asks, and a party that has opened a sum with its model in some state opens no other
one in that state: neither of other parties nor of another question, in whatever round, run or attempt. Any
two sets of t parties have more than a third of all in common, who would have to open both.

Deviations
    - Shares are unsealed, and so authenticated, in line 3 and not in line 4: keys of an earlier attempt that
      a coordinator repeats have nobody behind them who could have sealed shares for this one.
    - b_u is committed to, so that a wrong share is noticed in the sum.
    - The question is part of every key: of parties that were asked different questions no sum comes out.
    - The paper's further step against active coordinators, signatures of U3, is left out for the threshold.

Source:
    Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", figure 4.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

import numpy as np

from consilience.errors import KnowledgeRefused, RunFailed
from consilience.messages.message import message
from consilience.messages.secure_sums import KEY, SEALED, SHARE, SealedShares, SumKeys, SumOpening
from consilience.messages.wire import decode, encode
from consilience.secure import masks
from consilience.secure.masks import FEWEST, least_threshold, odd_sum
from consilience.validation.arrays import Array

Masking = Callable[[Array], Array]
"""Adds all masks of a party to its integers, shape ``(n,)``, uint64."""

T = TypeVar("T")


def _bytes(data: bytes = b"") -> Array:
    return np.frombuffer(data, dtype=np.uint8)


@message
class SumState:
    """State of a party in a sum; all in it but ``opened`` is of one attempt, and forgotten with it.

    Attributes:
        domain: names the attempt, uint8 as all arrays here; of length 0 for none.
        threshold: fewest parties that open the sum.
        question: digest of what is asked, without the round.
        among: names of the parties that agreed to be in sums together, sorted.
        private: private keys for sealing and for masking, and the seed of the own mask, shape ``(3, 32)``.
        keys: of all parties that take part, by name.
        senders: names of the parties whose shares it has, its own among them.
        shares: two shares of each, shape ``(n, 66)``.
        given: step to the digest of its question, 32 bytes, followed by the reply.
        model: names the state of the model that its input was made by; empty where another sum of the same
            input would tell nothing.
        opened: state of the model to the digest of the question and of the survivors that a sum was opened
            for, over all attempts.
    """

    domain: Array = field(default_factory=_bytes)
    threshold: int = 0
    question: str = ""
    among: tuple[str, ...] = ()
    private: Array = field(default_factory=_bytes)
    keys: tuple[SumKeys, ...] = ()
    senders: tuple[str, ...] = ()
    shares: Array = field(default_factory=_bytes)
    given: Mapping[str, Array] = field(default_factory=dict)
    model: str = ""
    opened: Mapping[str, str] = field(default_factory=dict)


class SumMember:
    """A party's end of secure sums, one at a time.

    It answers every step of an attempt once, and the same question with the same bytes. Its state can be
    written after every step and read in another process.

    Args:
        name: of the party.
        identity: private key by which the others know it, in OpenSSH's form; empty for none.
        roster: name to public key of every other party that may take part, as lines of OpenSSH; ``None``
            where keys are taken from the coordinator, which could then put itself between all parties.
    """

    def __init__(
        self, name: str, identity: bytes = b"", roster: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.identity, self.roster = name, identity, roster
        self.state = SumState()

    def to_bytes(self) -> bytes:
        """Write the state, with all its secrets."""
        return encode([self.state])

    def read(self, data: bytes) -> None:
        """Take up a state that :meth:`to_bytes` wrote."""
        (self.state,) = decode(data)

    def abandon(self) -> None:
        """Forget the attempt and its secrets; sums that were opened stay known."""
        self.state = SumState(opened=self.state.opened)

    def open(
        self, domain: bytes, threshold: int, question: str, *, among: Sequence[str], round: int
    ) -> SumKeys:
        """Answer step 1: begin an attempt, and leave the one before.

        Args:
            domain: names the attempt.
            threshold: fewest parties that open the sum.
            question: digest of what is asked, without the round.
            among: names of the parties that agreed to be in sums together, sorted.
            round: the round.

        Raises:
            KnowledgeRefused: it is not among them, they are too few, or so few would open their sum.
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
            self.state = SumState(
                domain=_bytes(domain),
                threshold=threshold,
                question=question,
                among=tuple(among),
                private=_bytes(secrets.token_bytes(3 * KEY)).reshape(3, KEY),
                opened=self.state.opened,
            )

        def reply() -> SumKeys:
            sealing, masking, seed = (one.tobytes() for one in self.state.private)
            keys = SumKeys(
                party=self.name,
                round=round,
                sealing=_bytes(masks.public_of(sealing)),
                masking=_bytes(masks.public_of(masking)),
                commitment=_bytes(hashlib.sha256(seed).digest()),
                signature=_bytes(),
            )
            if self.identity:
                signature = masks.sign(self.identity, domain + keys.signed)
                keys = replace(keys, signature=_bytes(signature))
            return keys

        return self._once("keys", domain, reply)

    def share(self, keys: Sequence[SumKeys]) -> SealedShares:
        """Answer step 2: share the two secrets with all parties, given the keys of all by name.

        Raises:
            KnowledgeRefused: the parties are not ones that it would be in a sum with.
        """

        def reply() -> SealedShares:
            self._check(keys)
            state, names = self.state, [one.party for one in keys]
            _, masking, seed = (one.tobytes() for one in state.private)
            parts = [masks.split(one, state.threshold, len(keys)) for one in (seed, masking)]
            both = {name: a + b for name, a, b in zip(names, *parts, strict=True)}
            own = _bytes(both.pop(self.name))[None]
            sealed = [
                masks.seal(self._sealing_key(one, to=one.party), both[one.party])
                for one in keys
                if one.party in both
            ]
            self.state = replace(state, keys=tuple(keys), senders=(self.name,), shares=own)
            rows = _bytes(b"".join(sealed)).reshape(-1, SEALED)
            held = self.roster is not None
            return SealedShares(party=self.name, round=keys[0].round, values=rows, checked=held)

        return self._once("shares", encode(keys), reply)

    def mask(
        self,
        shared: Sequence[SealedShares],
        question: str,
        reply: Callable[[Masking], tuple[T, str]],
    ) -> T:
        """Answer step 3: take the shares of others, and give the input under masks.

        Args:
            shared: what the parties that take part sealed, its own among it, by name.
            question: digest of what is asked.
            reply: makes the reply, given the masks, and names the model's state (:attr:`SumState.model`).

        Raises:
            KnowledgeRefused: it is not the question that was announced, shares are wrong, or too few.
        """

        def answer() -> T:
            state, senders = self.state, [one.party for one in shared]
            known = [one for one in state.keys if one.party in senders]
            if question != state.question:
                raise KnowledgeRefused("another question than the parties were told of")
            names = [one.party for one in known]
            if names != senders or self.name not in names or len(names) < state.threshold:
                raise KnowledgeRefused("shares of too few parties, or of ones that take no part")
            shares = [
                state.shares[0].tobytes()
                if one.party == self.name
                else masks.unseal(self._sealing_key(one, to=self.name), self._sealed_for_it(given))
                for one, given in zip(known, shared, strict=True)
            ]
            others = [one for one in known if one.party != self.name]
            made, model = reply(lambda values: self._masked(values, others))
            rows = _bytes(b"".join(shares)).reshape(-1, 2 * SHARE)
            self.state = replace(state, senders=tuple(names), shares=rows, model=model)
            return made

        return self._once("input", question.encode() + encode(shared), answer)

    def reveal(self, survivors: Sequence[str], *, round: int) -> SumOpening:
        """Answer step 4: hand out shares of what opens the sum of some parties; the secrets are then gone.

        Args:
            survivors: names of the parties whose input is in the sum, sorted.
            round: the round.

        Raises:
            KnowledgeRefused: the sum would be of too few or other parties; or another one was opened with the
                model as it is.
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
            if state.opened.get(state.model, chosen) != chosen:
                raise KnowledgeRefused(
                    "with its model as it is, it has opened a sum of other parties, or of another question; "
                    "two such sums tell what a single party says",
                    mend="Ask the same of the same parties; or let the model learn. In one process, make the "
                    "parties anew.",
                )
            inside = np.array([name in survivors for name in state.senders])[:, None]
            values = np.where(inside, state.shares[:, :SHARE], state.shares[:, SHARE:])
            opened = {**state.opened, state.model: chosen} if state.model else state.opened
            self.state = SumState(domain=state.domain, opened=opened)
            return SumOpening(party=self.name, round=round, values=values)

        return self._once("opening", said, reply)

    def _once(self, step: str, question: bytes, reply: Callable[[], T]) -> T:
        """Give the reply to a step's first question; the same bytes again where it comes again."""
        if not self.state.domain.size:
            raise KnowledgeRefused("it is in no sum", mend="Begin the sum anew.")
        digest = hashlib.sha256(question).digest()
        kept = self.state.given.get(step)
        if kept is None:
            made = reply()
            given = {**self.state.given, step: _bytes(digest + encode([made]))}
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
        own = decode(self.state.given["keys"][KEY:].tobytes())[0]
        there = [one.signed for one in keys if one.party == self.name] == [own.signed]
        publics = {one.tobytes() for pair in keys for one in (pair.sealing, pair.masking)}
        if not there or names != sorted(set(names)) or len(publics) < 2 * len(keys):
            raise KnowledgeRefused("keys that are not its own and those of different parties")
        for one in keys if self.roster is not None else ():
            public = (self.roster or {}).get(one.party, "")
            if one.party == self.name:
                continue
            if not masks.verify(public, domain + one.signed, one.signature.tobytes()):
                raise KnowledgeRefused(f"keys that party {one.party!r} did not sign")

    def _check_roster(self, among: Sequence[str], threshold: int) -> None:
        """Raise ``KnowledgeRefused`` unless the parties of a sum are on the roster, and enough of it."""
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
            _add_pair(total, masking, one, self.name, self.state.domain.tobytes())
        return total


def open_sum(
    domain: bytes,
    threshold: int,
    keys: Mapping[str, SumKeys],
    senders: Sequence[str],
    inputs: Mapping[str, Array],
    openings: Mapping[str, SumOpening],
) -> Array:
    """Compute the sum of the parties whose masked input arrived, modulo 2^64: line 5, at the coordinator.

    Args:
        domain: names the attempt.
        threshold: fewest parties that open the sum.
        keys: party to its keys, sorted by name.
        senders: names of those that have shared their secrets, sorted.
        inputs: party to its masked integers, shape ``(n,)``, uint64.
        openings: party to the shares that it handed out, of at least the threshold.

    Raises:
        RunFailed: too few openings, or shares that do not give a party's secret.
    """
    enough = dict(list(openings.items())[:threshold])
    if len(enough) < threshold:
        raise RunFailed(f"{len(enough)} of {threshold} parties opened the sum")
    places = {name: place for place, name in enumerate(keys, 1)}
    total: Array = np.add.reduce(list(inputs.values()))
    for row, name in enumerate(senders):
        shares = {places[u]: one.values[row].tobytes() for u, one in enough.items()}
        found = masks.combine(shares) or b""
        if name in inputs:
            right = hashlib.sha256(found).digest() == keys[name].commitment.tobytes()
        else:
            right = bool(found) and masks.public_of(found) == keys[name].masking.tobytes()
        if not right:
            raise RunFailed(
                f"the shares of party {name!r} do not give its secret: it, or one that handed a share out, "
                "does not keep to the protocol",
                mend="Begin the sum anew.",
            )
        if name in inputs:
            total -= masks.mask(found, len(total))
            continue
        for other in inputs:  # what it would have added cancels what the others did
            _add_pair(total, found, keys[other], name, domain)
    return total


def _add_pair(total: Array, private: bytes, other: SumKeys, mine: str, domain: bytes) -> None:
    """Add in place the mask that a party of this name and masking key has with another."""
    key = masks.shared_key(private, other.masking.tobytes(), domain + b" mask")
    values = masks.mask(key, len(total))
    if other.party > mine:
        total += values
    else:
        total -= values

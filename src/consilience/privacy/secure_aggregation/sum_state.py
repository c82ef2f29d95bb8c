"""State of a party in secure sums: the secrets of one attempt, and a record of its sums for all attempts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from consilience.core.messages.message import message
from consilience.core.validation.arrays import Array
from consilience.privacy.secure_aggregation.messages import SumKeys


def as_bytes(data: bytes = b"") -> Array:
    """Give bytes as an array, shape ``(n,)``, uint8."""
    return np.frombuffer(data, dtype=np.uint8)


@message
class SumState:
    """State of a party in a secure sum; only ``opened``, ``sets`` and ``rules`` remain after the attempt.

    Attributes:
        domain: identifier of the attempt, uint8 as all arrays here; of length 0 for none.
        threshold: minimum number of parties that open the sum.
        question: digest of the question, without the round.
        among: names of the parties that agreed to be in sums together, sorted.
        private: private keys for sealing and for masking, and the seed of the self-mask, shape ``(3, 32)``.
        keys: keys of all participating parties, by name.
        senders: names of the parties whose shares this party has, including itself.
        shares: two shares of each, shape ``(n, 66)``.
        given: maps a step to the digest of its question, 32 bytes, followed by the reply.
        kind: :data:`~consilience.privacy.secure_aggregation.messages.ANSWERS`; or a digest of an input with a
            part of shared noise; or empty, if the noise of the input suffices alone.
        rule: digest of the rule of its input.
        opened: maps the digest of an input with shared noise to the digest of the question and of the
            survivors of its opened sum.
        sets: maps the digest of the party's roster (:func:`roster_digest`) to the names of the parties of all
            its sums of answers.
        rules: maps the digest of the party's roster to the digest of the rule of all these sums.
    """

    domain: Array = field(default_factory=as_bytes)
    threshold: int = 0
    question: str = ""
    among: tuple[str, ...] = ()
    private: Array = field(default_factory=as_bytes)
    keys: tuple[SumKeys, ...] = ()
    senders: tuple[str, ...] = ()
    shares: Array = field(default_factory=as_bytes)
    given: Mapping[str, Array] = field(default_factory=dict)
    kind: str = ""
    rule: str = ""
    opened: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)


def roster_digest(name: str, roster: Mapping[str, str] | None) -> str:
    """Compute a digest of the other parties on a roster and of their keys; empty for no roster.

    Any change of a line makes another roster, including a change of the comment after a key. The party's
    engineer can therefore begin another record with the same parties and keys.

    Args:
        name: name of the party itself, which is excluded.
        roster: maps names to public keys, as lines of OpenSSH.

    Returns:
        SHA-256 in hexadecimal digits.
    """
    if roster is None:
        return ""
    lines = sorted([other, *line.split()] for other, line in roster.items() if other != name)
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()

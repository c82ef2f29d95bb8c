"""Access to a party's state of secure sums, and check of its roster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from consilience.core.errors import InvalidInput
from consilience.core.party.view import PartyView

if TYPE_CHECKING:
    from consilience.privacy.secure_aggregation.secure_sum import SumMember

FEATURE = "sums"
"""Name of the secure-sum feature of a party."""

SUMS = f"{FEATURE}.safetensors"
"""State file of the current sum, including secrets; it is in no checkpoint."""


def make_member(party: PartyView) -> SumMember:
    """Create the party's member of secure sums.

    Raises:
        MissingExtra: ``cryptography`` is not installed.
    """
    from consilience.privacy.secure_aggregation.secure_sum import (
        SumMember,  # the package imports scikit-learn too
    )

    keys = party.rules.keys
    return SumMember(party.name, keys.identity, keys.roster)


def member_of(party: PartyView) -> SumMember:
    """Return the party's member of secure sums.

    Raises:
        MissingExtra: ``cryptography`` is not installed.
    """
    return cast("SumMember", party.feature(FEATURE))


def checked_roster(party: str, identity: bytes, roster: Mapping[str, str]) -> Mapping[str, str]:
    """Return a roster without the party itself, after checking that every entry is a public key.

    Args:
        party: name of the party.
        identity: private key of the party.
        roster: maps names to public keys, in the one-line format of OpenSSH.

    Raises:
        InvalidInput: the roster names too few parties, an entry is not a key, or the party has no private
            key.
    """
    from consilience.privacy.secure_aggregation.masks import check_public_key

    others = {name: line for name, line in roster.items() if name != party}
    mend = "Copy the line of each that this prints there: consilience party key party.toml"
    if not identity:
        raise InvalidInput("the others know it by coordinator.key, and there is none", mend=mend)
    if len(others) < 2:
        what = f"it names {len(others)} others, and a sum is of three parties or more"
        raise InvalidInput(what, mend=mend)
    for name, line in others.items():
        check_public_key(line, where=name)
    return others

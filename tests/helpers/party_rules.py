"""Rules of a party that a test changes after the party was made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from consilience import Party


def set_rules(party: Party, **changes: Any) -> Party:
    """Have a party keep to changed rules."""
    party.keep_to(replace(party.rules, **changes))
    return party


def set_public_rules(party: Party, **changes: Any) -> Party:
    """Have a party keep to changed rules for public rows."""
    return set_rules(party, public=replace(party.rules.public, **changes))


def set_keys(party: Party, **changes: Any) -> Party:
    """Give a party other keys."""
    return set_rules(party, keys=replace(party.rules.keys, **changes))

"""A party's end of secure sums: where it is kept, and what it adds up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from consilience.errors import KnowledgeRefused, RunFailed

if TYPE_CHECKING:
    from consilience.party.party import Party
    from consilience.secure.secure_sum import SumMember

SUMS = "sums.safetensors"
"""File of a state with the sum that a party is in, its secrets among it; it is in no checkpoint."""


def member_of(party: Party) -> SumMember:
    """Give the party's end of secure sums.

    Raises:
        MissingExtra: ``cryptography`` is not installed.
    """
    from consilience.secure.secure_sum import SumMember  # the room brings scikit-learn with it

    if party.sums is None:
        party.sums = SumMember(party.name)
    return party.sums


def read_sums(party: Party, folder: Path) -> None:
    """Load the sum of a state; where there is none, the one that the party is in is over.

    Raises:
        RunFailed: the file is damaged.
    """
    file = folder / SUMS
    try:
        if file.exists():
            member_of(party).read(file.read_bytes())
        elif party.sums is not None:
            party.sums.abandon()
    except (OSError, ValueError, KnowledgeRefused) as error:
        raise RunFailed(f"its state is damaged: {error}", where=str(file)) from error

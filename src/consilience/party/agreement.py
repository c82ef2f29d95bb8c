"""Checks of an agreement against what a party holds, before it joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.errors import InvalidInput, odd_name
from consilience.messages.schema import MOST_CLASSES, Agreement
from consilience.numerics.encoder import LONGEST_KEY
from consilience.validation.memory import check_memory

if TYPE_CHECKING:
    from consilience.party.party import Party


def check_agreement(party: Party, agreement: Agreement) -> None:
    """Raise ``InvalidInput`` where an agreement contradicts itself, or what the party holds."""
    where = f"party {party.name!r}"
    if party.max_public_bytes and (party.public is None or party.public.key != agreement.public):
        raise InvalidInput(
            "it does not hold the public rows agreed on",
            where=where,
            mend="The coordinator sends them before it has it join; else name the file at the party.",
            code="lacks-public",
        )
    if agreement.rows and (party.public is None or not len(party.public)):
        raise InvalidInput(
            "it holds no public rows, and none may be sent to it",
            where=where,
            mend="Name a file of them at the party, or let its limits have them sent.",
        )
    if party.public is None or party.public.key != agreement.public:
        raise InvalidInput(
            "its public data are not the ones agreed on",
            where=where,
            mend="Every party must hold the same public rows in the same order.",
        )
    _check_encoder(party, agreement.encoder)
    outputs = len(agreement.classes) or party.y.shape[-1]
    distinct = len(set(agreement.classes)) == len(agreement.classes) <= MOST_CLASSES
    if why := next(filter(None, map(odd_name, agreement.classes)), None):
        raise InvalidInput(f"a class agreed on has no name: {why}", where=where)
    if (
        agreement.kind != party.kind
        or bool(agreement.classes) != (party.kind == "classification")
        or (agreement.outputs, agreement.rows) != (outputs, len(party.public))
        or not distinct
    ):
        raise InvalidInput(
            f"the agreement is of {agreement.kind} with {len(agreement.classes)} classes, "
            f"{agreement.outputs} outputs and {agreement.rows} public rows",
            where=where,
            mend=f"Its own is {party.kind}, with {len(party.public)} public rows.",
        )
    tested = 0 if party.test is None else len(party.test[0])
    rows = 2 * len(party.X) + 2 * tested + 3 * len(party.public)  # targets, answers, teacher
    check_memory(
        8 * rows * outputs,
        f"{outputs:,} outputs for each of its rows and of {len(party.public):,} public ones",
        where=where,
        mend="It needs a federation with fewer classes or fewer public rows.",
    )


def _check_encoder(party: Party, agreed: str) -> None:
    """Raise ``InvalidInput`` where the party would compare rows by other features than were agreed on."""
    assert party.public is not None
    own = party.public.encoder_key
    if own == agreed:
        return
    theirs = (
        f"the one agreed on has the digest {agreed[:LONGEST_KEY]}"
        if agreed
        else "none was agreed on"
    )
    raise InvalidInput(
        f"its encoder has the digest {own}, and {theirs}"
        if own
        else f"it has no encoder, and {theirs}",
        where=f"party {party.name!r}",
        mend="Every party needs the same file: data.encoder at the party, encoder at the coordinator; in "
        "Python Federation(encoder=…).",
    )

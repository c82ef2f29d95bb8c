"""Checks of what comes from elsewhere against what a party holds: an agreement, another party's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.core.errors import InvalidInput, odd_name
from consilience.core.learners import FixedLearner
from consilience.core.messages.schema import MOST_CLASSES, Agreement
from consilience.core.numerics.encoder import LONGEST_KEY
from consilience.core.validation.memory import check_memory

if TYPE_CHECKING:
    from consilience.core.party.party import Party

_EXAMPLES = 100
"""Public rows that a learner may look at to say whether it can use their like."""


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
            mend="Every party must hold the same public rows in the same order. A coordinator with secret "
            "labels mixes its own among them: leave `public` out of party.toml, and they are sent.",
        )
    _check_encoder(party, agreement.encoder)
    if agreement.outcome != ("" if party.outcome is None else party.outcome.key):
        raise InvalidInput(
            f"the outcome agreed on is {agreement.outcome or 'classes or values'}",
            where=where,
            mend="Every party needs the same outcome, with the same edges.",
        )
    outputs = len(agreement.classes) or party.targets or agreement.outputs
    distinct = len(set(agreement.classes)) == len(agreement.classes) <= MOST_CLASSES
    named = (*agreement.classes, *agreement.frozen, *agreement.learners, *agreement.summed)
    if why := next(filter(None, map(odd_name, named)), None):
        raise InvalidInput(f"a class or party agreed on has no name: {why}", where=where)
    _check_roles(party, agreement)
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
    check_outputs(party, _answer_rows(party), outputs)


def _check_roles(party: Party, agreement: Agreement) -> None:
    """Raise ``InvalidInput`` where the lists of parties name one twice, or contradict the party itself.

    Parties act by these lists, so that a wrong one is equal bytes with another effect at one of them.
    """
    where = f"party {party.name!r}"
    if list(agreement.summed) != sorted(set(agreement.summed)):
        raise InvalidInput("the parties of sums are not sorted, or one is named twice", where=where)
    learns_only = not (party.labelled or party.frozen)
    for named, role, own in (
        (agreement.frozen, "frozen", party.frozen),
        (agreement.learners, "without labelled rows", learns_only),
    ):
        if (party.name in named) != own:
            stated = "" if party.name in named else "not "
            raise InvalidInput(f"the agreement has it as {stated}{role}", where=where)


def _answer_rows(party: Party) -> int:
    """Count the rows of outputs that a party holds in a round, of public rows and its own."""
    assert party.public is not None
    rows = 3 * len(party.public)  # targets, answers, teacher
    if not party.outbox.discreet:  # else how many rows it has is nobody's affair
        rows += own_rows(party)
    return rows


def check_model(party: Party) -> None:
    """Raise ``InvalidInput`` where a party's model cannot take the rows of the federation it joins.

    With a budget of privacy that hangs on the public rows alone.
    """
    public, learner = party.public, party.learner
    assert public is not None
    budgeted = party.outbox.discreet
    if not (len(public) or budgeted or party.max_public_bytes):
        _check_takes_gaps(party)
    _check_order(party)
    if len(public) or not budgeted:
        learner.check((public.X if len(public) else party.X)[:_EXAMPLES])
    if party.private_training is not None:
        party.private_training.costs()  # of a network that cannot be trained so there are none
    if isinstance(learner, FixedLearner):
        tested = () if party.test is None or budgeted else (party.test[0],)
        learner.check_budget(*[public.X] * bool(len(public)), *tested)


def _check_order(party: Party) -> None:
    """Raise ``InvalidInput`` if a model counts columns, and those of its table stand in another order."""
    option = party.learner.counts_columns
    if not option or party.table is None or party.schema is None:
        return
    if party.table.renamed != tuple(party.schema.names):
        raise InvalidInput(
            f"{option} says columns by position, and the columns of its table are not those of the "
            "public rows in the same order",
            where=f"party {party.name!r}",
            mend="Name the columns if the model takes names; or give the table in the order of the public "
            f"rows: {', '.join(party.schema.names[:10])}{', …' if len(party.schema.names) > 10 else ''}.",
        )


def _check_takes_gaps(party: Party) -> None:
    """Raise ``InvalidInput`` if a model needs numbers, and there are no public medians to fill gaps with."""
    learner = party.learner
    if not learner.abilities.gaps and learner.schema is None and party.has_gaps:
        raise InvalidInput(
            "its rows have gaps, and there are no public rows, with whose medians gaps are filled",
            where=f"party {party.name!r}",
            mend="Give public rows, fill the gaps, or take a model with gaps, such as gradient-boosting.",
        )


def own_rows(party: Party) -> int:
    """Count the outputs that a party holds of its private and test rows: targets and answers."""
    return 2 * len(party.X) + (0 if party.test is None else 2 * len(party.test[0]))


def check_outputs(party: Party, rows: int, outputs: int) -> None:
    """Raise ``InvalidInput`` if outputs for rows need more memory than there is.

    Args:
        party: the party.
        rows: how many of its rows, and of public ones.
        outputs: of each.
    """
    assert party.public is not None
    check_memory(
        8 * rows * outputs,
        f"{outputs:,} outputs for each of its rows and of {len(party.public):,} public ones",
        where=f"party {party.name!r}",
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

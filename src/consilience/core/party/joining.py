"""Checks of an agreement against the data and the model of a party, before the party joins."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.core.errors import InvalidInput, odd_name
from consilience.core.learners import FixedLearner, Learner
from consilience.core.messages.schema import MOST_CLASSES, Agreement, Public
from consilience.core.numerics.encoder import LONGEST_KEY
from consilience.core.party.own_rows import OwnRows
from consilience.core.validation.memory import check_memory

_EXAMPLES = 100
"""Largest number of rows that a learner checks before it accepts the data."""


@dataclass(frozen=True)
class Joining:
    """A party before it joins a federation.

    Attributes:
        party: name of the party.
        agreement: agreement of the federation.
        rows: private rows of the party.
        frozen: whether the model is never trained.
        sent: whether the coordinator may send public rows to the party.
        discreet: whether the party has a privacy budget, so that no check fails because of private rows.
    """

    party: str
    agreement: Agreement
    rows: OwnRows
    frozen: bool
    sent: bool
    discreet: bool

    def check(self, public: Public | None) -> Public:
        """Return the public rows, or raise ``InvalidInput`` if the agreement contradicts itself or the party.

        Args:
            public: public rows of the party; ``None`` for none.
        """
        agreement, rows, where = self.agreement, self.rows, self._where
        public = self._agreed_public(public)
        self._check_encoder(public.encoder_key)
        if agreement.outcome != ("" if rows.outcome is None else rows.outcome.key):
            raise InvalidInput(
                f"the outcome agreed on is {agreement.outcome or 'classes or values'}",
                where=where,
                mend="Every party needs the same outcome, with the same edges.",
            )
        outputs = len(agreement.classes) or rows.targets or agreement.outputs
        distinct = len(set(agreement.classes)) == len(agreement.classes) <= MOST_CLASSES
        named = (*agreement.classes, *agreement.frozen, *agreement.learners, *agreement.summed)
        if why := next(filter(None, map(odd_name, named)), None):
            raise InvalidInput(f"a class or party agreed on has no name: {why}", where=where)
        self._check_roles()
        if (
            agreement.kind != rows.kind
            or bool(agreement.classes) != (rows.kind == "classification")
            or (agreement.outputs, agreement.rows) != (outputs, len(public))
            or not distinct
        ):
            raise InvalidInput(
                f"the agreement is of {agreement.kind} with {len(agreement.classes)} classes, "
                f"{agreement.outputs} outputs and {agreement.rows} public rows",
                where=where,
                mend=f"Its own is {rows.kind}, with {len(public)} public rows.",
            )
        # Targets, answers and teacher of the public rows. The number of own rows stays private with a budget.
        self.check_outputs(public, 3 * len(public) + (0 if self.discreet else rows.outputs_held))
        return public

    @property
    def _where(self) -> str:
        return f"party {self.party!r}"

    def _agreed_public(self, public: Public | None) -> Public:
        """Return the public rows if they match the agreement; else raise ``InvalidInput``."""
        if self.sent and (public is None or public.key != self.agreement.public):
            raise InvalidInput(
                "it does not hold the public rows agreed on",
                where=self._where,
                mend="The coordinator sends them before it has it join; else name the file at the party.",
                code="lacks-public",
            )
        if self.agreement.rows and (public is None or not len(public)):
            raise InvalidInput(
                "it holds no public rows, and none may be sent to it",
                where=self._where,
                mend="Name a file of them at the party, or let its limits have them sent.",
            )
        if public is None or public.key != self.agreement.public:
            raise InvalidInput(
                "its public data are not the ones agreed on",
                where=self._where,
                mend="Every party must hold the same public rows in the same order. A coordinator with "
                "secret labels mixes its own among them: leave `public` out of party.toml, and they are "
                "sent.",
            )
        return public

    def _check_roles(self) -> None:
        """Raise ``InvalidInput`` if a list of parties contains duplicates or contradicts the party's role.

        Parties act by these lists. A wrong list would be equal at all parties but change the behaviour of one
        of them.
        """
        agreement = self.agreement
        if list(agreement.summed) != sorted(set(agreement.summed)):
            raise InvalidInput(
                "the parties of sums are not sorted, or one is named twice", where=self._where
            )
        learns_only = not (self.rows.labelled or self.frozen)
        for named, role, own in (
            (agreement.frozen, "frozen", self.frozen),
            (agreement.learners, "without labelled rows", learns_only),
        ):
            if (self.party in named) != own:
                stated = "" if self.party in named else "not "
                raise InvalidInput(f"the agreement has it as {stated}{role}", where=self._where)

    def _check_encoder(self, own: str) -> None:
        """Raise ``InvalidInput`` if the party's encoder differs from the agreed one."""
        agreed = self.agreement.encoder
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
            where=self._where,
            mend="Every party needs the same file: data.encoder at the party, encoder at the coordinator; in "
            "Python Federation(encoder=…).",
        )

    def check_outputs(self, public: Public, rows: int) -> None:
        """Raise ``InvalidInput`` if the outputs for so many rows exceed the available memory.

        Args:
            public: the public rows.
            rows: number of rows of outputs.
        """
        outputs = self.agreement.outputs
        check_memory(
            8 * rows * outputs,
            f"{outputs:,} outputs for each of its rows and of {len(public):,} public ones",
            where=self._where,
            mend="It needs a federation with fewer classes or fewer public rows.",
        )

    def check_model(self, learner: Learner, public: Public) -> None:
        """Raise ``InvalidInput`` if the model cannot take the rows of the federation.

        At a party with a privacy budget, the check depends on the public rows alone.

        Args:
            learner: the untrained learner.
            public: the public rows.
        """
        rows = self.rows
        if not (len(public) or self.discreet or self.sent):
            self._check_takes_gaps(learner)
        self._check_order(learner)
        if len(public) or not self.discreet:
            learner.check((public.X if len(public) else rows.X)[:_EXAMPLES])
        if isinstance(learner, FixedLearner):
            tested = () if rows.test is None or self.discreet else (rows.test[0],)
            learner.check_budget(*[public.X] * bool(len(public)), *tested)

    def _check_order(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` if a model counts columns, and the table has them in another order."""
        option, rows = learner.counts_columns, self.rows
        if not option or rows.table is None or rows.schema is None:
            return
        names = rows.schema.names
        if rows.table.renamed != tuple(names):
            raise InvalidInput(
                f"{option} says columns by position, and the columns of its table are not those of the "
                "public rows in the same order",
                where=self._where,
                mend="Name the columns if the model takes names; or give the table in the order of the "
                f"public rows: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}.",
            )

    def _check_takes_gaps(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` if a model needs numbers, and no public medians can fill gaps."""
        if not learner.abilities.gaps and learner.schema is None and self.rows.has_gaps:
            raise InvalidInput(
                "its rows have gaps, and there are no public rows, with whose medians gaps are filled",
                where=self._where,
                mend="Give public rows, fill the gaps, or take a model with gaps, such as gradient-boosting.",
            )

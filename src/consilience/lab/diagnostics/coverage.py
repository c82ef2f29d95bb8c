"""Coverage of the public rows by the parties' own rows, by inputs alone, before anything is trained.

A party knows a public row that is as likely as its own rows
(:class:`consilience.methods.comparison_rules.tasks.SelectPublic`). It takes 5% of its own held-out rows for
foreign, so that it knows 95% of them by construction, and about as many of public rows that were drawn as its
own were. For that each half of the public rows is judged by a space and a density of the other half: rows
that these are made of look unlike others of their kind. A party that holds two classes of ten should know
about a fifth of public rows of all ten, and the parties together nearly all: what counts is the share that at
least one of them knows.

By inputs alone most classes of photographs look alike, and more is known than a party's classes account for.
So a low share is bad news, and a high one says that the inputs fit and nothing of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import Federation
from consilience.core.numerics.randomness import limited_threads
from consilience.core.tasks.base import NetworkView
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.comparison_rules.scores import Selection
from consilience.methods.comparison_rules.tasks import SelectPublic

QUANTILE = 0.05
"""The share of its own rows that a party may take for foreign."""
LITTLE, WELL = 0.5, 0.8
"""Shares of public rows: below the first they are "little known", and a run says so; from the second on "well
known". A convention; the figures themselves are beside the words."""


@prints_no_rows
@dataclass(frozen=True)
class PublicCoverage:
    """Share of the public rows that the parties know.

    Attributes:
        parties: names of the parties that answered, sorted.
        known: true where a party knows a public row, shape ``(m, n)``, bool.
        total: number of public rows, n or more: part of many may stand for all.
        notes: party to its remarks, such as that it has no calibration rows.
        missing: party to the reason why it did not answer.
    """

    parties: tuple[str, ...]
    known: Array
    total: int
    notes: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, selections: Sequence[Selection], *, missing: Mapping[str, str] | None = None
    ) -> PublicCoverage:
        """Put together the parties' answers to one
        :class:`~consilience.methods.comparison_rules.tasks.SelectPublic`.

        Args:
            selections: one a party.
            missing: party to the reason why it did not answer.

        Raises:
            InvalidInput: no answers, two of one party, of other public data, or not yes or no a row.
        """
        if not selections:
            raise InvalidInput("no party answered which public rows it knows", where="suitability")
        selections = sorted(selections, key=lambda one: one.party)
        first = selections[0]
        for i, one in enumerate(selections):
            where = f"party {one.party!r}"
            if i and one.party == selections[i - 1].party:
                raise InvalidInput("it answered twice", where=where)
            if one.values.dtype != bool or one.values.ndim != 1 or not len(one.values):
                raise InvalidInput(
                    f"it answered shape {one.values.shape} of {one.values.dtype}, expected yes or no a row",
                    where=where,
                )
            if (one.public, len(one.values)) != (first.public, len(first.values)):
                raise InvalidInput(
                    f"it answered about other public data than {first.party!r}", where=where
                )
        return cls(
            parties=tuple(one.party for one in selections),
            known=np.stack([one.values for one in selections]),
            total=len(first.values),
            notes={one.party: "; ".join(one.notes) for one in selections if one.notes},
            missing=missing or {},
        )

    @property
    def share(self) -> float:
        """Share of the public rows that at least one party knows."""
        return float(self.known.any(axis=0).mean())

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the public rows that each party knows."""
        return dict(zip(self.parties, self.known.mean(axis=1).tolist(), strict=True))

    @property
    def parties_a_row(self) -> float:
        """Mean number of parties that know a row."""
        return float(self.known.sum(axis=0).mean())

    @property
    def words(self) -> str:
        """``"little known"``, ``"known in part"`` or ``"well known"``."""
        if self.share < LITTLE:
            return "little known"
        return "known in part" if self.share < WELL else "well known"

    @property
    def sentence(self) -> str:
        """The finding in a line: ``"Your parties know 12% of the 2,000 public rows: little known"``."""
        who = "Your parties know" if len(self.parties) > 1 else "Your party knows"
        part = self.known.shape[1]
        looked = "" if part == self.total else f" ({part:,} of them were looked at)"
        return f"{who} {self.share:.0%} of the {self.total:,} public rows{looked}: {self.words}"

    @property
    def meaning(self) -> str:
        """The finding in a few sentences, for people."""
        text = (
            f"A party knows a row that is as likely as its own, by inputs alone: {1 - QUANTILE:.0%} of its "
            "own held-out rows by construction, and about as many of public rows drawn as these were."
        )
        if len(self.parties) > 1:
            text += f" A row is known to {self.parties_a_row:.1f} of {len(self.parties)} parties on average."
        return f"{text} {self.advice}".strip()

    @property
    def advice(self) -> str:
        """Advice where less than half of the rows are known; empty elsewhere."""
        if self.share >= LITTLE:
            return ""
        return (
            "On rows that nobody knows, parties teach one another guesses: take public rows that look like "
            "the private ones, or a method without public data."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of single parties, and the parties that did not answer."""
        return tuple(
            [f"{party}: {note}" for party, note in self.notes.items()]
            + [
                f"{party} cannot say which public rows it knows: {why}"
                for party, why in self.missing.items()
            ]
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings before anything is trained; none where all is well."""
        little = (f"{self.sentence}. {self.advice}",) if self.advice else ()
        return (*little, *self.remarks)

    def __str__(self) -> str:
        """Format the finding, a line for each party, and its meaning."""
        width = max(map(len, self.parties))
        shares = [f"  {party:<{width}}  {share:>4.0%}" for party, share in self.shares.items()]
        return "\n".join([f"{self.sentence}.", *shares, *self.remarks, self.meaning])

    def as_data(self) -> dict[str, Any]:
        """Return all figures but the single rows as plain numbers and names, for JSON."""
        return {
            "finding": self.sentence,
            "known": self.share,
            "words": self.words,
            "parties_a_row": self.parties_a_row,
            "rows": self.total,
            "rows_looked_at": self.known.shape[1],
            "own_rows_known": 1 - QUANTILE,
            "parties": dict(self.shares),
            "notes": dict(self.notes),
            "missing": dict(self.missing),
            "warnings": list(self.warnings),
        }


def measure_coverage(network: NetworkView) -> PublicCoverage:
    """Ask parties that have joined which public rows they know; one bit a row leaves each.

    Args:
        network: of the parties.

    Raises:
        QuorumLost: too few answered.
        InvalidInput: there are no public rows.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors; their use as a check beforehand, and the
        quantile, are this library's.
    """
    if not network.agreed.rows:
        raise InvalidInput(
            "there is no public data",
            where="suitability",
            mend="Give the federation public rows; methods that exchange models need none.",
        )
    asked = network.agreed.answering(network.parties)
    replies = network.ask(SelectPublic(round=0, quantile=QUANTILE, reference="public"), to=asked)
    missing = {party: failure.reason for party, failure in replies.missing.items()}
    said = [one for one in replies.of(Selection) if not one.absent]
    if not said:
        raise InvalidInput("no party has labelled rows of its own", where="suitability")
    return PublicCoverage.of(said, missing=missing)


def suitability(federation: Federation) -> PublicCoverage:
    """Measure how much of the public data the parties know, by inputs alone; nothing is trained for it.

    Parties that have joined are asked as they are, others join first; models stay untouched.

    Args:
        federation: the parties, on any network.

    Raises:
        InvalidInput: there is no public data, or the parties, their data or their models do not go
            together.
        QuorumLost: too few parties can say.
    """
    if federation.network.agreement is None:
        federation.form()
    with limited_threads(federation.threads):
        return measure_coverage(federation.network)

"""Coverage of the public rows by the parties' own rows, by inputs alone, before anything is trained.

A party covers a public row if the row is as likely as the party's own rows
(:class:`consilience.methods.comparison_rules.tasks.SelectPublic`). The threshold rejects 5% of its held-out
rows. A party therefore covers 95% of these by construction, and about as many of public rows from the same
distribution. Each half of the public rows is scored with a feature space and a density fitted to the other
half, because rows used in fitting look different from held-out rows of the same kind. A party with two of ten
classes should cover about a fifth of public rows of all ten, and the parties together nearly all. The
decisive figure is the share covered by at least one party.

Most classes of photographs have similar inputs, so a party covers more rows than those of its classes. A low
share is therefore bad news, while a high share shows only that the inputs fit, not the classes.
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
    """Share of the public rows covered by the parties.

    Attributes:
        parties: names of the parties that answered, sorted.
        known: true if a party covers a public row, shape ``(m, n)``, bool.
        total: number of all public rows, at least n; a large set is represented by a part of it.
        notes: party to its remarks, such as missing calibration rows.
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
        """Share of the public rows covered by at least one party."""
        return float(self.known.any(axis=0).mean())

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the public rows covered by each party."""
        return dict(zip(self.parties, self.known.mean(axis=1).tolist(), strict=True))

    @property
    def parties_a_row(self) -> float:
        """Mean number of parties that cover a row."""
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
    """Measure which public rows the joined parties cover; each party sends one bit a row.

    Args:
        network: network of the parties.

    Returns:
        The coverage by party and row.

    Raises:
        QuorumLost: too few answered.
        InvalidInput: there are no public rows.

    Source:
        Shao et al. 2024 (Selective-FD), client-side selectors; their use as a check before training, and
        the quantile, are this library's.
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
    """Measure how much of the public data the parties cover, by inputs alone, without training.

    The federation is formed first if necessary. Models stay untouched.

    Args:
        federation: the parties, on any network.

    Returns:
        The coverage by party and row.

    Raises:
        InvalidInput: there is no public data, or the parties, their data or their models do not go
            together.
        QuorumLost: too few parties can answer.
    """
    if federation.network.agreement is None:
        federation.form()
    with limited_threads(federation.threads):
        return measure_coverage(federation.network)

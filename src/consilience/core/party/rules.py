"""Rules that a party's owner sets once: which data the party accepts, and which data it releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Ratios
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.core.numerics.encoder import Encoder, find_encoder
from consilience.core.validation.numbers import check_flag, check_number


@dataclass(frozen=True)
class PublicRules:
    """Rules for public rows.

    Attributes:
        most_bytes: largest size in bytes of the public rows that the coordinator may send. The default 0
            forbids sending them; the party then needs its public rows from another source.
        overlap: whether the party trains and evaluates on own rows that equal a public row. The default is
            true.
        encoder: encoder of the features in which rows are compared, for a party at its own machine: a
            callable with a ``key`` (:func:`.find_encoder` makes one by name). ``None`` uses the encoder of
            the federation, if it has one, and else the inputs.
    """

    most_bytes: int = 0
    overlap: bool = True
    encoder: Encoder | None = None

    def __post_init__(self) -> None:
        check_number("most_bytes", self.most_bytes, at_least=0, whole=True, where="rules")
        check_flag("overlap", self.overlap, where="rules")
        if self.encoder is not None:
            object.__setattr__(self, "encoder", find_encoder(self.encoder))

    @property
    def sent(self) -> bool:
        """Whether the coordinator may send public rows."""
        return self.most_bytes > 0

    def check_sent(self, party: str) -> None:
        """Raise ``InvalidInput`` if a party takes no public rows from the coordinator."""
        if not self.sent:
            raise InvalidInput(
                "it has public rows of its own, and takes no others",
                where=f"party {party!r}",
                mend="Name no public file at the party, and the coordinator sends the rows.",
            )


@dataclass(frozen=True)
class Keys:
    """Keys of a party.

    Attributes:
        secret: bytes mixed into the random streams of the party, so that the coordinator cannot recompute the
            training from the seed. The default, empty bytes, uses the seed alone.
        identity: private key in OpenSSH format; it signs the keys of secure sums, and the other parties
            verify the signature.
        roster: public keys of the other parties, by name; ``None`` accepts the keys that the coordinator
            passes on.
    """

    secret: bytes = field(default=b"", repr=False)
    identity: bytes = field(default=b"", repr=False)
    roster: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("secret", "identity"):
            if not isinstance(getattr(self, name), bytes):
                raise InvalidInput(f"{name} is not bytes", where="rules", mend="Give bytes.")
        lines = {} if self.roster is None else self.roster
        if not isinstance(lines, Mapping) or not all(
            isinstance(one, str) and " " in one for one in lines.values()
        ):
            raise InvalidInput(
                "the roster holds something else than public keys by name",
                where="rules",
                mend="Give for each other party the line that consilience party key prints.",
            )


@dataclass(frozen=True)
class PartyRules:
    """Rules of a party; a coordinator cannot change them.

    Attributes:
        trusts: packages from which the party accepts model classes, if models are exchanged; ``None`` accepts
            those of the libraries that consilience has learners for.
        sends_rows: whether the party may send a model that contains its training rows, such as nearest
            neighbours or a kernel machine. The default is false.
        density_ratios: precision of the density ratios that the party releases: ``"exact"``, the default, the
            quantisation settings of a ``Coarseness``, or ``"none"`` for no release.
        least_alpha: least weight of the private rows in a refit, in [0, 1]; a smaller requested weight is
            raised to it. It has no effect on models that take no row weights, nor on networks, which are not
            refitted.
        redact_errors: remove private values from error messages sent to the coordinator.
        public: rules for public rows.
        keys: keys of the party.

    Raises:
        InvalidInput: a value of another type or range.
    """

    trusts: Sequence[str] | None = None
    sends_rows: bool = False
    density_ratios: Literal["exact", "none"] | Coarseness = "exact"
    least_alpha: float = 0.0
    redact_errors: bool = False
    public: PublicRules = PublicRules()
    keys: Keys = Keys()

    def __post_init__(self) -> None:
        if isinstance(self.trusts, str):
            mend = f"Give a list: [{self.trusts!r}]."
            raise InvalidInput(f"trusts is {self.trusts!r}", where="rules", mend=mend)
        if self.trusts is not None:
            object.__setattr__(self, "trusts", tuple(map(str, self.trusts)))
        check_flag("sends_rows", self.sends_rows, where="rules")
        check_flag("redact_errors", self.redact_errors, where="rules")
        if not isinstance(self.public, PublicRules) or not isinstance(self.keys, Keys):
            raise InvalidInput(
                "public or keys is something else", where="rules", mend="Give PublicRules and Keys."
            )
        check_number("least_alpha", self.least_alpha, at_least=0, at_most=1, where="rules")
        told = self.density_ratios
        if not isinstance(told, Coarseness) and told not in ("exact", "none"):
            raise InvalidInput(
                f"density_ratios is {told!r}",
                where="rules",
                mend='Give "exact", "none" or a consilience.core.numerics.coarse_ratios.Coarseness.',
            )

    @property
    def ratios(self) -> Ratios:
        """Precision of the density ratios that the party releases."""
        return "coarse" if isinstance(self.density_ratios, Coarseness) else self.density_ratios

    @property
    def coarseness(self) -> Coarseness:
        """Quantisation settings of coarse density ratios; the default settings for exact ratios or none."""
        told = self.density_ratios
        return told if isinstance(told, Coarseness) else Coarseness()

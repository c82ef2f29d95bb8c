"""Sections ``[robustness]`` and ``[hostile]``: protection from malicious parties, and simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.guard import Guard, SecretLabels
from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.protocols.base import Protocol
from consilience.core.validation.arrays import Array
from consilience.lab.config.sections import Flag, Name, Section, Whole
from consilience.privacy.robust.hostile import Hostile


def mixed(public: Public, rows: Array, labels: Sequence[str]) -> tuple[Public, SecretLabels]:
    """Mix labelled rows among the public ones, in an order that does not reveal them.

    All rows are sorted by a digest of their content. The order therefore depends only on the rows, and
    carries no information about labels.

    Args:
        public: the public rows.
        rows: inputs of the labelled rows, of the same columns.
        labels: class of each.

    Returns:
        All rows, and the places and classes of the labelled ones.

    Raises:
        InvalidInput: rows of another form.
    """
    if rows.shape[1:] != public.X.shape[1:] or (rows.dtype == object) != (public.X.dtype == object):
        raise InvalidInput(
            f"rows of shape {rows.shape[1:]}, and public rows of shape {public.X.shape[1:]}",
            where="robustness.secret_labels",
        )
    X = np.concatenate([public.X, rows.astype(public.X.dtype)])
    order = np.array(sorted(range(len(X)), key=lambda i: _digest(X[i])))
    places = np.argsort(order)[len(public.X) :]
    everything = Public(X[order], public.schema).with_encoder(public.encoder)
    return everything, SecretLabels(places, tuple(labels))


def _digest(row: Any) -> bytes:
    """A digest of a row's numbers, or of its text."""
    data = str(row).encode() if isinstance(row, str) else np.ascontiguousarray(row).tobytes()
    return blake2b(data, digest_size=16).digest()


class RobustnessSpec(Section):
    """Protection of the teacher against parties with wrong answers.

    Attributes:
        most_rows: rows that one party may claim, beyond the bounds that always hold; ``"median"`` for 1.5
            times the parties' median claim.
        secret_labels: in an experiment, number of public rows with labels that only the coordinator sees;
            between sites, a file of labelled rows, which are mixed among the public ones.
        label: column of the labels in that file.
        tolerates: number of malicious parties to tolerate, f; without secret labels, every class needs at
            least 2 f + 1 holders.
        watch: whether parties whose density ratios the others contradict are excluded.
        let_in: parties never excluded.
        leave_out: parties always excluded.
    """

    most_rows: Whole | Literal["median"] | None = None
    secret_labels: Whole | Path | None = None
    label: str = "label"
    tolerates: Whole = Field(default=0, ge=0)
    watch: Flag = True
    let_in: tuple[Name, ...] = ()
    leave_out: tuple[Name, ...] = ()

    @property
    def unaided(self) -> int:
        """Malicious parties that answers alone must bear: 0 with secret labels."""
        return 0 if self.secret_labels else self.tolerates

    def applied(self, protocol: Protocol, secret: SecretLabels | None = None) -> Protocol:
        """Make the protocol with a guard before its rule; unchanged without robustness settings.

        Args:
            protocol: bound to its options.
            secret: the secret labels, if configured.

        Returns:
            The guarded protocol.

        Raises:
            InvalidInput: the protocol has no rule of predictions to guard.
        """
        if self == RobustnessSpec(tolerates=self.tolerates):
            return protocol
        rule = protocol.options.get("aggregate")
        if protocol.name == "private_sums" and self == RobustnessSpec(
            most_rows=self.most_rows, tolerates=self.tolerates
        ):
            return protocol.with_options(most_rows=self.most_rows)
        if not isinstance(rule, Aggregator):
            raise InvalidInput(
                f"protocol {protocol.name} takes no aggregator, and nothing of it is guarded",
                where="robustness",
                mend="Leave out [robustness], or take ensemble_distillation with an aggregator.",
            )
        if secret is not None and rule.kind == "regression":
            raise InvalidInput(
                "secret labels are of classes, and the parties predict values",
                where="robustness.secret_labels",
            )
        guard = Guard(self.most_rows, secret, self.watch, self.let_in, self.leave_out)
        return protocol.with_options(aggregate=replace(rule, screen=guard))

    def check_parties(self, parties: tuple[str, ...]) -> None:
        """Raise ``InvalidInput`` where it names a party that there is not."""
        for field, names in (("let_in", self.let_in), ("leave_out", self.leave_out)):
            if strangers := sorted(set(names) - set(parties)):
                raise InvalidInput(
                    f"no party is called {strangers[0]!r}", where=f"robustness.{field}"
                )


class HostileSpec(Section):
    """The malicious parties of a simulation: the fields of :class:`.Hostile`."""

    attack: str
    parties: Annotated[Whole, Field(ge=0)] | tuple[Name, ...] = 1
    after: Whole = Field(default=3, ge=1)

    @field_validator("attack")
    @classmethod
    def _known(cls, given: str) -> str:
        try:
            return Hostile(given).attack
        except InvalidInput as error:
            raise ValueError(f"{error.what}. {error.mend}") from error

    def hostile(self) -> Hostile:
        """Make the object that the simulated network takes."""
        return Hostile(self.attack, self.parties, self.after)

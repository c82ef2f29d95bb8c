"""View of a party for tasks and features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from consilience.core.messages.replies import Description
from consilience.core.messages.schema import Agreement, Public
from consilience.core.party.outbox import Outbox
from consilience.core.party.own_rows import OwnRows
from consilience.core.party.rules import PartyRules
from consilience.core.party.trainer import Trainer


class PartyView(Protocol):
    """Party at which a task runs."""

    @property
    def name(self) -> str:
        """Name of the party."""

    @property
    def rules(self) -> PartyRules:
        """Rules of the party, which no task can change."""

    @property
    def rows(self) -> OwnRows:
        """Private rows and test rows."""

    @property
    def outbox(self) -> Outbox:
        """Stages that process every reply."""

    @property
    def agreement(self) -> Agreement | None:
        """Agreement of the federation; ``None`` before the party has joined."""

    @property
    def trainer(self) -> Trainer:
        """Training and prediction of the model.

        Raises:
            RunFailed: the party has not joined.
        """

    @property
    def features(self) -> Mapping[str, Any]:
        """State of the party's features, by name."""

    def feature(self, name: str) -> Any:
        """Return the state of a feature at this party, made on the first call."""

    def describe(self) -> Description:
        """Describe the party, without its data."""

    def take_public(self, public: Public) -> None:
        """Take public rows that the coordinator sends.

        Raises:
            InvalidInput: the party takes none, or they do not look like its own rows.
        """

    def join(self, agreement: Agreement) -> tuple[str, ...]:
        """Join a federation with an untrained model, and return notes.

        Raises:
            InvalidInput: the agreement, the public rows or the model do not fit the party.
        """

    def evaluate(self) -> tuple[int, dict[str, float]]:
        """Evaluate the model on the test rows: their number, and metrics by name.

        Raises:
            InvalidInput: there are no test rows.
        """

    def save(self, label: str, *, keep: str) -> None:
        """Save the state under a label, and delete all others but one.

        Args:
            label: label of the state.
            keep: label of another state to keep.

        Raises:
            InvalidInput: the party has no folder for its states.
            RunFailed: the state cannot be written.
        """

    def restore(self, label: str) -> None:
        """Load the state of a label.

        Raises:
            InvalidInput: the party has no folder for its states.
            RunFailed: there is no such state, or it is damaged.
        """

    def write_state(self, folder: Path) -> None:
        """Write the state as files of an empty folder.

        Raises:
            OSError: a file cannot be written.
            RunFailed: the model cannot be written.
        """

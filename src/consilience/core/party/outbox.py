"""Stages that process every reply of a party before it is sent, and the state of features at a party.

Coordinators and tasks cannot bypass a stage: :func:`consilience.core.tasks.outgoing.answer` runs every task
through the party's :class:`Outbox`. Noise and privacy budgets are stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol


class OutgoingStage:
    """Base class of stages; the default methods pass every task and reply unchanged."""

    @property
    def discreet(self) -> bool:
        """Whether error texts stay at the party, and visible decisions do not depend on its rows."""
        return False

    def before(self, party: Any, tasks: Sequence[Any]) -> None:
        """Look at tasks before the first of them runs.

        Args:
            party: the party.
            tasks: of one request.

        Raises:
            KnowledgeRefused: they are not to run.
        """

    def outgoing(self, task: Any, agreement: Any, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, and give what may leave of it.

        Args:
            task: the task.
            agreement: the federation's agreement; ``None`` before the party has joined.
            run: computes the reply that reaches this stage.

        Raises:
            KnowledgeRefused: it may not leave.
        """
        return run()

    def note(self, kind: str, question: Sequence[str]) -> None:
        """Count a question about private rows without a privacy cost.

        Args:
            kind: kind of the question.
            question: parts of the question, which identify it.
        """


class Outbox:
    """The stages of a party.

    Attributes:
        stages: in the order in which a reply passes them.
    """

    def __init__(self) -> None:
        self.stages: list[OutgoingStage] = []
        self._withheld = ""

    def use(self, stage: OutgoingStage) -> None:
        """Add a stage behind the others, in the place of an earlier one of its type."""
        self.stages[:] = [one for one in self.stages if type(one) is not type(stage)] + [stage]

    @property
    def withheld(self) -> str:
        """Words of the last error that did not leave, for the party's own log."""
        return self._withheld

    def withhold(self, words: str) -> None:
        """Keep words of an error at the party; empty ones forget the last."""
        self._withheld = words

    @contextmanager
    def suppressing_errors(self) -> Iterator[None]:
        """Suppress errors of this block if a stage is discreet, because an error can reveal private rows."""
        try:
            yield
        except Exception as error:
            if not self.discreet:
                raise
            self.withhold(f"{type(error).__name__}: {error}")

    @property
    def discreet(self) -> bool:
        """Whether a stage is discreet."""
        return any(stage.discreet for stage in self.stages)

    def before(self, party: Any, tasks: Sequence[Any]) -> None:
        """Have every stage look at tasks before the first of them runs."""
        for stage in self.stages:
            stage.before(party, tasks)

    def outgoing(self, task: Any, agreement: Any, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, through all stages."""
        for stage in self.stages:
            run = partial(stage.outgoing, task, agreement, run)
        return run()

    def note(self, kind: str, question: Sequence[str]) -> None:
        """Have every stage take note of a question."""
        for stage in self.stages:
            stage.note(kind, question)


class PartyFeature(Protocol):
    """State of a feature at a party, saved in a file with the feature's name.

    A package registers a function of the party that makes it, under ``consilience.party_features``.
    """

    @property
    def in_checkpoints(self) -> bool:
        """Whether checkpoints of a run have it too, and not the party's own state alone."""

    def joined(self) -> None:
        """Start again, because the party has joined a federation."""

    def to_bytes(self) -> bytes:
        """Write the state; empty bytes for no state."""

    def read(self, data: bytes | None, *, only: bool) -> None:
        """Take up what :meth:`to_bytes` wrote.

        Args:
            data: the bytes; ``None`` if the state has none.
            only: whether to forget all later changes.

        Raises:
            ValueError: the bytes are damaged.
        """


class PrivateTraining(Protocol):
    """Training of a party's model on private rows in another way, once, as a budget of privacy allows it."""

    def costs(self) -> tuple[Any, ...]:
        """List the costs of the training, for the stages of the outbox.

        Raises:
            InvalidInput: the party's model cannot be trained so.
        """

    def fit(self) -> None:
        """Train the model, if it has not been."""

    def check_trained(self) -> None:
        """Raise ``KnowledgeRefused`` if the model was not trained yet."""

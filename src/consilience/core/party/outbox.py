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
        """Check tasks before the first of them runs.

        Args:
            party: the party.
            tasks: tasks of one request.

        Raises:
            KnowledgeRefused: the stage refuses the tasks.
        """

    def outgoing(self, task: Any, agreement: Any, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, and return the part of it to send.

        Args:
            task: the task.
            agreement: the federation's agreement; ``None`` before the party has joined.
            run: computes the input of this stage: the reply, processed by earlier stages.

        Returns:
            The reply to send.

        Raises:
            KnowledgeRefused: the stage refuses to send the reply.
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
        stages: the stages, in the order in which they process a reply.
    """

    def __init__(self) -> None:
        self.stages: list[OutgoingStage] = []
        self._withheld = ""

    def use(self, stage: OutgoingStage) -> None:
        """Append a stage; it replaces an earlier one of its type."""
        self.stages[:] = [one for one in self.stages if type(one) is not type(stage)] + [stage]

    @property
    def withheld(self) -> str:
        """Text of the last error omitted from a reply, for the party's own log."""
        return self._withheld

    def withhold(self, words: str) -> None:
        """Keep the text of an error at the party; an empty text removes the last one."""
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
        """Let every stage check tasks before the first of them runs."""
        for stage in self.stages:
            stage.before(party, tasks)

    def outgoing(self, task: Any, agreement: Any, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, and process it in all stages."""
        for stage in self.stages:
            run = partial(stage.outgoing, task, agreement, run)
        return run()

    def note(self, kind: str, question: Sequence[str]) -> None:
        """Pass a question about private rows to every stage."""
        for stage in self.stages:
            stage.note(kind, question)


class PartyFeature(Protocol):
    """State of a feature at a party, saved in a file with the feature's name.

    A package registers a function of the party that makes it, under ``consilience.party_features``.
    """

    @property
    def in_checkpoints(self) -> bool:
        """Whether checkpoints of a run contain the state, in addition to the party's saved state."""

    def joined(self) -> None:
        """Reset the state, because the party has joined a federation."""

    def to_bytes(self) -> bytes:
        """Serialise the state; empty bytes mean no state."""

    def read(self, data: bytes | None, *, only: bool) -> None:
        """Restore the state from the bytes of :meth:`to_bytes`.

        Args:
            data: the bytes; ``None`` if the state has none.
            only: whether to discard all later changes.

        Raises:
            ValueError: the bytes are damaged.
        """


class PrivateTraining(Protocol):
    """Replacement of the usual training on private rows; it trains once, within a privacy budget."""

    def costs(self) -> tuple[Any, ...]:
        """List the costs of the training, for the stages of the outbox.

        Raises:
            InvalidInput: this training does not support the party's model.
        """

    def fit(self) -> None:
        """Train the model; a trained model stays unchanged."""

    def check_trained(self) -> None:
        """Raise ``KnowledgeRefused`` if the model was not trained yet."""

"""Requests on the wire: tasks, followed by the headers of the stages that changed them.

A :class:`Stage` changes every request and every answer of a coordinator. It adds a :class:`Header`, which the
party reads: the header restores the tasks before they run, and changes the replies before they are sent.
Tasks and protocols do not see the change. Compression is such a stage
(:mod:`consilience.methods.compression`); :meth:`.NetworkView.wrap` puts one around a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.message import Brief, message
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import encode

MOST_HEADERS = 8
"""Largest number of headers of a request; each one costs the party work, and fewer suffice in practice."""


class Header(Brief, ABC):
    """Base class of messages after the tasks of a request, which describe a change by a stage.

    A party uses them to restore the tasks and to change its replies.
    """

    @abstractmethod
    def open(self, tasks: tuple[Any, ...], agreement: Agreement) -> tuple[Any, ...]:
        """Restore tasks at the party, before they run.

        Args:
            tasks: the tasks as received.
            agreement: the federation's agreement.

        Returns:
            The restored tasks.

        Raises:
            KnowledgeRefused: they cannot be read.
        """

    @abstractmethod
    def seal(
        self, tasks: tuple[Any, ...], replies: tuple[Any, ...], *, party: str, agreement: Agreement
    ) -> tuple[Any, ...]:
        """Change replies before the party sends them.

        Args:
            tasks: the result of :meth:`open`.
            replies: a reply to each task.
            party: name of the party.
            agreement: the federation's agreement.

        Returns:
            The changed replies.

        Raises:
            KnowledgeRefused: a reply would be refused on arrival.
        """


class Stage(ABC):
    """Change of every outgoing request and every incoming answer of a coordinator."""

    @abstractmethod
    def send(
        self, tasks: tuple[Any, ...], agreement: Agreement
    ) -> tuple[tuple[Any, ...], Header] | None:
        """Change the tasks of a request.

        Args:
            tasks: the tasks.
            agreement: the federation's agreement.

        Returns:
            The tasks in their changed form, and the header that describes the change; ``None`` for no change.
        """

    @abstractmethod
    def receive(
        self, party: str, tasks: tuple[Any, ...], replies: tuple[Any, ...], agreement: Agreement
    ) -> tuple[Any, ...]:
        """Restore a party's replies from its messages.

        Args:
            party: name of the party.
            tasks: the argument of :meth:`send`.
            replies: the messages.
            agreement: the federation's agreement.

        Returns:
            The restored replies.

        Raises:
            KnowledgeRefused: they cannot be read.
        """


@message
class AskedBefore(Brief):
    """Mark of a request that repeats an earlier one of its round, and needs a new reply.

    Attributes:
        times: number of earlier requests.
    """

    times: int


class StagedTasks(tuple[Any, ...]):
    """Tasks of a request in their changed form; the :attr:`headers` restore them.

    Attributes:
        headers: headers of the stages, in the order of the stages.
        passed: at the coordinator, each stage with its input; empty at a party.
    """

    headers: tuple[Header, ...]
    passed: tuple[tuple[Stage, tuple[Any, ...]], ...]

    def __new__(
        cls,
        tasks: Sequence[Any],
        headers: Sequence[Header],
        passed: Sequence[tuple[Stage, tuple[Any, ...]]] = (),
    ) -> StagedTasks:
        made = super().__new__(cls, tasks)
        made.headers, made.passed = tuple(headers), tuple(passed)
        return made

    @property
    def whole(self) -> tuple[Any, ...]:
        """The tasks before the first stage, at the coordinator."""
        return self.passed[0][1]

    def opened(self, agreement: Agreement) -> tuple[tuple[Any, ...], ...]:
        """Restore the tasks at the party.

        Args:
            agreement: the federation's agreement.

        Returns:
            The tasks before each stage, in the order of the headers; a party runs the first entry.
        """
        found: list[tuple[Any, ...]] = []
        tasks = tuple(self)
        for header in reversed(self.headers):
            tasks = header.open(tasks, agreement)
            found.insert(0, tasks)
        return tuple(found)

    def received(
        self, party: str, replies: tuple[Any, ...], agreement: Agreement
    ) -> tuple[Any, ...]:
        """Restore a party's replies from its messages, at the coordinator."""
        for stage, tasks in reversed(self.passed):
            replies = stage.receive(party, tasks, replies, agreement)
        return replies


class StagedReplies(tuple[Any, ...]):
    """Replies of a party, changed by the headers of the request.

    Attributes:
        whole: the replies before the change, one for each task; they are logged and not sent.
    """

    whole: tuple[Any, ...]

    def __new__(cls, sent: Sequence[Any], whole: tuple[Any, ...]) -> StagedReplies:
        made = super().__new__(cls, sent)
        made.whole = whole
        return made


def sent_through(
    stages: Sequence[Stage], tasks: tuple[Any, ...], agreement: Agreement
) -> tuple[Any, ...]:
    """Send the tasks of a request through stages, in order.

    Args:
        stages: the stages.
        tasks: the tasks.
        agreement: the federation's agreement.

    Returns:
        :class:`StagedTasks`; or the tasks themselves, if no stage changes them.
    """
    headers: list[Header] = []
    passed: list[tuple[Stage, tuple[Any, ...]]] = []
    sent = tasks
    for stage in stages:
        if (changed := stage.send(sent, agreement)) is not None:
            passed.append((stage, sent))
            sent, header = changed
            headers.append(header)
    return StagedTasks(sent, headers, passed) if passed else tasks


def open_request(messages: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tasks of a decoded request, as :class:`StagedTasks` if headers follow them.

    Raises:
        KnowledgeRefused: there are more than :data:`MOST_HEADERS`.
    """
    if messages and isinstance(messages[-1], AskedBefore):
        messages = messages[:-1]
    end = len(messages)
    while end and isinstance(messages[end - 1], Header):
        end -= 1
    if end == len(messages):
        return messages
    if len(messages) - end > MOST_HEADERS:
        raise KnowledgeRefused(f"{len(messages) - end} headers, of at most {MOST_HEADERS}")
    return StagedTasks(messages[:end], messages[end:])


def write_request(tasks: tuple[Any, ...], before: int = 0) -> bytes:
    """Encode tasks together with their headers.

    A party at its own machine answers a byte-identical repeated request with its earlier reply.

    Args:
        tasks: tasks of the request.
        before: number of equal requests earlier in the round.

    Returns:
        The encoded request.
    """
    messages = [*tasks, *tasks.headers] if isinstance(tasks, StagedTasks) else [*tasks]
    return encode([*messages, AskedBefore(times=before)] if before else messages)

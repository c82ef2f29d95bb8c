"""Tasks: requests of a coordinator to a party. Both ends have the code; the fields cross the wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from consilience.core.messages.base import Form, checked_forms
from consilience.core.messages.message import REGISTRY, TaskGroup, load_registered
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import Agreement
from consilience.core.party.view import PartyView
from consilience.core.tasks.requests import Stage

Exposure = Literal["nothing", "usual", "unmeasured", "noised", "rows"]
"""Exposure of single private rows by a reply; a task states it, and a site's limits use it.

``"nothing"``: the reply uses no private row; its class states the privacy cost ``"nothing"``. ``"usual"``:
the reply is sent if a party's limits allow its group. ``"unmeasured"``: the leakage about single rows was not
measured, and limits must name the task. ``"rows"``: rows can be reconstructed from the reply, which only
parties without limits send, in simulations. ``"noised"``: rows can be reconstructed without noise; a party
with a privacy budget sends the reply with noise, and other parties treat it as ``"rows"``.
"""

Lifecycle = Literal["describe", "public", "join", "restore", "round", "checkpoint", "measure"]
"""Place of a task in the life cycle of a run.

The first four are sent alone in their request: describe the party, take public rows, join, and restore a
saved state. ``"round"``: part of a round, counted as such. ``"checkpoint"`` and ``"measure"`` may arrive
after the next round has begun.
"""

Summed = Literal["predictions", "score", "class sums", "parameters"]
"""Kind of reply that a secure sum can add up."""


class Task(ABC):
    """A request to a party: a frozen message with fields for the wire and a ``run`` method at both ends.

    A feature defines its tasks in its own folder, and so does a protocol of another package. Every task
    states its traits in its class definition; a class without them is an error::

        @message
        class CountRows(
            Task,
            reply_type=RowCount,
            exchanges="predictions",
            protocol=None,
            static=True,
            exposure="usual",
            limits=(),
        ):
            round: int

            def run(self, party: PartyView) -> RowCount: ...

    Attributes:
        reply_type: message class of the reply of ``run``.
        exchanges: group of tasks that a party's limits must allow; ``None`` if they must name the task.
        protocol: name of the only protocol that uses the task; ``None`` if several do.
        static: whether the reply depends only on a party's data, so any round may request it.
        keeps_model: whether the party's model stays unchanged.
        deferrable: whether a party may delay it until its next request.
        bookkeeping: whether it belongs to the experiment, and its cost is not counted for the method.
        lossy: fields that compression may change, and their :data:`~consilience.core.messages.base.Form`.
        exposure: exposure of single private rows by the reply, one of :data:`Exposure`.
        limits: names of the party limits that bound the request or its reply, in addition to those of all
            requests.
        lifecycle: place in the life cycle of a run, one of :data:`Lifecycle`.
        summed: kind of reply that a secure sum can add up, one of :data:`Summed`; ``None`` for others.
        round: number of its round; 0 before the first.
    """

    reply_type: ClassVar[type[Any]]
    exchanges: ClassVar[TaskGroup | None]
    protocol: ClassVar[str | None]
    static: ClassVar[bool]
    keeps_model: ClassVar[bool]
    deferrable: ClassVar[bool]
    bookkeeping: ClassVar[bool]
    lossy: ClassVar[Mapping[str, Form]]
    exposure: ClassVar[Exposure]
    limits: ClassVar[tuple[str, ...]]
    lifecycle: ClassVar[Lifecycle]
    summed: ClassVar[Summed | None]
    round: int

    def __init_subclass__(
        cls,
        *,
        reply_type: type[Any],
        exchanges: TaskGroup | None,
        protocol: str | None,
        static: bool = False,
        keeps_model: bool = False,
        deferrable: bool = False,
        bookkeeping: bool = False,
        lossy: Mapping[str, Form] | None = None,
        exposure: Exposure,
        limits: tuple[str, ...],
        lifecycle: Lifecycle = "round",
        summed: Summed | None = None,
    ) -> None:
        if exchanges is not None and exchanges not in get_args(TaskGroup):
            raise TypeError(f"{cls.__name__}: no group of tasks is called {exchanges!r}")
        if exposure not in get_args(Exposure):
            raise TypeError(f"{cls.__name__}: no exposure of rows is called {exposure!r}")
        if lifecycle not in get_args(Lifecycle) or summed not in (None, *get_args(Summed)):
            raise TypeError(f"{cls.__name__}: lifecycle is {lifecycle!r}, and summed {summed!r}")
        if not isinstance(limits, tuple):
            raise TypeError(f"{cls.__name__}: limits is {limits!r}, and should be a tuple of names")
        cost = getattr(reply_type, "privacy_cost", None)
        if (exposure == "nothing") != (cost == "nothing"):
            raise TypeError(
                f"{cls.__name__}: its exposure is {exposure!r}, and {reply_type.__name__} states the privacy "
                f"cost {cost!r}: either both are 'nothing' or neither is"
            )
        # Requests outside of rounds are not counted by limits.rounds, so that they may tell nothing of rows.
        if lifecycle != "round" and cost != ("measured" if lifecycle == "measure" else "nothing"):
            raise TypeError(
                f"{cls.__name__}: its lifecycle is {lifecycle!r}, and {reply_type.__name__} states the "
                f"privacy cost {cost!r}"
            )
        cls.reply_type, cls.exchanges, cls.protocol = reply_type, exchanges, protocol
        cls.static, cls.keeps_model = static, keeps_model
        cls.deferrable, cls.bookkeeping = deferrable, bookkeeping
        cls.lossy, cls.exposure = checked_forms(cls, lossy), exposure
        cls.limits, cls.lifecycle, cls.summed = limits, lifecycle, summed
        super().__init_subclass__()

    @property
    def remembered(self) -> bool:
        """Whether later answers may depend on the task, so that the party's history records it."""
        return not self.keeps_model

    @property
    def limited(self) -> Mapping[str, float | None]:
        """Values of this request to compare with limits, by the name of the limit, one of :attr:`limits`."""
        return {}

    @property
    def row_free(self) -> bool:
        """Whether the reply to this request uses no private row."""
        return self.exposure == "nothing"

    @property
    def drawn(self) -> bool:
        """Whether an honest party replies with numbers drawn before all training."""
        return False

    @abstractmethod
    def run(self, party: PartyView) -> Any:
        """Run the task at the party, and make the reply."""

    def releases(self, party: PartyView) -> tuple[Any, ...]:
        """List the privacy costs of ``run`` for the stages of the party's outbox, as accountant releases.

        A spent budget refuses them before any task runs. A party with a budget sends a reply of the kind
        ``"charged"`` only if its task lists its cost here, or a mechanism adds noise to it.

        Args:
            party: the party.

        Returns:
            The releases; empty by default.
        """
        return ()


def task_types(
    *, registered: bool = True, allow: Collection[str] | None = None
) -> dict[str, type[Task]]:
    """List the types of task by their names on the wire.

    Args:
        registered: whether to include types of registered modules not imported so far; the default is true.
        allow: tasks and groups of tasks to import for this; ``None``, the default, for all.

    Returns:
        Task types by name.
    """
    if registered:
        load_registered(allow)
    return {name: kind for name, kind in REGISTRY.items() if issubclass(kind, Task)}


def tasks_of(lifecycle: Lifecycle) -> tuple[str, ...]:
    """List the names of the tasks with a given place in the life cycle.

    Args:
        lifecycle: place in the life cycle, one of :data:`Lifecycle`.

    Returns:
        Names of the tasks.
    """
    return tuple(name for name, kind in task_types().items() if kind.lifecycle == lifecycle)


def bookkeeping_tasks() -> tuple[str, ...]:
    """List the names of the tasks that belong to the experiment and not to a method."""
    return tuple(name for name, kind in task_types().items() if kind.bookkeeping)


class NetworkView(Protocol):
    """Network as a protocol sees it: names of the parties, their agreement, and methods to send tasks."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""

    def wrap(self, stage: Stage) -> NetworkView:
        """Return a view of the network through a stage, which changes every request and every answer."""

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have the parties run the tasks, in order, in one exchange; all parties unless ``to`` names some.

        Parties that fail, are late or give an invalid answer are excluded from the replies and recorded.

        Raises:
            QuorumLost: too few answered.
        """

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Have every named party run its individual task, in one exchange like :meth:`ask`."""

    def require(self, *tasks: Task) -> Replies:
        """Send tasks like :meth:`ask`, but require an answer of every party; used before any training.

        Raises:
            InvalidInput: a party's data or model cannot be used.
            RunFailed: a party failed for another reason.
        """


@dataclass(frozen=True)
class WrappedNetwork:
    """Base class of layers between a protocol and a network, with the same parties.

    Requests before the training, by :meth:`require`, reach the network unchanged.

    Attributes:
        network: the wrapped network.
    """

    network: NetworkView

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self.network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""
        return self.network.agreed

    def require(self, *tasks: Task) -> Replies:
        """Send tasks to all parties, and require an answer of each."""
        return self.network.require(*tasks)

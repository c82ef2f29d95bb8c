"""Tasks: questions of a coordinator to a party. Their fields cross the wire; their code is at both ends."""

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
"""Exposure of single private rows by a reply; a task states it, and a site allows by it.

``"nothing"``: no private row has part in it; the class of the reply states the privacy cost ``"nothing"``.
``"usual"``: it leaves where a party's limits allow its group. ``"unmeasured"``: nobody has measured what can
be told of single rows from it, and limits must name the task. ``"rows"``: rows can be rebuilt from it, and it
leaves parties without limits alone, in simulations. ``"noised"``: so they can, without noise: it leaves a
party with a budget, with noise, and else as ``"rows"`` does.
"""

Lifecycle = Literal["describe", "public", "join", "restore", "round", "checkpoint", "measure"]
"""Place of a task in the life of a run.

The first four come alone in their request: describe the party, take public rows, join, and restore a saved
state. ``"round"``: part of a round, which counts. ``"checkpoint"`` and ``"measure"`` may come when the next
round has begun.
"""

Summed = Literal["predictions", "score", "class sums", "parameters"]
"""Kind of reply that a secure sum can add up."""


class Task(ABC):
    """A question to a party: a frozen message whose fields cross the wire, with a ``run`` at both ends.

    A feature defines its tasks in its own folder, and so does a protocol of another package. Every task
    states its traits where its class is defined; a class that does not is an error::

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
        reply_type: the message that ``run`` replies with.
        exchanges: the group that a party's limits must allow for it; ``None`` where they must name the task.
        protocol: the protocol that alone uses it, by name; ``None`` where several do.
        static: whether its reply depends on a party's data alone, so that any round may ask for it.
        keeps_model: whether the party's model stays as it is.
        deferrable: whether a party may run it when it is next asked for something else.
        bookkeeping: whether it belongs to the experiment, so that it costs the method nothing.
        lossy: fields that compression may change, and their :data:`~consilience.core.messages.base.Form`.
        exposure: how much the reply tells of single private rows, of :data:`Exposure`.
        limits: names of the limits of a party that bound the request or its reply, beside those of all
            requests.
        lifecycle: place in the life of a run, of :data:`Lifecycle`.
        summed: kind of reply that a secure sum can add up, of :data:`Summed`; ``None`` for others.
        round: round that it belongs to; 0 before the first.
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
        """Whether a party's answers may depend on it later, so that its history records it."""
        return not self.keeps_model

    @property
    def limited(self) -> Mapping[str, float | None]:
        """Values of this request that limits bound, by the name of the limit, one of :attr:`limits`."""
        return {}

    @property
    def row_free(self) -> bool:
        """Whether no private row has part in the reply to this request."""
        return self.exposure == "nothing"

    @property
    def drawn(self) -> bool:
        """Whether an honest party replies with numbers drawn before all training."""
        return False

    @abstractmethod
    def run(self, party: PartyView) -> Any:
        """Run the task at the party, and make the reply."""

    def releases(self, party: PartyView) -> tuple[Any, ...]:
        """List what ``run`` costs the party, for the stages of its outbox: releases of a privacy accountant.

        A budget that is spent refuses them before anything runs. A reply whose kind is ``"charged"`` leaves a
        party with a budget only if its task lists its cost here, or a mechanism adds noise to it.
        """
        return ()


def task_types(
    *, registered: bool = True, allow: Collection[str] | None = None
) -> dict[str, type[Task]]:
    """List the kinds of task by their names on the wire.

    Args:
        registered: whether those of modules that nothing has imported yet are listed too.
        allow: tasks and groups of tasks to import for that; ``None``, the default, for all.
    """
    if registered:
        load_registered(allow)
    return {name: kind for name, kind in REGISTRY.items() if issubclass(kind, Task)}


def tasks_of(lifecycle: Lifecycle) -> tuple[str, ...]:
    """List the names of the tasks that have a place in the life cycle."""
    return tuple(name for name, kind in task_types().items() if kind.lifecycle == lifecycle)


def bookkeeping_tasks() -> tuple[str, ...]:
    """List the names of the tasks that belong to the experiment and not to a method."""
    return tuple(name for name, kind in task_types().items() if kind.bookkeeping)


class NetworkView(Protocol):
    """Network as a protocol sees it: the parties' names, their agreement, and ways to ask them."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""

    def wrap(self, stage: Stage) -> NetworkView:
        """See the parties through a stage, which changes every request and every answer."""

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have the parties run the tasks, in order, in one exchange; all parties unless ``to`` names some.

        Parties that fail, are late, or answer what was not asked are left out and recorded.

        Raises:
            QuorumLost: too few answered.
        """

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Have every party that is named run a task of its own, in one exchange like :meth:`ask`."""

    def require(self, *tasks: Task) -> Replies:
        """Ask like :meth:`ask`, where every party must answer before anything is trained.

        Raises:
            InvalidInput: a party's data or model cannot be used.
            RunFailed: a party failed for another reason.
        """


@dataclass(frozen=True)
class WrappedNetwork:
    """Base class of what stands between a protocol and a network, and has the same parties.

    Questions before the training, by :meth:`require`, reach the network unchanged.

    Attributes:
        network: the parties.
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
        """Ask all parties, and require an answer of each."""
        return self.network.require(*tasks)

"""The base class of networks: send tasks to parties, and raise an error if too few answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from consilience.core.errors import InvalidInput, QuorumLost, RunFailed
from consilience.core.learners import Model
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import Agreement
from consilience.core.networks.incoming import (
    Arrival,
    Delivery,
    Request,
    receive,
    task_names,
)
from consilience.core.party.party import Party
from consilience.core.tasks.base import Task, WrappedNetwork
from consilience.core.tasks.requests import Stage, sent_through, write_request


@dataclass
class Network(ABC):
    """Base class of networks between a protocol and the parties; a subclass implements :meth:`exchange`.

    Args:
        timeout: seconds from the request to a party's answer; ``None`` for no limit. A later answer is
            dropped. Parties in this process answer one after another, each with its own clock; parties
            elsewhere receive their requests at the same time.
        quorum: minimum of the queried parties that must answer: a number (int), or a share (float in (0, 1]).
    """

    timeout: float | None = field(default=None, kw_only=True)
    quorum: int | float = field(default=0.5, kw_only=True)
    agreement: Agreement | None = field(default=None, init=False)
    deliveries: list[Delivery] = field(default_factory=list, init=False)
    _asked: dict[tuple[str, int], int] = field(default_factory=dict, init=False, repr=False)
    """Number of requests to a party in a round, by the hash of the request."""
    _during: tuple[int, int] = field(default=(0, -1), init=False, repr=False)
    """The agreement and the round of these."""

    def __post_init__(self) -> None:
        share = isinstance(self.quorum, float) and not 0 < self.quorum <= 1
        if isinstance(self.quorum, bool) or share or self.quorum <= 0:
            raise InvalidInput(
                f"quorum is {self.quorum}", mend="Give a number of parties, or a share in (0, 1]."
            )
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInput(f"timeout is {self.timeout} seconds", mend="It must be positive.")

    @property
    @abstractmethod
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""

    @abstractmethod
    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Have parties run tasks in one exchange.

        Args:
            tasks: the tasks, in order.
            to: names of the parties.
            request: the bytes of the tasks.

        Returns:
            An entry for every name; a party that cannot be reached or is late has a :class:`Failure`.
        """

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Send different requests to different parties.

        By default this calls :meth:`exchange` once for each distinct request object, with all its parties.
        """
        alike: dict[int, list[str]] = {}
        for party, request in requests.items():
            alike.setdefault(id(request), []).append(party)
        arrivals: dict[str, Arrival] = {}
        for group in alike.values():
            request = requests[group[0]]
            arrivals.update(self.exchange(request.tasks, tuple(group), request.data))
        return arrivals

    def models(self) -> Mapping[str, Model]:
        """Return every party's current trained model, if the network can read the parties' models.

        A party without a trained model is missing from the mapping. On networks to other machines the models
        stay with the parties, and the mapping is empty.
        """
        return {}

    def admitting(self, parties: Sequence[Party]) -> AbstractContextManager[None]:
        """Take in further parties, unless the block fails: then all is as it was.

        Args:
            parties: the parties.

        Raises:
            InvalidInput: parties of this network cannot be added to, or there is one of that name.
        """
        raise InvalidInput(
            "this network takes in no further parties",
            where="network",
            mend="Take a LocalNetwork; a deployed federation takes in those that its configuration names.",
        )

    def close(self) -> None:
        """Release processes and connections."""

    @property
    def agreed(self) -> Agreement:
        """The agreement of the parties, once they have joined."""
        if self.agreement is None:
            raise InvalidInput("the parties have not joined yet", where="network")
        return self.agreement

    def wrap(self, stage: Stage) -> StagedNetwork:
        """See the parties through a stage; see :class:`consilience.core.tasks.base.NetworkView`."""
        return StagedNetwork(self, (stage,))

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have parties run tasks in one exchange; see :class:`consilience.core.tasks.base.NetworkView`."""
        return self.enough(self._ask(tasks, to), tasks)

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Send each party a different task; see :meth:`ask`."""
        return self.enough(self._ask_parties(_apart(tasks)), tuple(tasks.values()))

    def enough(self, replies: Replies, tasks: tuple[Task, ...]) -> Replies:
        """Give replies back, if enough parties answered.

        Args:
            replies: the accepted replies.
            tasks: the tasks of the request, for the error.

        Raises:
            QuorumLost: too few answered.
        """
        if len(replies) < self._needed(len(replies) + len(replies.missing)):
            raise QuorumLost(
                f"{len(replies)} of {len(replies) + len(replies.missing)} parties answered "
                f"{task_names(tasks)}, and the quorum is {self.quorum}",
                where=f"round {tasks[0].round}",
                mend=" ".join(
                    [
                        "Left out: "
                        + "; ".join(
                            f"{p} ({f.kind}: {f.reason})" for p, f in replies.missing.items()
                        )
                        + ".",
                        *dict.fromkeys(f.mend for f in replies.missing.values() if f.mend),
                    ]
                ),
            )
        return replies

    def gather(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Like :meth:`ask`, but without a quorum: for requests that the protocol can do without."""
        return self._ask(tasks, to)

    def require(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Like :meth:`ask`, but every party must answer.

        Raises:
            InvalidInput: a party's data or model cannot be used.
            RunFailed: a party failed for another reason.
        """
        replies = self._ask(tasks, to)
        for failure in sorted(
            replies.missing.values(), key=lambda failure: failure.kind != "invalid"
        ):
            kind = InvalidInput if failure.kind == "invalid" else RunFailed
            named = f"party {failure.party!r}"
            where = None if named in failure.reason else named
            raise kind(failure.reason, where=where, mend=failure.mend or None)
        return replies

    def leave_out(self, errors: Mapping[str, InvalidInput]) -> None:
        """Go on without parties that do not fit the others.

        Args:
            errors: party to the reason.

        Raises:
            InvalidInput: one does not fit, and this network is for all parties or none.
        """
        for error in errors.values():
            raise error

    def _ask(
        self,
        tasks: tuple[Task, ...],
        to: Sequence[str] | None,
        stages: tuple[Stage, ...] = (),
    ) -> Replies:
        """The accepted replies of some parties to the same tasks; of all parties by default."""
        asked = self.parties if to is None else tuple(sorted(set(to)))
        return self._ask_parties(dict.fromkeys(asked, tasks), stages)

    def _ask_parties(
        self, asked: Mapping[str, tuple[Task, ...]], stages: tuple[Stage, ...] = ()
    ) -> Replies:
        """The accepted replies of parties, each to its tasks, through stages."""
        self._check_known(asked)
        if stages:
            alike = {id(tasks): tasks for tasks in asked.values()}
            sent = {key: sent_through(stages, tasks, self.agreed) for key, tasks in alike.items()}
            asked = {party: sent[id(tasks)] for party, tasks in asked.items()}
        distinct = {id(tasks): tasks for tasks in asked.values()}  # each is encoded once
        first = {key: Request(tasks, write_request(tasks)) for key, tasks in distinct.items()}
        requests = {party: first[id(tasks)] for party, tasks in asked.items()}
        requests = self._with_repeats(requests)
        if len(set(requests.values())) == 1:
            request = next(iter(requests.values()))
            arrivals = self.exchange(request.tasks, tuple(requests), request.data)
        else:
            arrivals = self.exchange_each(requests)
        return self._receive(requests, arrivals)

    def _with_repeats(self, requests: dict[str, Request]) -> dict[str, Request]:
        """The requests, those marked that their parties had in this round; of them a new reply is wanted."""
        made: dict[tuple[int, int], Request] = {}
        for party, request in requests.items():
            if request.bookkeeping:
                continue
            during = (id(self.agreement), request.round)
            if during != self._during:
                self._during = during
                self._asked.clear()
            asked = (party, hash(request.data))
            before = self._asked.get(asked, 0)
            self._asked[asked] = before + 1
            if before:
                key = (id(request), before)
                if key not in made:
                    made[key] = Request(request.tasks, write_request(request.tasks, before))
                requests[party] = made[key]
        return requests

    def _check_known(self, asked: Iterable[str]) -> None:
        if strangers := set(asked).difference(self.parties):
            raise InvalidInput(f"no party is called {min(strangers)!r}", where="network")

    def _receive(self, requests: Mapping[str, Request], arrivals: Mapping[str, Arrival]) -> Replies:
        """Validate arrived replies, return the valid ones, and record the exchange in :attr:`deliveries`."""
        replies, deliveries = receive(
            requests, arrivals, agreement=self.agreement, timeout=self.timeout
        )
        self.deliveries.extend(deliveries)
        return replies

    def _needed(self, asked: int) -> int:
        """Return the number of queried parties that must answer."""
        if isinstance(self.quorum, float):
            return max(1, math.ceil(self.quorum * asked))
        return min(self.quorum, asked)


@dataclass(frozen=True)
class StagedNetwork(WrappedNetwork):
    """A network, seen through stages.

    Attributes:
        network: the parties.
        stages: what every request and every answer passes, in the order of the requests.
    """

    network: Network
    stages: tuple[Stage, ...]

    def wrap(self, stage: Stage) -> StagedNetwork:
        """See the parties through one more stage, which requests pass first."""
        return StagedNetwork(self.network, (stage, *self.stages))

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Ask parties like :meth:`Network.ask`, through the stages."""
        return self.network.enough(self.network._ask(tasks, to, self.stages), tasks)

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Ask parties like :meth:`Network.ask_each`, through the stages."""
        replies = self.network._ask_parties(_apart(tasks), self.stages)
        return self.network.enough(replies, tuple(tasks.values()))


def _apart(tasks: Mapping[str, Task]) -> dict[str, tuple[Task, ...]]:
    """Give each party, sorted by name, its task as a request; equal tasks (one object) as one request."""
    alike = {id(task): (task,) for task in tasks.values()}
    return {party: alike[id(tasks[party])] for party in sorted(tasks)}


def check_distinct(names: Iterable[str]) -> None:
    """Raise ``InvalidInput`` if there are no names, or if a name occurs twice."""
    counted = Counter(names)
    if not counted:
        raise InvalidInput("there are no parties", where="federation")
    if twice := sorted(name for name, count in counted.items() if count > 1):
        raise InvalidInput(f"two parties are called {twice[0]!r}", where="federation")

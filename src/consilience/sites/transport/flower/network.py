"""Parties behind Flower: one SuperNode each, asked through Flower's Message API.

The coordinator is a Flower ServerApp (:mod:`consilience.sites.transport.flower.server_app`) that makes a
:class:`FlowerNetwork` of its grid; every party is a ClientApp
(:mod:`consilience.sites.transport.flower.client_app`). The bytes that pass between them are those of
:mod:`consilience.core.messages.wire`, which Flower only carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.messages.replies import Description, Failure, Replies
from consilience.core.messages.wire import encode
from consilience.core.networks.base import Network
from consilience.core.networks.incoming import (
    Arrival,
    Delivery,
    Request,
    decode_reply,
    timed_out,
)
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Describe
from consilience.sites.transport.flower.internals import (
    NODE_UNAVAILABLE,
    PATIENCE,
    flwr,
    unwrap,
    wrap,
)
from consilience.sites.transport.flower.late_answers import LateAnswers, late_delivery, number_of

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

_GONE = "its node is not connected"
_GREETING = encode([Describe()])

Address = tuple[int, str]
"""A node and since when it is connected: one that was started anew has forgotten what it was sent."""


@dataclass(frozen=True)
class Waits:
    """Times that a coordinator waits for nodes, and number of its tries.

    Attributes:
        absence: seconds that a party is waited for after its node was last seen.
        tries: times that a request is sent to a node that Flower says has failed with it.
        pause: seconds before it is sent there again.
        poll: seconds between looks at what has arrived.
    """

    absence: float = 60.0
    tries: int = 3
    pause: float = 5.0
    poll: float = 0.5


@dataclass
class FlowerNetwork(Network):
    """Parties on Flower's SuperNodes.

    At the start it waits for the nodes. Where they were registered under their parties' names, these say
    which is which, and their keys vouch for it; others are asked which party they are. A party whose node
    was started anew while it worked is sent the same bytes again: a
    :class:`~consilience.sites.party.PartySite` then goes on from its last answer, and does nothing twice. So
    is one that comes back with another node. One that is not connected is waited for no longer than
    ``waits.absence``, and asked again once it is.

    Args:
        grid: what Flower hands to a ServerApp.
        nodes: how many nodes to wait for, all that are connected by then take part; or the names that the
            parties' nodes are registered under.
        wait: seconds to wait for them.
        least: how many must be connected when that time is over; by default all of them. Where ``nodes`` are
            names, the others may come later.
        federation: its name, which every request carries.
        recorded: the last round that is recorded, which every request carries: a party keeps the state in
            which it first hears of it. -1 where there is none.
        waits: times to wait within an exchange, and tries.
        share: share of the parties asked after whose answers an exchange is over, once they have joined; the
            others are late. What they answer within ``timeout`` to a question for predictions is in
            :attr:`.Replies.late` of the next one.
        grace: seconds that the others have then.
        waiting: told the tasks that parties were sent and the parties whose answers are awaited, whenever
            these are others.
        timeout: seconds an exchange may take; :data:`PATIENCE` when it is ``None``, as a node that has
            died never answers. Nodes look for messages every 3 s: give it more than that.

    Raises:
        InvalidInput: two nodes are of one name, or a party's data cannot be used.
        RunFailed: too few nodes connected, or one does not say which party it is.
        MissingExtra: flwr is not installed.
    """

    grid: Grid
    nodes: int | tuple[str, ...] = field(kw_only=True)
    wait: float = field(default=60.0, kw_only=True)
    least: int | None = field(default=None, kw_only=True)
    federation: str = field(default="", kw_only=True)
    recorded: int = field(default=-1, kw_only=True)
    waits: Waits = field(default=Waits(), kw_only=True)
    share: float = field(default=1.0, kw_only=True)
    grace: float = field(default=0.0, kw_only=True)
    waiting: Callable[[tuple[Task, ...], Sequence[str]], None] = field(
        default=lambda tasks, parties: None, kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._introduced: dict[str, Arrival] = {}
        self._online: dict[int, Address] = {}
        self._seen: dict[str, float] = {}
        self._strangers: set[int] = set()
        self._unanswered: dict[str, tuple[Delivery, tuple[Task, ...]]] = {}
        self._late = LateAnswers()
        self._needed_too: frozenset[str] = frozenset()
        self._nodes: dict[str, int | None] = {}
        """The node that each party was last seen at."""
        if isinstance(self.nodes, int):
            self._identify(self.nodes)
        else:
            self._nodes = dict.fromkeys(sorted(self.nodes))
            self._wait(len(self._nodes), lambda: [n for n in self._nodes if self._address(n)])

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(self._nodes)

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        return self.exchange_each(dict.fromkeys(to, Request(tasks, request)))

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Ask every party its own question, all of them at once."""
        met, self._introduced = self._introduced, {}
        greeted = all(one.tasks[0].lifecycle == "describe" for one in requests.values())
        if greeted and met.keys() >= requests.keys():
            return {name: met[name] for name in requests}
        self._look()
        if not all(map(self._address, requests)):
            self._identify_new()
        return self._send(requests, self._address)

    @contextmanager
    def not_without(self, parties: Collection[str]) -> Iterator[None]:
        """Have no exchange be over without these, whatever the share, as long as their time lasts."""
        self._needed_too = frozenset(parties)
        try:
            yield
        finally:
            self._needed_too = frozenset()

    def forget(self, party: str) -> None:
        """Let go of late answers of a party, also of those still to come."""
        self._late.forget(party)
        late = self._unanswered
        self._unanswered = {key: late[key] for key in late if late[key][0].party != party}

    # --- who is where -----------------------------------------------------------------------------

    def _look(self) -> None:
        """See which nodes are connected, and which parties they are by their names."""
        self._online, now = {}, perf_counter()
        for node in self.grid.get_nodes():
            self._online[node.node_id] = (node.node_id, node.last_activated_at)
            if node.name in self._nodes:
                self._nodes[node.name] = node.node_id
        for name, place in self._nodes.items():
            if place in self._online:
                self._seen[name] = now

    def _address(self, party: str) -> Address | None:
        place = self._nodes[party]
        return None if place is None else self._online.get(place)

    def _wait(self, number: int, connected: Callable[[], list[Any]]) -> None:
        start = perf_counter()
        self._look()
        while len(found := connected()) < number:
            if perf_counter() - start > self.wait:
                if self.least is not None and len(found) >= self.least:
                    return
                missing = sorted(set(self._nodes).difference(found))
                raise RunFailed(
                    f"{len(found)} of {number} nodes connected within {self.wait:g} s"
                    + (f"; missing: {', '.join(missing)}" if missing else ""),
                    where="network",
                    mend="Start a SuperNode for every party, with this SuperLink's address.",
                )
            sleep(min(1.0, self.wait))
            self._look()

    def _identify(self, number: int) -> None:
        """Ask every node which party it is.

        The first question of a federation is the same; it is answered by what was said here.
        """
        self._wait(number, lambda: sorted(self._online))
        nodes: dict[str, int | None] = {}
        for node, arrival in self._introductions(sorted(self._online)).items():
            outcome, label = arrival.outcome, f"node {node}"
            if isinstance(outcome, Failure):
                kind = InvalidInput if outcome.kind == "invalid" else RunFailed
                raise kind(outcome.reason, where=label, mend=outcome.mend or None)
            name = _party_of(arrival)
            if name is None:
                raise RunFailed("did not say which party it is", where=label)
            if name in nodes:
                raise InvalidInput(
                    f"two nodes say they are party {name!r}",
                    where="network",
                    mend="Give every SuperNode its own party, or stop the one left from before.",
                )
            nodes[name], self._introduced[name] = node, arrival
        self._nodes = dict(sorted(nodes.items()))

    def _identify_new(self) -> None:
        """Ask nodes without a name that are new whether they are a party that is gone."""
        if not isinstance(self.nodes, int):
            return
        new = self._online.keys() - set(self._nodes.values()) - self._strangers
        for node, arrival in self._introductions(sorted(new)).items():
            name = _party_of(arrival)
            if name in self._nodes and self._address(name) is None:
                self._nodes[name] = node
            else:  # it is not asked a second time
                self._strangers.add(node)

    def _introductions(self, nodes: list[int]) -> dict[int, Arrival]:
        """The answers of nodes to the question which party they are."""
        labels = {f"node {node}": node for node in nodes}
        greeting = dict.fromkeys(labels, Request((), _GREETING))
        said = self._send(greeting, lambda label: self._online.get(labels[label]))
        return {labels[label]: arrival for label, arrival in said.items()}

    # --- sending ----------------------------------------------------------------------------------

    def _send(
        self, requests: Mapping[str, Request], address: Callable[[str], Address | None]
    ) -> dict[str, Arrival]:
        """Send requests, and gather what comes back until time is up.

        Args:
            requests: by the names of the parties; or, without tasks, by labels of nodes that are asked which
                party they are.
            address: the node of each, ``None`` while it is not connected.
        """
        to, tasks = tuple(requests), next((one.tasks for one in requests.values()), ())
        patience = PATIENCE if self.timeout is None else self.timeout
        waits, start = self.waits, perf_counter()
        arrived: dict[str, Arrival] = {}
        failed: dict[str, list[Arrival]] = {name: [] for name in to}
        sent: dict[str, Address] = {}
        asked: dict[str, str] = {}
        again_at: dict[str, float] = {}
        awaited: list[str] = []
        while missing := [name for name in to if name not in arrived]:
            self._look()
            now = perf_counter() - start
            if now >= patience or self._is_over(requests, arrived, now):
                break
            if tasks and missing != awaited:
                awaited = missing
                self.waiting(tasks, awaited)
            for name in missing:
                node = address(name)
                if node is None and now + start - self._seen.get(name, -math.inf) > waits.absence:
                    gone = Failure(party=name, reason=_GONE)
                    arrived[name] = (failed[name] or [Arrival(gone, 0, now)])[-1]
                elif node and node != sent.get(name) and now >= again_at.get(name, 0.0):
                    round, to_whom = (tasks[0].round, name) if tasks else (0, "")
                    data = requests[name].data
                    message = self._message(data, node[0], patience - now, round, to_whom)
                    for identity in self.grid.push_messages([message]):
                        if identity is not None:  # else Flower did not take it: it is tried again
                            asked[identity], sent[name] = name, node
            for identity, reply in self._pulled(asked).items():
                name, seconds = asked.pop(identity), min(perf_counter() - start, patience)
                arrival = _arrival(name, reply, seconds)
                if name in arrived:
                    late = late_delivery(name, requests[name])
                    self.deliveries.append(
                        late._replace(bytes_up=arrival.bytes_up, detail="a second answer: dropped")
                    )
                elif reply.has_error() and len(failed[name]) + 1 < waits.tries:
                    failed[name].append(arrival)
                    sent.pop(name, None)
                    again_at[name] = seconds + waits.pause
                else:
                    arrived[name] = arrival
            if len(arrived) < len(to):
                sleep(waits.poll)
        self._unanswered |= {
            identity: (late_delivery(name, requests[name]), requests[name].tasks)
            for identity, name in asked.items()
        }
        waited = min(perf_counter() - start, patience)
        for name in to:
            if name not in arrived:
                silent = Arrival(timed_out(name, waited), 0, waited)
                arrived[name] = (failed[name] or [silent])[-1]
        return {name: arrived[name] for name in to}

    def _is_over(
        self, requests: Mapping[str, Request], arrived: Mapping[str, Arrival], now: float
    ) -> bool:
        """Tell whether enough have answered, and the others have had their time.

        Args:
            requests: what parties were asked.
            arrived: party to what came back.
            now: seconds since they were asked.
        """
        if (self._needed_too & requests.keys()) - arrived.keys():
            return False
        came = [one for one in arrived.values() if not isinstance(one.outcome, Failure)]
        said, enough = sorted(one.seconds for one in came), number_of(self.share, len(requests))
        joined = self.agreement is not None and all(one.tasks for one in requests.values())
        return joined and enough <= len(said) and now >= said[enough - 1] + self.grace

    def _receive(self, requests: Mapping[str, Request], arrivals: Mapping[str, Arrival]) -> Replies:
        return self._late.added_to(super()._receive(requests, arrivals), requests)

    def _message(self, request: bytes, node: int, seconds: float, round: int, to: str) -> Message:
        app = flwr()
        # Flower forgets a message after its time to live: a node that is back too late does not run
        # what nobody waits for.
        message: Message = app.Message(
            wrap(request, federation=self.federation, to=to, recorded=self.recorded),
            node,
            app.MessageType.QUERY,
            ttl=max(seconds, 1.0),
            group_id=str(round),
        )
        return message

    def _pulled(self, asked: Mapping[str, str]) -> dict[str, Message]:
        """The first answer to each message that is waited for; the others go into the ledger."""
        found: dict[str, Message] = {}
        identities = [*asked, *self._unanswered]
        for reply in self.grid.pull_messages(identities) if identities else ():
            identity = reply.metadata.reply_to_message_id
            if identity in asked and identity not in found:
                found[identity] = reply
            elif (waited := self._unanswered.pop(identity, None)) is not None:
                if not reply.has_error():  # that its time is over is known
                    late, tasks = waited
                    arrival = _arrival(late.party, reply, 0.0)
                    if self._late.keep(late, tasks, arrival, self.agreement):
                        late = late._replace(left="predictions", detail="arrived after its time")
                    self.deliveries.append(late._replace(bytes_up=arrival.bytes_up))
            else:
                self.deliveries.append(_unasked(reply))
        return found


def _party_of(arrival: Arrival) -> str | None:
    """The name of the party that a node says it is."""
    outcome = arrival.outcome
    if isinstance(outcome, Failure) or len(outcome) != 1:
        return None
    return outcome[0].party if isinstance(outcome[0], Description) else None


def _unasked(reply: Message) -> Delivery:
    return Delivery(
        party=f"node {reply.metadata.src_node_id}",
        round=0,
        tasks="",
        status="refused",
        left="",
        bytes_down=0,
        bytes_up=0,
        seconds=0.0,
        detail="an answer to nothing that was asked: dropped",
    )


def _arrival(name: str, reply: Message, seconds: float) -> Arrival:
    if reply.has_error():
        code = reply.error.code
        reason = _GONE if code == NODE_UNAVAILABLE else f"Flower error {code}: {reply.error.reason}"
        return Arrival(Failure(party=name, reason=reason), 0, seconds)
    try:
        data = unwrap(reply)
    except KnowledgeRefused as refusal:
        return Arrival(Failure(party=name, reason=refusal.what, kind="refused"), 0, seconds)
    return decode_reply(name, data, seconds)

"""Parties connected through Flower: one SuperNode each, with requests over Flower's Message API.

The coordinator is a Flower ServerApp (:mod:`consilience.sites.transport.flower.server_app`) that makes a
:class:`FlowerNetwork` of its grid; every party is a ClientApp
(:mod:`consilience.sites.transport.flower.client_app`). They exchange the bytes of
:mod:`consilience.core.messages.wire`, which Flower only transports.
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
    """Times that a coordinator waits for nodes, and its number of attempts.

    Attributes:
        absence: seconds to wait for a party after its node was last seen.
        tries: maximum number of times that a request is sent to a node if Flower reports an error.
        pause: seconds before it is sent again.
        poll: seconds between checks for arrived answers.
    """

    absence: float = 60.0
    tries: int = 3
    pause: float = 5.0
    poll: float = 0.5


@dataclass
class FlowerNetwork(Network):
    """Parties on Flower's SuperNodes.

    At the start, the network waits for the nodes. If they were registered under their parties' names, the
    names identify the parties, authenticated by their keys; other nodes are queried for their party. If a
    party's node was restarted during a request, or the party returns with another node, the same bytes are
    sent again: a :class:`~consilience.sites.party.PartySite` then continues from its last answer and repeats
    no work. The network waits for a disconnected party at most ``waits.absence``, and includes it again once
    it is connected.

    Args:
        grid: the grid that Flower passes to a ServerApp.
        nodes: number of nodes to wait for, after which all connected ones take part; or the names under
            which the parties' nodes are registered.
        wait: seconds to wait for them.
        least: minimum number of connected nodes after this time; by default all of them. If ``nodes`` are
            names, the others may come later.
        federation: its name, part of every request.
        recorded: last recorded round, part of every request: a party keeps the state in which it first
            receives this number. -1 if there is none.
        waits: times to wait within an exchange, and number of attempts.
        share: share of the queried parties that must answer before an exchange ends, once they have joined;
            the others are late. If they answer a request for predictions within ``timeout``, their answers
            are in :attr:`.Replies.late` of the next one.
        grace: further seconds for the others after this share has answered.
        waiting: called with the sent tasks and the parties whose replies are awaited, at every change.
        timeout: maximum seconds of an exchange; ``None`` for :data:`PATIENCE`, because a dead node never
            answers. Nodes look for messages every 3 s, so choose a longer time.

    Raises:
        InvalidInput: two nodes have the same name, or a party's data cannot be used.
        RunFailed: too few nodes connected, or one does not identify its party.
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
        """Query every node for its party.

        The first request of a federation is the same; it is answered from the replies received here.
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
        """Query new nodes without a registered name, and assign those of a disconnected party to it."""
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
        """Send requests, and collect the answers until time is up.

        Args:
            requests: requests by name of the party; or, without tasks, by label of a node to be identified.
            address: returns the node of each name or label, ``None`` while it is disconnected.

        Returns:
            The arrival of each name or label.
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
        """Return true if enough parties have answered, and the grace time of the others is over.

        Args:
            requests: party to its request.
            arrived: party to its arrival.
            now: seconds since the requests were sent.
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
        """Return the first answer to each awaited message.

        Further answers are recorded in the ledger, except for errors of exchanges already over.
        """
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
    """Return the name of the party in a node's description; ``None`` for another reply."""
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

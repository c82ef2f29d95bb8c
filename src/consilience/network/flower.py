"""Parties behind Flower: one SuperNode each, asked through Flower's Message API.

The coordinator is a Flower ServerApp that makes a :class:`FlowerNetwork` of its grid; every party is a
ClientApp made by :func:`party_app`. What passes between them are the bytes of
:mod:`consilience.wire`, which Flower only carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from consilience.errors import (
    ConsilienceError,
    InvalidInput,
    KnowledgeRefused,
    MissingExtra,
    RunFailed,
)
from consilience.knowledge import Description, Failure
from consilience.network.base import Arrival, Network, arrival_of, timed_out
from consilience.party import Party
from consilience.site import EVERYTHING, Limits, PartySite, failure_of
from consilience.tasks import Describe, Task
from consilience.wire import encode

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

PATIENCE = 600.0
"""Seconds an exchange may take where the network was given no ``timeout``."""

_KEY = "consilience"
_GREETING = encode([Describe()])


@dataclass
class FlowerNetwork(Network):
    """Parties on Flower's SuperNodes.

    At the start it waits for the nodes and asks each which party it is. A node that is replaced by one
    with another id afterwards counts as a party that does not answer.

    Args:
        grid: what Flower hands to a ServerApp.
        nodes: how many nodes to wait for; all that are connected by then take part.
        wait: seconds to wait for them.
        timeout: seconds an exchange may take; :data:`PATIENCE` when it is ``None``, as a node that has
            died never answers. Flower looks for answers every 3 s: give it more than that.

    Raises:
        InvalidInput: two nodes are of one name, or a party's data cannot be used.
        RunFailed: too few nodes connected, or one does not say which party it is.
        MissingExtra: flwr is not installed.
    """

    grid: Grid
    nodes: int = field(kw_only=True)
    wait: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._met: dict[str, Arrival] = {}
        self._nodes = self._meet()

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(self._nodes)

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Send to all nodes at once and gather what answers there are when time is up."""
        met, self._met = self._met, {}
        if request == _GREETING and met.keys() >= set(to):
            return {name: met[name] for name in to}
        return self._send({name: self._nodes[name] for name in to}, request, tasks[0].round)

    def _meet(self) -> dict[str, int]:
        """Which node is which party, by party name.

        The first question of a federation is the same; it is answered by what was said here.
        """
        start = perf_counter()
        while len(found := sorted(self.grid.get_node_ids())) < self.nodes:
            if perf_counter() - start > self.wait:
                raise RunFailed(
                    f"{len(found)} of {self.nodes} nodes connected within {self.wait:g} s",
                    where="network",
                    mend="Start a SuperNode for every party, with this SuperLink's address.",
                )
            sleep(min(1.0, self.wait))
        arrivals = self._send({f"node {node}": node for node in found}, _GREETING, 0)
        nodes: dict[str, int] = {}
        for node, (label, arrival) in zip(found, arrivals.items(), strict=True):
            outcome = arrival.outcome
            if isinstance(outcome, Failure):
                kind = InvalidInput if outcome.kind == "invalid" else RunFailed
                raise kind(outcome.reason, where=label, mend=outcome.mend or None)
            if len(outcome) != 1 or not isinstance(outcome[0], Description):
                raise RunFailed("did not say which party it is", where=label)
            name = outcome[0].party
            if name in nodes:
                raise InvalidInput(
                    f"two nodes say they are party {name!r}",
                    where="network",
                    mend="Give every SuperNode its own party, or stop the one left from before.",
                )
            nodes[name], self._met[name] = node, arrival
        return dict(sorted(nodes.items()))

    def _send(self, to: Mapping[str, int], request: bytes, round: int) -> dict[str, Arrival]:
        """One message to each node, and what came back, under the names of ``to`` in their order."""
        app = _flwr()
        patience = PATIENCE if self.timeout is None else self.timeout
        messages = [
            # Flower forgets a message after its time to live: a node that is back too late does not
            # run what nobody waits for.
            app.Message(
                _wrapped(request), node, app.MessageType.QUERY, ttl=patience, group_id=str(round)
            )
            for node in to.values()
        ]
        start = perf_counter()
        replies = self.grid.send_and_receive(messages, timeout=patience)
        taken = perf_counter() - start
        # Which reply arrived when is not known; all that are here were in time.
        seconds = min(taken, patience)
        # Names go by the message that is answered: the source of an error is not the node that failed.
        names = {
            message.metadata.message_id: name for message, name in zip(messages, to, strict=True)
        }
        arrived: dict[str, Arrival] = {}
        for reply in replies:
            name = names.get(reply.metadata.reply_to_message_id)
            if name is not None and name not in arrived:
                arrived[name] = _arrival(name, reply, seconds)
        for name in to:
            if name not in arrived:
                gone = Failure(party=name, reason="its node is no longer connected")
                arrived[name] = Arrival(
                    timed_out(name, patience) if taken >= patience else gone, 0, seconds
                )
        return {name: arrived[name] for name in to}


def party_app(
    make_party: Callable[[Context], Party], *, threads: int = 1, limits: Limits = EVERYTHING
) -> ClientApp:
    """The Flower ClientApp of a party.

    Flower runs every message in a new process and keeps no state over a restart, so the party is made
    anew each time and its state and audit log live on its disk, in ``party.home``
    (:class:`~consilience.site.PartySite`). The state is written before the answer leaves.

    Args:
        make_party: called with the node's context (its ``node_config`` says which party it is) for every
            message; gives the party with ``public`` and ``home`` set. A protocol with tasks of its own
            must be imported where this function is.
        threads: numerical threads while the party works.
        limits: what the party lets itself be asked.

    Raises:
        MissingExtra: flwr is not installed.

    Example:
        >>> def make_party(context):
        ...     party = Party(context.node_config["party"], LogisticRegression(), X, y)
        ...     party.public, party.home = Public(X_public), Path(context.node_config["home"])
        ...     return party
        >>> app = party_app(make_party)  # doctest: +SKIP
    """
    app = _flwr()
    from flwr.clientapp import ClientApp

    client = ClientApp()

    @client.query()
    def respond(message: Message, context: Context) -> Message:
        # The name is there to report by when the party itself cannot be made.
        name = str(context.node_config.get("party", f"node {context.node_id}"))
        reply = _answered(name, lambda: make_party(context), message, threads, limits)
        answered: Message = app.Message(_wrapped(reply), reply_to=message)
        return answered

    return client


def _answered(
    name: str, make_party: Callable[[], Party], message: Message, threads: int, limits: Limits
) -> bytes:
    """What the party's site answers; a failure where there is no site to ask."""
    try:
        request = _bytes(message)
        party = make_party()
        if party.home is None:
            raise InvalidInput("it has no folder to keep its state in", where=f"party {name!r}")
        with PartySite(
            lambda: party, party.home, name=name, limits=limits, threads=threads
        ) as site:
            return site.answer(request)
    except ConsilienceError as error:
        return encode([failure_of(name, error)])
    except (
        Exception
    ) as error:  # whatever a user's make_party raises; the coordinator waits for an answer
        return encode([Failure(party=name, reason=f"{type(error).__name__}: {error}")])


def _arrival(name: str, reply: Message, seconds: float) -> Arrival:
    if reply.has_error():
        reason = f"Flower error {reply.error.code}: {reply.error.reason}"
        return Arrival(Failure(party=name, reason=reason), 0, seconds)
    try:
        data = _bytes(reply)
    except KnowledgeRefused as refusal:
        return Arrival(Failure(party=name, reason=refusal.what, kind="refused"), 0, seconds)
    return arrival_of(name, data, seconds)


def _wrapped(data: bytes) -> RecordDict:
    """Bytes as an array, which Flower sends in pieces of 5 MB; a plain value would go in one."""
    app = _flwr()
    array = app.Array(dtype="uint8", shape=(len(data),), stype=_KEY, data=data)
    record: RecordDict = app.RecordDict({_KEY: app.ArrayRecord({_KEY: array})})
    return record


def _bytes(message: Message) -> bytes:
    try:
        return bytes(message.content.array_records[_KEY][_KEY].data)
    except (KeyError, ValueError) as error:
        raise KnowledgeRefused("not a message of consilience", where="wire") from error


def _flwr() -> Any:
    try:
        import flwr.app
    except ImportError as error:
        raise MissingExtra("flwr", extra="flower", where="network") from error
    return flwr.app

"""Gate in front of the SuperLink, which passes on only the calls of SuperNodes.

Flower 1.41 serves everything on one port: the calls of SuperNodes, and also calls that start runs, register
nodes and distribute tasks, without authentication of the caller. The SuperLink therefore listens only on the
loopback device. The gate listens on the public address, and passes on the calls of SuperNodes. The SuperLink
verifies the key of a caller only after it has received the whole call. The gate therefore verifies the
signature first, and accepts only small calls from unknown callers. The number of connections is also limited,
even before the TLS handshake.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import closing
from dataclasses import dataclass, field
from errno import EADDRNOTAVAIL
from pathlib import Path
from typing import Any

from consilience.core.errors import MissingExtra, RunFailed
from consilience.sites.transport.flower.callers import caller

OPEN = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""The calls that are passed on."""

LARGEST, STRANGERS = 32 << 20, 16 << 10
"""Bytes of one call of a party, and of anyone else. Flower sends arrays in pieces of 5 MB; a party that is
not registered yet sends its key."""

AT_ONCE = 4 * LARGEST
"""Bytes of all calls of one party that are passed on at the same time. Flower sends a few pieces at once."""

MOST, EACH = 1000, 64
"""Connections at once: of all, and of one party or one address of strangers."""

SPARE = 128
"""Descriptors that the process needs beside the gate's, which has two for each connection."""

SILENT, STALLED = 10.0, 30.0
"""Seconds until a connection is ended: one on which TLS or a call is not begun whole, one in the midst of a
call."""

_HOP = frozenset({b"host", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te"})

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def check_free(host: str, port: int) -> None:
    """Raise ``RunFailed`` if the address cannot be listened on: it is in use, or not of this machine."""
    try:
        socket.getaddrinfo(host, port, socket.AF_INET)  # its error tells that there is no such host
        socket.create_server((host, port)).close()
    except (OSError, UnicodeError) as error:
        if isinstance(error, UnicodeError | socket.gaierror) or error.errno == EADDRNOTAVAIL:
            raise RunFailed(
                f"this machine has no address {host!r} to listen on",
                where="listen",
                mend='Set listen in coordinator.toml to one that it has, or to "0.0.0.0" for all of them.',
            ) from error
        raise _taken(host, port, error.strerror or str(error)) from error


def _taken(host: str, port: int, why: str) -> RunFailed:
    """Make the error for an address that cannot be listened on."""
    return RunFailed(
        f"it is not possible to listen on {host}:{port} ({why})",
        where="address",
        mend="Stop what listens there, or set another address or listen in coordinator.toml.",
    )


@dataclass(eq=False)
class Connection:
    """One connection; ``end`` ends it, and ``group`` is its party's key or its address."""

    end: Callable[[], None]
    group: tuple[bool, str]


@dataclass
class Connections:
    """The connections of a gate. A new one takes the place of an old one if there are too many.

    A flood of one address ends its own connections alone, and a flood of many addresses those of strangers: a
    party is done with TLS and its first call in a moment, and counts by its key from then on.

    Args:
        most: of all.
        each: of one party, or of one address of strangers.
    """

    most: int
    each: int
    groups: dict[tuple[bool, str], dict[Connection, None]] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))

    def add(self, address: str, end: Callable[[], None]) -> Connection:
        """Note a new connection of a stranger, and end another if need be."""
        one = Connection(end, (False, address))
        if len(self) >= self.most:
            # The largest group of strangers; a group of a party only if there are no strangers.
            known = min(known for known, _ in self.groups)
            self._end_oldest(
                max((g for g in self.groups if g[0] == known), key=lambda g: len(self.groups[g]))
            )
        self._join(one)
        return one

    def known(self, one: Connection, key: str) -> None:
        """Note that a party called on a connection, unless it has ended meanwhile."""
        if one in self.groups.get(one.group, ()):
            self.remove(one)
            one.group = (True, key)
            self._join(one)

    def remove(self, one: Connection) -> None:
        """Forget an ended connection."""
        group = self.groups.get(one.group, {})
        group.pop(one, None)
        if not group:
            self.groups.pop(one.group, None)

    def _join(self, one: Connection) -> None:
        if len(self.groups.get(one.group, ())) >= self.each:
            self._end_oldest(one.group)
        self.groups.setdefault(one.group, {})[one] = None

    def _end_oldest(self, group: tuple[bool, str]) -> None:
        oldest = next(iter(self.groups[group]))
        self.remove(oldest)
        oldest.end()


class Gate:
    """Server that passes calls of SuperNodes on, from a thread of this process, until it is closed.

    Args:
        host: where to listen.
        port: where to listen.
        behind: host and port of the SuperLink.
        tls: the folder of ``ca.pem``, ``server.pem`` and ``server.key``, for both sides.
        keys: called at every call; gives the parties' public keys, as OpenSSH writes them.

    Raises:
        RunFailed: something else listens there, or this is an unknown flwr.
        MissingExtra: flwr, which brings the server, is not installed.
    """

    def __init__(
        self, host: str, port: int, behind: str, tls: Path, keys: Callable[[], Iterable[str]]
    ) -> None:
        try:
            import httpx
            import uvicorn
        except ImportError as error:
            raise MissingExtra("flwr", extra="flower", where="gate") from error
        caller({}, ())  # raises if this flwr is unknown
        try:
            self._listening = socket.create_server((host, port), backlog=MOST)
        except OSError as error:
            raise _taken(host, port, error.strerror or str(error)) from error
        self._listening.setblocking(False)
        self._behind = f"https://{behind}"
        self._trusted = ssl.create_default_context(cafile=tls / "ca.pem")
        self._keys = keys
        self._client: httpx.AsyncClient
        self.connections = Connections(_room(), EACH)
        self._under_way = Counter[str]()
        config = uvicorn.Config(
            self,
            http="h11",  # which bounds the headers
            ssl_certfile=tls / "server.pem",
            ssl_keyfile=str(tls / "server.key"),
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=30,
            proxy_headers=False,
        )
        config.load()
        self._config, self._protocol = config, _impatient()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._served()), name="gate", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(5.0)

    async def _served(self) -> None:
        """Serve with one client for all calls to the SuperLink; the thread's main function."""
        import httpx

        async with httpx.AsyncClient(
            base_url=self._behind,
            verify=self._trusted,
            timeout=60.0,
            trust_env=False,
            limits=httpx.Limits(
                max_connections=self.connections.most, max_keepalive_connections=20
            ),
        ) as self._client:
            with closing(self._listening):
                taking = asyncio.create_task(self._take())
                await self._server.serve(sockets=[])
                taking.cancel()
                await asyncio.wait([taking])

    async def _take(self) -> None:
        """Accept connections, each in a separate task."""
        loop, begun = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        while True:
            try:
                raw, (address, *_) = await loop.sock_accept(self._listening)
            except OSError:  # the caller has gone, or no descriptor is left
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._begin(raw, address))
            begun.add(task)
            task.add_done_callback(begun.discard)
            await asyncio.sleep(0)  # a flood gives no other reason to wait, and the rest must go on

    async def _begin(self, raw: socket.socket, address: str) -> None:
        """Begin TLS on a connection; its calls are then handled by :meth:`__call__`."""
        task = asyncio.current_task()
        assert task is not None
        state: dict[str, Any] = {}
        protocol = self._protocol(self._config, self._server.server_state, state)

        def end() -> None:
            """End the connection: cancel the TLS handshake, or abort the connection after it."""
            if task.done():
                protocol.transport.abort()
            else:
                task.cancel()

        one = state["connection"] = self.connections.add(address, end)
        protocol.lost = lambda: self.connections.remove(one)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                raw,
                ssl=self._config.ssl,
                ssl_handshake_timeout=SILENT,
                ssl_shutdown_timeout=SILENT,
            )
        except OSError:  # no TLS, not in time, or the caller has gone
            self.connections.remove(one)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one call; the arguments are those of ASGI: ``scope``, ``receive`` and ``send``."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        key = caller(headers, self._keys())
        if key is not None:
            self.connections.known(scope["state"]["connection"], key)
        if scope["method"] != "POST" or scope["path"] not in OPEN:
            await _say(send, 404)
        elif not length.isdigit() or int(length) > (STRANGERS if key is None else LARGEST):
            await _say(send, 413)
        elif key is None:
            await self._pass_on(scope, receive, send)
        elif self._under_way[key] + int(length) > AT_ONCE:
            await _say(send, 503)  # which nodes take for a reason to try again
        else:
            self._under_way[key] += int(length)
            try:
                await self._pass_on(scope, receive, send)
            finally:
                self._under_way[key] -= int(length)

    async def _pass_on(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Have the SuperLink answer a call."""
        import httpx

        headers = [(key, value) for key, value in scope["headers"] if key not in _HOP]
        try:
            async with self._client.stream(
                "POST", scope["path"], headers=headers, content=_body(receive)
            ) as answer:
                kept = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in _HOP]
                start = {"type": "http.response.start", "status": answer.status_code}
                await send({**start, "headers": kept})
                async for part in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            await _say(send, 408)
        except httpx.TransportError:
            await _say(send, 503)


def _room() -> int:
    """Number of connections for which this process may open descriptors."""
    may, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if may == resource.RLIM_INFINITY else max(min(MOST, (may - SPARE) // 2), EACH)


def _impatient() -> type[Any]:
    """uvicorn's protocol, but it ends connections on which a call does not begin, or not whole."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        lost: Callable[[], None]
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:  # its headers are not complete
                self.wait()
            elif self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.lost()

        def wait(self) -> None:
            if self.timer is None:
                self.timer = self.loop.call_later(SILENT, self.transport.abort)

    return Impatient


async def _say(send: Send, status: int) -> None:
    """Answer with a status alone."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    """The body of a call, part by part; ``TimeoutError`` where the next does not come in time."""
    more = True
    while more:
        message = await asyncio.wait_for(receive(), STALLED)
        if message["type"] == "http.disconnect":
            return
        yield message.get("body", b"")
        more = message.get("more_body", False)

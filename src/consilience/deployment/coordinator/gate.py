"""Gate before the SuperLink, which passes on what parties need, and no more.

Flower 1.41 serves everything on one port: what SuperNodes need, and what starts runs, registers nodes and
hands out tasks, which it lets anyone call who reaches it. The SuperLink therefore listens on the loopback
device alone; this listens where the parties are, and passes on what SuperNodes need. Whose key it is, the
SuperLink checks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from errno import EADDRNOTAVAIL
from pathlib import Path
from typing import Any

from consilience.errors import MissingExtra, RunFailed

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

LARGEST = 32 << 20
"""Bytes of one call; Flower sends arrays in pieces of 5 MB."""

MOST = 1000
"""Connections at once."""

SILENT, STALLED = 10.0, 30.0
"""Seconds until a connection is ended: one on which nothing was asked, one in the midst of a call."""

_HOP = frozenset({b"host", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te"})

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def check_free(host: str, port: int) -> None:
    """Raise ``RunFailed`` where nobody can listen: something else does, or no such host is here."""
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
    """The error for an address where nobody can listen."""
    return RunFailed(
        f"it is not possible to listen on {host}:{port} ({why})",
        where="address",
        mend="Stop what listens there, or set another address or listen in coordinator.toml.",
    )


class Gate:
    """Server that passes calls of SuperNodes on, from a thread of this process, until it is closed.

    Args:
        host: where to listen.
        port: where to listen.
        behind: host and port of the SuperLink.
        tls: the folder of ``ca.pem``, ``server.pem`` and ``server.key``, for both sides.

    Raises:
        RunFailed: something else listens there.
        MissingExtra: flwr, which brings the server, is not installed.
    """

    def __init__(self, host: str, port: int, behind: str, tls: Path) -> None:
        try:
            import httpx
            import uvicorn
            from uvicorn.protocols.http.auto import AutoHTTPProtocol
        except ImportError as error:
            raise MissingExtra("flwr", extra="flower", where="gate") from error
        self._behind = f"https://{behind}"
        self._trusted = ssl.create_default_context(cafile=tls / "ca.pem")
        self._client: httpx.AsyncClient
        config = uvicorn.Config(
            self,
            http=_impatient(AutoHTTPProtocol),
            host=host,
            port=port,
            ssl_certfile=tls / "server.pem",
            ssl_keyfile=str(tls / "server.key"),
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=30,
            limit_concurrency=MOST,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            self._thread.join(0.05)
        if not self._server.started:
            raise _taken(host, port, "its log says why")

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(5.0)

    def _serve(self) -> None:
        """Serve until it is closed; the thread's main function."""
        with suppress(SystemExit):  # how uvicorn says that it cannot listen
            asyncio.run(self._served())

    async def _served(self) -> None:
        """Serve with one client for all calls to the SuperLink."""
        import httpx

        async with httpx.AsyncClient(
            base_url=self._behind,
            verify=self._trusted,
            timeout=60.0,
            trust_env=False,
            limits=httpx.Limits(max_connections=MOST, max_keepalive_connections=20),
        ) as self._client:
            await self._server.serve()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one call; the arguments are those of ASGI: ``scope``, ``receive`` and ``send``."""
        import httpx

        if scope["type"] != "http":
            return
        headers = [(key, value) for key, value in scope["headers"] if key not in _HOP]
        given = dict(headers)
        length = given.get(b"content-length", b"")
        if scope["method"] != "POST" or scope["path"] not in OPEN:
            await _say(send, 404)
        elif not length.isdigit() or int(length) > LARGEST:
            await _say(send, 413)
        else:
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


def _impatient(usual: type[Any]) -> type[Any]:
    """uvicorn's protocol, but it ends connections on which nothing is asked."""

    class Impatient(usual):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.loop.call_later(SILENT, self.end_if_silent)

        def end_if_silent(self) -> None:
            if self.cycle is None:  # no request so far
                self.transport.abort()

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

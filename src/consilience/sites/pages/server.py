"""Server of one live page for this machine only: the page, its events, and its figures for Prometheus.

A page is read-only: it shows a folder, and the folder cannot be changed through it. It is for the browser of
the user who started it. The server listens only on the loopback device, answers only ``GET``, and accepts
only the names of this device. Scripts of other sites therefore cannot read the page, not even if their
domain name suddenly resolves to this machine (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections.abc import Callable, Hashable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from consilience.core.errors import ConsilienceError, InvalidInput, MissingExtra
from consilience.lab.report.html import render
from consilience.sites.pages import PACKAGE
from consilience.sites.pages.open_metrics import Sample, open_metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"

NAMES = frozenset({HOST, "localhost", "::1"})
"""Names of this machine that a request may be for; any port, as a tunnel may end at another one."""

LOOK = 0.5
"""Seconds that a look at the folder is good for, however many ask."""

ALIVE = 15.0
"""Seconds after which a browser that has nothing new to show is told that the server is there."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

ASSETS = {
    "page.css": ("text/css", ("style.css", "live/page.css")),
    "page.js": ("text/javascript", ("live/page.js",)),
    "mark.svg": ("image/svg+xml", ("live/mark.svg",)),
}
"""Path to its type and the files in ``report/templates`` that it is made of."""


@dataclass(frozen=True)
class View:
    """Contents of a page at one moment.

    Attributes:
        main: HTML of its sections.
        samples: its figures.
    """

    main: str
    samples: tuple[Sample, ...] = ()


class Page(Protocol):
    """A page of one folder."""

    @property
    def title(self) -> str:
        """Its title."""

    def changed(self) -> Hashable:
        """Return a value that differs whenever the view may differ; fast."""

    def read(self) -> View:
        """Read the folder.

        Raises:
            ConsilienceError: it cannot be read, which is shown.
        """


@dataclass(frozen=True)
class _Seen:
    """A view as it is sent."""

    main: str
    metrics: bytes


class _Latest:
    """The latest view of a page for all its readers, read again after a change."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._lock = Lock()
        self._looked = -math.inf
        self._key: Hashable = object()
        self._seen = _Seen("", b"")

    def seen(self) -> _Seen:
        """Return the latest view; look for changes at most once per :data:`LOOK` seconds."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK:
                self._look()
                self._looked = time.monotonic()
            return self._seen

    def _look(self) -> None:
        try:
            if (key := self._page.changed()) != self._key:
                view = self._page.read()
                self._seen, self._key = _Seen(view.main, open_metrics(view.samples)), key
        except ConsilienceError as error:  # it may be mended while the page is open
            lost = render("live/trouble.html", PACKAGE, error=str(error))
            self._seen, self._key = _Seen(lost, open_metrics(())), object()


def stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of a file; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def application(page: Page, *, ended: Callable[[], bool] = lambda: False) -> Starlette:
    """Make the ASGI application of a page.

    Args:
        page: the page.
        ended: return true when browsers are no longer to be kept waiting for news.

    Raises:
        MissingExtra: starlette or prometheus-client is not installed.
    """
    _require("starlette", "prometheus_client")
    from markupsafe import Markup
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    latest = _Latest(page)

    async def whole(request: Request) -> Response:
        seen = await run_in_threadpool(latest.seen)
        text = render("live/page.html", PACKAGE, title=page.title, main=Markup(seen.main))
        return Response(text, media_type="text/html")

    async def events(request: Request) -> Response:
        async def told() -> AsyncIterator[str]:
            main, said = "", time.monotonic()
            while not ended():
                seen = await run_in_threadpool(latest.seen)
                if seen.main != main:
                    main = seen.main
                    yield f"data: {json.dumps({'main': main, 'now': time.time()})}\n\n"
                elif time.monotonic() - said > ALIVE:
                    yield ": here\n\n"
                else:
                    await asyncio.sleep(LOOK)
                    continue
                said = time.monotonic()

        return StreamingResponse(told(), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        seen = await run_in_threadpool(latest.seen)
        media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return Response(seen.metrics, headers={"Content-Type": media_type})

    async def asset(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response(_asset(name), media_type=ASSETS[name][0])

    routes = [Route("/", whole), Route("/events", events), Route("/metrics", metrics)]
    routes += [Route(f"/{name}", asset) for name in ASSETS]
    return Starlette(routes=routes, middleware=[Middleware(Guard)])


class Guard:
    """ASGI middleware that refuses all but ``GET`` by a browser or a program of this machine for this page.

    Args:
        app: the application behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        from starlette.responses import PlainTextResponse

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                named = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *named]}
            await send(message)

        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        app = self._app
        if (why := refused(scope["method"], given)) is not None:
            status, text = why
            app = PlainTextResponse(f"{text}\n", status, {"Allow": "GET"} if status == 405 else {})
        await app(scope, receive, with_headers)


def refused(method: str, headers: dict[str, list[str]]) -> tuple[int, str] | None:
    """Give the status and the reason with which a request is refused; ``None`` where it is not.

    Args:
        method: its method.
        headers: its headers, names in small letters.
    """
    if method != "GET":
        return 405, "This page can be read, and nothing else."
    hosts = headers.get("host", [])
    if len(hosts) != 1 or _name(hosts[0]) not in NAMES:
        return 421, "This page is for this machine alone: ask for http://127.0.0.1 and its port."
    own = f"http://{hosts[0]}".lower()
    if any(origin.lower() != own for origin in headers.get("origin", [])):
        return 403, "Another page asks for this one."
    if not {"same-origin", "none"}.issuperset(headers.get("sec-fetch-site", [])):
        return 403, "Another page asks for this one."
    return None


def serve(page: Page, port: int, *, say: Callable[[str], None] = lambda line: None) -> None:
    """Serve a page until this process receives a signal to stop.

    Args:
        page: the page.
        port: port of the loopback device; 0 for any free one.
        say: called with a line that contains the address.

    Raises:
        InvalidInput: the port is taken.
        MissingExtra: uvicorn, starlette or prometheus-client is not installed.
    """
    _require("uvicorn", "starlette", "prometheus_client")
    import uvicorn

    with closing(_listening(port)) as listening:
        settings: dict[str, Any] = {
            "lifespan": "off",
            "ws": "none",
            "log_level": "critical",
            "access_log": False,
            "server_header": False,
            "limit_concurrency": 100,
            "timeout_graceful_shutdown": 2,
        }
        app = application(page, ended=lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, **settings))
        say(f"{page.title}: http://{HOST}:{listening.getsockname()[1]}")
        server.run(sockets=[listening])


def _listening(port: int) -> socket.socket:
    """A socket at a port of the loopback device, or ``InvalidInput``."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise InvalidInput(
            f"it cannot be listened at: {error}",
            where=f"--port {port}",
            mend="Give another; --port 0 takes any that is free.",
        ) from error
    return made


def _name(host: str) -> str:
    """The name in a ``Host`` header, without its port; empty where it is none."""
    try:
        found = urlsplit(f"//{host}")
        return found.hostname or "" if found.netloc == host and found.username is None else ""
    except ValueError:
        return ""


@cache
def _asset(name: str) -> bytes:
    """The content of an asset."""
    report = resources.files("consilience.lab.report") / "templates"
    live = resources.files(PACKAGE) / "templates"
    files = (
        live / file.removeprefix("live/") if file.startswith("live/") else report / file
        for file in ASSETS[name][1]
    )
    return b"\n".join(file.read_bytes() for file in files)


def _require(*packages: str) -> None:
    """Raise ``MissingExtra`` where one of these is not installed."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package.replace("_", "-"), extra="page", where="page")

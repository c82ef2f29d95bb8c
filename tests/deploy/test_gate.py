"""The gate passes on what SuperNodes need, and nothing else."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import httpx
import pytest

from consilience.core.errors import RunFailed
from consilience.sites.operations.certificates import make_authority, make_key
from consilience.sites.operations.processes import free_port
from consilience.sites.transport import gate
from consilience.sites.transport.flower.callers import caller
from consilience.sites.transport.gate import LARGEST, STRANGERS, Connections, Gate
from helpers import flower_grid  # noqa: F401 (imports flwr without its warnings)


class Echo(BaseHTTPRequestHandler):
    """Says what it was asked; HTTP as the SuperLink has it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        said = self.path.encode() + b" " + self.headers.get("x-key", "").encode() + b" " + body
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    make_authority(tmp_path / "tls", "localhost")
    return tmp_path / "tls"


def signed(key: Path, *, ago: float = 0.0) -> dict[str, str]:
    """Headers of a call that a party signed, as Flower writes them."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private = load_ssh_private_key(key.read_bytes(), None)
    request = httpx.Request("POST", "https://localhost")
    with pytest.MonkeyPatch.context() as patch:
        clock = "flwr.supernode.node_auth_http_interceptor.now"
        now = datetime.now(UTC) - timedelta(seconds=ago)
        patch.setattr(clock, lambda: now)
        NodeAuthHttpInterceptor(private, private.public_key()).intercept(  # type: ignore[arg-type]
            SimpleNamespace(request=request), lambda context: None
        )
    return {name: value for name, value in request.headers.items() if name.startswith("flwr-")}


@pytest.fixture
def north(tls: Path) -> dict[str, str]:
    """Headers of a call of the party that the gate knows."""
    return signed(tls / "north.key")


@pytest.fixture
def client(tls: Path) -> Iterator[httpx.Client]:
    """Talks to a gate before an echo; the gate knows north."""
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem", tls / "server.key")
    behind.socket = context.wrap_socket(behind.socket, server_side=True)
    thread = Thread(target=behind.serve_forever)
    thread.start()
    port = free_port()
    line = make_key(tls / "north.key", "north")
    made = Gate("127.0.0.1", port, f"127.0.0.1:{behind.server_port}", tls, lambda: [line])
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    with closing(made), httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=root) as client:
        yield client
    behind.shutdown()
    thread.join()
    behind.server_close()


def test_who_connects_and_asks_nothing_is_sent_away(
    client: httpx.Client, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who does not end what it has begun to ask; whoever asks may stay, and take as long as it takes."""
    monkeypatch.setattr(gate, "SILENT", 0.2)
    monkeypatch.setattr(gate, "STALLED", 0.2)
    assert client.post("/v1/fleet/get-run", content=b"a").status_code == 200
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    to = (client.base_url.host, client.base_url.port)
    begun = b"POST /v1/fleet/get-run HTTP/1.1\r\nhost: localhost\r\n"
    for said, answer in ((b"", b""), (begun, b""), (begun + b"content-length: 9\r\n\r\n1", b"408")):
        with (
            socket.create_connection(to, timeout=10) as bare,
            root.wrap_socket(bare, server_hostname="localhost") as silent,
        ):
            silent.sendall(said)
            with suppress(ConnectionResetError):
                assert silent.recv(12)[9:] == answer
                while silent.recv(100):
                    pass
    assert client.post("/v1/fleet/get-run", content=b"a").status_code == 200


def test_calls_of_nodes_pass_whole(client: httpx.Client, north: dict[str, str]) -> None:
    body = bytes(range(256)) * 20_000  # 5 MB
    answer = client.post("/v1/fleet/push-object", content=body, headers={"x-key": "k", **north})
    assert answer.status_code == 200
    assert answer.content == b"/v1/fleet/push-object k " + body


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/pull-task-input",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "//v1/control/start-run",
        "/docs",
        "/",
    ],
)
def test_nothing_else_passes(client: httpx.Client, path: str) -> None:
    assert client.post(path, content=b"x").status_code == 404
    assert client.get(path).status_code == 404


def status(client: httpx.Client, tls: Path, length: int, headers: Mapping[str, str]) -> int:
    """Status of a call of this length; nothing of its body is sent unless it is asked for."""
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    to = client.base_url
    with closing(HTTPSConnection(to.host, to.port, context=root, timeout=5)) as connection:
        connection.putrequest("POST", "/v1/fleet/push-object")
        for name, value in {**headers, "content-length": str(length)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status


def test_what_is_too_large_or_of_no_length_is_refused(
    client: httpx.Client, tls: Path, north: dict[str, str]
) -> None:
    path = "/v1/fleet/push-object"
    assert client.post(path, content=iter([b"a", b"b"])).status_code == 413
    assert client.post(path, content=iter([b"a", b"b"]), headers=north).status_code == 413
    assert status(client, tls, LARGEST + 1, north) == 413


def test_a_stranger_sends_kilobytes_alone(
    client: httpx.Client, tls: Path, north: dict[str, str]
) -> None:
    """One without a key, with a key that is not registered, or with a party's but not its signature."""
    make_key(tls / "other.key", "other")
    other = signed(tls / "other.key")
    public = {"flwr-public-key": north["flwr-public-key"]}
    later = {"flwr-timestamp": signed(tls / "north.key")["flwr-timestamp"]}
    for headers in (
        {},
        other,
        other | public,
        north | later,
        public,
        north | {"flwr-signature": "é"},
        north | {"flwr-timestamp": "2026-01-01"},
        signed(tls / "north.key", ago=400),
    ):
        assert status(client, tls, STRANGERS + 1, headers) == 413
    path, most = "/v1/fleet/activate-node", b"x" * STRANGERS
    assert client.post(path, content=most, headers=other).content.endswith(most)
    assert STRANGERS * gate.MOST <= 16 << 20  # of all strangers


def test_the_headers_of_flower_are_read(tls: Path) -> None:
    lines = [make_key(tls / f"{name}.key", name) for name in ("north", "south")]
    headers = {name.encode(): value.encode() for name, value in signed(tls / "south.key").items()}
    assert caller(headers, lines) == lines[1]
    assert caller(headers, lines[:1]) is None


def test_calls_of_one_party_at_once_are_bounded(
    client: httpx.Client, tls: Path, north: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "AT_ONCE", 100_000)
    path = "/v1/fleet/push-object"
    assert status(client, tls, 100_001, north) == 503
    for _ in range(3):  # what has passed does not count
        assert client.post(path, content=b"x" * 60_000, headers=north).status_code == 200


def test_a_flood_of_one_address_ends_its_own_connections() -> None:
    ended: list[str] = []
    held = Connections(most=6, each=3)
    one, two = (held.add("1.1.1.1", lambda name=name: ended.append(name)) for name in "ab")
    held.known(one, "north")
    for name in "cdefg":
        held.add("2.2.2.2", lambda name=name: ended.append(name))
    assert ended == ["c", "d"] and len(held) == 5
    held.remove(two)
    held.known(two, "north")  # a call that came before the end of its connection was noticed
    assert len(held) == 4
    # Many addresses, one connection each: strangers make room, the party stays.
    for number in range(20):
        held.add(f"3.3.3.{number}", lambda: ended.append("stranger"))
    assert len(held) == 6 and ended.count("stranger") == 15 and "a" not in ended
    for name in "hijk":
        held.known(held.add("1.1.1.1", lambda name=name: ended.append(name)), "north")
    assert ended[-1] == "h" and "a" in ended  # those on which the party has not called for longest
    for group in list(held.groups.values()):
        for connection in list(group):
            held.remove(connection)
    assert not held.groups


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """How many more descriptors than this process has now it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 400, hard))
    yield 400
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_of_connections_without_tls_does_not_keep_a_party_out(
    client: httpx.Client, tls: Path, north: dict[str, str], few_descriptors: int
) -> None:
    """Both ends of each would need more descriptors than there are."""
    to = (client.base_url.host, client.base_url.port)
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    with ExitStack() as flood:
        for number in range(few_descriptors // 2 + 50):
            flood.enter_context(socket.create_connection(to, timeout=10))
            if number % 50 == 0:
                time.sleep(0.05)  # the gate is a thread of this process
        with httpx.Client(base_url=client.base_url, verify=root) as party:
            answer = party.post("/v1/fleet/pull-messages", content=b"x", headers=north)
        assert answer.status_code == 200


def test_who_begins_no_tls_is_sent_away(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's server would wait for a minute."""
    monkeypatch.setattr(gate, "SILENT", 0.2)
    to = (client.base_url.host, client.base_url.port)
    for said in (b"", b"\x16\x03\x01"):
        with socket.create_connection(to, timeout=5) as bare:
            bare.sendall(said)
            with suppress(ConnectionResetError):
                assert bare.recv(1) == b""


def test_a_second_call_that_does_not_come_whole_ends_the_connection(
    client: httpx.Client, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "SILENT", 0.2)
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    to = (client.base_url.host, client.base_url.port)
    line = b"POST /v1/fleet/get-run HTTP/1.1\r\nhost: localhost\r\n"
    with (
        socket.create_connection(to, timeout=5) as bare,
        root.wrap_socket(bare, server_hostname="localhost") as slow,
    ):
        slow.sendall(line + b"content-length: 1\r\n\r\n1")
        said = b""
        while not said.endswith(b" 1"):
            said += slow.recv(1000)
        slow.sendall(line)
        with suppress(ConnectionResetError):
            assert slow.recv(1000) == b""


def test_headers_without_end_are_refused(client: httpx.Client, tls: Path) -> None:
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    to = (client.base_url.host, client.base_url.port)
    with (
        socket.create_connection(to, timeout=5) as bare,
        root.wrap_socket(bare, server_hostname="localhost") as endless,
    ):
        answered = b""
        with suppress(ConnectionError, ssl.SSLError):  # closed before all of it was sent, or read
            endless.sendall(b"POST /v1/fleet/get-run HTTP/1.1\r\n" + b"x: y\r\n" * 20_000)
            while part := endless.recv(1000):  # a connection that stays open raises TimeoutError
                answered += part
        assert not answered or b" 400 " in answered


def test_there_are_fewer_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, room in ((1024, 448), (100, 64), (1 << 20, 1000), (resource.RLIM_INFINITY, 1000)):
        monkeypatch.setattr(gate.resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert gate._room() == room


def test_a_proxy_may_open_tls_before_it(client: httpx.Client, tls: Path) -> None:
    """One that has the coordinator's certificate; here another gate, which is such a proxy."""
    port, behind = free_port(), client.base_url
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    with (
        closing(Gate("127.0.0.1", port, f"{behind.host}:{behind.port}", tls, list)),
        httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=root) as outside,
    ):
        answer = outside.post("/v1/fleet/push-object", content=b"x" * 99, headers={"x-key": "k"})
        assert answer.content == b"/v1/fleet/push-object k " + b"x" * 99
        assert outside.post("/v1/control/start-run", content=b"x").status_code == 404


def test_plain_text_is_not_understood(client: httpx.Client) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(client.base_url.copy_with(scheme="http"), content=b"x")


def test_a_superlink_that_is_gone_is_unavailable(tls: Path) -> None:
    port = free_port()
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    with (
        closing(Gate("127.0.0.1", port, f"127.0.0.1:{free_port()}", tls, list)),
        httpx.Client(verify=root) as client,
    ):
        said = client.post(f"https://127.0.0.1:{port}/v1/fleet/pull-messages", content=b"x")
        assert said.status_code == 503  # which nodes take for a reason to try again
        with pytest.raises(RunFailed, match=f"not possible to listen on 127.0.0.1:{port}"):
            Gate("127.0.0.1", port, "127.0.0.1:1", tls, list)

"""The gate passes on what SuperNodes need, and nothing else."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from consilience.deployment.certificates import make_authority
from consilience.deployment.coordinator import gate
from consilience.deployment.coordinator.gate import LARGEST, Gate
from consilience.deployment.processes import free_port
from consilience.errors import RunFailed


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


@pytest.fixture
def client(tls: Path) -> Iterator[httpx.Client]:
    """Talks to a gate before an echo."""
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem", tls / "server.key")
    behind.socket = context.wrap_socket(behind.socket, server_side=True)
    thread = Thread(target=behind.serve_forever)
    thread.start()
    port = free_port()
    made = Gate("127.0.0.1", port, f"127.0.0.1:{behind.server_port}", tls)
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


def test_calls_of_nodes_pass_whole(client: httpx.Client) -> None:
    body = bytes(range(256)) * 20_000  # 5 MB
    answer = client.post("/v1/fleet/push-object", content=body, headers={"x-key": "k"})
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


def test_what_is_too_large_or_of_no_length_is_refused(client: httpx.Client, tls: Path) -> None:
    path = "/v1/fleet/push-object"
    assert client.post(path, content=iter([b"a", b"b"])).status_code == 413
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    address = client.base_url
    with closing(HTTPSConnection(address.host, address.port, context=root)) as connection:
        connection.putrequest("POST", path)
        connection.putheader("content-length", str(LARGEST + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_a_proxy_may_open_tls_before_it(client: httpx.Client, tls: Path) -> None:
    """One that has the coordinator's certificate; here another gate, which is such a proxy."""
    port, behind = free_port(), client.base_url
    root = ssl.create_default_context(cafile=tls / "ca.pem")
    with (
        closing(Gate("127.0.0.1", port, f"{behind.host}:{behind.port}", tls)),
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
        closing(Gate("127.0.0.1", port, f"127.0.0.1:{free_port()}", tls)),
        httpx.Client(verify=root) as client,
    ):
        said = client.post(f"https://127.0.0.1:{port}/v1/fleet/pull-messages", content=b"x")
        assert said.status_code == 503  # which nodes take for a reason to try again
        with pytest.raises(RunFailed, match=f"not possible to listen on 127.0.0.1:{port}"):
            Gate("127.0.0.1", port, "127.0.0.1:1", tls)

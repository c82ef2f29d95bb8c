"""Certificates that a client believes, and keys that Flower takes."""

from __future__ import annotations

import ssl
import stat
import threading
from contextlib import closing, suppress
from pathlib import Path
from socket import create_connection, create_server

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from consilience.core.errors import InvalidInput
from consilience.sites.operations.certificates import (
    certified_hosts,
    make_authority,
    make_key,
    public_key,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def shaken(tls: Path, root: Path, host: str) -> None:
    """A handshake of a client that believes ``root`` with a server that has ``tls``."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(tls / "server.pem", tls / "server.key")
    with closing(create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            with suppress(OSError), closing(listening.accept()[0]) as raw:
                theirs.wrap_socket(raw, server_side=True).close()

        server = threading.Thread(target=serve)
        server.start()
        try:
            ours = ssl.create_default_context(cafile=root)
            ours.verify_flags |= ssl.VERIFY_X509_STRICT
            with create_connection(listening.getsockname(), timeout=5) as raw:
                ours.wrap_socket(raw, server_hostname=host).close()
        finally:
            server.join()


def test_the_chain_holds_for_the_address_and_for_nobody_else(tmp_path: Path) -> None:
    make_authority(tmp_path / "one", "coordinator.example.org")
    make_authority(tmp_path / "other", "10.1.2.3")
    root = tmp_path / "one" / "ca.pem"
    for host in ("coordinator.example.org", "localhost", "127.0.0.1"):
        shaken(tmp_path / "one", root, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        shaken(tmp_path / "one", root, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(tmp_path / "other", root, "localhost")
    assert certified_hosts(tmp_path / "other" / "server.pem") == (
        "localhost",
        "10.1.2.3",
        "127.0.0.1",
    )


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    make_authority(tmp_path / "tls", "localhost")
    make_key(tmp_path / "party.key", "north")
    assert mode(tmp_path / "tls") == 0o700
    assert mode(tmp_path / "tls" / "server.key") == 0o600
    assert mode(tmp_path / "party.key") == 0o600
    assert not any("ca" in path.name for path in (tmp_path / "tls").glob("*.key"))


def test_a_key_is_made_once(tmp_path: Path) -> None:
    line = make_key(tmp_path / "party.key", "north")
    assert line.startswith("ecdsa-sha2-nistp384 ") and line.endswith(" north")
    assert make_key(tmp_path / "party.key", "north") == line
    assert (tmp_path / "party.key.pub").read_text() == line + "\n"
    private = load_ssh_private_key((tmp_path / "party.key").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key(line.encode())
    assert line.startswith(public_key(line, where="x").decode())
    (tmp_path / "party.key").write_text("nothing")
    with pytest.raises(InvalidInput, match="no key of a party"):
        make_key(tmp_path / "party.key", "north")


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("nothing")
    with pytest.raises(InvalidInput, match="no server certificate"):
        certified_hosts(tmp_path / "server.pem")

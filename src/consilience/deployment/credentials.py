"""What is wrong with certificates and keys that were given, told before anything is started with them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from consilience.deployment.keys import cryptography_x509
from consilience.errors import InvalidInput

_MINE = "consilience party key makes one; keep it where nobody else reads it."
_THEIRS = "Ask the coordinator for its tls/ca.pem."


def check_authority(path: Path, *, where: str) -> None:
    """Raise ``InvalidInput`` unless the file holds the certificate of an authority that is valid now.

    Args:
        path: the file.
        where: the key of the configuration that names it.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    x509 = cryptography_x509()
    content = _content(path, where, _THEIRS)
    try:
        certificates = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        what = f"{path} holds {_kind(content)}, not the certificate of an authority"
        raise InvalidInput(what, where=where, mend=_THEIRS) from error
    now = datetime.now(UTC)
    for one in certificates:
        try:
            signs = one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            signs = False
        if not signs and one.issuer != one.subject:
            what = f"{path} is the certificate of a server, not of the authority that signed it"
            raise InvalidInput(what, where=where, mend=_THEIRS)
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            raise InvalidInput(
                f"{path} is valid from {one.not_valid_before_utc:%Y-%m-%d} to "
                f"{one.not_valid_after_utc:%Y-%m-%d}",
                where=where,
                mend=f"Set the clock if it is wrong. {_THEIRS}",
            )


def check_private_key(path: Path, *, where: str) -> None:
    """Raise ``InvalidInput`` unless the file holds a party's private key.

    Args:
        path: the file.
        where: the key of the configuration that names it.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    cryptography_x509()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    content = _content(path, where, _MINE)
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = f"{path} holds {_kind(content)}, not a party's private key"
        raise InvalidInput(what, where=where, mend=_MINE) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        what = f"{path} holds a key of another kind than Flower takes"
        raise InvalidInput(what, where=where, mend=_MINE)


def exposed(path: Path) -> str:
    """A warning where others than its owner can read or change a private key; else empty."""
    if not path.stat().st_mode & 0o077:
        return ""
    return f"others can read or change {path}, and take part in your name: chmod 600 {path}"


def check_server(tls: Path) -> None:
    """Raise ``InvalidInput`` unless who believes ``ca.pem`` believes a server with the other two.

    Args:
        tls: the folder of ``ca.pem``, ``server.pem`` and ``server.key``.
    """
    mend = "consilience coordinator init makes all three; or put your own there."
    for name in ("ca.pem", "server.pem", "server.key"):
        _content(tls / name, str(tls / name), mend)
    ours, theirs = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    try:
        ours.load_cert_chain(tls / "server.pem", tls / "server.key")
    except ssl.SSLError as error:
        what = f"server.pem and server.key are no certificate and its key ({_reason(error)})"
        raise InvalidInput(what, where=str(tls), mend=mend) from error
    try:
        theirs.load_verify_locations(tls / "ca.pem")
    except ssl.SSLError as error:
        what = f"ca.pem is no certificate ({_reason(error)})"
        raise InvalidInput(what, where=str(tls), mend=mend) from error
    theirs.check_hostname = False  # whom it is for is looked at by itself
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = ours.wrap_bio(up, down, server_side=True), theirs.wrap_bio(down, up)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            what = f"ca.pem does not vouch for server.pem ({_reason(error)})"
            raise InvalidInput(what, where=str(tls), mend=mend) from error


def _reason(error: ssl.SSLError) -> str:
    said = getattr(error, "verify_message", "") or error.reason or "not PEM"
    return str(said).replace("_", " ").lower()


def _content(path: Path, where: str, mend: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}", where=where, mend=mend) from error
    except IsADirectoryError as error:
        what = f"{path} is a folder, and a file is wanted"
        raise InvalidInput(what, where=where, mend=mend) from error
    except OSError as error:
        what = f"{path} cannot be read ({error.strerror})"
        raise InvalidInput(what, where=where, mend=mend) from error


def _kind(content: bytes) -> str:
    """What a file looks like, in words."""
    if not content.strip():
        return "nothing"
    for sign, kind in (
        (b"BEGIN OPENSSH PRIVATE KEY", "a private key"),
        (b"PRIVATE KEY-----", "a private key as PEM"),
        (b"BEGIN CERTIFICATE", "a certificate"),
        (b"PUBLIC KEY-----", "a public key"),
    ):
        if sign in content:
            return kind
    public = content.startswith((b"ecdsa-", b"ssh-"))
    return "a public key" if public else "something that is no PEM"

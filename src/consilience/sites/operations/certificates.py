"""Certificates for the coordinator's TLS, signed by a private authority, and a key pair for each party.

Each is made here and checked here before anything is started. Flower takes a party's keys as OpenSSH writes
them, on a NIST curve; here P-384.
"""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InvalidInput, MissingExtra
from consilience.core.files import write_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.x509 import GeneralName

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""Days that certificates hold; more than this some libraries refuse of a server's."""

_KEY_MEND = "consilience party key makes one; keep it where nobody else reads it."
_AUTHORITY_MEND = "Ask the coordinator for its tls/ca.pem."
_SERVER_MEND = "consilience coordinator init makes all three; or put your own there."


# --- the authority and the coordinator's certificate ----------------------------------------------


def make_authority(folder: Path, host: str) -> None:
    """Make a private authority and a server certificate for a host.

    ``ca.pem`` is for every party; ``server.pem`` and ``server.key`` are for the server only. The certificate
    is also valid for ``localhost`` and ``127.0.0.1``. The authority's key is discarded at once and cannot be
    stolen later. For another host, make both again and give the parties the new ``ca.pem``.

    Args:
        folder: folder to create.
        host: a name or an IP address.

    Raises:
        InvalidInput: the folder exists, or cannot be written.
        MissingExtra: cryptography is not installed.
    """
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.now(UTC) - timedelta(minutes=5)  # for clocks that are behind
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer, subject = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"consilience {name}")])
        for name in ("private CA", "coordinator")
    )

    def begun(name: Any, key: Any, days: int, *, signs: bool) -> Any:
        """A certificate with all that both have; ``signs`` for the authority's."""
        identity = x509.SubjectKeyIdentifier.from_public_key(key)
        limits = x509.BasicConstraints(ca=signs, path_length=0 if signs else None)
        usage = x509.KeyUsage(
            digital_signature=not signs,
            key_cert_sign=signs,
            crl_sign=signs,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(identity, critical=False)
            .add_extension(limits, critical=True)
            .add_extension(usage, critical=True)
        )

    ours = authority.public_key()
    hosts = [_general_name(one) for one in dict.fromkeys((host, "localhost", "127.0.0.1"))]
    root = begun(issuer, ours, AUTHORITY_DAYS, signs=True).sign(authority, hashes.SHA256())
    leaf = (
        begun(subject, server.public_key(), SERVER_DAYS, signs=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority, hashes.SHA256())
    )
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InvalidInput(f"cannot be made ({error.strerror})", where=str(folder)) from error
    write_whole(folder / "ca.pem", root.public_bytes(Encoding.PEM), mode=0o644)
    write_whole(folder / "server.pem", leaf.public_bytes(Encoding.PEM), mode=0o644)
    write_whole(folder / "server.key", _private_bytes(server), mode=0o600)


def certified_hosts(path: Path) -> tuple[str, ...]:
    """Names and addresses that a server certificate holds for.

    Raises:
        InvalidInput: it is no certificate, or no longer valid.
        MissingExtra: cryptography is not installed.
    """
    require_cryptography()
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise InvalidInput(f"this is no server certificate: {error}", where=str(path)) from error
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise InvalidInput(
            f"it was valid until {certificate.not_valid_after_utc:%Y-%m-%d}", where=str(path)
        )
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def check_authority(path: Path, *, where: str) -> None:
    """Raise ``InvalidInput`` unless the file contains a currently valid certificate of an authority.

    Args:
        path: the file.
        where: the key of the configuration that names it.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    check_certificates(_content(path, where, _AUTHORITY_MEND), str(path), where=where)


def check_certificates(content: bytes, name: str, *, where: str) -> None:
    """Raise ``InvalidInput`` as :func:`check_authority` does.

    Args:
        content: of a file.
        name: of the file.
        where: as there.
    """
    require_cryptography()
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        what = f"{name} holds {_kind(content)}, not the certificate of an authority"
        raise InvalidInput(what, where=where, mend=_AUTHORITY_MEND) from error
    now = datetime.now(UTC)
    for one in certificates:
        try:
            signs = one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            signs = False
        if not signs and one.issuer != one.subject:
            what = f"{name} is the certificate of a server, not of the authority that signed it"
            raise InvalidInput(what, where=where, mend=_AUTHORITY_MEND)
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            raise InvalidInput(
                f"{name} is valid from {one.not_valid_before_utc:%Y-%m-%d} to "
                f"{one.not_valid_after_utc:%Y-%m-%d}",
                where=where,
                mend=f"Set the clock if it is wrong. {_AUTHORITY_MEND}",
            )


def check_server(tls: Path) -> None:
    """Raise ``InvalidInput`` unless a client that trusts ``ca.pem`` accepts a server with the other two.

    Args:
        tls: the folder of ``ca.pem``, ``server.pem`` and ``server.key``.
    """
    for name in ("ca.pem", "server.pem", "server.key"):
        _content(tls / name, str(tls / name), _SERVER_MEND)
    ours, theirs = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    try:
        ours.load_cert_chain(tls / "server.pem", tls / "server.key")
    except ssl.SSLError as error:
        what = f"server.pem and server.key are no certificate and its key ({_reason(error)})"
        raise InvalidInput(what, where=str(tls), mend=_SERVER_MEND) from error
    try:
        theirs.load_verify_locations(tls / "ca.pem")
    except ssl.SSLError as error:
        what = f"ca.pem is no certificate ({_reason(error)})"
        raise InvalidInput(what, where=str(tls), mend=_SERVER_MEND) from error
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
            raise InvalidInput(what, where=str(tls), mend=_SERVER_MEND) from error


# --- the keys of parties ------------------------------------------------------------------------


def make_key(path: Path, comment: str, *, replace: bool = False) -> str:
    """Make a party's key pair: the private key at ``path``, and the public key in the same folder.

    Args:
        path: file of the private key; an existing key is kept.
        comment: end of the public line, such as the party's name.
        replace: make a new pair even if there is one.

    Returns:
        The public key as one line in OpenSSH format.

    Raises:
        InvalidInput: the existing file is not such a key, or cannot be read or written.
        MissingExtra: cryptography is not installed.
    """
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        if path.exists() and not replace:
            key = load_ssh_private_key(path.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("it is on no elliptic curve")
        else:
            key = ec.generate_private_key(ec.SECP384R1())
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _private_bytes(key, openssh=True), mode=0o600)
    except (ValueError, OSError) as error:
        raise InvalidInput(
            f"this is no key of a party: {error}",
            where=str(path),
            mend="Set coordinator.key to another file, or have a new key in its place: --replace.",
        ) from error
    line = f"{_public_bytes(key.public_key()).decode()} {comment}"
    write_whole(path.with_name(path.name + ".pub"), line + "\n")
    return line


def public_key(text: str, *, where: str) -> bytes:
    """Parse a public key of a party; return it without its comment.

    Args:
        text: the key as ``consilience party key`` prints it between quotes.
        where: name of the configuration key, for errors.

    Raises:
        InvalidInput: it is not a public key of a party.
        MissingExtra: cryptography is not installed.
    """
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    mend = (
        "Invite it, and add its answer: consilience coordinator invite FOLDER NAME; or put the line there "
        "that this prints at the party: consilience party key party.toml"
    )
    if not text.strip():
        raise InvalidInput("the public key is missing", where=where, mend=mend)
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"this is no public key: {error}", where=where, mend=mend) from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise InvalidInput("the key is on no NIST curve", where=where, mend=mend)
    return _public_bytes(key)


def check_private_key(path: Path, *, where: str) -> None:
    """Raise ``InvalidInput`` unless the file holds a party's private key.

    Args:
        path: the file.
        where: the key of the configuration that names it.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    content = _content(path, where, _KEY_MEND)
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = f"{path} holds {_kind(content)}, not a party's private key"
        raise InvalidInput(what, where=where, mend=_KEY_MEND) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        what = f"{path} holds a key of another kind than Flower takes"
        raise InvalidInput(what, where=where, mend=_KEY_MEND)


def exposed(path: Path) -> str:
    """A warning where others than its owner can read or change a private key; else empty."""
    if not path.stat().st_mode & 0o077:
        return ""
    return f"others can read or change {path}, and take part in your name: chmod 600 {path}"


# --- reading and writing ------------------------------------------------------------------------


def require_cryptography() -> None:
    """Raise ``MissingExtra`` unless cryptography is installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingExtra("cryptography", extra="flower", where="keys") from error


def _private_bytes(key: EllipticCurvePrivateKey, *, openssh: bool = False) -> bytes:
    """A private key as PEM, for TLS or for OpenSSH."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    kind = PrivateFormat.OpenSSH if openssh else PrivateFormat.PKCS8
    return key.private_bytes(Encoding.PEM, kind, NoEncryption())


def _public_bytes(key: EllipticCurvePublicKey) -> bytes:
    """A public key as a line of OpenSSH, without a comment."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _general_name(host: str) -> GeneralName:
    """A host as a certificate names it."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _reason(error: ssl.SSLError) -> str:
    """The cause of an error of TLS, in words."""
    said = getattr(error, "verify_message", "") or error.reason or "not PEM"
    return str(said).replace("_", " ").lower()


def _content(path: Path, where: str, mend: str) -> bytes:
    """The bytes of a file, or ``InvalidInput`` for the key of the configuration that names it."""
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
    """Guess the kind of content of a file, in words."""
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

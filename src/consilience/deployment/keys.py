"""Keys and certificates: a private authority for the coordinator's TLS, and a key pair for each party.

Flower takes a party's keys as OpenSSH writes them, on a NIST curve; here P-384.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.errors import InvalidInput, MissingExtra
from consilience.files import write_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import GeneralName

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""Days that certificates hold; more than this some libraries refuse of a server's."""


def make_authority(folder: Path, host: str) -> None:
    """Make a private authority and a server certificate for a host.

    ``ca.pem`` goes to every party; ``server.pem`` and ``server.key`` are the server's own. The certificate
    also holds for ``localhost`` and ``127.0.0.1``. The authority's key is forgotten at once, so that nobody
    can take it: for another host, make both anew and give the parties the new ``ca.pem``.

    Args:
        folder: a new one.
        host: a name or an IP address.

    Raises:
        InvalidInput: the folder is there, or cannot be written.
        MissingExtra: cryptography is not installed.
    """
    x509, hashes, ec, oid = _x509()
    now = datetime.now(UTC) - timedelta(minutes=5)  # for clocks that are behind
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, "consilience private CA")])
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, "consilience coordinator")])

    def usage(*, signs: bool) -> Any:
        given = {"digital_signature": not signs, "key_cert_sign": signs, "crl_sign": signs}
        rest = (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        )
        return x509.KeyUsage(**given, **dict.fromkeys(rest, False))

    def begun(name: Any, key: Any, days: int) -> Any:
        identity = x509.SubjectKeyIdentifier.from_public_key(key)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(identity, critical=False)
        )

    ours, theirs = authority.public_key(), server.public_key()
    root = (
        begun(issuer, ours, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(signs=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    leaf = (
        begun(subject, theirs, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [_name(one) for one in dict.fromkeys((host, "localhost", "127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(authority, hashes.SHA256())
    )
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InvalidInput(f"cannot be made ({error.strerror})", where=str(folder)) from error
    write_whole(folder / "ca.pem", root.public_bytes(pem), mode=0o644)
    write_whole(folder / "server.pem", leaf.public_bytes(pem), mode=0o644)
    write_whole(folder / "server.key", _private(server), mode=0o600)


def certified_hosts(path: Path) -> tuple[str, ...]:
    """The names and addresses that a server certificate holds for.

    Raises:
        InvalidInput: it is no certificate, or no longer valid.
        MissingExtra: cryptography is not installed.
    """
    x509 = cryptography_x509()
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


def make_key(path: Path, comment: str, *, replace: bool = False) -> str:
    """Make a party's key pair: the private key at ``path``, the public one beside it; gives its line.

    Where the private key is there already, its public line is given, unless it is to be replaced.

    Raises:
        InvalidInput: what is there is no such key, or cannot be read or written.
        MissingExtra: cryptography is not installed.
    """
    _, _, ec, _ = _x509()
    from cryptography.hazmat.primitives import serialization

    try:
        if path.exists() and not replace:
            key = serialization.load_ssh_private_key(path.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("it is on no elliptic curve")
        else:
            key = ec.generate_private_key(ec.SECP384R1())
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _private(key, openssh=True), mode=0o600)
    except (ValueError, OSError) as error:
        raise InvalidInput(
            f"this is no key of a party: {error}",
            where=str(path),
            mend="Set coordinator.key to another file, or have a new key in its place: --replace.",
        ) from error
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    text = f"{line.decode()} {comment}"
    write_whole(path.with_name(path.name + ".pub"), text + "\n")
    return text


def public_key(text: str, *, where: str) -> bytes:
    """A public key of a party, without its comment.

    Raises:
        InvalidInput: it is none.
        MissingExtra: cryptography is not installed.
    """
    _, _, ec, _ = _x509()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    mend = "Give the line that this prints at the party: consilience party key party.toml"
    if not text.strip():
        raise InvalidInput("the public key is missing", where=where, mend=mend)
    try:
        key = serialization.load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"this is no public key: {error}", where=where, mend=mend) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInput("the key is on no NIST curve", where=where, mend=mend)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return bytes(line)


def _private(key: EllipticCurvePrivateKey, *, openssh: bool = False) -> bytes:
    from cryptography.hazmat.primitives import serialization

    kind = serialization.PrivateFormat.OpenSSH if openssh else serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def cryptography_x509() -> Any:
    """The module of certificates.

    Raises:
        MissingExtra: cryptography is not installed.
    """
    return _x509()[0]


def _x509() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import oid
    except ImportError as error:
        raise MissingExtra("cryptography", extra="flower", where="keys") from error
    return x509, hashes, ec, oid

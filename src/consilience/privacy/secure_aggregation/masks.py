"""Keys, masks and shares of secure sums on bytes: X25519, HKDF-SHA256, AES and Shamir's scheme.

The first four are those of ``cryptography``. Shamir's scheme is written here, over the integers modulo the
smallest prime above 2^256, so that a secret of 32 bytes is one number: the one of ``pycryptodome`` takes
secrets of 16 bytes, in a field of polynomials that Python computes in far more slowly.

Source:
    Shamir 1979, "How to share a secret". Bonawitz et al. 2017, section 4, for their use.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused, MissingExtra
from consilience.core.messages.schema import MOST_SUMMED
from consilience.core.validation.arrays import Array

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError as error:
    raise MissingExtra("cryptography", extra="secure-sum", where="secure sums") from error

SECRET = 32
"""Bytes of a secret."""

PRIME = 2**256 + 297
"""Size of the field of shares: the smallest prime above all secrets."""

FEWEST = 3
"""Minimum number of parties of a sum; in a sum of two, each party could compute the other's input."""

_NONCE = bytes(12)
"""Constant nonce, because every key encrypts only one message."""


def public_of(private: bytes) -> bytes:
    """Compute the public X25519 key of a private one, 32 bytes each."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared_key(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """Derive the key of 32 bytes that two parties share for one purpose.

    Args:
        private: one party's private X25519 key.
        public: the other's public one.
        purpose: bytes that no other key is derived with.

    Raises:
        KnowledgeRefused: the public key is none.
    """
    mine = X25519PrivateKey.from_private_bytes(private)
    try:
        agreed = mine.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise KnowledgeRefused("a public key that is none") from error
    return HKDF(algorithm=SHA256(), length=SECRET, salt=None, info=purpose).derive(agreed)


def mask(seed: bytes, count: int) -> Array:
    """Draw a mask: uniform integers modulo 2^64, shape ``(count,)``, by AES-256 in counter mode.

    Args:
        seed: 32 bytes, used for one mask alone.
        count: number of integers.
    """
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")


def seal(key: bytes, message: bytes) -> bytes:
    """Encrypt and authenticate the one message of a key (AES-256-GCM), 16 bytes longer than it was."""
    return AESGCM(key).encrypt(_NONCE, message, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt the output of :func:`seal`.

    Raises:
        KnowledgeRefused: it was encrypted with another key, or changed.
    """
    try:
        return AESGCM(key).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise KnowledgeRefused("shares that nobody sealed for this party") from error


def sign(private: bytes, message: bytes) -> bytes:
    """Sign a message by ECDSA with SHA-384.

    Args:
        private: a private key on a NIST curve, in OpenSSH's form, as ``consilience party key`` makes it.
        message: the message.
    """
    key = load_ssh_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.sign(message, ec.ECDSA(SHA384()))


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public key signed a message.

    Args:
        public: the key, in the one-line format of OpenSSH.
        message: the message.
        signature: the signature.
    """
    key = load_ssh_public_key(public.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        key.verify(signature, message, ec.ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def check_public_key(line: str, *, where: str) -> None:
    """Raise ``InvalidInput`` unless a line is a public key on a NIST curve, as OpenSSH writes it."""
    try:
        key: object = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        key = error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInput(
            "this is no public key of a party",
            where=where,
            mend="Copy the line that this prints there: consilience party key party.toml",
        )


def least_threshold(parties: int) -> int:
    """Compute the smallest permitted threshold for a number of parties: more than two thirds.

    >>> [least_threshold(n) for n in (3, 4, 5, 6, 10)]
    [3, 3, 4, 5, 7]
    """
    return 2 * parties // 3 + 1


def odd_sum(parties: int, threshold: int) -> str:
    """Explain why a sum of this many parties with this threshold is not allowed; empty if it is allowed."""
    if not FEWEST <= parties <= MOST_SUMMED:
        return f"a sum of {parties} parties, of {FEWEST} to {MOST_SUMMED}"
    if not least_threshold(parties) <= threshold <= parties:
        least = least_threshold(parties)
        return f"{threshold} of {parties} parties would open the sum, of {least} to {parties}"
    return ""


def may_collude(parties: int, threshold: int) -> int:
    """Return the largest number of parties that may collude if each input must be in one sum only.

    This applies to shared noise. A larger number of colluding parties could pretend not to have opened a sum.
    Then two sums of an honest party could be opened by two sets of ``threshold`` parties without an honest
    party in common.
    """
    return 2 * threshold - parties - 1


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Split a secret of 32 bytes into shares, such that any ``threshold`` of them recover it (Shamir).

    Fewer shares reveal no information about the secret.

    Args:
        secret: the secret.
        threshold: number of shares that recover the secret.
        count: number of shares.

    Returns:
        Values of a random polynomial at 1, 2, …, ``count``, 33 bytes each; its value at 0 is the secret.

    >>> shares = split(bytes(range(32)), 2, 3)
    >>> combine({1: shares[0], 3: shares[2]}) == bytes(range(32))
    True
    """
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    polynomial.append(int.from_bytes(secret))
    shares = []
    for x in range(1, count + 1):
        value = 0
        for coefficient in polynomial:
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SECRET + 1))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes | None:
    """Recover the secret from shares; ``None`` if the shares do not belong to a secret of 32 bytes.

    Args:
        shares: maps positions, from 1 on, to shares; as many as the threshold of the split.
    """
    total = 0
    for x, share in shares.items():
        above = below = 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total += int.from_bytes(share) * above * pow(below, -1, PRIME)
    secret = total % PRIME
    return secret.to_bytes(SECRET) if secret < 2**256 else None

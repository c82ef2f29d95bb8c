"""Identification of the party that signed a call of a SuperNode, from the call's headers only.

Flower reads the whole body of a call before it verifies the signature, which is in the headers and does not
cover the body. The gate in front of the SuperLink verifies the signature first.
"""

from __future__ import annotations

import datetime
from base64 import b64decode
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from consilience.sites.transport.flower.internals import insides


def caller(headers: Mapping[bytes, bytes], keys: Iterable[str]) -> str | None:
    """Return the key that signed a call within the last minutes.

    Args:
        headers: the call's; their names are in lower case.
        keys: public keys of the parties, as OpenSSH writes them.

    Returns:
        One of the keys; ``None`` for a stranger, or if the clocks differ by minutes.

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
    """
    names, oldest, newest, now = _flowers()
    try:
        shown, signature = (b64decode(headers[name], validate=True) for name in names[:2])
        time = headers[names[2]].decode("ascii")
        age = (now() - datetime.datetime.fromisoformat(time)).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None
    # The keys are compared first, so that a stranger causes no arithmetic.
    found = next((key for key in keys if _as_pem(key) == shown), None)
    if found is None or not oldest < age < newest or not _signed(shown, time, signature):
        return None
    return found


def _signed(shown: bytes, time: str, signature: bytes) -> bool:
    """Return true if the owner of a key signed the time."""
    read, verify = insides(
        "flwr.supercore.primitives.asymmetric", "bytes_to_public_key", "verify_signature"
    )
    return bool(verify(read(shown), time.encode("ascii"), signature))


@cache
def _flowers() -> tuple[tuple[bytes, ...], float, float, Any]:
    """Flower's names of the headers (key, signature, time), bounds of a call's age in seconds, and clock."""
    names = ("FLEET_HTTP_PUBLIC_KEY_HEADER", "FLEET_HTTP_SIGNATURE_HEADER")
    bounds = ("MIN_TIMESTAMP_DIFF_SECONDS", "MAX_TIMESTAMP_DIFF_SECONDS")
    *headers, oldest, newest = insides("flwr.supercore.constant", *names, *bounds)
    (time,) = insides("flwr.common.constant", "TIMESTAMP_HEADER")
    named = tuple(str(name).encode().lower() for name in (*headers, time))
    return named, oldest, newest, import_module("flwr.supercore.date").now


@lru_cache(maxsize=1000)
def _as_pem(key: str) -> bytes:
    """A public key as Flower sends it."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_public_key,
    )

    public = load_ssh_public_key(key.encode())
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

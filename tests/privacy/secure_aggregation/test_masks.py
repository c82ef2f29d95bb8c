"""Pieces of secure sums: shares that tell nothing below the threshold, masks, seals and signatures."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import KnowledgeRefused
from consilience.privacy.secure_aggregation.masks import (
    PRIME,
    combine,
    mask,
    public_of,
    seal,
    shared_key,
    sign,
    split,
    unseal,
    verify,
)
from consilience.sites.operations.certificates import make_key

ONE, OTHER = bytes(range(32)), bytes(range(32, 64))


def test_any_threshold_of_the_shares_gives_the_secret() -> None:
    secret = b"\xff" * 32
    shares = split(secret, 3, 5)
    for places in combinations(range(1, 6), 3):
        assert combine({x: shares[x - 1] for x in places}) == secret


def test_fewer_shares_are_of_every_secret_alike() -> None:
    """Two shares and any value at 0 are of one polynomial: of all secrets each is as likely as before."""
    two = dict(enumerate(split(ONE, 3, 5)[:2], 1))
    for secret in (0, 1, 2**256 - 1):
        # The parabola through both shares and the secret, at 3: as good a third share as the true one.
        first, second = (int.from_bytes(two[x]) for x in (1, 2))
        third = (secret - 3 * first + 3 * second) % PRIME
        assert combine({**two, 3: third.to_bytes(33)}) == secret.to_bytes(32)


def test_a_number_that_is_no_secret_is_none() -> None:
    assert combine({1: (2**256).to_bytes(33), 2: (2**256).to_bytes(33)}) is None


def test_a_mask_is_aes_in_counter_mode() -> None:
    """Known answer: AES-256 of the counters 0 and 1 under the key 0…0."""
    expected = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"
    assert mask(bytes(32), 4).astype("<u8").tobytes().hex() == expected
    assert not np.array_equal(mask(ONE, 4), mask(OTHER, 4))


def test_both_ends_have_the_same_key_for_each_purpose() -> None:
    keys = [shared_key(a, public_of(b), b"p") for a, b in ((ONE, OTHER), (OTHER, ONE))]
    assert keys[0] == keys[1] != shared_key(ONE, public_of(OTHER), b"q")
    with pytest.raises(KnowledgeRefused, match="none"):
        shared_key(ONE, bytes(32), b"p")  # of low order: everybody knows what comes out


def test_what_was_changed_does_not_unseal() -> None:
    sealed = seal(ONE, b"shares")
    assert unseal(ONE, sealed) == b"shares"
    for key, data in ((OTHER, sealed), (ONE, sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        with pytest.raises(KnowledgeRefused):
            unseal(key, data)


def test_signatures_are_of_one_key_and_one_message(tmp_path: Path) -> None:
    lines = {name: make_key(tmp_path / name, name) for name in "ab"}
    signature = sign((tmp_path / "a").read_bytes(), b"keys")
    assert verify(lines["a"], b"keys", signature)
    assert not verify(lines["b"], b"keys", signature)
    assert not verify(lines["a"], b"others", signature)

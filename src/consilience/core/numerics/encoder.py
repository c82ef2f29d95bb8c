"""Interface of encoders, which compute the features used to compare rows."""

from __future__ import annotations

from typing import Any, Protocol

from consilience.core.errors import InvalidInput
from consilience.core.registry import registered_object
from consilience.core.validation.arrays import Array

LONGEST_KEY = 128
"""Characters of an encoder's digest, at most."""


class Encoder(Protocol):
    """Features of rows learned elsewhere, such as word embeddings or a pretrained network.

    An encoder maps n rows to numbers, shape ``(n, d)``; the features of a row do not depend on the other
    rows.
    """

    @property
    def key(self) -> str:
        """Digest of everything that its features depend on: parties agree on it when they join."""

    def __call__(self, X: Array, /) -> Any:
        """Compute the features of rows."""


def check_encoder(encoder: object) -> None:
    """Raise ``InvalidInput`` unless this is an :class:`Encoder` with a digest to agree on."""
    key = getattr(encoder, "key", None)
    if not callable(encoder) or isinstance(encoder, type):
        raise InvalidInput(
            f"an encoder is a function of rows, and this is {encoder!r}"[:200],
            where="encoder",
            mend="Give the name of one (consilience list encoders), or a callable with a key.",
        )
    if not isinstance(key, str) or not key or not key.isprintable() or len(key) > LONGEST_KEY:
        raise InvalidInput(
            f"its key is {key!r}"[:200],
            where="encoder",
            mend="Give it an attribute key: the digest of its file, a text of 1 to "
            f"{LONGEST_KEY} characters, by which parties know that they have the same one.",
        )


def find_encoder(encoder: Encoder | str) -> Encoder:
    """Find an encoder by its name, or check a given encoder.

    Args:
        encoder: a callable with a ``key``, or a name for the function that packages register under
            ``consilience.encoders``.

    Returns:
        The encoder.

    Raises:
        InvalidInput: ``encoder`` is not an encoder, or the name is unknown.
    """
    if not isinstance(encoder, str):
        check_encoder(encoder)
        return encoder
    found: Encoder = registered_object("consilience.encoders", "named")(encoder)
    return found

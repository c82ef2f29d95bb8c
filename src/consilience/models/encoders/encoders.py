"""Encoders: compute features of rows with pretrained models, which were trained on large public collections.

Parties compare rows by these features (:mod:`consilience.core.numerics.feature_space`), and models can use
them as inputs (:mod:`consilience.models.encoders.transformer`). The pretrained files come with packages of
Python's registry. This module downloads no file; it reads only data from these packages and runs none of
their code.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, MissingExtra, nearest
from consilience.core.numerics.encoder import Encoder, check_encoder
from consilience.core.validation.arrays import Array
from consilience.models.files.trust import ForeignCode, find, trusted


@dataclass(frozen=True)
class EncoderEntry:
    """A named encoder.

    Attributes:
        summary: one line for ``consilience list encoders``.
        target: its class, as ``"package.module:name"``.
        extra: the extra of this package that the encoder requires.
    """

    summary: str
    target: str
    extra: str


ENCODERS: Mapping[str, EncoderEntry] = {
    "static-words": EncoderEntry(
        "texts: the mean of static word embeddings, 256 numbers",
        "consilience.models.encoders.encoders:StaticWords",
        "embeddings",
    ),
    "photographs": EncoderEntry(
        "pictures: the last layer of a small network that was trained on ImageNet, 1,280 numbers",
        "consilience.models.encoders.photographs:Photographs",
        "images",
    ),
}
"""The encoders that come with consilience."""


def find_encoder(encoder: Encoder | str) -> Encoder:
    """Find an encoder by its name, or check a given encoder.

    Args:
        encoder: a name of :data:`ENCODERS`; the import path, ``"package.module:name"``, of a callable or of a
            class of callables, which is accepted only inside of :func:`consilience.models.trusting`; or the
            callable itself.

    Returns:
        The encoder, a callable from rows to features of shape ``(n, d)``.

    Raises:
        InvalidInput: an unknown name, with the nearest known one, or an object other than an encoder.
        ForeignCode: an import path outside of :func:`consilience.models.trusting`; it was not
            imported.
        MissingExtra: the encoder's package is not installed.
    """
    if not isinstance(encoder, str):
        check_encoder(encoder)
        return encoder
    if encoder in ENCODERS:
        return _named(encoder)
    check_encoder_name(encoder)
    if not trusted(encoder):
        raise ForeignCode(encoder, "encoder")
    try:
        found = find(encoder)
    except ImportError as error:
        raise InvalidInput(f"cannot be imported: {error}", where=encoder) from error
    made = found() if isinstance(found, type) else found
    check_encoder(made)
    known: Encoder = made
    return known


def check_encoder_name(name: str) -> None:
    """Raise ``InvalidInput`` unless the name is a known encoder or looks like an import path."""
    if name not in ENCODERS and ":" not in name:
        raise InvalidInput(f"unknown encoder {name!r}", mend=nearest(name, ENCODERS))


@cache
def _named(name: str) -> Encoder:
    """The encoder of a name, whose file is read once in a process."""
    entry = ENCODERS[name]
    try:
        made: Encoder = find(entry.target)()
    except ModuleNotFoundError as error:
        missing = error.name or entry.extra
        raise MissingExtra(missing, extra=entry.extra, where=f"encoder {name!r}") from error
    return made


def packaged(package: str, *parts: str) -> Path:
    """Return the path of a data file of an installed package, without importing the package.

    Args:
        package: its name.
        parts: folders and the name of the file within it.

    Raises:
        ModuleNotFoundError: there is no such package, or not with this file.
    """
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (path := Path(place, *parts)).is_file():
            return path
    raise ModuleNotFoundError(f"no file {parts[-1]} of {package}", name=package)


class RowEncoder:
    """Base class of encoders that keep the features of rows they have seen.

    A row's features depend on no other row, and are the same bits whatever rows come with it.
    """

    name: str
    """Name in :data:`ENCODERS`."""
    most_kept: int = 2**28
    """Largest size of the feature cache, in bytes; every round requires the features of the same rows."""

    def __init__(self) -> None:
        self._kept: dict[Any, Array] = {}

    @property
    @abstractmethod
    def key(self) -> str:
        """Digest of everything that its features depend on."""

    @abstractmethod
    def compute(self, X: Array) -> Array:
        """Compute the features of rows, shape ``(n, d)``, float32."""

    def __call__(self, X: Array, /) -> Array:
        """Return the features of rows, shape ``(n, d)``, float32; compute only the uncached ones."""
        X = np.asarray(X)
        names = [str(row) if X.dtype.kind in "UO" else _digest(row) for row in X]
        new = {name: i for i, name in enumerate(names) if name not in self._kept}
        found = dict(zip(new, self.compute(X[list(new.values())]), strict=True)) if new else {}
        rows = np.stack([found[name] if name in found else self._kept[name] for name in names])
        self._kept.update(found)
        while len(self._kept) * rows[0].nbytes > self.most_kept:
            del self._kept[next(iter(self._kept))]
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return find_encoder, (self.name,)


def _digest(row: Array) -> bytes:
    about = f"{row.dtype}{row.shape}".encode()
    return hashlib.blake2b(about + row.tobytes(), digest_size=16).digest()


class StaticWords(RowEncoder):
    """Mean of static embeddings of a text's tokens: 256 numbers, zeros for a text of none.

    Raises:
        ModuleNotFoundError: the package ``wordllama`` or ``tokenizers`` is not installed.

    Source:
        Package ``wordllama`` 0.4.0.post1 (MIT), ``l2_supercat_256``: token embeddings of language models,
        trained further to compare texts. Its two data files are read; its mean pads to the longest text.
    """

    name = "static-words"

    def __init__(self) -> None:
        super().__init__()
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        files = (
            packaged("wordllama", "weights", "l2_supercat_256.safetensors"),
            packaged("wordllama", "tokenizers", "l2_supercat_tokenizer_config.json"),
        )
        self._files = files
        self._vectors = load_file(files[0])["embedding.weight"]
        self._tokenizer = Tokenizer.from_file(str(files[1]))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @cached_property
    def key(self) -> str:
        """Digest of both files."""
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in self._files]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def compute(self, X: Array) -> Array:
        if X.ndim != 1 or X.dtype.kind not in "UO":
            raise InvalidInput(
                f"it reads texts, and a row has shape {X.shape[1:]} of {X.dtype}",
                where=f"encoder {self.name!r}",
                mend="For pictures take photographs; columns need no encoder.",
            )
        found = np.zeros((len(X), self._vectors.shape[1]), np.float32)
        for i, text in enumerate(map(str, X)):
            if tokens := self._tokenizer.encode(text, add_special_tokens=False).ids:
                found[i] = self._vectors[tokens].mean(axis=0, dtype=np.float32)
        return found

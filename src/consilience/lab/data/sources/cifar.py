"""CIFAR-10 and CIFAR-100 from the python pickles, loose, packed, or in the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.lab.data.downloads import damaged, find, obtain, read_archive, read_bytes
from consilience.lab.data.sources.unpickle import read_pickle
from consilience.tables.dataset import Dataset
from consilience.tables.splits import take_public

ADDRESS = "https://www.cs.toronto.edu/~kriz/"
TRAIN_ROWS = 50_000


def load_cifar_10() -> Dataset:
    """Colour images, shape ``(3, 32, 32)``, pixels in [0, 1]; ten classes.

    Uses the training batches present in the folder; ``notes`` records their number of the 50,000 rows.
    """
    source = _Source(
        "cifar-10",
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        known_hash="md5:c58f30108f718f92721af3b95e74349a",
        needed="test_batch",
    )
    batches = [source.read(f"data_batch_{i}") for i in range(1, 6)]
    found = [batch for batch in batches if batch is not None]
    if not found:
        raise InvalidInput("no training batch (data_batch_1 to 5) was found", where=source.where)
    X, y = _images(found, b"labels", source.where)
    X_test, y_test = _images([source.require("test_batch")], b"labels", source.where)
    return Dataset(
        name="cifar-10",
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        classes=_names(source.require("batches.meta"), b"label_names", source.where),
        notes=_how_much(len(X)),
    )


def load_cifar_100(*, coarse: bool = False, test_fraction: float = 0.3, seed: int = 0) -> Dataset:
    """Colour images, shape ``(3, 32, 32)``, pixels in [0, 1]; 100 classes or 20.

    Args:
        coarse: whether to use the 20 coarse labels.
        test_fraction: share of the test file kept for testing if the folder has no training file; the
            remaining rows become training rows, which ``notes`` records.
        seed: seed of that split; the same seed gives the same split.
    """
    source = _Source(
        "cifar-100",
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        known_hash="md5:eb9058c3a382ffc7106e4002c42a8d85",
        needed="test",
    )
    kind = b"coarse_labels" if coarse else b"fine_labels"
    names = _names(source.require("meta"), kind[:-1] + b"_names", source.where)
    test_batch, train_batch = source.require("test"), source.read("train")
    X_test, y_test = _images([test_batch], kind, source.where)
    if train_batch is not None:
        X, y = _images([train_batch], kind, source.where)
        notes = _how_much(len(X))
    else:
        rng = stream(seed, "cifar-100", 0, "test split")
        fine = np.asarray(test_batch[b"fine_labels"])
        train, test = take_public(fine, float(test_fraction), rng)
        X, y, X_test, y_test = X_test[train], y_test[train], X_test[test], y_test[test]
        notes = (
            f"No training file was found: {len(train):,} rows of the original test file are for "
            f"training and {len(test):,} for testing (seeded stratified split)."
        )
    return Dataset(
        name="cifar-100-coarse" if coarse else "cifar-100",
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        classes=names,
        notes=notes,
    )


class _Source:
    """Place of the pickles of one dataset: loose files (plain or .xz), or the archive."""

    def __init__(
        self, dataset: str, *, folder: str, archive: str, known_hash: str, needed: str
    ) -> None:
        self.dataset, self.folder = dataset, folder
        self.packed: dict[str, bytes] | None = None
        if found := self._loose(needed):
            self.where = str(found.parent)
        else:
            path = obtain(dataset, archive, ADDRESS + archive, known_hash)
            self.where, self.packed = str(path), read_archive(path)

    def require(self, file: str) -> dict[bytes, Any]:
        content = self.read(file)
        if content is None:
            raise InvalidInput(f"{file} was not found", where=self.where)
        return content

    def read(self, file: str) -> dict[bytes, Any] | None:
        if self.packed is not None:
            content = self.packed.get(f"{self.folder}/{file}")
        else:
            found = self._loose(file)
            content = read_bytes(found) if found else None
        if content is None:
            return None
        table = read_pickle(content, where=f"{self.where}/{file}")
        if not isinstance(table, dict):
            raise damaged(f"{self.where}/{file}", "not a dict")
        return table

    def _loose(self, file: str) -> Path | None:
        return find(
            self.dataset, file, f"{file}.xz", f"{self.folder}/{file}", f"{self.folder}/{file}.xz"
        )


def _images(batches: list[dict[bytes, Any]], labels: bytes, where: str) -> tuple[Array, Array]:
    """All rows of some batches: a row is 1,024 red, then green, then blue bytes."""
    try:
        raw = np.concatenate([np.asarray(batch[b"data"], dtype=np.uint8) for batch in batches])
        y = np.concatenate([np.asarray(batch[labels], dtype=np.int64) for batch in batches])
        X = raw.reshape(-1, 3, 32, 32).astype(np.float32)
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(where, f"not a CIFAR batch: {error}") from error
    X /= 255
    return X, y


def _names(meta: dict[bytes, Any], key: bytes, where: str) -> tuple[str, ...]:
    if key not in meta:
        raise damaged(where, f"the meta file has no {key.decode()}")
    return tuple(name.decode() for name in meta[key])


def _how_much(rows: int) -> str:
    return "" if rows == TRAIN_ROWS else f"{rows:,} of {TRAIN_ROWS:,} training rows found."

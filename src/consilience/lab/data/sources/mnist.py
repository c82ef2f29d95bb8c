"""MNIST, Fashion-MNIST and EMNIST: images and labels in IDX files."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.lab.data.downloads import damaged, find, obtain, read_bytes
from consilience.tables.dataset import Dataset

MNIST_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_HASHES = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
FASHION_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_HASHES = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
EMNIST_ADDRESS = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
EMNIST_HASH = "md5:58c8d27c78d21e728a6bc7b3cc06412e"

CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
EMNIST_CLASSES = {
    "letters": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "digits": tuple("0123456789"),
}


def load_mnist() -> Dataset:
    """60,000 + 10,000 handwritten digits, 28x28 pixels in [0, 1]."""
    return _load_four("mnist", tuple("0123456789"), MNIST_ADDRESS, MNIST_HASHES)


def load_fashion_mnist() -> Dataset:
    """60,000 + 10,000 pieces of clothing, 28x28 pixels in [0, 1]."""
    return _load_four("fashion-mnist", CLOTHES, FASHION_ADDRESS, FASHION_HASHES)


def load_emnist(*, split: str = "letters") -> Dataset:
    """Handwritten letters (26 classes, both cases in one) or digits (10), 28x28 in [0, 1].

    Args:
        split: ``"letters"`` or ``"digits"``.
    """
    if split not in EMNIST_CLASSES:
        raise InvalidInput(
            f"unknown split {split!r}", where="emnist", mend=nearest(split, EMNIST_CLASSES)
        )
    names = [
        f"emnist-{split}-{side}-{what}-ubyte.gz"
        for side in ("train", "test")
        for what in ("images-idx3", "labels-idx1")
    ]
    X, y, X_test, y_test = (read_idx(_emnist_file(name)) for name in names)
    # Letters are numbered from 1 in the files; codes count from 0.
    first = 1 if split == "letters" else 0
    return Dataset(
        name=f"emnist-{split}",
        X=_upright(X),
        y=y.astype(np.int64) - first,
        X_test=_upright(X_test),
        y_test=y_test.astype(np.int64) - first,
        classes=EMNIST_CLASSES[split],
    )


def read_idx(path: Path) -> Array:
    """The array in an IDX file of unsigned bytes, packed or not.

    The header is two zero bytes, the type (8 for uint8), the number of axes, and each axis's
    length as a big-endian 32-bit integer.
    """
    content = read_bytes(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise damaged(path, "not an IDX file of bytes")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise damaged(path, "the header ends early")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != int(np.prod(shape)):
        raise damaged(path, f"{len(content) - start:,} bytes for shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _load_four(
    name: str, classes: tuple[str, ...], address: str, hashes: dict[str, str]
) -> Dataset:
    X, y, X_test, y_test = (
        read_idx(
            find(name, file.removesuffix(".gz")) or obtain(name, file, address + file, known_hash)
        )
        for file, known_hash in hashes.items()
    )
    return Dataset(
        name=name,
        X=_unit(X),
        y=y.astype(np.int64),
        X_test=_unit(X_test),
        y_test=y_test.astype(np.int64),
        classes=classes,
    )


def _emnist_file(name: str) -> Path:
    """Find one of NIST's files, or unpack it from gzip.zip into the archive's folder."""
    plain = name.removesuffix(".gz")
    if found := find("emnist", name, plain, f"gzip/{name}", f"gzip/{plain}"):
        return found
    archive = obtain("emnist", "gzip.zip", EMNIST_ADDRESS, EMNIST_HASH)
    try:
        with zipfile.ZipFile(archive) as packed:
            return Path(packed.extract(f"gzip/{name}", archive.parent))
    except (zipfile.BadZipFile, KeyError) as error:
        raise damaged(archive, str(error)) from error


def _unit(pixels: Array) -> Array:
    return pixels.astype(np.float32) / np.float32(255)


def _upright(pixels: Array) -> Array:
    """EMNIST's files hold every image with rows and columns exchanged."""
    return np.ascontiguousarray(_unit(pixels).transpose(0, 2, 1))

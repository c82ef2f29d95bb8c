"""Small networks for the presets, made to the shape of a party's inputs."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consilience.errors import InvalidInput, nearest
from consilience.learners.torch.images import Layout, layout_of
from consilience.learners.torch.learner import Factory
from consilience.validation.arrays import Array


def mlp(*, hidden: Sequence[int] = (64,)) -> Factory:
    """Fully connected layers with ReLU between them; images are flattened.

    Args:
        hidden: the widths of the hidden layers.
    """
    _whole_numbers("hidden", hidden)
    return partial(_mlp, hidden=tuple(hidden))


def cnn(
    *,
    channels: Sequence[int] = (16, 32),
    hidden: int | Sequence[int] = 64,
    kernel: int = 3,
    padded: bool = True,
) -> Factory:
    """Convolutions with ReLU and 2×2 pooling, then hidden layers.

    Takes grey images ``(height, width)``, colour ones with the 1 or 3 channels first or last, and
    flat rows whose length is a square.

    Args:
        channels: filters of each convolution.
        hidden: width of the fully connected layer, or of several.
        kernel: height and width of a filter, odd.
        padded: whether a convolution keeps the height and width of what it sees.
    """
    _whole_numbers("channels", channels)
    widths = [hidden] if isinstance(hidden, int) else hidden
    _whole_numbers("hidden", widths)
    if not widths:
        raise InvalidInput("there is no hidden layer", where="cnn", mend="Give one width or more.")
    _whole_numbers("kernel", [kernel])
    if kernel % 2 == 0:
        raise InvalidInput(f"kernel is {kernel}", where="cnn", mend="Give an odd number.")
    return partial(
        _cnn, channels=tuple(channels), hidden=tuple(widths), kernel=kernel, padded=bool(padded)
    )


def lenet5(*, activation: str = "relu") -> Factory:
    """LeNet-5: convolutions 6 and 16 of 5×5 with 2×2 mean pooling, then layers of 120 and 84.

    Images up to 32×32, in the layouts that :func:`cnn` takes, lie in the middle of a 32×32 field of
    zeros, as the paper's 28×28 digits do. As is usual today, pooling has no factors to train, every
    filter sees all maps, and the outputs are linear.

    Args:
        activation: ``"relu"``, which learns better from few images, or the paper's ``"tanh"``.

    Source:
        LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document
        Recognition", section II.B.
    """
    if activation not in _ACTIVATIONS:
        raise InvalidInput(f"activation is {activation!r}", mend=nearest(activation, _ACTIVATIONS))
    return partial(_lenet5, activation=activation)


def vgg16(*, hidden: Sequence[int] = (512, 512), batch_norm: bool = True) -> Factory:
    """VGG-16: thirteen convolutions of 3×3 in five stages, each ended by pooling, then full layers.

    Takes images of 32×32 or more in the layouts that :func:`cnn` takes. 15 million parameters at 32×32: a
    matter for a GPU.

    Args:
        hidden: widths of the full layers; the paper's for 224×224 images are ``(4096, 4096)``.
        batch_norm: normalise after every convolution, as is usual since; the paper's network does not, and
            learns slowly from scratch.

    Source:
        Simonyan & Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
        table 1, column D.
    """
    _whole_numbers("hidden", hidden)
    return partial(_vgg16, hidden=tuple(hidden), batch_norm=bool(batch_norm))


def resnet18(*, width: int = 64, norm: str = "batch") -> Factory:
    """ResNet-18 for small images: a 3×3 convolution, no pooling, four stages of two blocks, their mean.

    Takes images in the layouts that :func:`cnn` takes. Widths double from stage to stage, 64 to 512, and
    heights and widths halve: 11 million parameters, a matter for a GPU. A block whose input has another
    shape than its output adds it through a 1×1 convolution.

    Args:
        width: filters of the first stage; 8 makes a network for a CPU, of 176,000 parameters.
        norm: ``"batch"``, whose running means and variances travel where parameters are averaged; or
            ``"group"`` (Wu & He 2018), which keeps none and does better there when classes are split between
            parties (Hsieh et al. 2020).

    Source:
        He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition", table 1 (18-layer), with the
        first layer of section 4.2.
    """
    return _residual("resnet18", (2, 2, 2, 2), width, norm)


def resnet8(*, width: int = 16, norm: str = "batch") -> Factory:
    """The ResNet of 6n + 2 layers for n = 1: a convolution, three stages of one block, and their mean.

    78,000 parameters, for CIFAR-10 on a CPU. As :func:`resnet18` otherwise; the paper's blocks add their
    input without a convolution.

    Args:
        width: filters of the first stage.
        norm: as for :func:`resnet18`.

    Source:
        He, Zhang, Ren, Sun 2016, section 4.2.
    """
    return _residual("resnet8", (1, 1, 1), width, norm)


def text_embedding(
    *,
    buckets: int = 2**14,
    width: int = 32,
    hidden: Sequence[int] = (),
    ngrams: int = 1,
    longest: int = 256,
) -> Factory:
    """The mean of a vector for each word, then full layers: for texts, without a vocabulary.

    Words become numbers by :func:`hashed_words`, the same at every party, so that such networks can be
    averaged and sent to others. They hold no words; but which vectors training has moved says which
    buckets its texts hold.

    Args:
        buckets: different words that can be told apart.
        width: of a word's vector.
        hidden: widths of hidden layers; none for a linear classifier, which is what fastText is.
        ngrams: 1 for single words; 2 for pairs of neighbours too, which short texts gain by.
        longest: words of a text that are read.

    Source:
        Joulin, Grave, Bojanowski, Mikolov 2017, "Bag of Tricks for Efficient Text Classification".
    """
    _whole_numbers("hidden", hidden)
    sizes = {"buckets": buckets, "width": width, "ngrams": ngrams, "longest": longest}
    for name, size in sizes.items():
        _whole_numbers(name, [size])
    return partial(
        _text_embedding,
        buckets=buckets,
        width=width,
        hidden=tuple(hidden),
        ngrams=ngrams,
        longest=longest,
    )


def _residual(name: str, blocks: Sequence[int], width: int, norm: str) -> Factory:
    _whole_numbers("width", [width])
    if norm not in _NORMS:
        raise InvalidInput(f"norm is {norm!r}", where=name, mend=nearest(norm, _NORMS))
    return partial(_resnet, blocks=tuple(blocks), width=width, norm=norm)


_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}

# At the top level, so that a party with such a model can be sent to another process.


def _mlp(input_shape: tuple[int, ...], n_outputs: int, *, hidden: Sequence[int]) -> nn.Module:
    widths = [int(np.prod(input_shape)), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_outputs))


def _cnn(
    input_shape: tuple[int, ...],
    n_outputs: int,
    *,
    channels: Sequence[int],
    hidden: Sequence[int],
    kernel: int,
    padded: bool,
) -> nn.Module:
    as_image, (depth, height, width) = _as_image(input_shape, "cnn")
    layers: list[nn.Module] = [as_image]
    margin = kernel // 2 if padded else 0
    lost = 0 if padded else kernel - 1
    for filters in channels:
        # ReLU of the largest is the largest of ReLUs, at a quarter of the work
        layers += [nn.Conv2d(depth, filters, kernel, padding=margin), _MaxPool(2), nn.ReLU()]
        depth, height, width = filters, (height - lost) // 2, (width - lost) // 2
    if height < 1 or width < 1:
        raise InvalidInput(
            f"images of shape {input_shape} are too small for {len(channels)} poolings",
            where="cnn",
        )
    layers.append(nn.Flatten())
    for before, after in pairwise([depth * height * width, *hidden]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], n_outputs))


def _lenet5(input_shape: tuple[int, ...], n_outputs: int, *, activation: str) -> nn.Module:
    bend = _ACTIVATIONS[activation]
    as_image, (depth, height, width) = _as_image(input_shape, "lenet5")
    if max(height, width) > 32:
        raise InvalidInput(
            f"images of shape {input_shape} are larger than 32×32",
            where="lenet5",
            mend='Scale them down, or take "cnn".',
        )
    down, right = 32 - height, 32 - width
    margins = (right // 2, right - right // 2, down // 2, down - down // 2)
    return nn.Sequential(
        as_image,
        nn.ZeroPad2d(margins),
        *(nn.Conv2d(depth, 6, 5), bend(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), bend(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 5 * 5, 120), bend()),
        *(nn.Linear(120, 84), bend(), nn.Linear(84, n_outputs)),
    )


_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""VGG-16's filters, and convolutions with them."""


def _vgg16(
    input_shape: tuple[int, ...], n_outputs: int, *, hidden: Sequence[int], batch_norm: bool
) -> nn.Module:
    as_image, (depth, height, width) = _as_image(input_shape, "vgg16")
    if min(height, width) < 32:
        raise InvalidInput(
            f"images of shape {input_shape} are smaller than 32×32",
            where="vgg16",
            mend='Scale them up, or take "cnn".',
        )
    layers: list[nn.Module] = [as_image]
    for filters, convolutions in _STAGES:
        for _ in range(convolutions):
            layers.append(nn.Conv2d(depth, filters, 3, padding=1, bias=not batch_norm))
            layers += [nn.BatchNorm2d(filters), nn.ReLU()] if batch_norm else [nn.ReLU()]
            depth = filters
        layers.append(nn.MaxPool2d(2))
    full = (depth * (height // 32) * (width // 32),)
    return nn.Sequential(*layers, _mlp(full, n_outputs, hidden=hidden))


class _AsImage(nn.Module):
    says_all = True  # as batched.architecture.LAYERS do

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, rows: Tensor) -> Tensor:
        return _channels_last(self.layout.images(rows))

    def extra_repr(self) -> str:
        return repr(self.layout)


def _as_image(shape: tuple[int, ...], where: str) -> tuple[nn.Module, tuple[int, int, int]]:
    layout = layout_of(shape, where)
    return _AsImage(layout), (layout.depth, layout.height, layout.width)


class _MaxPool(nn.MaxPool2d):
    """Pools channels side by side in memory, which a CPU does several times faster."""

    says_all = True

    def forward(self, maps: Tensor) -> Tensor:
        pooled: Tensor = super().forward(_channels_last(maps))
        return pooled


def _channels_last(maps: Tensor) -> Tensor:
    """The same, stored with channels last; ``torch.func.vmap`` does not take ``memory_format``."""
    return maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class _Block(nn.Module):
    """Two convolutions, to whose output the input is added; where shapes differ, through a 1×1 one.

    A 1×1 convolution of a stride sees a pixel in each square of ``stride × stride``. These are picked first:
    the backward pass of such a convolution in one go writes beyond its memory in oneDNN 3.12 (torch 2.13) on
    x86 processors without AVX-512, if its maps lie with channels last and there are 2 to 7 of them.
    """

    def __init__(self, depth: int, filters: int, stride: int, norm: str) -> None:
        super().__init__()
        self.stride = stride
        self.first = _normalised(depth, filters, 3, stride, norm)
        self.second = _normalised(filters, filters, 3, 1, norm)
        same = stride == 1 and depth == filters
        self.shortcut = nn.Identity() if same else _normalised(depth, filters, 1, 1, norm)

    def forward(self, maps: Tensor) -> Tensor:
        # Means of one pixel: the fastest way to pick
        picked = F.avg_pool2d(maps, 1, self.stride) if self.stride > 1 else maps
        return F.relu(self.second(F.relu(self.first(maps))) + self.shortcut(picked))


def _normalised(depth: int, filters: int, kernel: int, stride: int, norm: str) -> nn.Module:
    layer = nn.Conv2d(depth, filters, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(layer, _NORMS[norm](filters))


def _group_norm(filters: int) -> nn.Module:
    return nn.GroupNorm(math.gcd(filters, max(1, filters // _GROUP)), filters)


_NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": _group_norm}
_GROUP = 16
"""Channels of a group, or all where there are fewer (Wu & He 2018, table 3)."""


def _resnet(
    input_shape: tuple[int, ...], n_outputs: int, *, blocks: Sequence[int], width: int, norm: str
) -> nn.Module:
    as_image, (depth, *_) = _as_image(input_shape, "resnet")
    layers = [as_image, _normalised(depth, width, 3, 1, norm), nn.ReLU()]
    depth = width
    for stage, count in enumerate(blocks):
        filters = width * 2**stage
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            layers.append(_Block(depth, filters, stride, norm))
            depth = filters
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(depth, n_outputs)
    )


class _Bag(nn.Module):
    def __init__(
        self,
        n_outputs: int,
        *,
        buckets: int,
        width: int,
        hidden: Sequence[int],
        ngrams: int,
        longest: int,
    ) -> None:
        super().__init__()
        self.buckets, self.ngrams, self.longest = buckets, ngrams, longest
        self.bag = nn.EmbeddingBag(buckets + 1, width, mode="mean", padding_idx=0)
        self.head = _mlp((width,), n_outputs, hidden=hidden)
        with torch.no_grad():  # a word that is never trained on should say little
            self.bag.weight.mul_(_FIRST_LENGTH)

    def encode(self, texts: Array) -> Array:
        return hashed_words(texts, buckets=self.buckets, ngrams=self.ngrams, longest=self.longest)

    def forward(self, words: Tensor) -> Tensor:
        used = int((words != 0).any(dim=0).sum())
        outputs: Tensor = self.head(self.bag(words[:, : max(used, 1)]))
        return outputs


_FIRST_LENGTH = 0.1
"""Of a normal draw; chosen on held-out rows of TREC."""


def _text_embedding(input_shape: tuple[int, ...], n_outputs: int, **options: Any) -> nn.Module:
    if input_shape != ():
        raise InvalidInput(
            f"rows of shape {input_shape} are no texts",
            where="text_embedding",
            mend="Give an array of strings, one for each row.",
        )
    return _Bag(n_outputs, **options)


def hashed_words(texts: Array, *, buckets: int, ngrams: int, longest: int) -> Array:
    """Texts as numbers of buckets, 1 to ``buckets``, shape ``(n, length)``; 0 behind a text's end.

    A word is a run of letters, digits and underscores in small letters; its number is the CRC-32 of its
    bytes, modulo ``buckets``; that of neighbours, of both with a space between. So every party gives a word
    the same number without a vocabulary, which would tell others which words its texts hold; different words
    may share one (Weinberger et al. 2009).

    Args:
        texts: strings, shape ``(n,)``.
        buckets: how many numbers there are.
        ngrams: 2 numbers pairs of neighbouring words too, and so on.
        longest: words of a text beyond this many are left out.

    >>> hashed_words(np.array(["To be, or", "to"]), buckets=1000, ngrams=1, longest=2).tolist()
    [[757, 926], [757, 0]]
    """
    lines = [_numbers(text, buckets, ngrams, longest) for text in texts.tolist()]
    numbers = np.zeros((len(lines), max(1, *map(len, lines), 1)), dtype=np.int64)
    for row, line in zip(numbers, lines, strict=True):
        row[: len(line)] = line
    return numbers


@lru_cache(maxsize=2**15)  # parties see the same public and test texts in every epoch and round
def _numbers(text: str, buckets: int, ngrams: int, longest: int) -> Array:
    words = [word.encode("utf-8", "replace") for word in _WORD.findall(text.lower())[:longest]]
    last = [zlib.crc32(word) for word in words]
    line = list(last)
    for reach in range(1, min(ngrams, len(words))):
        last = [
            zlib.crc32(b" " + word, before)
            for before, word in zip(last, words[reach:], strict=False)
        ]
        line += last
    return np.array(line, dtype=np.int64) % buckets + 1


_WORD = re.compile(r"\w+")


def _whole_numbers(name: str, values: Sequence[int]) -> None:
    if isinstance(values, (int, str)) or not all(type(v) is int and v > 0 for v in values):
        raise InvalidInput(f"{name} is {values!r}, expected whole numbers above 0")

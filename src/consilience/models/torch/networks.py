"""Small networks for the presets, made to the shape of a party's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from torch import nn

from consilience.core.errors import InvalidInput
from consilience.core.validation.numbers import check_choice, check_number, check_numbers
from consilience.models.torch.layers import (
    NORMS,
    MaxPool,
    ResidualBlock,
    as_image_layer,
    normalised,
)
from consilience.models.torch.modules import Factory
from consilience.models.torch.words import WordBag


def mlp(*, hidden: Sequence[int] = (64,)) -> Factory:
    """Fully connected layers with ReLU between them; images are flattened.

    Args:
        hidden: the widths of the hidden layers.
    """
    check_numbers("hidden", hidden, above=0, whole=True, where="mlp")
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
        padded: whether the output of a convolution has the height and width of its input.

    Returns:
        A function ``(input_shape, n_outputs) -> module``.
    """
    check_numbers("channels", channels, above=0, whole=True, where="cnn")
    widths = [hidden] if isinstance(hidden, int) else hidden
    check_numbers("hidden", widths, above=0, whole=True, where="cnn")
    if not widths:
        raise InvalidInput("there is no hidden layer", where="cnn", mend="Give one width or more.")
    check_number("kernel", kernel, above=0, whole=True, where="cnn")
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
    check_choice("activation", activation, _ACTIVATIONS, where="lenet5")
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
    check_numbers("hidden", hidden, above=0, whole=True, where="vgg16")
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
    """Average a vector for each word, then apply full layers: a text network without a vocabulary.

    :func:`~.words.hashed_words` maps words to numbers, the same at every party, so that such networks can
    be averaged and sent to others. The network holds no words. But the vectors that training has changed
    reveal which buckets occur in the party's texts.

    Args:
        buckets: number of buckets for words; words in one bucket share a vector.
        width: length of a word's vector.
        hidden: widths of hidden layers; none for a linear classifier, as in fastText.
        ngrams: 1 for single words; 2 adds pairs of neighbouring words, which helps on short texts.
        longest: number of words read from a text; later ones are ignored.

    Returns:
        A function ``(input_shape, n_outputs) -> module``.

    Source:
        Joulin, Grave, Bojanowski, Mikolov 2017, "Bag of Tricks for Efficient Text Classification".
    """
    check_numbers("hidden", hidden, above=0, whole=True, where="text_embedding")
    sizes = {"buckets": buckets, "width": width, "ngrams": ngrams, "longest": longest}
    for name, size in sizes.items():
        check_number(name, size, above=0, whole=True, where="text_embedding")
    return partial(
        _text_embedding,
        buckets=buckets,
        width=width,
        hidden=tuple(hidden),
        ngrams=ngrams,
        longest=longest,
    )


def _residual(name: str, blocks: Sequence[int], width: int, norm: str) -> Factory:
    check_number("width", width, above=0, whole=True, where=name)
    check_choice("norm", norm, NORMS, where=name)
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
    as_image, (depth, height, width) = as_image_layer(input_shape, "cnn")
    layers: list[nn.Module] = [as_image]
    margin = kernel // 2 if padded else 0
    lost = 0 if padded else kernel - 1
    for filters in channels:
        # ReLU of the largest is the largest of ReLUs, at a quarter of the work
        layers += [nn.Conv2d(depth, filters, kernel, padding=margin), MaxPool(2), nn.ReLU()]
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
    as_image, (depth, height, width) = as_image_layer(input_shape, "lenet5")
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
    as_image, (depth, height, width) = as_image_layer(input_shape, "vgg16")
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


def _resnet(
    input_shape: tuple[int, ...], n_outputs: int, *, blocks: Sequence[int], width: int, norm: str
) -> nn.Module:
    as_image, (depth, *_) = as_image_layer(input_shape, "resnet")
    layers = [as_image, normalised(depth, width, 3, 1, norm), nn.ReLU()]
    depth = width
    for stage, count in enumerate(blocks):
        filters = width * 2**stage
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            layers.append(ResidualBlock(depth, filters, stride, norm))
            depth = filters
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(depth, n_outputs)
    )


def _text_embedding(input_shape: tuple[int, ...], n_outputs: int, **options: Any) -> nn.Module:
    if input_shape != ():
        raise InvalidInput(
            f"rows of shape {input_shape} are no texts",
            where="text_embedding",
            mend="Give an array of strings, one for each row.",
        )
    width, hidden = options["width"], options.pop("hidden")
    return WordBag(lambda: _mlp((width,), n_outputs, hidden=hidden), **options)

"""Small networks for the presets, made to the shape of a party's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from torch import Tensor, nn

from consilience.errors import InvalidInput, nearest
from consilience.learners.torch import Factory


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
        layers += [nn.Conv2d(depth, filters, kernel, padding=margin), nn.ReLU(), nn.MaxPool2d(2)]
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


class _ChannelsFirst(nn.Module):
    says_all = True  # as torch_cohort.LAYERS do

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2)


def _as_image(shape: tuple[int, ...], where: str) -> tuple[nn.Module, tuple[int, int, int]]:
    if len(shape) == 1 and shape[0] == int(shape[0] ** 0.5) ** 2:
        side = int(shape[0] ** 0.5)
        return nn.Unflatten(1, (1, side, side)), (1, side, side)
    if len(shape) == 2:
        return nn.Unflatten(1, (1, shape[0])), (1, *shape)
    if len(shape) == 3 and shape[0] in (1, 3):
        return nn.Identity(), (shape[0], shape[1], shape[2])
    if len(shape) == 3 and shape[2] in (1, 3):
        return _ChannelsFirst(), (shape[2], shape[0], shape[1])
    raise InvalidInput(f"rows of shape {shape} are no images", where=where)


def _whole_numbers(name: str, values: Sequence[int]) -> None:
    if isinstance(values, (int, str)) or not all(type(v) is int and v > 0 for v in values):
        raise InvalidInput(f"{name} is {values!r}, expected whole numbers above 0")

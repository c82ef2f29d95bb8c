"""Layers of the preset networks: images with channels last, residual blocks, normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from consilience.models.torch.images import Layout, layout_of


class AsImage(nn.Module):
    """Turns rows of a layout into images ``(n, channels, height, width)``."""

    says_all = True  # as batched.architecture.LAYERS do

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, rows: Tensor) -> Tensor:
        """Turn rows into images, stored with channels last."""
        return _channels_last(self.layout.images(rows))

    def extra_repr(self) -> str:
        """Return the layout, which distinguishes networks from each other."""
        return repr(self.layout)


def as_image_layer(shape: tuple[int, ...], where: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """Return the layer that turns rows of a shape into images, and their channels, height and width.

    Args:
        shape: of a row.
        where: the network, for errors.

    Raises:
        InvalidInput: such rows are no images.
    """
    layout = layout_of(shape, where)
    return AsImage(layout), (layout.depth, layout.height, layout.width)


class MaxPool(nn.MaxPool2d):
    """Pools channels side by side in memory, which a CPU does several times faster."""

    says_all = True

    def forward(self, maps: Tensor) -> Tensor:
        """Take the largest of every square."""
        pooled: Tensor = super().forward(_channels_last(maps))
        return pooled


def _channels_last(maps: Tensor) -> Tensor:
    """Store maps with channels last; ``torch.func.vmap`` does not take ``memory_format``."""
    return maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class ResidualBlock(nn.Module):
    """Two convolutions, to whose output the input is added; where shapes differ, through a 1×1 convolution.

    Args:
        depth: channels of its inputs.
        filters: channels of its outputs.
        stride: of the first convolution.
        norm: a key of :data:`NORMS`.

    A 1×1 convolution of a stride sees a pixel in each square of ``stride × stride``. These are picked first:
    the backward pass of such a convolution in one go writes beyond its memory in oneDNN 3.12 (torch 2.13) on
    x86 processors without AVX-512, if its maps lie with channels last and there are 2 to 7 of them.
    """

    def __init__(self, depth: int, filters: int, stride: int, norm: str) -> None:
        super().__init__()
        self.stride = stride
        self.first = normalised(depth, filters, 3, stride, norm)
        self.second = normalised(filters, filters, 3, 1, norm)
        same = stride == 1 and depth == filters
        self.shortcut = nn.Identity() if same else normalised(depth, filters, 1, 1, norm)

    def forward(self, maps: Tensor) -> Tensor:
        """Add the input to the output of two convolutions."""
        # Means of one pixel: the fastest way to pick
        picked = F.avg_pool2d(maps, 1, self.stride) if self.stride > 1 else maps
        return F.relu(self.second(F.relu(self.first(maps))) + self.shortcut(picked))


def normalised(depth: int, filters: int, kernel: int, stride: int, norm: str) -> nn.Module:
    """Make a convolution without biases, followed by a normalisation.

    Args:
        depth: channels of its inputs.
        filters: channels of its outputs.
        kernel: height and width of a filter.
        stride: of the filters.
        norm: a key of :data:`NORMS`.
    """
    layer = nn.Conv2d(depth, filters, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(layer, NORMS[norm](filters))


def _group_norm(filters: int) -> nn.Module:
    return nn.GroupNorm(math.gcd(filters, max(1, filters // _GROUP)), filters)


NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": _group_norm}
"""Normalisations by name: number of channels to layer."""

_GROUP = 16
"""Channels of a group, or all where there are fewer (Wu & He 2018, table 3)."""

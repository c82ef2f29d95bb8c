"""Images in the layouts that networks take, and their random changes on the device where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from consilience.core.errors import InvalidInput
from consilience.models.torch.recipe import Augmentation


@dataclass(frozen=True)
class Layout:
    """Layout of a row as an image.

    Attributes:
        shape: of a row: ``(height, width)``, with the 1 or 3 channels first or last, or flat.
        depth: channels.
        height: pixels.
        width: pixels.
        channels_last: true where a row has them last.
    """

    shape: tuple[int, ...]
    depth: int
    height: int
    width: int
    channels_last: bool = False

    def images(self, rows: Tensor) -> Tensor:
        """Turn rows ``(n, *shape)`` into images ``(n, depth, height, width)``."""
        if self.channels_last:
            return rows.permute(0, 3, 1, 2)
        return rows.reshape(len(rows), self.depth, self.height, self.width)

    def rows(self, images: Tensor) -> Tensor:
        """Turn the images of :meth:`images` back into rows."""
        if self.channels_last:
            return images.permute(0, 2, 3, 1)
        return images.reshape(len(images), *self.shape)


def layout_of(shape: tuple[int, ...], where: str) -> Layout:
    """Find the layout of rows of a shape.

    Args:
        shape: of a row.
        where: the network, for errors.

    Raises:
        InvalidInput: they are no images.
    """
    if len(shape) == 1 and shape[0] == int(shape[0] ** 0.5) ** 2:
        side = int(shape[0] ** 0.5)
        return Layout(shape, 1, side, side)
    if len(shape) == 2:
        return Layout(shape, 1, *shape)
    if len(shape) == 3 and shape[0] in (1, 3):
        return Layout(shape, *shape)
    if len(shape) == 3 and shape[2] in (1, 3):
        return Layout(shape, shape[2], shape[0], shape[1], channels_last=True)
    raise InvalidInput(f"rows of shape {shape} are no images", where=where)


def check_augmentation(how: Augmentation, shape: tuple[int, ...], where: str) -> None:
    """Raise ``InvalidInput`` unless rows are images that an augmentation can change.

    Args:
        how: the augmentation.
        shape: of a row.
        where: the network, for errors.
    """
    layout = layout_of(shape, where)
    smallest = min(layout.height, layout.width)
    for name, pixels in (("crop", how.crop), ("cutout", how.cutout)):
        if pixels >= smallest:
            raise InvalidInput(
                f"{name} is {pixels}, and the images are {layout.height}×{layout.width}",
                where=f"{where}, recipe.augment",
                mend=f"Give 0 to {smallest - 1}.",
            )


def augmented(rows: Tensor, how: Augmentation, rng: np.random.Generator) -> Tensor:
    """Change every image of a batch at random, on the device of the batch.

    The random draws do not depend on the device: a GPU sees the same images as a CPU.

    Args:
        rows: shape ``(n, *shape)``, in any layout of :func:`layout_of`; not changed.
        how: the augmentation.
        rng: the only source of randomness.

    Returns:
        A contiguous tensor, shape ``(n, *shape)``.
    """
    layout = layout_of(tuple(rows.shape[1:]), "augmentation")
    images = layout.images(rows)
    count, height, width = len(images), layout.height, layout.width
    if how.crop or how.flip:
        down, right = rng.integers(2 * how.crop + 1, size=(2, count, 1))
        across = np.tile(np.arange(width), (count, 1))
        if how.flip:
            mirrored = rng.random((count, 1)) < 0.5
            across = np.where(mirrored, width - 1 - across, across)
        padded = F.pad(images, (how.crop,) * 4)
        wide = width + 2 * how.crop
        picked = (down + np.arange(height))[:, :, None] * wide + (right + across)[:, None, :]
        index = torch.from_numpy(picked).to(rows.device).reshape(count, 1, -1)
        flat = padded.reshape(count, layout.depth, -1)
        images = flat.gather(2, index.expand(-1, layout.depth, -1))
        images = images.reshape(count, layout.depth, height, width)
    if how.cutout:
        top, left = rng.integers((1 - how.cutout, 1 - how.cutout), (height, width), (count, 2)).T
        inside = (
            (_within(top, how.cutout, height)[:, :, None])
            & (_within(left, how.cutout, width)[:, None, :])
        )
        images = images.masked_fill(torch.from_numpy(inside).to(rows.device)[:, None], 0.0)
    return layout.rows(images).contiguous()


def _within(start: np.ndarray, length: int, size: int) -> np.ndarray:
    """Mask of the places in each interval, shape ``(n, size)``."""
    place = np.arange(size)
    return (place >= start[:, None]) & (place < start[:, None] + length)

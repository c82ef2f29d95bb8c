"""Sentences on sizes and drawings of accuracies, which Table 2 and Figure 1 share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.shen2022.problems import CLIP, PUBLIC, STEP_SIZE, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lines = Mapping[str, Array]
"""Label to accuracies, shape ``(R, models + 1)``."""

NAMES = {
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100"
}  # fmt: skip


def name_of(data: str) -> str:
    """A data set as people write it."""
    return NAMES[data]


def about(data: str, size: Size, images: Array) -> str:
    """Sentence that names the size that was run and its training and public images, shape ``(2,)``."""
    train, public = (int(count) for count in images)
    layers = ", ".join(f"{name} {value}" for name, value in size.layers.items())
    adam, plain = (
        " or ".join(f"{rate:g}" for rate in rates)
        for rates in (size.boosting_rates, size.averaging_rates)
    )
    rows = train // size.clients
    steps = "one step" if rows <= size.batch else f"{-(-rows // size.batch)} steps"
    text = (
        f"{name_of(data)}, size {size.title}: {size.clients} clients, {train:,} training images in all, "
        f"{public:,} of {name_of(PUBLIC[data])} as public ones, {size.held:,} held out for the choice of "
        f"rates, {size.test:,} for testing; {size.network} ({layers}), batches of {size.batch}, gradients "
        f"clipped at {CLIP:g}. FFGB-distill and FedAvg-distill: Adam with {adam}, "
        f"{size.boosting_epochs} epochs, step size {STEP_SIZE:g}. FedAvg, FedDyn, SCAFFOLD: SGD with "
        f"{plain}, {size.averaging_epochs} epochs a round; an epoch is {steps}. {size.models} models a "
        "client at most."
    )
    if size.published:
        return text
    return text + (
        " The paper has 100 clients, all images, two convolutions of 64 5×5 filters, 100 epochs for "
        "FFGB-distill, and 100 models."
    )


def draw_lines(figure: Figure, panels: Mapping[str, Lines], across: str, *, columns: int) -> None:
    """A panel each: means as lines, the least and the most over repetitions as bands."""
    rows = -(-len(panels) // columns)
    figure.set_size_inches(3.2 * columns, 2.6 * rows + 0.5)
    axes = figure.subplots(rows, columns, squeeze=False, sharex="row", sharey="row")
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for i, (label, values) in enumerate(lines.items()):
            seen = np.isfinite(values).all(axis=0)  # some stop where the last target is reached
            at, some = np.flatnonzero(seen), values[:, seen]
            axis.plot(at, some.mean(axis=0), color=f"C{i}", label=label)
            axis.fill_between(at, some.min(axis=0), some.max(axis=0), color=f"C{i}", alpha=0.15)
        axis.set(title=title)
    for row in axes:
        row[0].set_ylabel("test accuracy")
    for axis in axes[-1]:
        axis.set_xlabel(across)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)

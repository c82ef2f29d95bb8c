"""Schemes in settings: measured, put into a table and drawn as one panel a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from consilience_papers.afonin2022 import trials
from consilience_papers.afonin2022.curves import Cells, Curve
from consilience_papers.afonin2022.problems import SIZES, Model, Setting, Size
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = {
    "AKD": ("alternating", "accuracy"),
    "EKD": ("alternating", "ensemble"),
    "AvgKD": ("averaged", "accuracy"),
    "PKD": ("parallel", "accuracy"),
    "FedAvg": ("FedAvg", "accuracy"),
}
"""Scheme to the run that it comes from, and what of it; AKD and EKD come from one."""

COLOURS = {
    "AKD": "C3", "EKD": "k", "AvgKD": "C0", "PKD": "C1", "FedAvg": "C2", "conjugate": "C4"
}  # fmt: skip


@dataclass(frozen=True)
class Panels:
    """Measurements for a figure.

    Attributes:
        name: of the figure.
        size: how much was trained.
        cells: setting to scheme to test accuracies; ``"central"`` among the schemes.
    """

    name: str
    size: Size
    cells: Cells

    def exhibit(self, title: str, claims: Sequence[Claim], *, apart: bool = False) -> Exhibit:
        """The figure; ``apart``: a line for each agent, not their mean."""

        def draw(figure: Figure) -> None:
            axes = figure.subplots(1, len(self.cells), sharey=True)
            for axis, (label, cell) in zip(axes, self.cells.items(), strict=True):
                for scheme, curve in cell.items():
                    if scheme == "central":
                        axis.axhline(curve.last.mean(), color="g", linestyle="--", label=scheme)
                        continue
                    lines = np.moveaxis(curve.values, 2, 0) if apart else [curve.mean]
                    for i, values in enumerate(lines):
                        colour = f"C{i}" if apart else COLOURS[scheme]
                        name = f"{scheme}, agent {i + 1}" if apart else scheme
                        across = np.arange(values.shape[1])
                        axis.plot(across, values.mean(axis=0), color=colour, label=name)
                        low, high = values.min(axis=0), values.max(axis=0)
                        axis.fill_between(across, low, high, color=colour, alpha=0.15)
                axis.set(title=label, xlabel="rounds")
            axes[0].set_ylabel("test accuracy")
            handles, names = axes[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)

        rows = [
            {"setting": label, "scheme": scheme, **curve.columns()}
            for label, cell in self.cells.items()
            for scheme, curve in cell.items()
        ]
        number = self.name.removeprefix("fig")
        heading = f"Figure {number}: {title}" if number.isdigit() else title
        heading += ": test accuracy"
        return Exhibit(self.name, heading, rows, claims, [about(self.size), _HOW], draw)


def measured(
    study: Study, name: str, settings: Mapping[str, Setting], schemes: Sequence[str], size: str
) -> Panels:
    """Every scheme in every setting, and central training.

    Args:
        study: computes and keeps; if it is quick, that is the size.
        name: of the figure, for reports.
        settings: of one data set, by label.
        schemes: of :data:`RUNS`.
        size: of :data:`~consilience_papers.afonin2022.problems.SIZES`.
    """
    repetitions = study.times(3, 2)
    (data,) = {setting.data for setting in settings.values()}
    how = SIZES[data]["quick" if study.quick else size]
    cells: dict[str, dict[str, Curve]] = {}
    for label, setting in settings.items():
        common = {"setting": asdict(setting), "size": asdict(how)}
        cells[label] = {}
        for scheme in schemes:
            run, part = RUNS[scheme]
            said = f"{name}, {label}, {scheme}"
            found = study.repeat(trials.exchanged, repetitions, label=said, scheme=run, **common)
            values = found[part].reshape(repetitions, how.rounds + 1, -1)
            cells[label][scheme] = Curve(values, float(found["megabytes"].mean()))
        whole = study.repeat(
            trials.central, repetitions, label=f"{name}, {label}, central", **common
        )
        cells[label]["central"] = Curve(whole["accuracy"][:, None, None])
    return Panels(name, how, cells)


def about(size: Size) -> str:
    """Sentence that names the size that was run."""
    return (
        f"Size: {size.title}. {size.train:,} training and {size.test:,} test images, {size.rounds} rounds, "
        f"{size.epochs} epochs a fit, Adam with rate {size.learning_rate:g} and batches of {size.batch}; "
        f"models: {_spelt(size.first)}, {_spelt(size.second)}, {_spelt(size.forest)}. The paper has all "
        "images and larger networks, and of its recipe gives Adam, weight decay 3e-4 and 20 rounds."
    )


def _spelt(model: Model) -> str:
    name, parameters = model
    inside = ", ".join(f"{key} {value}" for key, value in parameters.items())
    return f"{name} ({inside})" if inside else name


_HOW = (
    "A difference counts where a t-test over repetitions, paired and one-sided at 5 %, says so: with three "
    "of them its mean must be 2.92 standard errors above 0. What does not hold may be too little to tell. "
    "Means over repetitions and agents; “weakest agent” is after the last round. Round 0 is every agent "
    "alone (FedAvg: the untrained network). AKD is by the agent at which the chain began; every agent begins "
    "one. EKD is one sum of models, of which every other one is subtracted. Bands are the least and the most "
    "over repetitions. MB are what an agent sends in a round to a coordinator that passes models on; without "
    "one it would send M − 1 times as much."
)

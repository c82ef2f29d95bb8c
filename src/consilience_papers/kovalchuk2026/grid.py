"""Every rule at every share of the classes, which most exhibits show a part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from consilience.core.validation.arrays import Array
from consilience_papers.kovalchuk2026 import trials
from consilience_papers.kovalchuk2026.problems import (
    FEWER,
    HOLDERS,
    NAMES,
    OURS,
    RULES,
    SHARES,
    SIZES,
    TEMPERATURE,
    Size,
    classes_of,
    data_of,
)
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = Mapping[str, Array]

METHODS = (*RULES, OURS, HOLDERS)

COLOURS = {"AVG": "C0", "UWA": "C1", "sUWA": "C2", OURS: "C3", HOLDERS: "0.6"}


@dataclass(frozen=True)
class Grid:
    """Measurements of a grid of settings.

    Attributes:
        sizes: data set to how much was trained.
        shares: data set to k, as shares of the classes.
        cells: data set, share and rule to what :func:`~consilience_papers.kovalchuk2026.trials.taught`
            gives, over repetitions.
    """

    sizes: Mapping[str, Size]
    shares: Mapping[str, tuple[float, ...]]
    cells: Mapping[tuple[str, float, str], Found]

    def last(self, data: str, share: float, rule: str, of: str = "accuracy") -> Array:
        """After the last round, shape ``(R,)``."""
        return self.cells[data, share, rule][of][:, -1]

    @property
    def repetitions(self) -> int:
        """R."""
        return len(next(iter(self.cells.values()))["accuracy"])


def sizes_of(study: Study, size: str) -> dict[str, Size]:
    """Data set to how much is trained; two data sets, and little, where the study is quick."""
    size, data = ("quick", data_of("quick")[:2]) if study.quick else (size, data_of(size))
    return {name: SIZES[name][size] for name in data}


def measure(study: Study, size: str) -> Grid:
    """Run what is not there yet.

    Args:
        study: computes and keeps; if it is quick, that is the size.
        size: of :data:`~consilience_papers.kovalchuk2026.problems.SIZES`.
    """
    repetitions = study.times(3, 2)
    sizes = sizes_of(study, size)
    ends = (SHARES[0], SHARES[-1])
    shares = {name: ends if study.quick else FEWER.get((name, size), SHARES) for name in sizes}
    cells = {
        (name, share, rule): study.repeat(
            trials.taught,
            repetitions,
            label=f"{name}, {share:.0%} of the classes, {rule}",
            data=name,
            share=share,
            rule=rule,
            size=asdict(how),
        )
        for name, how in sizes.items()
        for share in shares[name]
        for rule in METHODS
    }
    return Grid(sizes, shares, cells)


def spread(values: Array) -> str:
    """Mean ± standard deviation, as the paper gives them.

    >>> import numpy as np
    >>> spread(np.array([0.5, 0.6, 0.7]))
    '0.600 ± 0.100'
    """
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"


def about(data: str, size: Size) -> str:
    """Sentence that names the size that was run."""
    recipe = size.model["recipe"]
    options = {k: v for k, v in size.model.items() if k not in ("name", "recipe")}
    layers = ", ".join(f"{name} {value}" for name, value in options.items())
    own = "all there are" if size.samples is None else f"{size.samples:,}"
    coarse = ", 20 coarse classes" if size.options.get("coarse") else ""
    return (
        f"{NAMES[data]}{coarse}, size {size.title}: ten clients, {own} private rows each, a fifth of them "
        f"for calibration, {size.public:,} public rows, {size.test:,} for testing at most; "
        f"{size.model['name']}{f' ({layers})' if layers else ''}, Adam {recipe['learning_rate']:g}, batches "
        f"of {recipe['batch_size']}, {recipe['first_epochs']} epochs at first, then {recipe['epochs']} and "
        f"{recipe['distill_epochs']} of distillation in each of {size.rounds} rounds."
    )


def notes(grid: Grid) -> list[str]:
    """Sentences on how it was computed."""
    return [
        *(about(name, size) for name, size in grid.sizes.items()),
        "The paper trains ResNet-18 on 5,000 images a client, and BERT-tiny on 1,500 questions of Yahoo "
        "Answers, in 50 rounds; its Table 1 has no numbers in the copy that this was made from. Means over "
        "clients of the accuracy on all classes, ± standard deviations over repetitions. sUWA has "
        f"T = {TEMPERATURE:g}. The density ratio is this library's; class-holders is a teacher that knows "
        "the class of every public row and who was trained on it, and no more: a rule that also knows where "
        "a class's rows lie may be ahead of it. Claims are by paired t-tests, one-sided at 5 % each; there "
        "are many, and in them ± is a standard error.",
    ]


def named(data: str, share: float, size: Size) -> str:
    """A setting in words.

    >>> named("cifar-10", 0.2, SIZES["cifar-10"]["cpu"])
    'CIFAR-10, k = 2'
    """
    return f"{NAMES[data]}, k = {classes_of(data, share, size)}"


def panels(
    figure: Figure,
    titles: Sequence[Sequence[str]],
    line: Callable[[int, int], Mapping[str, tuple[Sequence[float], Array]]],
    *,
    across: str,
    up: str,
) -> None:
    """A grid of panels: means as lines, standard deviations as bands.

    Args:
        figure: an empty one.
        titles: of each panel, row by row.
        line: row and column of a panel to its methods: where, and values of shape ``(R, len(where))``.
        across: what the horizontal axes show.
        up: what the vertical axes show.
    """
    rows, columns = len(titles), len(titles[0])
    figure.set_size_inches(3.3 * columns, 2.7 * rows + 0.5)
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for i, row in enumerate(axes):
        for j, axis in enumerate(row):
            for label, (where, values) in line(i, j).items():
                mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
                colour = COLOURS[label]
                axis.plot(where, mean, color=colour, label=label)
                axis.fill_between(
                    where, mean - deviation, mean + deviation, color=colour, alpha=0.15
                )
            axis.set_title(titles[i][j], fontsize=9)
        row[0].set_ylabel(up)
    for axis in axes[-1]:
        axis.set_xlabel(across)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)

"""Test accuracy over rounds, and what the paper says of it, checked as orders and not as numbers.

A difference counts where :func:`~consilience_papers.comparisons.differs` says so: the same repetition has the
same images in every scheme and setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.validation.arrays import Array
from consilience_papers.comparisons import differs, said, standard_error
from consilience_papers.exhibit import Claim

FLAT = 0.01
"""Accuracy by which a curve that "does not degrade" may fall between its second and its last quarter, and by
which one that "does not improve" may rise."""

KEPT = 0.8
"""Share that an agent's curve that "does not degrade" must keep of what it has above chance in round 0."""

CHANCE = 0.1
"""Accuracy of a guess among ten classes."""


@dataclass(frozen=True)
class Curve:
    """Accuracies of one scheme in one setting, round by round.

    Attributes:
        values: shape ``(R, T + 1, M)``: repetitions, rounds, agents; M is 1 for one model of all.
        megabytes: that an agent sends in a round; ``None`` where nothing is sent.
    """

    values: Array
    megabytes: float | None = None

    @property
    def mean(self) -> Array:
        """Over agents, shape ``(R, T + 1)``."""
        return np.asarray(self.values.mean(axis=2))

    @property
    def last(self) -> Array:
        """Over agents after the last round, shape ``(R,)``."""
        return np.asarray(self.mean[:, -1])

    @property
    def drop(self) -> Array:
        """Accuracy lost from round 0 to the last, the mean over agents, shape ``(R,)``."""
        return np.asarray(self.mean[:, 0] - self.last)

    def after(self, round: int) -> Array:
        """Every agent's after a round, shape ``(R, M)``."""
        return np.asarray(self.values[:, round])

    @property
    def lost(self) -> Array:
        """Speed of the fall, whatever the level it starts from: shape ``(R,)``.

        The share that is lost of what round 0 has above chance, averaged over later rounds; NaN where it has
        nothing above chance.
        """
        above = self.mean - CHANCE
        first = np.where(above[:, 0] > 0, above[:, 0], np.nan)
        return np.asarray(1 - above[:, 1:].mean(axis=1) / first)

    @property
    def late(self) -> Array:
        """The last quarter of the rounds less the second, over agents, shape ``(R,)``."""
        quarter = max(1, (self.values.shape[1] - 1) // 4)
        second = self.mean[:, quarter + 1 : 2 * quarter + 1].mean(axis=1)
        return np.asarray(self.mean[:, -quarter:].mean(axis=1) - second)

    @property
    def kept(self) -> float:
        """Accuracy above chance that the worst agent keeps to the end, as a share of its round 0."""
        first, last = (self.after(round).mean(axis=0) - CHANCE for round in (0, -1))
        return float((last / np.where(first > 0, first, np.nan)).min())

    def columns(self) -> dict[str, Any]:
        """The cells of a row."""
        over = self.mean.mean(axis=0)
        many = len(over) > 1
        return {
            "round 0": float(over[0]) if many else None,
            "round 1": float(over[1]) if many else None,
            "best": float(over.max()) if many else None,
            "last": float(over[-1]),
            "standard error": standard_error(self.last),
            "weakest agent": float(self.after(-1).mean(axis=0).min()) if many else None,
            "MB sent": self.megabytes,
            "repetitions": len(self.values),
        }


Cells = Mapping[str, Mapping[str, Curve]]
"""Setting to scheme to curve."""


def _of_all(
    text: str, values: Mapping[str, Array], holds: Callable[[Array], bool], what: str
) -> Claim:
    return Claim(text, all(map(holds, values.values())), f"{what}: {_listed(values)}")


def _listed(values: Mapping[str, Array]) -> str:
    return "; ".join(f"{label}: {said(value)}" for label, value in values.items())


def degrades(cells: Cells, scheme: str) -> Claim:
    """The scheme loses accuracy in every setting."""
    values = {label: cell[scheme].drop for label, cell in cells.items()}
    return _of_all(f"{scheme} degrades in every setting", values, differs, "lost since round 0")


def falls_faster(text: str, more: tuple[str, Curve], less: tuple[str, Curve]) -> Claim:
    """Claim that one curve falls faster than the other."""
    difference = more[1].lost - less[1].lost
    return Claim(
        text,
        differs(difference),
        f"share lost of what was above chance, over all rounds, {more[0]}: {said(more[1].lost)}, {less[0]}: "
        f"{said(less[1].lost)}; difference {said(difference)}",
    )


def settles(cells: Cells, scheme: str) -> Claim:
    """The scheme does not lose accuracy in later rounds, and has not lost it before."""
    curves = {label: cell[scheme] for label, cell in cells.items()}
    return Claim(
        f"{scheme} does not degrade: it loses no more than {FLAT:g} in later rounds, and every agent keeps "
        f"{KEPT:.0%} of what it has above chance alone",
        all(c.late.mean() >= -FLAT and c.kept >= KEPT for c in curves.values()),
        "last quarter less second quarter of the rounds, and least kept: "
        + "; ".join(f"{label}: {said(c.late)}, {c.kept:.0%}" for label, c in curves.items()),
    )


def beats_alone(cells: Cells, labels: Sequence[str], *, round: int) -> Claim:
    """Every agent is better off with AvgKD than alone after a round, -1 for the last."""
    gains = {
        label: (cells[label]["AvgKD"].after(round) - cells[label]["AvgKD"].after(0)).T
        for label in labels
    }
    weakest = {label: gain[gain.mean(axis=1).argmin()] for label, gain in gains.items()}
    when = "the last round" if round == -1 else f"round {round}"
    return Claim(
        f"every agent does better with AvgKD than alone after {when}, {', '.join(labels)}",
        all(differs(agent) for gain in gains.values() for agent in gain),
        "gained by the agent that gains least: " + _listed(weakest),
    )


def beats(cells: Cells, labels: Sequence[str], one: str, other: str) -> Claim:
    """Claim that one scheme is better than another after the last round."""
    values = {label: cells[label][one].last - cells[label][other].last for label in labels}
    means = "; ".join(
        f"{cells[label][one].last.mean():.3f} and {cells[label][other].last.mean():.3f}"
        for label in labels
    )
    text = f"{one} is better than {other}, {', '.join(labels)}"
    return _of_all(text, values, differs, f"after the last round {means}; difference")


def ensemble(cells: Cells, *, improves: bool, scheme: str = "EKD") -> Claim:
    """A sum of models gets better with rounds, or it does not."""
    values = {label: -cell[scheme].drop for label, cell in cells.items()}
    if improves:
        return _of_all(f"{scheme} improves with rounds", values, differs, "gained since round 0")
    return _of_all(
        f"{scheme} does not improve with rounds (by more than {FLAT:g})",
        values,
        lambda value: bool(value.mean() <= FLAT),
        "gained since round 0",
    )

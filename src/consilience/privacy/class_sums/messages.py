"""Noisy sums of the rows of each class, as a party sends them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.core.errors import KnowledgeRefused
from consilience.core.messages.base import (
    Reply,
    check_array,
    check_names,
)
from consilience.core.messages.message import message
from consilience.core.messages.schema import LARGEST, MOST_ROWS, MOST_SUMMED, Agreement, TaskLike
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

MOST_NOISE = 1e6
"""Widest noise of a sum that is taken, in rows."""


@prints_no_rows
@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySums(Reply):
    """Base of sums that leave with a party's own noise, and of what it says that it guarantees of them.

    Attributes:
        values: steps of the grid of :mod:`consilience.privacy.class_sums.sums`, int64.
        sigma: standard deviation of the noise in each, in steps; 0 for none.
        epsilon: ε that the party says it guarantees of all that leaves under its budget; 0 where it says
            that it guarantees nothing.
        delta: δ of it.
        adjacency: the neighbouring data that it holds for; empty where it guarantees nothing.
        unit: the unit by which they differ.
        colluding: where the noise is a part of what the parties of a secure sum have together, how many may
            tell theirs; 0 where it is enough by itself.
        checked: whether the party holds the keys of those it shares noise with against a roster of its own.
    """

    values: Array
    sigma: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    adjacency: str = ""
    unit: str = ""
    colluding: int = 0
    checked: bool = False

    def check_sums(self, shape: tuple[int, ...], most: float, steps: int) -> None:
        """Raise ``KnowledgeRefused`` unless they are sums that there can be.

        What a party guarantees nobody can verify; that it is a guarantee, or none, can be.

        Args:
            shape: shape of the values.
            most: largest absolute value without noise.
            steps: steps of the grid in a length of 1.
        """
        check_array(self.values, shape, np.int64, where=self.party)
        limits = {"sigma": MOST_NOISE * steps, "epsilon": LARGEST, "delta": 1.0}
        for name, limit in limits.items():
            value = getattr(self, name)
            if not 0 <= value <= limit:
                raise KnowledgeRefused(f"{name} is {value}", where=self.party)
        known = ("add-remove", "replace") if self.sigma else ("",)
        if self.adjacency not in known:
            raise KnowledgeRefused(f"adjacency is {self.adjacency!r}", where=self.party)
        if not len({bool(self.sigma), *map(bool, (self.epsilon, self.delta, self.unit))}) == 1:
            raise KnowledgeRefused(
                "noise without a guarantee, or one without noise", where=self.party
            )
        if not 0 <= self.colluding <= MOST_SUMMED:
            raise KnowledgeRefused(f"{self.colluding} parties may collude", where=self.party)
        check_names(self.unit or "none", where=self.party)
        reach = float(np.abs(self.values.astype(np.float64)).max(initial=0))
        if reach > most + 10 * self.sigma:
            raise KnowledgeRefused(f"sums as large as {reach:g} are of no rows", where=self.party)


@message
class ClassSums(NoisySums, privacy="charged"):
    """Sums of a party's rows by class in features of public rows, ``(n_classes, d + 1)``, and their noise.

    Of values they are of shares at both ends of their bounds, ``(2 n_outputs, d + 1)``.
    """

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are sums that there can be, in the dimensions asked for."""
        assert agreement is not None
        columns: int = task.dimensions + 1  # type: ignore[attr-defined]
        steps: int = task.steps  # type: ignore[attr-defined]
        ends = 2 if agreement.kind == "regression" else 1
        self.check_sums((ends * agreement.outputs, columns), MOST_ROWS * steps, steps)

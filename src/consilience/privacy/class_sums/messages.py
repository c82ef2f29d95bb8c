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
"""Largest accepted standard deviation of the noise of a sum, in rows."""


@prints_no_rows
@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySums(Reply):
    """Base of sums with a party's noise and of the party's declared privacy guarantee.

    Attributes:
        values: steps of the grid of :mod:`consilience.privacy.class_sums.sums`, int64.
        sigma: standard deviation of the noise in each value, in steps; 0 for no noise.
        epsilon: declared ε of all releases under the party's budget; 0 for no guarantee.
        delta: δ of the guarantee; 0 for no guarantee.
        adjacency: neighbouring data of the guarantee; empty for no guarantee.
        unit: unit of privacy of the guarantee; empty for no guarantee.
        colluding: with noise shared by the parties of a secure sum, number of parties that may reveal their
            parts of it. 0 if the party's noise suffices alone.
        checked: whether the party verified the public keys of the other noise-sharing parties with a local
            roster.
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
        """Raise ``KnowledgeRefused`` unless the sums and the declared guarantee are plausible.

        The recipient cannot verify the guarantee itself. It checks only that noise and a complete guarantee
        come together.

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

    In regression the two bounds of each output replace the classes, ``(2 n_outputs, d + 1)``.
    """

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the sums are plausible and of the requested shape."""
        assert agreement is not None
        columns: int = task.dimensions + 1  # type: ignore[attr-defined]
        steps: int = task.steps  # type: ignore[attr-defined]
        ends = 2 if agreement.kind == "regression" else 1
        self.check_sums((ends * agreement.outputs, columns), MOST_ROWS * steps, steps)

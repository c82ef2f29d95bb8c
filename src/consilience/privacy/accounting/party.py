"""Protection of a party: its budget of privacy, and what it declares for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner
from consilience.core.messages.replies import Predictions
from consilience.core.numerics.outcomes import Outcome
from consilience.core.numerics.randomness import NoiseSource, SystemNoise
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.accounting.stage import Privacy
from consilience.privacy.class_sums.party import SumsNoise


class Protected:
    """Half of a :class:`~.party.Party` that keeps to a budget of privacy."""

    X: Array
    kind: Kind
    outcome: Outcome | None
    labelled: bool
    privacy: Privacy
    noisy: NoisyTraining | None
    noise: NoiseSource = SystemNoise
    """Makes the source of its noise."""
    summing: tuple[float, int] | None = None
    """While its reply goes into a secure sum: the variance of each party's noise that was asked for, in steps
    of the grid, and the fewest parties that open the sum."""
    _prototype: Learner
    _where: str

    def _declare(
        self, classes: Sequence[str], held: Sequence[str], units: Any, arrived: Any
    ) -> None:
        """Take on the declared classes, and the units and arrivals of the rows.

        Args:
            classes: declared classes.
            held: classes that the rows have.
            units: unit of each row, or ``None``.
            arrived: arrival of each row, or ``None``.

        Raises:
            InvalidInput: the rows have a class that is not declared, or there is not a unit or an arrival for
                each of them.
        """
        self.declared = tuple(map(str, classes))
        """Classes that it says it has; empty where its rows say them."""
        if undeclared := set(held) - set(self.declared or held):
            raise InvalidInput(
                f"its rows have a class that is not declared, {min(undeclared)!r}",
                where=self._where,
            )
        self.privacy_units: Array | None = None
        """Unit of privacy of each private row, from 0 on; ``None`` where each is one."""
        self.unit_names: tuple[str, ...] = ()
        """Names of these units."""
        if units is not None:
            self.unit_names, self.privacy_units = _units(units, len(self.X), where=self._where)
        self.arrived = None if arrived is None else _arrivals(arrived, len(self.X), self._where)
        """Arrival that each private row came with, from 0 on; ``None`` where all came with the first."""
        self.trouble = ""
        """What went wrong last in a training that it keeps to itself."""

    def arrived_by(self, arrival: int | None) -> Array | None:
        """Mark the rows of an arrival, or of all that the budget counts; ``None`` for all rows."""
        budget = self.privacy.accountant.budget
        if self.arrived is None or (arrival is None and budget is None):
            return None
        if arrival is not None:
            return np.asarray(self.arrived == arrival)
        assert budget is not None
        return np.asarray(self.arrived < budget.arrivals)

    def protect(self, budget: Budget | None, *, noise: NoiseSource = SystemNoise) -> None:
        """Keep to a budget of privacy in all that leaves, from now on; ``None`` takes it off.

        Class sums then leave with noise, and what has no stated cost leaves no more.

        Args:
            budget: the budget.
            noise: makes the source of the noise.

        Raises:
            InvalidInput: the party does not declare its classes, has no units where the budget is for these,
                no arrivals where the budget counts several, or δ would permit publishing a unit.
        """
        self.privacy.accountant.budget = budget
        kinds = [] if budget is None else [SumsNoise(self, budget, noise)]
        self.noisy = None if budget is None else budget.training
        self.noise = noise
        self.privacy.use(kinds, free=[] if self.noisy is None else [Predictions])
        if budget is None:
            return
        if self.noisy is not None and not hasattr(self._prototype, "fit_with_noise"):
            raise InvalidInput(
                "nothing bounds what one row does to the training of its model",
                where=self._where,
                mend="Training with noise is for torch networks; private_sums for all.",
            )
        coded = self.kind == "regression" or self.outcome is not None
        if self.labelled and not coded and not self.declared:
            raise InvalidInput(
                "it has a budget of privacy, and does not declare its classes, which its rows would tell",
                where=self._where,
                mend='In its file: [data] classes = ["ill", "healthy"]; in Python Party(classes=…).',
            )
        if (budget.unit == "row") != (self.privacy_units is None):
            raise InvalidInput(
                f"its budget is for one {budget.unit}, and its rows have "
                f"{'no units' if self.privacy_units is None else 'units of another kind'}",
                where=self._where,
                mend="Budget(unit=…) needs Party(privacy_units=…); in its file limits.unit is a column.",
            )
        if budget.arrivals > 1 and self.arrived is None:
            raise InvalidInput(
                f"its budget counts {budget.arrivals} arrivals, and its rows say none",
                where=self._where,
                mend="Give Party(arrived=…); in its file limits.arrival is a column.",
            )
        count = (
            len(self.X)
            if self.privacy_units is None
            else int(self.privacy_units.max(initial=-1)) + 1
        )
        budget.check_delta(count, where=self._where)

    @contextmanager
    def keeping_to_itself(self) -> Iterator[None]:
        """Tell nobody, where there is a budget, that training fails in this block: rows may be the reason."""
        try:
            yield
        except Exception as error:
            if self.privacy.accountant.budget is None:
                raise
            self.trouble = f"{type(error).__name__}: {error}"


def _units(units: Any, rows: int, *, where: str) -> tuple[tuple[str, ...], Array]:
    """Names of the units, and the number of each row's, from 0 on.

    Raises:
        InvalidInput: there is not one for each row, or one for all.
    """
    names = [str(one) for one in np.asarray(units).ravel().tolist()]
    if len(names) != rows:
        raise InvalidInput(f"{rows} rows and {len(names)} units", where=where)
    distinct, codes = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise InvalidInput(
            "all its rows are of one unit of privacy",
            where=where,
            mend="Is this the right column? To hide a whole party takes many parties, and is not done here.",
        )
    return tuple(distinct.tolist()), np.asarray(codes, dtype=np.int64)


def _arrivals(arrived: Any, rows: int, where: str) -> Array:
    """Take the arrival of each row, a whole number from 0 on.

    Raises:
        InvalidInput: there is not one for each row, or one is no such number.
    """
    found = np.asarray(arrived).ravel()
    whole = found.dtype.kind in "iuf" and bool((found == np.floor(found)).all())
    if len(found) != rows or not whole or found.min(initial=0) < 0:
        raise InvalidInput(
            "arrivals are not a whole number from 0 on for each of its rows", where=where
        )
    return found.astype(np.int64)

"""Protection of a party: its budget of privacy, and what it declares for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from consilience.errors import InvalidInput
from consilience.numerics.outcomes import Outcome
from consilience.numerics.randomness import NoiseSource, SystemNoise
from consilience.party.class_sums import SumsNoise
from consilience.party.shards import AnswersNoise
from consilience.transforms.privacy import Budget, Privacy
from consilience.validation.arrays import Array
from consilience.validation.labels import Kind


class Protected:
    """Half of a :class:`~.party.Party` that keeps to a budget of privacy."""

    X: Array
    kind: Kind
    outcome: Outcome | None
    labelled: bool
    privacy: Privacy
    _where: str

    def _declare(self, classes: Sequence[str], held: Sequence[str], units: Any) -> None:
        """Take on the declared classes and the units of the rows.

        Args:
            classes: declared classes.
            held: classes that the rows have.
            units: unit of each row, or ``None``.

        Raises:
            InvalidInput: the rows have a class that is not declared, or there is not a unit for each of them.
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
        self.trouble = ""
        """What went wrong last in a training that it keeps to itself."""

    def protect(self, budget: Budget | None, *, noise: NoiseSource = SystemNoise) -> None:
        """Keep to a budget of privacy in all that leaves, from now on; ``None`` takes it off.

        Class sums and answers of shards then leave with noise, and what has no stated cost leaves no more.

        Args:
            budget: the budget.
            noise: makes the source of the noise.

        Raises:
            InvalidInput: the party does not declare its classes, has no units where the budget is for these,
                or δ would permit publishing a unit.
        """
        self.privacy.accountant.budget = budget
        kinds = (
            []
            if budget is None
            else [SumsNoise(budget, noise), AnswersNoise(budget, noise, self.kind)]
        )
        self.privacy.use(kinds)
        if budget is None:
            return
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
        count = (
            len(self.X)
            if self.privacy_units is None
            else int(self.privacy_units.max(initial=-1)) + 1
        )
        if budget.delta * count * 10 > 1:
            raise InvalidInput(
                f"delta is {budget.delta:g} and there are {count:,} units: a δ of one in so many permits "
                "publishing one of them",
                where=f"{self._where}, limits.delta",
                mend=f"Give {0.1 / count:.0e} or less.",
            )

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

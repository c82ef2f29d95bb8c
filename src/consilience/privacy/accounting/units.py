"""Units of privacy of a party's rows, such as patients, and the arrivals that the rows came with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows


@prints_no_rows
@dataclass(frozen=True)
class RowUnits:
    """Units and arrivals of private rows.

    Attributes:
        unit: unit of privacy of each row, from 0 on, shape ``(n,)``; ``None`` if each row is one.
        arrived: arrival that each row came with, from 0 on, shape ``(n,)``; ``None`` if all came with the
            first. A budget that counts one arrival more (:attr:`.Budget.arrivals`) charges those rows alone.
    """

    unit: Array | None = None
    arrived: Array | None = None

    @classmethod
    def of(cls, units: Any, arrived: Any, rows: int, *, where: str) -> RowUnits:
        """Read the unit and the arrival of each row; ``None`` for none.

        Raises:
            InvalidInput: they do not fit the rows.
        """
        return cls(
            None if units is None else _codes(units, rows, where=where),
            None if arrived is None else _arrivals(arrived, rows, where),
        )

    def count(self, rows: int) -> int:
        """Count the units of so many rows."""
        return rows if self.unit is None else int(self.unit.max(initial=-1)) + 1


def _codes(units: Any, rows: int, *, where: str) -> Array:
    """Number the units from 0 on, and return the number of each row's unit, shape ``(n,)``.

    Raises:
        InvalidInput: there is not one unit per row, a unit is missing, or all rows have the same unit.
    """
    given = np.asarray(units)
    if given.shape != (rows,):
        raise InvalidInput(f"{rows} rows and units of shape {given.shape}", where=where)
    values = given.tolist()
    if any(one is None or one != one for one in values):  # NaN differs from itself
        raise InvalidInput(
            "a row has no unit of privacy",
            where=where,
            mend="Give each row its unit; rows without one would count as one person.",
        )
    names = [str(one) for one in values]
    distinct, codes = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise InvalidInput(
            "all its rows are of one unit of privacy",
            where=where,
            mend="Is this the right column? To hide a whole party takes many parties, and is not done here.",
        )
    return np.asarray(codes, dtype=np.int64)


def _arrivals(arrived: Any, rows: int, where: str) -> Array:
    """Return the arrival of each row, a whole number from 0 on, shape ``(n,)``.

    Raises:
        InvalidInput: there is not one arrival per row, or an arrival is not a whole number from 0 on.
    """
    found = np.asarray(arrived).ravel()
    whole = found.dtype.kind in "iuf" and bool((found == np.floor(found)).all())
    if len(found) != rows or not whole or found.min(initial=0) < 0:
        raise InvalidInput(
            "arrivals are not a whole number from 0 on for each of its rows", where=where
        )
    return found.astype(np.int64)

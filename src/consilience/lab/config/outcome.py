"""Section ``[outcome]`` of a configuration: survival, quantiles of a number, or several labels."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from consilience.core.errors import InvalidInput
from consilience.core.numerics.outcomes import MOST_EDGES, Outcome
from consilience.lab.config.sections import Number, Section, Whole
from consilience.tables.outcomes.quantiles import Quantiles
from consilience.tables.outcomes.several_labels import MultiLabel
from consilience.tables.outcomes.survival import Survival


class OutcomeSpec(Section):
    """Section ``[outcome]`` of a configuration: the bins, which all parties have to agree on.

    Attributes:
        edges: of the bins; or ``horizon`` or ``range``, with ``bins``.
        horizon: of survival: bins of equal width from 0 to this time, and one after it.
        range: of values: bins of equal width from the first number to the second.
        bins: how many of equal width, by default 10.
        quantiles: predict these of a number; without them the outcome is survival.
        labels: of a party's own configuration, several labels in place of all this: names of their columns.
    """

    edges: tuple[Number, ...] | None = None
    horizon: Number | None = Field(default=None, gt=0)
    range: tuple[Number, Number] | None = None
    bins: Whole | None = Field(default=None, ge=2, lt=MOST_EDGES)
    quantiles: tuple[Number, ...] | None = None
    labels: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        way = "horizon" if self.quantiles is None else "range"
        given = [name for name in ("edges", "horizon", "range") if getattr(self, name) is not None]
        if self.labels is not None:
            if self.model_fields_set != {"labels"}:
                raise ValueError("several labels have no bins: give labels alone")
        elif given not in (["edges"], [way]):
            raise ValueError(
                f"give edges, or {way} and bins; not {' and '.join(given) or 'neither'}"
            )
        if self.edges is not None and self.bins is not None:
            raise ValueError("edges say how many bins there are: leave bins out")
        self.outcome()
        return self

    def outcome(self) -> Outcome:
        """Make the outcome.

        Raises:
            ValueError: edges or quantiles that cannot be.
        """
        low, high = self.range or (0.0, self.horizon or 0.0)
        equal = np.linspace(low, high, (self.bins or 10) + 1).tolist()
        try:
            if self.labels is not None:
                return MultiLabel(self.labels)
            if self.quantiles is None:
                return Survival(self.edges or equal[1:])
            return Quantiles(self.edges or equal, self.quantiles)
        except InvalidInput as error:
            raise ValueError(f"{error.what}. {error.mend}") from error

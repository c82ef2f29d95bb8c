"""Section of a configuration that says an outcome: survival, or quantiles of a number."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from consilience.errors import InvalidInput
from consilience.numerics.outcomes import MOST_EDGES, Outcome, Quantiles, Survival
from consilience.validation.sections import Number, Section, Whole


class OutcomeSpec(Section):
    """Section ``[outcome]`` of a configuration: the bins, which all parties have to agree on.

    Attributes:
        edges: of the bins; or ``horizon`` or ``range``, with ``bins``.
        horizon: of survival: bins of equal width from 0 to this time, and one after it.
        range: of values: bins of equal width from the first number to the second.
        bins: how many of equal width.
        quantiles: predict these of a number; without them the outcome is survival.
    """

    edges: tuple[Number, ...] | None = None
    horizon: Number | None = Field(default=None, gt=0)
    range: tuple[Number, Number] | None = None
    bins: Whole = Field(default=10, ge=2, lt=MOST_EDGES)
    quantiles: tuple[Number, ...] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        way = "range" if self.quantiles else "horizon"
        given = [name for name in ("edges", "horizon", "range") if getattr(self, name) is not None]
        if given not in (["edges"], [way]):
            raise ValueError(
                f"give edges, or {way} and bins; not {' and '.join(given) or 'neither'}"
            )
        if self.edges is not None and "bins" in self.model_fields_set:
            raise ValueError("edges say how many bins there are: leave bins out")
        self.outcome()
        return self

    def outcome(self) -> Outcome:
        """Make the outcome.

        Raises:
            ValueError: edges or quantiles that cannot be.
        """
        low, high = self.range or (0.0, self.horizon or 0.0)
        edges = self.edges or np.linspace(low, high, self.bins + 1).tolist()[not self.quantiles :]
        try:
            return Quantiles(edges, self.quantiles) if self.quantiles else Survival(edges)
        except InvalidInput as error:
            raise ValueError(f"{error.what}. {error.mend}") from error

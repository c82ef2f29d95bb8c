"""Metrics: each is one object, with its computation, range, direction and label.

Another package adds a metric by an entry point in the group for its kind of predictions::

    [project.entry-points."consilience.metrics.classification"]
    top_two = "my_package.metrics:TOP_TWO"

The name of the entry point is the name of the metric. Every party with this package installed then computes
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from consilience.core.numerics.losses import log_losses
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

_ROUNDING = 1e-9
"""Distance from the end of a metric's range that rounding explains."""


@prints_no_rows
@dataclass(frozen=True)
class Scored:
    """Predictions of test rows with the true targets.

    Attributes:
        outputs: probabilities or values, shape ``(n, n_outputs)``.
        targets: one-hot or values, the same shape.
    """

    outputs: Array
    targets: Array

    @cached_property
    def truth(self) -> Array:
        """Column of the true class, shape ``(n,)``."""
        return np.asarray(self.targets.argmax(axis=1))

    @cached_property
    def right(self) -> Array:
        """1 for rows whose most probable class is the true one, else 0, shape ``(n,)``."""
        return np.asarray((self.outputs.argmax(axis=1) == self.truth).astype(np.float64))

    @cached_property
    def losses(self) -> Array:
        """Log loss in nats, shape ``(n,)``."""
        return log_losses(self.outputs, self.targets)


@dataclass(frozen=True)
class Metric:
    """A figure that rates predictions of test rows.

    Attributes:
        name: name in configurations, histories and reports.
        compute: computes the figure of predictions under weights of the rows, shape ``(n,)``, not all 0;
            it returns ``None`` if the figure is not defined for these rows. An outcome computes its own
            metrics (:meth:`~consilience.core.numerics.outcomes.Outcome.row_scores`), and then it is ``None``.
        low: end of the range. The coordinator refuses a reply outside of the range.
        high: other end of the range.
        label: name in reports; empty for ``name`` with spaces.
        larger_is_better: whether a larger figure is better.
        main: whether it is the main metric of a run that names none.
        printed: whether a printed history shows it.
    """

    name: str
    compute: Callable[[Scored, Array], float | None] | None = field(repr=False)
    low: float = 0.0
    high: float = 1.0
    label: str = ""
    larger_is_better: bool = True
    main: bool = False
    printed: bool = True

    def in_range(self, value: float) -> float:
        """Return a value, moved to the end of the range if rounding has brought it beyond.

        >>> Metric("share", None).in_range(1.0000000000000002), Metric("share", None).in_range(1.1)
        (1.0, 1.1)
        """
        nearest = min(max(value, self.low), self.high)
        return nearest if abs(value - nearest) < _ROUNDING else value

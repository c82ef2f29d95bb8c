"""Outcomes other than one class or one number: coded as probabilities of bins, and read back from these.

Everything that parties exchange of such an outcome is a distribution over bins, whose edges all of them
agree on as they agree on classes. So models, aggregators and compression of classes serve it as they are. The
outcomes themselves are in :mod:`consilience.tables.outcomes`, or in another package.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.losses import log_losses
from consilience.core.registry import registered_names, registered_object
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.numbers import check_number

MOST_EDGES = 200
"""Most edges of bins."""

_KINDS = "consilience.outcomes"
"""Group of entry points that create outcomes from the content of their keys."""

L = TypeVar("L")


@dataclass(frozen=True)
class Classes:
    """Classes under a party's names; the default outcome.

    Attributes:
        names: all classes of the federation, including classes without rows at this party; the empty default
            reads them from the rows. A party with a privacy budget must declare them.
        aliases: this party's label to the federation's name, if they differ.
    """

    names: Sequence[str] = ()
    aliases: Mapping[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.names, str | Mapping) or not isinstance(self.aliases, Mapping):
            raise InvalidInput(
                f"names are {self.names!r}, and aliases {self.aliases!r}",
                where=type(self).__name__,
                mend="Give a list of names, and a dictionary of aliases.",
            )
        object.__setattr__(self, "names", names := tuple(map(str, self.names)))
        if len(set(names)) < len(names):
            raise InvalidInput("a class is named twice", where=type(self).__name__)


class Outcome(ABC):
    """A coding of targets as probabilities of bins.

    Args:
        edges: edges of the bins, ascending.

    Attributes:
        edges: the same, shape ``(k,)``.
        classes: names of the bins, in their order.
        columns: names of the predicted quantities of a row.
    """

    metrics: ClassVar[tuple[str, ...]]
    """Names of the metrics, the one that counts first; ``log_loss`` is of the bins, in nats."""

    several: ClassVar[bool] = False
    """Whether a row is of several classes at once, so that a rule cannot read its one class."""

    edges: Array
    classes: tuple[str, ...]
    columns: tuple[str, ...]

    def __init__(self, edges: Sequence[float]) -> None:
        where = f"outcome, {type(self).__name__.lower()}"
        given = list(edges)
        for edge in given:
            check_number("edges", edge, where=where)
        if not 1 <= len(given) <= MOST_EDGES or sorted(set(given)) != given:
            raise InvalidInput(
                f"edges are {given[:10]}",
                where=where,
                mend=f"Give different numbers in ascending order, 1 to {MOST_EDGES} of them.",
            )
        self.edges = read_only(np.array(given, dtype=np.float64))

    @property
    def key(self) -> str:
        """Text that defines the outcome; identical at all parties (:func:`outcome_of`)."""
        return json.dumps({"edges": self.edges.tolist()})

    @abstractmethod
    def read(self, y: Any, *, where: str) -> Array:
        """Read targets as numbers, shape ``(n, ...)``, read-only.

        Args:
            y: as a user gave them.
            where: the party and the table, for errors.

        Raises:
            InvalidInput: they are no such targets.
        """

    @abstractmethod
    def check_own(self, y: Array, *, where: str) -> None:
        """Raise ``InvalidInput`` if a party's own rows cannot be used for training.

        Args:
            y: targets, as :meth:`read` returns them.
            where: the party, for errors.
        """

    @abstractmethod
    def targets(self, y: Array, *, own: Array) -> Array:
        """Code targets as probabilities of the bins.

        Args:
            y: targets, as :meth:`read` returns them.
            own: all known targets, used to estimate the unknown part of ``y``.

        Returns:
            Shape ``(n, n_bins)``.
        """

    @abstractmethod
    def strata(self, y: Array) -> Array:
        """Name the kind of each row, shape ``(n,)``, ``str``: all parts of a split have the same share."""

    @abstractmethod
    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        """Score every row, for the metrics defined as means over rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: targets, as :meth:`read` returns them.

        Returns:
            Metric name to scores, shape ``(n,)`` each.
        """

    def row_losses(self, outputs: Array, targets: Array, y: Array | None = None) -> Array:
        """Compute the log loss of every row, in nats, over the known part of its target.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            targets: probabilities of the bins, coded from targets or given by a teacher; same shape.
            y: the targets before coding, as :meth:`read` returns them; ``None`` for a teacher's
                probabilities.

        Returns:
            Shape ``(n,)``.
        """
        return log_losses(outputs, targets)

    def further(self, outputs: Array, y: Array, weights: Array) -> dict[str, float]:
        """Compute the metrics that cannot be written as means over rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: targets, as :meth:`read` returns them.
            weights: weights of the rows, shape ``(n,)``.

        Returns:
            Metric name to value.
        """
        return {}

    def suited(self, learner: L) -> L:
        """Give the learner for this outcome, of the learner of a user's model: by default the same."""
        return learner

    @abstractmethod
    def answers(self, outputs: Array) -> Array:
        """Compute the predicted quantities from probabilities of the bins, shape ``(n, len(columns))``."""


def outcome_of(key: str) -> Outcome | None:
    """Create the outcome defined by a text (:attr:`Outcome.key`); return ``None`` for an empty text.

    Kinds of outcomes register a function under ``consilience.outcomes``. It takes the decoded text, and
    returns ``None`` if the text defines another kind.

    Raises:
        InvalidInput: the text does not define an outcome.
    """
    if not key:
        return None
    try:
        said: Mapping[str, Any] = json.loads(key)
        kinds = (registered_object(_KINDS, name) for name in registered_names(_KINDS))
        found = next((one for kind in kinds if (one := kind(said)) is not None), None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"an outcome that is none: {key[:100]!r}") from error
    if found is None:
        raise InvalidInput(f"an outcome that is none: {key[:100]!r}")
    assert isinstance(found, Outcome)
    return found


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Names in the order of classes, which is that of letters."""
    width = len(str(len(names)))
    return tuple(f"{i:0{width}d}: {name}" for i, name in enumerate(names, start=1))

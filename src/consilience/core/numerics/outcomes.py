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
"""Group of entry points that make outcomes of what their keys say."""

L = TypeVar("L")


@dataclass(frozen=True)
class Classes:
    """Classes as a party names them, which is the outcome by default.

    Attributes:
        names: all classes of the federation, with those that the party has no rows of; empty, the default,
            reads them from the rows. A party with a budget of privacy declares them.
        aliases: this party's label to the name that the federation uses, where they differ.
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
        edges: of the bins, ascending.

    Attributes:
        edges: the same, shape ``(k,)``.
        classes: names of the bins, in their order.
        columns: names of what is predicted of a row.
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
        """Text that says the outcome, alike at all parties (:func:`outcome_of`)."""
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
        """Raise ``InvalidInput`` where nothing can be learned from a party's own rows.

        Args:
            y: as of :meth:`read`.
            where: the party, for errors.
        """

    @abstractmethod
    def targets(self, y: Array, *, own: Array) -> Array:
        """Code targets as probabilities of the bins, shape ``(n, n_bins)``.

        Args:
            y: as of :meth:`read`.
            own: all rows of those that know them, from which what is not known of ``y`` is estimated.
        """

    @abstractmethod
    def strata(self, y: Array) -> Array:
        """Name the kind of each row, shape ``(n,)``, ``str``: all parts of a split have the same share."""

    @abstractmethod
    def row_scores(self, outputs: Array, y: Array) -> dict[str, Array]:
        """Score every row, by metric, shape ``(n,)`` each: metrics that are means of rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: as of :meth:`read`.
        """

    def row_losses(self, outputs: Array, targets: Array, y: Array | None = None) -> Array:
        """Compute the log loss of what is known of every row, in nats, shape ``(n,)``.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            targets: the same of targets, or of a teacher.
            y: what the targets were coded from, as of :meth:`read`; ``None`` for a teacher's.
        """
        return log_losses(outputs, targets)

    def further(self, outputs: Array, y: Array, weights: Array) -> dict[str, float]:
        """Compute metrics that are no means of rows.

        Args:
            outputs: probabilities of the bins, shape ``(n, n_bins)``.
            y: as of :meth:`read`.
            weights: of the rows, shape ``(n,)``.
        """
        return {}

    def suited(self, learner: L) -> L:
        """Give the learner for this outcome, of the learner of a user's model: by default the same."""
        return learner

    @abstractmethod
    def answers(self, outputs: Array) -> Array:
        """Read what is predicted from probabilities of the bins, shape ``(n, len(columns))``."""


def outcome_of(key: str) -> Outcome | None:
    """Make the outcome that a text says (:attr:`Outcome.key`); ``None`` of an empty one.

    Its kinds register under ``consilience.outcomes``: functions of what the text says, which give ``None`` if
    it is of another kind.

    Raises:
        InvalidInput: it says none.
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

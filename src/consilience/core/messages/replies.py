"""Replies of parties in most protocols: predictions, models, metrics, failures. Each validates itself.

Scores are in :mod:`consilience.core.messages.scores`. Replies to the tasks of a single group are defined with
these tasks: in :mod:`consilience.methods.parameters.tasks`, :mod:`~consilience.methods.model_exchange.tasks`
and :mod:`~consilience.methods.functional_boosting.tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np

from consilience.core.errors import Code, InvalidInput, KnowledgeRefused
from consilience.core.messages.base import (
    PartyMessage,
    Reply,
    check_array,
    check_count,
    check_finite,
    check_names,
    check_reach,
    check_same,
)
from consilience.core.messages.message import message
from consilience.core.messages.schema import (
    LARGEST,
    MOST_CLASSES,
    PRECISION,
    VERSION,
    Agreement,
    OutputKind,
    Ratios,
    TaskLike,
)
from consilience.core.messages.scores import RowCount
from consilience.core.messages.sums import Sum, Weights, party_weights, weighted_sum
from consilience.core.metrics.metrics import find_metric
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.core.validation.printing import prints_no_rows

_MOST_METRICS = 100

_MOST_PUBLIC = 10
"""Maximum number of sets of public rows in a party's description."""


@message
class Description(PartyMessage, privacy="nothing"):
    """General description of a party's data and learner, sent before the first round.

    A party with a privacy budget derives no field from its rows: its classes are the declared ones.

    Attributes:
        party: name of the party.
        kind: ``"classification"`` or ``"regression"``, the kind of its learner.
        classes: names of the classes in its private data, empty for regression.
        outputs: number of regression targets, 0 for classification.
        soft_targets: one sentence on how its learner uses soft targets.
        fewest_classes: minimum number of classes for training its learner.
        tested: whether it has test data for evaluation.
        row: form of one input: ``"text"``, or its shape, such as ``"(28, 28)"``.
        version: version of its messages.
        public: digests (:attr:`Public.key`) of its public rows.
        takes_public: maximum size in bytes of public rows to accept from the coordinator; 0 if it chooses its
            public rows.
        metrics: maximum number of metric requests in a run; ``None`` for no limit.
        ratios: the kind of its density ratios.
        labelled: whether it has private labelled rows.
        frozen: whether it answers and is never trained; without labels and unfrozen, a party only learns.
        outcome: outcome whose bins are its classes, as in :class:`Agreement`.
        target_key: digest of the names of several regression targets, in order; empty if the targets are
            unnamed.
    """

    party: str
    kind: Kind
    classes: tuple[str, ...]
    outputs: int
    soft_targets: str
    fewest_classes: int
    tested: bool
    row: str
    version: int
    public: tuple[str, ...] = ()
    takes_public: int = 0
    metrics: int | None = None
    ratios: Ratios = "none"
    labelled: bool = True
    frozen: bool = False
    outcome: str = ""
    target_key: str = ""

    @property
    def learns_only(self) -> bool:
        """Whether the party only receives teaching and sends no predictions."""
        return not (self.labelled or self.frozen)

    def validate(self, *, party: str, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the party describes itself, without contradictions.

        Args:
            party: name of the party that sent the description.
            task: the task that the party received.
            agreement: the federation's agreement; ``None`` before the parties have joined.
        """
        check_same("party", self.party, party, where=party)
        if self.version != VERSION:
            raise KnowledgeRefused(
                f"it speaks version {self.version} of the messages, not {VERSION}: it and the coordinator "
                "need the same version of consilience",
                where=party,
            )
        classifies = self.kind == "classification"
        named = bool(self.classes) == classifies or self.learns_only
        if len(set(self.classes)) != len(self.classes) or not named:
            raise KnowledgeRefused(f"{self.kind} with classes {self.classes}", where=party)
        if max(len(self.classes), self.outputs) > MOST_CLASSES:
            raise KnowledgeRefused(f"more than {MOST_CLASSES:,} classes or targets", where=party)
        if len(self.public) > _MOST_PUBLIC:
            raise KnowledgeRefused(f"more than {_MOST_PUBLIC} sets of public rows", where=party)
        check_names(
            self.party,
            *self.classes,
            self.soft_targets,
            self.row,
            self.target_key,
            *self.public,
            where=party,
        )
        try:
            outcome = outcome_of(self.outcome)
        except InvalidInput as error:
            raise KnowledgeRefused(error.what, where=party) from error
        if outcome is not None and outcome.classes != self.classes:
            raise KnowledgeRefused("its classes are no bins of its outcome", where=party)
        if self.takes_public < 0:
            raise KnowledgeRefused(f"takes {self.takes_public} bytes of public rows", where=party)
        if self.metrics is not None and self.metrics < 0:
            raise KnowledgeRefused(f"is measured {self.metrics} times", where=party)
        counted = (self.outputs == 0) == classifies or self.learns_only
        if self.fewest_classes < 1 or self.outputs < 0 or not counted:
            raise KnowledgeRefused(
                f"{self.kind} with {self.outputs} targets and at least {self.fewest_classes} classes",
                where=party,
            )


@message
class Receipt(Reply, privacy="nothing"):
    """Receipt for a completed task; it carries no information about the party's data or model.

    Attributes:
        notes: warnings for the ledger, such as a density estimate that fell back to a default.
    """

    notes: tuple[str, ...] = ()


@message
class Predictions(Reply, privacy="unbudgeted", lossy={"values": "rows"}):
    """Predictions of a party's model for every public row.

    Attributes:
        kind: ``"probabilities"``, ``"logits"`` or ``"values"`` (regression).
        classes: the column order.
        public: digest of the public data that the rows belong to.
        values: shape ``(n_public, n_outputs)``, of the kind's
            :data:`~consilience.core.messages.schema.PRECISION`.
    """

    kind: OutputKind
    classes: tuple[str, ...]
    public: str
    values: Array

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` with the first field that differs from the agreement."""
        assert agreement is not None
        check_same("kind", self.kind, getattr(task, "outputs", self.kind), where=self.party)
        check_same("public data", self.public, agreement.public, where=self.party)
        check_same("class order", self.classes, agreement.classes, where=self.party)
        shape, precision = (agreement.rows, agreement.outputs), PRECISION[self.kind]
        check_array(self.values, shape, precision, where=self.party)
        if self.kind == "probabilities" and _on_simplex(self.values):
            return
        check_finite(self.values, where=self.party)
        if self.kind == "probabilities":
            raise KnowledgeRefused(
                "probabilities are negative or do not sum to 1", where=self.party
            )
        check_reach("values", self.values, where=self.party)


@message
class SharedModel(Reply, privacy="unbudgeted"):
    """A party's trained model, for others to predict with.

    Some models store training rows verbatim; a party sends such a model only if its settings allow it.

    Attributes:
        about: description of the model, as JSON (:mod:`consilience.models.files.transfer`).
        data: bytes of the model, shape ``(n_bytes,)``, uint8.
        notes: notes for the ledger, such as refused models of other parties.
    """

    about: str
    data: Array
    notes: tuple[str, ...] = ()

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless it is a row of bytes; the receiver vets their contents."""
        if self.data.dtype != np.uint8 or self.data.ndim != 1 or not len(self.data):
            raise KnowledgeRefused("its model is not a row of bytes", where=self.party)


@message
class Metrics(Reply, privacy="measured"):
    """Metrics of a party's model on its own test data.

    Attributes:
        rows: number of test rows.
        values: metric name to number.
    """

    rows: int
    values: Mapping[str, float]

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless every metric lies where it can."""
        check_count(self.rows, where=self.party)
        if len(self.values) > _MOST_METRICS:
            raise KnowledgeRefused("more metrics than there can be", where=self.party)
        check_names(*self.values, where=self.party)
        for name, value in self.values.items():
            # A metric that no package here has, such as a protocol's own, lies within LARGEST.
            metric = find_metric(name)
            low, high = (-LARGEST, LARGEST) if metric is None else (metric.low, metric.high)
            if not low <= value <= high:  # nor is NaN
                raise KnowledgeRefused(f"metric {name} is {value!r}", where=self.party)


@message
class Failure:
    """Reason why a party did not complete its tasks.

    Attributes:
        party: name of the party.
        reason: the reason, one sentence.
        mend: advice for the user, or empty.
        kind: ``"failed"``, ``"late"``, ``"refused"`` (its answer was not accepted, or it did not accept the
            request) or ``"invalid"`` (its data or model cannot be used).
        code: machine-readable reason, or empty: with ``"lacks-public"`` the coordinator sends the public
            rows, with ``"not-joined"`` it sends a new join request; ``"budget"`` means that the party's
            privacy budget refused the tasks before they ran.
    """

    party: str
    reason: str
    mend: str = ""
    kind: Literal["failed", "late", "refused", "invalid"] = "failed"
    code: Code = ""


K = TypeVar("K")


@prints_no_rows
@dataclass(frozen=True)
class Replies:
    """Replies of the parties to one request, sorted by party name.

    Attributes:
        answers: party to its accepted replies, one per task.
        missing: party to the reason for its exclusion.
        late: missing party to its late answer to an earlier request of this kind: the age in rounds, and the
            replies.
    """

    answers: Mapping[str, tuple[Any, ...]]
    missing: Mapping[str, Failure]
    late: Mapping[str, tuple[int, tuple[Any, ...]]] = field(default_factory=dict, kw_only=True)

    @property
    def parties(self) -> tuple[str, ...]:
        """Sorted names of the parties with accepted answers."""
        return tuple(self.answers)

    def of(self, kind: type[K]) -> list[K]:
        """List every party's reply of one type, in party order."""
        said = [answer for given in self.answers.values() for answer in given]
        kinds = {one for one in set(map(type, said)) if issubclass(one, kind)}
        return [answer for answer in said if type(answer) in kinds]

    def sum(
        self,
        kind: type[Any],
        field: str = "values",
        *,
        weights: Weights = "uniform",
        over: float | None = 1.0,
        minus: Array | None = None,
    ) -> Sum:
        """Add up one field of every party's reply, in party order and in float64.

        Args:
            kind: the type of the replies.
            field: the name of an array in each, of the same shape.
            weights: ``"uniform"``, or ``"rows"`` for the row counts in the replies or, if they have none, in
                their :class:`RowCount`.
            over: divisor of the weights; ``None`` divides by their sum, which gives the mean.
            minus: array to subtract from each reply before the sum.

        Raises:
            KnowledgeRefused: there are no replies, or a party sent none of that type.
        """
        given = self._one_each(kind)
        counted: list[Any] = given
        if weights == "rows" and not hasattr(given[0], "rows"):
            counted = self._one_each(RowCount)
        share = party_weights(counted, weights, over=over)
        values = (getattr(one, field) for one in given)
        terms = values if minus is None else (one - minus for one in values)
        return Sum(weighted_sum(terms, share), share, self.parties)

    def _one_each(self, kind: type[K]) -> list[K]:
        """Every party's reply of one type."""
        given = self.of(kind)
        if len(given) != len(self) or not given:
            raise KnowledgeRefused(f"the rule needs {kind.__name__} of every party")
        return given

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


def _on_simplex(values: Array) -> bool:
    """Tell whether rows are probabilities, to float32 accuracy: 1e-3 leaves room for 10,000 classes."""
    if not values.min() >= 0:  # NaN fails every comparison
        return False
    with np.errstate(over="ignore"):  # of large values the sum is infinite
        sums = np.dot(values, _ones(values.shape[1]))
    return bool(sums.min() >= 1 - 1e-3 and sums.max() <= 1 + 1e-3)


@cache
def _ones(count: int) -> Array:
    """Ones to add up rows with, shape ``(count,)``, float32."""
    return np.ones(count, dtype=np.float32)

"""The few types that may leave a party. Each validates itself on arrival, against what was agreed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from consilience.errors import Code, InvalidInput, KnowledgeRefused, odd_name
from consilience.messages.message import message
from consilience.messages.sums import Sum, Weights, party_weights, weighted_sum
from consilience.validation.arrays import Array, check_inputs, read_only

OutputKind = Literal["probabilities", "logits", "values"]
TaskKind = Literal["classification", "regression"]

PRECISION: Mapping[OutputKind, type[np.floating[Any]]] = {
    "probabilities": np.float32,
    "logits": np.float32,
    "values": np.float64,
}
"""What numbers of a kind are exchanged as. Values keep all their digits, since a step of the protocol such
as de-regularisation may multiply their rounding errors a millionfold."""

LARGEST = 1e18
"""What a number of a model may come to: its square still has a place in 32 bits. A finite number beyond it
makes the others' teacher, or what they compute from it, infinite."""

MOST_ROWS = 10**12
"""Private rows that a party may say it has."""

MOST_CLASSES = 65_536
"""Classes, or targets of a regression."""

_MOST_METRICS = 100

_MOST_PUBLIC = 10
"""Sets of public rows that a party may say it holds."""

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "accuracy": (0.0, 1.0),
    "accuracy_local": (0.0, 1.0),
    "auc": (0.0, 1.0),
    "log_loss": (0.0, LARGEST),
    "mse": (0.0, LARGEST**2),
    "r2": (-(LARGEST**2), 1.0),
}
"""Where the metrics lie that parties measure; others, a protocol's own, lie within :data:`LARGEST`."""


class Public:
    """The unlabelled inputs that every party and the coordinator hold; :meth:`none` where there are none.

    Args:
        X: shape ``(n, ...)`` of numbers, or ``(n,)`` of strings.
        columns: names of the columns, where they have names; a party that knows the names of its own takes
            no rows whose columns are others, or in another order.

    Raises:
        InvalidInput: no rows, values that are not finite, or not a name for each column.
    """

    def __init__(self, X: Array, columns: tuple[str, ...] = ()) -> None:
        X = np.asarray(X)
        if X.ndim == 0 or len(X) == 0:
            raise InvalidInput(
                "there is no public data",
                where="public",
                mend="Parties teach one another on shared unlabelled rows: give at least one.",
            )
        check_inputs(X, where="public data")
        if columns and X.shape[1:] != (len(columns),):
            raise InvalidInput(
                f"rows of shape {X.shape[1:]} have {len(columns)} names of columns",
                where="public data",
            )
        self.X, self.columns = read_only(X), columns

    @classmethod
    def none(cls) -> Public:
        """No public data, for protocols that exchange models."""
        absent = cls.__new__(cls)
        absent.X, absent.columns = read_only(np.zeros(0)), ()
        return absent

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def key(self) -> str:
        """A digest of the rows, their order, shape and type: both sides must mean the same set."""
        texts = self.X.dtype.kind in "UO"
        digest = hashlib.sha256(f"{'texts' if texts else self.X.dtype.kind}{self.X.shape}".encode())
        if texts:
            for text in map(str, self.X.ravel()):
                said = text.encode()
                digest.update(len(said).to_bytes(8, "little") + said)  # else "ab", "c" is "a", "bc"
        else:
            digest.update(self.X.astype(self.X.dtype.newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()[:32]  # 128 bits: one who chooses both sets finds no two alike


class Asked(Protocol):
    """What an answer is checked against: the task that was asked."""

    @property
    def round(self) -> int:
        """The round it belongs to."""


@message
class Agreement:
    """What a federation agreed on at its start; everything later is checked against it.

    Attributes:
        kind: ``"classification"`` or ``"regression"``.
        classes: the class order of every exchanged row, empty for regression.
        outputs: number of columns of every exchanged row.
        public: :attr:`Public.key` of the public data.
        rows: number of public rows.
        seed: the seed that all random streams are keyed by.
    """

    kind: TaskKind
    classes: tuple[str, ...]
    outputs: int
    public: str
    rows: int
    seed: int


@message
class Description:
    """What a party says of itself before the first round.

    Attributes:
        party: its name.
        kind: what its learner does, ``"classification"`` or ``"regression"``.
        classes: names of the classes in its private data, empty for regression.
        outputs: number of regression targets, 0 for classification.
        soft_targets: how its learner takes soft targets, one sentence.
        fewest_classes: how many classes its learner needs to be trained.
        tested: whether it holds test data to be evaluated on.
        row: what one of its inputs looks like: ``"text"``, or its shape, such as ``"(28, 28)"``.
        public: digests (:attr:`Public.key`) of the public rows that it holds.
        takes_public: bytes of public rows that it takes from the coordinator; 0 where it has rows of its own
            choice.
        metrics: how often in a run it lets itself be measured; ``None`` for as often as it is asked.
    """

    party: str
    kind: TaskKind
    classes: tuple[str, ...]
    outputs: int
    soft_targets: str
    fewest_classes: int
    tested: bool
    row: str
    public: tuple[str, ...] = ()
    takes_public: int = 0
    metrics: int | None = None

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the party speaks for itself, and makes sense."""
        _same("party", self.party, party, where=party)
        classifies = self.kind == "classification"
        if len(set(self.classes)) != len(self.classes) or bool(self.classes) != classifies:
            raise KnowledgeRefused(f"{self.kind} with classes {self.classes}", where=party)
        if max(len(self.classes), self.outputs) > MOST_CLASSES:
            raise KnowledgeRefused(f"more than {MOST_CLASSES:,} classes or targets", where=party)
        if len(self.public) > _MOST_PUBLIC:
            raise KnowledgeRefused(f"more than {_MOST_PUBLIC} sets of public rows", where=party)
        _named(self.party, *self.classes, self.soft_targets, self.row, *self.public, where=party)
        if self.takes_public < 0:
            raise KnowledgeRefused(f"takes {self.takes_public} bytes of public rows", where=party)
        if self.metrics is not None and self.metrics < 0:
            raise KnowledgeRefused(f"is measured {self.metrics} times", where=party)
        if self.fewest_classes < 1 or self.outputs < 0 or (self.outputs == 0) != classifies:
            raise KnowledgeRefused(
                f"{self.kind} with {self.outputs} targets and at least {self.fewest_classes} classes",
                where=party,
            )


@message
class Receipt:
    """A party did what it was asked; nothing of its data or model leaves.

    Attributes:
        party: its name.
        round: the round of the task.
        notes: warnings for the ledger, such as a density that had to fall back.
    """

    party: str
    round: int
    notes: tuple[str, ...] = ()

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless party and round are the ones asked."""
        _same("party", self.party, party, where=party)
        _same("round", self.round, task.round, where=party)


@message
class Predictions:
    """A party's answers on every public row.

    Attributes:
        party: its name.
        round: the round of the task.
        kind: ``"probabilities"``, ``"logits"`` or ``"values"`` (regression).
        classes: the column order.
        public: digest of the public data the rows belong to.
        values: shape ``(n_public, n_outputs)``, of the kind's :data:`PRECISION`.
    """

    party: str
    round: int
    kind: OutputKind
    classes: tuple[str, ...]
    public: str
    values: Array

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        _same("party", self.party, party, where=party)
        _same("round", self.round, task.round, where=party)
        assert agreement is not None
        _same("kind", self.kind, getattr(task, "outputs", self.kind), where=party)
        _same("public data", self.public, agreement.public, where=party)
        _same("class order", self.classes, agreement.classes, where=party)
        shape, precision = (agreement.rows, agreement.outputs), PRECISION[self.kind]
        _shaped(self.values, shape, precision, where=party)
        if self.kind == "probabilities" and _on_simplex(self.values):
            return
        _finite(self.values, where=party)
        if self.kind == "probabilities":
            raise KnowledgeRefused("probabilities are negative or do not sum to 1", where=party)
        within_reach("values", self.values, where=party)


@message
class LogDensities:
    """How typical each public row looks to a party: one log-density a row.

    Attributes:
        party: its name.
        round: the round of the task.
        public: digest of the public data.
        values: shape ``(n_public,)``, float32, natural logarithm of a density.
        notes: warnings for the ledger.
    """

    party: str
    round: int
    public: str
    values: Array
    notes: tuple[str, ...] = ()

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        _scored(self, (), np.float32, party, task, agreement)
        _finite(self.values, where=party)


@message
class Certainties:
    """How surely a party takes each public row for one of its own kind.

    Attributes:
        party: its name.
        round: the round of the task.
        public: digest of the public data.
        values: shape ``(n_public,)``, float32, in (0, 1].
    """

    party: str
    round: int
    public: str
    values: Array

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        _scored(self, (), np.float32, party, task, agreement)
        _finite(self.values, where=party)
        if not (self.values.min() > 0 and self.values.max() <= 1):
            raise KnowledgeRefused("certainties are not in (0, 1]", where=party)


@message
class Selection:
    """Which public rows a party speaks for.

    Attributes:
        party: its name.
        round: the round of the task.
        public: digest of the public data.
        values: shape ``(n_public,)``, bool.
        notes: warnings for the ledger.
    """

    party: str
    round: int
    public: str
    values: Array
    notes: tuple[str, ...] = ()

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        _scored(self, (), np.bool_, party, task, agreement)


@message
class DensityRatios:
    """How much denser a party's rows of each class lie than the public ones, at each public row.

    With ``n`` rows none is beyond ``n / (2 sqrt(ridge))``, of either sign: the ratios are
    ``K^½ (K + ridge I)⁻¹ s`` with ``|s| ≤ n`` and the eigenvalues of K at least 0.

    Attributes:
        party: its name.
        round: the round of the task.
        classes: the column order.
        public: digest of the public data.
        values: shape ``(n_public, n_classes)``, float32: an estimate of how many of its rows of the class
            come on one public row there (:class:`consilience.numerics.density.PublicRatio`); below 0 where it
            overshoots.
    """

    party: str
    round: int
    classes: tuple[str, ...]
    public: str
    values: Array

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        assert agreement is not None
        _scored(self, (agreement.outputs,), np.float32, party, task, agreement)
        _same("classes", self.classes, agreement.classes, where=party)
        reach = MOST_ROWS / (2 * math.sqrt(getattr(task, "ridge", 0.25)))
        _between(self.values, -reach, reach, where=party)


@message
class CoarseRatios:
    """Density ratios by round counts, in a party's settings (:func:`.density.coarse_ratios`).

    Attributes:
        party: its name.
        round: the round of the task.
        classes: the column order.
        public: digest of the public data.
        values: shape ``(n_public, n_classes)``, float32, from 0 to the party's rows of the class.
    """

    party: str
    round: int
    classes: tuple[str, ...]
    public: str
    values: Array

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` naming the first thing that is not as agreed."""
        assert agreement is not None
        _scored(self, (agreement.outputs,), np.float32, party, task, agreement)
        _same("classes", self.classes, agreement.classes, where=party)
        _between(self.values, 0, MOST_ROWS, where=party)


@message
class SharedModel:
    """A party's trained model, for others to predict with.

    What a model says of the rows it was trained on is its own matter; some hold them word for word, which a
    party sends only if told to.

    Attributes:
        party: its name.
        round: the round of the task.
        about: what the model is, as JSON (:mod:`consilience.learners.files.transfer`).
        data: its bytes, shape ``(n_bytes,)``, uint8.
        notes: for the ledger, such as models of others that were refused.
    """

    party: str
    round: int
    about: str
    data: Array
    notes: tuple[str, ...] = ()

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless it is what was asked for; what is in it the receiver checks."""
        _same("party", self.party, party, where=party)
        _same("round", self.round, task.round, where=party)
        if self.data.dtype != np.uint8 or self.data.ndim != 1 or not len(self.data):
            raise KnowledgeRefused("its model is not a row of bytes", where=party)


@message
class RowCount:
    """How many private rows a party trains on."""

    party: str
    round: int
    rows: int

    @property
    def values(self) -> int:
        """The count, as aggregators stack it."""
        return self.rows

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the count is positive and the party's own."""
        _same("party", self.party, party, where=party)
        _same("round", self.round, task.round, where=party)
        countable(self.rows, where=party)


@message
class Metrics:
    """How well a party's model does on its own test data.

    Attributes:
        party: its name.
        round: the round of the task.
        rows: number of test rows.
        values: metric name to number.
    """

    party: str
    round: int
    rows: int
    values: Mapping[str, float]

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless every metric lies where it can."""
        _same("party", self.party, party, where=party)
        _same("round", self.round, task.round, where=party)
        countable(self.rows, where=party)
        if len(self.values) > _MOST_METRICS:
            raise KnowledgeRefused("more metrics than there can be", where=party)
        _named(*self.values, where=party)
        for name, value in self.values.items():
            low, high = _BOUNDS.get(name, (-LARGEST, LARGEST))
            if not low <= value <= high:  # nor is NaN
                raise KnowledgeRefused(f"metric {name} is {value!r}", where=party)


@message
class Failure:
    """A party could not or would not do what it was asked.

    Attributes:
        party: its name.
        reason: one sentence.
        mend: what would help, or empty.
        kind: ``"failed"``, ``"late"``, ``"refused"`` (its answer was not accepted, or it did not accept the
            question) or ``"invalid"`` (its data or model cannot be used).
        code: what the coordinator may do about it, if anything: send the public rows (``"lacks-public"``),
            or have it join anew (``"not-joined"``).
    """

    party: str
    reason: str
    mend: str = ""
    kind: Literal["failed", "late", "refused", "invalid"] = "failed"
    code: Code = ""


K = TypeVar("K")


@dataclass(frozen=True)
class Replies:
    """What came back from one question, sorted by party name.

    Attributes:
        answers: party to its accepted answers, one per task asked.
        missing: party to the reason it was left out.
    """

    answers: Mapping[str, tuple[Any, ...]]
    missing: Mapping[str, Failure]

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties whose answers were accepted, sorted."""
        return tuple(self.answers)

    def of(self, kind: type[K]) -> list[K]:
        """Every party's answer of one type, in party order."""
        return [
            answer
            for given in self.answers.values()
            for answer in given
            if isinstance(answer, kind)
        ]

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
            weights: ``"uniform"``, or ``"rows"`` for the row counts that the replies hold or, where they hold
                none, those of :class:`RowCount`.
            over: a number that the weights are divided by; ``None`` for their sum, which gives the mean.
            minus: what is taken off each reply before it is added.

        Raises:
            KnowledgeRefused: there are no replies, or a party's lacks one of that type.
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


def countable(rows: int, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on a number of rows that no party has."""
    if not 1 <= rows <= MOST_ROWS:
        raise KnowledgeRefused(f"a row count of {rows}", where=where)


def within_reach(what: str, values: Array, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on finite numbers beyond :data:`LARGEST`."""
    if max(values.max(initial=0), -values.min(initial=0)) > LARGEST:
        raise KnowledgeRefused(f"{what} beyond {LARGEST:g}", where=where)


def _named(*names: str, where: str) -> None:
    """Raise ``KnowledgeRefused`` where one is no name."""
    for name in names:
        if why := odd_name(name):
            raise KnowledgeRefused(f"a name that is none: {why}", where=where)


def _same(what: str, got: object, expected: object, *, where: str) -> None:
    if got != expected:
        raise KnowledgeRefused(f"{what} is {got!r}, expected {expected!r}", where=where)


def _scored(
    scores: LogDensities | Certainties | Selection | DensityRatios | CoarseRatios,
    columns: tuple[int, ...],
    precision: type[np.generic],
    party: str,
    task: Asked,
    agreement: Agreement | None,
) -> None:
    """Raise ``KnowledgeRefused`` unless they are the party's, of the round, and one for each public row."""
    _same("party", scores.party, party, where=party)
    _same("round", scores.round, task.round, where=party)
    assert agreement is not None
    _same("public data", scores.public, agreement.public, where=party)
    _shaped(scores.values, (agreement.rows, *columns), precision, where=party)


def _shaped(
    values: Array, shape: tuple[int, ...], precision: type[np.generic], *, where: str
) -> None:
    if values.dtype != precision:
        expected = np.dtype(precision)
        raise KnowledgeRefused(f"values are {values.dtype}, expected {expected}", where=where)
    if values.shape != shape:
        raise KnowledgeRefused(f"values have shape {values.shape}, expected {shape}", where=where)


def _between(values: Array, low: float, high: float, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` on ratios that no rows have."""
    _finite(values, where=where)
    if values.size and not (low <= values.min() and values.max() <= high):
        raise KnowledgeRefused(
            f"ratios from {values.min():g} to {values.max():g}, where {low:g} to {high:g} can be",
            where=where,
        )


def _finite(values: Array, *, where: str) -> None:
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise KnowledgeRefused(f"{count} of {values.size} values are NaN or infinite", where=where)


def _on_simplex(values: Array) -> bool:
    """Whether rows are probabilities, to float32 accuracy: 1e-3 leaves room for 10,000 classes."""
    # Large values are found first: their sum could overflow. NaN fails every comparison.
    if not (values.min() >= 0 and values.max() <= 2):
        return False
    sums = values @ np.ones(values.shape[1], dtype=np.float32)
    return bool(sums.min() >= 1 - 1e-3 and sums.max() <= 1 + 1e-3)

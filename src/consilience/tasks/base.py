"""What a coordinator may ask of a party. The fields cross the wire; the code is at both ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args

import numpy as np

from consilience.errors import Code, ConsilienceError, InvalidInput, KnowledgeRefused
from consilience.messages.message import REGISTRY, message
from consilience.messages.replies import (
    PRECISION,
    Agreement,
    Certainties,
    CoarseRatios,
    DensityRatios,
    Description,
    Failure,
    LogDensities,
    Metrics,
    OutputKind,
    Predictions,
    Public,
    Receipt,
    Replies,
    RowCount,
    Selection,
    within_reach,
)
from consilience.party.party import Party
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_number

K = TypeVar("K")


Exchange = Literal["predictions", "parameters", "models", "others"]
"""Groups of tasks, by what leaves a party with them; ``"others"`` are those of other packages' protocols."""


class Task(ABC):
    """A question to a party: a frozen message whose fields cross the wire, with a ``run`` at both ends.

    A protocol may define its own in its own file. Every task declares what it belongs to where its class is
    defined; a class that does not is an error::

        @message
        class CountRows(Task, reply_type=RowCount, exchanges="predictions", protocol=None, static=True):
            round: int

            def run(self, party: Party) -> RowCount: ...

    Attributes:
        reply_type: the message that ``run`` replies with.
        exchanges: the group that a party's limits must allow for it; ``None`` where they must name the task.
        protocol: the protocol that alone uses it, by name; ``None`` where several do.
        static: whether its reply depends on a party's data alone, so that any round may ask for it.
        keeps_model: whether the party's model stays as it is.
        deferrable: whether a party may run it when it is next asked for something else.
        bookkeeping: whether it belongs to the experiment, so that it costs the method nothing.
        round: the round it belongs to; 0 for what happens before the first.
    """

    reply_type: ClassVar[type[Any]]
    exchanges: ClassVar[Exchange | None]
    protocol: ClassVar[str | None]
    static: ClassVar[bool]
    keeps_model: ClassVar[bool]
    deferrable: ClassVar[bool]
    bookkeeping: ClassVar[bool]
    round: int

    def __init_subclass__(
        cls,
        *,
        reply_type: type[Any],
        exchanges: Exchange | None,
        protocol: str | None,
        static: bool = False,
        keeps_model: bool = False,
        deferrable: bool = False,
        bookkeeping: bool = False,
    ) -> None:
        if exchanges is not None and exchanges not in get_args(Exchange):
            raise TypeError(f"{cls.__name__}: no group of tasks is called {exchanges!r}")
        cls.reply_type, cls.exchanges, cls.protocol = reply_type, exchanges, protocol
        cls.static, cls.keeps_model = static, keeps_model
        cls.deferrable, cls.bookkeeping = deferrable, bookkeeping
        super().__init_subclass__()

    @abstractmethod
    def run(self, party: Party) -> Any:
        """Do it at the party and reply."""


def task_types() -> dict[str, type[Task]]:
    """Every kind of task that is known in this process, by its name on the wire."""
    return {name: kind for name, kind in REGISTRY.items() if issubclass(kind, Task)}


def bookkeeping_tasks() -> tuple[str, ...]:
    """Names of the tasks that belong to the experiment and not to a method."""
    return tuple(name for name, kind in task_types().items() if kind.bookkeeping)


class Network(Protocol):
    """What a protocol sees of the parties: their names, the seed, and one way to ask them."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Names, sorted."""

    @property
    def agreed(self) -> Agreement:
        """What the parties agreed on when they joined."""

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have the parties run the tasks, in order, in one exchange; all parties unless ``to`` names some.

        Parties that fail, are late, or answer what was not asked are left out and recorded.

        Raises:
            QuorumLost: too few answered.
        """

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Have every party that is named run a task of its own; otherwise like :meth:`ask`."""

    def require(self, *tasks: Task) -> Replies:
        """Like :meth:`ask`, for what has to be right at every party before anything is trained.

        Raises:
            InvalidInput: a party's data or model cannot be used.
            RunFailed: a party failed for another reason.
        """


@message
class Describe(Task, reply_type=Description, exchanges="predictions", protocol=None):
    """Say what you are: classes, kind of learner. No data."""

    round: int = 0

    def run(self, party: Party) -> Description:
        """The party's description of itself."""
        return Description(
            party=party.name,
            kind=party.kind,
            classes=party.classes,
            outputs=0 if party.kind == "classification" else party.y.shape[1],
            soft_targets=party.how_soft_targets,
            fewest_classes=party.fewest_classes,
            tested=party.test is not None,
            row="text" if party.X.dtype.kind in "UO" else str(party.X.shape[1:]),
            public=party.public_digests,
            takes_public=party.takes_public,
            metrics=party.metrics,
        )


@message
class TakePublic(Task, reply_type=Receipt, exchanges="predictions", protocol=None):
    """Take these as the public rows; asked of parties that have none of their own, before they join.

    Attributes:
        public: digest of the rows, :attr:`consilience.messages.replies.Public.key`.
        values: numbers, shape ``(n_public, ...)``; of texts the UTF-8 bytes, one text after another, uint8.
        lengths: of texts, how many bytes each has, shape ``(n_public,)``, int64; ``None`` for numbers.
        columns: names of the columns, where they have names.
    """

    public: str
    values: Array
    lengths: Array | None = None
    columns: tuple[str, ...] = ()
    round: int = 0

    @classmethod
    def of(cls, public: Public) -> TakePublic:
        """The task that sends these rows.

        Raises:
            InvalidInput: texts in more than one column.
        """
        if public.X.dtype.kind not in "UO":
            return cls(public=public.key, values=public.X, columns=public.columns)
        if public.X.ndim != 1:
            raise InvalidInput(
                f"public texts of shape {public.X.shape} cannot be sent",
                where="public data",
                mend="Give one text a row, or every party a file of them.",
            )
        texts = [str(text).encode() for text in public.X]
        return cls(
            public=public.key,
            values=np.frombuffer(b"".join(texts), dtype=np.uint8),
            lengths=np.array([len(text) for text in texts], dtype=np.int64),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on the wire."""
        return self.values.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    @property
    def unpacked(self) -> int:
        """Bytes of memory that the rows take: 8 a number, however it is sent; 80 a text, and 4 a byte of it.

        Python keeps every character of a text in as many bytes, up to 4, as its widest one needs.
        """
        if self.lengths is None:
            return 8 * self.values.size
        return 4 * self.values.nbytes + 80 * self.lengths.size

    def rows(self) -> Public:
        """The rows, which are those that the digest names.

        Raises:
            KnowledgeRefused: they are no public rows, or others.
        """
        try:
            X = self.values if self.lengths is None else _texts(self.values, self.lengths)
            public = Public(X, self.columns)
        except InvalidInput as error:
            raise KnowledgeRefused(f"what was sent are no public rows: {error.what}") from error
        if self.values.dtype.kind == "f":
            within_reach("public rows", self.values, where="TakePublic")
        if public.key != self.public:
            raise KnowledgeRefused(
                f"the public rows that were sent have the digest {public.key}, and not "
                f"{self.public[:_LONGEST_DIGEST]!r}"
            )
        return public

    def rows_for(self, party: Party) -> Public:
        """The rows, not yet held against the party's own.

        Raises:
            InvalidInput: it has rows of its own choice.
            KnowledgeRefused: they are no public rows, others than the digest names, or of another kind.
        """
        party.check_takes_public()
        if (self.lengths is None) == (party.X.dtype.kind in "UO"):  # before texts are made of bytes
            raise KnowledgeRefused("private and public data: one is text, the other numbers")
        return self.rows()

    def run(self, party: Party) -> Receipt:
        """The rows are checked against the party's own."""
        party.take_public(self.rows_for(party))
        return Receipt(party=party.name, round=self.round)


_LONGEST_DIGEST = 64
"""Characters of what was said to be a digest that an error repeats."""


def _texts(values: Array, lengths: Array) -> Array:
    """The texts whose bytes come one after another."""
    whole = values.dtype == np.uint8 and values.ndim == lengths.ndim == 1
    if (
        not whole
        or lengths.dtype != np.int64
        or ((lengths < 0) | (lengths > len(values))).any()
        or lengths.sum() != len(values)
    ):
        raise InvalidInput("the lengths of the texts do not fit their bytes")
    ends = np.cumsum(lengths).tolist()
    try:
        texts = [
            values[end - length : end].tobytes().decode()
            for end, length in zip(ends, lengths.tolist(), strict=True)
        ]
    except UnicodeDecodeError as error:
        raise InvalidInput("the texts are not UTF-8") from error
    return np.array(texts, dtype=object)


@message
class Join(Task, reply_type=Receipt, exchanges="predictions", protocol=None, deferrable=True):
    """Take on the agreement and start from an untrained model."""

    agreement: Agreement
    round: int = 0

    def run(self, party: Party) -> Receipt:
        """Checks the agreement against the party's own data."""
        party.join(self.agreement)
        return Receipt(party=party.name, round=self.round)


@message
class CheckSharing(
    Task, reply_type=Receipt, exchanges="models", protocol=None, static=True, keeps_model=True
):
    """Say whether your model, once trained, may and can be sent to others."""

    round: int = 0

    def run(self, party: Party) -> Receipt:
        """Fails where it may not or cannot."""
        party.check_sharing()
        return Receipt(party=party.name, round=self.round)


@message
class FitPrivate(Task, reply_type=Receipt, exchanges="predictions", protocol=None, deferrable=True):
    """Train on your private rows."""

    round: int

    def run(self, party: Party) -> Receipt:
        """Stage 1 of the round."""
        party.fit_private(self.round)
        return Receipt(party=party.name, round=self.round)


@message
class PredictPublic(
    Task, reply_type=Predictions, exchanges="predictions", protocol=None, keeps_model=True
):
    """Predict every public row.

    Attributes:
        outputs: ``"probabilities"``, ``"logits"`` or ``"values"``.
    """

    round: int
    outputs: OutputKind = "probabilities"

    def run(self, party: Party) -> Predictions:
        """The party's predictions, in the precision of their kind."""
        assert party.agreement is not None
        return Predictions(
            party=party.name,
            round=self.round,
            kind=self.outputs,
            classes=party.agreement.classes,
            public=party.agreement.public,
            values=party.outputs(self.outputs).astype(PRECISION[self.outputs]),
        )


@message
class ScorePublic(
    Task, reply_type=LogDensities, exchanges="predictions", protocol=None, keeps_model=True
):
    """Say how typical each public row is of what you were trained on."""

    round: int

    def run(self, party: Party) -> LogDensities:
        """One log-density a public row."""
        values, notes = party.scores.log_density(party.learner.logits, party.outputs("logits"))
        return _scored(LogDensities, self, party, values.astype(np.float32), notes=notes)


@message
class ScoreCertainty(
    Task,
    reply_type=Certainties,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
):
    """Say how surely each public row is of your own kind.

    Attributes:
        regularization: λ of the logistic regression that tells private rows from public ones.
        epsilon: ε of the noise on it; ``None`` for none.
        delta: δ of that noise.
    """

    round: int
    regularization: float
    epsilon: float | None
    delta: float

    def __post_init__(self) -> None:
        check_number("regularization", self.regularization, above=0, where="ScoreCertainty")
        check_number(
            "epsilon", self.epsilon, above=0, below=1, optional=True, where="ScoreCertainty"
        )
        check_number("delta", self.delta, above=0, below=1, where="ScoreCertainty")

    def run(self, party: Party) -> Certainties:
        """One number a public row, the same in every round."""
        values = party.scores.certainties(
            self.regularization, self.epsilon, self.delta, drawn=party.drawn
        )
        return _scored(Certainties, self, party, values.astype(np.float32))


@message
class SelectPublic(
    Task,
    reply_type=Selection,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
):
    """Say which public rows are as likely as your own.

    Attributes:
        quantile: the share of your own rows that may be taken for foreign.
        reference: what densities are compared with, ``"uniform"`` or ``"public"``.
    """

    round: int
    quantile: float
    reference: Literal["uniform", "public"]

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, at_least=0, below=1, where="SelectPublic")

    def run(self, party: Party) -> Selection:
        """Yes or no a public row, the same in every round."""
        values, notes = party.scores.selection(self.quantile, self.reference)
        return _scored(Selection, self, party, values, notes=notes)


@message
class ComparePublic(
    Task,
    reply_type=DensityRatios,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
):
    """Say exactly how much denser your rows of each class lie than the public ones, at each public row.

    Rows can be rebuilt from the answer: a party with limits of its own gives none
    (:class:`consilience.site.Limits`), and is asked :class:`CompareCoarsely` instead.

    Attributes:
        ridge: of :class:`consilience.numerics.density.PublicRatio`, above 0.
        calibration: your calibration rows alone, which no model was trained on.
    """

    round: int
    ridge: float
    calibration: bool = False

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, above=0, where=type(self).__name__)

    def run(self, party: Party) -> DensityRatios:
        """One number a public row and class; the same in every round, since it depends on inputs alone."""
        values = party.scores.density_ratios(self.ridge, calibration=self.calibration)
        classes = party.scores.agreement.classes
        return _scored(DensityRatios, self, party, values.astype(np.float32), classes=classes)


@message
class CompareCoarsely(
    Task,
    reply_type=CoarseRatios,
    exchanges="predictions",
    protocol=None,
    static=True,
    keeps_model=True,
):
    """Say by round counts, and in your own settings, how much denser your rows lie than the public ones."""

    round: int

    def run(self, party: Party) -> CoarseRatios:
        """One number a public row and class, the same in every round and for every seed."""
        values = party.scores.coarse_ratios(party.coarseness, drawn=party.drawn)
        classes = party.scores.agreement.classes
        return _scored(CoarseRatios, self, party, values.astype(np.float32), classes=classes)


def _scored(kind: Callable[..., K], task: Task, party: Party, values: Array, **more: Any) -> K:
    public = party.scores.agreement.public
    return kind(party=party.name, round=task.round, public=public, values=values, **more)


@message
class CountRows(
    Task, reply_type=RowCount, exchanges="predictions", protocol=None, static=True, keeps_model=True
):
    """Say how many private rows you train on."""

    round: int

    def run(self, party: Party) -> RowCount:
        """One number."""
        return RowCount(party=party.name, round=self.round, rows=party.train_rows)


@message
class Distill(Task, reply_type=Receipt, exchanges="predictions", protocol=None):
    """Train towards the teacher on the public rows.

    Attributes:
        targets: shape ``(n_public, n_outputs)``: soft labels (float32) or values (float64).
        alpha: the weight of the private rows, for learners that refit on both.
        taught: shape ``(n_public,)``, bool: which public rows to train on; ``None`` for all.
    """

    round: int
    targets: Array
    alpha: float
    taught: Array | None = None

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, at_least=0, at_most=1, where=type(self).__name__)

    def run(self, party: Party) -> Receipt:
        """Stage 2 of the round."""
        notes = party.distill(self.round, self.targets, self.alpha, self.taught)
        return Receipt(party=party.name, round=self.round, notes=notes)


@message
class Evaluate(
    Task,
    reply_type=Metrics,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    bookkeeping=True,
):
    """Say how well your model does on your own test rows."""

    round: int

    def run(self, party: Party) -> Metrics:
        """Accuracy and its kin, or squared error."""
        rows, values = party.evaluate()
        return Metrics(party=party.name, round=self.round, rows=rows, values=values)


@message
class Checkpoint(
    Task,
    reply_type=Receipt,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    bookkeeping=True,
):
    """Write your state to your own disk.

    Attributes:
        previous: the round of the last checkpoint that is known to be whole at every party.
    """

    round: int
    previous: int = 0

    def run(self, party: Party) -> Receipt:
        """Whole or not at all; the state before is kept until the next one is written."""
        party.save(_label(self.round))
        party.keep({_label(self.round), _label(self.previous)})
        return Receipt(party=party.name, round=self.round)


@message
class Restore(Task, reply_type=Receipt, exchanges="predictions", protocol=None, bookkeeping=True):
    """Take up the state you wrote after a round."""

    round: int

    def run(self, party: Party) -> Receipt:
        """The model is then the one of that round, bit for bit."""
        party.restore(_label(self.round))
        return Receipt(party=party.name, round=self.round)


def _label(round: int) -> str:
    return f"round-{round:05d}"


PROVIDES: Mapping[type[Any], type[Any]] = {
    LogDensities: ScorePublic,
    RowCount: CountRows,
    Certainties: ScoreCertainty,
    Selection: SelectPublic,
    DensityRatios: ComparePublic,
    CoarseRatios: CompareCoarsely,
}
"""The task to ask for each further kind of knowledge that an aggregator may need."""

STANDING = frozenset(kind for kind, task in PROVIDES.items() if task.static)
"""Of these, what depends on a party's data alone: it is said once, and holds for all rounds."""


def answer(party: Party, tasks: Sequence[Task]) -> tuple[Any, ...] | Failure:
    """Run the tasks at the party; what goes wrong there becomes a :class:`Failure`, not a crash."""
    try:
        return tuple(task.run(party) for task in tasks)
    except InvalidInput as error:
        reason = f"{error.where}: {error.what}" if error.where else error.what
        return _failure(party, reason, error.mend, kind="invalid", code=error.code)
    except ConsilienceError as error:
        return _failure(party, error.what, error.mend, code=error.code)
    except Exception as error:  # a model may raise anything; the round goes on without it
        return _failure(party, f"{type(error).__name__}: {error}")


LONGEST_REASON = 200
"""Characters of an error that leave a party."""


def _failure(
    party: Party,
    reason: str,
    mend: str | None = None,
    *,
    kind: Literal["failed", "invalid"] = "failed",
    code: Code = "",
) -> Failure:
    # What a model says may hold rows of private data, so that little of it leaves; and what no file or
    # terminal takes, such as half of a surrogate pair.
    reason = reason.encode(errors="replace").decode().strip()
    if len(reason) > LONGEST_REASON:
        reason = reason[:LONGEST_REASON] + " …"
    return Failure(party=party.name, reason=reason, mend=mend or "", kind=kind, code=code)

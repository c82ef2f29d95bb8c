"""Interface of a learner: ``fit``, ``predict`` and its capabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.numerics.outcomes import Outcome
from consilience.core.validation.arrays import Array, as_rows, check_inputs
from consilience.core.validation.labels import Kind
from consilience.core.validation.printing import prints_no_rows
from consilience.core.validation.tables import is_table, table_reader

Phase = Literal["first", "private", "distill"]
Takes = Literal["numbers", "scaled", "gaps", "categories", "names"]
LOG_FLOOR = 1e-6
"""Lower bound on probabilities before their logarithms are used as logits."""


@dataclass(frozen=True)
class Abilities:
    """Capabilities of a learner, which a protocol reads before round 1.

    Attributes:
        kind: ``"classification"`` or ``"regression"``.
        soft_targets: ``"native"`` if the model trains directly on rows of probabilities; ``"weighted"`` if
            each row becomes one hard-labelled copy per class, weighted by its probability; ``"hardened"``
            if the model takes no weights and is trained on the likeliest class. Regression targets are
            always native.
        probabilities: source of class probabilities: the model (``"native"``), a softmax of its decision
            function (``"decision"``), or its hard answer (``"one-hot"``).
        logits: whether the model computes logits; else log-probabilities are used instead.
        incremental: whether ``fit`` continues from the current parameters; else it retrains from scratch.
        sample_weight: whether rows may be weighted.
        validation: whether it cannot be fitted without held-out rows.
        takes: format of a table's rows for the model: ``"numbers"``; ``"scaled"``, numbers of one scale, for
            models that measure distances between rows; ``"gaps"``, numbers that may be missing (NaN);
            ``"categories"``, a pandas table if there are categories; ``"names"``, always a pandas table.
        how: one sentence for users on the treatment of soft targets.
    """

    kind: Kind
    soft_targets: Literal["native", "weighted", "hardened"]
    probabilities: Literal["native", "decision", "one-hot"] = "native"
    logits: bool = False
    incremental: bool = False
    sample_weight: bool = True
    validation: bool = False
    takes: Takes = "numbers"
    how: str = ""

    @property
    def gaps(self) -> bool:
        """True if rows without a schema, whose gaps (NaN) are not filled, may have some."""
        return self.takes not in ("numbers", "scaled")


@prints_no_rows
@dataclass(frozen=True)
class GradientCorrection:
    """A change of every step's gradient g(w) to ``g(w) + offset + strength (w − anchor)``.

    The anchor is where training starts. g is the gradient of the loss, after clipping where there is any; the
    optimizer is given the sum. The last term is FedProx's, the
    offset SCAFFOLD's.

    Attributes:
        strength: of the proximal term, 0 or more.
        offset: parameter name to an array of its shape; 0 where it is missing.
    """

    strength: float = 0.0
    offset: Mapping[str, Array] | None = None


@dataclass(frozen=True)
class Steps:
    """Amount of a training.

    Attributes:
        count: number of optimizer steps up to the returned parameters.
        rate: their step size.
    """

    count: int
    rate: float


class Learner(ABC):
    """Model behind the interface for training and prediction at a party; see also :class:`Parametric`.

    :func:`consilience.core.learners.as_learner` makes a learner, and :meth:`bind` fixes its number of
    outputs to that of the federation. It then fits and predicts matrices with that many columns: class
    probabilities in the federation's class order, or regression values.
    """

    abilities: Abilities
    suffix: ClassVar[str]
    """File ending of :meth:`save`: ``".skops"`` or ``".safetensors"``."""

    n_outputs: int = 0
    schema: Schema | None = None
    """Schema of the columns of a table's rows; ``None`` for other rows."""
    labels: Mapping[str, int] | None = None
    """Label of each class to its output column, with a party's local labels; ``None`` for 0, 1, … in order.
    """
    ordered: bool = False
    """Whether the classes are ordered bins; soft targets then keep smaller shares."""

    @property
    def counts_columns(self) -> str:
        """Name of the model's option that identifies columns by position; empty if there is none."""
        return ""

    @property
    def least_leaf(self) -> int:
        """Minimum number of training rows in a leaf of its trees; 1 for other models."""
        return 1

    def bind(self, n_outputs: int, schema: Schema | None = None) -> None:
        """Fix the number of outputs and the schema of the columns, before the first fit.

        Args:
            n_outputs: number of classes, or of regression targets.
            schema: columns of a table; ``None`` for other rows.
        """
        self.n_outputs, self.schema = n_outputs, schema

    def rows(self, X: Any) -> Any:
        """Convert rows to the model's input format, by the schema if they are rows of a table.

        Args:
            X: inputs, shape ``(n, ...)``.

        Returns:
            An array or a pandas table with n rows.
        """
        X, schema, takes = np.asarray(X), self.schema, self.abilities.takes
        if schema is None or X.ndim != 2:
            return X
        if takes == "names" or (takes == "categories" and schema.categorical):
            return schema.frame(X)
        if takes == "scaled":
            return schema.scaled(X)
        if schema.categorical or takes == "numbers":
            plain = schema.plain and not np.isnan(X).any()
            return X if plain else schema.encode(X, fill=takes == "numbers")
        return X

    def check(self, example: Array) -> None:
        """Raise ``InvalidInput`` if rows like these cannot be used; called before any training.

        Args:
            example: one row or more, shape ``(n, ...)``.
        """

    def check_saving(self) -> None:
        """Raise ``InvalidInput`` if the trained model cannot be saved, or not be read by another process."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, 'name', '')})"

    @abstractmethod
    def fit(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        weights: Array | None = None,
        validation: tuple[Array, Array] | None = None,
        phase: Phase = "private",
    ) -> None:
        """Train on ``X``.

        Args:
            X: inputs, shape ``(n, ...)``.
            targets: shape ``(n, n_outputs)``; one-hot or soft class probabilities, or values.
            rng: the only source of randomness; the same state gives the same model.
            weights: shape ``(n,)``, non-negative; ``None`` for equal weights.
            validation: held-out ``(X, targets)`` for early stopping, if the learner supports it.
            phase: phase of the recipe: the party's first fit, a later one on private data, or distillation;
                used by incremental learners only.

        Raises:
            InvalidInput: the model cannot be trained on these inputs.
        """

    @abstractmethod
    def predict(self, X: Array) -> Array:
        """Compute class probabilities or regression values.

        Args:
            X: inputs, shape ``(n, ...)``.

        Returns:
            Shape ``(n, n_outputs)``, float64; rows of probabilities sum to 1.

        Raises:
            InvalidInput: the model has not been trained, or cannot take these rows.
        """

    def logits(self, X: Array) -> Array:
        """Compute unnormalised log-probabilities, for classification.

        Args:
            X: inputs, shape ``(n, ...)``.

        Returns:
            Shape ``(n, n_outputs)``, float64; logarithms of :meth:`predict` if the model has no logits.
        """
        return np.asarray(np.log(np.clip(self.predict(X), LOG_FLOOR, None)))

    @property
    @abstractmethod
    def fitted(self) -> bool:
        """True once the learner can predict."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the fitted state to a file, in a safe format: never a pickle.

        Args:
            path: ending in :attr:`suffix`.

        Raises:
            InvalidInput: the model has not been trained, or cannot be saved safely.
            RunFailed: the file cannot be written.
        """

    @abstractmethod
    def load(self, path: Path) -> None:
        """Read a file of :meth:`save`.

        Args:
            path: the file.

        Raises:
            RunFailed: the file is damaged, foreign, or of another model.
        """


class FixedLearner(Learner):
    """Model that only predicts, and is never trained.

    Attributes:
        classes: names of the model's classes at the party; empty for values.
        targets: number of values per row, if there are no classes.
    """

    classes: tuple[str, ...]
    targets: int

    @abstractmethod
    def align(self, agreed: Iterable[str], names: Iterable[str]) -> None:
        """Use an agreed class order for all further predictions.

        Classes unknown to the model get probability 0.

        Args:
            agreed: the classes of all parties, in order.
            names: names in the federation of the model's :attr:`classes`.
        """

    @abstractmethod
    def check_budget(self, *rows: Array) -> None:
        """Raise ``InvalidInput`` if these tables of rows need more new answers than the limit leaves."""

    @abstractmethod
    def keep_answers(self, file: Path) -> None:
        """Store the model's answers in a file, and load the answers already stored there.

        Args:
            file: the file.
        """

    @abstractmethod
    def bound_answers(self, most: int) -> None:
        """Limit the total number of rows that the model may answer.

        Args:
            most: maximum number of rows; a lower limit of the model stays in force.
        """


def suited_to(learner: Learner, outcome: Outcome | None) -> Learner:
    """Adapt a learner to an outcome.

    Args:
        learner: learner of a user's model.
        outcome: the outcome; ``None`` for classes and values, which need no change.

    Returns:
        The adapted learner, or the same one without an outcome.

    Raises:
        InvalidInput: the classes of a frozen model differ from those of the outcome.
    """
    if outcome is None:
        return learner
    if isinstance(learner, FixedLearner) and learner.classes != outcome.classes:
        raise InvalidInput(
            f"it answers with {', '.join(learner.classes[:5]) or 'values'}, and the outcome is coded as "
            f"{', '.join(outcome.classes[:5])}",
            where="Frozen",
            mend="Give classes=outcome.classes, and a function that answers with their probabilities; of "
            "several labels outcome.coded makes them.",
        )
    return outcome.suited(learner)


@runtime_checkable
class Parametric(Protocol):
    """Learner whose parameters can be read, set and corrected, for protocols that exchange parameters.

    :class:`consilience.models.torch.learner.TorchLearner` implements it.
    """

    @property
    def fitted(self) -> bool:
        """Whether the learner has parameters."""

    def trained_parameters(self) -> frozenset[str]:
        """Names of the parameters that gradients change in training."""

    def start(self, X: Array, *, rng: np.random.Generator) -> None:
        """Draw first parameters."""

    def parameters(self) -> dict[str, Array]:
        """Parameters by name."""

    def set_parameters(self, values: Mapping[str, Array]) -> None:
        """Replace the parameters, by name."""

    def fit_corrected(self, X: Array, targets: Array, **how: Any) -> Steps:
        """Train with changed gradients (:class:`GradientCorrection`)."""

    def check_plain_steps(self) -> None:
        """Raise ``InvalidInput`` unless training makes plain gradient steps."""


class Model:
    """Trained model with the names of its classes.

    Attributes:
        learner: the learner behind it.
        classes: the column order of :meth:`predict_proba`, empty for regression.
        outcome: outcome whose bins are the classes; ``None`` for ordinary classes and values.
    """

    alone: Model | None = None
    """Model that the party had trained locally before its first teacher; ``None`` if none was kept."""

    def __init__(
        self, learner: Learner, classes: tuple[str, ...], outcome: Outcome | None = None
    ) -> None:
        self.learner, self.classes, self.outcome = learner, classes, outcome

    def outputs(self, X: Array) -> Array:
        """Compute class probabilities or values, shape ``(n, n_outputs)``, of inputs ``(n, ...)``."""
        return self.learner.predict(X)

    def rows(self, X: Any) -> Array:
        """Read rows as numbers; a table is read by the names of the training columns.

        Categories unknown during training are read as missing.

        Args:
            X: inputs, shape ``(n, ...)``, or a table.

        Returns:
            Rows, shape ``(n, ...)``.

        Raises:
            InvalidInput: the table lacks a column, or the model was trained on columns without names; or an
                array has missing values, and no party had any during training.
        """
        if not is_table(X):
            rows = as_rows(X, where="predict")
            known = rows
            if self._takes_gaps and rows.ndim == 2 and rows.dtype.kind == "f":
                known = np.where(np.isnan(rows), 0, rows)
            check_inputs(known, where="predict")
            return rows
        found = table_reader().asked_rows(X, self.learner.schema, where="predict")
        if found is None:
            raise InvalidInput(
                "the model was trained on columns without names",
                where="predict",
                mend="Give an array, its columns in the order of training.",
            )
        return found

    @property
    def _takes_gaps(self) -> bool:
        """True if gaps can be filled, or the model takes them as they are."""
        return self.learner.schema is not None or self.learner.abilities.gaps

    def predict_proba(self, X: Any) -> Array:
        """Compute class probabilities.

        Args:
            X: inputs, shape ``(n, ...)``, or a table.

        Returns:
            Shape ``(n, n_classes)``, in the order of :attr:`classes`.

        Raises:
            InvalidInput: this is a regression model.
        """
        if not self.classes:
            raise InvalidInput(
                "a regression model has no class probabilities", where="predict_proba"
            )
        return self.outputs(self.rows(X))

    def predict(self, X: Any) -> Array:
        """Predict class names, regression values, or the :attr:`~.Outcome.columns` of an outcome.

        Args:
            X: inputs, shape ``(n, ...)``, or a table.

        Returns:
            Class names, shape ``(n,)``; or values, shape ``(n, n_targets)``.
        """
        outputs = self.outputs(self.rows(X))
        if self.outcome is not None:
            return self.outcome.answers(outputs)
        return np.asarray(self.classes)[outputs.argmax(axis=1)] if self.classes else outputs

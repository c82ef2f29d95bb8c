"""Aggregators: pure functions from stacked predictions of parties to one teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from consilience.core.aggregation.last_answers import LastAnswers
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import PRECISION, Agreement, OutputKind
from consilience.core.messages.scores import RowCount
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

GUARANTEE = "privacy: "
"""Prefix of a teacher's note on a privacy guarantee, which reports show at their head."""


@prints_no_rows
@dataclass(frozen=True)
class Stack:
    """Predictions of the parties, and further replies, stacked in party order.

    Attributes:
        parties: m names.
        outputs: shape ``(m, n_public, n_outputs)``: probabilities, logits or values.
        further: the scores that the rule requires: type of score to its ``values``, shape ``(m, …)``.
        classes: names of the classes, in the order of the outputs; empty for values.
        memory: memory of the rule from the round before, empty at first.
        labelled: indices of the public rows with a label at the coordinator, and the indices of their
            classes, two arrays of one length; ``None`` without such labels.
    """

    parties: tuple[str, ...]
    outputs: Array
    further: Mapping[type[Any], Array] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    labelled: tuple[Array, Array] | None = None


@prints_no_rows
@dataclass(frozen=True)
class Teacher:
    """The teacher of a round.

    Attributes:
        values: shape ``(n_public, n_outputs)``: soft labels (float32) or values (float64).
        weights: weight of each party on each row, shape ``(m, n_public)``; ``None`` if the rule is not a
            weighted mean. Rows with zero weight for every party are not taught.
        parties: names of the m parties that replied; excluded ones are among them, with weight 0.
        notes: remarks of the rule for the ledger, such as its choice, or the excluded parties.
        memory: memory for the next round, of the rule and of its screen.
    """

    values: Array
    weights: Array | None
    parties: tuple[str, ...]
    notes: tuple[str, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)

    @property
    def taught(self) -> Array | None:
        """Mask of the taught public rows, shape ``(n_public,)``, bool; ``None`` if all are taught."""
        if self.weights is None or self.weights.any(axis=0).all():
            return None
        return np.asarray(self.weights.any(axis=0))


class Combined(NamedTuple):
    """Result of a rule.

    Attributes:
        values: teacher, shape ``(n_public, n_outputs)``.
        weights: weight of each party on each row, shape ``(m, n_public)``, and per output if there is a third
            axis; ``None`` if the rule is not a weighted mean.
        notes: remarks for the ledger.
        memory: memory for the next round.
    """

    values: Array
    weights: Array | None
    notes: tuple[str, ...] = ()
    memory: Mapping[str, Any] = {}


Rule = Callable[[Stack], Combined]
"""An aggregation rule: a function from the stacked replies of a round to a teacher."""


class Screened(NamedTuple):
    """Result of a screen, passed to the rule.

    Attributes:
        replies: the replies that the rule may use.
        left_out: excluded party to a sentence with the reason.
        memory: memory of the screen for the next round.
        labelled: as in :attr:`Stack.labelled`.
    """

    replies: Replies
    left_out: Mapping[str, str]
    memory: Mapping[str, Any]
    labelled: tuple[Array, Array] | None = None


Screen = Callable[[Replies, Mapping[str, Any]], Screened]
"""A function from the replies of a round and the memory of the screen to the input of the rule."""


@dataclass(frozen=True, repr=False)
class Aggregator:
    """Combine the replies of a round into a :class:`Teacher`, with a named rule and its requirements.

    Call it with the replies of a round. A custom rule is a pure function from a :class:`Stack` to
    :class:`Combined`: teacher, weights or ``None``, and optional notes for the ledger.

    Attributes:
        name: name in reports.
        rule: the pure function.
        outputs: kind of the parties' predictions: ``"probabilities"``, ``"logits"`` or ``"values"``.
        needs: types of the scores that the rule uses in addition to predictions: subclasses of
            :class:`~consilience.core.messages.scores.Score`, such as
            :class:`~consilience.core.messages.scores.RowCount`.
        options: type of score to the options of the task that requests it, if any.
        linear: whether the rule needs only the parties' mean: its teacher of m parties equals that of one
            party whose outputs are their mean, weighted by ``RowCount`` if the rule needs it. Replies are
            then added up as they arrive, and no individual reply is inspected.
        calibrated: whether parties calibrate their predictions on their calibration rows first.
        one_class: whether the rule uses exactly one class per row, and cannot serve several labels.
        summed: form of the rule as a sum, and its settings
            (:mod:`consilience.privacy.secure_aggregation.rules_as_sums`); ``None`` for a linear rule, and for
            a rule without such a form.
        forms: function that makes the rule for the parties' agreement, if the rule has several forms, such as
            one for classes and one for values; ``None`` for a rule with one form.
        screen: function that inspects the replies before the rule, and may exclude parties or cap their
            claims, such as :class:`~consilience.core.aggregation.guard.Guard`; ``None`` for none.
        last: substitutes the last answers of absent parties before the screen runs, and reduces their
            weight afterwards; ``None`` to use only the replies of the round.

    Raises:
        InvalidInput: a linear rule needs scores other than row counts.
    """

    name: str
    rule: Rule
    outputs: OutputKind = "probabilities"
    needs: tuple[type[Any], ...] = ()
    options: Mapping[type[Any], Mapping[str, Any]] = field(default_factory=dict)
    linear: bool = False
    calibrated: bool = False
    one_class: bool = False
    summed: tuple[str, Mapping[str, float]] | None = None
    forms: Callable[[Agreement], Aggregator] | None = None
    screen: Screen | None = None
    last: LastAnswers | None = None

    def __post_init__(self) -> None:
        if self.linear and not set(self.needs) <= {RowCount}:
            raise InvalidInput(
                f"a linear rule that needs {', '.join(kind.__name__ for kind in self.needs)}",
                where=f"aggregator {self.name}",
                mend="A mean is weighted by RowCount or not at all: leave out linear.",
            )

    @property
    def kind(self) -> str:
        """``"regression"`` for a rule on values, else ``"classification"``."""
        return "regression" if self.outputs == "values" else "classification"

    def suited_to(self, agreed: Agreement) -> Aggregator:
        """Return the form of the rule for an agreement of the parties.

        Args:
            agreed: the agreement.

        Returns:
            The rule itself if it has one form, else the form for this agreement, with the same screen.

        Raises:
            InvalidInput: the rule uses one class of each row, and these rows have several labels.
        """
        outcome = outcome_of(agreed.outcome)
        if self.one_class and outcome is not None and outcome.several:
            raise InvalidInput(
                f"aggregator {self.name!r} reads one class of each row, and rows have several labels",
                where="protocol",
                mend="Take auto, avg, mean-logits, density-ratio, median, trimmed-mean or certainty.",
            )
        return (
            self
            if self.forms is None
            else replace(self.forms(agreed), screen=self.screen, last=self.last)
        )

    def __repr__(self) -> str:
        return f"Aggregator({self.name!r})"

    def __call__(self, replies: Replies, memory: Mapping[str, Any] | None = None) -> Teacher:
        """Compute the teacher of a round's replies.

        Args:
            replies: replies of the round.
            memory: memory of the previous round's teacher; ``None`` at first.

        Returns:
            The teacher, with values of shape ``(n_public, n_outputs)``.

        Raises:
            KnowledgeRefused: a required reply is missing, or predictions are of another kind.
            InvalidInput: the rule does not return :class:`Combined`.
        """
        for given in replies.of(Predictions):
            if given.kind != self.outputs:
                raise KnowledgeRefused(f"{given.kind}, expected {self.outputs}", where=given.party)
        before = memory or {}
        left_out: Mapping[str, str] = {}
        kept: dict[str, Any] = {}
        told: tuple[str, ...] = ()
        ages: Mapping[str, int] = {}
        if self.last is not None:
            replies, ages, answers = self.last(replies, before.get("last", {}))
            told = self.last.notes(ages)
            kept |= {"last": answers} if answers else {}
        heard, labelled = replies, None
        if self.screen is not None:
            heard, left_out, screened, labelled = self.screen(replies, before.get("screen", {}))
            kept |= {"screen": screened} if screened else {}
        if self.last is not None:
            heard = self.last.faded(heard, ages)
        if self.linear:
            made = self._of_mean(heard)
        else:
            stacked = stack(heard, needs=self.needs, memory=before.get("rule", {}))
            made = self.rule(replace(stacked, labelled=labelled))
            if not isinstance(made, Combined):
                raise InvalidInput(
                    f"the rule returned {type(made).__name__}",
                    where=f"aggregator {self.name!r}",
                    mend="Return Combined(values, weights).",
                )
        values, weights, notes, remembered = made
        kept |= {"rule": remembered} if remembered else {}
        if left_out and weights is not None:
            all_weights = np.zeros((len(replies), *weights.shape[1:]))
            all_weights[np.isin(replies.parties, heard.parties)] = weights
            weights = all_weights
        values = np.asarray(values, dtype=PRECISION[self.outputs])
        notes = (*notes, *told, *left_out.values())
        return Teacher(values, weights, replies.parties, notes, kept)

    def _of_mean(self, replies: Replies) -> Combined:
        """Apply the rule to the parties' mean, and return it with the weight of each party on each row."""
        if RowCount in self.needs:
            total = replies.sum(Predictions, weights="rows", over=None)
            mean, shares = total.values, total.weights
        else:
            total = replies.sum(Predictions)
            mean, shares = total.values / len(replies), total.weights / len(replies)
        values = self.rule(one_party(mean, needs=self.needs))[0]
        return Combined(values, np.broadcast_to(shares[:, None], (len(shares), len(mean))))


def stack(
    replies: Replies, *, needs: tuple[type[Any], ...] = (), memory: Mapping[str, Any] | None = None
) -> Stack:
    """Stack the replies in the order of the parties' names, in float64.

    Args:
        replies: replies of a round.
        needs: types of the scores required in addition to :class:`Predictions`.
        memory: memory of the rule from the round before.

    Returns:
        The stack, with outputs of shape ``(m, n_public, n_outputs)``.

    Raises:
        KnowledgeRefused: a party's reply of one type is missing.
    """
    required: tuple[type[Any], ...] = (Predictions, *needs)
    for kind in required:
        if len(replies.of(kind)) != len(replies) or len(replies) == 0:
            raise KnowledgeRefused(f"the rule needs {kind.__name__} of every party")
    return Stack(
        parties=replies.parties,
        outputs=np.stack([r.values for r in replies.of(Predictions)], dtype=np.float64),
        further={kind: completed(replies.of(kind)) for kind in needs},
        classes=replies.of(Predictions)[0].classes,
        memory=memory or {},
    )


def completed(scores: Sequence[Any]) -> Array:
    """Stack the scores of the parties, shape ``(m, …)``, in float64.

    A party without private rows gets the mean of the other parties' scores, or 1 if all parties have no rows.
    """
    values = np.stack([one.values for one in scores], dtype=np.float64)
    absent = np.array([getattr(one, "absent", False) for one in scores])
    if absent.any():
        values[absent] = 1.0 if absent.all() else values[~absent].mean(axis=0)
    return values


def one_party(outputs: Array, *, needs: tuple[type[Any], ...] = ()) -> Stack:
    """Make the stack of one party with these outputs, and with one private row if the rule counts rows.

    Args:
        outputs: shape ``(n_public, n_outputs)``.
        needs: types of the scores that the rule uses: ``RowCount`` or none.
    """
    return Stack(("mean",), outputs[None], {kind: np.ones(1) for kind in needs})


def weighted_mean_of(outputs: Array, weights: Array) -> Array:
    """Compute ``sum_m weights[m, n] outputs[m, n, k]``, shape ``(n, k)``."""
    return np.asarray(np.einsum("mn,mnk->nk", weights, outputs))


def plain_mean(stack: Stack) -> Combined:
    """Compute the mean over parties, with their equal weights."""
    weights = np.full(stack.outputs.shape[:2], 1 / len(stack.parties))
    return Combined(stack.outputs.mean(axis=0), weights)


def mean_by_rows(stack: Stack) -> Combined:
    """Compute the mean over parties weighted by their private row counts, with these weights."""
    rows = stack.further[RowCount]
    weights = np.repeat((rows / rows.sum())[:, None], stack.outputs.shape[1], axis=1)
    return Combined(weighted_mean_of(stack.outputs, weights), weights)


_ROUNDING = 1e-6


def onto_simplex(values: Array, otherwise: Array | None = None) -> Array:
    """Project rows onto distributions: clip them at 0 and rescale them to sum to 1.

    A row that sums to 1 in the accuracy of float32 and has no negative entry is returned bit-identical.

    Args:
        values: shape ``(n, n_classes)``.
        otherwise: replacement, of the same shape, for rows without a positive entry; uniform by default.

    Returns:
        Distributions, of the same shape.
    """
    off = np.abs(values.astype(np.float64) @ np.ones(values.shape[1]) - 1) > _ROUNDING
    if (values < 0).any():
        off |= values.min(axis=1) < 0
    if not off.any():
        return values
    clipped = np.maximum(values[off], 0)
    total = clipped.sum(axis=1, dtype=np.float64, keepdims=True)
    vanished = 1 / values.shape[1] if otherwise is None else otherwise[off]
    put_back = values.copy()
    put_back[off] = np.where(total > 0, clipped / np.where(total > 0, total, 1), vanished)
    return put_back

"""Tasks of the four steps of a secure sum: keys, shares, the masked input, and the opening.

The sum adds up replies to other tasks. These replies pass the party's outbox like all others, with its limits
and its privacy stage, and the party then sends them as one array of masked integers
(:mod:`consilience.privacy.secure_aggregation.secure_sum`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.aggregation.base import stack
from consilience.core.errors import ConsilienceError, InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.messages.message import message
from consilience.core.messages.replies import Failure, Replies
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import encode
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import answer
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.secure_aggregation.messages import (
    ANSWERS,
    MaskedInput,
    SealedShares,
    SumKeys,
    SumOpening,
)
from consilience.privacy.secure_aggregation.party import member_of
from consilience.privacy.secure_aggregation.rules_as_sums import bits_for, form_named

CLASS_SUMS = "class-sums"
"""Form of a sum of class sums, which are already integers; the other forms are those of rules."""

PARAMETERS: Mapping[str, tuple[float, float]] = {
    "parameters": (2.0**15, 1),
    "rows": (2.0**31, 2.0**31),
}
"""Forms of a sum of trained parameters x (x and 1, or n x and n for n rows), with their largest values."""

_ERRORS: dict[str, type[ConsilienceError]] = {
    "invalid": InvalidInput,
    "refused": KnowledgeRefused,
    "failed": RunFailed,
}


@message
class SumQuestion:
    """Tasks whose replies are summed.

    Attributes:
        tasks: predictions and the scores for a rule, or class sums, or parameters.
        form: form of the sum (:mod:`consilience.privacy.secure_aggregation.rules_as_sums`).
        settings: settings of the form.
        variance: variance of the shared noise that each party adds to its class sums, in steps of their grid;
            0 for no shared noise.
    """

    tasks: tuple[Task, ...]
    form: str
    settings: Mapping[str, float]
    variance: float = 0.0

    def __post_init__(self) -> None:
        # By a trait of the task and not by its reply: another task of the same reply may name parties, so
        # that equal bytes, and equal histories, have another effect at one of them.
        kinds = [task.summed for task in self.tasks]
        rule = kinds[:1] == ["predictions"] and set(kinds[1:]) <= {"score"}
        by_class = kinds == ["class sums"] and self.form == CLASS_SUMS
        if not (rule or by_class or (kinds == ["parameters"] and self.form in PARAMETERS)):
            named = ", ".join(type(task).__name__ for task in self.tasks) or "no task"
            raise InvalidInput(
                "a sum is of predictions and scores, of class sums, or of parameters after training, and "
                f"not of {named} in the form {self.form!r}"
            )
        check_number("variance", self.variance, at_least=0, where="secure sum")

    @property
    def digest(self) -> str:
        """Digest of the question, the same in every round."""
        form = json.dumps([self.form, dict(self.settings), self.variance]).encode()
        return hashlib.sha256(form + encode([_in_no_round(one) for one in self.tasks])).hexdigest()

    @property
    def rule(self) -> str:
        """Digest of the question's rule: for parameters the task and form, else the whole question."""
        first = self.tasks[0]
        return type(first).__name__ + self.form if first.summed == "parameters" else self.digest

    def length(self, agreement: Agreement) -> int:
        """Return the number of integers in a party's input."""
        first: Any = self.tasks[0]
        if first.summed != "predictions":
            return summed_entries(first, agreement)
        form = form_named(self.form, self.settings, first.outputs)
        return sum(math.prod(one) for one in form.shapes(agreement.rows, agreement.outputs))

    def answer(self, party: PartyView) -> tuple[Array, ClassSums | None]:
        """Compute a party's integers, shape ``(n,)``, uint64, and its declared guarantee for class sums.

        Raises:
            InvalidInput: the party has no private rows for a score.
        """
        outcome = answer(party, self.tasks)
        if isinstance(outcome, Failure):
            kind = _ERRORS[outcome.kind]
            raise kind(outcome.reason, mend=outcome.mend or None, code=outcome.code)
        first, *scores = outcome
        if isinstance(first, ClassSums):
            stated = replace(first, values=np.zeros_like(first.values))
            return first.values.ravel().view(np.uint64), stated
        if self.tasks[0].summed == "parameters":
            return _parameters(first, self.form), None
        if any(getattr(one, "absent", False) for one in scores):
            raise InvalidInput(
                "it has no rows to weigh itself by, and under masks nobody can do it for it",
                where=f"party {party.name!r}",
                mend="Take an aggregator that needs predictions alone, such as avg.",
            )
        needs = tuple(type(one) for one in scores)
        own = stack(Replies({party.name: (first, *scores)}, {}), needs=needs)
        return form_named(self.form, self.settings, first.kind).steps(own), None


def summed_entries(task: Any, agreement: Agreement) -> int:
    """Return the number of integers in a party's input, for class sums or for parameters and their weight."""
    entries: int = task.entries(agreement)
    return entries


def _parameters(given: Any, form: str) -> Array:
    """Convert trained parameters and their weight to integers modulo 2^64.

    Raises:
        KnowledgeRefused: a number exceeds the largest allowed value.
    """
    weight = given.rows if form == "rows" else 1
    values = np.float64(weight) * given.values
    most, count = PARAMETERS[form]
    if not np.abs(values).max(initial=0) <= most or weight > count:
        raise KnowledgeRefused(f"parameters beyond {most:g}, for which a sum has no room")
    steps = np.append(np.rint(values * 2.0 ** bits_for(most)), weight)
    return steps.astype(np.int64).view(np.uint64)


def mean_of(total: Array, form: str) -> Array:
    """Compute the mean of the parties' parameters, shape ``(size,)``, from the sum of their integers.

    Args:
        total: the sum, shape ``(size + 1,)``, uint64.
        form: a form in :data:`PARAMETERS`.

    Raises:
        RunFailed: the total weight is less than 1.
    """
    *_, weight = steps = total.view(np.int64)
    if weight < 1:
        raise RunFailed("the parties of the sum have no rows: one has added what none have")
    return np.asarray(steps[:-1] * 2.0 ** -bits_for(PARAMETERS[form][0]) / weight)


def _in_no_round(task: Any) -> Task:
    """Return a task with its round set to 0."""
    asked: Task = replace(task, round=0)
    return asked


@message
class OpenSum(
    Task,
    reply_type=SumKeys,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Begin an attempt at a sum: make keys for it.

    Attributes:
        question: digest of the question.
        attempt: name of the attempt.
        threshold: fewest parties that open the sum.
    """

    round: int
    question: str
    attempt: str
    threshold: int

    @property
    def domain(self) -> bytes:
        """Identifier of the attempt, used in the derivation of all its keys."""
        named = f"{self.question} {self.attempt} {self.threshold}"
        return hashlib.sha256(named.encode()).digest()

    def run(self, party: PartyView) -> SumKeys:
        """Make keys."""
        among = party.trainer.agreement.summed
        return member_of(party).open(
            self.domain,
            self.threshold,
            self.question,
            among=among,
            round=self.round,
            history=party.trainer.history.digest,
            noisy=party.outbox.discreet,
        )


@message
class ShareSecrets(
    Task,
    reply_type=SealedShares,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Share the secrets of your masks with the parties of these keys.

    Attributes:
        keys: keys of all participating parties, by name.
    """

    round: int
    keys: tuple[SumKeys, ...]

    def run(self, party: PartyView) -> SealedShares:
        """Check the keys, and seal shares for each other party."""
        return member_of(party).share(self.keys)


@message
class SumMasked(
    Task,
    reply_type=MaskedInput,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Answer a question with your input to the sum, under masks.

    Attributes:
        shared: encrypted shares of all parties for one another, by name.
        asked: the question.
    """

    round: int
    shared: tuple[SealedShares, ...]
    asked: SumQuestion

    def __post_init__(self) -> None:
        # A site does not write the model after a task that keeps it: the party would go back to the model
        # before the training, and keep the history after it.
        if type(self).keeps_model and not all(task.keeps_model for task in self.asked.tasks):
            raise InvalidInput("a sum of what is trained first is asked for by SumTrained alone")

    def run(self, party: PartyView) -> MaskedInput:
        """Compute the input, and mask it."""

        def reply(masked: Callable[[Array], Array]) -> tuple[MaskedInput, str]:
            values, stated = self.asked.answer(party)
            given = MaskedInput(
                party=party.name, round=self.round, values=masked(values), stated=stated
            )
            if stated is not None and stated.colluding:  # a second sum would have too little noise
                return given, hashlib.sha256(values.tobytes()).hexdigest()
            # A budget lets nothing out without noise, which bounds what any sums tell.
            noisy = party.outbox.discreet
            return given, "" if noisy or (stated is not None and stated.sigma) else ANSWERS

        member = member_of(party)
        member.summing = self.asked.variance, member.state.threshold
        try:
            return member.mask(
                self.shared,
                self.asked.digest,
                reply,
                round=self.round,
                rule=self.asked.rule,
                history=party.trainer.history.digest,
            )
        finally:
            member.summing = None


@message
class SumTrained(
    SumMasked,
    reply_type=MaskedInput,
    exchanges="parameters",
    protocol=None,
    keeps_model=False,
    exposure="nothing",
    limits=(),
):
    """Train, then answer a question with your input to the sum, under masks."""

    @property
    def remembered(self) -> bool:
        """False, because the history records the training task itself and excludes other parties' shares."""
        return False


@message
class OpenMasks(
    Task,
    reply_type=SumOpening,
    exchanges="predictions",
    protocol=None,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Help to open the sum of these parties.

    Attributes:
        survivors: names of the parties whose input arrived, sorted.
        sharing: number of the parties with shared secrets.
    """

    round: int
    survivors: tuple[str, ...]
    sharing: int

    def run(self, party: PartyView) -> SumOpening:
        """Reveal shares, once and for one set of parties."""
        return member_of(party).reveal(self.survivors, round=self.round)

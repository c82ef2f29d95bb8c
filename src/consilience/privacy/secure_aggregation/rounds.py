"""Secure aggregation around a protocol: a network that gives it only sums of the parties' answers.

Predictions, class sums and trained parameters are collected in four exchanges
(:mod:`consilience.privacy.secure_aggregation.tasks`). The first exchange also carries any training task of
the same request. The network refuses all other requests whose replies would be readable. All sums of a run
are over the parties of the first sum, and every task that changes models goes to all of these
(:mod:`consilience.privacy.secure_aggregation.secure_sum` explains why).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

import numpy as np

from consilience.core.aggregation import AGGREGATORS, Aggregator
from consilience.core.errors import InvalidInput, KnowledgeRefused, QuorumLost
from consilience.core.messages.replies import Replies
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.sums import Sum, Weights
from consilience.core.protocols.rounds import SECURE, Rounds, RoundState
from consilience.core.protocols.sampling import party_count
from consilience.core.protocols.wrapping import WrappedProtocol, Wrapping
from consilience.core.tasks.base import NetworkView, Task
from consilience.core.tasks.outgoing import failure_of
from consilience.core.tasks.requests import Stage
from consilience.core.tasks.scores import score_task
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.core.validation.printing import prints_no_rows
from consilience.methods.parameters.tasks import Parameters
from consilience.privacy.accounting.losses import Adjacency, skellam_variance
from consilience.privacy.class_sums.sums import SCALE
from consilience.privacy.secure_aggregation.members import (
    check_whole,
    fixed_set,
    left_out,
    members_of,
)
from consilience.privacy.secure_aggregation.messages import (
    MaskedInput,
    SealedShares,
    SumKeys,
    SumOpening,
)
from consilience.privacy.secure_aggregation.rules_as_sums import form_of, summed_rule
from consilience.privacy.secure_aggregation.tasks import (
    CLASS_SUMS,
    OpenMasks,
    OpenSum,
    ShareSecrets,
    SumMasked,
    SumQuestion,
    SumTrained,
    mean_of,
    summed_entries,
)

K = TypeVar("K")


@dataclass(frozen=True)
class SecureAggregation:
    """Settings of secure aggregation: the coordinator sees only sums of the parties' answers.

    The first sum may be over any parties that reach the threshold. All later sums are over the same parties,
    because the difference of sums over two sets could reveal the answers of a single party. If one of them is
    missing, the run ends with its name and can be resumed once the party is back.

    Attributes:
        threshold: minimum number of parties that open a sum, more than two thirds of the parties that agreed
            when they joined; ``None`` uses the smallest such number. This many parties can reveal every
            answer if they collude with the coordinator. With fewer present parties there is no sum.
        epsilon: ε of class sums with shared noise. Each party adds a part of it, sized for the threshold, so
            that the guarantee holds even if parties drop out. It holds against the coordinator and up to
            ``colluding`` parties. A party refuses if its budget does not set ``noise = "shared"`` or is too
            small. ``None`` leaves the noise to each party.
        delta: δ of the guarantee.
        colluding: number of parties that may reveal their parts of the noise, from 1 to 2 t - n - 1 for n
            parties and threshold t.
        adjacency: neighbouring data of the guarantee.
    """

    threshold: int | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    colluding: int = 1
    adjacency: Adjacency = "add-remove"

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, above=0, optional=True, where=SECURE)
        check_number("delta", self.delta, above=0, below=1, where=SECURE)
        check_number("colluding", self.colluding, at_least=1, whole=True, where=SECURE)
        check_choice("adjacency", self.adjacency, get_args(Adjacency), where=SECURE)
        check_number(
            "threshold", self.threshold, at_least=3, whole=True, optional=True, where=SECURE
        )

    def of(self, parties: int) -> int:
        """Return the threshold for a number of parties.

        Raises:
            InvalidInput: there are too few or too many parties, the threshold does not fit them, or too many
                may collude.
        """
        from consilience.privacy.secure_aggregation.masks import (
            least_threshold,
            may_collude,
            odd_sum,
        )

        threshold = least_threshold(parties) if self.threshold is None else self.threshold
        if why := odd_sum(parties, threshold):
            raise InvalidInput(
                why,
                where=SECURE,
                mend="From a sum of two each would know the other's answers; and of fewer than two thirds a "
                "coordinator could open two, by telling some parties that others are gone.",
            )
        if self.epsilon is not None and self.colluding > (most := may_collude(parties, threshold)):
            raise InvalidInput(
                f"{self.colluding} parties may collude, and where {threshold} of {parties} open a sum {most} "
                "may: more could have two sums of the same noise opened",
                where=SECURE,
                mend="Raise threshold; or count fewer that collude.",
            )
        return threshold

    def variance(self, entries: int, threshold: int) -> float:
        """Compute the noise variance that each party adds to each of its numbers, in steps of the grid.

        Args:
            entries: number of values in a party's class sums.
            threshold: minimum number of parties of the sum.
        """
        if self.epsilon is None:
            return 0.0
        reach = SCALE * (1.0 if self.adjacency == "add-remove" else 2.0)
        whole = skellam_variance(self.epsilon, self.delta, l2=reach, l1=reach * math.sqrt(entries))
        return whole / (threshold - self.colluding)


def _check_hidden(tasks: Iterable[Task]) -> None:
    """Raise ``InvalidInput`` if the coordinator could read a reply that depends on private rows."""
    for task in tasks:
        if task.reply_type.privacy_cost != "nothing":
            raise InvalidInput(
                f"{type(task).__name__} would leave the parties as it is, beside the sums",
                where=SECURE,
                mend=f"Under it there are {', '.join(sums())}; and the protocol private_sums.",
            )


class SumsNetwork:
    """Network for a protocol that receives sums instead of single replies.

    Args:
        network: the parties.
        settings: settings of the sums.
        rule: aggregator whose scores are part of the sums; ``None`` for none.
        weights: weights of the parties in a mean of their parameters.
        begins: whether this is the start of a run. The network then first requests the parties' fixed sets,
            before any training.
    """

    def __init__(
        self,
        network: NetworkView,
        settings: SecureAggregation,
        rule: Aggregator | None,
        weights: Weights = "rows",
        *,
        begins: bool = False,
    ) -> None:
        self._network, self._settings, self._rule = network, settings, rule
        self._weights, self._begins = weights, begins
        self._fixed: tuple[str, ...] = ()
        """Names of the parties of all sums, once they are fixed."""
        self._unchecked: set[str] = set()

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement of the parties; parties outside of the sums are listed as learners, i.e. only taught."""
        agreed = self._network.agreed
        return replace(agreed, learners=tuple(sorted({*agreed.learners, *self.late})))

    @property
    def late(self) -> tuple[str, ...]:
        """Names of answering parties outside of the sums, which joined or came back after the first sum."""
        agreed = self._network.agreed
        known = {*(self._fixed or agreed.summed), *agreed.learners}
        if not self._fixed:
            known |= {*agreed.frozen}
        return tuple(name for name in self.parties if name not in known)

    @property
    def unchecked(self) -> str:
        """Clause about the parties without a roster, which trust the coordinator for the public keys."""
        if not self._unchecked:
            return ", for each holds the others' keys against a roster of its own"
        names = ", ".join(sorted(self._unchecked))
        return f"; and, since {names} hold no roster of the others' keys, by a coordinator that lies of them"

    def wrap(self, stage: Stage) -> NetworkView:
        """Refuse a stage, because a change of masked integers would destroy their sum."""
        raise InvalidInput("masked integers pass no other stage", where=SECURE)

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Send tasks to parties; for predictions, class sums and parameters every reply holds only the sum.

        Args:
            tasks: the tasks.
            to: names of the parties; ``None`` for all.

        Raises:
            InvalidInput: the reply to another task would be readable.
            QuorumLost: fewer parties remain than the threshold.
        """
        self._begin(tasks)
        asked = self._question(tasks)
        others = tuple(task for task in tasks if asked is None or task not in asked.tasks)
        _check_hidden(task for task in others if not task.drawn)
        if asked is None:
            if to is not None and any(task.remembered for task in others):
                # A frozen party is not taught, and its history must be that of the others.
                to = sorted({*to, *set(self.agreed.frozen).intersection(self.parties)})
            return self._network.ask(*others, to=to)
        return self._summed(asked, others, self.parties if to is None else tuple(to))

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Refuse separate requests for single parties."""
        raise InvalidInput("parties are asked one by one, and not for a sum", where=SECURE)

    def require(self, *tasks: Task) -> Replies:
        """Send tasks to all parties and require a reply from each; these tasks are not summed.

        Raises:
            InvalidInput: a reply would reveal private rows.
        """
        self._begin(tasks)
        _check_hidden(task for task in tasks if not task.row_free)
        return self._network.require(*tasks)

    def _begin(self, tasks: Sequence[Task]) -> None:
        """At the start of a run, request the parties' fixed sets, and check that all members are present.

        Raises:
            QuorumLost: a party of the fixed set is missing.
        """
        if not self._begins:
            return
        self._begins, among = False, self._network.agreed.summed
        round, threshold = tasks[0].round, self._settings.of(len(among))
        attempt = secrets.token_hex(16)  # of no sum: the next one takes its place
        begin = OpenSum(round=round, question="", attempt=attempt, threshold=threshold)
        replies = self._network.ask(begin, to=[name for name in self.parties if name in among])
        keys = dict(zip(replies.parties, replies.of(SumKeys), strict=True))
        fixed = fixed_set(keys, threshold=threshold)
        check_whole(keys, fixed, replies.missing, where="secure aggregation, before training")

    def _question(self, tasks: Sequence[Task]) -> SumQuestion | None:
        """Return the part of a request whose replies are summed; ``None`` if there is no such part."""
        round = tasks[0].round
        for task in tasks:
            if task.summed == "parameters":
                form = "rows" if self._weights == "rows" else "parameters"
                return SumQuestion(tasks=(task,), form=form, settings={})
            if task.summed == "class sums":
                threshold = self._settings.of(len(self.agreed.summed))
                variance = self._settings.variance(summed_entries(task, self.agreed), threshold)
                return SumQuestion(tasks=(task,), form=CLASS_SUMS, settings={}, variance=variance)
            if task.summed == "predictions" and self._rule is not None:
                name, settings = form_of(self._rule) or ("", {})
                options = self._rule.options
                scores = [
                    score_task(kind)(round=round, **options.get(kind, {}))  # type: ignore[call-arg]
                    for kind in self._rule.needs
                ]
                return SumQuestion(tasks=(task, *scores), form=name, settings=settings)
        return None

    def _summed(
        self, asked: SumQuestion, others: tuple[Task, ...], parties: tuple[str, ...]
    ) -> Replies:
        """Run the four steps; the reply of every party in the sum is the sum.

        For class sums, the first party's reply holds the sum over all parties, and the other replies hold
        zeros. Each reply also holds the party's declared guarantee. Adding up the replies therefore gives the
        right total.
        """
        from consilience.privacy.secure_aggregation.opened_sum import open_sum

        round, among = asked.tasks[0].round, self.agreed.summed
        threshold = self._settings.of(len(among))
        begin = OpenSum(
            round=round,
            question=asked.digest,
            attempt=secrets.token_hex(16),
            threshold=threshold,
        )
        late = KnowledgeRefused("it joined after the others had agreed on who is in a sum")
        missing = {name: failure_of(name, late) for name in parties if name not in among}

        fixed: tuple[str, ...] = ()

        def check(found: Mapping[str, Any], whole: bool = True) -> None:
            if whole:
                check_whole(found, fixed, missing, where=f"round {round}")
            if len(found) < threshold:
                raise QuorumLost(
                    f"{len(found)} parties are left, and {threshold} open the sum",
                    where=f"round {round}",
                    mend=left_out(missing),
                )

        def step(
            kind: type[K], *tasks: Task, to: Sequence[str], whole: bool = True
        ) -> dict[str, K]:
            replies = self._network.ask(*tasks, to=to)
            missing.update(replies.missing)
            found = dict(zip(replies.parties, replies.of(kind), strict=True))
            check(found, whole)
            return found

        keys = step(SumKeys, *others, begin, to=[name for name in parties if name in among])
        self._fixed = fixed = fixed_set(keys, threshold=threshold)
        keys = members_of(keys, fixed, missing)
        check(keys)
        share = ShareSecrets(round=round, keys=tuple(keys.values()))
        shared = step(SealedShares, share, to=tuple(keys))
        self._unchecked |= {name for name, one in shared.items() if not one.checked}
        trained = asked.tasks[0].summed == "parameters"  # rules may have a form of that name
        task = SumTrained if trained else SumMasked
        masked = task(round=round, shared=tuple(shared.values()), asked=asked)
        given = step(MaskedInput, masked, to=tuple(shared))
        opening = OpenMasks(round=round, survivors=tuple(given), sharing=len(shared))
        # The input of one that is gone now is in the sum, and enough others open it.
        opened = step(SumOpening, opening, to=tuple(given), whole=False)
        inputs = {name: one.values for name, one in given.items()}
        total = open_sum(begin.domain, threshold, keys, tuple(shared), inputs, opened)
        whole = Sum(total, np.ones(len(given)), tuple(given))
        answers: dict[str, tuple[Any, ...]] = {name: (whole,) for name in given}
        steps = total.view(np.int64)
        for name, one in given.items():
            if (stated := one.stated) is not None:
                values, steps = steps.reshape(stated.values.shape), np.zeros_like(steps)
                answers[name] = replace(stated, values=values), whole
        gone = {name: one for name, one in missing.items() if name not in given}
        if trained:
            return SummedParameters(answers, gone, mean_of(total, asked.form))
        return Replies(answers, gone)


@prints_no_rows
@dataclass(frozen=True)
class SummedParameters(Replies):
    """Replies that contain only the mean of the parties' parameters.

    Attributes:
        mean: mean over the parties that answered, shape ``(size,)``, float64.
    """

    mean: Array

    def sum(
        self,
        kind: type[Any],
        field: str = "values",
        *,
        weights: Weights = "uniform",
        over: float | None = 1.0,
        minus: Array | None = None,
    ) -> Sum:
        """Return the mean of the parameters, with the weights of the secure sum.

        Args:
            kind: must be ``Parameters``.
            field: must be ``"values"``.
            weights: ignored; the secure sum has already applied the protocol's weights.
            over: must be ``None``, for a mean.
            minus: array to subtract from the mean; ``None`` for none.

        Returns:
            The mean, shape ``(size,)``.
        """
        assert (kind, field, over) == (Parameters, "values", None)
        values = self.mean if minus is None else self.mean - minus
        return Sum(values, np.full(len(self), 1 / len(self)), self.parties)


def sums() -> list[str]:
    """List the names of the aggregators that can be computed from sums."""
    return [name for name, make in AGGREGATORS.items() if form_of(make())]


def check_sum(rule: Aggregator | None) -> None:
    """Raise ``InvalidInput`` if a rule (``None`` for auto) cannot be computed from sums."""
    if rule is None or form_of(rule) is None:
        who, mend = (
            f"aggregator {rule.name if rule else 'auto'!r}",
            f"Sums are {', '.join(sums())}.",
        )
        if rule is not None and rule.screen is not None:
            who = f"the guard of {rule.name!r}"
            mend = "Sums cannot be guarded: leave out one of the two."
        raise InvalidInput(f"{who} looks at single parties' answers", where=SECURE, mend=mend)


def check_settings(
    protocol: WrappedProtocol, settings: SecureAggregation, options: Mapping[str, Any]
) -> None:
    """Raise ``InvalidInput`` unless the settings are for this protocol with these options."""
    if settings.epsilon is not None and protocol.summed != "class sums":
        raise InvalidInput(
            "noise that parties share is for class sums",
            where=f"{SECURE}, epsilon",
            mend="Take the protocol private_sums.",
        )
    if options.get("codec") is not None:
        raise InvalidInput("masked integers cannot be compressed", where="codec")
    if protocol.takes("aggregate"):
        check_sum(options.get("aggregate"))


def summed_rounds(
    protocol: WrappedProtocol,
    function: Callable[..., Rounds],
    settings: SecureAggregation,
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    **options: Any,
) -> Rounds:
    """Run a protocol under secure aggregation: the coordinator sees only sums of the parties' answers.

    The rule of the protocol must be computable from sums (:func:`check_sum`).

    Args:
        protocol: the protocol.
        function: creates the rounds of the protocol.
        settings: settings of the sums.
        network: the parties.
        public: the public rows.
        state: state of the previous round; ``None`` to begin.
        options: options of the protocol.

    Raises:
        InvalidInput: there are too few parties, or an option does not work with sums.
    """
    agreed, rule = network.agreed, None
    threshold = settings.of(len(agreed.summed or agreed.answering(network.parties)))
    if options.get("most_rows") is not None:
        raise InvalidInput(
            "a cap looks at single parties' sums, and under masks there are none",
            where=SECURE,
            mend="Leave out one of the two.",
        )
    share = options.get("participation", 1.0)
    count = len(agreed.summed)
    if protocol.takes("participation") and (n := party_count(share, count)) < count:
        raise InvalidInput(
            f"{n} of {count} parties take part in a round, and all sums are over the same parties",
            where=f"{SECURE}, participation",
            mend="Sums of two sets of parties would tell the answers of single ones: leave it out.",
        )
    weights = options.get("weights", "rows")
    if protocol.takes("aggregate"):
        rule = options["aggregate"].suited_to(agreed)
        if options.get("deregularize") is not None:
            raise InvalidInput(
                "a sum is of numbers with a fixed point, and de-regularisation multiplies their errors a "
                "millionfold",
                where=SECURE,
            )
        options = {**options, "aggregate": summed_rule(rule, agreed)}
    view = SumsNetwork(network, settings, rule, weights, begins=state is None)
    for one in function(view, public, state, **options):
        notes = [
            f"a sum: single answers are seen by {threshold} or more parties that join hands with the "
            f"coordinator{view.unchecked}. Wrong answers are not found"
        ]
        if view.late:
            notes.append(
                f"in no sum, for they were not in the first, and taught: {', '.join(view.late)}"
            )
        yield replace(one, notes=(*one.notes, *notes)) if one.number else one


WRAPPING = Wrapping(
    kind=SecureAggregation,
    what="a SecureAggregation",
    example="SecureAggregation()",
    check=check_settings,
    around=summed_rounds,
)
"""The option ``secure_aggregation`` of every protocol for which sums are enough."""

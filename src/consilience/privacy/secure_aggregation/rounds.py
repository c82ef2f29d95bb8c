"""Secure sums around a protocol: a network that hands it sums of the parties' answers, and no single one.

Predictions, class sums and trained parameters are asked for in four exchanges
(:mod:`consilience.privacy.secure_aggregation.tasks`); the first goes with the training that is asked for in
the same breath. Whatever else would leave a party readable is refused. All sums of a run are over the parties
of the first one, and whatever changes models is asked of all of these
(:mod:`consilience.privacy.secure_aggregation.secure_sum` says why).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
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
    """Settings of secure sums: the coordinator sees sums of the parties' answers alone.

    The first sum may be over any parties that reach the threshold; all later ones are over the same, because
    a difference of sums over two sets would tell the answers of a single party. If one of these is gone, the
    run ends with its name, and is resumed when the party is back.

    Attributes:
        threshold: fewest parties that open a sum, more than two thirds of those that agreed when they joined,
            which is the default. So many that collude with the coordinator learn every answer; with fewer
            left there is no sum.
        epsilon: ε of class sums with noise that parties share, each a part of it, so that it holds however
            many drop out: against everybody but ``colluding`` parties, the coordinator too. A party whose
            budget does not say ``noise = "shared"`` refuses, as one does that would be charged more than its
            budget has. ``None`` for each party's own noise.
        delta: δ of it.
        colluding: parties that may tell their parts of the noise, 1 to 2 t - n - 1 of n with threshold t.
        adjacency: the neighbouring data that ε is for.
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
        """Give the threshold for so many parties.

        Raises:
            InvalidInput: there are too few or too many of them, or the threshold is not for so many.
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
        """Compute the variance of the noise that each party adds to so many numbers, in steps of the grid.

        Args:
            entries: numbers in a party's class sums.
            threshold: fewest parties of the sum.
        """
        if self.epsilon is None:
            return 0.0
        reach = SCALE * (1.0 if self.adjacency == "add-remove" else 2.0)
        whole = skellam_variance(self.epsilon, self.delta, l2=reach, l1=reach * math.sqrt(entries))
        return whole / (threshold - self.colluding)


class SumsNetwork:
    """Network as a protocol sees it, which is handed sums.

    Args:
        network: the parties.
        settings: of the sums.
        rule: aggregator whose scores belong into the sums; ``None`` for none.
        weights: of the parties in a mean of their parameters.
        begins: whether a run begins: then the parties are asked at first, before anything is trained, over
            whom they open sums.
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
        """Names of the parties that all sums are over, once it is known."""
        self._unchecked: set[str] = set()

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined, with those that are in no sum as ones that are taught alone."""
        agreed = self._network.agreed
        return replace(agreed, learners=tuple(sorted({*agreed.learners, *self.late})))

    @property
    def late(self) -> tuple[str, ...]:
        """Names of the parties that answer and are in no sum: they joined, or came back, after the first."""
        agreed = self._network.agreed
        known = {*(self._fixed or agreed.summed), *agreed.learners}
        if not self._fixed:
            known |= {*agreed.frozen}
        return tuple(name for name in self.parties if name not in known)

    @property
    def unchecked(self) -> str:
        """A clause on the parties that took the coordinator's word for the others' keys; empty for none."""
        if not self._unchecked:
            return ", for each holds the others' keys against a roster of its own"
        names = ", ".join(sorted(self._unchecked))
        return f"; and, since {names} hold no roster of the others' keys, by a coordinator that lies of them"

    def wrap(self, stage: Stage) -> NetworkView:
        """Refuse a stage: it would change masked integers, whose sum is then none."""
        raise InvalidInput("masked integers pass no other stage", where=SECURE)

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Have parties run tasks; of predictions and class sums every reply holds the sum alone.

        Raises:
            InvalidInput: a task asks for something else that parties would send readable.
            QuorumLost: fewer parties are left than open a sum.
        """
        self._begin(tasks)
        asked = self._question(tasks)
        others = tuple(task for task in tasks if asked is None or task not in asked.tasks)
        for task in others:
            if task.reply_type.privacy_cost != "nothing" and not task.drawn:
                raise InvalidInput(
                    f"{type(task).__name__} would leave the parties as it is, beside the sums",
                    where=SECURE,
                    mend=f"Under it there are {', '.join(sums())}; and the protocol private_sums.",
                )
        if asked is None:
            if to is not None and any(task.remembered for task in others):
                # A frozen party is not taught, and its history must be that of the others.
                to = sorted({*to, *set(self.agreed.frozen).intersection(self.parties)})
            return self._network.ask(*others, to=to)
        return self._summed(asked, others, self.parties if to is None else tuple(to))

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        """Refuse questions of a party's own."""
        raise InvalidInput("parties are asked one by one, and not for a sum", where=SECURE)

    def require(self, *tasks: Task) -> Replies:
        """Ask like :meth:`ask`, where every party must answer."""
        self._begin(tasks)
        return self._network.require(*tasks)

    def _begin(self, tasks: Sequence[Task]) -> None:
        """Ask the parties over whom they open sums, if a run begins with these tasks.

        Raises:
            QuorumLost: they open none without a party that is not there.
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
        """The part of a request that is summed up."""
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
        """Run the four steps; every party whose input is in the sum has the sum as its reply.

        Of class sums the first party's reply holds those of all, and the others' none, each beside what the
        party guarantees: they are right together.
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
    """Replies whose parameters are known in the mean alone.

    Attributes:
        mean: of the parties that answered, shape ``(size,)``, float64.
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
        """Give the mean of the parameters, by the weights that they were added up with.

        Args:
            kind: refused, but for parameters.
            field: refused, but for their values.
            weights: those of the protocol.
            over: ``None``, for a mean.
            minus: what is taken off it.
        """
        assert (kind, field, over) == (Parameters, "values", None)
        values = self.mean if minus is None else self.mean - minus
        return Sum(values, np.full(len(self), 1 / len(self)), self.parties)


def sums() -> list[str]:
    """List the aggregators that are sums."""
    return [name for name, make in AGGREGATORS.items() if form_of(make())]


def check_sum(rule: Aggregator | None) -> None:
    """Raise ``InvalidInput`` where a rule, by default auto, is no sum."""
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
    """Run a protocol, its rule found to be a sum, whose parties' answers are summed up where nobody can look.

    Args:
        protocol: the protocol.
        function: makes its rounds.
        settings: of the sums.
        network: the parties.
        public: the public rows.
        state: state of the round before; ``None`` to begin.
        options: options of the protocol.

    Raises:
        InvalidInput: there are too few parties.
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

"""Secure sums around a protocol: a network that hands it sums of the parties' answers, and no single one.

What a protocol asks for predictions, or for class sums, is answered in four exchanges
(:mod:`consilience.tasks.secure_sums`); the first goes with the training that is asked for in the same breath.
Whatever else would leave a party readable is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from consilience.aggregation import AGGREGATORS, Aggregator
from consilience.aggregation.sums import form_of, summed_rule
from consilience.errors import InvalidInput, QuorumLost
from consilience.messages.replies import Failure, Replies
from consilience.messages.schema import Agreement, Public
from consilience.messages.secure_sums import MaskedInput, SealedShares, SumKeys, SumOpening
from consilience.messages.sums import Sum
from consilience.protocols.rounds import Rounds, RoundState
from consilience.tasks.base import NetworkView, Task
from consilience.tasks.class_sums import SumClasses
from consilience.tasks.predictions import PredictPublic
from consilience.tasks.scores import score_task
from consilience.tasks.secure_sums import (
    CLASS_SUMS,
    OpenMasks,
    OpenSum,
    ShareSecrets,
    SumMasked,
    SumQuestion,
)
from consilience.validation.numbers import check_number

K = TypeVar("K")

SECURE = "secure_aggregation"
"""Option by which the parties' answers are summed up where nobody can look."""


@dataclass(frozen=True)
class SecureAggregation:
    """Settings of secure sums: the coordinator sees sums of the parties' answers alone.

    Attributes:
        threshold: fewest parties that open a sum, more than two thirds of those that are asked, which is the
            default. So many that join hands with the coordinator learn every answer; with fewer left there is
            no sum.
    """

    threshold: int | None = None

    def __post_init__(self) -> None:
        check_number(
            "threshold", self.threshold, at_least=3, whole=True, optional=True, where=SECURE
        )

    def of(self, parties: int) -> int:
        """Give the threshold for so many parties.

        Raises:
            InvalidInput: there are too few or too many of them, or the threshold is not for so many.
        """
        from consilience.secure.secure_sum import least_threshold, odd_sum

        threshold = least_threshold(parties) if self.threshold is None else self.threshold
        if why := odd_sum(parties, threshold):
            raise InvalidInput(
                why,
                where=SECURE,
                mend="From a sum of two each would know the other's answers; and of fewer than two thirds a "
                "coordinator could open two, by telling some parties that others are gone.",
            )
        return threshold


class SumsNetwork:
    """Network as a protocol sees it, which is handed sums.

    Args:
        network: the parties.
        settings: of the sums.
        rule: aggregator whose scores belong into the sums; ``None`` for none.
    """

    def __init__(
        self, network: NetworkView, settings: SecureAggregation, rule: Aggregator | None
    ) -> None:
        self._network, self._settings, self._rule = network, settings, rule

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._network.parties

    @property
    def agreed(self) -> Agreement:
        """Agreement that the parties joined."""
        return self._network.agreed

    def ask(
        self, *tasks: Task, to: Sequence[str] | None = None, compression: object = None
    ) -> Replies:
        """Have parties run tasks; of predictions and class sums every reply holds the sum alone.

        Raises:
            InvalidInput: a task asks for something else that parties would send readable.
            QuorumLost: fewer parties are left than open a sum.
        """
        asked = self._question(tasks)
        others = tuple(task for task in tasks if asked is None or task not in asked.tasks)
        for task in others:
            if task.reply_type.privacy_cost != "nothing":
                raise InvalidInput(
                    f"{type(task).__name__} would leave the parties as it is, beside the sums",
                    where=SECURE,
                    mend=f"Under it there are {', '.join(sums())}; and the protocol private_sums.",
                )
        if asked is None:
            return self._network.ask(*others, to=to)
        return self._summed(asked, others, self.parties if to is None else tuple(to))

    def ask_each(self, tasks: Mapping[str, Task], *, compression: object = None) -> Replies:
        """Refuse questions of a party's own."""
        raise InvalidInput("parties are asked one by one, and not for a sum", where=SECURE)

    def require(self, *tasks: Task) -> Replies:
        """Ask like :meth:`ask`, where every party must answer."""
        return self._network.require(*tasks)

    def _question(self, tasks: Sequence[Task]) -> SumQuestion | None:
        """The part of a request that is summed up."""
        round = tasks[0].round
        for task in tasks:
            if isinstance(task, SumClasses):
                return SumQuestion(tasks=(task,), form=CLASS_SUMS, settings={})
            if isinstance(task, PredictPublic) and self._rule is not None:
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
        from consilience.secure.secure_sum import open_sum

        round, threshold = asked.tasks[0].round, self._settings.of(len(parties))
        begin = OpenSum(
            round=round,
            question=asked.digest(self.agreed),
            attempt=secrets.token_hex(16),
            threshold=threshold,
        )
        missing: dict[str, Failure] = {}

        def step(kind: type[K], *tasks: Task, to: Sequence[str]) -> dict[str, K]:
            replies = self._network.ask(*tasks, to=to)
            missing.update(replies.missing)
            found = dict(zip(replies.parties, replies.of(kind), strict=True))
            if len(found) < threshold:
                raise QuorumLost(
                    f"{len(found)} parties are left, and {threshold} open the sum",
                    where=f"round {round}",
                    mend="Left out: "
                    + "; ".join(
                        f"{name} ({one.kind}: {one.reason})" for name, one in missing.items()
                    ),
                )
            return found

        keys = step(SumKeys, *others, begin, to=parties)
        share = ShareSecrets(round=round, keys=tuple(keys.values()))
        shared = step(SealedShares, share, to=tuple(keys))
        masked = SumMasked(round=round, shared=tuple(shared.values()), asked=asked)
        given = step(MaskedInput, masked, to=tuple(shared))
        opening = OpenMasks(round=round, survivors=tuple(given), sharing=len(shared))
        opened = step(SumOpening, opening, to=tuple(given))
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
        return Replies(answers, gone)


def sums() -> list[str]:
    """List the aggregators that are sums."""
    return [name for name, make in AGGREGATORS.items() if form_of(make())]


def summed_rounds(
    function: Callable[..., Rounds],
    settings: SecureAggregation,
    network: NetworkView,
    public: Public,
    state: RoundState | None,
    options: Mapping[str, Any],
) -> Rounds:
    """Run a protocol whose parties' answers are summed up where nobody can look.

    Args:
        function: the protocol's rounds.
        settings: of the sums.
        network: the parties.
        public: the public rows.
        state: state of the round before; ``None`` to begin.
        options: options of the protocol.

    Raises:
        InvalidInput: the aggregator is no sum, or there are too few parties.
    """
    agreed, rule = network.agreed, None
    threshold = settings.of(len(agreed.answering(network.parties)))
    if "aggregate" in options or function.__name__ != "private_sums":
        rule = options.get("aggregate")
        rule = rule.suited_to(agreed) if isinstance(rule, Aggregator) else None
        if rule is None or form_of(rule) is None:
            name = "auto" if rule is None else rule.name
            guarded = rule is not None and rule.screen is not None
            raise InvalidInput(
                f"{f'the guard of {name!r}' if guarded else f'aggregator {name!r}'} looks at single parties' "
                "answers",
                where=SECURE,
                mend="Sums cannot be guarded: leave out one of the two."
                if guarded
                else f"Sums are {', '.join(sums())}.",
            )
        if options.get("deregularize") is not None:
            raise InvalidInput(
                "a sum is of numbers with a fixed point, and de-regularisation multiplies their errors a "
                "millionfold",
                where=SECURE,
            )
        note = (
            f"a sum: single answers are seen by {threshold} or more parties that join hands with the "
            "coordinator; and, unless parties check one another's keys, by a coordinator that lies of them. "
            "Nobody looks for wrong answers"
        )
        options = {**options, "aggregate": summed_rule(rule, agreed, note)}
    yield from function(SumsNetwork(network, settings, rule), public, state, **options)

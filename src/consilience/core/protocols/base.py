"""A protocol is a generator that yields rounds; bound to its options it is a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, update_wrapper
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, Concatenate, Generic, ParamSpec, cast

from consilience.core.aggregation import Aggregator, ConsensusUpdate, auto
from consilience.core.aggregation.guard import Guard
from consilience.core.errors import InvalidInput
from consilience.core.messages.message import TaskGroup
from consilience.core.messages.schema import Agreement, Public
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.protocols.rounds import BeforeTheFirstQuestion, FirstQuestion
from consilience.core.protocols.rounds import Round as Round
from consilience.core.protocols.rounds import Rounds as Rounds
from consilience.core.protocols.rounds import RoundState as RoundState
from consilience.core.protocols.sampling import inclusion, party_count
from consilience.core.protocols.wrapping import (
    Summed,
    check_made,
    wrapping,
    wrapping_options,
)
from consilience.core.tasks.base import NetworkView, Task
from consilience.core.tasks.predictions import PredictPublic
from consilience.core.tasks.scores import score_task
from consilience.core.validation.arguments import check_arguments

P = ParamSpec("P")


@dataclass(frozen=True, repr=False)
class Protocol:
    """A protocol with its options: call it with a network and public data to get its rounds.

    Attributes:
        name: of the function it was made by.
        options: as given.
    """

    name: str
    options: Mapping[str, Any]
    _rounds: Callable[[NetworkView, Public, RoundState | None], Rounds]
    _again: Callable[..., Protocol]

    def __repr__(self) -> str:
        return (
            f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"
        )

    def __call__(
        self, network: NetworkView, public: Public, state: RoundState | None = None
    ) -> Rounds:
        """Make the rounds, from the first or after a state; no round runs before it is requested.

        Args:
            network: the parties.
            public: the public rows.
            state: state of the round before; ``None`` to begin.

        Returns:
            An iterator over rounds.
        """
        return self._rounds(network, public, state)

    def check(self, network: NetworkView, public: Public) -> tuple[Task, ...]:
        """Check that the protocol can begin with the joined parties, without training.

        A protocol first checks its options and the requirements that every party must meet. This method
        runs it up to that point, on a network that raises an exception instead of sending the first
        question.

        Args:
            network: the parties.
            public: the public rows.

        Returns:
            The tasks of its first question, which is not sent.

        Raises:
            InvalidInput: the parties or the options do not go together.
        """
        try:
            next(self(BeforeTheFirstQuestion(network), public))
        except FirstQuestion as question:
            return question.args
        return ()

    def compressed(self, codec: object) -> Protocol:
        """Return the protocol with compressed messages.

        Every protocol supports compression; the option ``codec`` is equivalent.

        Args:
            codec: the settings, a ``Codec`` such as ``chain(quantized(8), zstd())``.

        Returns:
            A new protocol.

        Raises:
            InvalidInput: the argument is not a codec. A codec that does not fit the protocol's messages is
                refused before training.
        """
        return self.with_options(codec=codec)

    def with_options(self, **options: Any) -> Protocol:
        """Return a copy of the protocol with some options replaced."""
        return self._again(**options)


class ProtocolFactory(Generic[P]):
    """Protocol without options: call it with options to get a :class:`Protocol`.

    Attributes:
        name: name of the function that computes the rounds.
        exchanges: group of the messages that parties send; ``None`` if they send none.
        needs_public: whether it needs public rows; a string names the option that, switched on, needs them.
        also_called: its names in papers.
        python_only: the reason why a configuration file cannot name it; empty if it can.
        any_party: whether a party may have a frozen model, or no labels.
        summed: whether sums of the parties' answers suffice: :data:`Summed`.
    """

    def __init__(
        self,
        function: Callable[Concatenate[NetworkView, Public, RoundState | None, P], Rounds],
        *,
        exchanges: TaskGroup | None,
        needs_public: bool | str,
        also_called: tuple[str, ...],
        python_only: str,
        any_party: bool,
        summed: Summed,
    ) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self.exchanges, self.needs_public = exchanges, needs_public
        self.also_called, self.python_only = also_called, python_only
        self.any_party, self.summed = any_party, summed
        self._function = function

    @cached_property
    def __signature__(self) -> Signature:
        """Signature for users: the protocol's options and those of every protocol, by name."""
        own = signature(self._function)
        options = list(own.parameters.values())[3:]  # behind network, public and state
        named = [one for one in options if one.kind is not one.VAR_KEYWORD]
        alike: Any = {"kind": Parameter.KEYWORD_ONLY, "default": None, "annotation": Any}
        common = [Parameter(name, **alike) for name in wrapping_options(self.summed)]
        others = [one for one in options if one.kind is one.VAR_KEYWORD]
        return Signature([*named, *common, *others], return_annotation="Protocol")

    def takes(self, option: str) -> bool:
        """Return whether the protocol has this option; every protocol has ``codec``."""
        return option in signature(self).parameters

    def __call__(self, *args: P.args, **options: P.kwargs) -> Protocol:
        """Bind the options.

        Args:
            *args: refused: options have names.
            **options: those of the protocol, and those of every protocol (:mod:`.wrapping`): ``codec``, and
                ``secure_aggregation`` if sums of answers suffice.

        Returns:
            The protocol with its options.

        Raises:
            InvalidInput: options without names, or unknown options.
        """
        function, where = self._function, f"protocol {self.name}"
        if args:
            raise InvalidInput(
                f"it takes options by name, and was given {type(args[0]).__name__}",
                where=where,
                mend=f"Federation(parties, …).run({self.name}(rounds=…)).",
            )
        chosen: dict[str, Any] = dict(options)
        given = {name: chosen.pop(name, None) for name in wrapping_options(self.summed)}
        around = {
            name: (wrapping(name), value) for name, value in given.items() if value is not None
        }
        for name, (one, value) in around.items():
            check_made(name, value, one.kind, one.what, one.example)
        check_arguments(
            function, chosen, where=where, given=("network", "public", "state"), also=given
        )
        for one, value in around.values():
            one.check(self, value, options)

        def rounds(network: NetworkView, public: Public, state: RoundState | None) -> Rounds:
            if not self.any_party:
                _check_all_train(network.agreed, where=where)
            wrapped: Callable[..., Rounds] = function
            for one, value in around.values():
                wrapped = partial(one.around, self, wrapped, value)
            yield from wrapped(network, public, state, **chosen)

        return Protocol(
            self.name, options, rounds, lambda **more: cast(Any, self)(**{**options, **more})
        )


def _check_all_train(agreed: Agreement, *, where: str) -> None:
    """Raise ``InvalidInput`` if a party has a frozen model, or no labels."""
    for names, what in ((agreed.frozen, "is frozen"), (agreed.learners, "has no labels")):
        if names:
            raise InvalidInput(
                f"party {names[0]!r} {what}, and here every party has to train on rows of its own",
                where=where,
                mend="Take ensemble_distillation, iterative_distillation or local_only; or leave it out.",
            )


def protocol(
    *,
    exchanges: TaskGroup | None,
    needs_public: bool | str = False,
    also_called: tuple[str, ...] = (),
    python_only: str = "",
    any_party: bool = False,
    summed: Summed = False,
) -> Callable[
    [Callable[Concatenate[NetworkView, Public, RoundState | None, P], Rounds]], ProtocolFactory[P]
]:
    """Turn ``f(network, public, state, *, options)`` into ``f(options, codec=None) -> Protocol``.

    The function does not receive the option ``codec``, because compression wraps its rounds.

    Args:
        exchanges: group of the messages that parties send: ``"predictions"``, ``"parameters"``, ``"models"``,
            or ``"others"`` for a protocol of another package; ``None`` if they send none.
        needs_public: whether it needs public rows; or the name of the option that, switched on, needs them.
        also_called: its names in papers, for searching.
        python_only: the reason why a configuration file cannot name it; empty if it can.
        any_party: whether a party may have a frozen model, or no labels. The protocol then queries
            :meth:`.Agreement.answering` parties, and teaches :meth:`.Agreement.taught` ones.
        summed: whether sums of the parties' answers suffice. The protocol then has the option
            ``secure_aggregation``; only ``"class sums"`` support its noise.

    Returns:
        A decorator.
    """

    def made(
        function: Callable[Concatenate[NetworkView, Public, RoundState | None, P], Rounds],
    ) -> ProtocolFactory[P]:
        return ProtocolFactory(
            function,
            exchanges=exchanges,
            needs_public=needs_public,
            also_called=also_called,
            python_only=python_only,
            any_party=any_party,
            summed=summed,
        )

    return made


def questions(aggregate: Aggregator, *, round: int) -> tuple[Task, ...]:
    """List the tasks of every round whose replies are the input of ``aggregate``.

    Static scores are excluded; :class:`~consilience.core.protocols.constant_replies.ConstantReplies` requests
    them once.

    Args:
        aggregate: the rule.
        round: the round.

    Returns:
        The tasks: predictions first, then scores.
    """
    asked = PredictPublic(round=round, outputs=aggregate.outputs, calibrated=aggregate.calibrated)
    return asked, *score_questions(aggregate, round=round, static=False)


def suited(aggregate: Aggregator | None, agreed: Agreement) -> Aggregator:
    """Return the form of an aggregator for the parties' agreement; ``None`` gives ``auto()``.

    An aggregator without a screen gets a :class:`~consilience.core.aggregation.guard.Guard`.

    Args:
        aggregate: the aggregator, or ``None``.
        agreed: the agreement.

    Returns:
        The aggregator with a screen.

    Raises:
        InvalidInput: the argument is not an aggregator, or the rule does not support several labels per row.
    """
    check_made("aggregate", aggregate, Aggregator, "an aggregator", "avg()")
    rule = (auto() if aggregate is None else aggregate).suited_to(agreed)
    outcome = outcome_of(agreed.outcome)
    several = outcome is not None and outcome.several
    return rule if rule.screen else replace(rule, screen=Guard(watch=not several))


def score_questions(aggregate: Aggregator, *, round: int, static: bool) -> tuple[Task, ...]:
    """List the tasks for the scores that an aggregator needs.

    Args:
        aggregate: the rule.
        round: the round.
        static: whether to list those that depend on a party's data alone, or the others.
    """
    return tuple(
        task(round=round, **aggregate.options.get(kind, {}))  # type: ignore[call-arg]
        for kind, task in zip(aggregate.needs, map(score_task, aggregate.needs), strict=True)
        if task.static == static
    )


def check_several(network: NetworkView) -> None:
    """Raise ``InvalidInput`` if there are fewer than two parties, because models need a receiver."""
    if len(network.parties) < 2:
        raise InvalidInput(
            "there is one agent only", where="protocol", mend="Models are exchanged by two or more."
        )


def check_options(
    network: NetworkView,
    *,
    rounds: int,
    participation: int | float = 1.0,
    probabilities: Mapping[str, float] | None = None,
    aggregate: Aggregator | None = None,
    consensus: ConsensusUpdate | None = None,
    alpha: float | None = None,
) -> None:
    """Raise ``InvalidInput`` on options that cannot work, before anything is trained.

    Args:
        network: the parties.
        rounds: number of rounds.
        participation: parties per round, a number or a share.
        probabilities: probability of each party to take part, relative to the others.
        aggregate: rule of a protocol that aggregates predictions.
        consensus: step of the consensus.
        alpha: weight of the private rows.
    """
    if aggregate is not None and network.agreed.rows == 0:
        raise InvalidInput(
            "there is no public data",
            where="protocol",
            mend="Give unlabelled rows that every party may see: Federation(parties, public=X); or take a "
            "protocol that exchanges models, such as averaged_distillation.",
        )
    if rounds < 1:
        raise InvalidInput(f"rounds is {rounds}", where="protocol", mend="Give at least 1.")
    parties = network.agreed.answering(network.parties)
    most = len(parties) if isinstance(participation, Integral) else 1.0
    if isinstance(participation, bool) or not 0 < participation <= most:
        raise InvalidInput(
            f"participation is {participation}",
            where="protocol",
            mend=f"Give a number of parties from 1 to {len(parties)}, or a share in (0, 1].",
        )
    if probabilities is not None:
        inclusion(probabilities, parties, party_count(participation, len(parties)))
    if alpha is not None and not 0 < alpha < 1:
        raise InvalidInput(
            f"alpha is {alpha:g}",
            where="protocol",
            mend="It lies in (0, 1); its default, 1/m, is for two parties or more.",
        )
    check_made("aggregate", aggregate, Aggregator, "an aggregator", "avg()")
    check_made("consensus", consensus, ConsensusUpdate, "a consensus step", "damped()")
    if aggregate is not None and aggregate.kind != network.agreed.kind:
        raise InvalidInput(
            f"aggregator {aggregate.name!r} is for {aggregate.kind}, the parties do "
            f"{network.agreed.kind}",
            where="protocol",
            mend="Regression takes auto, value-density-ratio, mean, weighted-mean or value-median; "
            "classification auto and the others.",
        )

"""A federation: parties that agreed on classes and public data, and a loop over a protocol's rounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from consilience.diagnostics.public_coverage import Suitability, what_is_known
from consilience.errors import InvalidInput, nearest, visible
from consilience.learners import Model
from consilience.messages.replies import Agreement, Description, Metrics, Public
from consilience.networks import (
    Delivery,
    LocalNetwork,
    Network,
    Population,
    PopulationNetwork,
)
from consilience.numerics.randomness import Threads, limited_threads
from consilience.party.party import Party
from consilience.protocols import Protocol, Round, RoundState
from consilience.tasks.base import Describe, Evaluate, Join, TakePublic, bookkeeping_tasks
from consilience.validation.arrays import Array
from consilience.validation.labels import class_order


class Federation:
    """Parties and the public data they share.

    Args:
        parties: at least one :class:`~consilience.party.party.Party`; or, where they are many and few take
            part in a round, a :class:`~consilience.networks.Population`.
        public: unlabelled inputs, shape ``(n_public, ...)``; ``None`` for protocols that exchange models.
        seed: everything random is keyed by it; the same seed gives the same bits on every network.
        strict: refuse a party with a single class and a class that one party alone knows, which are
            mostly mistakes of labelling; switch it off where they are meant.
        threads: numerical threads while rounds are computed.

    Raises:
        InvalidInput: no parties, two of one name, or public data that cannot be used.

    Example:
        >>> import numpy as np
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from consilience import Federation, Party, avg, ensemble_distillation
        >>> X = np.repeat(np.linspace(-1, 1, 40), 2)[:, None]
        >>> y = np.where(X[:, 0] < 0, "below", "above")
        >>> parties = [
        ...     Party("a", GaussianNB(), X[0::2], y[0::2]),
        ...     Party("b", DecisionTreeClassifier(), X[1::2], y[1::2]),
        ... ]
        >>> history = Federation(parties, public=X).run(
        ...     ensemble_distillation(aggregate=avg(), rounds=2)
        ... )
        >>> history.models["a"].predict([[-0.9], [0.9]]).tolist()
        ['below', 'above']
    """

    def __init__(
        self,
        parties: Iterable[Party],
        public: Any = None,
        *,
        seed: int = 0,
        strict: bool = True,
        threads: int = 1,
    ) -> None:
        if public is None:
            shared = Public.none()
        else:
            shared = public if isinstance(public, Public) else Public(np.asarray(public))
        network = (
            PopulationNetwork(parties, shared)
            if isinstance(parties, Population)
            else LocalNetwork(parties, shared)
        )
        self._set(network, shared, seed, strict, threads)

    @classmethod
    def over(
        cls,
        network: Network,
        public: Public,
        *,
        seed: int = 0,
        strict: bool = True,
        threads: int = 1,
    ) -> Federation:
        """A federation whose parties live on ``network``."""
        federation = cls.__new__(cls)
        federation._set(network, public, seed, strict, threads)
        return federation

    def _set(self, network: Network, public: Public, seed: int, strict: bool, threads: int) -> None:
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InvalidInput(
                f"seed is {seed!r}", where="federation", mend="Give a whole number, 0 or more."
            )
        quorum, parties = network.quorum, len(network.parties)
        if not isinstance(quorum, float) and quorum > parties:
            raise InvalidInput(
                f"quorum is {quorum}, and there are {parties} parties",
                where="network",
                mend="Give a number of parties, or a share in (0, 1].",
            )
        self.network, self.public = network, public
        self._seed, self._strict, self._threads = int(seed), strict, threads
        self._testers: dict[str, int | None] = {}
        """Parties that can be measured, and how often in a run they let themselves be."""

    def form(self) -> Agreement:
        """Align classes, check every party against what is agreed, and start from untrained models.

        A party elsewhere that has no public rows of its own is sent them, unless it holds them from before;
        in this process all hold the same ones in memory, and nothing is sent.

        Raises:
            InvalidInput: the parties, their data or their models do not go together.
        """
        with limited_threads(self._threads):
            descriptions = self.network.require(Describe()).of(Description)
            agreement = agree(descriptions, self.public, seed=self._seed, strict=self._strict)
            if lacking := lacking_public(descriptions, self.public):
                self.network.require(TakePublic.of(self.public), to=lacking)
            self.network.require(Join(agreement=agreement))
            self.network.agreement = agreement
        self._testers = {d.party: d.metrics for d in descriptions if d.tested}
        return agreement

    def suitability(self) -> Suitability:
        """How much of the public data the parties know, by inputs alone; nothing has to be trained for it.

        Parties that have joined are asked as they are, others join first; models stay untouched.

        Raises:
            InvalidInput: there is no public data, or the parties, their data or their models do not go
                together.
            QuorumLost: too few parties can say.
        """
        if self.network.agreement is None:
            self.form()
        with limited_threads(self._threads):
            return what_is_known(self.network)

    def rounds(self, protocol: Protocol, *, state: RoundState | None = None) -> Iterator[Round]:
        """The rounds of a protocol, one at a time, from untrained models.

        With ``state`` the parties are taken as they are (see :class:`~consilience.tasks.base.Restore`) and
        the protocol goes on after it.

        Raises:
            InvalidInput: the parties or the protocol's options do not go together; before any training.
        """
        if state is None:
            self.form()
        elif self.network.agreement is None:
            raise InvalidInput(
                "the parties have not joined, and cannot go on after a round",
                where="federation",
                mend="Call form() and have the parties take up their own state: "
                "network.require(Restore(round=…)).",
            )
        threads, steps = Threads(self._threads), protocol(self.network, self.public, state)
        while True:
            with (
                threads.limited()
            ):  # around each step alone: between them the thread is the caller's
                round = next(steps, None)
            if round is None:
                return
            yield round

    def evaluate(self, round: int, *, parties: Collection[str] | None = None) -> dict[str, Metrics]:
        """Every party's metrics on its own test data; parties without any are left out.

        Args:
            round: the round, for the books.
            parties: those to be measured; by default all.
        """
        asked = [name for name in self._testers if parties is None or name in parties]
        if not asked:
            return {}
        with limited_threads(self._threads):
            replies = self.network.gather(Evaluate(round=round), to=asked)
        return {metrics.party: metrics for metrics in replies.of(Metrics)}

    def _is_due(self, name: str, round: int, rounds: int) -> bool:
        return round in measured_rounds(self._testers.get(name), rounds)

    def run(
        self,
        protocol: Protocol,
        *,
        evaluate: bool | Literal["participants"] = True,
        progress: bool = True,
    ) -> History:
        """Run a protocol to its end.

        Args:
            protocol: such as ``ensemble_distillation(aggregate=uwa(), rounds=10)``.
            evaluate: measure after every round, at the parties that hold test data, and at those whose limits
                do not allow it that often in :func:`measured_rounds`; ``"participants"``: at those alone
                whose replies made the round.
            progress: show a progress bar when the output is a terminal.
        """
        if evaluate not in (True, False, "participants"):
            raise InvalidInput(
                f"evaluate is {evaluate!r}", mend='Give true, false or "participants".'
            )
        history = History()
        self.network.deliveries.clear()
        total = int(protocol.options.get("rounds", 1))
        for round in tracked(self.rounds(protocol), total, protocol.name, show=progress):
            metrics: dict[str, Metrics] = {}
            if evaluate:
                parties = self.network.parties
                if evaluate == "participants":
                    parties = () if round.replies is None else round.replies.parties
                due = [name for name in parties if self._is_due(name, round.number, total)]
                metrics = self.evaluate(round.number, parties=due)
            history.add(round, metrics, self.network.deliveries)
            self.network.deliveries.clear()
        history.models = self.network.models()
        return history


@dataclass
class History:
    """What happened in a run.

    Attributes:
        rounds: every round, number 0 first.
        metrics: per round, party to metric name to value.
        deliveries: per round, who was asked what, what left whom, bytes and failures.
        models: party to its trained model, where the network can see into its parties.
    """

    rounds: list[Round] = field(default_factory=list)
    metrics: list[dict[str, Mapping[str, float]]] = field(default_factory=list)
    deliveries: list[list[Delivery]] = field(default_factory=list)
    models: Mapping[str, Model] = field(default_factory=dict)

    def add(
        self, round: Round, metrics: Mapping[str, Metrics], deliveries: Iterable[Delivery]
    ) -> None:
        """Append one round."""
        self.rounds.append(round)
        self.metrics.append({party: given.values for party, given in metrics.items()})
        self.deliveries.append(list(deliveries))

    def metric(self, name: str = "accuracy") -> Array:
        """One metric, shape ``(n_rounds + 1, n_parties)``, parties by name; NaN where it is missing."""
        parties = sorted({party for row in self.metrics for party in row})
        if not any(name in given for row in self.metrics for given in row.values()):
            known = {key for row in self.metrics for given in row.values() for key in given}
            raise InvalidInput(
                f"no metric {name!r} was measured",
                where="history",
                mend=nearest(name, known)
                if known
                else "Give the parties test data: Party(test=…).",
            )
        return np.array(
            [[row.get(p, {}).get(name, np.nan) for p in parties] for row in self.metrics]
        )

    @property
    def bytes_up(self) -> int:
        """Bytes that left all parties together, as they would on the wire, evaluation not counted."""
        aside = bookkeeping_tasks()
        return sum(d.bytes_up for row in self.deliveries for d in row if d.tasks not in aside)

    @property
    def failures(self) -> list[Delivery]:
        """Every exchange in which a party was left out."""
        return [d for row in self.deliveries for d in row if d.status != "ok"]

    def __str__(self) -> str:
        """A line per party: each metric alone and at the end."""
        names = list(
            dict.fromkeys(key for row in self.metrics[-1:] for g in row.values() for key in g)
        )
        if not names:
            said = f"{len(self.rounds)} rounds, nothing measured: the parties hold no test data"
            return visible("\n".join([said, *self._left_out(), *self._noted()]))
        width = max(len(party) for party in ("party", *self.metrics[-1]))
        heads = [f"{name + ' alone → after':>24}" for name in names]
        lines = [f"{'party':<{width}}  " + "  ".join(heads)]
        for party, after in self.metrics[-1].items():
            alone = self.metrics[0].get(party, {})
            cells = (f"{_number(alone.get(n))} → {_number(after.get(n))}" for n in names)
            fitted = (f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True))
            lines.append(f"{party:<{width}}  " + "  ".join(fitted))
        return visible("\n".join([*lines, *self._left_out(), *self._noted()]))

    def _noted(self) -> Iterator[str]:
        """A line for every party that went on without something, with what it said first."""
        whole = [d for row in self.deliveries for d in row if d.status == "ok" and d.detail]
        for party in sorted({delivery.party for delivery in whole}):
            mine = [delivery.detail for delivery in whole if delivery.party == party]
            yield f"{party} noted {len(mine)} times, first: {mine[0]}"

    def _left_out(self) -> Iterator[str]:
        """A line for every party that was left out of an exchange, with its first reason."""
        for party in sorted({delivery.party for delivery in self.failures}):
            mine = [delivery for delivery in self.failures if delivery.party == party]
            yield f"{party} was left out {len(mine)} times, first: {mine[0].status}, {mine[0].detail}"


def measured_rounds(times: int | None, rounds: int) -> frozenset[int]:
    """The rounds after which to measure, so many times: the last, before all learning, then evenly between.

    Args:
        times: how often; ``None`` for after every round.
        rounds: how many rounds there are beside round 0.

    >>> [sorted(measured_rounds(times, 10)) for times in (0, 1, 2, 3)]
    [[], [10], [0, 10], [0, 5, 10]]
    """
    if times is None or times > rounds:
        return frozenset(range(rounds + 1))
    if times < 2:
        return frozenset([rounds][:times])
    return frozenset(rounds - round(i * rounds / (times - 1)) for i in range(times))


def agree(
    descriptions: Iterable[Description], public: Public, *, seed: int = 0, strict: bool = True
) -> Agreement:
    """Align what the parties said of themselves: one kind of task, one class order.

    Raises:
        InvalidInput: classifiers and regressors together, other numbers of targets, a party with too few
            classes, or (strict) a class that one party alone knows.
    """
    descriptions = list(descriptions)
    for error in at_odds(descriptions, public, strict=strict).values():
        raise error
    kind = descriptions[0].kind
    classes = class_order({name for description in descriptions for name in description.classes})
    return Agreement(
        kind=kind,
        classes=classes if kind == "classification" else (),
        outputs=len(classes) if kind == "classification" else descriptions[0].outputs,
        public=public.key,
        rows=len(public),
        seed=seed,
    )


def lacking_public(descriptions: Iterable[Description], public: Public) -> list[str]:
    """The parties that want the public rows from the coordinator and do not hold them yet."""
    return [
        description.party
        for description in descriptions
        if len(public) and description.takes_public and public.key not in description.public
    ]


def too_large_for(descriptions: Iterable[Description], public: Public) -> dict[str, InvalidInput]:
    """The parties that want the public rows from the coordinator and do not take so many bytes, and why."""
    limits = {one.party: one.takes_public for one in descriptions}
    limits = {name: limits[name] for name in lacking_public(descriptions, public)}
    size = TakePublic.of(public).unpacked if limits else 0
    return {
        name: InvalidInput(
            f"limits.public_bytes: the public rows take {size:,} bytes, and it takes {limit:,}",
            where=f"party {name!r}",
            mend="The party's engineer may raise public_bytes, or name a file of them.",
        )
        for name, limit in limits.items()
        if limit < size
    }


def at_odds(
    descriptions: Sequence[Description], public: Public, *, strict: bool = True
) -> dict[str, InvalidInput]:
    """The parties that do not go with the others, and why; all of them where no side has more."""
    rows = {description.row for description in descriptions}
    if len(rows) > 1 and not len(public):  # public rows are held against everybody's own
        odd = _fewer(descriptions, lambda description: description.row)
        unlike = {one.party: next(d for d in descriptions if d.row != one.row) for one in odd}
        return {
            one.party: InvalidInput(
                f"an input of {one.party!r} is {one.row}, one of {unlike[one.party].party!r} "
                f"{unlike[one.party].row}",
                where="federation",
                mend="Parties that use one another's models need the same columns in the same order.",
            )
            for one in odd
        }
    if len({description.kind for description in descriptions}) > 1:
        regressors = [d.party for d in descriptions if d.kind == "regression"]
        error = InvalidInput(
            f"some parties classify, others regress ({', '.join(regressors)})",
            where="federation",
            mend="Give every party a model of the same kind.",
        )
        return dict.fromkeys(
            (d.party for d in _fewer(descriptions, lambda description: description.kind)), error
        )
    outputs = {description.outputs for description in descriptions}
    if len(outputs) > 1:
        error = InvalidInput(
            f"parties have different numbers of targets: {sorted(outputs)}", where="federation"
        )
        return dict.fromkeys(
            (d.party for d in _fewer(descriptions, lambda description: description.outputs)), error
        )
    found = too_large_for(descriptions, public)
    holders: dict[str, list[str]] = defaultdict(list)
    for description in descriptions:
        if description.kind == "regression":
            continue
        if len(description.classes) < (2 if strict else description.fewest_classes):
            found[description.party] = InvalidInput(
                f"its private data hold one class only, {description.classes[0]!r}",
                where=f"party {description.party!r}",
                mend="Give it rows of another class."
                if description.fewest_classes > 1
                else "Give it rows of another class, or pass strict=False if it is meant.",
            )
        for name in description.classes:
            holders[name].append(description.party)
    alone: dict[str, str] = {}  # party to the first class that it has alone
    for name in sorted(name for name, parties in holders.items() if len(parties) == 1):
        alone.setdefault(holders[name][0], name)
    if found or not strict or len(descriptions) == 1:
        return found
    others = [name for name, parties in holders.items() if len(parties) > 1]
    for party, name in alone.items():
        found[party] = InvalidInput(
            f"no other party has class {name!r}",
            where=f"party {party!r}",
            mend=f"{nearest(name, others) if others else ''} If it is another name for a known "
            "class, say so with Party(aliases={own: name}); if it is meant, pass strict=False.".strip(),
        )
    return found


def _fewer(
    descriptions: Sequence[Description], what: Callable[[Description], Any]
) -> list[Description]:
    """Those who say something else of themselves than most."""
    counted = Counter(map(what, descriptions)).most_common()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    return [one for one in descriptions if tied or what(one) != counted[0][0]]


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"


def tracked(
    rounds: Iterator[Round], total: int, label: str, *, show: bool = True
) -> Iterator[Round]:
    """The rounds, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not (show and console.is_terminal)
    ) as bar:
        task = bar.add_task(label, total=total)
        for round in rounds:
            bar.update(task, completed=round.number)
            yield round

"""A run's ledger, read into plain values: what tables, plots and the page are made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import nearest
from consilience.core.metrics.metrics import find_metric, main_metric
from consilience.core.party.personalizer import Purpose
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.config.methods import BASELINES
from consilience.lab.data import Holdings
from consilience.lab.experiments import Spec
from consilience.lab.report.attendance import Attendance
from consilience.lab.runs.folder import RunSpec


@dataclass(frozen=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: the mean.
        sd: the standard deviation over seeds, with n - 1 in the denominator; ``None`` for one seed.
        seeds: how many seeds.
    """

    mean: float
    sd: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{number(self.mean)} ± {'–' if self.sd is None else number(self.sd)}"


def number(value: float) -> str:
    """A figure as tables show it: three decimals, more for the very small, fewer for the large.

    >>> number(0.5), number(0.00012), number(1234.5), number(-2), number(1e-17), number(float("nan"))
    ('0.500', '0.00012', '1,234', '−2.000', '0.000', '–')
    """
    if not np.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:  # what is below 1e-12 is rounding
        text = f"{value:.2g}" if 1e-12 < abs(value) < 0.0005 else f"{value + 0.0:.3f}"
    return text.replace("-0.000", "0.000").replace("-", "−")


def words(metric: str) -> str:
    """Write a metric's name for display."""
    name = metric.removesuffix("_own")
    known = find_metric(name)
    text = known.label if known and known.label else name.replace("_", " ")
    return text if name == metric else f"{text}, own rows"


def spread(values: Iterable[float]) -> Spread | None:
    """Compute mean and standard deviation of one value per seed without NaN; ``None`` if all are NaN."""
    known = np.array([value for value in values if not np.isnan(value)])
    if not len(known):
        return None
    return Spread(
        float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None, len(known)
    )


def few(parties: Collection[str]) -> str:
    """Names of parties, of more than five the first ones: ``"a, b"``."""
    return ", ".join(list(parties)[:5]) + (" and others" if len(parties) > 5 else "")


def mean(values: Array, axis: int) -> Array:
    """Compute the mean along an axis without NaN; NaN if all values are NaN."""
    masked: Any = np.ma.masked_invalid(values)
    return np.asarray(np.ma.filled(masked.mean(axis=axis), np.nan), dtype=np.float64)


@prints_no_rows
@dataclass(frozen=True)
class EveryonesRows:
    """Everyone's test rows of one seed.

    Attributes:
        key: digest of the rows.
        own: weights of the rows as each party's own, shape ``(parties, n_test)``.
    """

    key: str
    own: Array


@prints_no_rows
@dataclass(frozen=True)
class Method:
    """One line of the results table, over the finished seeds.

    Attributes:
        label: label in tables.
        aggregate: name of the baseline, aggregator or protocol.
        seeds: the finished seeds.
        rounds: the rounds in which metrics were measured, ascending; 0 is alone, before any exchange.
        scores: metric to values of shape ``(seeds, rounds, parties)``, NaN if not measured.
        teacher: accuracy of the teacher on the public rows, shape ``(seeds, rounds of the protocol)``
            from round 1 on, NaN if there is none.
        errors: parts of the teacher's squared error by name, each with the shape of ``teacher``; empty if not
            recorded.
        seconds: wall time per seed.
        bytes_down: wire bytes to the parties, without evaluation, shape ``(seeds, rounds + 1, parties)``.
        bytes_up: the same from the parties.
        rows: scores of single test rows by metric, seed and round, if the run kept them, shape
            ``(parties, n_test)`` (:mod:`consilience.lab.experiments.measured_rows`), NaN without a model.
        trust: mean weight in the teacher on the public rows of each class, shape
            ``(parties, classes)``, in the first seed and last round; ``None`` if the teacher had none.
        aside: positions of parties that learn only: they have no local model and are excluded from means.
    """

    label: str
    aggregate: str
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]
    scores: Mapping[str, Array]
    teacher: Array
    errors: Mapping[str, Array]
    seconds: tuple[float, ...]
    bytes_down: Array
    bytes_up: Array
    rows: Mapping[tuple[str, int, int], Array]
    trust: Array | None
    aside: tuple[int, ...] = ()

    @property
    def exchanges(self) -> bool:
        """Whether the method is an exchange between the parties and not a baseline."""
        return self.aggregate not in BASELINES

    def over_rounds(self, metric: str) -> Array:
        """The mean over parties, shape ``(seeds, rounds)``."""
        values = self.scores[metric]
        return mean(np.delete(values, self.aside, axis=2) if self.aside else values, axis=2)

    def final(self, metric: str) -> Spread | None:
        """The last round's mean over parties, over seeds."""
        if metric not in self.scores:
            return None
        return spread(self.over_rounds(metric)[:, -1])

    def of_party(self, metric: str, party: int, *, round: int = -1) -> Spread | None:
        """Compute mean and standard deviation over seeds of one party's value in one measured round.

        Args:
            metric: name of the metric.
            party: position of the party.
            round: position of the round among the measured ones.

        Returns:
            The spread; ``None`` if the metric was not measured.
        """
        if metric not in self.scores:
            return None
        return spread(self.scores[metric][:, round, party])


@dataclass(frozen=True)
class UnfinishedRun:
    """An unfinished method with one seed.

    Attributes:
        method: label of the method.
        seed: the seed.
        round: the last recorded round, or ``None``.
    """

    method: str
    seed: int
    round: int | None


@dataclass(frozen=True)
class Event:
    """Exclusion of a party from one exchange.

    Attributes:
        method: label of the method.
        seed: the seed.
        round: the round.
        party: name of the party.
        tasks: names of the tasks, with plus signs between.
        kind: kind of the failure: refused, late and so on.
        reason: in words.
    """

    method: str
    seed: int
    round: int
    party: str
    tasks: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Exclusion:
    """A party excluded from a teacher because of wrong answers or by the operator's list.

    Attributes:
        party: name of the party.
        methods: labels of the methods under which it was excluded.
        seeds: seeds with which it was excluded.
        reason: the first note that names it, with the evidence.
        final: whether it was still excluded in the last round, under a method and with a seed.
    """

    party: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    reason: str
    final: bool = False

    def __str__(self) -> str:
        seeds = f"seed {', '.join(map(str, self.seeds))}"
        later = "" if self.final else "; it counted again in the last round"
        return f"{self.reason} ({', '.join(self.methods)}; {seeds}{later})."


@dataclass(frozen=True)
class Note:
    """Something that parties remarked.

    Attributes:
        text: the remark.
        times: how often it was made.
        parties: names of the parties that made it.
        methods: labels of the methods under which they did.
    """

    text: str
    times: int
    parties: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class SentItem:
    """A kind of message that a party sent under a method with the first seed.

    Attributes:
        method: label of the method.
        party: name of the party.
        what: kinds and shapes of the replies.
        tasks: names of the answered tasks, with plus signs between.
        times: number of messages.
        bytes: total size of the messages.
    """

    method: str
    party: str
    what: str
    tasks: str
    times: int
    bytes: int


@prints_no_rows
@dataclass(frozen=True)
class Results:
    """A run as recorded in its ledger.

    Attributes:
        folder: the run folder.
        spec: its configuration.
        meta: versions, machine, dataset notes, times.
        methods: those with at least one finished seed, in the order of the configuration.
        missing: unfinished methods and seeds.
        parties: their names.
        models: party to the name of its model.
        splits: seed to numbers of private rows by party and class; empty if the parties keep these secret.
        tests: seed to everyone's test rows, if a run kept scores of them.
        failures: parties excluded from exchanges.
        exclusions: parties excluded from a teacher.
        notes: remarks of parties.
        left: messages sent by parties, with the first seed.
        attendance: participating and excluded parties, round by round, with the first seed.
    """

    folder: Path
    spec: RunSpec
    meta: Mapping[str, Any]
    methods: tuple[Method, ...]
    missing: tuple[UnfinishedRun, ...]
    parties: tuple[str, ...]
    models: Mapping[str, str]
    splits: Mapping[int, Holdings]
    tests: Mapping[int, EveryonesRows]
    failures: tuple[Event, ...]
    exclusions: tuple[Exclusion, ...]
    notes: tuple[Note, ...]
    left: tuple[SentItem, ...]
    attendance: tuple[Attendance, ...]
    computed: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What is computed of them once, by name."""

    @property
    def deployed(self) -> bool:
        """Whether the run is deployed, with parties on separate machines."""
        return not isinstance(self.spec, Spec)

    @property
    def subject(self) -> str:
        """The data that the run is about, in a few words."""
        return self.spec.data.name if isinstance(self.spec, Spec) else "deployed"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measured metrics, the main one first."""
        found = dict.fromkeys(name for method in self.methods for name in method.scores)
        main = [name for name in (self.spec.metric, main_metric(found)) if name in found][:1]
        main += [own for name in main if (own := f"{name}_own") in found]
        return (*main, *(name for name in found if name not in main))

    @property
    def metric(self) -> str | None:
        """The metric that tables show first: the configuration's, else accuracy or mean squared error."""
        return self.metrics[0] if self.metrics else None

    @cached_property
    def apart(self) -> bool:
        """Tell whether own rows are not all test rows, somewhere."""
        return any(
            not np.array_equal(values, method.scores.get(f"{name}_own", values), equal_nan=True)
            for method in self.methods
            for name, values in method.scores.items()
        )

    @property
    def purpose(self) -> Purpose:
        """The rows that the run is for; for a deployed run, each party's local rows."""
        return self.spec.purpose if isinstance(self.spec, Spec) else "own"

    @property
    def everyones(self) -> str:
        """Name of all test rows: a simulated party has everyone's, a deployed one its own."""
        return "all test rows" if self.deployed else "everyone's rows"

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics that a table shows: the main one, Harrell's C and log loss, on own rows and on all.

        Beside an accuracy the balanced one, if a class has less than a fifth of an equal share of the rows.
        """
        wanted = [self.metric, "harrell_c", "log_loss"]
        if self.metric == "accuracy" and self.holdings is not None and not self.regression:
            rows = self.holdings.counts.sum(axis=0)
            wanted[1:1] = ["balanced_accuracy"] * bool(5 * len(rows) * rows.min() < rows.sum())
        chosen = dict.fromkeys(name for name in wanted if name in self.metrics)
        sides = ("_own", "") if self.apart else ("",)
        return tuple(
            name + side for name in chosen if name for side in sides if name + side in self.metrics
        )

    def titled(self, metric: str) -> str:
        """A metric's name as a column has it, with the rows it is of where own rows are apart."""
        name = words(metric.removesuffix("_own"))
        if not self.apart:
            return name
        return f"{name}, {'own rows' if metric.endswith('_own') else self.everyones}"

    @property
    def regression(self) -> bool:
        """Tell whether parties predict values rather than classes."""
        return "mse" in self.metrics or "pinball" in self.metrics

    @property
    def warnings(self) -> tuple[str, ...]:
        """Facts that limit the interpretation of the figures."""
        said = list(self.meta.get("warnings", ()))
        if self.missing:
            unfinished = ", ".join(
                f"{one.method} with seed {one.seed}"
                + ("" if one.round is None else f" (at round {one.round})")
                for one in self.missing
            )
            said.append(f"The run is unfinished. Not in the figures: {unfinished}.")
        asked = self.spec.metric
        if self.metrics and asked and asked not in self.metrics:
            said.append(
                f"The metric {asked!r} was not measured; {self.metric} is shown. "
                + nearest(asked, self.metrics)
            )
        if self.methods and not self.metrics:
            why = "have no test rows"
            if self.deployed:
                why += ", or their limits do not let them be measured"
            said.append(f"No metrics were measured: the parties {why}.")
        if learners := [name for name in self.meta.get("learners", ()) if name in self.parties]:
            said.append(f"In no mean, since they learn only: {', '.join(learners)}.")
        for party, (reason, _) in self.meta.get("excluded", {}).items():
            said.append(f"{party} is not a member: {reason}.")
        said += map(str, self.exclusions)
        for method in self.methods:
            for values in list(method.scores.values())[:1]:
                absent = int(np.isnan(values[:, -1]).sum())
                if absent:
                    said.append(
                        f"{method.label}: {absent} of {values[:, -1].size} parties and seeds were "
                        "not measured in the last round and are missing from the means."
                    )
        return tuple(said)

    def missed(self, label: str | None = None) -> str:
        """Name the parties without a part in a method's result, in a few words; empty if there are none.

        These are the excluded parties, non-members, and those that did not answer in the last round of the
        first seed.

        Args:
            label: label of the method; any method if ``None``.

        Returns:
            The names, or an empty string.
        """
        excluded = {*self.meta.get("excluded", ())}
        excluded |= {
            one.party for one in self.exclusions if one.final and label in (None, *one.methods)
        }
        ends = {one.method: one for one in self.attendance if label in (None, one.method)}
        silent = {party for one in ends.values() for party in one.left_out}
        said = {"excluded": excluded, "left out at the end": silent - excluded}
        return "; ".join(f"{how}: {few(sorted(who))}" for how, who in said.items() if who)

    def method(self, label: str) -> Method | None:
        """The method of that label, if a seed of it is done."""
        return next((method for method in self.methods if method.label == label), None)

    def baseline(self, aggregate: str) -> Method | None:
        """The baseline of that name, if it is done."""
        return next((method for method in self.methods if method.aggregate == aggregate), None)

    @property
    def holdings(self) -> Holdings | None:
        """Numbers of private rows by party and class with the first seed; ``None`` if unknown."""
        return next(iter(self.splits.values()), None)

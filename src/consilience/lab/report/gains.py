"""Gains of every party over training alone, on local and global test sets, with intervals.

If a simulated run kept the scores of single test rows, an interval is a paired bootstrap: test rows are
resampled with replacement, in the same way for all parties and for the models before and after exchange. With
several seeds, the variance of their mean is added to that of the rows, and the interval is Student's t
(Satterthwaite 1946), because seeds are too few to resample. A draw depends only on the test rows, so the same
run always has the same intervals. A deployed federation yields only metrics; its intervals are Student's t
over seeds, or over parties if there is a single seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from consilience.core.metrics.metrics import sign_of
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.report.results import (
    Method,
    Results,
    Spread,
    mean,
    spread,
)

DRAWS = 1000
"""Draws of the bootstrap."""

_NUMBERS = 1 << 22
"""Numbers of a draw's counts that are worked on at a time."""


@dataclass(frozen=True)
class Gain:
    """One metric of all parties after exchange against alone, positive if better.

    Attributes:
        metric: its name; the suffix ``_own`` marks local test sets.
        alone: the parties' mean alone, over seeds.
        after: the same after the last round.
        mean: the mean gain, over parties and then over seeds.
        interval: 95 % interval of the mean gain; ``None`` if it cannot be estimated.
        over: unit of the interval: ``"rows"``, ``"seeds"`` or ``"parties"``.
        by_party: party to its gain, the mean over seeds.
        errors: party to its standard error; a party is worse off if it loses more than that. Over test rows,
            this is the larger of the standard errors of the gain and of the metric alone; over seeds, that
            of the gain; 0 if unknown.
    """

    metric: str
    alone: Spread
    after: Spread
    mean: float
    interval: tuple[float, float] | None
    over: str
    by_party: Mapping[str, float]
    errors: Mapping[str, float]

    @property
    def worse(self) -> tuple[str, ...]:
        """Names of the parties worse off: their loss exceeds their standard error."""
        return tuple(p for p, gain in self.by_party.items() if gain < -max(self.errors[p], 1e-12))

    @property
    def sign(self) -> int:
        """1 where the interval lies above 0, -1 where it lies below, else 0."""
        low, high = self.interval or (0.0, 0.0)
        return int(low > 0) - int(high < 0)


@prints_no_rows
@dataclass(frozen=True)
class _Pair:
    """A method's metric against the baseline's, with the seeds that both have."""

    metric: str
    seeds: tuple[int, ...]
    before: Array
    after: Array
    rows: Mapping[int, tuple[Array, Array]]

    @property
    def name(self) -> str:
        return self.metric.removesuffix("_own")


def gains_of(results: Results) -> Mapping[str, Mapping[str, Gain]]:
    """Give the gains over training alone, computed once for all results of a run.

    Returns:
        Label to metric, of own rows with the suffix ``_own``, to gain.
    """
    if "gains" not in results.computed:
        methods = [one for one in results.methods if one.aggregate != "local"]
        results.computed["gains"] = gains(results, methods)
    found: Mapping[str, Mapping[str, Gain]] = results.computed["gains"]
    return found


def gains(results: Results, methods: Sequence[Method]) -> dict[str, dict[str, Gain]]:
    """Compare methods with every party alone, in each metric measured for both.

    The values alone come from the method ``local``, or from the same method's round 0 if ``local`` was not
    run.

    Args:
        results: results of a run.
        methods: some of its methods.

    Returns:
        Label of the method to metric to gain.
    """
    wanted = [name for name in dict.fromkeys((results.metric, "log_loss")) if name]
    names = [name + suffix for name in wanted for suffix in ("_own", "")]
    pairs = [
        (method.label, pair)
        for method in methods
        for name in names
        if (pair := pair_of(results, method, name)) is not None
    ]
    draws = _draws(results, [pair for _, pair in pairs])
    found: dict[str, dict[str, Gain]] = {method.label: {} for method in methods}
    for (label, pair), drawn in zip(pairs, draws, strict=True):
        found[label][pair.metric] = _gain(results.parties, pair, drawn)
    return found


@dataclass(frozen=True)
class WorseOff:
    """Parties worse off under a method than alone, on local test rows, in the main metric or in log loss.

    Tables, the verdict and the page all use this count.

    Attributes:
        parties: names of the parties worse off, in the order of the run.
        count: number of parties measured both alone and after.
    """

    parties: tuple[str, ...]
    count: int

    def __str__(self) -> str:
        return f"{len(self.parties)} of {self.count}" if self.count else "–"

    @property
    def most(self) -> bool:
        """Tell whether more than half of the parties are worse off."""
        return 2 * len(self.parties) > self.count


def worse_off(results: Results, label: str) -> WorseOff:
    """Find the parties worse off under a method than alone.

    Args:
        results: results of a run.
        label: label of the method.

    Returns:
        Names of the parties and number of measured parties; empty and 0 for a method without gains.
    """
    side = "_own" if results.apart else ""
    found = [gain for name, gain in gains_of(results).get(label, {}).items() if name.endswith(side)]
    worse = {party for gain in found for party in gain.worse}
    known = {party for gain in found for party in gain.by_party}
    return WorseOff(tuple(party for party in results.parties if party in worse), len(known))


def pair_of(
    results: Results, method: Method, metric: str, *, rows: str | None = None
) -> _Pair | None:
    """Pair a method's metric with the baseline's; ``None`` where it was not measured alone or after.

    Args:
        results: of a run.
        method: the method.
        metric: name of the metric, of own rows with the suffix ``_own``.
        rows: name of the scores of single rows; by default those of the metric.
    """
    local = results.baseline("local")
    base, at = (local, -1) if local is not None and metric in local.scores else (method, 0)
    if metric not in method.scores:
        return None
    if not set(method.seeds) & set(base.seeds):
        base, at = method, 0
    if at == 0 and method.rounds[0] > 0:  # a party measured once is measured after the last round
        return None
    seeds = tuple(seed for seed in method.seeds if seed in base.seeds)
    mine, theirs = ([one.seeds.index(seed) for seed in seeds] for one in (method, base))
    name, round = rows or metric.removesuffix("_own"), base.rounds[at]
    scores = {
        seed: (base.rows[name, seed, round], method.rows[name, seed, method.rounds[-1]])
        for seed in seeds
        if (name, seed, round) in base.rows and (name, seed, method.rounds[-1]) in method.rows
    }
    return _Pair(
        metric,
        seeds,
        base.scores[metric][theirs, at],
        method.scores[metric][mine, -1],
        scores
        if len(scores) == len(seeds) and all(seed in results.tests for seed in seeds)
        else {},
    )


def _gain(parties: Sequence[str], pair: _Pair, draws: Array | None) -> Gain:
    """The gain of a pair, given gains and figures alone in draws, ``(2, draws, parties)``."""
    sign = sign_of(pair.name)
    both = ~(np.isnan(pair.before) | np.isnan(pair.after))
    each = np.where(both, sign * (pair.after - pair.before), np.nan)
    by_seed, by_party = mean(each, 1), mean(each, 0)
    over, interval = "", None
    errors = np.zeros(len(parties))
    overall = spread(by_seed)
    if draws is not None:
        over, together = "rows", mean(draws[0], 1)
        if overall is None or overall.sd is None:
            low, high = np.nanpercentile(together, [2.5, 97.5])
            interval = float(low), float(high)
        else:
            interval = t_interval(overall, float(np.nanvar(together)))
        of_rows = np.ma.filled(np.ma.masked_invalid(draws).var(axis=1), 0.0).max(axis=0)
        errors = np.sqrt(of_rows + _variance_of_mean(each))
    elif overall is not None and overall.sd is not None:
        over, interval = "seeds", t_interval(overall)
        errors = np.sqrt(_variance_of_mean(each))
    elif (known := spread(by_party)) is not None and known.seeds > 2:
        over, interval = "parties", t_interval(known)
    shown = [i for i in range(len(parties)) if both[:, i].any()]
    return Gain(
        metric=pair.metric,
        alone=_over_seeds(np.where(both, pair.before, np.nan)),
        after=_over_seeds(np.where(both, pair.after, np.nan)),
        mean=np.nan if overall is None else overall.mean,
        interval=interval,
        over=over,
        by_party={parties[i]: float(by_party[i]) for i in shown},
        errors={parties[i]: float(errors[i]) for i in shown},
    )


def _variance_of_mean(values: Array) -> Array:
    """Variance of the mean over seeds, shape ``(parties,)``, of ``(seeds, parties)``; 0 for one seed."""
    known = np.ma.masked_invalid(values)
    variances = np.ma.filled(known.var(axis=0, ddof=1), 0.0) if len(values) > 1 else 0.0
    return np.asarray(np.nan_to_num(variances / np.maximum(known.count(axis=0), 1)))


def t_interval(found: Spread, known: float = 0.0) -> tuple[float, float]:
    """Student's 95 % interval of a mean, to whose variance a known one adds."""
    assert found.sd is not None
    seen = found.sd**2 / found.seeds
    if not seen + known:
        return found.mean, found.mean
    freedom = (found.seeds - 1) * ((seen + known) / seen) ** 2 if seen else np.inf
    half = float(stdtrit(min(freedom, 1e9), 0.975)) * (seen + known) ** 0.5
    return found.mean - half, found.mean + half


def _over_seeds(values: Array) -> Spread:
    return spread(mean(values, 1)) or Spread(np.nan, None, 0)


def _draws(results: Results, pairs: Sequence[_Pair]) -> list[Array | None]:
    """Gains, and figures alone, of every pair in draws, ``(2, draws, parties)``; ``None`` without scores."""
    found: list[Array | None] = [
        np.zeros((2, DRAWS, len(pair.seeds), len(results.parties))) if pair.rows else None
        for pair in pairs
    ]
    for seed in sorted({seed for pair in pairs for seed in pair.rows}):
        tests = results.tests[seed]
        mine = [
            (pair, values[:, :, pair.seeds.index(seed)])
            for pair, values in zip(pairs, found, strict=True)
            if values is not None and seed in pair.rows
        ]
        for part, counts in row_counts(tests.key, tests.own.shape[1]):
            averages: dict[tuple[int, bool], Array] = {}  # alone is the same for all methods
            for pair, values in mine:
                own = pair.metric.endswith("_own")
                weights = tests.own if own else np.ones_like(tests.own)
                for scores in pair.rows[seed]:
                    if (id(scores), own) not in averages:
                        averages[id(scores), own] = _averages(counts, weights, scores, pair.name)
                before, after = (averages[id(scores), own] for scores in pair.rows[seed])
                gained = (after - before) * sign_of(pair.name)
                values[:, part] = gained, before
    return [None if values is None else mean(values, 2) for values in found]


def row_counts(key: str, rows: int) -> Iterator[tuple[slice, Array]]:
    """Counts of each test row in a draw: parts of the draws, shape ``(draws of the part, n)``."""
    rng, step = stream(0, "coordinator", 0, f"draws of {key}"), max(1, _NUMBERS // rows)
    for start in range(0, DRAWS, step):
        size = min(step, DRAWS - start)
        drawn = rng.multinomial(rows, np.full(rows, 1 / rows), size=size)
        yield slice(start, start + size), drawn.astype(np.float32)


def _averages(counts: Array, weights: Array, scores: Array, metric: str) -> Array:
    """A metric of every party in every draw, shape ``(draws, parties)``.

    Args:
        counts: of the rows in the draws, shape ``(draws, n)``.
        weights: of the rows for each party, shape ``(parties, n)``.
        scores: shape ``(parties, n)``; NaN for a party without a model.
        metric: name of the metric.
    """
    with np.errstate(invalid="ignore", divide="ignore"):  # of a draw without own rows there is none
        if metric != "auc":
            weights = weights.astype(np.float32)
            return np.asarray(counts @ (weights * scores).T / (counts @ weights.T))
        found = np.empty((len(counts), len(scores)))
        for party, (weight, signed) in enumerate(zip(weights, scores, strict=True)):
            order = np.argsort(np.abs(signed), kind="stable")
            starts = np.flatnonzero(np.diff(np.abs(signed[order]), prepend=-1.0))
            drawn = (counts * weight)[:, order]
            hits, misses = (
                np.add.reduceat(drawn * side[order], starts, axis=1)
                for side in (signed > 0, signed < 0)
            )
            below = misses.cumsum(axis=1) - misses / 2
            found[:, party] = (hits * below).sum(axis=1) / (hits.sum(axis=1) * misses.sum(axis=1))
        return found

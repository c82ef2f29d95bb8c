"""The verdict on a run: the gain of exchange over training alone, or that there was none, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from consilience.report.results import (
    SMALLER_IS_BETTER,
    Method,
    Results,
    Spread,
    number,
    spread,
    words,
)


@dataclass(frozen=True)
class Verdict:
    """The best exchange method against every party alone.

    Attributes:
        metric: what is compared, as its mean over parties.
        method: the method whose mean is best; chosen by the same test rows.
        candidates: how many exchange methods it was chosen from.
        alone: the baseline ``local``, or round 0 where it was not run.
        after: the method's last round.
        gain: ``after`` against ``alone`` seed by seed, positive when better.
        interval: 95 % interval of the mean gain over seeds (Student's t); ``None`` for one seed.
        central: with all private rows pooled, if that was run.
        worse: parties whose mean over seeds is worse than alone.
        parties: how many parties were measured in both.
    """

    metric: str
    method: str
    candidates: int
    alone: Spread
    after: Spread
    gain: Spread
    interval: tuple[float, float] | None
    central: Spread | None
    worse: tuple[str, ...]
    parties: int

    @property
    def opening(self) -> str:
        """The finding in a few words."""
        if self.interval is None:
            if self.gain.mean > 0:
                return "Better with exchange, in one seed"
            return "No better with exchange, in one seed"
        if self.interval[0] > 0:
            return "Exchange helped"
        return "Exchange did harm" if self.interval[1] < 0 else "No clear gain from exchange"

    @property
    def sentence(self) -> str:
        """The finding with its figures."""
        over = f"over {self.after.seeds} seeds" if self.after.seeds > 1 else "in one seed"
        text = (
            f"{self.opening}: with {self.method}, the parties' mean {words(self.metric)} is "
            f"{_shown(self.after)}, alone it is {_shown(self.alone)}"
        )
        if self.interval is None:
            text += "; a single seed does not say how much of that is chance"
        else:
            low, high = (number(end) for end in self.interval)
            better = "a gain" if self.gain.mean > 0 else "a change for the worse"
            text += (
                f" (± sd {over}), {better} of {number(abs(self.gain.mean))} "
                f"(95 % interval of the gain {low} to {high})"
            )
        if self.central is not None:
            text += f"; trained on all rows pooled it is {_shown(self.central)}"
        return text + "."

    @property
    def per_party(self) -> str:
        """The number of parties that ended better than alone, and names of those that did not."""
        good = self.parties - len(self.worse)
        text = f"{good} of {self.parties} parties ended better than alone"
        if self.worse:
            named = ", ".join(self.worse[:5]) + (" and others" if len(self.worse) > 5 else "")
            text += f"; no better off: {named}"
        return text + "."


def verdict(results: Results) -> Verdict | None:
    """Judge a run; ``None`` when no exchange method was measured."""
    metric = results.metric
    tried = [m for m in results.methods if m.exchanges and m.final(metric or "") is not None]
    if metric is None or not tried:
        return None
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    best = max(tried, key=lambda method: sign * _mean(method, metric))
    local = results.baseline("local")
    base, at = (local, -1) if local is not None and metric in local.scores else (best, 0)
    shared = [seed for seed in best.seeds if seed in base.seeds]
    if not shared:
        base, at, shared = best, 0, list(best.seeds)
    if (
        at == 0 and best.rounds[0] > 0
    ):  # a party that is measured once is measured after the last round
        return None
    before = base.scores[metric][[base.seeds.index(seed) for seed in shared], at]
    after = best.scores[metric][[best.seeds.index(seed) for seed in shared], -1]
    both = ~(np.isnan(before) | np.isnan(after))
    gains = np.where(both, sign * (after - before), np.nan)
    by_seed = [
        float(row[known].mean()) for row, known in zip(gains, both, strict=True) if known.any()
    ]
    by_party = {
        name: float(column[known].mean())
        for name, column, known in zip(results.parties, gains.T, both.T, strict=True)
        if known.any()
    }
    gain = spread(by_seed)
    if gain is None:
        return None
    interval = None
    if gain.sd is not None:
        half = float(stdtrit(gain.seeds - 1, 0.975)) * gain.sd / gain.seeds**0.5
        interval = (gain.mean - half, gain.mean + half)
    central = results.baseline("central")
    return Verdict(
        metric=metric,
        method=best.label,
        candidates=len(tried),
        alone=_over_seeds(np.where(both, before, np.nan)),
        after=_over_seeds(np.where(both, after, np.nan)),
        gain=gain,
        interval=interval,
        central=central.final(metric) if central else None,
        worse=tuple(name for name, gained in by_party.items() if gained <= 0),
        parties=len(by_party),
    )


def _mean(method: Method, metric: str) -> float:
    final = method.final(metric)
    return final.mean if final else np.nan


def _over_seeds(values: np.ndarray) -> Spread:
    found = spread(float(row[~np.isnan(row)].mean()) for row in values if not np.isnan(row).all())
    assert found is not None
    return found


def _shown(value: Spread) -> str:
    return number(value.mean) if value.sd is None else str(value)

"""The verdict on a run: gains and harm of exchange on own rows and on everyone's, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.report.gains import Gain
from consilience.report.results import Results, Spread, number, words


@dataclass(frozen=True)
class Verdict:
    """The best exchange method against every party alone.

    Attributes:
        metric: what is compared, as its mean over parties.
        method: the method whose mean gain on own rows and on everyone's is best, by the same test rows.
        candidates: how many exchange methods it was chosen from.
        everyone: gain on everyone's test rows.
        own: gain on the parties' own rows; ``None`` where these are all rows.
        losses: gains in log loss, on own rows where they are apart and on all; empty where it is the metric
            or was not measured.
        central: with all private rows pooled, if that was run.
        subject: whose rows all test rows are, in words.
    """

    metric: str
    method: str
    candidates: int
    everyone: Gain
    own: Gain | None
    losses: tuple[Gain, ...]
    central: Spread | None
    subject: str

    @property
    def first(self) -> Gain:
        """The gain on the parties' own rows, where they are apart, else on all rows."""
        return self.own or self.everyone

    @property
    def harm(self) -> bool:
        """Tell whether own rows came out worse, in the mean or at most parties, or everyone's or log loss."""
        return _sign(self.first) < 0 or self.everyone.sign < 0 or self._loss < 0

    @property
    def _loss(self) -> int:
        return _sign(self.losses[0]) if self.losses else 0

    @property
    def opening(self) -> str:
        """The finding in a few words."""
        own, everyone = _sign(self.first), self.everyone.sign
        if self.first.interval is None and own == 0:
            better = "Better" if self.first.mean > 0 else "No better"
            return f"{better} with exchange, in one seed"
        if self.own is None:
            found = {
                1: "Exchange helped",
                0: "No clear gain from exchange",
                -1: "Exchange did harm",
            }
            text = found[own]
        elif own < 0:
            also = {1: f", and helped on {self.subject}", 0: "", -1: f" and on {self.subject}"}
            text = f"Exchange did harm on own rows{also[everyone]}"
        elif own > 0:
            also = {1: f" and on {self.subject}", 0: "", -1: f", and did harm on {self.subject}"}
            text = f"Exchange helped on own rows{also[everyone]}"
        else:
            found = {
                1: f"Exchange helped on {self.subject}; own rows are as before",
                0: "No clear gain from exchange",
                -1: f"Exchange did harm on {self.subject}",
            }
            text = found[everyone]
        if self._loss < 0 <= own:
            what = f"{words(self.metric)} is {'better' if own else 'the same'}"
            text += f"; harm to probabilities: on own rows {what}, log loss is worse"
        return text

    @property
    def sentence(self) -> str:
        """The finding with its figures."""
        text = f"{self.opening}: with {self.method}, the parties' mean {words(self.metric)} "
        if self.own is None:
            text += f"is {_figures(self.everyone)}"
        else:
            text += (
                f"on own rows is {_figures(self.own)}; on {self.subject} {_figures(self.everyone)}"
            )
        if self.central is not None:
            text += f"; trained on all rows pooled it is {_shown(self.central)}"
        for i, loss in enumerate(self.losses):
            where = "" if len(self.losses) == 1 else f" on {('own rows', self.subject)[i]}"
            text += (
                f". Log loss{where} is {_figures(loss)}" if not i else f";{where} {_figures(loss)}"
            )
        if self.first.interval is None:
            text += "; a single seed does not say how much of that is chance"
        return text + "."

    @property
    def about(self) -> str:
        """The meaning of the intervals."""
        over = {
            "rows": "test rows drawn anew, the same for all parties, alone and after"
            + (", and seeds" if self.everyone.after.seeds > 1 else "")
            + " (paired bootstrap)",
            "seeds": "seeds (Student's t)",
            "parties": "parties (Student's t), as one seed and metrics alone are known",
        }
        if self.first.interval is None:
            return ""
        return f"Intervals are 95 %, of the gain, over {over[self.first.over]}."

    @property
    def per_party(self) -> str:
        """The parties that are worse off than alone by more than their standard error, by name."""
        where = "" if self.own is None else " on own rows"
        count = len(self.first.by_party)
        parts = [f"{words(self.metric)}: {_named(self.first.worse, count)}"]
        if self.losses:
            parts.append(f"log loss: {_named(self.losses[0].worse, count)}")
        known = any(self.first.errors.values())
        return (
            f"Worse off{where} than alone{', by more than the standard error' if known else ''}: "
            f"{'; '.join(parts)}."
        )


def verdict(results: Results) -> Verdict | None:
    """Judge a run; ``None`` when no exchange method was measured."""
    metric, found = results.metric, results.gains
    if metric is None:
        return None
    tried = {m.label: found[m.label] for m in results.methods if m.exchanges}
    tried = {label: by_metric for label, by_metric in tried.items() if metric in by_metric}
    if not tried:
        return None
    own = f"{metric}_own" if results.apart else metric

    def worth(label: str) -> float:
        gained = tried[label]
        return gained[metric].mean + gained.get(own, gained[metric]).mean

    best = max(tried, key=worth)
    losses = ("log_loss_own", "log_loss") if results.apart else ("log_loss",)
    central = results.baseline("central")
    return Verdict(
        metric=metric,
        method=best,
        candidates=len(tried),
        everyone=tried[best][metric],
        own=tried[best].get(own) if results.apart else None,
        losses=()
        if metric == "log_loss"
        else tuple(tried[best][name] for name in losses if name in tried[best]),
        central=central.final(metric) if central else None,
        subject=results.everyones,
    )


def _sign(gain: Gain) -> int:
    """1 for a gain, -1 for harm, in the mean or to most parties, 0 for neither."""
    if 2 * len(gain.worse) > len(gain.by_party):
        return -1
    return gain.sign


def _figures(gain: Gain) -> str:
    text = f"{_shown(gain.after)}, alone {_shown(gain.alone)}"
    if gain.interval is None:
        return text
    low, high = (number(end) for end in gain.interval)
    if number(abs(gain.mean)) == number(0.0):
        return f"{text} (no change, {low} to {high})"
    change = "a gain" if gain.mean > 0 else "a change for the worse"
    return f"{text} ({change} of {number(abs(gain.mean))}, {low} to {high})"


def _named(parties: tuple[str, ...], count: int) -> str:
    if not parties:
        return f"0 of {count}"
    named = ", ".join(parties[:5]) + (" and others" if len(parties) > 5 else "")
    return f"{len(parties)} of {count} ({named})"


def _shown(value: Spread) -> str:
    return number(value.mean) if value.sd is None else str(value)

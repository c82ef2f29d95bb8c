"""The verdict on a run: gains and harm of exchange on own rows and on everyone's, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consilience.core.party.personalizer import Purpose
from consilience.lab.report.gains import Gain, WorseOff, gains_of, worse_off
from consilience.lab.report.results import Results, Spread, few, number, words


@dataclass(frozen=True)
class Verdict:
    """The best exchange method against every party alone, for the rows that the run's purpose names.

    Attributes:
        metric: compared metric, as its mean over parties.
        method: the method with the best mean gain on local and global test rows, by the same test rows.
        candidates: number of exchange methods it was chosen from.
        purpose: rows that the run is for: those of ``"everyone"``, otherwise own rows first.
        everyone: gain on everyone's test rows.
        own: gain on the parties' local test rows; ``None`` if these are all rows.
        losses: gains in log loss, by metric; empty if log loss is the metric or was not measured.
        worse: parties worse off on local test rows.
        central: result of centralized training; ``None`` if it was not run.
        subject: owner of all test rows, in words.
        missed: parties without a part in the result, in words; empty if all had one.
    """

    metric: str
    method: str
    candidates: int
    purpose: Purpose
    everyone: Gain
    own: Gain | None
    losses: Mapping[str, Gain]
    worse: WorseOff
    central: Spread | None
    subject: str
    missed: str

    @property
    def for_everyone(self) -> bool:
        """Tell whether everyone's rows decide, and own rows are apart from them."""
        return self.own is not None and self.purpose == "everyone"

    @property
    def sides(self) -> tuple[tuple[str, Gain], ...]:
        """Rows in words and the gain on them; the rows that decide come first."""
        if self.own is None:
            return (("", self.everyone),)
        both = (("own rows", self.own), (self.subject, self.everyone))
        return both[::-1] if self.for_everyone else both

    @property
    def first(self) -> Gain:
        """The gain on the rows that decide."""
        return self.sides[0][1]

    @property
    def loss(self) -> Gain | None:
        """The gain in log loss on the rows that decide; ``None`` where it was not measured."""
        return self.losses.get("log_loss" + _side(self.first))

    @property
    def harm(self) -> bool:
        """Tell whether the rows that decide came out worse, or their log loss, or most parties are worse off.

        If own rows decide, a loss on everyone's rows is harm too.
        """
        lost = [gain for gain in (self.everyone, self.first, self.loss) if gain is not None]
        return any(gain.sign < 0 for gain in lost) or (not self.for_everyone and self.worse.most)

    def _sign(self, gain: Gain) -> int:
        """1 for a gain, -1 for harm (in the mean or because most parties are worse off), otherwise 0."""
        about_own = self.own is None or gain is self.own
        return -1 if about_own and self.worse.most else gain.sign

    @property
    def opening(self) -> str:
        """The finding in a few words, with the parties without a part in it."""
        return f"{self._found}; {self.missed}" if self.missed else self._found

    @property
    def _found(self) -> str:
        (rows, first), *others = self.sides
        sign = self._sign(first)
        other, second = (others[0][0], self._sign(others[0][1])) if others else ("", 0)
        if first.interval is None and sign == 0:
            better = "Better" if first.mean > 0 else "No better"
            also = f"; harm on {other}" if self.for_everyone and second < 0 else ""
            return f"{better} with exchange, in one seed{also}"
        where = f" on {rows}" if rows else ""
        if sign < 0:
            also = {1: f", and helped on {other}", 0: "", -1: f" and on {other}"}[second]
            text = f"Exchange did harm{where}{also}"
        elif sign > 0:
            also = {1: f" and on {other}", 0: "", -1: f", and did harm on {other}"}[second]
            text = f"Exchange helped{where}{also}"
        else:
            text = {
                1: f"Exchange helped on {other}; {rows} are as before",
                0: "No clear gain from exchange",
                -1: f"Exchange did harm on {other}",
            }[second]
        return text + self._although(where)

    def _although(self, where: str) -> str:
        """The harm that the mean of the metric does not show."""
        harmed = self._sign(self.first) < 0
        if harmed and self.first.mean < 0:
            return ""
        change = "is better" if self.first.sign > 0 else "shows no clear change"
        if self.loss is not None and self.loss.sign < 0:
            return (
                f"; harm to probabilities:{where} {words(self.metric)} {change}, log loss is worse"
            )
        if harmed:
            return f"; in the mean {words(self.metric)} {change}, and most parties are worse off"
        return ""

    @property
    def sentence(self) -> str:
        """The finding with its figures."""
        text = f"{self.opening}: with {self.method}, the parties' mean {words(self.metric)} "
        text += "; ".join(
            f"on {rows} {'' if i else 'is '}{_figures(gain)}" if rows else f"is {_figures(gain)}"
            for i, (rows, gain) in enumerate(self.sides)
        )
        if self.central is not None:
            text += f"; trained on all rows pooled it is {_shown(self.central)}"
        losses = [
            (rows, self.losses[name])
            for rows, gain in self.sides
            if (name := "log_loss" + _side(gain)) in self.losses
        ]
        for i, (rows, loss) in enumerate(losses):
            where = f" on {rows}" if rows else ""
            text += f";{where} {_figures(loss)}" if i else f". Log loss{where} is {_figures(loss)}"
        if self.first.interval is None:
            text += "; a single seed does not say how much of that is chance"
        if self.for_everyone:
            text += f'. The run is for {self.subject} (purpose = "everyone")'
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
        """List the parties worse off than alone by more than their standard error."""
        where = "" if self.own is None else " on own rows"
        metrics = dict.fromkeys((self.metric, *(["log_loss"] if self.losses else [])))
        known = any(error for gain in self._of_own for error in gain.errors.values())
        named = f" ({few(self.worse.parties)})" if self.worse.parties else ""
        return (
            f"Worse off{where} than alone, in {' or '.join(map(words, metrics))}"
            f"{', by more than the standard error' if known else ''}: {self.worse}{named}."
        )

    @property
    def _of_own(self) -> list[Gain]:
        """Gains on own rows, in the metric and in log loss."""
        gain = self.own or self.everyone
        return [gain, *filter(None, [self.losses.get("log_loss" + _side(gain))])]


def verdict(results: Results) -> Verdict | None:
    """Judge a run; ``None`` when no exchange method was measured."""
    metric, found = results.metric, gains_of(results)
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
    losses = ["log_loss_own", "log_loss"] if results.apart else ["log_loss"]
    if metric == "log_loss":
        losses = []
    central = results.baseline("central")
    return Verdict(
        metric=metric,
        method=best,
        candidates=len(tried),
        purpose=results.purpose,
        everyone=tried[best][metric],
        own=tried[best].get(own) if results.apart else None,
        losses={name: tried[best][name] for name in losses if name in tried[best]},
        worse=worse_off(results, best),
        central=central.final(metric) if central else None,
        subject=results.everyones,
        missed=results.missed(best),
    )


def _side(gain: Gain) -> str:
    """Suffix of the metrics of the same rows."""
    return "_own" if gain.metric.endswith("_own") else ""


def _figures(gain: Gain) -> str:
    text = f"{_shown(gain.after)}, alone {_shown(gain.alone)}"
    if gain.interval is None:
        return text
    low, high = (number(end) for end in gain.interval)
    if number(abs(gain.mean)) == number(0.0):
        return f"{text} (no change, {low} to {high})"
    change = "a gain" if gain.mean > 0 else "a change for the worse"
    return f"{text} ({change} of {number(abs(gain.mean))}, {low} to {high})"


def _shown(value: Spread) -> str:
    return number(value.mean) if value.sd is None else str(value)

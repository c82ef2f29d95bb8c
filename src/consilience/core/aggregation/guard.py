"""Guard before a rule: bounds on the claims of parties, and exclusion of parties with wrong answers.

A guard inspects the accepted replies of a round before the rule does. The notes of the teacher name each
excluded party and give the evidence. A party stays excluded until the operator lists it in ``let_in``;
meanwhile it still receives questions and teachers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from consilience.core.aggregation.base import Screened, completed
from consilience.core.aggregation.claims import (
    ABOVE_USUAL,
    COARSE,
    EXACT,
    Thresholds,
    bounded,
    relative_size,
    suffice,
    suspects,
    usual_range,
    wrong_on_labels,
)
from consilience.core.errors import RunFailed
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from consilience.core.numerics.target_units import other_unit, usual_values
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

_HALF = 0.5
"""Thresholds on secret rows for a rule without density ratios.

They are the number of standard deviations by which a party's wrong votes must exceed its right ones, and the
minimum sum of its votes. A specialist is not excluded for missing votes."""


EXCLUDED = " is excluded"
"""Words after the name of an excluded party, at the beginning of its note."""


def excluded_in(notes: Iterable[str], parties: Iterable[str]) -> dict[str, str]:
    """Find the parties that notes of a teacher name as excluded.

    Args:
        notes: notes of a teacher.
        parties: names of all parties.

    Returns:
        Each excluded party with the first note that names it.
    """
    starts = {f"{name}{EXCLUDED}": name for name in parties}
    found: dict[str, str] = {}
    for note in notes:
        name = starts.get(note[: note.find(EXCLUDED) + len(EXCLUDED)])
        if name is not None:
            found.setdefault(name, note)
    return found


@prints_no_rows
@dataclass(frozen=True)
class SecretLabels:
    """Labels of some public rows; parties cannot see which rows are labelled.

    Attributes:
        rows: their places among the public rows, shape ``(R,)``.
        labels: names of their classes.
    """

    rows: Array
    labels: tuple[str, ...]

    def among(self, classes: Sequence[str]) -> tuple[Array, Array] | None:
        """Give the rows whose label is one of the federation's classes, and the places of these classes.

        Returns:
            Two arrays of one length; ``None`` if there are no such rows.
        """
        known = [i for i, label in enumerate(self.labels) if label in classes]
        if not known:
            return None
        return self.rows[known], np.array([classes.index(self.labels[i]) for i in known])


@dataclass(frozen=True)
class Guard:
    """Screen a round's replies, as the :attr:`~consilience.core.aggregation.Aggregator.screen` of a rule.

    **Bounds** need no setting and exclude no party. If a rule requires density ratios, a party's claims are
    capped near the usual party's, per row, per class, by its votes and in total
    (:func:`~consilience.core.aggregation.claims.bounded`). Calibration rows of a party are capped at the
    median party's number. ``most_rows`` adds a custom bound, also for counts of rows and for log-densities.

    **Watching** needs no setting either. In regression it excludes a party whose values are in another unit
    than those of the others (:func:`~consilience.core.numerics.target_units.other_unit`). Under a rule with
    density ratios it excludes a party whose claims contradict its model or the claims of the others
    (:func:`~consilience.core.aggregation.claims.suspects`). It never excludes half of the parties. Without
    density ratios it excludes no classifier, because answers alone do not distinguish a specialist from an
    attacker.

    **Secret labels** exclude a party whose votes on them are wrong, in total or in one class
    (:func:`~consilience.core.aggregation.claims.wrong_on_labels`). Without density ratios the votes are the
    probabilities ``p`` less their mean over these rows, and a party is excluded if ``right - wrong < -½
    sqrt(sum_x (sum_y |p|)²)``.

    Args:
        most_rows: maximum of rows that one party may claim; ``"median"`` sets 1.5 times the median of all
            claims; ``None`` applies only the bounds above.
        secret: secret labels; ``None`` for none.
        watch: whether to watch.
        let_in: names of parties to include always.
        leave_out: names of parties to exclude always, unless they are in ``let_in``.
    """

    most_rows: float | Literal["median"] | None = None
    secret: SecretLabels | None = None
    watch: bool = True
    let_in: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()

    def __call__(self, replies: Replies, memory: Mapping[str, Any]) -> Screened:
        """Screen the replies of a round.

        Args:
            replies: accepted ones.
            memory: of the round before: party to the sentence for which it stays excluded.

        Returns:
            The replies that the rule sees, the excluded parties with a sentence each, the memory, and the
            secret labels: a rule of answers alone may weigh parties by them.

        Raises:
            RunFailed: no party would be left, or half of the parties answer in another unit than the others.
        """
        capped = replies if self.most_rows is None else _capped(replies, self.most_rows)
        found = dict(memory)
        named = {name: f"{name}{EXCLUDED}: the operator listed it" for name in self.leave_out}
        claims = _Claims.of(capped)
        heard = [name for name in replies.parties if self._counts(name, {**found, **named})]
        if (
            claims is not None
            and claims.kind is CoarseRatios
            and not suffice(*claims.limited(heard))
        ):
            claims = replace(claims, limits=None)  # the rule is of answers alone
        labelled = self._labelled(capped)
        if labelled is not None:
            for name, said in self._wrong(capped, claims, heard, *labelled):
                found.setdefault(name, said)
            heard = [name for name in heard if self._counts(name, found)]
        if self.watch:
            gone = set(found).difference(self.let_in)
            for name, said in _other_units(capped, heard, self.let_in, before=gone):
                found.setdefault(name, said)
                heard.remove(name)
        if claims is not None and self.watch:
            gone = {*found, *named}.difference(self.let_in)
            for name, said in claims.contradicted(heard, self.let_in, before=gone):
                found.setdefault(name, f"{name}{EXCLUDED} since round {claims.round}: {said}")
                heard.remove(name)
        excluded = {name: {**found, **named}[name] for name in replies.parties if name not in heard}
        if not heard:
            raise RunFailed(
                "every party's answers are found wrong: " + "; ".join(excluded.values()),
                where=f"round {replies.of(Predictions)[0].round}",
                mend="Are the secret labels right? Or name those who are to be heard in robustness.let_in.",
            )
        answers = {name: given for name, given in capped.answers.items() if name in heard}
        if claims is not None:
            answers = claims.bounded(_values_bounded(answers), heard)
        answers = _calibration_bounded(answers, {} if claims is None else claims.shares)
        seen = replies if answers == replies.answers else Replies(answers, replies.missing)
        return Screened(seen, excluded, found, labelled)

    def _labelled(self, replies: Replies) -> tuple[Array, Array] | None:
        """Return the secret labels whose class is in the federation; ``None`` if there are none."""
        predictions = replies.of(Predictions)
        if self.secret is None or not predictions or predictions[0].kind == "values":
            return None
        return self.secret.among(predictions[0].classes)

    def _counts(self, name: str, excluded: Mapping[str, str]) -> bool:
        return name in self.let_in or name not in excluded

    def _wrong(
        self, replies: Replies, claims: _Claims | None, heard: list[str], rows: Array, true: Array
    ) -> list[tuple[str, str]]:
        """Find the parties whose votes on the secret rows are wrong, and the evidence.

        Args:
            replies: of all parties.
            claims: their density ratios, if they gave some.
            heard: names of the parties not yet excluded.
            rows: places of the secret rows, shape ``(R,)``.
            true: their classes, shape ``(R,)``.
        """
        predictions = replies.of(Predictions)
        since = f"{EXCLUDED} since round {predictions[0].round}"
        if claims is not None and claims.limits is not None:
            told = wrong_on_labels(*claims.limited(heard), rows, true, claims.limits)
            return [
                (heard[one.party], f"{heard[one.party]}{since}: on secret rows {one.evidence}")
                for one in told
            ]
        probabilities = _probabilities(predictions)
        assert probabilities is not None  # else nothing is labelled
        votes = probabilities[:, rows]
        votes = votes - votes.mean(axis=1, keepdims=True)
        mass = np.abs(votes).sum(axis=2) / 2
        right = votes[:, np.arange(len(rows)), true].sum(axis=1)
        wrong = votes.sum(axis=(1, 2)) - right
        most = -_HALF * np.sqrt((mass**2).sum(axis=1))
        return [
            (
                name,
                f"{name}{since}: on {len(rows)} secret rows its votes are right by {right[c]:.1f} and wrong "
                f"by {wrong[c]:.1f}",
            )
            for c, name in enumerate(replies.parties)
            if right[c] - wrong[c] < most[c] and mass[c].sum() >= _HALF
        ]


@prints_no_rows
@dataclass(frozen=True)
class _Claims:
    """Density ratios of all parties of a round.

    Attributes:
        kind: type of the replies.
        parties: m names.
        ratios: shape ``(m, n, K)``.
        outputs: probabilities, of the same shape; ones for values.
        limits: thresholds of the tests; ``None`` if there are none, as for values.
        round: the round.
        shares: party to its claims over those of the median party with claims, 1 at most; 0 for a party
            without private rows, which is assigned the mean of the others' claims.
    """

    kind: type[Any]
    parties: tuple[str, ...]
    ratios: Array
    outputs: Array
    limits: Thresholds | None
    round: int
    shares: Mapping[str, float]

    @classmethod
    def of(cls, replies: Replies) -> _Claims | None:
        """Read the claims from replies; ``None`` unless every party gave ratios of one kind."""
        predictions = replies.of(Predictions)
        for kind, limits in ((DensityRatios, EXACT), (CoarseRatios, COARSE), (InputRatios, None)):
            if not replies.of(kind) or len(given := replies.of(kind)) != len(replies):
                continue
            ratios = completed(given)  # one without rows is judged by the claims that it is lent
            probabilities = _probabilities(predictions)
            if limits is None or probabilities is None:
                ratios = ratios.reshape(*ratios.shape[:2], -1)
                probabilities, limits = np.ones_like(ratios), None
            round = predictions[0].round if predictions else given[0].round
            size = np.maximum([one.values for one in given], 0).reshape(len(given), -1).sum(axis=1)
            shares = relative_size(size) if size.any() else np.ones(len(size))
            by_party = dict(zip(replies.parties, map(float, shares), strict=True))
            return cls(kind, replies.parties, ratios, probabilities, limits, round, by_party)
        return None

    def limited(self, names: list[str], whole: float = 1.0) -> tuple[Array, Array]:
        """Bounded claims of some parties, and their outputs, both of shape ``(len(names), n, K)``.

        Args:
            names: the parties.
            whole: as for :func:`~consilience.core.aggregation.claims.bounded`.
        """
        places = [self.parties.index(name) for name in names]
        outputs = self.outputs[places]
        return bounded(self.ratios[places], outputs, whole), outputs

    def contradicted(
        self, heard: list[str], spared: tuple[str, ...], *, before: set[str]
    ) -> list[tuple[str, str]]:
        """Find the included parties to exclude, one by one, and the evidence.

        Every attacker changes the figures of the others. The strongest suspect is therefore excluded first,
        and the tests are repeated without it. Together with the parties excluded ``before``, fewer than
        half are excluded.
        """
        found: list[tuple[str, str]] = []
        if self.limits is None:
            return found
        left = [name for name in self.parties if name in heard]
        everyone = len(before.union(self.parties))
        while len(left) >= 3 and 2 * (len(before) + len(found) + 1) < everyone:
            kept = [place for place, name in enumerate(left) if name in spared]
            told = suspects(*self.limited(left), self.limits, kept)
            if not told:
                break
            found.append((left[told[0].party], told[0].evidence))
            left.pop(told[0].party)
        return found

    def bounded(
        self, answers: Mapping[str, tuple[Any, ...]], heard: list[str]
    ) -> dict[str, tuple[Any, ...]]:
        """Replace the claims in the included parties' replies by bounded claims."""
        limited, _ = self.limited(heard, ABOVE_USUAL)
        new = dict(answers)
        for name, values in zip(heard, limited, strict=True):
            if np.array_equal(values, np.maximum(self.ratios[self.parties.index(name)], 0)):
                continue  # the same reply, bit for bit
            (reply,) = (one for one in answers[name] if type(one) is self.kind)
            limited_values = values.reshape(reply.values.shape).astype(reply.values.dtype)
            lent = replace(reply, absent=False)
            mine = tuple(lent if one is reply else one for one in answers[name])
            new[name] = _with(mine, lent, limited_values)
        return new


def _other_units(
    replies: Replies, heard: list[str], spared: tuple[str, ...], *, before: set[str]
) -> list[tuple[str, str]]:
    """Find the parties whose values are in another unit than those of most parties, and the evidence.

    Raises:
        RunFailed: together with the parties excluded ``before``, the parties found are half of all or more,
            so that the right unit is unknown.
    """
    given = [one for one in replies.of(Predictions) if one.party in heard and one.kind == "values"]
    if len(given) < 2:
        return []
    usual = usual_values(np.stack([one.values for one in given]))
    odd = {one.party: other_unit(one.values, usual) for one in given if one.party not in spared}
    odd = {name: said for name, said in odd.items() if said}
    if odd and 2 * (len(odd) + len(before)) >= len(given) + len(before):
        others = ", ".join(one.party for one in given if one.party not in odd)
        raise RunFailed(
            f"values of {', '.join(odd)} are {next(iter(odd.values()))} as those of {others} on the same "
            "rows: their targets are in different units",
            where=f"round {given[0].round}",
            mend="Bring the targets of all parties to one unit. If they are right as they are, name the "
            "parties in robustness.let_in.",
        )
    since = f"{EXCLUDED} since round {given[0].round}"
    why = "as those of the others on the same rows, so that its target seems to be in another unit"
    return [(name, f"{name}{since}: its values are {said} {why}") for name, said in odd.items()]


def _calibration_bounded(
    answers: Mapping[str, tuple[Any, ...]], shares: Mapping[str, float]
) -> dict[str, tuple[Any, ...]]:
    """Cap each party's calibration rows at the median party's number.

    In regression the sums of targets are also clipped, to the sums that as many rows can reach within the
    usual range.

    Args:
        answers: party to its replies.
        shares: party to its claims over the median party's, 1 at most: a party that claims few rows, or none,
            has few calibration rows; 1 for parties without an entry.
    """
    given = {
        name: one
        for name, mine in answers.items()
        for one in mine
        if isinstance(one, CalibrationSums)
    }
    if not given:
        return dict(answers)
    limits = _range(
        [one for mine in answers.values() for one in mine if isinstance(one, Predictions)]
    )
    counted = {
        name: one.values if limits is None else one.values[:, :1] for name, one in given.items()
    }
    most = float(np.median([count.sum() for count in counted.values()]))
    new = dict(answers)
    for name, one in given.items():
        values = one.values
        if limits is not None:
            low, high = (counted[name] * limit for limit in limits)
            values = np.concatenate([counted[name], values[:, 1:].clip(low, high)], axis=1)
        limit = most * shares.get(name, 1.0)
        if (count := float(counted[name].sum())) > limit:
            values = values * (limit / count)
        if not np.array_equal(values, one.values):
            new[name] = _with(answers[name], one, values)
    return new


def _values_bounded(answers: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Clip predicted values to the usual range; predictions of classes stay unchanged."""
    predictions = [one for mine in answers.values() for one in mine if isinstance(one, Predictions)]
    limits = _range(predictions)
    new = dict(answers)
    for one in predictions if limits is not None else ():
        assert limits is not None
        values = one.values.clip(*limits).astype(one.values.dtype)
        if not np.array_equal(values, one.values):
            new[one.party] = _with(answers[one.party], one, values)
    return new


def _range(predictions: list[Predictions]) -> tuple[Array, Array] | None:
    """Compute the usual range of predicted values; ``None`` for classes."""
    if not predictions or predictions[0].kind != "values":
        return None
    return usual_range(np.stack([one.values for one in predictions], dtype=np.float64))


def _with(answer: tuple[Any, ...], reply: Any, values: Array) -> tuple[Any, ...]:
    """Replace the values of one reply in a party's answer."""
    return tuple(replace(one, values=values) if one is reply else one for one in answer)


def _probabilities(predictions: list[Predictions]) -> Array | None:
    """Stack the parties' probabilities, shape ``(m, n, K)``; ``None`` if they predict no classes."""
    if not predictions or predictions[0].kind == "values":
        return None
    values = np.stack([one.values for one in predictions], dtype=np.float64)
    return softmax(values, axis=2) if predictions[0].kind == "logits" else values


def _capped(replies: Replies, most: float | Literal["median"]) -> Replies:
    """Scale down claims beyond a cap; those within it stay as they are."""
    answers = {name: list(given) for name, given in replies.answers.items()}
    for kind in (DensityRatios, CoarseRatios, InputRatios, CalibrationSums, RowCount, LogDensities):
        given = replies.of(kind)
        if not given:
            continue
        claims = np.array([_claim(one) for one in given])
        limit = float(np.median(claims)) if kind is LogDensities else capped_at(claims, most)
        for one, claim in zip(given, claims, strict=True):
            if claim > limit:
                mine = answers[one.party]
                mine[[each is one for each in mine].index(True)] = _within(one, claim, limit)
    return Replies({name: tuple(given) for name, given in answers.items()}, replies.missing)


def capped_at(claims: Array, most: float | Literal["median"]) -> float:
    """Compute the maximum that one party may claim.

    Args:
        claims: claims of all parties, shape ``(m,)``.
        most: a number, or ``"median"`` for 1.5 times the median of all claims.
    """
    return ABOVE_USUAL * float(np.median(claims)) if most == "median" else float(most)


def _claim(reply: Any) -> float:
    """Return the number of rows that a reply claims; for log-densities the largest value."""
    if isinstance(reply, RowCount):
        return float(reply.rows)
    if isinstance(reply, LogDensities):
        return float(reply.values.max())
    return float(np.maximum(reply.values, 0).sum(dtype=np.float64))


def _within(reply: Any, claim: float, limit: float) -> Any:
    """Scale a reply down to a limit of its claims."""
    if isinstance(reply, RowCount):
        return replace(reply, rows=int(limit))
    if isinstance(reply, LogDensities):
        return replace(reply, values=(reply.values - np.float32(claim - limit)).astype(np.float32))
    scaled = reply.values.astype(np.float64) * (limit / claim)
    return replace(reply, values=scaled.astype(reply.values.dtype))

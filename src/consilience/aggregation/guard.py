"""Guard before a rule: caps of what parties claim, and parties left out whose answers are found wrong.

A guard looks at the accepted replies of a round before the rule does. It changes nothing where it finds
nothing. Who is left out is named in the teacher's notes, with the evidence; it goes on to be asked and
taught, so that a broken model may mend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from consilience.aggregation.base import Stack
from consilience.aggregation.contradiction import UNIFORM, constant, contradicting
from consilience.errors import RunFailed
from consilience.messages.replies import Predictions, Replies
from consilience.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
    Selection,
)
from consilience.validation.arrays import Array

_ABOVE_USUAL = 1.5
"""How many times the parties' median one may claim, where the cap is the median."""

_HALF = 0.5
"""Standard deviations by which the wrong votes of a party must outweigh the right ones, and rows that it must
have claimed at secret rows: an honest specialist is not left out for its silence."""

_ROUNDED = 1e-11
"""Share of a sum of squares below which the spread around the mean is what rounding left."""

_FIRST = 128
"""Rows on which most parties have said every class that they know."""

_AGREED, _AT_ODDS = 0.4, 0.45
"""Median correlation of the judged parties with the others from which they are judged by it, and share of it
below which one is at odds with all others (``benchmarks/liars.py``: honest ones had 0.56 of it and more)."""


@dataclass(frozen=True)
class SecretLabels:
    """Labels of some public rows, which no party knows to be labelled.

    Attributes:
        rows: their places among the public rows, shape ``(R,)``.
        labels: names of their classes.
    """

    rows: Array
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Guard:
    """Screen of a round's replies, the :attr:`~consilience.aggregation.Aggregator.screen` of a rule.

    **Caps** scale down what one party claims: density ratios so that their sum over public rows and classes,
    the rows that it says it has near them, is at most ``most_rows``; counts of rows likewise; log-densities
    so that their largest is at most the parties' median largest.

    **Secret labels** leave out a party whose votes on them are wrong, from then on. Where the rule weighs by
    density ratios s its votes are ``v = s p``, else ``v = p`` less its mean over these rows, so that a
    specialist is not blamed for rows of classes that it does not know. With ``right = sum_x v(x, y_x)`` and
    ``wrong`` the rest, it is left out where ``right - wrong < -½ sqrt(sum_x (sum_y v(x, y))²)`` and it has
    claimed half a row there at least. A liar who lies on few rows is not found.

    **Watching** needs no setting, and leaves out of the round, where that is fewer than half: a party whose
    model contradicts all others on rows near its own, where the rule asks for density ratios and has some
    (:func:`~consilience.aggregation.contradiction.contradicting`), and one that sends the same as another;
    and where it does not, one that says the same of every row, and speaks for all of them, and one whose
    answers do not vary with those of others who know the same classes, where these are half of all classes,
    though those do with one another.

    Args:
        most_rows: rows that one party may claim; ``"median"`` for 1.5 times the median of all claims;
            ``None`` for no cap.
        secret: secret labels; ``None`` for none.
        watch: whether to watch.
        let_in: parties that are never left out, whatever is found.
        leave_out: parties that are always left out.
    """

    most_rows: float | Literal["median"] | None = None
    secret: SecretLabels | None = None
    watch: bool = True
    let_in: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()

    def __call__(
        self, replies: Replies, memory: Mapping[str, Any]
    ) -> tuple[Replies, Mapping[str, str], Mapping[str, Any]]:
        """Screen the replies of a round.

        Args:
            replies: accepted ones.
            memory: of the round before: party to the sentence for which it stays left out.

        Returns:
            The replies that the rule sees, the parties that are left out with a sentence each, and the
            memory.

        Raises:
            RunFailed: nobody would be left.
        """
        capped = replies if self.most_rows is None else _capped(replies, self.most_rows)
        found = dict(memory)
        predictions = replies.of(Predictions)
        probabilities = _probabilities(predictions)
        if self.secret is not None and probabilities is not None:
            for party, said in self._wrong(capped, probabilities):
                found.setdefault(party, said)
        named = {name: f"{name} is left out: the operator said so" for name in self.leave_out}
        left_out = {**found, **named}
        if self.watch and probabilities is not None:
            heard = [i for i, name in enumerate(replies.parties) if name not in left_out]
            odd = dict(_odd(capped, probabilities, heard))
            if 2 * len(odd) < len(heard):
                left_out = {**odd, **left_out}
        left_out = {
            name: left_out[name]
            for name in replies.parties
            if name in left_out and name not in self.let_in
        }
        if not left_out and capped is replies:
            return replies, {}, found
        if len(left_out) == len(replies):
            raise RunFailed(
                "every party's answers are found wrong: " + "; ".join(left_out.values()),
                where=f"round {predictions[0].round}",
                mend="Are the secret labels right? Or name those who are to be heard in robustness.let_in.",
            )
        answers = {name: said for name, said in capped.answers.items() if name not in left_out}
        return Replies(answers, replies.missing), left_out, found

    def _wrong(self, replies: Replies, probabilities: Array) -> Iterator[tuple[str, str]]:
        """Find the parties whose votes on the secret rows are wrong, and the evidence."""
        assert self.secret is not None
        rows, classes = self.secret.rows, replies.of(Predictions)[0].classes
        true = np.array(
            [classes.index(label) if label in classes else -1 for label in self.secret.labels]
        )
        rows, true = rows[true >= 0], true[true >= 0]
        said, round = probabilities[:, rows], replies.of(Predictions)[0].round
        ratios = _ratios(replies)
        votes = (
            said - said.mean(axis=1, keepdims=True) if ratios is None else said * ratios[:, rows]
        )
        for party, vote in zip(replies.parties, votes, strict=True):
            mass = np.abs(vote).sum(axis=1) / (2 if ratios is None else 1)
            right = float(vote[np.arange(len(rows)), true].sum())
            wrong = float(vote.sum()) - right
            if right - wrong < -_HALF * float(np.sqrt((mass**2).sum())) and mass.sum() >= _HALF:
                yield (
                    party,
                    f"{party} is left out since round {round}: on {len(rows)} secret rows its votes are "
                    f"right by {right:.1f} and wrong by {wrong:.1f}",
                )


def _probabilities(predictions: list[Predictions]) -> Array | None:
    """Probabilities of the parties, shape ``(m, n, K)``; ``None`` where there are none of classes.

    In memory the rows of a party and class lie side by side, which is how they are added up.
    """
    if not predictions or predictions[0].kind == "values":
        return None
    rows, classes = predictions[0].values.shape
    values = np.empty((classes, len(predictions), rows)).transpose(1, 2, 0)
    for into, one in zip(values, predictions, strict=True):
        into[:] = one.values
    return softmax(values, axis=2) if predictions[0].kind == "logits" else values


def _ratios(replies: Replies) -> Array | None:
    """Density ratios of the parties, shape ``(m, n, K)``, at least 0; ``None`` where there are none.

    So it is where the usual party's are all 0, as coarse ones of classes with few rows: a rule then goes by
    the answers alone.
    """
    for kind in (DensityRatios, CoarseRatios):
        if len(given := replies.of(kind)) == len(replies):
            found = np.maximum(np.stack([one.values for one in given], dtype=np.float64), 0)
            return found if np.median(found.sum(axis=(1, 2))) > 0 else None
    return None


def _odd(replies: Replies, probabilities: Array, heard: list[int]) -> Iterator[tuple[str, str]]:
    """Find the parties whose answers are at odds with all others', among those that are heard."""
    if len(heard) < 3:
        return
    parties = tuple(replies.parties[i] for i in heard)
    said = probabilities if len(heard) == len(probabilities) else probabilities[heard]
    ratios = _ratios(replies)
    same_of_all = constant(said)
    if ratios is not None:
        stack = Stack(parties, said, {}, replies.of(Predictions)[0].classes)
        found = dict(contradicting(stack, ratios[heard]))
        # Of a model that says the same of every row the rows count all the same.
        yield from (one for one in found.items() if not same_of_all[parties.index(one[0])])
        sent = [said[i].tobytes() + ratios[c].tobytes() for i, c in enumerate(heard)]
        for i, party in enumerate(parties):
            first = sent.index(sent[i])
            if first < i and ratios[heard[i]].any():
                yield party, f"{party} sends to the last digit what {parties[first]} does"
        return
    together = _agreement(said)
    judged = ~np.isnan(together)
    usual = float(np.median(together[judged])) if judged.sum() >= 3 else 0.0
    # A party of one class has one answer: the rows that it gives it for are what it knows.
    chosen = {one.party for one in replies.of(Selection) if np.ptp(one.values.astype(int))}
    for party, same, its in zip(parties, same_of_all, together, strict=True):
        if same:
            if party not in chosen:
                yield party, f"{party} {UNIFORM}"
        elif usual >= _AGREED and its < _AT_ODDS * usual:
            yield (
                party,
                f"{party} contradicts all others on the classes that they know too: its answers and theirs "
                f"correlate by {its:.2f}, those of the usual party by {usual:.2f}",
            )


def _agreement(said: Array) -> Array:
    """Correlate each party's answers with the mean of those who know the same classes, class by class.

    A party knows a class that is its likeliest on some row. It is judged on classes that others know too, and
    only where these are half of all or more: of what it says elsewhere most is on rows that it knows nothing
    about, and a specialist is no liar.

    Args:
        said: probabilities, shape ``(m, n, K)``.

    Returns:
        Shape ``(m,)``; NaN for a party that is not judged.
    """
    # By sums over the rows of each party and class: copies of all answers for each would take far longer.
    known, of_class = _known(said), said.transpose(2, 0, 1)
    holders = known.sum(axis=0)
    mean = (of_class @ np.full(said.shape[1], 1 / said.shape[1])).T
    whole = (known.T[:, None].astype(float) @ of_class)[:, 0]
    whole -= (mean * known).sum(axis=0)[:, None]
    squares = (of_class[:, :, None] @ of_class[..., None])[..., 0, 0].T
    spread = squares - said.shape[1] * mean**2
    squares = np.where(spread > _ROUNDED * squares, spread, 0)
    products = (of_class @ whole[..., None])[..., 0].T  # the whole is around 0, so they need not be
    shared = known & (holders >= 2)
    others = np.maximum(holders - 1, 1)
    with_theirs = ((products - squares) / others * shared).sum(axis=1)
    theirs = ((whole**2).sum(axis=1) - 2 * products + squares) / others**2 * shared
    lengths = np.sqrt((squares * shared).sum(axis=1) * np.maximum(theirs.sum(axis=1), 0))
    judged = 2 * shared.sum(axis=1) >= (holders > 0).sum()
    found = np.divide(with_theirs, lengths, out=np.zeros(len(said)), where=lengths > 0)
    return np.where(judged, found, np.nan)


def _known(said: Array) -> Array:
    """Mark the classes that are a party's likeliest on some row, the first of equals; shape ``(m, K)``."""
    known = _likeliest(said[:, :_FIRST])
    if not (sure := known.all(axis=1)).all():
        known[~sure] |= _likeliest(said[~sure, _FIRST:])
    return known


def _likeliest(said: Array) -> Array:
    """Mark the classes that are a party's likeliest on some of these rows; shape ``(m, K)``."""
    top = said == said.max(axis=2, keepdims=True)
    if np.count_nonzero(top) > top.shape[0] * top.shape[1]:  # some are equal
        found = np.zeros(top.shape[::2], dtype=bool)
        found[np.arange(len(said))[:, None], said.argmax(axis=2)] = True
        return found
    return np.asarray(top.any(axis=1))


def _capped(replies: Replies, most: float | Literal["median"]) -> Replies:
    """Scale down what parties claim beyond a cap; what is within it stays as it is."""
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
    """Give what one party may claim.

    Args:
        claims: of all, shape ``(m,)``.
        most: a number, or ``"median"`` for 1.5 times the median of all claims.
    """
    return _ABOVE_USUAL * float(np.median(claims)) if most == "median" else float(most)


def _claim(reply: Any) -> float:
    """Rows that a reply claims; the largest of log-densities."""
    if isinstance(reply, RowCount):
        return float(reply.rows)
    if isinstance(reply, LogDensities):
        return float(reply.values.max())
    return float(np.maximum(reply.values, 0).sum(dtype=np.float64))


def _within(reply: Any, claim: float, limit: float) -> Any:
    """The reply, claiming no more than a limit."""
    if isinstance(reply, RowCount):
        return replace(reply, rows=int(limit))
    if isinstance(reply, LogDensities):
        return replace(reply, values=(reply.values - np.float32(claim - limit)).astype(np.float32))
    scaled = reply.values.astype(np.float64) * (limit / claim)
    return replace(reply, values=scaled.astype(reply.values.dtype))

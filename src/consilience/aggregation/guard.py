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
from consilience.aggregation.contradiction import UNIFORM, contradicting
from consilience.errors import RunFailed
from consilience.messages.replies import Predictions, Replies
from consilience.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from consilience.validation.arrays import Array

_ABOVE_USUAL = 1.5
"""How many times the parties' median one may claim, where the cap is the median."""

_HALF = 0.5
"""Standard deviations by which the wrong votes of a party must outweigh the right ones, and rows that it must
have claimed at secret rows: an honest specialist is not left out for its silence."""

_SAME = 1e-3
"""Range of a probability over rows that all have the same answer."""

_AGREED, _AT_ODDS = 0.3, 0.25
"""Median correlation of parties with the others from which they are judged by it, and share of it below which
one is at odds with all others."""


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
    model contradicts all others on rows near its own, where the rule asks for density ratios
    (:func:`~consilience.aggregation.contradiction.contradicting`); and where it does not, one that says the
    same of every row, and one whose answers do not vary with the others' though those do with one another.

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
    """Probabilities of the parties, shape ``(m, n, K)``; ``None`` where there are none of classes."""
    if not predictions or predictions[0].kind == "values":
        return None
    values = np.stack([one.values for one in predictions], dtype=np.float64)
    return softmax(values, axis=2) if predictions[0].kind == "logits" else values


def _ratios(replies: Replies) -> Array | None:
    """Density ratios of the parties, shape ``(m, n, K)``, at least 0; ``None`` where none were asked for."""
    for kind in (DensityRatios, CoarseRatios):
        if len(given := replies.of(kind)) == len(replies):
            return np.maximum(np.stack([one.values for one in given], dtype=np.float64), 0)
    return None


def _odd(replies: Replies, probabilities: Array, heard: list[int]) -> Iterator[tuple[str, str]]:
    """Find the parties whose answers are at odds with all others', among those that are heard."""
    if len(heard) < 3:
        return
    parties = tuple(replies.parties[i] for i in heard)
    said, ratios = probabilities[heard], _ratios(replies)
    if ratios is not None:
        stack = Stack(parties, said, {}, replies.of(Predictions)[0].classes)
        found = contradicting(stack, ratios[heard])
        # Of a model that says the same of every row the rows count all the same.
        yield from ((party, told) for party, told in found if UNIFORM not in told)
        return
    varied = said - said.mean(axis=1, keepdims=True)
    whole, length = varied.sum(axis=0), np.linalg.norm(varied, axis=(1, 2))
    constant = np.ptp(said, axis=1).max(axis=1) < _SAME
    others = np.array([np.linalg.norm(whole - one) for one in varied])
    scale = np.maximum(length * others, 1e-12)
    with_others = (varied * (whole - varied)).sum(axis=(1, 2)) / scale
    usual = float(np.median(with_others))
    for party, same, together in zip(parties, constant, with_others, strict=True):
        if same:
            yield party, f"{party} {UNIFORM}"
        elif usual >= _AGREED and together < _AT_ODDS * usual:
            yield (
                party,
                f"{party} contradicts all others: its answers and theirs correlate by {together:.2f}, "
                f"those of the usual party by {usual:.2f}",
            )


def _capped(replies: Replies, most: float | Literal["median"]) -> Replies:
    """Scale down what parties claim beyond a cap; what is within it stays as it is."""
    answers = {name: list(given) for name, given in replies.answers.items()}
    for kind in (DensityRatios, CoarseRatios, InputRatios, CalibrationSums, RowCount, LogDensities):
        given = replies.of(kind)
        if not given:
            continue
        claims = np.array([_claim(one) for one in given])
        limit = float(np.median(claims))
        if kind is not LogDensities:
            limit = _ABOVE_USUAL * limit if most == "median" else float(most)
        for one, claim in zip(given, claims, strict=True):
            if claim > limit:
                mine = answers[one.party]
                mine[[each is one for each in mine].index(True)] = _within(one, claim, limit)
    return Replies({name: tuple(given) for name, given in answers.items()}, replies.missing)


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

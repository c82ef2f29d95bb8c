"""Subsample and aggregate at a party: a model for each shard of its rows, and noise on their answers.

A unit of private data is in one shard, so that with or without it one model of K is another one, and the sum
of their answers to a row moves by √2 at most: the diameter of the distributions. That holds for models of any
kind. What it costs grows with the number of rows that are answered, and not with K; so K models have to
outvote the noise (:func:`labels_right`).

Source:
    Nissim, Raskhodnikova & Smith 2007; Papernot et al. 2017, 2018 (PATE, and its confident answers), with
    their costs as they are for whatever data; Feldman & Zrnic 2021 and Koskela, Tobaben & Honkela 2023 (a
    budget that is fixed beforehand bounds releases that depend on one another).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.schema import Agreement
from consilience.messages.scores import ShardAnswers
from consilience.numerics.class_sums import SCALE
from consilience.numerics.randomness import NoiseSource
from consilience.party.class_sums import BudgetNoise
from consilience.party.rows import target_rows
from consilience.transforms.budget import Budget
from consilience.transforms.privacy import BudgetExceeded
from consilience.transforms.privacy_ledger import Release
from consilience.validation.arrays import Array
from consilience.validation.labels import Kind

if TYPE_CHECKING:
    from consilience.party.party import Party

CONSENSUS = 0.8
"""Share of the models that are taken to agree on the right class of a row, and the others on one other."""

FEWEST_RIGHT = 0.5
"""How far from chance to all labels noise alone must leave, for a party to spend its budget on them."""

ASKING = 0.1
"""Part of a release's μ² that goes into asking which rows the models agree on."""


def shards_of(party: Party, shards: int) -> Array:
    """Deal a party's units to shards, each by itself: where one goes depends on no other.

    Args:
        party: the party.
        shards: their number, K.

    Returns:
        Shard of each private row, shape ``(n,)``.
    """
    if party.privacy_units is None:
        texts = party.X.dtype.kind in "UO"
        rows = party.X if texts else party.X.astype("<f8")
        names = [str(row).encode() if texts else row.tobytes() for row in rows]
    else:
        names = [party.unit_names[unit].encode() for unit in party.privacy_units]
    digests = [hashlib.blake2b(name, digest_size=8, key=party.secret[:64]) for name in names]
    return np.array([int.from_bytes(one.digest(), "little") % shards for one in digests], dtype=int)


def answers_of(
    party: Party, rows: Array, teachers: int, *, votes: bool, bounds: tuple[float, float]
) -> Array:
    """Train a model on each shard of a party's rows, and sum up their answers to public rows.

    A shard without rows, of one class, or on which training fails answers alike for all classes, or in the
    middle of the bounds: that depends on the shard alone.

    Args:
        party: the party, which has joined.
        rows: public rows that are asked about, shape ``(n_rows,)``, int64.
        teachers: number of shards, K.
        votes: whether each model says the likeliest class alone, instead of probabilities.
        bounds: of values, in regression: they are cut there, and said as shares of the way between.

    Returns:
        Steps of the grid, shape ``(n_rows, n_outputs)``, int64; K models' answers are ``K · SCALE`` at most.

    Raises:
        InvalidInput: the party's outcome is neither classes nor values.
        KnowledgeRefused: there are no such public rows.
    """
    agreement, public = party.agreement, party.public
    assert agreement is not None and public is not None
    if party.outcome is not None:
        raise InvalidInput("shards answer with classes or values", where=f"party {party.name!r}")
    if rows.min() < 0 or rows.max() >= len(public):
        raise KnowledgeRefused("it is asked about public rows that there are not")
    asked, outputs = public.X[rows], agreement.outputs
    places = shards_of(party, teachers)[: len(party.y)]
    classes, (low, high) = agreement.kind == "classification", bounds
    total = np.zeros((len(rows), outputs), dtype=np.int64)
    for shard in range(teachers):
        mine = places == shard
        share = np.full(total.shape, 1 / outputs if classes else 0.5)
        if mine.any() and not (classes and len(set(party.y[mine].tolist())) < 2):
            try:
                targets = target_rows(party.y[mine], agreement, where=f"party {party.name!r}")
                own = party.X[: len(mine)][mine], targets
                learner = party.untrained()
                held_out = own if learner.abilities.validation else None
                rng = party.stream(0, f"shard {shard}")
                learner.fit(*own, rng=rng, validation=held_out, phase="first")
                found = learner.predict(asked).reshape(total.shape)
                if np.isfinite(found).all():
                    share = found if classes else (found - low) / (high - low)
            except Exception as error:  # a model may raise anything; what, depends on the shard
                party.trouble = f"shard {shard}: {type(error).__name__}: {error}"
        if classes and votes:
            undecided = np.ptp(share, axis=1, keepdims=True) == 0
            share = np.where(undecided, share, np.eye(outputs)[share.argmax(axis=1)])
        share = np.clip(share, 0, 1)
        if classes:
            share /= np.maximum(share.sum(axis=1, keepdims=True), 1)
        total += np.trunc(share * SCALE).astype(np.int64)
    return total


class AnswersNoise(BudgetNoise):
    """Noise on the answers of a party's shards, which are released once for rows, models and classes.

    Where rows are asked about that the models may not agree on, a tenth of μ² says where the most agree, with
    noise of its own, and the rest answers those rows, half of all at most.

    Args:
        budget: the party's budget.
        source: makes the source of the noise.
        kind: of the party's model.
    """

    reply_type = ShardAnswers

    def __init__(self, budget: Budget, source: NoiseSource, kind: Kind) -> None:
        super().__init__(budget, source)
        self._kind = kind

    def sigmas(self, rows: int, outputs: int, *, confident: bool = False) -> tuple[float, float]:
        """Compute the standard deviations of the noise in steps: of an answer, and of a check.

        Args:
            rows: number of rows that are asked about.
            outputs: number of classes, or of values.
            confident: whether rows are checked first; 0 for a check that there is not.
        """
        step = SCALE * self._budget.sigma
        reach = math.sqrt(2 if self._kind == "classification" else outputs)
        if not confident:
            return step * reach * math.sqrt(rows), 0.0
        answer = step * reach * math.sqrt(_most_answered(rows) / (1 - ASKING))
        return answer, step * math.sqrt(rows / ASKING)

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Name the release by all that was asked, the public rows and the classes.

        Raises:
            BudgetExceeded: noise would drown the answers, and the task does not insist on them.
        """
        assert agreement is not None
        if not task.anyway:
            wide, _ = self.sigmas(len(task.rows), agreement.outputs, confident=bool(task.confident))
            check_outlook(
                wide / SCALE * math.sqrt(task.parties), task.teachers * task.parties, agreement
            )
        question = (task.question, agreement.public, *agreement.classes)
        return Release.of("answers of shards", question, self.loss)

    def release(self, reply: ShardAnswers) -> ShardAnswers:
        """Choose the rows that are answered, and add the noise."""
        rows, outputs = reply.values.shape
        sigma, asking = self.sigmas(rows, outputs, confident=reply.threshold > 0)
        answered = reply.answered
        if asking:
            agree = self.noisy(reply.values.max(axis=1), asking) >= reply.threshold
            answered = agree & (np.cumsum(agree) <= _most_answered(rows))
        values = np.where(answered[:, None], self.noisy(reply.values, sigma), 0)
        return replace(reply, values=values, answered=answered, sigma=sigma)


def _most_answered(rows: int) -> int:
    """Answers that a release has noise for, where rows are checked first."""
    return -(-rows // 2)


def labels_right(teachers: int, sigma: float, classes: int) -> float:
    """Compute how many labels noise leaves right, where :data:`CONSENSUS` of the models have them right.

    Args:
        teachers: models of all parties together.
        sigma: standard deviation of the noise in the sum of their votes.
        classes: number of classes.

    >>> round(labels_right(250, 91 * 10**0.5, 10), 2), round(labels_right(250, 91, 10), 1)
    (0.24, 0.7)
    """
    if not sigma:
        return 1.0
    z = np.linspace(-9, 9, 2001)
    right, rival = CONSENSUS * teachers / sigma, (1 - CONSENSUS) * teachers / sigma
    ahead = ndtr(right - rival + z) * ndtr(right + z) ** (classes - 2)
    return float(np.average(ahead, weights=np.exp(-(z**2) / 2)))


def teachers_needed(rows: int, mu: float, parties: int) -> int:
    """Compute how many models of all parties it takes for 95 of 100 labels, each party adding its own noise.

    Args:
        rows: number of public rows that are answered.
        mu: μ of each party's release.
        parties: their number.
    """
    return math.ceil(3.9 * math.sqrt(2 * rows * parties) / mu)


def works(right: float, classes: int) -> bool:
    """Tell whether so many right labels are further from chance than :data:`FEWEST_RIGHT` asks.

    Args:
        right: share of labels that noise leaves right.
        classes: number of classes.
    """
    return (right - 1 / classes) / (1 - 1 / classes) >= FEWEST_RIGHT


def check_outlook(sigma: float, teachers: int, agreement: Agreement) -> None:
    """Raise ``BudgetExceeded`` if noise would drown the sum of all models' answers.

    Args:
        sigma: standard deviation of the noise in the sum.
        teachers: models of all parties together.
        agreement: what the federation agreed on.
    """
    if agreement.kind == "classification":
        right = labels_right(teachers, sigma, agreement.outputs)
        fits, said = works(right, agreement.outputs), f"right on some {right:.0%} of the rows"
    else:
        off = sigma / teachers
        fits, said = off <= 1 - FEWEST_RIGHT, f"off by {off:.0%} of their bounds"
    if not fits:
        raise BudgetExceeded(
            f"limits.epsilon: the answers of {teachers} models in all would be {said} for the noise",
            mend="Ask about fewer rows, with more teachers, or take private_sums; anyway = true insists.",
        )

"""Network of a simulation in which some parties lie: their replies are replaced where they would arrive.

Liars train and answer like everybody else; then the attack puts its own numbers in the place of theirs. It is
omniscient: it sees what the honest parties answered in the same exchange, which no real liar does. Rules that
bear it bear less. Every lie passes the door in like any other reply: it is valid, and wrong.

m parties, n public rows, K classes; h is the mean of the honest parties' probabilities, a the share of liars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator
from scipy.special import softmax, xlogy

from consilience.aggregation import onto_simplex
from consilience.errors import InvalidInput, nearest
from consilience.messages.replies import Failure, Predictions
from consilience.messages.schema import LARGEST, PRECISION
from consilience.messages.scores import CalibrationSums, ClassRatios, PublicScores
from consilience.networks.incoming import Arrival, Request
from consilience.networks.local import LocalNetwork
from consilience.numerics.randomness import stream
from consilience.tasks.base import Task
from consilience.transforms.compressed_messages import CompressedTasks
from consilience.validation.arrays import Array
from consilience.validation.sections import Name, Section, Whole

_LEAST = 1e-6
"""Least probability that a logit is taken of."""

_EVERYWHERE = 1e6
"""Rows that a liar claims at each public row, where it claims to know all of them."""

_SPREAD = 1.5
"""Standard deviations by which ``alie`` is off: τ of Baruch et al. 2019."""

_MARGIN = 1.1
"""Share of a row's margin that ``greedy`` spends on it."""


@dataclass(frozen=True)
class Scene:
    """Sight of a liar: what the others say, and what its own model would.

    Attributes:
        honest: probabilities of the honest parties, shape ``(h, n, K)``.
        own: those of the liar's model, shape ``(n, K)``.
        share: share of liars among all parties, a.
        backdoor: whether each row is one of the backdoor's, shape ``(n,)``, bool.
        rng: of the liar and the round.
    """

    honest: Array
    own: Array
    share: float
    backdoor: Array
    rng: np.random.Generator

    @property
    def mean(self) -> Array:
        """The honest mean h, shape ``(n, K)``."""
        return np.asarray(self.honest.mean(axis=0))

    def sure_of(self, classes: Array | int) -> Array:
        """One-hot answers, shape ``(n, K)``, of one class or of one for each row."""
        one_hot: Array = np.eye(self.own.shape[1])[np.broadcast_to(classes, len(self.own))]
        return one_hot


def _second(scene: Scene) -> Array:
    return scene.sure_of(np.argsort(-scene.mean, axis=1, kind="stable")[:, 1])


def _least_similar(scene: Scene) -> Array:
    logits = np.log(np.maximum(scene.mean, _LEAST))
    similar = np.cov(logits, rowvar=False)
    return scene.sure_of(similar.argmin(axis=1)[scene.mean.argmax(axis=1)])


def _hidden(scene: Scene) -> Array:
    mixed = (1 - scene.share) * scene.mean + scene.share * scene.honest
    harm = -xlogy(scene.mean, np.maximum(mixed, _LEAST)).sum(axis=2)
    return np.asarray(scene.honest[harm.argmax(axis=0), np.arange(len(scene.own))])


def _little_is_enough(scene: Scene) -> Array:
    return onto_simplex(scene.mean - _SPREAD * scene.honest.std(axis=0), scene.mean)


ATTACKS: Mapping[str, Callable[[Scene], Array]] = {
    "random": lambda scene: scene.sure_of(
        scene.rng.integers(scene.own.shape[1], size=len(scene.own))
    ),
    "constant": lambda scene: scene.sure_of(0),
    "flipped": lambda scene: scene.own[:, ::-1],
    "second-class": _second,
    "lma": lambda scene: scene.sure_of(scene.mean.argmin(axis=1)),
    "cpa": _least_similar,
    "hips": _hidden,
    "alie": _little_is_enough,
    "claims-everywhere": _second,
    "greedy": _second,
    "sleeper": _second,
    "backdoor": lambda scene: np.where(scene.backdoor[:, None], scene.sure_of(0), scene.own),
    "sybil": lambda scene: scene.honest[0],
}
"""Attack to the probabilities that a liar sends.

``random``, ``constant`` (the first class), ``flipped`` (its own answer, the classes in reverse order) and
``second-class`` (the honest mean's): baselines. ``lma``: the class that is least likely by h; ``cpa``: the
class whose logits vary least with those of h's likeliest; ``hips``: on each row the honest party's answer
that maximises ``-sum_k h_k ln((1 - a) h_k + a p_k)`` (Roux, Zimmer & Pokutta 2025). ``alie``: h less 1.5
standard deviations, back among the distributions (after Baruch et al. 2019). This library's own:
``claims-everywhere`` (second class, and a million rows claimed at every public row), ``greedy`` (claims no
more than the usual party, where the least is enough to turn a row), ``sleeper`` (second class after some
honest rounds), ``backdoor`` (the first class, with all the usual claims, on one row in a hundred; honest
elsewhere) and ``sybil`` (every liar copies the same honest party, whose word so counts many times).
"""


class Hostile(Section):
    """The liars of a simulation.

    Attributes:
        attack: one of :data:`ATTACKS`.
        parties: how many lie, drawn by the seed; or their names.
        after: rounds in which ``"sleeper"`` is honest.
    """

    attack: str
    parties: Annotated[Whole, Field(ge=0)] | tuple[Name, ...] = 1
    after: Whole = Field(default=3, ge=1)

    @field_validator("attack")
    @classmethod
    def _known(cls, given: str) -> str:
        if given not in ATTACKS:
            raise ValueError(f"no attack is called {given!r}. {nearest(given, sorted(ATTACKS))}")
        return given

    def liars(self, parties: Sequence[str], seed: int) -> tuple[str, ...]:
        """Draw or find the liars among the parties' names, sorted.

        Raises:
            InvalidInput: one has an unknown name, or nobody would be honest.
        """
        if isinstance(self.parties, int):
            drawn = stream(seed, "hostile", 0, "parties").permutation(len(parties))
            named = tuple(sorted(parties)[i] for i in drawn[: self.parties])
        else:
            named = self.parties
        if strangers := sorted(set(named) - set(parties)):
            raise InvalidInput(f"no party is called {strangers[0]!r}", where="hostile.parties")
        if len(set(named)) >= len(parties):
            raise InvalidInput("nobody would be honest", where="hostile.parties")
        return tuple(sorted(set(named)))


@dataclass
class HostileNetwork(LocalNetwork):
    """Network in this process some of whose parties lie in their predictions and scores.

    Metrics are of their models, which learn honestly. Compressed replies cannot be replaced.

    Args:
        hostile: the attack.
        seed: of the run.
    """

    hostile: Hostile = field(kw_only=True)
    seed: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.liars = self.hostile.liars(self.parties, self.seed)
        self._aims: Array | None = None

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        return self._with_lies(super().exchange(tasks, to, request), tasks)

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Ask every party its own question; liars are asked and then replaced."""
        first = next(iter(requests.values()))
        return self._with_lies(super().exchange_each(requests), first.tasks)

    def _with_lies(
        self, arrivals: Mapping[str, Arrival], tasks: tuple[Task, ...]
    ) -> Mapping[str, Arrival]:
        """Replace predictions and scores of the liars that answered."""
        if isinstance(tasks, CompressedTasks):
            raise InvalidInput(
                "compressed replies cannot be replaced", where="hostile", mend="Leave out codec."
            )
        true = {name: one.outcome for name, one in arrivals.items()}
        honest = [
            outcome
            for name, outcome in true.items()
            if name not in self.liars and not isinstance(outcome, Failure)
        ]
        if not honest:
            return arrivals
        return {
            name: one
            if name not in self.liars or isinstance(one.outcome, Failure)
            else one._replace(
                outcome=tuple(
                    self._lie(name, reply, [said[i] for said in honest], tasks[0].round)
                    for i, reply in enumerate(one.outcome)
                )
            )
            for name, one in arrivals.items()
        }

    def _lie(self, name: str, reply: Any, honest: Sequence[Any], round: int) -> Any:
        """One reply of a liar, given the honest parties' replies to the same task."""
        if not isinstance(reply, Predictions | PublicScores):
            return reply
        if self.agreed.kind == "regression":
            raise InvalidInput("attacks are on probabilities of classes", where="hostile")
        said = np.stack([one.values for one in honest]).astype(np.float64)
        if isinstance(reply, Predictions):
            if self.hostile.attack == "sleeper" and round <= self.hostile.after:
                return reply
            values = self._predicted(name, reply, said, round)
        else:
            values = self._claimed(reply, said)
        return replace(reply, values=values.astype(reply.values.dtype))

    def _predicted(self, name: str, reply: Predictions, said: Array, round: int) -> Array:
        """The predictions of a liar, in the form that was asked for."""
        logits = reply.kind == "logits"
        honest = softmax(said, axis=2) if logits else said
        own = softmax(reply.values, axis=1) if logits else reply.values
        scene = Scene(
            honest,
            np.asarray(own, dtype=np.float64),
            share=len(self.liars) / len(self.parties),
            backdoor=self._backdoor(len(own)),
            rng=stream(self.seed, name, round, "hostile"),
        )
        lied = ATTACKS[self.hostile.attack](scene)
        if self.hostile.attack == "greedy" and self._aims is not None:
            lied = np.where(self._aims[:, None] < 0, lied, scene.sure_of(self._aims))
        if logits:
            lied = np.log(np.maximum(lied, _LEAST))
        return np.asarray(lied, dtype=PRECISION[reply.kind])

    def _claimed(self, reply: PublicScores, said: Array) -> Array:
        """The scores of a liar: what it claims to know."""
        attack, own = self.hostile.attack, reply.values
        if attack == "sybil":
            return np.asarray(said[0])
        if attack == "claims-everywhere" and not isinstance(reply, CalibrationSums):
            if own.dtype == np.bool_:
                return np.ones_like(own)
            most = _EVERYWHERE if isinstance(reply, ClassRatios) else said.max() + np.log(LARGEST)
            return np.full_like(own, min(most, reply.at_most))
        if attack in ("greedy", "backdoor") and isinstance(reply, ClassRatios):
            votes = np.maximum(said, 0)
            usual = float(np.median(votes.sum(axis=(1, 2))))
            if attack == "greedy":
                return self._spent(votes.sum(axis=0), usual)
            rows = self._backdoor(len(own))
            return np.where(rows[:, None], np.eye(own.shape[1])[0] * usual / rows.sum(), own)
        return own

    def _spent(self, votes: Array, usual: float) -> Array:
        """Claims of one of the greedy liars, of as many rows as are usual: the cheapest rows, turned.

        Args:
            votes: ratios of all honest parties together, shape ``(n, K)``.
            usual: rows that a party claims as a rule.
        """
        order = np.argsort(-votes, axis=1, kind="stable")
        rows = np.arange(len(votes))
        cost = (
            _MARGIN * (votes[rows, order[:, 0]] - votes[rows, order[:, 1]])
            + usual / len(votes) / 10
        )
        cheapest = np.argsort(cost, kind="stable")
        bought = cheapest[np.cumsum(cost[cheapest]) <= usual * len(self.liars)]
        self._aims = np.full(len(votes), -1)
        self._aims[bought] = order[bought, 1]
        claims = np.zeros_like(votes)
        claims[bought, order[bought, 1]] = cost[bought] / len(self.liars)
        return claims

    def _backdoor(self, rows: int) -> Array:
        """The rows of the backdoor, one in a hundred, bool."""
        drawn = stream(self.seed, "hostile", 0, "backdoor").permutation(rows)
        return np.isin(np.arange(rows), drawn[: max(1, round(rows / 100))])

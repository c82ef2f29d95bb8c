"""Network of a simulation with malicious parties: their replies are replaced before the coordinator checks
them.

Malicious parties train and answer like the others; then the attack replaces their predictions and scores.
Most attacks are omniscient: they see the answers of the honest parties in the same exchange, which no real
attacker does, so that a rule that bears them bears weaker ones. Every replaced reply passes validation.

m parties, n public rows, K classes; h is the mean of the honest parties' probabilities, a the share of
malicious parties. Class t, the turned class, is the fourth, or the last of fewer; class 0 is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import softmax, xlogy

from consilience.core.aggregation import onto_simplex
from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.replies import Failure, Predictions
from consilience.core.messages.schema import LARGEST, PRECISION
from consilience.core.messages.scores import CalibrationSums, ClassRatios, PublicScores
from consilience.core.networks.incoming import Arrival, Request
from consilience.core.networks.local import LocalNetwork
from consilience.core.numerics.randomness import stream
from consilience.core.tasks.base import Task
from consilience.core.tasks.requests import StagedTasks
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows

_LEAST = 1e-6
"""Least probability that a logit is taken of."""

_EVERYWHERE = 1e6
"""Rows claimed at each public row by an attacker that claims expertise on all of them."""

_HELD_OUT = 1e4
"""Calibration rows of class 0 that ``oblivious`` claims at each public row."""

_TURNED = 3
"""Index of the turned class t, if there are so many classes."""

_MOSTLY = 0.75
"""``quiet``: share of its claims that lie on the rows of the turned class."""

_FRAMED, _HELD, _MINOR, _NEARLY = 1.2, 0.05, 0.4, 1e-3
"""``framer``: claimed density at a row, relative to the usual one, and smallest share of its claims in a
class for a party to count as a holder; ``minority``: share of claims on the rarest class; ``near-copy``:
relative size of the noise.
"""

_THIRD, _JITTER = 1 / 3, 0.05
"""``jitter``: share of the public rows with claims, and largest change of a probability."""

_SPREAD = 1.5
"""Standard deviations by which ``alie`` is off: τ of Baruch et al. 2019."""

_MARGIN = 1.1
"""Share of a row's margin that ``greedy`` spends on it."""


@prints_no_rows
@dataclass(frozen=True)
class Scene:
    """View of one attacker at the moment of an answer.

    Attributes:
        honest: probabilities of the honest parties, or their claims, shape ``(h, n, K)``.
        own: those of the attacker's model, or its honest claims, shape ``(n, K)``.
        share: share of malicious parties among all, a.
        backdoor: rows of the backdoor, shape ``(n,)``, bool.
        rng: random stream of the attacker and the round.
        shared: random stream that all attackers of a run have in common.
        truth: class of each public row by the honest parties' density ratios, or by their mean, shape
            ``(n,)``.
        claims: density ratios of the honest parties, shape ``(h, n, K)``; zeros before they were sent.
    """

    honest: Array
    own: Array
    share: float
    backdoor: Array
    rng: np.random.Generator
    shared: np.random.Generator
    truth: Array
    claims: Array

    @property
    def mean(self) -> Array:
        """The honest mean h, shape ``(n, K)``."""
        return np.asarray(self.honest.mean(axis=0))

    @property
    def turned(self) -> Array:
        """Rows of the turned class t, shape ``(n,)``, bool."""
        return np.asarray(self.truth == min(_TURNED, self.own.shape[1] - 1))

    @property
    def usual(self) -> float:
        """Rows that the median honest party claims, of honest claims."""
        return float(np.median(np.maximum(self.honest, 0).sum(axis=(1, 2))))

    @property
    def pooled(self) -> Array:
        """Claims of all honest parties together, shape ``(n, K)``."""
        return np.asarray(np.maximum(self.claims, 0).sum(axis=0))

    @property
    def rarest(self) -> Array:
        """Classes by the number of honest parties that claim them, the rarest first, shape ``(K,)``."""
        held = np.maximum(self.claims, 0).sum(axis=1)
        holders = (held > _HELD * held.sum(axis=1, keepdims=True)).sum(axis=0)
        return np.argsort(holders, kind="stable")

    @property
    def density(self) -> float:
        """Usual density of honest claims at a row: the median over parties of their weighted mean."""
        size = np.maximum(self.claims, 0).sum(axis=2)
        mean = (size**2).sum(axis=1) / np.maximum(size.sum(axis=1), 1e-12)
        return float(np.median(mean)) if mean.any() else 0.0

    @property
    def third(self) -> Array:
        """A random third of the rows, the same for all attackers, shape ``(n,)``, bool."""
        count = max(1, round(_THIRD * len(self.own)))
        return np.asarray(self.shared.permutation(len(self.own)) < count)

    def sure_of(self, classes: Array | int) -> Array:
        """One-hot answers, shape ``(n, K)``, of one class or of one for each row."""
        one_hot: Array = np.eye(self.own.shape[1])[np.broadcast_to(classes, len(self.own))]
        return one_hot

    def spread(self, rows: Array, total: float) -> Array:
        """Claims of class 0, ``total`` in all, evenly over the marked rows, shape ``(n, K)``."""
        return np.asarray((self.sure_of(0) * rows[:, None]) * (total / max(1, rows.sum())))


def _second(scene: Scene) -> Array:
    return scene.sure_of(np.argsort(-scene.mean, axis=1, kind="stable")[:, 1])


def _next(scene: Scene) -> Array:
    classes = scene.own.shape[1]
    wrong = (scene.mean.argmax(axis=1) + 1) % classes
    return np.asarray(0.9 * scene.sure_of(wrong) + 0.1 * scene.mean)


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


def _zero_on(rows: Callable[[Scene], Array]) -> Callable[[Scene], Array]:
    """Class 0 on some rows, the attacker's own answer elsewhere."""
    return lambda scene: np.where(rows(scene)[:, None], scene.sure_of(0), scene.own)


def _jittered(scene: Scene) -> Array:
    noise = _JITTER * scene.rng.random(scene.own.shape)
    moved = scene.sure_of(0) * (1 - noise.sum(axis=1, keepdims=True)).clip(0) + noise
    return np.where(scene.third[:, None], moved / moved.sum(axis=1, keepdims=True), scene.own)


def _mostly_turned(scene: Scene) -> Array:
    """Most of the usual claims for class 0 on the turned rows, the rest the attacker's own elsewhere."""
    elsewhere = np.where(scene.turned[:, None], 0, np.maximum(scene.own, 0))
    kept = (1 - _MOSTLY) * scene.usual
    claims = elsewhere * (kept / max(elsewhere.sum(), 1e-12))
    return np.asarray(claims + scene.spread(scene.turned, _MOSTLY * scene.usual))


def _threaded(scene: Scene) -> Array:
    """Half of the usual claims for class 0 on the rows of class 0, half on the turned rows."""
    half = scene.usual / 2
    return scene.spread(scene.truth == 0, half) + scene.spread(scene.turned, half)


def _relabelled(scene: Scene) -> Array:
    """The usual claims, evenly over all rows, for the class after the true one."""
    rows, classes = scene.own.shape
    return np.asarray(scene.sure_of((scene.truth + 1) % classes) * (scene.usual / rows))


def _turned_rows(scene: Scene) -> Array:
    """Calibration rows of the attacker, those of class t counted as class 0."""
    moved = scene.own.copy()
    turned = min(_TURNED, moved.shape[1] - 1)
    moved[:, 0] += moved[:, turned]
    moved[:, turned] = 0
    return moved


def _framing(scene: Scene) -> Array:
    """Claims of the second class at the rows of the rarest classes, so that their holders are outvoted."""
    votes, claims = scene.pooled, np.zeros_like(scene.own, dtype=np.float64)
    each, left = (
        _FRAMED * scene.density,
        float(np.median(np.maximum(scene.claims, 0).sum(axis=(1, 2)))),
    )
    for y in scene.rarest if each > 0 else ():
        for x in np.flatnonzero(
            (votes.argmax(axis=1) == y) & (votes.max(axis=1) > 0.3 * scene.density)
        ):
            if left < each:
                return claims
            claims[x, np.argsort(-votes[x], kind="stable")[1]] = each
            left -= each
    return claims


def _as_claimed(claims: Callable[[Scene], Array]) -> Callable[[Scene], Array]:
    """Return the claimed class at each row, or the honest answer at rows without claims."""

    def predicts(scene: Scene) -> Array:
        made = claims(scene)
        total = made.sum(axis=1, keepdims=True)
        return np.where(total > 0, made / np.maximum(total, 1e-12), scene.own)

    return predicts


def _rarest_rows(scene: Scene) -> tuple[Array, Array]:
    """Rows of the rarest class, bool, and the second class of every row."""
    order = np.argsort(-scene.pooled, axis=1, kind="stable")
    return order[:, 0] == scene.rarest[0], order[:, 1]


def _rarest_claims(scene: Scene) -> Array:
    rows, second = _rarest_rows(scene)
    claims = np.where(rows[:, None], 0, np.maximum(scene.own, 0)).astype(np.float64)
    claims *= (1 - _MINOR) * scene.usual / max(claims.sum(), 1e-12)
    each = min(1.5 * scene.density, _MINOR * scene.usual / max(1, rows.sum()))
    return np.asarray(claims + each * scene.sure_of(second) * rows[:, None])


def _rarest_answers(scene: Scene) -> Array:
    rows, second = _rarest_rows(scene)
    unsure = 0.6 * scene.sure_of(second) + 0.4 * scene.sure_of(int(scene.rarest[0]))
    return np.where(rows[:, None], unsure, scene.own)


def _second_held_out(scene: Scene) -> Array:
    """As many calibration rows as the attacker has, of the second class at every row."""
    second = np.argsort(-scene.pooled, axis=1, kind="stable")[:, 1]
    return np.asarray(scene.sure_of(second) * (max(1.0, scene.own.sum()) / len(scene.own)))


def _nearly_copied(scene: Scene) -> Array:
    noise = 1 + _NEARLY * scene.rng.random(scene.own.shape)
    copied = scene.honest[0] * noise
    total = scene.honest[0].sum(axis=1, keepdims=True)
    return np.asarray(
        copied * (total / np.where(np.abs(total) > 0, copied.sum(axis=1, keepdims=True), 1))
    )


Answer = Callable[[Scene], Array]
"""Maps an attacker's view to the numbers in its reply, shape ``(n, K)``."""


@dataclass(frozen=True)
class Attack:
    """An attack of a simulation.

    Attributes:
        predicts: makes the probabilities.
        claims: makes the density ratios; ``None`` for the attacker's own.
        held_out: makes the counts of calibration rows; ``None`` for the attacker's own.
        everywhere: whether scores other than ratios are the largest that pass validation.
        late: whether the predictions are honest for the first rounds (:attr:`Hostile.after`).
    """

    predicts: Answer
    claims: Answer | None = None
    held_out: Answer | None = None
    everywhere: bool = False
    late: bool = False


def _copied(scene: Scene) -> Array:
    return np.asarray(scene.honest[0])


def _everywhere(scene: Scene) -> Array:
    return np.full_like(scene.own, _EVERYWHERE)


_ADAPTIVE = {
    "oblivious": Attack(
        lambda scene: scene.sure_of(0),
        claims=lambda scene: scene.sure_of(0) * _EVERYWHERE,
        held_out=lambda scene: scene.sure_of(0) * _HELD_OUT,
        everywhere=True,
    ),
    "quiet": Attack(
        _zero_on(lambda scene: scene.turned), claims=_mostly_turned, held_out=_turned_rows
    ),
    "threader": Attack(
        _zero_on(lambda scene: scene.turned | (scene.truth == 0)),
        claims=_threaded,
        held_out=_turned_rows,
    ),
    "jitter": Attack(_jittered, claims=lambda scene: scene.spread(scene.third, scene.usual)),
    "ratios": Attack(lambda scene: scene.own, claims=_relabelled),
    "framer": Attack(_as_claimed(_framing), claims=_framing),
    "minority": Attack(_rarest_answers, claims=_rarest_claims),
    "no-claims": Attack(
        _second, claims=lambda scene: np.zeros_like(scene.own), held_out=_second_held_out
    ),
    "near-copy": Attack(_nearly_copied, claims=_nearly_copied, held_out=_copied),
    "tilt": Attack(lambda scene: 0.5 * scene.mean + 0.5 * scene.sure_of(0)),
    "next-class": Attack(_next),
}

ATTACKS: Mapping[str, Attack] = {
    "random": Attack(
        lambda scene: scene.sure_of(scene.rng.integers(scene.own.shape[1], size=len(scene.own)))
    ),
    "constant": Attack(lambda scene: scene.sure_of(0)),
    "flipped": Attack(lambda scene: scene.own[:, ::-1]),
    "second-class": Attack(_second),
    "lma": Attack(lambda scene: scene.sure_of(scene.mean.argmin(axis=1))),
    "cpa": Attack(_least_similar),
    "hips": Attack(_hidden),
    "alie": Attack(_little_is_enough),
    "claims-everywhere": Attack(_second, claims=_everywhere, everywhere=True),
    "greedy": Attack(_second),
    "sleeper": Attack(_second, late=True),
    "backdoor": Attack(
        _zero_on(lambda scene: scene.backdoor),
        claims=lambda scene: np.where(
            scene.backdoor[:, None], scene.spread(scene.backdoor, scene.usual), scene.own
        ),
    ),
    "sybil": Attack(_copied, claims=_copied, held_out=_copied),
    **_ADAPTIVE,
    **{f"late-{name}": replace(attack, late=True) for name, attack in _ADAPTIVE.items()},
}
"""Attacks of a simulation by name.

Baselines: ``random``, ``constant`` (the first class), ``flipped`` (the attacker's own answer, the classes in
reverse order), ``second-class`` (the honest mean's). From papers: ``lma``, the least likely class by h;
``cpa``, the class whose logits vary least with those of h's likeliest; ``hips``, on each row the honest
party's answer that maximises ``-sum_k h_k ln((1 - a) h_k + a p_k)`` (all three Roux, Zimmer & Pokutta
2025); ``alie``, h less 1.5 standard deviations, projected onto the distributions (after Baruch et al.
2019).

This library's own: ``claims-everywhere`` (second class, and a million rows claimed at every public row),
``greedy`` (claims no more than the usual party, on the rows that need the fewest claims to be turned),
``sleeper`` (second class after some honest rounds), ``backdoor`` (the first class, with all the usual
claims, on one row in a hundred; honest elsewhere), ``sybil`` (all attackers copy the same honest party).
``oblivious`` sees no other answer: class 0 with certainty, a density ratio of 1e6 for class 0 and 0 for the
others, 1e4 calibration rows of class 0 at every public row. ``quiet`` is honest except on the rows of class
t, which it calls class 0, with the claims of the median party. ``threader`` claims class 0 alone, both on
its true rows and on those of class t, so that attackers confirm one another. ``jitter`` claims class 0 on a
random third of the rows, with jittered answers. ``framer`` claims the second class at the rows of the
rarest classes, so that their few holders look outvoted. ``minority`` turns the rarest class alone,
with low confidence. ``no-claims`` predicts the second class, makes no claims, and has calibration rows of
that class.
``near-copy`` copies one honest party with a little noise. ``tilt`` moves the honest mean halfway to class
0; ``next-class`` answers with the class after the likeliest, and a tenth of the honest mean. ``ratios`` has
an honest model and claims the class after the true one. ``late-`` and a name: the predictions are honest
for some rounds, the claims are not.
"""


@dataclass(frozen=True)
class Hostile:
    """The malicious parties of a simulation.

    Attributes:
        attack: one of :data:`ATTACKS`.
        parties: how many are malicious, drawn by the seed; or their names.
        after: rounds in which ``"sleeper"`` and the attacks named ``"late-…"`` are honest.
    """

    attack: str
    parties: int | tuple[str, ...] = 1
    after: int = 3

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise InvalidInput(
                f"no attack is called {self.attack!r}",
                where="hostile.attack",
                mend=nearest(self.attack, sorted(ATTACKS)),
            )
        if not isinstance(self.parties, tuple):
            check_number("parties", self.parties, at_least=0, whole=True, where="hostile")
        check_number("after", self.after, at_least=1, whole=True, where="hostile")

    def liars(self, parties: Sequence[str], seed: int) -> tuple[str, ...]:
        """Select the malicious parties among the parties' names, at random if only their number is set.

        Returns:
            Their names, sorted.

        Raises:
            InvalidInput: a name is unknown, or no honest party would remain.
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
    """Network in this process with malicious parties, which falsify their predictions and scores.

    Metrics are not falsified, because the models of malicious parties learn honestly. Compressed replies
    cannot be replaced.

    Args:
        hostile: the attack.
        seed: seed of the run.
    """

    hostile: Hostile = field(kw_only=True)
    seed: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.liars = self.hostile.liars(self.parties, self.seed)
        self._attack = ATTACKS[self.hostile.attack]
        self._aims: Array | None = None
        self._truth: Array | None = None
        self._claims: Array | None = None

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        return self._with_lies(super().exchange(tasks, to, request), tasks)

    def exchange_each(self, requests: Mapping[str, Request]) -> Mapping[str, Arrival]:
        """Send each party its request, then replace the replies of malicious parties."""
        first = next(iter(requests.values()))
        return self._with_lies(super().exchange_each(requests), first.tasks)

    def _with_lies(
        self, arrivals: Mapping[str, Arrival], tasks: tuple[Task, ...]
    ) -> Mapping[str, Arrival]:
        """Replace predictions and scores in the replies of malicious parties."""
        if isinstance(tasks, StagedTasks):
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
        """Compute one reply of an attacker from the honest parties' replies to the same task."""
        if not isinstance(reply, Predictions | PublicScores):
            return reply
        if self.agreed.kind == "regression":
            raise InvalidInput("attacks are on probabilities of classes", where="hostile")
        said = np.stack([one.values for one in honest]).astype(np.float64)
        if isinstance(reply, Predictions):
            if self._attack.late and round <= self.hostile.after:
                return reply
            values = self._predicted(name, reply, said, round)
        else:
            values = self._claimed(name, reply, said, round)
        return replace(reply, values=values.astype(reply.values.dtype))

    def _scene(self, name: str, round: int, honest: Array, own: Array) -> Scene:
        """View of an attacker of the honest parties' numbers and its own."""
        truth = honest.mean(axis=0).argmax(axis=1) if self._truth is None else self._truth
        return Scene(
            honest,
            np.asarray(own, dtype=np.float64),
            share=len(self.liars) / len(self.parties),
            backdoor=self._backdoor(len(own)),
            rng=stream(self.seed, name, round, "hostile"),
            shared=stream(self.seed, "hostile", 0, "shared"),
            truth=truth,
            claims=np.zeros_like(honest) if self._claims is None else self._claims,
        )

    def _predicted(self, name: str, reply: Predictions, said: Array, round: int) -> Array:
        """Compute the predictions of an attacker, in the requested form."""
        logits = reply.kind == "logits"
        honest = softmax(said, axis=2) if logits else said
        own = softmax(reply.values, axis=1) if logits else reply.values
        scene = self._scene(name, round, honest, own)
        lied = self._attack.predicts(scene)
        if self.hostile.attack == "greedy" and self._aims is not None:
            lied = np.where(self._aims[:, None] < 0, lied, scene.sure_of(self._aims))
        if logits:
            lied = np.log(np.maximum(lied, _LEAST))
        return np.asarray(lied, dtype=PRECISION[reply.kind])

    def _claimed(self, name: str, reply: PublicScores, said: Array, round: int) -> Array:
        """Compute the falsified scores of an attacker."""
        own = reply.values
        if isinstance(reply, ClassRatios):
            votes = np.maximum(said, 0)
            self._claims = said
            if votes.any():  # coarse ratios may all be 0
                self._truth = votes.sum(axis=0).argmax(axis=1)
            if self.hostile.attack == "greedy":
                usual = float(np.median(votes.sum(axis=(1, 2))))
                return self._spent(votes.sum(axis=0), usual)
            if self._attack.claims is None:
                return own
            claims = self._attack.claims(self._scene(name, round, said, own))
            return np.minimum(claims, reply.at_most)
        if isinstance(reply, CalibrationSums):
            make = self._attack.held_out
            return own if make is None else make(self._scene(name, round, said, own))
        if self.hostile.attack == "sybil":
            return np.asarray(said[0])
        if not self._attack.everywhere:
            return own
        if own.dtype == np.bool_:
            return np.ones_like(own)
        return np.full_like(own, min(said.max() + np.log(LARGEST), reply.at_most))

    def _spent(self, votes: Array, usual: float) -> Array:
        """Compute the claims of one greedy attacker: turn the rows that need the fewest claims.

        Its total claims are at most the usual number of rows.

        Args:
            votes: sum of the ratios of all honest parties, shape ``(n, K)``.
            usual: usual number of rows that a party claims.
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

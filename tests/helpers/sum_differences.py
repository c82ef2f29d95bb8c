"""Try, as a hostile coordinator, to learn one party's answers from differences of secure sums.

Six honest parties at sites of their own, with ``Limits(masks=True)``, keys and a roster each, hold parts of
the digits of unequal classes; no party colludes. The coordinator has one sum over all six opened, of answers
to 300 public rows and 10 classes, and then tries for a second one that tells those of the sixth party. Its
estimate is the least-squares solution of all sums that it got, next to the mean of them all if they leave the
solution open. The error is over the 3,000 answers of the sixth party at the time of the first sum.

* ``alpha``: the same teacher, a weight of private rows of 0.500001 in place of 0.5, a sum over five.
* ``drop-outs``: ten rounds; in each one another party is said to be gone.
* ``per-party alpha``: over all six; the sixth alone is taught with the least weight of private rows.
* ``per-party teacher``: over all six; the sixth alone is taught another teacher.
* ``restore``: the parties go back to the state of the first sum, for one over five.
* ``new run``: five of the six join again.
* ``question``: another rule in the same state, over five and over six.
* ``temperatures``: six temperatures of ``entropy`` over all six, whose sums are equations that have the
  answers of all parties for a solution; of these the one nearest to the sixth party's counts.
* ``between steps``: the sixth is taught after it has given its keys.
* ``ten rounds``: all six are taught the same, with weights and teachers that the last sum suggests.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from consilience import Party
from consilience.core.errors import ConsilienceError
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.base import Network
from consilience.core.networks.incoming import Arrival, decode_reply
from consilience.core.numerics.randomness import limited_threads
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Checkpoint, Join, Restore
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.requests import write_request
from consilience.core.tasks.scores import CountRows
from consilience.privacy.secure_aggregation.masks import least_threshold
from consilience.privacy.secure_aggregation.messages import (
    MaskedInput,
    SealedShares,
    SumKeys,
    SumOpening,
)
from consilience.privacy.secure_aggregation.opened_sum import open_sum
from consilience.privacy.secure_aggregation.party import checked_roster
from consilience.privacy.secure_aggregation.rules_as_sums import bits_for
from consilience.privacy.secure_aggregation.tasks import (
    OpenMasks,
    OpenSum,
    ShareSecrets,
    SumMasked,
    SumQuestion,
)
from consilience.sites.operations.certificates import make_key
from consilience.sites.party import Limits, PartySite
from helpers.party_rules import set_keys

NAMES, VICTIM = "abcdef", "f"
FIVE = NAMES[:-1]
ROWS, CLASSES = 300, 10
ONE = np.arange(ROWS) == 0
"""The public row that is taught before the first sum."""


class Sites(Network):
    """Six parties, each at a site that stays open."""

    def __init__(self, sites: Mapping[str, PartySite]) -> None:
        super().__init__()
        self.sites = sites

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        return {name: decode_reply(name, self.sites[name].answer(request), 0.0) for name in to}


@dataclass
class Coordinator:
    """Hostile coordinator of six sites.

    Attributes:
        network: the sites.
        public: the public rows.
        sums: weight of each party in every opened sum, and the sum, shape ``(300, 10)``.
        refusals: reasons of parties that refused something.
    """

    network: Sites
    public: Public

    def __post_init__(self) -> None:
        self.sums: list[tuple[list[float], Any]] = []
        self.refusals: list[str] = []
        self.powers: list[tuple[Any, Any]] = []
        self.truth: Any = None
        self.attempts, self.asked = 0, Counter[tuple[str, bytes]]()
        federation_over(self.network, self.public, strict=False).form()

    def ask(self, names: Sequence[str], *tasks: Task) -> dict[str, Any]:
        """Ask parties, whatever they may be asked; the last reply of each that answers."""
        found = {}
        for name in names:
            asked = (name, encode(tasks))
            self.asked[asked] += 1  # a request that comes again is marked, to get an answer of now
            request = write_request(tasks, self.asked[asked] - 1)
            replies = decode(self.network.sites[name].answer(request))
            if isinstance(replies[0], Failure):
                self.refusals.append(replies[0].reason)
            else:
                found[name] = replies[-1]
        return found

    def first(self) -> Any:
        """Train all parties, open the sum of all six, and give the sixth's answers.

        One public row is taught, so that there is a teacher and answers are still those of private rows.
        """
        self.ask(NAMES, FitPrivate(round=1))
        self.teach(1, 0.5, taught=ONE)
        assert self.sum(1)
        return self.answers()

    def answers(self) -> Any:
        """Give the sixth party's answers, shape ``(300, 10)``, which a coordinator does not know."""
        party = self.network.sites[VICTIM].party()
        assert party is not None
        return party.trainer.outputs("probabilities").astype(np.float64)

    def teach(
        self,
        round: int,
        alpha: float,
        to: Sequence[str] = NAMES,
        teacher: Any = None,
        taught: Any = None,
    ) -> None:
        """Teach parties, by default that all classes are as likely."""
        flat = np.full((ROWS, CLASSES), 1 / CLASSES, dtype=np.float32)
        targets = flat if teacher is None else teacher.astype(np.float32)
        self.ask(to, Distill(round=round, targets=targets, alpha=alpha, taught=taught))

    def sum(
        self,
        round: int,
        names: Sequence[str] = NAMES,
        *,
        asked: Sequence[str] = "",
        between: Callable[[], None] = lambda: None,
        further: tuple[Task, ...] = (),
        temperature: float = 0.0,
    ) -> bool:
        """Have a sum opened by all four steps, and keep it.

        Args:
            round: the round.
            names: parties of the sum.
            asked: parties that are asked for keys and shares; by default those of the sum.
            between: is called between the keys and the shares.
            further: scores that are asked for with predictions.
            temperature: of the rule ``entropy``, in place of the mean.

        Returns:
            Whether it was opened.
        """
        self.attempts += 1
        tasks = (PredictPublic(round=round), *further)
        form, settings = "rows" if further else "mean", {}
        if temperature:
            form, settings = "entropy", {"temperature": temperature}
        question = SumQuestion(tasks=tasks, form=form, settings=settings)
        threshold = least_threshold(len(NAMES))
        attempt = f"{self.attempts:032d}"
        begin = OpenSum(round=round, question=question.digest, attempt=attempt, threshold=threshold)
        keys: dict[str, SumKeys] = self.ask(asked or names, begin)
        between()
        shared: dict[str, SealedShares] = self.ask(
            list(keys), ShareSecrets(round=round, keys=tuple(keys.values()))
        )
        masked = SumMasked(round=round, shared=tuple(shared.values()), asked=question)
        given: dict[str, MaskedInput] = self.ask([one for one in shared if one in names], masked)
        opening = OpenMasks(round=round, survivors=tuple(given), sharing=len(shared))
        opened: dict[str, SumOpening] = self.ask(list(given), opening)
        inputs = {name: one.values for name, one in given.items()}
        try:
            total = open_sum(begin.domain, threshold, keys, tuple(shared), inputs, opened)
        except (ConsilienceError, ValueError):  # too few opened it, or none gave an input
            return False
        values = total[: ROWS * CLASSES].view(np.int64).reshape(ROWS, CLASSES)
        if further:  # of answers times numbers of rows: it does not single out a party
            return True
        if temperature:
            weights = total[ROWS * CLASSES :].view(np.int64) * 2.0**-40
            self.powers.append((weights, values * 2.0**-40))
            return True
        members = [float(name in given) for name in NAMES]
        self.sums.append((members, values * 2.0 ** -bits_for(1.001)))
        return True

    def estimate(self) -> Any:
        """Estimate the victim's answers of all sums, as if no party's answers had changed."""
        weights = np.array([one for one, _ in self.sums])
        totals = np.stack([total.ravel() for _, total in self.sums])
        mean = (totals / weights.sum(axis=1, keepdims=True)).mean(axis=0)
        known = np.linalg.pinv(weights, rcond=1e-6)[NAMES.index(VICTIM)]
        return (mean + known @ (totals - weights.sum(axis=1, keepdims=True) * mean)).reshape(
            ROWS, CLASSES
        )


Attack = Callable[[Coordinator], Any]
"""What a coordinator does after the first sum; gives the estimate of the victim's answers."""


def by_alpha(coordinator: Coordinator) -> Any:
    """Weights of private rows that hardly differ: no model moves, and the sixth is said to be gone."""
    coordinator.teach(1, 0.500001, taught=ONE)  # in the same round: by the same random numbers
    coordinator.sum(1, FIVE) or coordinator.sum(1, FIVE, asked=NAMES)
    return coordinator.estimate()


def by_drop_outs(coordinator: Coordinator, rounds: int = 10) -> Any:
    """Ten rounds, in each of which another party is said to be gone."""
    for t in range(2, rounds + 1):
        coordinator.teach(t, 0.5 + 1e-6 * t, taught=ONE)
        gone = NAMES[-(t % len(NAMES)) - 1]
        left = [name for name in NAMES if name != gone]
        coordinator.sum(t, left) or coordinator.sum(t, left, asked=NAMES)
    return coordinator.estimate()


def _by_one(coordinator: Coordinator, alpha: float, teacher: Any) -> Any:
    """Change the model of the sixth alone; what it says then is about the teacher."""
    coordinator.teach(2, 0.5, FIVE, taught=ONE)
    coordinator.teach(2, alpha, VICTIM, teacher)
    if not coordinator.sum(2):
        return coordinator.estimate()
    (_, first), (_, second) = coordinator.sums
    return first - second + teacher


def by_own_alpha(coordinator: Coordinator) -> Any:
    """The sixth is taught with another weight than the others."""
    return _by_one(coordinator, 0.1, np.full((ROWS, CLASSES), 1 / CLASSES))


def by_own_teacher(coordinator: Coordinator) -> Any:
    """The sixth is taught one class everywhere."""
    return _by_one(coordinator, 0.1, np.tile(np.eye(CLASSES)[0], (ROWS, 1)))


def by_restore(coordinator: Coordinator) -> Any:
    """The parties go back to the state of the first sum."""
    coordinator.ask(NAMES, Checkpoint(round=1))
    coordinator.teach(2, 0.9)
    coordinator.ask(NAMES, Restore(round=1))
    coordinator.sum(1, FIVE) or coordinator.sum(1, FIVE, asked=NAMES)
    return coordinator.estimate()


def by_new_run(coordinator: Coordinator) -> Any:
    """Five of the six join again, and are asked the same."""
    coordinator.ask(FIVE, Join(agreement=coordinator.network.agreed))
    coordinator.ask(FIVE, FitPrivate(round=1))
    coordinator.teach(1, 0.500001, FIVE, taught=ONE)
    coordinator.sum(1, FIVE)
    return coordinator.estimate()


def by_question(coordinator: Coordinator) -> Any:
    """Another rule in the same state, over five and over six, and the first one over five."""
    coordinator.sum(1, FIVE, further=(CountRows(round=1),))
    coordinator.sum(1, FIVE)
    coordinator.sum(1, NAMES, further=(CountRows(round=1),))
    return coordinator.estimate()


def by_temperatures(coordinator: Coordinator) -> Any:
    """Sums of powers of the weights, over all six, in states of the models that hardly differ."""
    for k in range(1, len(NAMES) + 1):
        coordinator.teach(1 + k, 0.5 + 1e-9 * k, taught=ONE)
        if not coordinator.sum(1 + k, temperature=1.2 / k):
            return coordinator.estimate()
    return solved(
        np.stack([weights for weights, _ in coordinator.powers]),
        np.stack([coordinator.sums[0][1], *(values for _, values in coordinator.powers[:-1])]),
    )


def solved(powers: Any, sums: Any) -> Any:
    """Solve for every party's answers.

    Args:
        powers: sums of the weights to the powers 1 to m, shape ``(m, 300)``.
        sums: sums of the answers times the weights to the powers 0 to m - 1, shape ``(m, 300, 10)``.

    Returns:
        Answers of m parties in some order, row by row, shape ``(m, 300, 10)``.
    """
    m, found = len(powers), []
    for p, s in zip(powers.T, sums.transpose(1, 0, 2), strict=True):
        e = [1.0]  # Newton's identities: elementary symmetric polynomials of sums of powers
        for k in range(1, m + 1):
            e.append(sum((-1) ** (i - 1) * e[k - i] * p[i - 1] for i in range(1, k + 1)) / k)
        weights = np.roots([(-1) ** k * one for k, one in enumerate(e)])
        matrix = np.vander(weights, increasing=True).T
        found.append(np.linalg.lstsq(matrix, s.astype(complex), rcond=None)[0].real)
    return np.stack(found, axis=1)


def between_steps(coordinator: Coordinator) -> Any:
    """The sixth is taught after it has given its keys."""
    teacher = np.tile(np.eye(CLASSES)[0], (ROWS, 1))
    if not coordinator.sum(1, between=lambda: coordinator.teach(1, 0.1, VICTIM, teacher)):
        return coordinator.estimate()
    (_, first), (_, second) = coordinator.sums
    return first - second + teacher


def by_ten_rounds(coordinator: Coordinator, rounds: int = 10) -> Any:
    """All six are taught the same: the last teacher with the classes sharpened, by weights up and down.

    The estimate is the mean of that sum which serves best with hindsight.
    """
    for t in range(2, rounds + 1):
        _, last = coordinator.sums[-1]
        sharp = np.maximum(last, 0) ** 2 + 1e-9
        coordinator.teach(t, (0.1, 0.9)[t % 2], teacher=sharp / sharp.sum(axis=1, keepdims=True))
        coordinator.sum(t)
    totals = [total / len(NAMES) for _, total in coordinator.sums]
    return min(totals, key=lambda one: float(np.abs(one - coordinator.truth).mean()))


def by_squares(coordinator: Coordinator) -> Any:
    """Guess by the first sum alone that parties are surer than their mean."""
    squares = np.maximum(coordinator.estimate(), 0) ** 2
    return squares / squares.sum(axis=1, keepdims=True)


ATTACKS: dict[str, Attack] = {
    "alpha": by_alpha,
    "drop-outs": by_drop_outs,
    "per-party alpha": by_own_alpha,
    "per-party teacher": by_own_teacher,
    "restore": by_restore,
    "new run": by_new_run,
    "question": by_question,
    "temperatures": by_temperatures,
    "between steps": between_steps,
    "ten rounds": by_ten_rounds,
}


@dataclass(frozen=True)
class Error:
    """Error of an estimate of the victim's answers.

    Attributes:
        most: the largest of all answers.
        mean: the mean.
        same: share of the rows whose likeliest class is right.
    """

    most: float
    mean: float
    same: float

    @classmethod
    def of(cls, estimate: Any, truth: Any) -> Error:
        """Compare an estimate with the answers, shape ``(300, 10)``; of several the nearest in each row."""
        if estimate.ndim == 3:
            nearest = np.abs(estimate - truth).mean(axis=2).argmin(axis=0)
            estimate = estimate[nearest, np.arange(ROWS)]
        off = np.abs(estimate - truth)
        same = (estimate.argmax(axis=1) == truth.argmax(axis=1)).mean()
        return cls(float(off.max()), float(off.mean()), float(same))

    def __str__(self) -> str:
        return f"{self.most:.2g} | {self.mean:.2g} | {self.same:.0%}"


def holdings(seed: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """Public rows, and rows and labels of the six parties, with classes as unequal as Dirichlet(1) is."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    public, rest = order[:ROWS], order[ROWS:]
    parts: list[list[int]] = [[] for _ in NAMES]
    for digit in range(CLASSES):
        rows = rest[y[rest] == digit]
        ends = (np.cumsum(rng.dirichlet(np.ones(len(NAMES)))) * len(rows)).astype(int)[:-1]
        for part, some in zip(parts, np.split(rows, ends), strict=True):
            part.extend(some)
    return X[public], [(X[part], y[part].astype(str)) for part in parts]


def run(
    model: Callable[[str], Any], attack: Attack | None, seed: int, limits: Limits | None = None
) -> tuple[Error, Coordinator]:
    """Run an attack against six sites.

    Args:
        model: name of a party to its untrained model.
        attack: what the coordinator does after the first sum; ``None`` for the mean of that sum.
        seed: of the rows.
        limits: of the sites; those with ``masks = true`` by default.

    Returns:
        The error of its estimate, and the coordinator.
    """
    public, parts = holdings(seed)
    with ExitStack() as stack, limited_threads(1):
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        roster = {name: make_key(home / f"{name}.key", name) for name in NAMES}
        sites = {}
        for name, (X, y) in zip(NAMES, parts, strict=True):

            def made(name: str = name, X: Any = X, y: Any = y) -> Party:
                party = Party(name, model(name), X, y)
                identity = (home / f"{name}.key").read_bytes()
                set_keys(party, identity=identity, roster=checked_roster(name, identity, roster))
                return party

            site = PartySite(made, home / name, limits=limits or Limits(masks=True), name=name)
            sites[name] = stack.enter_context(site)
        coordinator = Coordinator(Sites(sites), Public(public))
        coordinator.truth = coordinator.first()
        found = coordinator.estimate() if attack is None else attack(coordinator)
        return Error.of(found, coordinator.truth), coordinator

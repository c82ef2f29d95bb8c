"""Find out, as a hostile coordinator within "predictions", who is in a party's data; with limits and without.

python benchmarks/hostile_coordinator.py            # a quarter of an hour
python benchmarks/hostile_coordinator.py --quick    # a minute; fewer people and trees

One party of 300 heart patients. The coordinator holds 120 records, of which 60 are the party's, and chooses
the public rows, the teacher, its weight, and what it asks for. It is given the threshold that suits it best
with hindsight: *found* is how many of the 60 it names without naming anybody wrongly, beside the AUC.

* by predictions: it teaches every row first one class and then the other, and looks at what the model says
  against the teacher. *Listed*: the records stand among 200 honest rows. *Surrounded*: also copies and close
  rows around each. *Beyond*: a row near each record, as far off as serves it best, and two farther ones.
* by test metrics: of 60 patients that the party measures on. The model is taught one class everywhere, then
  the other at one record at a time; a metric that moves says that the record is there.
* by the seed: it knows all rows but one, and computes what the party says with it and without.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from consilience import Party
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.numerics.randomness import limited_threads
from consilience.core.tasks.lifecycle import Describe, Evaluate, Join, TakePublic
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.lab.data import load
from consilience.sites.party import EVERYTHING, Limits, PartySite

ASKED = 120
GUARDED = Limits()
"""What a party keeps to unless it says otherwise."""
ALPHA = EVERYTHING.model_copy(update={"alpha": GUARDED.alpha})
"""The least weight of the party's own rows alone."""


class Clinic:
    """A party of heart patients, and what the coordinator holds of them.

    Args:
        seed: which patients.
        among: where the first half of those asked about are, ``"rows"`` or ``"tests"``.
    """

    def __init__(self, seed: int, among: str = "rows") -> None:
        data = load("heart-disease", test_fraction=0.3)
        X = np.concatenate([data.X, data.X_test]).astype(np.float64)
        y = np.asarray(data.classes)[np.concatenate([data.y, data.y_test])]
        self.spread = X.std(axis=0)
        self.measured = np.array([len(np.unique(column)) > 5 for column in X.T])
        order = np.random.default_rng(seed).permutation(len(X))
        asked, rest = order[:ASKED], order[ASKED:]
        inside, rows, tests = asked[: ASKED // 2], rest[:240], rest[300:440]
        rows = np.concatenate([inside, rows] if among == "rows" else [rows, rest[240:300]])
        tests = np.concatenate([inside, tests] if among == "tests" else [tests])
        self.rows, self.tests = (X[rows], y[rows]), (X[tests], y[tests])
        self.asked, self.inside = X[asked], np.arange(ASKED) < ASKED // 2
        self.honest = X[rest[440:]]
        self.rng = np.random.default_rng(seed)

    def party(self, model: Any) -> Party:
        """The party, without public rows."""
        return Party("north", model, *self.rows, test=self.tests)

    def near(self, distance: float, times: int = 1) -> np.ndarray:
        """Rows as far from each asked about, in standard deviations of what is measured, time after time."""
        away = self.rng.normal(size=(times, *self.asked.shape)) * self.measured
        away *= distance / np.linalg.norm(away, axis=2, keepdims=True)
        return np.concatenate(self.asked + away * self.spread)

    def close(self) -> np.ndarray:
        """Five copies of each record, and a row on either side in every column that is measured."""
        steps = 0.01 * np.diag(self.spread)[self.measured]
        around = np.concatenate([np.zeros((4, len(self.spread))), steps, -steps])
        return np.concatenate([self.asked + step for step in around])


class Coordinator:
    """Asks one party whatever it likes, through its site.

    Args:
        clinic: whose party.
        model: the party's.
        limits: what it lets itself be asked. Where they let rows overlap, it holds the public rows in a file
            that nobody looked at; else it is sent them.
        public: the rows that the coordinator chooses.
    """

    def __init__(self, clinic: Clinic, model: Any, limits: Limits, public: np.ndarray) -> None:
        self.rows = Public(public.astype(np.float32))
        party, self.round = clinic.party(model), 0
        described = Describe().run(party)
        if limits.overlap:
            party.public = self.rows
        self._folder = tempfile.TemporaryDirectory()
        self.site = PartySite(lambda: party, Path(self._folder.name), limits=limits)
        agreement = negotiate([described], self.rows)
        sent = () if limits.overlap else (TakePublic.of(self.rows),)
        self.refusal = next(
            (
                said.reason
                for task in (*sent, Join(agreement=agreement))
                if isinstance(said := self.ask(task), Failure)
            ),
            "",
        )

    def ask(self, *tasks: Any) -> Any:
        """The last answer."""
        return decode(self.site.answer(encode(tasks)))[-1]

    def taught(
        self, labels: np.ndarray, alpha: float, rows: np.ndarray | None, then: Callable[[int], Any]
    ) -> Any:
        """Predictions after a round in which the party learns these labels, 0 or 1 a public row."""
        self.round += 1
        t = self.round
        if t == 1:
            self.ask(FitPrivate(round=t))
        targets = np.eye(2, dtype=np.float32)[labels]
        said = self.ask(Distill(round=t, targets=targets, alpha=alpha, taught=rows))
        return said if isinstance(said, Failure) else self.ask(then(t))

    def against(self, alpha: float, rows: np.ndarray | None) -> np.ndarray:
        """Distance of the model from a teacher of one class everywhere, for each person asked about."""
        departs = np.zeros(ASKED)
        for label in (0, 1):
            labels = np.full(len(self.rows), label)
            said = self.taught(labels, alpha, rows, lambda t: PredictPublic(round=t))
            if not isinstance(
                said, Failure
            ):  # some models learn from one class alone, others do not
                departs = np.maximum(departs, said.values[:ASKED, 1 - label])
        return departs

    def close(self) -> None:
        self.site.close()
        self._folder.cleanup()


def by_predictions(
    clinic: Clinic, model: Any, limits: Limits, attack: str, distance: float = 0.0
) -> tuple[int, float] | str:
    """Found persons and the AUC; or the reason why the public rows were refused."""
    rows = [clinic.asked, clinic.honest]
    if attack == "surrounded":
        rows = [clinic.asked, clinic.close()]
    if attack == "beyond":
        rows = [clinic.near(distance), clinic.honest, clinic.near(distance + 0.3, 2)]
    public = np.concatenate(rows)
    taught = None if attack == "listed" else np.arange(len(public)) >= ASKED
    coordinator = Coordinator(clinic, model, limits, public)
    if coordinator.refusal:
        coordinator.close()
        return coordinator.refusal
    found = (coordinator.against(alpha, taught) for alpha in (1e-3, 0.5))
    best = max((counted(score, clinic.inside) for score in found), key=lambda pair: pair[1])
    coordinator.close()
    return best


def counted(score: np.ndarray, inside: np.ndarray) -> tuple[int, float]:
    """Persons that score above all absent ones, and the AUC."""
    found = int((score[inside] > score[~inside].max() + 1e-9).sum())
    return found, float(roc_auc_score(inside, score))


def by_metrics(clinic: Clinic, model: Any, limits: Limits) -> tuple[int, int, int]:
    """Found and wrongly named persons, and the number of metrics that were answered."""
    public = np.concatenate([clinic.asked, clinic.close()])
    coordinator = Coordinator(clinic, model, limits, public)
    if coordinator.refusal:  # then without the copies
        coordinator.close()
        coordinator = Coordinator(
            clinic, model, limits, np.concatenate([clinic.asked, clinic.honest])
        )
    owner = np.arange(len(coordinator.rows)) % ASKED
    owner[len(owner) // ASKED * ASKED :] = -1
    owner[5 * ASKED :] = -1  # what lies around the copies
    answers: list[dict[str, float] | None] = []
    for person in range(-2, ASKED):
        labels = (owner == person).astype(np.int64)
        said = coordinator.taught(labels, 0.0, None, lambda t: Evaluate(round=t))
        answers.append(None if isinstance(said, Failure) else dict(said.values))
    coordinator.close()
    base, told = answers[0], answers[2:]
    named = np.array([None not in (base, one) and one != base for one in told])
    answered = sum(one is not None for one in answers)
    return int(named[clinic.inside].sum()), int(named[~clinic.inside].sum()), answered


def by_seed(clinic: Clinic, model: Any, secret: bool, people: int) -> float:
    """AUC of telling, by computing again, whether a person is there when all others are known."""
    X, y = (part[: 100 + people] for part in clinic.rows)
    guesses = 5 if secret else 1

    def said(rows: np.ndarray, secret: bytes) -> np.ndarray:
        party = Party("north", model, X[rows], y[rows], secret=secret)
        party.public = Public(clinic.honest)
        party.join(negotiate([Describe().run(party)], party.public))
        party.fit_private(1)
        return party.outputs("probabilities")

    scores, there = [], []
    for person in range(2 * people):
        number = person % people
        others = np.delete(np.arange(len(X)), number)
        inside = person < people
        rows = np.arange(len(X)) if inside else others
        answer = said(rows, b"its own %d" % person * secret)
        tries = [b"guess %d %d" % (person, guess) * secret for guess in range(guesses)]
        without, with_them = (
            np.mean([np.abs(said(some, one) - answer).mean() for one in tries])
            for some in (others, np.arange(len(X)))
        )
        scores.append(without - with_them)
        there.append(inside)
    return float(roc_auc_score(there, scores))


def models(trees: int) -> dict[str, Callable[[], Any]]:
    """Models that the party may have."""
    return {
        "forest": lambda: RandomForestClassifier(trees),
        "extra trees": lambda: ExtraTreesClassifier(trees),
        "tree": lambda: DecisionTreeClassifier(),
        "5-NN": lambda: KNeighborsClassifier(5),
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "network": lambda: "mlp",
    }


def predictions_table(quick: bool) -> Iterator[str]:
    yield (
        "| by predictions: found of 60 (AUC) | listed | surrounded | listed, alpha alone "
        "| surrounded, alpha alone | listed, limits | surrounded, limits | beyond, limits |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    clinic = Clinic(0)
    for name, make in models(20 if quick else 100).items():
        cells = []
        for limits in (EVERYTHING, ALPHA, GUARDED):
            for attack in ("listed", "surrounded"):
                cells.append(by_predictions(clinic, make(), limits, attack))
        distances = (0.5,) if quick else (0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
        beyond = [by_predictions(clinic, make(), GUARDED, "beyond", d) for d in distances]
        cells.append(max((one for one in beyond if not isinstance(one, str)), default="refused"))
        shown = ("refused" if isinstance(one, str) else f"{one[0]} ({one[1]:.2f})" for one in cells)
        yield f"| {name} | {' | '.join(shown)} |"


def metrics_table(quick: bool) -> Iterator[str]:
    yield "| by metrics | found of 60, wrongly named, answered | under limits |"
    yield "|---|---|---|"
    clinic = Clinic(0, "tests")
    for name, make in models(10 if quick else 30).items():
        if name in ("tree", "forest", "5-NN"):
            cells = (by_metrics(clinic, make(), limits) for limits in (EVERYTHING, GUARDED))
            yield f"| {name} | {' | '.join(', '.join(map(str, cell)) for cell in cells)} |"


def seed_table(quick: bool) -> Iterator[str]:
    yield "| by the seed: AUC | seed known | with a secret |"
    yield "|---|---|---|"
    clinic, people = Clinic(0), 10 if quick else 40
    for name in ("forest", "logistic regression", "network"):
        make = models(20)[name]
        known, hidden = (by_seed(clinic, make(), secret, people) for secret in (False, True))
        yield f"| {name} | {known:.2f} | {hidden:.2f} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--quick", action="store_true")
    quick = asked.parse_args().quick
    with limited_threads(1):
        for table in (predictions_table, metrics_table, seed_table):
            for line in table(quick):
                print(line, flush=True)
            print()


if __name__ == "__main__":
    main()

"""Heart disease at four hospitals: every patient and column as they are, beside the reduced table.

    python benchmarks/heart.py             # 20 seeds; goes on where it was stopped
    python benchmarks/heart.py --seeds 2   # to see that it works

Three tables of the same patients, divided alike with each seed: *reduced* as FLamby does, complete patients
and ten columns of numbers; *ten columns*, every patient, gaps as gaps and categories as categories; and *all
columns*, the three too that few hospitals measured. Four kinds of model, a tenth of each hospital's patients
public. Parties are compared on their own test patients, alone and after each rule. Then, with all columns,
each hospital in turn lacks half of them, has no labels, or has a model that is never trained again.

A trial is kept under runs/results/heart/ with a digest of the library's code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from page import table, write
from rivals import digest

from consilience import Federation, Frozen, Party, PrivateTable, ensemble_distillation
from consilience.core.aggregation import AGGREGATORS
from consilience.core.metrics.metrics import metrics_of
from consilience.core.numerics.losses import row_losses
from consilience.core.numerics.randomness import stream
from consilience.core.protocols import local_only
from consilience.lab.data import load
from consilience.models import make
from consilience.tables.splits import take_public
from consilience_papers.study import Study

FOLDER = Path(__file__).parent.parent / "runs" / "results" / "heart"
MODELS: Mapping[str, Mapping[str, Any]] = {
    "cleveland": {"name": "random-forest"},
    "hungarian": {"name": "logistic-regression"},
    "switzerland": {"name": "knn", "n_neighbors": 15},
    "va": {"name": "gradient-boosting", "max_iter": 50},
}
"""As in ``examples/heart.toml``."""
HOSPITALS = tuple(MODELS)
SPARSE = ("slope", "ca", "thal")
EXERCISE = ("thalach", "exang", "oldpeak", *SPARSE)
"""Columns of the exercise test and of imaging: half of all, and those that say most."""
TABLES = ("reduced", "ten columns", "all columns")
RULES = ("avg", "density-ratio", "auto")
ROLES = ("lacks half of the columns", "no labels", "frozen")
ROUNDS = 5


@cache
def patients() -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All patients as a table, labels, hospitals, rows of the reduced table, and who is in it."""
    full, reduced = load("heart-disease", gaps=True), load("heart-disease")
    X = np.concatenate([full.X, full.X_test])
    y = np.concatenate([full.y, full.y_test])
    hospital = np.concatenate([full.group, full.group_test])
    frame = full.schema.frame(X)
    named = {
        f"cp={i}": ("cp", word) for i, word in ((2, "atypical"), (3, "other pain"), (4, "none"))
    }
    named |= {f"restecg={i}": ("restecg", n) for i, n in ((1, "ST-T wave"), (2, "hypertrophy"))}
    codes = {name: frame[column] == word for name, (column, word) in named.items()}
    zeros = frame[["trestbps", "chol"]].fillna(0)  # there 0 stands for a gap
    numbers = frame.assign(sex=frame["sex"] == "male", **codes, **zeros)
    numbers = numbers[list(reduced.columns)].to_numpy(np.float32)
    sides = (
        zip(reduced.group, reduced.y, reduced.X.tolist(), strict=True),
        zip(reduced.group_test, reduced.y_test, reduced.X_test.tolist(), strict=True),
    )
    complete = {(group, label, *row) for side in sides for group, label, row in side}
    lines = zip(hospital, y, numbers.tolist(), strict=True)
    kept = np.array([(group, label, *row) in complete for group, label, row in lines])
    assert kept.sum() == len(reduced.X) + len(reduced.X_test)
    return frame, y, hospital, numbers, kept


def division(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, public and test patients: of each hospital's a third tests, a tenth of the rest is public."""
    _, y, hospital, _, _ = patients()
    rest, test = take_public(y, 0.34, stream(seed, "heart", 0, "test"), group=hospital)
    rng = stream(seed, "heart", 0, "public")
    train, public = take_public(y[rest], 0.1, rng, group=hospital[rest])
    return rest[train], rest[public], test


def rows(name: str, which: np.ndarray) -> tuple[Any, np.ndarray]:
    """Rows of a table and the patients they are of: all of these that the table has."""
    frame, _, _, numbers, kept = patients()
    if name == "reduced":
        which = which[kept[which]]
        return numbers[which], which
    found = frame.iloc[which].reset_index(drop=True)
    return found.drop(columns=list(SPARSE)) if name == "ten columns" else found, which


def trial(
    repetition: int, name: str, rule: str, turn: int | None = None, code: str = ""
) -> dict[str, Any]:
    """Probabilities of disease of every patient that is tested, by the model of the own hospital.

    Args:
        repetition: the seed.
        name: of the table.
        rule: of the teacher, or ``"central"``.
        turn: how far roles have moved on among hospitals; ``None`` for none.
        code: digest of the library, by which trials are kept.
    """
    train, public, test = division(repetition)
    y, hospital = patients()[1:3]
    words = np.array(["healthy", "diseased"])
    parties, roles = [], roles_of(turn)
    for one, model in MODELS.items():
        mine = train if rule == "central" else train[hospital[train] == one]
        X, who = rows(name, mine)
        role, made, options = roles.get(one), make(**model), {}
        if role == "lacks half of the columns":
            X, options = X.drop(columns=list(EXERCISE)), {"missing": "allowed"}
        if role == "frozen":
            made = vendor(one, model, X, words[y[who]], repetition)
        labels = None if role == "no labels" else words[y[who]]
        parties.append(Party(one, made, PrivateTable(X, unknown="missing"), labels, **options))
    federation = Federation(parties, rows(name, public)[0], seed=repetition, strict=False)
    protocol = (
        local_only()
        if rule == "central"
        else ensemble_distillation(aggregate=AGGREGATORS[rule](), rounds=ROUNDS)
    )
    models = federation.run(protocol, progress=False).models
    said = {side: np.full(len(y), np.nan) for side in ("alone", "taught", "after", "others")}
    for one, model in models.items():
        X, who = rows(name, test[hospital[test] == one])

        def ill(model: Any, X: Any = X) -> np.ndarray:
            return model.predict_proba(X)[:, model.classes.index("diseased")]

        said["after"][who] = ill(model)
        for side in ("alone", "taught"):
            if (other := getattr(model, side, None)) is not None:
                said[side][who] = ill(other)
        if roles.get(one) == "no labels":
            alone = [m.alone or m for party, m in models.items() if party != one]
            said["others"][who] = np.mean([ill(model) for model in alone], axis=0)
    return said


def roles_of(turn: int | None) -> dict[str, str]:
    """Role of each hospital that has one."""
    if turn is None:
        return {}
    return {HOSPITALS[(turn + i) % len(HOSPITALS)]: role for i, role in enumerate(ROLES)}


def vendor(name: str, model: Any, X: Any, y: np.ndarray, seed: int) -> Frozen:
    """A hospital's model as it was trained there once, behind a function."""
    party = Party(name, make(**model), PrivateTable(X, unknown="missing"), y)
    alone = Federation([party], X, seed=seed, strict=False).run(local_only(), progress=False)
    trained = alone.models[name]
    return Frozen(trained.predict_proba, classes=trained.classes)


# --- the page -------------------------------------------------------------------------------------


def averages(cells: Mapping[tuple[str, str], list[str]], name: str) -> list[str]:
    """Mean over hospitals of the cells of a table, where they have a figure."""
    columns = zip(*(cells[one, name][1:] for one in HOSPITALS), strict=True)
    told = ([float(cell.split()[0]) for cell in column if cell != "–"] for column in columns)
    return [f"{np.mean(values):.3f}" for values in told]


Trials = Mapping[str, np.ndarray]


def targets() -> np.ndarray:
    """Truth of every patient, healthy and diseased, shape ``(n, 2)``."""
    ill = patients()[1].astype(float)
    return np.stack([1 - ill, ill], axis=1)


def of(said: np.ndarray, hospital: str | None = None) -> np.ndarray:
    """Mark the answers that are there, of one hospital's patients or all, shape ``(seeds, n)``."""
    here = patients()[2] == hospital if hospital else True
    return ~np.isnan(said) & here


def outputs(said: np.ndarray) -> np.ndarray:
    """Probabilities of both classes, shape ``(n, 2)``."""
    return np.stack([1 - said, said], axis=1)


def measured(said: np.ndarray, hospital: str, metric: str) -> str:
    """A metric of a hospital's own test patients: mean over seeds, of AUC with their standard deviation."""
    marks = of(said, hospital)
    if not marks.any():
        return "–"
    parts = [(outputs(one[mark]), targets()[mark]) for one, mark in zip(said, marks, strict=True)]
    if metric == "ece":  # of all seeds at once: few rows have a large error by chance
        P, T = (np.concatenate(side) for side in zip(*parts, strict=True))
        return f"{metrics_of(P, T)['ece']:.3f}"
    values = np.array([metrics_of(*part).get(metric, np.nan) for part in parts])
    if np.isnan(values).any():  # a seed without healthy patients
        return "–"
    spread = f" ± {values.std(ddof=1):.3f}" if metric == "auc" and len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}"


def losses(said: np.ndarray, metric: str) -> np.ndarray:
    """Log loss or squared error of the probability of disease, shape ``(seeds, n)``; NaN without one."""
    found = np.full(said.shape, np.nan)
    for seed, (one, mark) in enumerate(zip(said, of(said), strict=True)):
        kind: Any = "classification" if metric == "log loss" else "regression"
        values = row_losses(outputs(one[mark]), targets()[mark], kind)
        found[seed, mark] = values if metric == "log loss" else values / 2
    return found


def gain(before: np.ndarray, after: np.ndarray, hospital: str, metric: str) -> str:
    """Loss before less that after at the same patients, ± its standard error; bold beyond two of these.

    The error is over seeds and, of the mean difference of each patient, over patients: both variances are
    added, as on a run's own page.
    """
    marks = of(before + after, hospital)
    if not marks.any():
        return "–"
    less = np.where(marks, losses(before, metric) - losses(after, metric), np.nan)
    tested, seeds = marks.any(axis=0), marks.any(axis=1)
    each, rounds = np.nanmean(less[:, tested], axis=0), np.nanmean(less[seeds], axis=1)
    error = np.sqrt(
        sum(np.var(v, ddof=1) / len(v) if len(v) > 1 else np.inf for v in (each, rounds))
    )
    text = f"{rounds.mean():+.3f} ± {error:.3f}"
    return f"**{text}**" if abs(rounds.mean()) > 2 * error else text


def worse(before: np.ndarray, after: np.ndarray, hospital: str) -> str:
    """Count the seeds whose log loss rose by more than the standard error of the difference."""
    marks = of(before + after, hospital)
    more = losses(after, "log loss") - losses(before, "log loss")
    rows = [one[mark] for one, mark in zip(more, marks, strict=True) if mark.sum() > 1]
    count = sum(one.mean() > one.std(ddof=1) / np.sqrt(len(one)) + 1e-9 for one in rows)
    return f"{count} of {len(rows)}"


def page(found: Callable[..., Trials]) -> Iterable[str]:
    """The page, of trials by table, rule and turn."""
    _, y, hospital, _, kept = patients()

    def answers(name: str, which: str) -> np.ndarray:
        rule = "auto" if which in ("alone", "taught") else which
        return found(name, rule)["after" if which == rule else which]

    columns = ("alone", *RULES, "central")
    yield from INTRODUCTION.format(rounds=ROUNDS).splitlines()
    count = {
        one: [f"{here.sum()}, {kept[here].sum()}", f"{y[here].mean():.0%}", MODELS[one]["name"]]
        for one in HOSPITALS
        for here in [hospital == one]
    }
    heads = ("hospital", "patients, complete ones", "ill", "model")
    yield from ["", *table(heads, [(one, *cells) for one, cells in count.items()]), ""]
    for metric, title in METRICS.items():
        yield from [f"## {title}", ""]
        cells = {
            (one, name): [name, *(measured(answers(name, which), one, metric) for which in columns)]
            for one in HOSPITALS
            for name in TABLES
        }
        yield from table(
            ("hospital", "table", *columns),
            [
                *((one, *cells[one, name]) for one in HOSPITALS for name in TABLES),
                *(("mean", name, *averages(cells, name)) for name in TABLES),
            ],
        )
        yield ""
    yield from [*AFTER.splitlines(), ""]
    yield from table(
        (
            "hospital",
            "table",
            "log loss, auto",
            "squared error, auto",
            "seeds worse",
            "log loss, avg",
            "log loss, density-ratio",
        ),
        [
            (
                one,
                name,
                *(gain(alone, answers(name, "auto"), one, loss) for loss in ("log loss", "square")),
                worse(alone, answers(name, "auto"), one),
                *(gain(alone, answers(name, rule), one, "log loss") for rule in RULES[:2]),
            )
            for one in HOSPITALS
            for name in TABLES
            for alone in [answers(name, "alone")]
        ],
    )
    yield from ["", *RESTORED.splitlines(), ""]
    steps = ((TABLES[0], TABLES[1]), (TABLES[1], TABLES[2]))
    yield from table(
        (
            "hospital",
            "step",
            "log loss, alone",
            "log loss, auto",
            "squared error, alone",
            "squared error, auto",
        ),
        [
            (
                one,
                f"{first} → {then}",
                *(
                    gain(answers(first, who), answers(then, who), one, loss)
                    for loss in ("log loss", "square")
                    for who in ("alone", "auto")
                ),
            )
            for first, then in steps
            for one in HOSPITALS
        ],
    )
    yield from ["", *OTHERS.splitlines(), ""]
    lines = []
    for role in (*ROLES, "as it is"):
        for i, one in enumerate(HOSPITALS):
            turns = [t for t in range(4) if roles_of(t).get(one, "as it is") == role]
            said = found("all columns", "auto", turns[0])
            before = said["others" if role == "no labels" else "alone"]
            if role == "frozen":
                before = said["after"]
            lines.append(
                (
                    role if not i else "",
                    one,
                    *(
                        measured(side, one, m)
                        for m in ("auc", "brier")
                        for side in (before, said["after"])
                    ),
                    "never taught"
                    if role == "frozen"
                    else gain(before, said["after"], one, "log loss"),
                )
            )
    yield from table(
        ("role", "hospital", "AUC before", "AUC after", "Brier before", "Brier after", "log loss"),
        lines,
    )
    yield from ["", *READ.splitlines()]


METRICS = {
    "auc": "AUC",
    "brier": "Brier score",
    "ece": "Calibration error",
}
INTRODUCTION = """\
Four hospitals, four kinds of model, {rounds} rounds, each hospital measured on its own test patients, a
third of all; a tenth of the others is public. **Reduced** is the table as FLamby has it: complete patients,
ten columns, as numbers. **Ten columns** are these of every patient, gaps as gaps and categories as
categories. **All columns** are thirteen: `slope`, `thal` and `ca` too, which Cleveland measured, and the
others of few. A seed divides the patients alike for all tables. Central is the hospital's kind of model,
trained on all hospitals' patients. A gain is a loss before less the loss after, at the same patients, ± its
standard error (over seeds, and over patients); bold are those of more than two. The calibration error is
that of all seeds' test rows together, in 15 bins. The schema is that of the public rows, and a category
that is not among them is a gap.
"""
AFTER = """\
## Alone and after

Gains of the mixture that a party ends with, the default, over its model alone; and the seeds in which its
log loss is higher by more than the standard error of the difference.
"""
RESTORED = """\
## What restored patients and columns bring

The first step is measured on the complete patients, the second on all.
"""
OTHERS = """\
## Half of the columns, no labels, never trained

All columns, rule `auto`. Each hospital in turn lacks half of them (the exercise test and imaging, which say
most), the next one has no labels, the next a model that it trained once and that never changes, and the
fourth is as it is: four federations with every seed. *Before* is the model alone; a hospital without labels
has none, and is held against the mean of the predictions of the three other models.
"""
READ = """\
## What to read in them

- **Nobody is worse for what was restored**, by two standard errors; what helps is mostly the three columns.
  By them Cleveland gains 0.040 in AUC (with `auto`) and 0.055 nats, Switzerland 0.055 and 0.033, Hungarian
  0.017 and 0.017. VA, which has `ca` of two patients in 200 and `thal` of a sixth, is a little worse in
  every column of the table, by about one standard error: 0.007 in AUC and 0.010 nats.
- **Patients that were left out** bring the complete ones nothing that can be told from chance, and the
  hospitals a measure: Switzerland has 8 healthy patients and not one.
- **After exchange** the mean AUC over hospitals is 0.808 with all columns, 0.768 alone, 0.817 with all
  patients in one place. `auto` is better than alone in log loss in all twelve lines, in three by two standard
  errors, and in none behind the mean or the density ratio by more than its error.
- **Small hospitals** are not worse under `auto` in the mean, and a seed may be: Switzerland's reduced table
  has 46 patients, of whom one is healthy, and in 9 of 20 seeds its log loss is higher,
  which is what the share costs that the taught model has of every row. With all patients it is 3 of 20
  seeds; its gain is of few patients and not twice its standard error. Its AUC alone (0.67)
  is that of hardly any healthy rows to learn from, and has the widest spread.
- **Calibration** gets better at Hungarian and VA and worse at Cleveland, whose forest is right by itself:
  mixtures are a little too flat. A model of all patients has the share of ill of all, and that is wrong in
  Switzerland (Brier score 0.105, alone 0.057).
- **Half of the columns**: every hospital gains by exchange, Switzerland for sure. **As it is**: every one
  gains.
- **Without labels** Cleveland and Hungarian are better in log loss than the mean of three strangers' models,
  Switzerland is as good within two standard errors, and **VA is worse** (Brier score 0.205 against 0.172):
  its boosted trees have 61 public rows to learn from, whose teacher does not know that three quarters of its
  patients are ill.
  Switzerland ranks worse too (AUC 0.778 against 0.799). Beside their own labels' models, in the lines
  *as it is*, Switzerland and VA have a higher AUC without labels, and all four a higher Brier score.
- **Frozen** models stay as they are; they are no worse for it, and no better.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()

    def report(label: str, done: int, total: int) -> None:
        print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)

    study = Study(FOLDER, processes=1, report=report)

    @cache
    def found(name: str, rule: str, turn: int | None = None) -> Trials:
        label = f"{name}, {rule}, {turn}"
        return study.repeat(
            trial, given.seeds, label=label, name=name, rule=rule, turn=turn, code=digest()
        )

    write(__file__, page(found), about=f"seeds 0 to {given.seeds - 1}")


if __name__ == "__main__":
    main()

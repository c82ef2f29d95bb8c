"""A federation of gradient-boosted trees on tables, by FFGB, beside local and central boosting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from consilience.core.federation.federation import Federation
from consilience.core.learners import Learner
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.protocols import local_only
from consilience.core.validation.arrays import Array
from consilience.lab.data import Dataset, load, partition, take_public
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.models.presets import make
from consilience_papers.comparisons import differs, said, standard_error
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = dict[str, Any]
Scores = Mapping[str, NDArray[np.float64]]

DEPTH = 3
"""Of a tree."""

STEP_SIZES = (0.1, 0.3, 1.0)
"""η, of which one is chosen."""

LEAF = 5
"""The fewest rows in a leaf."""


@dataclass(frozen=True)
class Table:
    """A data set, who holds what of it, and by what models are measured.

    Attributes:
        data: its name.
        title: as people write it.
        metric: ``"AUC"`` or ``"accuracy"``.
        parties: how many.
        share: s of the sorted split; ``None``: by the data's own groups.
        rounds: T, with a tree of every party in each.
        local_steps: K of the variant with few rounds.
    """

    data: str
    title: str
    metric: str
    parties: int
    share: float | None
    rounds: int
    local_steps: int


TABLES = {
    "heart disease": Table(
        "heart-disease", "heart disease, four hospitals", "AUC", 4, None, rounds=60, local_steps=5
    ),
    "digits": Table(
        "digits", "digits as a table, ten parties, s = 0.3", "accuracy", 10, 0.3, rounds=40, local_steps=5
    ),
}  # fmt: skip
"""Patients by hospital, and 64 pixel counts of written digits, sorted by label but for 30 %."""

METHODS = ("local", "FFGB", "FFGB, few rounds", "central", "central, scikit-learn")


def trees(study: Study) -> Exhibit:
    """FFGB with trees against local and central boosting."""
    repetitions = study.times(10, 2)
    tables = dict(TABLES)
    if study.quick:
        tables = {
            name: Table(**{**asdict(t), "rounds": 4, "local_steps": 2})
            for name, t in tables.items()
        }
    cells: dict[str, dict[str, Scores]] = {
        name: {
            method: study.repeat(
                boosted, repetitions, label=f"trees, {name}, {method}", method=method, table=asdict(t)
            )
            for method in METHODS
        }
        for name, t in tables.items()
    }  # fmt: skip
    rows = [
        {
            "data": tables[name].title,
            "method": method,
            "metric": tables[name].metric,
            "all test rows": float(found["all"].mean()),
            "standard error": standard_error(found["all"]),
            "standard deviation": float(found["all"].std(ddof=1)),
            "own test rows": float(found["own"].mean()),
            "kB a party": float(found["kilobytes"].mean()) or None,
            "repetitions": repetitions,
        }
        for name, cell in cells.items()
        for method, found in cell.items()
    ]
    claims = [claim for name, cell in cells.items() for claim in claims_of(name, cell)]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(cells))
        for axis, (name, cell) in zip(np.atleast_1d(axes), cells.items(), strict=True):
            for i, found in enumerate(cell.values()):
                axis.plot(found["all"], np.full(repetitions, i), "o", color="C0", alpha=0.3)
                axis.plot(found["all"].mean(), i, "|", color="k", markersize=16)
            axis.set_yticks(range(len(cell)), labels=list(cell))
            axis.set(title=name, xlabel=f"{tables[name].metric}, all test rows")
            axis.invert_yaxis()

    plan = "; ".join(
        f"{t.title}: T = {t.rounds}, or {t.rounds // t.local_steps} with K = {t.local_steps}"
        for t in tables.values()
    )
    return Exhibit(
        "trees",
        "Trees boosted together, alone, and by whoever has all rows",
        rows,
        claims,
        [
            f"Trees of depth {DEPTH} with {LEAF} rows or more in a leaf, cross-entropy, all parties in "
            f"every round, no public rows. {plan}. Local and central boosting are the ordinary one, "
            "without a residual, in as many steps as FFGB takes rounds times K. All have the same step "
            "size: that of 0.1, 0.3 and 1 with which central boosting does best on a fifth of the "
            "training rows, held out for this, in every repetition. “central, scikit-learn” is "
            "HistGradientBoostingClassifier at its defaults on all rows: another implementation, to see "
            "that ours is a fair one.",
            "“all test rows”: of all parties' test rows together, the mean over models where each party "
            "has its own. “own test rows”: every party's model on its own, the mean over parties with "
            "two classes there. A repetition draws training and test rows anew.",
        ],
        draw,
    )


def claims_of(name: str, cell: Mapping[str, Scores]) -> list[Claim]:
    """FFGB is better than boosting alone, and as good as central boosting."""
    claims = []
    for method in ("FFGB", "FFGB, few rounds"):
        gain = cell[method]["all"] - cell["local"]["all"]
        claims.append(
            Claim(
                f"{name}: {method} is better than boosting alone, on all test rows",
                differs(gain),
                f"gained {said(gain)}",
            )
        )
    short = cell["central"]["all"] - cell["FFGB"]["all"]
    gap = cell["central"]["all"] - cell["local"]["all"]
    claims.append(
        Claim(
            f"{name}: FFGB gets at least half of the way from local to central boosting",
            bool(short.mean() <= gap.mean() / 2),
            f"FFGB lacks {said(short)}, local boosting {said(gap)}",
        )
    )
    return claims


# --- one repetition -----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _drawn(data: str, repetition: int) -> Dataset:
    return load(data, seed=repetition)


def parties_of(table: Table, repetition: int, model: Learner) -> tuple[list[Party], Dataset]:
    """The parties with training and test rows of their own, and the rows of all."""
    whole = _drawn(table.data, repetition)
    rng = stream(repetition, f"shen2022/{table.data}", 0, "parties")
    if table.share is None:
        parts = partition("group", whole.y, table.parties, rng, group=whole.group)
        tests = partition("group", whole.y_test, table.parties, rng, group=whole.group_test)
    else:
        parts = partition("shards", whole.y, table.parties, rng, share=table.share)
        tests = partition("shards", whole.y_test, table.parties, rng, share=table.share)
    return [
        Party(
            f"party-{i:02}",
            model,
            whole.X[rows],
            whole.y[rows],
            test=(whole.X_test[test], whole.y_test[test]),
            calibration=0,
        )
        for i, (rows, test) in enumerate(zip(parts, tests, strict=True))
    ], whole


def boosted(*, method: str, table: Mapping[str, Any], repetition: int) -> Numbers:
    """Measure models on all test rows, and on every party's own.

    Args:
        method: of :data:`METHODS`.
        table: the fields of a :class:`Table`.
        repetition: which draw of training and test rows.
    """
    what = Table(**table)
    K = what.local_steps if method == "FFGB, few rounds" else 1
    step_size = chosen_step_size(what, repetition)
    model: Learner = _booster(what, step_size)
    if method == "central, scikit-learn":
        model = make("gradient-boosting")
    owners, whole = parties_of(what, repetition, model)
    parties, protocol = owners, local_only()
    if method.startswith("FFGB"):
        protocol = functional_gradient_boosting(
            rounds=what.rounds // K, local_steps=K, step_size=step_size
        )
    elif method.startswith("central"):
        parties = [Party("all", model, whole.X, whole.y, calibration=0)]
    federation = Federation(parties, seed=repetition, strict=False)
    for _ in federation.rounds(protocol):
        pass
    models = list(federation.network.models().values())
    sent = sum(delivery.bytes_up for delivery in federation.network.deliveries)
    if method != "local":
        models = models[:1] * len(owners)  # one for all
    own = []
    for party, one in zip(owners, models, strict=True):
        assert party.rows.test is not None
        X, names = party.rows.test
        codes = names.astype(np.int64)
        if len(np.unique(codes)) > 1:
            own.append(score(what.metric, one.learner.predict(X), codes))
    everywhere = models if method == "local" else models[:1]
    scores = [
        score(what.metric, one.learner.predict(whole.X_test), whole.y_test) for one in everywhere
    ]
    return {
        "all": np.mean(scores),
        "own": np.mean(own),
        "kilobytes": sent / len(parties) / 1e3 if method.startswith("FFGB") else 0.0,
        "step size": step_size,
    }


def chosen_step_size(table: Table, repetition: int) -> float:
    """The step size with which central boosting does best on a fifth of the training rows."""
    whole = _drawn(table.data, repetition)
    rng = stream(repetition, f"shen2022/{table.data}", 0, "held out")
    kept, held = take_public(whole.y, 0.2, rng)
    targets = np.eye(len(whole.classes or ()))[whole.y]
    found = []
    for step_size in STEP_SIZES:
        model = _booster(table, step_size)
        model.bind(targets.shape[1])
        model.fit(whole.X[kept], targets[kept], rng=stream(repetition, "all", 0, "fit"))
        found.append(score(table.metric, model.predict(whole.X[held]), whole.y[held]))
    return STEP_SIZES[int(np.argmax(found))]


def _booster(table: Table, step_size: float) -> Boosted:
    """Ordinary gradient boosting, where it is trained by itself."""
    weak = {"name": "tree-regressor", "max_depth": DEPTH, "min_samples_leaf": LEAF}
    return Boosted(weak, steps=table.rounds, step_size=step_size, residual=False)


def score(metric: str, probabilities: Array, codes: Array) -> float:
    """AUC of the second class, or accuracy.

    >>> score("AUC", np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1]))
    1.0
    """
    if metric == "AUC":
        return float(roc_auc_score(codes, probabilities[:, 1]))
    return float((probabilities.argmax(axis=1) == codes).mean())

"""Order of UWA and AVG with few classes: what clients' densities know, in the first round and after many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import roc_auc_score

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.base import Stack
from consilience.core.federation.federation import Federation
from consilience.core.messages.scores import LogDensities
from consilience.core.protocols import ensemble_distillation
from consilience.core.validation.arrays import Array
from consilience.lab.experiments import SimulatedParties
from consilience_papers.comparisons import differs, said
from consilience_papers.exhibit import Claim, Exhibit, Row
from consilience_papers.kovalchuk2026 import problems
from consilience_papers.kovalchuk2026.grid import COLOURS, about, spread
from consilience_papers.kovalchuk2026.problems import RULES, SIZES, Size
from consilience_papers.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 0.2
"""Of the classes that a client holds: where the paper has UWA far ahead."""

ROUNDS = 25
"""Of the long runs: the paper has its methods need 20 to 30."""

Numbers = dict[str, Any]


def _changed(samples: int, *, model: Mapping[str, Any] | None = None, **recipe: Any) -> Size:
    """CIFAR-10's size for one core, with other numbers of rows, another network or another recipe."""
    how = SIZES["cifar-10"]["cpu"]
    learned = {**how.model["recipe"], **recipe}
    return replace(
        how, samples=samples, rounds=1, model={**(model or how.model), "recipe": learned}
    )


PLAIN = "CIFAR-10"
"""The setting that others change one thing of, and that goes on for many rounds."""


def settings(*, quick: bool) -> dict[str, tuple[str, Size]]:
    """First rounds that are compared: name to data set and size.

    Args:
        quick: two of them, small.
    """
    if quick:
        small = replace(SIZES["cifar-10"]["quick"], rounds=1)
        return {
            PLAIN: ("cifar-10", small),
            "more public rows": ("cifar-10", replace(small, public=60)),
        }
    changed = {
        PLAIN: _changed(1000),
        "500 rows": _changed(500),
        "2,000 rows": _changed(2000),
        "2 epochs": _changed(1000, first_epochs=2),
        "20 epochs": _changed(1000, first_epochs=20),
        "channels 16, 32": _changed(1000, model={"name": "cnn", "channels": [16, 32]}),
        **{
            f"resnet8, {norm} normalisation": _changed(
                1000, model={"name": "resnet8", "norm": norm, "width": 8}
            )
            for norm in ("batch", "group")
        },
    }
    cifar = {name: ("cifar-10", how) for name, how in changed.items()}
    return {**cifar, "Fashion-MNIST": ("fashion-mnist", changed[PLAIN])}


def known(*, data: str, rule: str, size: Mapping[str, Any], repetition: int) -> Numbers:
    """Distil, and look at every round's densities.

    Args:
        data: a key of :data:`~consilience_papers.kovalchuk2026.problems.SIZES`.
        rule: by its name in tables.
        size: the fields of a :class:`~consilience_papers.kovalchuk2026.problems.Size`.
        repetition: which draw.

    Returns:
        For rounds 1, 2, …: ``auc``, the mean over clients of the AUC with which a client's density tells
        public rows of its classes from others; ``largest``, the share of the public rows on which one client
        has the largest density; ``AVG`` and ``UWA``, accuracies on the public rows
        of what these rules make of the same replies; ``accuracy``, the clients' on test rows of all
        classes, from round 0 on.
    """
    given = problems.cohort(data, SHARE, Size(**size), repetition)
    aggregate, stacks = problems.rule(rule, given), list[Stack]()

    def watched(stack: Stack) -> Any:
        stacks.append(stack)
        return aggregate.rule(stack)

    protocol = ensemble_distillation(
        aggregate=Aggregator(aggregate.name, watched, needs=(LogDensities,)), rounds=size["rounds"]
    )
    federation = Federation(given.parties(), given.public, seed=repetition, strict=False)
    history = federation.run(protocol, progress=False)
    names, labels = np.asarray(federation.network.agreed.classes), given.public_labels
    assert labels is not None
    looked = [_looked(stack, names, labels, given) for stack in stacks]
    return {
        "accuracy": history.metric("accuracy").mean(axis=1),
        **{key: [one[key] for one in looked] for key in looked[0]},
    }


def _looked(stack: Stack, names: Array, labels: Array, given: SimulatedParties) -> dict[str, float]:
    """Numbers of a round, as :func:`known` has them."""
    density = stack.further[LogDensities]
    held = [np.isin(labels, given.holders[party]) for party in stack.parties]
    teachers = {name: problems.rule(name, given).rule(stack)[0] for name in ("AVG", "UWA")}
    right = {name: names[made.argmax(axis=1)] == labels for name, made in teachers.items()}
    return {
        "auc": float(np.mean(list(map(roc_auc_score, held, density)))),
        "largest": float(np.bincount(density.argmax(axis=0)).max() / len(labels)),
        **{name: float(rows.mean()) for name, rows in right.items()},
    }


def order(study: Study) -> Exhibit:
    """Tell when UWA is ahead of AVG: by what densities know in the first round, and over many rounds.

    Args:
        study: computes and keeps.
    """
    repetitions = study.times(3, 2)
    first = {
        name: study.repeat(
            known,
            repetitions,
            label=f"first round, {name}",
            data=data,
            rule="UWA",
            size=asdict(how),
        )
        for name, (data, how) in settings(quick=study.quick).items()
    }
    data, how = settings(quick=study.quick)[PLAIN]
    how = replace(how, rounds=3 if study.quick else ROUNDS)
    long = {
        rule: study.repeat(
            known,
            repetitions,
            label=f"{how.rounds} rounds, {rule}",
            data=data,
            rule=rule,
            size=asdict(how),
        )
        for rule in RULES
    }
    shown = {"AVG": "teacher by AVG", "UWA": "teacher by UWA", "auc": "AUC", "largest": "largest"}
    rows: list[Row] = [
        {"setting": name, "round": 1, "taught by": "–", **_cells(found, shown, 0)}
        for name, found in first.items()
    ]
    when = sorted({1, 2, 5, 10, 20, how.rounds} & set(range(1, how.rounds + 1)))
    rows += [
        {"setting": PLAIN, "round": t, "taught by": rule, **_cells(found, shown, t - 1)}
        for rule, found in long.items()
        for t in when
    ]
    claims = [
        Claim(
            f"{name}: in the first round UWA's teacher is better than AVG's",
            differs(gain := found["UWA"][:, 0] - found["AVG"][:, 0]),
            f"{said(gain)}, where densities tell own classes with an AUC of {found['auc'][:, 0].mean():.2f}",
        )
        for name, found in first.items()
    ]
    ends = {rule: found["accuracy"][:, -1] for rule, found in long.items()}
    gain = ends["UWA"] - ends["AVG"]
    claims.append(
        Claim(
            f"{PLAIN}: after {how.rounds} rounds clients know more with UWA",
            differs(gain),
            said(gain),
        )
    )

    def draw(figure: Figure) -> None:
        figure.set_size_inches(9, 3.2)
        for axis, key, title in zip(
            figure.subplots(1, 3),
            ("accuracy", "auc", "largest"),
            ("clients, all classes", "AUC of densities", "rows of the most certain client"),
            strict=True,
        ):
            for rule, found in long.items():
                values = found[key]
                mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
                across = np.arange(len(mean)) + (key != "accuracy")
                axis.plot(across, mean, color=COLOURS[rule], label=rule)
                axis.fill_between(
                    across, mean - deviation, mean + deviation, color=COLOURS[rule], alpha=0.15
                )
            axis.set(xlabel="rounds", title=title)
        axis.legend(fontsize=7)

    return Exhibit(
        "order",
        "Order of UWA and AVG with 2 of 10 classes a client: the first round, and many",
        rows,
        claims,
        [
            about(data, how),
            "Other settings change one thing, and go on for one round; Fashion-MNIST has the same network. "
            "Teachers: accuracy on the public rows of what either rule makes of the same replies. AUC: how "
            "well a client's density tells public rows of its classes from others, mean over clients; 0.5 is "
            "chance. Largest: share of the rows on which one and the same client has the largest density.",
        ],
        draw,
    )


def _cells(found: Mapping[str, Array], shown: Mapping[str, str], t: int) -> dict[str, str]:
    """Columns of a round, and accuracy of the clients after it."""
    columns = {title: spread(found[key][:, t]) for key, title in shown.items()}
    return {**columns, "clients": spread(found["accuracy"][:, t + 1])}

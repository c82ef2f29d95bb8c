"""The strongest attack on membership: public rows and a basis that the attacker lays around the candidates.

A party holds a random half of rows that the attacker knows, of all classes and without calibration rows.
``docs/results/leak.md`` has the figures of every aggregator and of private sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.protocols import Protocol, ensemble_distillation
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import Distill, PredictPublic
from consilience.lab.config.experiment_sections import ModelSpec
from consilience.lab.config.methods import AGGREGATORS
from consilience.lab.data import load
from consilience.lab.experiments import SimulatedParties
from consilience.models.files.transfer import TRUSTED
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.attacks.membership import (
    area_under_curve,
    confidence_likelihood,
    public_row_likelihood,
    true_positives,
)
from consilience.privacy.attacks.shadows import Candidates, RecordedNetwork, Shadows, on_one_scale
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.class_sums.sums import PublicBasis
from consilience.privacy.class_sums.tasks import SumClasses

NO_TREES = np.zeros((0, 0, 2), dtype=np.float32)
DELTA, EPSILONS = 1e-5, (None, 8.0, 3.0, 1.0)
OPTIONS = {"mlp": {"hidden": [], "recipe": {"learning_rate": 0.01, "distill_epochs": 1}}}


def named(epsilon: float | None) -> str:
    return "private sums, " + ("no noise" if epsilon is None else f"ε = {epsilon:g}")


# --- 2. the attack at its strongest --------------------------------------------------------------------


Line = tuple[str, str, Protocol, Budget | None]
"""Name, model, protocol and budget."""


def questions() -> Iterator[Line]:
    """Lines of the table."""
    for model in ("logistic-regression", "knn", "random-forest"):
        yield (
            f"predictions: {model}",
            model,
            ensemble_distillation(aggregate=AGGREGATORS["avg"](), rounds=1),
            None,
        )
    ratios = ensemble_distillation(aggregate=AGGREGATORS["density-ratio"](), rounds=1)
    yield "density ratios", "knn", ratios, None
    for epsilon in EPSILONS:
        budget = None if epsilon is None else Budget(epsilon, DELTA)
        yield named(epsilon), "knn", private_sums(rounds=1), budget


def strongest(
    seed: int, shadows: int, *, laid: bool, of: Callable[[], Iterator[Line]] | None = None
) -> dict[str, list[float]]:
    """Area and true positives of membership in 100 of 200 rows, by question.

    Args:
        of: gives the questions; by default :func:`questions`.
        seed: draws the rows.
        shadows: their number; a sixth as many parties are attacked.
        laid: whether the coordinator lays the 200 rows themselves among the public ones. Models are then
            attacked by their answers on these, and sums asked for in a basis that has a feature for each.
    """
    data = load("digits")
    order = np.random.default_rng(seed).permutation(len(data.X))
    pool, public, other = order[:200], order[200:500], order[500:700]
    rows = np.concatenate([pool, public[:100]]) if laid else public
    found = {}
    for name, model, protocol, budget in (of or questions)():
        if laid and model == "random-forest":
            continue
        setup = SimulatedParties(
            dataset=data,
            public=Public(data.X[rows]),
            public_labels=None,
            names=("other", "target"),
            rows=(other, pool[:100]),
            own_tests=(np.ones(len(data.X_test)),) * 2,
            models=(ModelSpec(name=model, **OPTIONS.get(model, {})),) * 2,
            calibration=0.0,
            purpose="taught",
            trusts=TRUSTED,
            scaling=None,
        )
        network = RecordedNetwork(setup.parties(budget=budget), setup.public)
        federation = federation_over(network, setup.public, seed=seed)
        hostile = laid and name.startswith("private")
        if hostile:  # one feature for each of the rows, and no other row has part in it
            basis = PublicBasis(
                "kernel", np.arange(200), np.eye(200, dtype=np.float32), 1e-6, NO_TREES
            )
            federation.form()
            network.ask(SumClasses.of(basis, round=1))
        else:
            for _ in federation.rounds(protocol):
                pass
        shadow = Shadows(setup.attacked(), "target", network.questions["target"], budget)
        known, rng = Candidates(pool, 100, pool[:0], other[:0]), np.random.default_rng([seed, 1])
        predicted = laid and name.startswith(("predictions", "network"))
        told = shadow.answers(known, shadows * 7 // 6, rng, ask_rows=predicted)
        there, members = told.members[:shadows], told.members[shadows:]
        if hostile:
            sums = np.array([vectors[0].reshape(-1, 201) for vectors in told.numbers])
            classes = [network.agreed.classes.index(one) for one in setup.labels(data.y[pool])]
            scores, members = sums[:, classes, np.arange(200)], told.members
        elif predicted:
            scores = confidence_likelihood(told.rows[:shadows], there, told.rows[shadows:])
        else:
            seen = on_one_scale(told.numbers, like=shadows)
            scores = public_row_likelihood(seen[:shadows], there, seen[shadows:])
        found[name] = [area_under_curve(scores, members), true_positives(scores, members)]
        print(seed, "laid" if laid else "ordinary", name, found[name], flush=True)
        if budget is not None and budget.training is None and not laid:
            check_silence(network, shadow)
    return found


def check_silence(network: RecordedNetwork, shadow: Shadows) -> None:
    """Hold that a party with a budget says nothing of what a teacher of the attacker's did to its model."""
    (party,) = (one for one in network._members.values() if one.name == "target")
    n, k = len(shadow.setup.public), len(network.agreed.classes)
    teacher = np.eye(k, dtype=np.float32)[np.arange(n) % k]
    taught = answer(party, (Distill(round=2, targets=teacher, alpha=0.5),))
    refused = answer(party, (PredictPublic(round=2),))
    assert not isinstance(taught, Failure) and isinstance(refused, Failure)
    assert refused.code == "budget", refused

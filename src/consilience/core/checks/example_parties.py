"""Example parties for the checks, and every protocol with parties that it can run on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from consilience.core.aggregation import (
    Deregularization,
    anderson,
    auto,
    avg,
    coarse_density_ratio,
    count_weighted,
    damped,
    density_ratio,
    mean,
    median,
    power_sharpened_mean,
    suwa,
    uwa,
)
from consilience.core.checks.example_models import Linear, normalised_network
from consilience.core.checks.protocol_case import MakeParties, ProtocolCase
from consilience.core.messages.schema import Public
from consilience.core.party.party import Party
from consilience.core.protocols import ensemble_distillation, iterative_distillation, local_only
from consilience.core.validation.arrays import Array
from consilience.methods.comparison_rules.analytic_federation import analytic_federation
from consilience.methods.comparison_rules.reliability import (
    certainty_weighted,
    selective_mean,
    variance_weighted,
)
from consilience.methods.comparison_rules.rivals import dafkd, fedd3a, fedgo, ratios_alone
from consilience.methods.compression.codec import chain, float16, quantized, zstd
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.methods.model_exchange.conjugate_distillation import conjugate_distillation
from consilience.methods.model_exchange.protocols import (
    alternating_distillation,
    averaged_distillation,
    parallel_distillation,
)
from consilience.methods.parameters.federated_averaging import (
    federated_adagrad,
    federated_adam,
    federated_averaging,
    federated_proximal,
    federated_yogi,
)
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.federated_fusion import federated_fusion
from consilience.methods.parameters.scaffold import scaffold
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.secure_aggregation.rounds import SecureAggregation

NAMES = ("ash", "birch", "cedar", "damson")


def classifiers() -> tuple[list[Party], Public]:
    """Four parties that between them know three classes of points in the plane; half refit each time."""
    parties = []
    for i, name in enumerate(NAMES):
        X, codes = _points(60, seed=i)
        mine = codes != i % 3  # each lacks one class
        model = Linear(incremental=i % 2 == 0)
        test = _points(30, seed=10 + i)
        parties.append(Party(name, model, X[mine], codes[mine], test=test))
    return parties, Public(_points(20, seed=20)[0])


def regressors() -> tuple[list[Party], Public]:
    """Four parties with noisy values of one plane; half refit each time."""
    parties = []
    for i, name in enumerate(NAMES):
        X, noise = _points(40, seed=i)
        model = Linear("regression", incremental=i % 2 == 0)
        y = X @ [1.0, -2.0] + 0.1 * noise
        parties.append(Party(name, model, X, y, test=(X, X @ [1.0, -2.0])))
    return parties, Public(_points(20, seed=20)[0])


def model_senders() -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with models that can be sent to one another, and no public data."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    models = [DecisionTreeClassifier(max_depth=3), GaussianNB()] * 2
    given, _ = classifiers()
    parties = [
        Party(party.name, model, party.X, party.y, test=party.test)
        for party, model in zip(given, models, strict=True)
    ]
    return parties, Public.none()


def boosters(public: bool = False) -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with boosted trees.

    Args:
        public: whether there are public rows.
    """
    from consilience.methods.functional_boosting.boosted import Boosted

    given, rows = classifiers()
    weak = {"name": "sklearn.tree:DecisionTreeRegressor", "max_depth": 2, "splitter": "random"}
    parties = [Party(p.name, Boosted(weak), p.X, p.y, test=p.test) for p in given]
    return parties, rows if public else Public.none()


def kernel_machines() -> tuple[list[Party], Public]:
    """The parties of :func:`regressors` with kernel ridge regressions that send rows; no public data."""
    from consilience.core.learners import KernelRidge

    given, _ = regressors()
    model = KernelRidge(regularization=1.0)
    return [Party(p.name, model, p.X, p.y, sends_rows=True) for p in given], Public.none()


def networks() -> tuple[list[Party], Public]:
    """Four parties with one small network, whose layers have weights, means and variances; needs torch."""
    from consilience.core.learners import as_learner

    rng = np.random.default_rng(0)
    recipe = {"optimizer": "sgd", "epochs": 1, "learning_rate": 0.05, "batch_size": 8}
    parties = []
    for name in NAMES:
        X = rng.normal(size=(20, 2))
        model = as_learner(normalised_network, recipe=recipe)
        parties.append(Party(name, model, X, (X[:, 0] > 0).astype(int)))
    return parties, Public(rng.normal(size=(6, 2)))


def first_parties(make: MakeParties, count: int) -> MakeParties:
    """Make only the first of the parties, with the same public data.

    Args:
        make: makes all of them.
        count: how many.
    """

    def made() -> tuple[list[Party], Public]:
        parties, public = make()
        return parties[:count], public

    return made


_COMPRESSED = chain(quantized(4), zstd())
_VALUES = chain(float16(), zstd())
_LAPLACIAN = Deregularization("laplacian", 1e-2, gamma=1.0)
_RULES = {
    "by itself": auto(),
    "by density ratio": density_ratio(),
    "by coarse density ratio": coarse_density_ratio(),
    "by selection": selective_mean(),
    "by certainty": certainty_weighted(),
    "by odds": fedgo(),
    "by probability": dafkd("generated"),
    "by angles": fedd3a(),
    "by ratios alone": ratios_alone(estimator="logistic"),
    "by variance": variance_weighted(),
    "sharpened": power_sharpened_mean(),
}

PROTOCOL_CASES: Mapping[str, ProtocolCase] = {
    "alternating_distillation": ProtocolCase(
        alternating_distillation(rounds=2), model_senders, all_needed=True
    ),
    "alternating_distillation, from another party": ProtocolCase(
        alternating_distillation(rounds=2, start="cedar"), model_senders, all_needed=True
    ),
    "analytic_federation": ProtocolCase(analytic_federation(rounds=2), classifiers),
    "private_sums": ProtocolCase(private_sums(rounds=2), classifiers),
    "private_sums, of values": ProtocolCase(
        private_sums(rounds=2, features="leaves", bounds=[-9, 9]), regressors
    ),
    "averaged_distillation": ProtocolCase(
        averaged_distillation(rounds=2), first_parties(model_senders, 3)
    ),
    "parallel_distillation": ProtocolCase(
        parallel_distillation(rounds=2), first_parties(model_senders, 3)
    ),
    "conjugate_distillation": ProtocolCase(
        conjugate_distillation(rounds=2),
        first_parties(kernel_machines, 3),
        all_needed=True,
    ),
    "ensemble_distillation": ProtocolCase(
        ensemble_distillation(aggregate=uwa(), rounds=2), classifiers
    ),
    "ensemble_distillation, damped, by some": ProtocolCase(
        ensemble_distillation(
            aggregate=suwa(), rounds=3, consensus=damped(), participation=3, alpha=0.5
        ),
        classifiers,
    ),
    "ensemble_distillation, accelerated": ProtocolCase(
        ensemble_distillation(aggregate=avg(), rounds=4, consensus=anderson(2)),
        classifiers,
    ),
    "ensemble_distillation, by probability": ProtocolCase(
        ensemble_distillation(
            aggregate=avg(),
            rounds=3,
            participation=2,
            probabilities={"ash": 2, "birch": 1, "cedar": 1, "damson": 0.5},
        ),
        classifiers,
    ),
    **{
        f"ensemble_distillation, {name}": ProtocolCase(
            ensemble_distillation(aggregate=rule, rounds=2), classifiers
        )
        for name, rule in _RULES.items()
    },
    "ensemble_distillation, compressed": ProtocolCase(
        ensemble_distillation(aggregate=uwa(), rounds=4).compressed(_COMPRESSED),
        classifiers,
    ),
    "ensemble_distillation, compressed, by some": ProtocolCase(
        ensemble_distillation(aggregate=suwa(), rounds=4, participation=2).compressed(_COMPRESSED),
        classifiers,
    ),
    "ensemble_distillation, of values": ProtocolCase(
        ensemble_distillation(aggregate=mean(), rounds=2).compressed(_VALUES), regressors
    ),
    "ensemble_distillation, of values by itself": ProtocolCase(
        ensemble_distillation(rounds=2), regressors
    ),
    "ensemble_distillation, summed": ProtocolCase(
        ensemble_distillation(aggregate=count_weighted(), rounds=2).with_options(
            secure_aggregation=SecureAggregation()
        ),
        classifiers,
        all_needed=True,  # after the first sum parties open none without one of them
    ),
    "iterative_distillation": ProtocolCase(iterative_distillation(rounds=2), regressors),
    "iterative_distillation, accelerated": ProtocolCase(
        iterative_distillation(rounds=4, consensus=anderson(2), deregularize=_LAPLACIAN),
        regressors,
    ),
    "iterative_distillation, damped, by some": ProtocolCase(
        iterative_distillation(
            rounds=3,
            aggregate=median(),
            consensus=damped(),
            deregularize=_LAPLACIAN,
            participation=3,
            probabilities={"ash": 3, "birch": 2, "cedar": 2, "damson": 2},
            alpha=0.5,
        ),
        regressors,
    ),
    "local_only": ProtocolCase(local_only(rounds=2), classifiers),
    "federated_averaging": ProtocolCase(federated_averaging(rounds=2), networks),
    "federated_adagrad": ProtocolCase(federated_adagrad(rounds=2), networks),
    "federated_adam": ProtocolCase(federated_adam(rounds=2, participation=2), networks),
    "federated_yogi": ProtocolCase(federated_yogi(rounds=2), networks),
    "federated_proximal": ProtocolCase(
        federated_proximal(rounds=2, strength=0.5, participation=3), networks
    ),
    "federated_fusion": ProtocolCase(federated_fusion(rounds=2), networks),
    "federated_fusion, by some": ProtocolCase(
        federated_fusion(rounds=2, participation=2), networks
    ),
    "federated_dynamics": ProtocolCase(
        federated_dynamics(rounds=3, strength=1.0, participation=3, weights="rows"),
        networks,
    ),
    "scaffold": ProtocolCase(scaffold(rounds=3, participation=2), networks),
    "functional_gradient_boosting": ProtocolCase(
        functional_gradient_boosting(
            rounds=2, local_steps=2, step_size="heterogeneous", ridge=1.0, participation=0.5
        ),
        boosters,
    ),
    "functional_gradient_boosting, distilled": ProtocolCase(
        functional_gradient_boosting(rounds=2, distill=True, step_size=4.0),
        partial(boosters, public=True),
    ),
}
"""Every protocol, by name, and its options that change what is exchanged, after a comma.

A new protocol is added here, and is then held to the contract of protocols in one process, with parties that
are started anew for every request, and over processes between machines.
"""


def _points(count: int, *, seed: int) -> tuple[Array, Array]:
    """Points around the corners of a triangle, and which corner."""
    rng = np.random.default_rng(seed)
    codes = np.arange(count) % 3
    corners = np.array([[0.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    return corners[codes] + 0.5 * rng.normal(size=(count, 2)), codes

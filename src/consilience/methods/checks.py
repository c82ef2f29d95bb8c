"""Test cases for the protocols of this package: each protocol with suitable example parties."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from consilience.core.aggregation import mean, suwa, uwa
from consilience.core.checks.example_parties import (
    NAMES,
    classifiers,
    first_parties,
    regressors,
    with_model,
)
from consilience.core.checks.protocol_case import ProtocolCase
from consilience.core.learners import as_learner
from consilience.core.messages.replies import SharedModel
from consilience.core.messages.schema import Public
from consilience.core.party.party import Party
from consilience.core.party.rules import PartyRules
from consilience.core.protocols import ensemble_distillation
from consilience.core.validation.arrays import Array
from consilience.methods.comparison_rules.analytic_federation import analytic_federation
from consilience.methods.comparison_rules.reliability import (
    certainty_weighted,
    selective_mean,
    variance_weighted,
)
from consilience.methods.comparison_rules.rivals import dafkd, fedd3a, fedgo, ratios_alone
from consilience.methods.compression.codec import chain, float16, quantized, zstd
from consilience.methods.functional_boosting.boosted import Boosted
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
from consilience.models.files.transfer import unpack
from consilience.models.kernel_ridge import KernelRidge


def model_senders() -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with models that can be sent to one another, and no public data."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    models = [DecisionTreeClassifier(max_depth=3), GaussianNB()] * 2
    given, _ = classifiers()
    parties = [
        with_model(party, model, test=party.rows.test)
        for party, model in zip(given, models, strict=True)
    ]
    return parties, Public.none()


def boosters(public: bool = False) -> tuple[list[Party], Public]:
    """The parties of :func:`classifiers` with boosted trees.

    Args:
        public: whether there are public rows.
    """
    given, rows = classifiers()
    weak = {"name": "sklearn.tree:DecisionTreeRegressor", "max_depth": 2, "splitter": "random"}
    parties = [with_model(party, Boosted(weak), test=party.rows.test) for party in given]
    return parties, rows if public else Public.none()


def kernel_machines() -> tuple[list[Party], Public]:
    """The parties of :func:`regressors` with kernel ridge regressions that send rows; no public data."""
    given, _ = regressors()
    model, rules = KernelRidge(regularization=1.0), PartyRules(sends_rows=True)
    return [with_model(party, model, rules=rules) for party in given], Public.none()


def networks() -> tuple[list[Party], Public]:
    """Four parties with one small network, whose layers have weights, means and variances; needs torch."""
    rng = np.random.default_rng(0)
    recipe = {"optimizer": "sgd", "epochs": 1, "learning_rate": 0.05, "batch_size": 8}
    parties = []
    for name in NAMES:
        X = rng.normal(size=(20, 2))
        model = as_learner(normalised_network, recipe=recipe)
        parties.append(Party(name, model, X, (X[:, 0] > 0).astype(int)))
    return parties, Public(rng.normal(size=(6, 2)))


def normalised_network(input_shape: tuple[int, ...], n_outputs: int) -> Any:
    """Build a torch network of two layers with batch normalisation between them."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(input_shape[0], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, n_outputs)
    )


def models_compared(memory: Any, X: Array) -> Any:
    """Replace models in a memory by their predictions: in their bytes stand addresses and times."""
    if isinstance(memory, SharedModel):
        return unpack(memory.about, memory.data).predict(X)
    if isinstance(memory, Mapping):
        return {name: models_compared(held, X) for name, held in memory.items()}
    return memory


_COMPRESSED = chain(quantized(4), zstd())
_VALUES = chain(float16(), zstd())
_RULES = {
    "by selection": selective_mean(),
    "by certainty": certainty_weighted(),
    "by odds": fedgo(),
    "by probability": dafkd("generated"),
    "by angles": fedd3a(),
    "by ratios alone": ratios_alone(estimator="logistic"),
    "by variance": variance_weighted(),
}

PROTOCOL_CASES: Mapping[str, ProtocolCase] = {
    **{
        f"ensemble_distillation, {name}": ProtocolCase(
            ensemble_distillation(aggregate=rule, rounds=2), classifiers
        )
        for name, rule in _RULES.items()
    },
    "alternating_distillation": ProtocolCase(
        alternating_distillation(rounds=2),
        model_senders,
        all_needed=True,
        comparable=models_compared,
    ),
    "alternating_distillation, from another party": ProtocolCase(
        alternating_distillation(rounds=2, start="cedar"),
        model_senders,
        all_needed=True,
        comparable=models_compared,
    ),
    "averaged_distillation": ProtocolCase(
        averaged_distillation(rounds=2), first_parties(model_senders, 3), comparable=models_compared
    ),
    "parallel_distillation": ProtocolCase(
        parallel_distillation(rounds=2), first_parties(model_senders, 3), comparable=models_compared
    ),
    "conjugate_distillation": ProtocolCase(
        conjugate_distillation(rounds=2),
        first_parties(kernel_machines, 3),
        all_needed=True,
        comparable=models_compared,
    ),
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
    "analytic_federation": ProtocolCase(analytic_federation(rounds=2), classifiers),
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
        comparable=models_compared,
    ),
    "functional_gradient_boosting, distilled": ProtocolCase(
        functional_gradient_boosting(rounds=2, distill=True, step_size=4.0),
        partial(boosters, public=True),
        comparable=models_compared,
    ),
}
"""Every protocol of the methods, as :data:`consilience.core.checks.PROTOCOL_CASES` has them."""

"""Single repetitions of each experiment with networks: fresh images, plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.errors import QuorumLost, RunFailed
from consilience.core.federation.federation import Federation
from consilience.core.learners import Learner
from consilience.core.protocols import Protocol, local_only
from consilience.core.validation.arrays import Array
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.methods.functional_boosting.protocol import functional_gradient_boosting
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.federated_fusion import federated_fusion
from consilience.methods.parameters.scaffold import scaffold
from consilience_papers.shen2022 import problems
from consilience_papers.shen2022.problems import Images, Size

Numbers = dict[str, Any]
Rows = tuple[Array, Array]

AVERAGING: Mapping[str, Callable[..., Protocol]] = {
    "FedAvg": federated_averaging,
    "FedDyn": federated_dynamics,
    "SCAFFOLD": scaffold,
}
"""Those that average parameters; their steps are of SGD."""

METHODS = ("FFGB-distill", "FedAvg-distill", *AVERAGING)

SENT = {"SCAFFOLD": 2}
"""Models that a client sends in a round, where it is not one."""


@dataclass(frozen=True)
class _Setting:
    """Clients with their images, ready for any model."""

    given: Images
    share: float
    size: Size
    repetition: int

    def federation(self, model: Learner) -> Federation:
        """The clients with this model, and the public images."""
        parties = problems.clients(self.given, self.share, self.size, model, self.repetition)
        return Federation(parties, public=self.given.public, seed=self.repetition, strict=False)

    def accuracies(self, model: Learner, protocol: Protocol, rows: Rows) -> Iterator[float]:
        """Accuracies of the model that all clients share, after rounds 0, 1, …"""
        for learner in self.models(model, protocol):
            yield accuracy(learner, rows)

    def models(self, model: Learner, protocol: Protocol) -> Iterator[Learner]:
        """Models of the first client after rounds 0, 1, …, which all clients share."""
        federation = self.federation(model)
        for _ in federation.rounds(protocol):
            yield next(iter(federation.network.models().values())).learner

    def rate(self, method: str, initial: Any = None) -> float:
        """The rate with the best accuracy on held-out training rows, over the rounds of the search.

        One with which training ends in NaN counts as 0.
        """
        averaging = method in AVERAGING
        rates = self.size.averaging_rates if averaging else self.size.boosting_rates
        if len(rates) == 1:
            return rates[0]
        found = []
        for rate in rates:
            how = _ways(method, self.size, rate, self.size.search, initial)
            try:
                _, *reached = self.accuracies(*how, self.given.held)
            except (RunFailed, QuorumLost):
                reached = [0.0]
            found.append(np.mean(reached))
        return rates[int(np.argmax(found))]


def _ways(
    method: str, size: Size, rate: float, rounds: int, initial: Any = None
) -> tuple[Learner, Protocol]:
    """Model and protocol of a method; from ``initial``, where parameters are averaged."""
    if method == "FFGB-distill":
        return problems.boosted_network(size, rate), functional_gradient_boosting(
            rounds=rounds, step_size=problems.STEP_SIZE, distill=True, warm_start=True
        )
    if method == "FedAvg-distill":
        return problems.fused_network(size, rate), federated_fusion(rounds=rounds)
    protocol = AVERAGING[method](rounds=rounds, initial=initial)
    return problems.averaged_network(size, rate), protocol


def accuracy(learner: Learner, rows: Rows) -> float:
    """The share of rows that a model, trained or not, gets right."""
    X, codes = rows
    return float((learner.predict(X).argmax(axis=1) == codes).mean())


def reached(
    *,
    method: str,
    data: str,
    share: float,
    size: Mapping[str, Any],
    stop: float | None,
    repetition: int,
) -> Numbers:
    """Test accuracy after a client has sent 0, 1, … models, and the rate that was chosen.

    Args:
        method: of :data:`METHODS`.
        data: a key of :data:`~consilience_papers.shen2022.problems.PUBLIC`.
        share: s.
        size: the fields of a :class:`~consilience_papers.shen2022.problems.Size`.
        stop: no more rounds once this is reached; NaN from there on.
        repetition: which draw.
    """
    how = Size(**size)
    setting = _Setting(problems.images(data, how, repetition), share, how, repetition)
    each = SENT.get(method, 1)
    rate = setting.rate(method)
    ways = _ways(method, how, rate, max(1, how.models // each))
    curve = list(_until(setting.accuracies(*ways, setting.given.test), stop))
    return {
        "accuracy": by_models_sent(curve, each, how.models),
        "rate": rate,
        "images": [len(setting.given.X), len(setting.given.public)],
    }


def _until(values: Iterator[float], stop: float | None) -> Iterator[float]:
    """The values up to the first that is large enough."""
    for value in values:
        yield value
        if stop is not None and value >= stop:
            return


def by_models_sent(rounds: list[float], each: int, models: int) -> Array:
    """Spread values of rounds over 0, 1, … models sent, ``each`` a round; NaN after the last round.

    >>> by_models_sent([0.1, 0.5], 2, 4).tolist()
    [0.1, 0.1, 0.5, 0.5, nan]
    """
    values = np.repeat(rounds, each)[: models + 1]
    return np.append(values, np.full(models + 1 - len(values), np.nan))


def warm_started(
    *, method: str, data: str, share: float, size: Mapping[str, Any], repetition: int
) -> Numbers:
    """Test accuracy after 0, 1, … models sent, from random parameters and from one step of FFGB-distill.

    The step is the first model that is sent, so that what follows has one round less. Both have a rate of
    their own.

    Args:
        method: of :data:`AVERAGING`.
        data: as in :func:`reached`.
        share: s.
        size: as in :func:`reached`.
        repetition: which draw.
    """
    how = Size(**size)
    setting = _Setting(problems.images(data, how, repetition), share, how, repetition)
    step = functional_gradient_boosting(rounds=1, step_size=problems.STEP_SIZE, distill=True)
    rate = setting.rate("FFGB-distill")
    *_, boosted = setting.models(problems.boosted_network(how, rate), step)
    assert isinstance(boosted, Boosted)
    student = boosted.student
    found: Numbers = {}
    for name, initial, rounds in (("random", None, how.models), ("warm", student, how.models - 1)):
        rate = setting.rate(method, initial)
        ways = _ways(method, how, rate, rounds, initial)
        curve = list(setting.accuracies(*ways, setting.given.test))
        found |= {name: curve, f"{name}, rate": rate}
    found["warm"] = [found["random"][0], *found["warm"]]
    return {**found, "images": [len(setting.given.X), len(setting.given.public)]}


def central(*, data: str, size: Mapping[str, Any], repetition: int) -> Numbers:
    """Test accuracy of the same network trained on all images.

    Its rate is the one that does best on held-out training rows.
    """
    how = Size(**size)
    given = problems.images(data, how, repetition)
    alone = replace(how, clients=1)
    models = []
    for rate in how.boosting_rates:
        one = problems.clients(given, 0.0, alone, problems.central_network(how, rate), repetition)
        federation = Federation(one, seed=repetition)
        for _ in federation.rounds(local_only()):
            pass
        (model,) = federation.network.models().values()
        models.append(model.learner)
    best = max(models, key=lambda learner: accuracy(learner, given.held))
    return {"accuracy": accuracy(best, given.test)}

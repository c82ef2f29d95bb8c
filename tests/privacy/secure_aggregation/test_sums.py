"""Protocols that are linear in the parties read sums alone: single replies may be unreadable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from consilience import KernelRidge, LocalNetwork, Party, avg, count_weighted
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import RowCount
from consilience.core.messages.sums import Sum
from consilience.core.party.rules import PartyRules
from consilience.methods.model_exchange.conjugate_distillation import conjugate_distillation
from consilience.methods.model_exchange.tasks import Image, Residual
from consilience.methods.parameters.federated_averaging import (
    federated_adam,
    federated_averaging,
    federated_proximal,
)
from consilience.methods.parameters.federated_dynamics import federated_dynamics
from consilience.methods.parameters.scaffold import scaffold
from consilience.methods.parameters.tasks import TrainControlled, TrainDynamically, TrainParameters
from helpers.quadratic_losses import quadratic_parties
from helpers.replies import replies as replies_of

ADDED_UP = (TrainParameters, TrainControlled, TrainDynamically, Residual, Image)
"""Tasks whose replies a protocol adds up."""


def unreadable(reply: Any) -> Any:
    """The same message with nothing but NaN in its arrays."""
    arrays = {field.name: getattr(reply, field.name) for field in fields(reply)}
    arrays = {name: one for name, one in arrays.items() if isinstance(one, np.ndarray)}
    return replace(reply, **{name: np.full_like(one, np.nan) for name, one in arrays.items()})


class Masked(Replies):
    """Replies of which nothing but sums can be read."""

    def __init__(self, given: Replies) -> None:
        masked = {name: tuple(map(unreadable, one)) for name, one in given.answers.items()}
        super().__init__(masked, given.missing)
        object.__setattr__(self, "given", given)

    def sum(self, *args: Any, **options: Any) -> Sum:
        return self.given.sum(*args, **options)


@dataclass
class Masking(LocalNetwork):
    """Parties whose replies reach a protocol as sums."""

    masked = 0

    def _receive(self, requests: Mapping[str, Any], arrivals: Any, *others: Any) -> Replies:
        replies = super()._receive(requests, arrivals, *others)
        (task, *_) = next(iter(requests.values())).tasks
        if not isinstance(task, ADDED_UP):
            return replies
        self.masked += 1
        return Masked(replies)


def ridges() -> list[Party]:
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=(6, 2)), "b": rng.normal(size=(8, 2))}
    rules = PartyRules(sends_rows=True)
    return [
        Party(
            name,
            KernelRidge(0.5 / len(X), kernel="linear"),
            X,
            X[:, 0],
            calibration=0,
            rules=rules,
        )
        for name, X in rows.items()
    ]


@pytest.mark.parametrize(
    ("protocol", "parties"),
    [
        (federated_averaging(rounds=2), quadratic_parties),
        (federated_proximal(rounds=2, strength=0.1), quadratic_parties),
        (federated_adam(rounds=2), quadratic_parties),
        (scaffold(rounds=2, weights="rows"), quadratic_parties),
        (federated_dynamics(rounds=2), quadratic_parties),
        (conjugate_distillation(rounds=2), ridges),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_unreadable_replies_change_no_bit(protocol: Any, parties: Callable[[], Any]) -> None:
    memories, none = [], Public.none()
    masking = Masking(parties(), none)
    for network in (LocalNetwork(parties(), none), masking):
        federation = federation_over(network, none, strict=False)
        memories.append(list(federation.rounds(protocol))[-1].state.memory)
    assert masking.masked >= 2
    for name, value in memories[0].items():
        np.testing.assert_array_equal(value, memories[1][name])


@pytest.mark.parametrize("rule", [avg(), count_weighted()], ids=lambda rule: rule.name)
def test_a_linear_rule_needs_no_readable_predictions(rule: Any) -> None:
    given = replies_of([[0.2, 0.8]], [[0.6, 0.4]], rows=[1, 3] if RowCount in rule.needs else None)
    masked = Masked(given)
    assert np.isnan(masked.of(Predictions)[0].values).all()
    np.testing.assert_array_equal(rule(masked).values, rule(given).values)

"""Example parties for the checks, and the protocols of core with suitable parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.aggregation import (
    Deregularization,
    anderson,
    auto,
    avg,
    coarse_density_ratio,
    damped,
    density_ratio,
    median,
    power_sharpened_mean,
    suwa,
    uwa,
)
from consilience.core.checks.example_models import Linear
from consilience.core.checks.protocol_case import MakeParties, ProtocolCase
from consilience.core.messages.schema import Public
from consilience.core.party.party import Party
from consilience.core.protocols import ensemble_distillation, iterative_distillation, local_only
from consilience.core.registry import Registry, named, registered_modules
from consilience.core.validation.arrays import Array

NAMES = ("ash", "birch", "cedar", "damson")


def classifiers() -> tuple[list[Party], Public]:
    """Create four parties with points in the plane, of three classes in total; half refit each time."""
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


def with_model(party: Party, model: Any, *, name: str | None = None, **options: Any) -> Party:
    """Make a party with the private rows of another.

    Args:
        party: the other party.
        model: model of the new one.
        name: name of the new one, by default the same.
        **options: further options of the new one.
    """
    return Party(name or party.name, model, party.rows.X, party.rows.y, **options)


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


_LAPLACIAN = Deregularization("laplacian", 1e-2, gamma=1.0)
_RULES = {
    "by itself": auto(),
    "by density ratio": density_ratio(),
    "by coarse density ratio": coarse_density_ratio(),
    "sharpened": power_sharpened_mean(),
}


def _cases() -> dict[str, ProtocolCase]:
    features = [module.PROTOCOL_CASES for module in registered_modules("consilience.checks")]
    entries = (entry for cases in (_OWN, *features) for entry in cases.items())
    return named(entries, what="protocol case")


_OWN: Mapping[str, ProtocolCase] = {
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
    "ensemble_distillation, some drawn by probability": ProtocolCase(
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
    "ensemble_distillation, of values by itself": ProtocolCase(
        ensemble_distillation(rounds=2), regressors
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
}

PROTOCOL_CASES: Mapping[str, ProtocolCase] = Registry(_cases)
"""Every protocol, by name and, after a comma, the options that change the exchanged data. Core's protocols
are in this module. A feature registers a module with its protocols under ``consilience.checks``. All are
checked against the contract of protocols in one process, with parties restarted for every request, and over
processes between machines."""


def _points(count: int, *, seed: int) -> tuple[Array, Array]:
    """Points around the corners of a triangle, and which corner."""
    rng = np.random.default_rng(seed)
    codes = np.arange(count) % 3
    corners = np.array([[0.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    return corners[codes] + 0.5 * rng.normal(size=(count, 2)), codes

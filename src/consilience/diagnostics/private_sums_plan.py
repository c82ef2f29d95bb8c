"""Outlook on a budget of privacy before anything is trained: what each mechanism buys with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.errors import InvalidInput
from consilience.messages.schema import Public
from consilience.numerics.class_sums import SCALE, Features, class_ratios, class_sums
from consilience.numerics.randomness import SystemNoise, stream
from consilience.party.shards import AnswersNoise, labels_right, teachers_needed, works
from consilience.tasks.class_sums import features_by, public_basis
from consilience.transforms.accounting import NoisyTraining
from consilience.transforms.privacy import Budget
from consilience.validation.numbers import check_number

_DRAWS = 10
"""Simulated federations."""

FEWEST_ROWS = 20
"""Rows that a shard is to have, for a model of them to be worth asking."""

MOST_NOISE = 0.2
"""Noise of a step, in each number of the mean of its clipped gradients, that a linear model of some hundred
numbers still learns under: on digits, 0.06 leaves most of the accuracy and 0.34 little."""


def plan_private_sums(
    public: Public,
    budget: Budget,
    *,
    parties: int,
    rows: int,
    classes: int,
    features: Features | None = None,
    dimensions: int | None = None,
) -> dict[str, Any]:
    """Simulate the teacher of private sums, with public rows drawn in the place of private ones.

    Clusters of the public rows stand in for classes: real ones are mostly harder to tell apart, so that what
    fails here fails there.

    Args:
        public: the public rows.
        budget: of every party.
        parties: their number.
        rows: private rows of each; a guess, and not looked up at any party.
        classes: number of classes.
        features: of the protocol, as by default there.
        dimensions: of the protocol.

    Returns:
        ``features`` and their ``dimensions``; ``sigma`` of one party's noise, for rows of length 1;
        ``noise_to_signal`` of the sums of all; and the shares of public rows that the teacher says the right
        cluster of, without noise and with it.

    Raises:
        InvalidInput: fewer than two classes, no party, or too few public rows.
    """
    for name, value, least in (("parties", parties, 1), ("rows", rows, 1), ("classes", classes, 2)):
        check_number(name, value, at_least=least, whole=True, where="privacy plan")
    if len(public) < 2 * classes:
        raise InvalidInput(f"{len(public)} public rows for {classes} classes", where="privacy plan")
    from sklearn.cluster import KMeans

    basis = public_basis(public, features, dimensions)
    known = features_by(basis, public)
    clusters = KMeans(classes, n_init=3, random_state=0).fit_predict(known)
    total = budget.sigma * parties**0.5
    clean: list[float] = []
    noisy: list[float] = []
    strength = []
    for draw in range(_DRAWS):
        rng = stream(0, "coordinator", draw, "privacy plan")
        drawn = rng.integers(len(public), size=parties * rows)
        exact = class_sums(known[drawn], clusters[drawn], classes) / SCALE
        noise = rng.normal(scale=total, size=exact.shape)
        strength.append(float(np.linalg.norm(noise) / np.linalg.norm(exact)))
        for found, sums, wide in ((clean, exact, 0.0), (noisy, exact + noise, total)):
            told = class_ratios(sums, known, wide, 0.5, known).argmax(axis=1)
            found.append(float(np.mean(told == clusters)))
    return {
        "features": basis.kind,
        "dimensions": basis.matrix.shape[0],
        "sigma": budget.sigma,
        "noise_to_signal": float(np.mean(strength)),
        "right_without_noise": float(np.mean(clean)),
        "right_with_noise": float(np.mean(noisy)),
    }


def plan_others(
    budget: Budget, *, parties: int, rows: int, classes: int, teachers: int = 25, answers: int = 300
) -> dict[str, dict[str, Any]]:
    """Say what the budget buys otherwise: by answers of shards, training with noise, noise on predictions.

    Args:
        budget: of every party.
        parties: their number.
        rows: private rows of each; a guess, and not looked up at any party.
        classes: number of classes.
        teachers: models of each party, for answers of shards.
        answers: public rows that are answered.

    Returns:
        By mechanism: its noise; the share of labels that noise leaves right, where four models of five have
        them right, the ``models`` of all parties, and as many as 95 of 100 labels take; and a ``verdict``.
        What noise would drown, :func:`.private_answers` refuses to begin.

    Raises:
        InvalidInput: fewer than two classes or models, no party, or no row.
    """
    given = {"parties": parties, "rows": rows, "answers": answers}
    for name, value in given.items():
        check_number(name, value, at_least=1, whole=True, where="privacy plan")
    for name, value in {"classes": classes, "teachers": teachers}.items():
        check_number(name, value, at_least=2, whole=True, where="privacy plan")
    noise = AnswersNoise(budget, SystemNoise, "classification")
    wide = noise.sigmas(answers, classes)[0] / SCALE
    said: dict[str, dict[str, Any]] = {}
    for name, models in (("private_answers", teachers), ("noise on predictions", 1)):
        right = labels_right(models * parties, wide * parties**0.5, classes)
        verdict = "works" if works(right, classes) else "noise drowns it"
        if rows < FEWEST_ROWS * models:
            verdict = f"{rows} rows are few for {models} models"
        said[name] = {
            "sigma": wide,
            "right_with_noise": right,
            "models": models * parties,
            "models_needed": teachers_needed(answers, budget.release.mu, parties),
            "verdict": verdict,
        }
    how = NoisyTraining(rows, batch=min(64, rows))
    multiplier = how.noise(budget.epsilon if budget.each is None else budget.each, budget.delta)
    said["training with noise"] = {
        "noise_multiplier": multiplier,
        "batch": how.batch,
        "steps": how.steps,
        "verdict": "works" if multiplier < MOST_NOISE * how.batch else "noise drowns it",
    }
    return said

"""The contract of learners, as checks that fit one on a few rows."""

from __future__ import annotations

import copy
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.checks.expectations import expect, same_bits
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import Learner, as_learner
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows


@prints_no_rows
@dataclass(frozen=True)
class _Case:
    """A way to make learners, and inputs to fit them on."""

    make: Callable[[], Learner]
    X: Array
    n_outputs: int

    def bound(self) -> Learner:
        learner = self.make()
        learner.bind(self.n_outputs)
        return learner

    @property
    def targets(self) -> Array:
        """One-hot rows of all classes in turn, or values."""
        if self.bound().abilities.kind == "regression":
            return np.random.default_rng(1).normal(size=(len(self.X), self.n_outputs))
        return np.eye(self.n_outputs)[np.arange(len(self.X)) % self.n_outputs]

    def constant(self, share: float) -> Array:
        """Return targets with ``share`` for the first output on every row, and the rest for the last."""
        row = np.zeros(self.n_outputs)
        row[0] += share
        row[-1] += 1 - share
        return np.tile(row, (len(self.X), 1))

    def fitted(self, targets: Array, weights: Array | None = None, seed: int = 0) -> Learner:
        learner = self.bound()
        rng = np.random.default_rng(seed)
        learner.fit(self.X, targets, rng=rng, weights=weights, phase="first")
        return learner


def check_learner(
    make: Callable[[], Any], *, X: Array | None = None, n_outputs: int | None = None
) -> None:
    """Check that a learner keeps the contract.

    Args:
        make: makes a fresh learner, or a model that :func:`~consilience.core.learners.as_learner` takes.
        X: inputs to check on, 24 rows or more; by default 48 rows of four numbers.
        n_outputs: classes or regression targets; by default 3 classes, or 2 targets.

    Raises:
        AssertionError: at the first check that does not hold.
    """
    rows = np.random.default_rng(0).normal(size=(48, 4)) if X is None else np.asarray(X)
    learner = as_learner(make())
    outputs = n_outputs or (3 if learner.abilities.kind == "classification" else 2)
    case = _Case(lambda: as_learner(make()), rows, outputs)
    for check in LEARNER_CHECKS:
        check(case)


def fitting_is_what_makes_it_fitted(case: _Case) -> None:
    """Before its first fit, a learner has ``fitted`` set to ``False`` and refuses to predict."""
    learner = case.bound()
    expect(not learner.fitted, "a new learner says that it is fitted")
    try:
        learner.predict(case.X)
    except InvalidInput:
        pass
    else:
        raise AssertionError("predicting before fitting should raise InvalidInput")
    expect(case.fitted(case.targets).fitted, "after fitting it says that it is not fitted")


def same_generator_same_model(case: _Case) -> None:
    """The generator is the only source of randomness."""
    one, other = case.fitted(case.targets), case.fitted(case.targets)
    expect(same_bits(one.predict(case.X), other.predict(case.X)), "same generator, another model")
    expect(same_bits(one.predict(case.X), one.predict(case.X)), "predicting twice differs")


def predictions_are_well_formed(case: _Case) -> None:
    """One finite row of float64 per input, a distribution for classification; also for one input."""
    learner = case.fitted(case.targets)
    for X in (case.X, case.X[:1]):
        outputs = learner.predict(X)
        expect(
            outputs.shape == (len(X), case.n_outputs) and outputs.dtype == np.float64,
            f"predictions have shape {outputs.shape} and type {outputs.dtype}, "
            f"expected {(len(X), case.n_outputs)} and float64",
        )
        expect(np.isfinite(outputs).all(), "predictions hold NaN or infinite values")
        if learner.abilities.kind == "classification":
            expect(outputs.min() >= 0, "probabilities are negative")
            expect(np.allclose(outputs.sum(axis=1), 1, atol=1e-6), "rows do not sum to 1")
            logits = learner.logits(X)
            expect(logits.shape == outputs.shape, f"logits have shape {logits.shape}")
            expect(np.isfinite(logits).all(), "logits hold NaN or infinite values")


def a_class_it_never_saw_keeps_its_column(case: _Case) -> None:
    """A party that lacks a class still answers in the federation's columns."""
    if case.bound().abilities.kind == "regression" or case.n_outputs < 3:
        return
    targets = np.eye(case.n_outputs)[np.arange(len(case.X)) % 2]
    outputs = case.fitted(targets).predict(case.X)
    expect(outputs.shape[1] == case.n_outputs, f"predictions have {outputs.shape[1]} columns")
    expect(
        outputs[:, 2:].mean() < outputs[:, :2].mean(),
        "a class it never saw is likelier than others",
    )


def soft_targets_are_taken_as_declared(case: _Case) -> None:
    """Native and weighted learners distinguish a share of 0.9 from 0.6; a hardened one cannot."""
    if case.bound().abilities.kind == "regression":
        return
    sure, unsure, contrary = (
        case.fitted(case.constant(p)).predict(case.X) for p in (0.9, 0.6, 0.1)
    )
    declared = case.bound().abilities.soft_targets
    if declared == "hardened":
        expect(same_bits(sure, unsure), "declared hardened, and yet soft targets make a difference")
    else:
        expect(not same_bits(sure, unsure), f"declared {declared}, and soft targets are ignored")
    expect(sure[:, 0].mean() > contrary[:, 0].mean(), "the model does not follow its targets")


def weights_count_or_are_refused(case: _Case) -> None:
    """If every second row contradicts the next one, the model follows the rows with the larger weights."""
    even = np.arange(len(case.X)) % 2 == 0
    targets = np.where(even[:, None], case.constant(1.0), case.constant(0.0))
    pairs = _Case(case.make, np.repeat(case.X[even], 2, axis=0)[: len(case.X)], case.n_outputs)
    weights = np.where(even, 9.0, 1.0)
    if not case.bound().abilities.sample_weight:
        try:
            pairs.fitted(targets, weights)
        except InvalidInput:
            return
        raise AssertionError("declared without row weights, and yet they are not refused")
    towards = pairs.fitted(targets, weights).predict(pairs.X)[:, 0].mean()
    away = pairs.fitted(targets, 10 - weights).predict(pairs.X)[:, 0].mean()
    expect(towards > away, "declared with row weights, and they make no difference")


def a_second_fit_goes_on_or_starts_anew_as_declared(case: _Case) -> None:
    """Incremental learners remember; the others are as if fitted for the first time."""
    once = case.fitted(case.targets)
    twice = case.fitted(np.roll(case.targets, 1, axis=0), seed=1)
    twice.fit(case.X, case.targets, rng=np.random.default_rng(0), phase="private")
    same = same_bits(once.predict(case.X), twice.predict(case.X))
    if once.abilities.incremental:
        expect(not same, "declared incremental, and yet the second fit forgot the first")
    else:
        expect(same, "declared to start anew, and yet the first fit shows in the second")


def saved_and_loaded_it_is_the_same(case: _Case) -> None:
    """A new learner that loads a file predicts bit-identical values; a damaged file raises ``RunFailed``."""
    learner = case.fitted(case.targets)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{learner.suffix}"
        learner.save(path)
        loaded = case.bound()
        loaded.load(path)
        expect(loaded.fitted, "a loaded learner says that it is not fitted")
        expect(
            same_bits(learner.predict(case.X), loaded.predict(case.X)), "loaded, it predicts else"
        )
        if learner.abilities.kind == "classification":
            expect(same_bits(learner.logits(case.X), loaded.logits(case.X)), "loaded logits differ")
        path.write_bytes(path.read_bytes()[:20])
        try:
            case.bound().load(path)
        except RunFailed:
            return
        raise AssertionError("a damaged file should raise RunFailed")


def what_it_is_given_stays_as_it_was(case: _Case) -> None:
    """Inputs, targets and weights are not written to, nor any global generator drawn from."""
    weights = np.linspace(1, 2, len(case.X)) if case.bound().abilities.sample_weight else None
    given = [case.X.copy(), case.targets]
    before = _global_generators()
    learner = case.bound()
    learner.fit(given[0], given[1], rng=np.random.default_rng(0), weights=weights, phase="first")
    learner.predict(given[0])
    expect(np.array_equal(given[0], case.X), "the inputs were changed")
    expect(np.array_equal(given[1], case.targets), "the targets were changed")
    if weights is not None:
        expect(np.array_equal(weights, np.linspace(1, 2, len(case.X))), "the weights were changed")
    expect(before == _global_generators(), "a global random generator was used")


def a_copy_is_independent(case: _Case) -> None:
    """Every run starts from a deep copy; what happens to it must not reach the original."""
    learner = case.fitted(case.targets)
    before = learner.predict(case.X)
    other = copy.deepcopy(learner)
    expect(same_bits(before, other.predict(case.X)), "a deep copy predicts otherwise")
    targets = np.roll(case.targets, 1, axis=0)
    other.fit(case.X, targets, rng=np.random.default_rng(1), phase="private")
    expect(same_bits(before, learner.predict(case.X)), "fitting a deep copy changed the original")


LEARNER_CHECKS: tuple[Callable[[_Case], None], ...] = (
    fitting_is_what_makes_it_fitted,
    same_generator_same_model,
    predictions_are_well_formed,
    a_class_it_never_saw_keeps_its_column,
    soft_targets_are_taken_as_declared,
    weights_count_or_are_refused,
    a_second_fit_goes_on_or_starts_anew_as_declared,
    saved_and_loaded_it_is_the_same,
    what_it_is_given_stays_as_it_was,
    a_copy_is_independent,
)


def _global_generators() -> list[bytes]:
    """The states of the generators that a careless model might draw from."""
    state: Any = np.random.get_state()  # noqa: NPY002
    states = [state[1].tobytes() + bytes([state[2] % 256]), repr(random.getstate()).encode()]
    if torch := sys.modules.get("torch"):
        states.append(torch.get_rng_state().numpy().tobytes())
    return states

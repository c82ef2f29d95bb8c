"""The checks find what they are there to find."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from consilience import LocalNetwork, avg
from consilience.core.aggregation import Aggregator, mean
from consilience.core.aggregation.base import Combined
from consilience.core.checks import (
    AGGREGATOR_CHECKS,
    LEARNER_CHECKS,
    NETWORK_CHECKS,
    PROTOCOL_CHECKS,
    ProtocolCase,
    check_aggregator,
    check_learner,
    check_network,
    check_protocol,
)
from consilience.core.checks.example_models import Linear
from consilience.core.checks.example_parties import NAMES
from consilience.core.checks.protocol import (
    a_party_that_drops_out_is_left_out,
    resumed_equals_straight,
)
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure, SharedModel
from consilience.core.protocols import Round, RoundState, protocol
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.lab.experiments.oracles import class_holders
from consilience.methods.checks import model_senders
from consilience.methods.model_exchange.protocols import (
    alternating_distillation,
    averaged_distillation,
)
from consilience.methods.model_exchange.tasks import TrainTowards


@pytest.mark.parametrize(
    "make",
    [
        Linear,
        lambda: Linear(incremental=False),
        lambda: Linear("regression"),
        DecisionTreeClassifier,
        KNeighborsClassifier,
        LogisticRegression,
        Ridge,
    ],
    ids=["linear", "refit", "regression", "tree", "knn", "logistic", "ridge"],
)
def test_good_learners_pass(make):
    check_learner(make)


def test_every_check_says_what_it_checks():
    for check in (*LEARNER_CHECKS, *AGGREGATOR_CHECKS, *NETWORK_CHECKS, *PROTOCOL_CHECKS):
        assert check.__doc__


# --- learners ---------------------------------------------------------------------------------------


class Global(Linear):
    def fit(self, X, targets, **rest):
        super().fit(X, targets + 0 * np.random.rand(), **rest)  # noqa: NPY002


class Unseeded(Linear):
    def fit(self, X, targets, *, rng, **rest):
        super().fit(X, targets, rng=np.random.default_rng(), **rest)


class Scaled(Linear):
    def predict(self, X):
        return 1.1 * super().predict(X)


class Deaf(Linear):
    def fit(self, X, targets, *, weights=None, **rest):
        super().fit(X, targets, weights=None, **rest)


class Hard(Linear):
    def fit(self, X, targets, **rest):
        super().fit(X, np.eye(targets.shape[1])[targets.argmax(axis=1)], **rest)


class Greedy(Linear):
    def fit(self, X, targets, **rest):
        super().fit(X, targets, **rest)
        targets[:] = 0


class Forgetful(Linear):
    def load(self, path):
        super().load(path)
        self.weights = self.weights.astype(np.float32).astype(float)


class Shared(Linear):
    held: ClassVar[dict] = {}

    def fit(self, X, targets, **rest):
        self.weights = self.held.get("weights")
        super().fit(X, targets, **rest)
        self.held["weights"] = self.weights


class Modest(Linear):
    def __init__(self):
        super().__init__()
        self.abilities = replace(self.abilities, sample_weight=False)


class Anew(Linear):
    def fit(self, X, targets, **rest):
        self.weights = None
        super().fit(X, targets, **rest)


class Trusting(Linear):
    def load(self, path):
        self.weights = np.zeros((5, 3))


class Guessing(Linear):
    def predict(self, X):
        return super().predict(X) if self.fitted else np.full((len(X), self.n_outputs), 0.5)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Global, "a global random generator was used"),
        (Unseeded, "same generator, another model"),
        (Scaled, "rows do not sum to 1"),
        (Deaf, "declared with row weights, and they make no difference"),
        (Hard, "declared native, and soft targets are ignored"),
        (Greedy, "the targets were changed"),
        (Forgetful, "loaded, it predicts else"),
        (Shared, "same generator, another model"),
        (Modest, "declared without row weights, and yet they are not refused"),
        (Anew, "declared incremental, and yet the second fit forgot the first"),
        (Trusting, "loaded, it predicts else"),
        (Guessing, "predicting before fitting should raise InvalidInput"),
    ],
)
def test_bad_learners_are_found(make, why):
    with pytest.raises(AssertionError, match=why):
        check_learner(make)


def test_a_model_may_be_given_by_name():
    check_learner(lambda: as_learner("decision-tree"))


# --- aggregators ------------------------------------------------------------------------------------


def rule(function, **more) -> Aggregator:
    return Aggregator("mine", lambda stack: Combined(*function(stack)), **more)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda s: (s.outputs.sum(axis=0), None), "do not sum to 1"),
        (lambda s: (s.outputs[:, :1].mean(axis=0), None), "shape"),
        (lambda s: (s.outputs[0], None), "another order, another teacher"),
        (lambda s: (1 - s.outputs.mean(axis=0), None), "sum to 1"),
        (lambda s: ((1 - s.outputs.mean(axis=0)) / 2, None), "the teacher names another"),
        (lambda s: (s.outputs.mean(axis=0), np.ones(s.outputs.shape[:2])), "weights do not sum"),
        (lambda s: (s.outputs.mean(axis=0) * np.nan, None), "NaN"),
        (
            lambda s: (np.random.default_rng().dirichlet(np.ones(3), s.outputs.shape[1]), None),
            "the same replies gave another teacher",
        ),
    ],
)
def test_bad_rules_are_found(function, why):
    with pytest.raises(AssertionError, match=why):
        check_aggregator(rule(function))


def test_the_holders_of_a_class_pass_with_the_names_they_know():
    holders = {name: [i % 3] for i, name in enumerate(NAMES)}
    labels = np.arange(12) % 3
    check_aggregator(class_holders(labels, {**holders, "ash": [0, 1, 2]}))


# --- protocols --------------------------------------------------------------------------------------


def bad(**turned: bool):
    """A distillation with one thing done wrong."""

    @protocol(exchanges="predictions")
    def distillation(network, public, state, *, rounds=2):
        memory = []
        if state is None:
            network.ask(FitPrivate(round=1))
            state = RoundState(round=0)
            yield Round(0, state)
        for t in range(1 if "restarts" in turned else state.round + 1, rounds + 1):
            replies = network.ask(PredictPublic(round=t))
            teacher = avg()(replies)
            if "noisy" in turned:
                values = np.random.default_rng().dirichlet(np.ones(3), len(public))
                teacher = replace(teacher, values=values.astype(np.float32))
            if "remembers" in turned:
                memory.append(teacher.values)
                teacher = replace(teacher, values=np.mean(memory, axis=0))
            if "blames" in turned:
                teacher = replace(teacher, parties=network.parties)
            network.ask(Distill(round=t, targets=teacher.values, alpha=0.5), to=replies.parties)
            state = RoundState(round=t)
            yield Round(t + (1 if "counts" in turned else 0), state, teacher, replies)

    return distillation()


def test_the_protocol_done_right_passes():
    check_protocol(bad())


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("noisy", "the same seed gave another result"),
        ("remembers", "resumed after round 1 the result is another"),
        ("restarts", "resumed after round"),
        ("blames", "it still counts in the teacher of round 2"),
        ("counts", "rounds are numbered"),
    ],
)
def test_bad_protocols_are_found(wrong, why):
    with pytest.raises(AssertionError, match=why):
        check_protocol(bad(**{wrong: True}))


@pytest.mark.parametrize(
    ("exchange", "all_needed", "why"),
    [
        (averaged_distillation, True, "all were needed, and the run went on"),
        (alternating_distillation, False, "the run ended with .* ash did not train"),
    ],
)
def test_who_is_needed_must_be_said(exchange, all_needed, why):
    with pytest.raises(AssertionError, match=why):
        case = ProtocolCase(exchange(rounds=2), model_senders, all_needed)
        a_party_that_drops_out_is_left_out(case)


def test_models_that_are_not_in_the_state_are_missed():
    """It teaches with the models of the round before, and its state holds none of them."""

    @protocol(exchanges="predictions")
    def forgetful(network, public, state, *, rounds=2):
        models = ()
        if state is None:
            replies = network.ask(TrainTowards(round=0, labels=1.0))
            models, state = tuple(replies.of(SharedModel)), RoundState(round=0)
            yield Round(0, state, replies=replies)
        for t in range(state.round + 1, rounds + 1):
            share = 1 / (len(models) + 1)
            task = TrainTowards(round=t, models=models, share=share, labels=share)
            models = tuple(network.ask(task).of(SharedModel))
            yield Round(t, RoundState(round=t))

    with pytest.raises(AssertionError, match="resumed after round 0 the result is another"):
        resumed_equals_straight(ProtocolCase(forgetful(), model_senders))


def test_rules_and_cohort_must_go_together():
    from consilience import ensemble_distillation
    from consilience.core.errors import InvalidInput

    with pytest.raises(InvalidInput, match="for regression"):
        check_protocol(ensemble_distillation(aggregate=mean(), rounds=2))


# --- networks ---------------------------------------------------------------------------------------


class Blurred(LocalNetwork):
    def exchange(self, tasks, to, request):
        arrivals = super().exchange(tasks, to, request)
        return {n: a._replace(bytes_up=a.bytes_up + 1) for n, a in arrivals.items()}


class Strict(LocalNetwork):
    def exchange(self, tasks, to, request):
        arrivals = super().exchange(tasks, to, request)
        gone = Failure(party="", reason="gone")
        return {
            n: a._replace(outcome=replace(gone, party=n)) if isinstance(a.outcome, Failure) else a
            for n, a in arrivals.items()
        } | {n: a._replace(seconds=0) for n, a in arrivals.items() if n == "damson"}


@pytest.mark.parametrize(
    ("make", "why"),
    [(Blurred, "bytes are recorded"), (Strict, "damson is accepted, expected late")],
)
def test_bad_networks_are_found(make, why):
    with pytest.raises(AssertionError, match=why):
        check_network(make)

"""Agents that train on one another's models: by hand, against kernel agents, and over every network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

from consilience import Federation, LocalNetwork, Model, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused, QuorumLost, RunFailed
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import SharedModel
from consilience.core.messages.schema import Public
from consilience.core.party.rules import PartyRules
from consilience.core.protocols import ensemble_distillation
from consilience.methods.kernel_federations.agents import KernelAgents
from consilience.methods.model_exchange.party import predict_private_with
from consilience.methods.model_exchange.protocols import (
    alternating_distillation,
    averaged_distillation,
    parallel_distillation,
)
from consilience.methods.model_exchange.signed_ensemble import SignedEnsemble
from consilience.models import KernelRidge, TorchRecipe, make

ONE = np.array([[1.0]])
SCHEMES = {
    "alternating": alternating_distillation,
    "averaged": averaged_distillation,
    "parallel": parallel_distillation,
}


def agents(**options: Any) -> list[Party]:
    """Agents of ``test_kernel_agents.py``: λ N_a = c N, so λ = 2 for two of four rows, c = 1."""
    model = KernelRidge(2.0, kernel="linear")
    data = {
        "first": (np.array([[1.0], [1.0]]), np.array([6.0, 6.0])),
        "second": (np.array([[1.0], [-1.0]]), np.array([12.0, -12.0])),
    }
    return [
        Party(name, model, X, y, calibration=0, **{"rules": PartyRules(sends_rows=True)} | options)
        for name, (X, y) in data.items()
    ]


def slopes(federation: Federation) -> list[float]:
    return [float(model.predict(ONE)[0, 0]) for model in federation.network.models().values()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alternating", ([2, 4], [4 / 3, 2 / 3], [2 / 9, 4 / 9])),
        ("averaged", ([2, 4], [5 / 3, 7 / 3], [25 / 18, 41 / 18])),
        ("parallel", ([2, 4], [1, 1], [1 / 3, 1 / 3])),
    ],
)
def test_three_rounds_by_hand(name: str, expected: Any) -> None:
    """Slopes 2 and 4 alone; derived in ``tests/methods/kernel_federations/test_kernel_agents.py``."""
    federation = Federation(agents())
    found = [slopes(federation) for _ in federation.rounds(SCHEMES[name](rounds=2))]
    assert found == [pytest.approx(row) for row in expected]


def test_ensemble_by_hand() -> None:
    """6, 6 − 2, 6 − 2 + 2/3, …, and 9/2 in the end, which central training finds."""
    history = Federation(agents()).run(alternating_distillation(rounds=30))
    ensemble = SignedEnsemble.of(round.replies for round in history.rounds)
    assert [ensemble.truncated(t).predict(ONE)[0, 0] for t in (0, 1, 2)] == pytest.approx(
        [6, 4, 14 / 3]
    )
    assert ensemble.predict(ONE)[0, 0] == pytest.approx(4.5)


def test_one_model_goes_round_alone() -> None:
    """From the second: slope 4, then 4/3 at the first, then 4/9 at the second; the first stays at 4/3."""
    federation = Federation(agents())
    protocol = alternating_distillation(rounds=2, start="second")
    found = [slopes(federation) for _ in federation.rounds(protocol)]
    assert found == [pytest.approx(row) for row in ([2, 4], [4 / 3, 4], [4 / 3, 4 / 9])]


@pytest.mark.parametrize("name", SCHEMES)
def test_three_kernel_agents_equal_the_exact_ones(name: str) -> None:
    rng = np.random.default_rng(0)
    data = [(rng.random((6, 2)), rng.normal(size=6)) for _ in range(3)]
    model = KernelRidge(0.15, kernel="laplacian", gamma=1.0)
    parties = [
        Party(f"agent-{i}", model, X, y, calibration=0, rules=PartyRules(sends_rows=True))
        for i, (X, y) in enumerate(data)
    ]
    federation = Federation(parties)
    *_, _ = federation.rounds(SCHEMES[name](rounds=4))

    def kernel(X: Any, Z: Any) -> Any:
        return np.exp(-np.abs(X[:, None] - Z[None]).sum(axis=2))

    exact = KernelAgents(kernel, data, regularization=0.15 * 6 / 18)
    *_, (targets, _) = zip(getattr(exact, name)(), range(5), strict=False)
    X = rng.random((4, 2))
    for model, expected in zip(
        federation.network.models().values(), exact.fit(targets), strict=True
    ):
        assert model.predict(X) == pytest.approx(expected.predict(X), rel=1e-9)


def mixed(*, wire: bool = False, home: Path | None = None) -> Federation:
    """A forest, a linear model and a network on digits' first three classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(n_class=3, return_X_y=True)
    X = X / 16
    recipe = TorchRecipe(first_epochs=3, learning_rate=0.01)
    models = {
        "forest": RandomForestClassifier(n_estimators=8, max_depth=4),
        "linear": LogisticRegression(max_iter=300),
        "network": make("mlp", hidden=(16,), recipe=recipe),
    }
    parties = []
    for i, (name, model) in enumerate(models.items()):
        rows = slice(i * 100, (i + 1) * 100)
        parties.append(Party(name, model, X[rows], y[rows], test=(X[300:400], y[300:400])))
        parties[-1].keep_states_in(None if home is None else home / name)
    return federation_over(LocalNetwork(parties, Public.none(), wire=wire), Public.none())


def test_kinds_of_models_learn_from_one_another() -> None:
    history = mixed().run(averaged_distillation(rounds=2))
    accuracy = history.metric("accuracy")
    assert accuracy.shape == (3, 3) and accuracy[-1].min() > 0.85
    assert history.bytes_up > 3 * 3 * 1000


@pytest.mark.parametrize("name", SCHEMES)
def test_the_wire_changes_nothing(name: str) -> None:
    plain, wired = (mixed(wire=wire).run(SCHEMES[name](rounds=1)) for wire in (False, True))
    assert np.array_equal(plain.metric("log_loss"), wired.metric("log_loss"))
    assert plain.bytes_up == wired.bytes_up


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    from consilience.core.messages.wire import decode, encode
    from consilience.core.tasks.lifecycle import Checkpoint, Restore

    protocol = averaged_distillation(rounds=3)
    straight = mixed()
    *_, _ = straight.rounds(protocol)
    first = mixed(home=tmp_path)
    rounds = first.rounds(protocol)
    for _ in range(2):
        round = next(rounds)
    first.network.require(Checkpoint(round=round.number))
    (state,) = decode(encode([round.state]))
    second = mixed(home=tmp_path)
    second.form()
    second.network.require(Restore(round=round.number))
    *_, _ = second.rounds(protocol, state=state)
    X = np.random.default_rng(0).random((5, 64))
    for name, model in straight.network.models().items():
        assert np.array_equal(
            model.predict_proba(X), second.network.models()[name].predict_proba(X)
        ), name


def test_models_that_hold_rows_are_not_sent_unasked() -> None:
    rows = np.random.default_rng(0).random((8, 2))
    y = np.repeat(["a", "b"], 4)
    parties = [Party(name, KNeighborsClassifier(2), rows, y) for name in ("x", "z")]
    refused = pytest.raises(InvalidInput, match="KNeighborsClassifier holds rows of its private")
    for scheme in (averaged_distillation, parallel_distillation, alternating_distillation):
        with refused:
            list(Federation(parties).rounds(scheme(rounds=1)))
        assert not any(
            party.trainer.learner.fitted for party in parties
        )  # before anything is trained


def test_a_network_that_nobody_else_could_build_is_refused_before_it_is_trained() -> None:
    torch = pytest.importorskip("torch")
    rows, y = np.random.default_rng(0).random((8, 2)), np.repeat(["a", "b"], 4)
    parties = [Party(name, torch.nn.Linear(2, 2), rows, y) for name in ("x", "z")]
    with pytest.raises(InvalidInput, match="no other party could build this network"):
        list(Federation(parties).rounds(averaged_distillation(rounds=1)))
    assert not any(party.trainer.learner.fitted for party in parties)


def test_models_that_are_not_trusted_are_not_built() -> None:
    """The second learns from its labels alone, and says so; a ring has nothing else to give it."""
    parties = [agents()[0], agents(rules=PartyRules(sends_rows=True, trusts=("sklearn",)))[1]]
    federation = Federation(parties)
    *_, _ = federation.rounds(averaged_distillation(rounds=1))
    assert slopes(federation) == pytest.approx([5 / 3, 4])
    notes = [d.detail for d in federation.network.deliveries if d.party == "second" and d.detail]
    assert notes == [
        "without the model of first: a model of 'consilience', which is not trusted here"
    ]
    with pytest.raises(QuorumLost, match=r"second did not train .*not trusted here"):
        list(Federation(parties).rounds(alternating_distillation(rounds=1)))


def test_rows_are_looked_for_in_the_parts_of_a_model() -> None:
    from sklearn.ensemble import BaggingClassifier

    rows, y = np.random.default_rng(0).random((8, 2)), np.repeat(["a", "b"], 4)
    model = BaggingClassifier(KNeighborsClassifier(2), n_estimators=2)
    parties = [Party(name, model, rows, y) for name in ("x", "z")]
    with pytest.raises(InvalidInput, match="a trained KNeighborsClassifier holds rows"):
        list(Federation(parties).rounds(averaged_distillation(rounds=1)))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: np.zeros_like(data), "damaged"),
        (lambda data: data[:10], "damaged"),
    ],
)
def test_spoilt_models_are_refused(spoil: Any, said: str) -> None:
    (party, *_) = agents()
    federation = Federation([party, agents()[1]])
    replies = next(federation.rounds(averaged_distillation(rounds=1))).replies
    assert replies is not None
    model = replies.of(SharedModel)[0]
    with pytest.raises(KnowledgeRefused) as refused:
        predict_private_with(party, model.about, spoil(model.data))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda about: about.replace('"regression"', '"classification"'),
            "cannot be used|a model for",
        ),
        (lambda about: about.replace("Ridge", "Lasso"), "not what it is called"),
    ],
)
def test_models_that_are_described_otherwise_are_refused(change: Any, said: str) -> None:
    X, y = np.eye(4), np.arange(4.0)
    parties = [Party(name, Ridge(), X, y, calibration=0) for name in ("a", "b")]
    replies = next(Federation(parties).rounds(averaged_distillation(rounds=1))).replies
    assert replies is not None
    model = replies.of(SharedModel)[0]
    with pytest.raises(KnowledgeRefused, match=said):
        predict_private_with(parties[0], change(model.about), model.data)


def shared_by(model: Any, X: Any, y: Any) -> SharedModel:
    """What a party of its own federation sends."""
    parties = [Party(name, model, X, y, calibration=0) for name in ("a", "b")]
    replies = next(
        Federation(parties, strict=False).rounds(averaged_distillation(rounds=1))
    ).replies
    assert replies is not None
    return replies.of(SharedModel)[0]


class Wild(Ridge):  # type: ignore[misc]
    """Answers that are no numbers."""

    def predict(self, X: Any) -> Any:
        return np.full(len(X), np.inf)


@pytest.mark.parametrize(
    ("model", "width", "said"),
    [
        (LogisticRegression(), 5, "a model that cannot answer"),
        (Ridge(), 4, "a model for regression, not classification"),
    ],
)
def test_a_bad_model_is_left_out_and_everybody_goes_on(model: Any, width: int, said: str) -> None:
    """Of three agents one sends what nobody can use; the others train on without it, round after round."""
    rng = np.random.default_rng(0)
    X, y = rng.random((20, 4)), np.tile([0, 1], 10)
    bad = shared_by(
        model, rng.random((20, width)), y if model.__class__ is LogisticRegression else X
    )
    parties = [Party(n, LogisticRegression(), X, y, calibration=0) for n in ("a", "b", "c")]
    federation = Federation(parties)
    steps = federation.rounds(averaged_distillation(rounds=3))
    first = next(steps)
    spoilt = replace(bad, party="c", round=0)
    first.state.memory["c"] = spoilt  # type: ignore[index]
    second = next(steps)
    assert second.replies is not None and second.replies.parties == ("a", "b", "c")
    notes = [d.detail for d in federation.network.deliveries if d.round == 1 and d.party == "a"]
    assert any(said in note for note in notes), notes


def test_answers_without_end_are_refused() -> None:
    X, y = np.eye(4), np.arange(4.0)
    model = shared_by(Wild(), X, y)
    party = Party("a", Ridge(), X, y, calibration=0, rules=PartyRules(trusts=("sklearn", "tests")))
    Federation([party, Party("b", Ridge(), X, y)]).form()
    with pytest.raises(KnowledgeRefused):
        predict_private_with(party, model.about, model.data)


class Moody(Ridge):  # type: ignore[misc]
    """Fails at its second fit."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        Moody.fits += 1
        if Moody.fits == 2:
            raise ValueError("not today")
        return super().fit(X, y, sample_weight)

    fits = 0


@pytest.mark.parametrize("scheme", [averaged_distillation, parallel_distillation])
def test_an_agent_that_failed_once_comes_back(scheme: Any) -> None:
    X, y = np.eye(4), np.arange(4.0)
    Moody.fits = 2  # it is tried for row weights when a party is made
    trusts = ("sklearn", "tests")
    parties = [
        Party(name, model, X, y, calibration=0, rules=PartyRules(trusts=trusts))
        for name, model in (("a", Moody()), ("b", Ridge()), ("c", Ridge()))
    ]
    Moody.fits = 0
    answered = [
        round.replies.parties if round.replies else ()
        for round in Federation(parties).rounds(scheme(rounds=3))
    ]
    everyone = ("a", "b", "c")
    assert answered == [everyone, ("b", "c"), everyone, everyone]


class Keeper(Ridge):  # type: ignore[misc]
    """Keeps two of its rows in a list, for no good reason."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.kept_ = [np.array(X[:2])]
        return super().fit(X, y, sample_weight)


def test_rows_are_found_where_nobody_expects_them() -> None:
    X, y = np.random.default_rng(0).random((6, 3)), np.arange(6.0)
    for allowed in (True, False):
        parties = [
            Party(n, Keeper(), X, y, calibration=0, rules=PartyRules(sends_rows=allowed))
            for n in "ab"
        ]
        steps = Federation(parties).rounds(averaged_distillation(rounds=1))
        if allowed:
            assert next(steps).number == 0
        else:
            with pytest.raises(QuorumLost, match="a trained Keeper holds rows of its private data"):
                next(steps)


class Mine(KNeighborsClassifier):  # type: ignore[misc]
    """Derived of a model that is its rows."""


def test_what_is_derived_of_a_model_that_holds_rows_holds_them_too() -> None:
    X, y = np.random.default_rng(0).random((6, 3)), np.tile([0, 1], 3)
    parties = [Party(name, Mine(1), X, y) for name in "ab"]
    with pytest.raises(InvalidInput, match="a trained Mine holds rows"):
        next(Federation(parties).rounds(averaged_distillation(rounds=1)))


class Lazy(Ridge):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        raise ValueError("not today")


def test_a_ring_needs_every_agent() -> None:
    X, y = np.eye(4), np.arange(4.0)
    parties = [Party("a", Ridge(), X, y), Party("b", Ridge(), X, y), Party("c", Lazy(), X, y)]
    with pytest.raises(QuorumLost, match="c did not train"):
        list(Federation(parties).rounds(alternating_distillation(rounds=1)))


def test_what_cannot_work_is_refused_before_training() -> None:
    (one, other) = agents()
    with pytest.raises(InvalidInput, match="one agent only"):
        next(Federation([one]).rounds(averaged_distillation(rounds=1)))
    with pytest.raises(InvalidInput, match="no agent is called 'third'"):
        next(Federation(agents()).rounds(alternating_distillation(rounds=1, start="third")))
    with pytest.raises(InvalidInput, match="rounds is 0"):
        next(Federation(agents()).rounds(parallel_distillation(rounds=0)))
    wide = Party("wide", KernelRidge(kernel="linear"), np.eye(3), np.ones(3))
    with pytest.raises(InvalidInput, match=r"an input of 'wide' is \(3,\), one of 'first' \(1,\)"):
        Federation([one, other, wide]).form()
    table = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]})
    y = np.arange(2.0)
    tables = {"first": table, "other": table.rename(columns={"b": "c"})}
    gaps = [Party(name, KernelRidge(kernel="linear"), one, y) for name, one in tables.items()]
    with pytest.raises(
        InvalidInput, match=r"no public rows, and the columns of .* differ in"
    ) as caught:
        Federation(gaps).form()
    assert "with columns" not in str(caught.value)
    from consilience.core.aggregation import mean

    with pytest.raises(InvalidInput, match="there is no public data"):
        next(Federation(agents()).rounds(ensemble_distillation(rounds=1, aggregate=mean())))


def test_ensembles_are_kept(tmp_path: Path) -> None:
    history = mixed().run(alternating_distillation(rounds=2))
    ensemble = SignedEnsemble.of(round.replies for round in history.rounds)
    assert (len(ensemble), ensemble.rounds) == (9, 2)
    ensemble.save(tmp_path / "ensemble.safetensors")
    kept = SignedEnsemble.load(tmp_path / "ensemble.safetensors")
    X = np.random.default_rng(0).random((7, 64))
    assert np.array_equal(kept.predict(X), ensemble.predict(X))
    assert kept.predict(X, batch=3) == pytest.approx(ensemble.predict(X), abs=1e-5)
    *_, last = ensemble.predictions(X)
    assert np.array_equal(last, ensemble.predict(X))
    names = history.models["forest"].classes
    assert kept.classes == ensemble.classes == names and len(names) == 3
    shorter = ensemble.truncated(1)
    assert len(shorter) == 6 and not np.array_equal(shorter.predict(X), ensemble.predict(X))
    student = ensemble.distilled("logistic-regression", X, rng=np.random.default_rng(0))
    assert student.predict(X).shape == (7, 3)
    named = Model(student, kept.classes).predict(X)
    assert set(named) <= set(names)
    for rounds in (3, 1.5):
        with pytest.raises(InvalidInput, match=f"rounds is {rounds}"):
            ensemble.truncated(rounds)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="there are no models"):
        SignedEnsemble([])
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(RunFailed, match="does not hold an ensemble"):
        SignedEnsemble.load(tmp_path / "other")
    with pytest.raises(KnowledgeRefused, match="not trusted"):
        SignedEnsemble.load(tmp_path / "ensemble.safetensors", trusted=()).predict(X)


@pytest.mark.parametrize("scheme", ["averaged", "parallel"])
def test_networks_go_on_from_where_they_were_and_forests_begin_anew(scheme: str) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    recipe = TorchRecipe(first_epochs=0)

    def outputs(rounds: int, **options: Any) -> dict[str, Any]:
        parties = [
            Party("forest", RandomForestClassifier(5), X[::2], y[::2], calibration=0),
            Party(
                "network", make("mlp", hidden=[4], recipe=recipe), X[1::2], y[1::2], calibration=0
            ),
        ]
        federation = Federation(parties)
        federation.run(SCHEMES[scheme](rounds=rounds, **options), progress=False)
        return {name: m.predict_proba(X) for name, m in federation.network.models().items()}

    alone, anew = outputs(1, warm_start=True), outputs(2)
    warm = outputs(2, warm_start=True)
    # A recipe without epochs leaves a network that goes on as it is, and a new one begins elsewhere.
    assert np.array_equal(warm["network"], alone["network"])
    assert not np.array_equal(anew["network"], alone["network"])
    assert not np.array_equal(warm["forest"], alone["forest"])

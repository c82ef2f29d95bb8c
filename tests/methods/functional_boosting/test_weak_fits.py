"""Weak-learning oracles: steps by hand, known best approximations, the strengths that are measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import Learner, as_learner
from consilience.methods.functional_boosting.lipschitz import LipschitzExtension, lipschitz_constant
from consilience.methods.functional_boosting.weak_fits import (
    ORACLES,
    LeastMaximum,
    SobolevTraining,
    gamma_l2,
    gamma_l_infinity,
    gamma_lipschitz,
    oracle_of,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(150, 2))
T = np.stack([np.sin(3 * X[:, 0]) + 0.3 * X.sum(axis=1) ** 2, np.cos(2 * X[:, 0])], axis=1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def polynomials(degree: int) -> Learner:
    return as_learner(make_pipeline(PolynomialFeatures(degree), LinearRegression()))


def network(**recipe: Any) -> Learner:
    nn = pytest.importorskip("torch").nn

    def made(shape: tuple[int, ...], n_outputs: int) -> Any:
        return nn.Sequential(nn.Linear(shape[0], 24), nn.Tanh(), nn.Linear(24, n_outputs))

    recipe = {"learning_rate": 1e-2, "first_epochs": 60, "epochs": 3, **recipe}
    return as_learner(made, kind="regression", recipe=recipe)


def slope_zero(**recipe: Any) -> Learner:
    """x ↦ wx with w = 0."""
    nn = pytest.importorskip("torch").nn
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    step = {"optimizer": "sgd", "learning_rate": 0.1, "initial": "given", "first_epochs": 1}
    return as_learner(layer, kind="regression", recipe={**step, **recipe})


def test_gammas_by_hand():
    """φ = (3, 0), (0, 4) at 0 and 1; h is off by (0, 0) and (0, 1).

    L²: 1/5. L∞: 1/4. Constants over the one pair: of h − φ 1, of φ 5; the worse of 1/4 and 1/5.
    """
    phi, h = np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[3.0, 0.0], [0.0, 3.0]])
    at = np.array([[0.0], [1.0]])
    assert gamma_l2(h, phi) == pytest.approx(0.8)
    assert gamma_l2(h, phi, np.array([0.0, 2.0])) == pytest.approx(0.75)
    assert gamma_l_infinity(h, phi) == pytest.approx(0.75)
    assert gamma_lipschitz(at, h, phi) == pytest.approx(0.75)
    # Off by (−1, 0) and (0, 1): √2 in place of 1, and 1 − √2/5 < ¾.
    steep = np.array([[2.0, 0.0], [0.0, 5.0]])
    assert gamma_lipschitz(at, steep, phi) == pytest.approx(1 - 2**0.5 / 5)
    for gamma in (gamma_l2, gamma_l_infinity, lambda h, phi: gamma_lipschitz(at, h, phi)):
        assert gamma(phi, phi) == 1
        assert gamma(0 * phi, phi) == 0
        assert gamma(-phi, phi) == -1
        assert gamma(0.3 * phi, phi) == pytest.approx(0.3)
        assert gamma(0 * phi, 0 * phi) == 1
        assert gamma(phi, 0 * phi) == -np.inf


def test_least_squares_is_the_learners_fit():
    learner, same = polynomials(2), polynomials(2)
    ORACLES["l2"](learner, X, T, rng())
    same.fit(X, T, rng=rng())
    np.testing.assert_array_equal(learner.predict(X), same.predict(X))
    assert ORACLES["l2"].gamma(X, same.predict(X), T) == gamma_l2(same.predict(X), T)


def test_one_reweighting_by_hand():
    """x² at −1, 0, 1 by lines: 2/3 by least squares, off by 1/3, 2/3, 1/3; weights e^¼, e, e^¼ give
    2e^¼ / (2e^¼ + e). The best line in the maximum is ½."""
    at, square = np.array([[-1.0], [0.0], [1.0]]), np.array([[1.0], [0.0], [1.0]])
    expected = {1: 2 / 3, 2: 2 * np.exp(0.25) / (2 * np.exp(0.25) + np.e), 60: 0.5}
    for fits, value in expected.items():
        learner = as_learner(LinearRegression())
        LeastMaximum(fits=fits)(learner, at, square, rng())
        np.testing.assert_allclose(learner.predict(at), value, atol=2e-3 if fits == 60 else 1e-12)


def test_best_cubic_approximation():
    """Of all quadratics the nearest to x³ on [−1, 1] is ¾x, off by ¼ at most (Chebyshev)."""
    at = np.linspace(-1, 1, 41)[:, None]
    learner = polynomials(2)
    LeastMaximum(fits=150)(learner, at, at**3, rng())
    off = np.abs(learner.predict(at) - at**3).max()
    assert 0.25 <= off < 0.255
    squares = polynomials(2)
    squares.fit(at, at**3, rng=rng())
    assert np.abs(squares.predict(at) - at**3).max() > 0.36


@pytest.mark.parametrize(
    "model", [DecisionTreeRegressor(max_depth=3), DecisionTreeRegressor(max_depth=6)]
)
def test_trees_come_nearer_in_the_maximum(model: Any):
    """Some rows they meet exactly, whose weights must not be lost; a few others are outliers."""
    phi = T + 2 * (rng(1).random((150, 1)) < 0.03)
    gammas = []
    for name in ("l2", "l_infinity"):
        learner = as_learner(model)
        ORACLES[name](learner, X, phi, rng())
        gammas.append(ORACLES["l_infinity"].gamma(X, learner.predict(X), phi))
    assert gammas[1] > gammas[0] + 0.03


def test_what_is_exact_is_fitted_once():
    learner = as_learner(LinearRegression())
    fits = []
    fit = type(learner).fit

    def counted(self: Learner, *given: Any, **named: Any) -> None:
        fits.append(named["weights"])
        fit(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(learner), "fit", counted)
        ORACLES["l_infinity"](learner, X, np.zeros((150, 1)), rng())
    assert fits == [None]
    np.testing.assert_array_equal(learner.predict(X), 0)


def measured(name: str, oracle: Any, seed: int = 0) -> tuple[float, float, float, np.ndarray]:
    learner = network()
    oracle(learner, X, T, rng(seed))
    h = learner.predict(X)
    return gamma_l2(h, T), gamma_l_infinity(h, T), gamma_lipschitz(X, h, T), h


def test_each_oracle_is_strong_in_its_norm():
    """A network of 24 units on a smooth query: least squares leaves most to be desired where it is steep."""
    squares, maximum, sobolev = (measured(name, ORACLES[name]) for name in ORACLES)
    assert list(ORACLES) == ["l2", "l_infinity", "sobolev"]
    assert maximum[1] > squares[1] + 0.03
    assert sobolev[2] > squares[2] + 0.1
    assert sobolev[2] > 0.7
    assert squares[0] > 0.8

    def gradient(points: np.ndarray) -> np.ndarray:
        found = np.zeros((len(points), 2, 2))
        found[:, 0] = 0.6 * points.sum(axis=1, keepdims=True)
        found[:, 0, 0] += 3 * np.cos(3 * points[:, 0])
        found[:, 1, 0] = -2 * np.sin(2 * points[:, 0])
        return found

    known = measured("sobolev", SobolevTraining(gradient))
    assert known[2] > squares[2] + 0.1
    assert lipschitz_constant(X, known[3]) < 1.1 * lipschitz_constant(X, T)


@pytest.mark.parametrize("name", list(ORACLES))
def test_same_stream_same_bits(name: str):
    answers = [measured(name, ORACLES[name], seed)[3] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()


@pytest.mark.parametrize("gradient", [None, lambda points: np.full((len(points), 1, 1), 2.0)])
@pytest.mark.parametrize(("strength", "expected"), [(1.0, 0.6), (0.0, 0.2), (2.0, 1.0)])
def test_a_sobolev_step_by_hand(gradient: Any, strength: float, expected: float):
    """wx at 0 and 1 towards 0 and 2: (w − 2)²/2, and strength (w − 2)² for secants as for gradients.

    At w = 0 the derivative is −2 − 4 strength; a step of 0.1.
    """
    learner = slope_zero()
    oracle = SobolevTraining(gradient, strength=strength)
    oracle(learner, np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]]), rng())
    np.testing.assert_allclose(learner.predict(np.ones((1, 1))), [[expected]], rtol=1e-6)


def test_sobolev_training_goes_on_from_where_it_is_and_keeps_the_best_epoch():
    at, values = np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]])
    learner = slope_zero()
    for expected in (0.6, 1.02):  # 0.6 + 0.1 · 3 · 1.4
        ORACLES["sobolev"](learner, at, values, rng())
        np.testing.assert_allclose(learner.predict(at[1:]), [[expected]], rtol=1e-6)
    # A rate of 0.7 leads from w to w + 2.1 (2 − w): to 4.2, and then ever further to both sides of 2.
    learner = slope_zero(learning_rate=0.7, first_epochs=30)
    ORACLES["sobolev"](learner, at, values, rng())
    np.testing.assert_allclose(learner.predict(at[1:]), [[4.2]], rtol=1e-6)


def test_the_lipschitz_extension_as_a_query():
    """Algorithm 3's query is the extension of a client's own labels, which is known everywhere."""
    at, y = X[:20], T[:20, :1]
    u = LipschitzExtension(at, y)
    learner = network(first_epochs=150)
    SobolevTraining(u.gradient)(learner, at, y, rng())
    assert gamma_l_infinity(learner.predict(at), y) > 0.5


def test_equal_rows():
    """They have no secant between them; the nearest other row is taken."""
    at, values = np.array([[0.0], [1.0], [0.0]]), np.array([[0.0], [2.0], [0.0]])
    learner = slope_zero()
    ORACLES["sobolev"](learner, at, values, rng())
    # (w − 2)²/3 + (w − 2)²: the derivative at 0 is −4/3 − 4.
    np.testing.assert_allclose(learner.predict(at[1:2]), [[0.1 * 16 / 3]], rtol=1e-6)


def test_learners_that_cannot_are_refused_before_training():
    no_weights = as_learner(KNeighborsRegressor())
    classifier = as_learner(DecisionTreeClassifier())
    tree = as_learner(DecisionTreeRegressor())
    cases = [
        ("l2", classifier, "this learner classifies"),
        ("l_infinity", classifier, "this learner classifies"),
        ("sobolev", classifier, "this learner classifies"),
        ("l_infinity", no_weights, "takes no weights"),
        ("sobolev", tree, "torch modules only"),
    ]
    for name, learner, message in cases:
        with pytest.raises(InvalidInput, match=message):
            ORACLES[name].check(learner)
        with pytest.raises(InvalidInput, match=message):
            ORACLES[name](learner, X, T, rng())
        assert not learner.fitted
    ORACLES["l2"].check(tree)
    ORACLES["l_infinity"].check(tree)
    ORACLES["sobolev"].check(network())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oracle_of("l_infinty"), "Did you mean 'l_infinity'"),
        (lambda: LeastMaximum(fits=0), "fits is 0"),
        (lambda: LeastMaximum(rate=0), "rate is 0"),
        (lambda: SobolevTraining(strength=-1), "strength is -1"),
        (lambda: SobolevTraining(neighbours=0), "neighbours is 0"),
        (lambda: SobolevTraining(rate=np.inf), "rate is inf"),
        (lambda: gamma_l2(T, T[:2]), "targets"),
        (lambda: gamma_l2(T, T, np.ones(3)), "weights must be"),
        (lambda: gamma_l_infinity(T[:, 0], T[:, 0]), "expected"),
        (lambda: gamma_lipschitz(X[[0, 0]], T[:2], T[:2]), "equal rows"),
        (lambda: ORACLES["sobolev"](network(), X[[0, 0]], T[:2], rng()), "equal rows"),
        (lambda: ORACLES["sobolev"](network(), X[[0, 0]], T[[0, 0]], rng()), "all rows are equal"),
        (
            lambda: SobolevTraining(lambda x: np.zeros((len(x), 2)))(network(), X, T, rng()),
            r"gradient has shape \(2, 2\), expected \(2, 2, 2\)",
        ),
    ],
)
def test_bad_input(call: Any, message: str):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_what_diverges_is_named():
    with pytest.raises(RunFailed, match="diverged"):
        ORACLES["sobolev"](
            slope_zero(learning_rate=1e20, first_epochs=3), X[:, :1], T[:, :1], rng()
        )


def test_whole_numbers_have_no_gradient_but_have_secants():
    nn = pytest.importorskip("torch").nn

    def made(shape: tuple[int, ...], n_outputs: int) -> Any:
        return nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(3 * shape[0], n_outputs))

    words = np.arange(5)[:, None]
    values = np.linspace(0, 1, 5)[:, None]
    recipe = {"learning_rate": 1e-2, "first_epochs": 100}
    learner = as_learner(made, kind="regression", recipe=recipe)
    with pytest.raises(InvalidInput, match="whole numbers"):
        SobolevTraining(lambda x: np.zeros((len(x), 1, 1)))(learner, words, values, rng())
    learner = as_learner(made, kind="regression", recipe=recipe)
    ORACLES["sobolev"](learner, words, values, rng())
    assert gamma_lipschitz(words, learner.predict(words), values) > 0.5

"""A round's map: its numbers by hand, how fast it gets there, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from consilience_papers.theory import (
    ConsensusMap,
    consensus_map,
    distillation_limit,
    distilled,
    kernel_ridge,
    self_distillation_limit,
    smoothing,
)


def dot(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return X @ Z.T


def brownian(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return 1 + np.minimum(X, Z.T)


def test_a_map_by_hand():
    """M = (3/8, 1/8), S = (3/4, 1/2): v ↦ (v₁/2 + 1, v₂/4 + 3), fixed at (2, 4), sent as (8/3, 8).

    The radius is 1/2, and 2⁻¹⁰ < 1/1000 < 2⁻⁹.
    """
    M, S = np.diag([3 / 8, 1 / 8]), np.diag([3 / 4, 1 / 2])
    round_map = ConsensusMap(M, np.array([1.0, 3.0]), S)
    np.testing.assert_allclose(round_map(np.array([4.0, 8.0])), [3, 5])
    consensus, sent = round_map.fixed_point()
    np.testing.assert_allclose(consensus, [2, 4])
    np.testing.assert_allclose(sent, [8 / 3, 8])
    assert round_map.contraction == pytest.approx(1 / 2)
    assert round_map.rounds(1e-3) == 10
    assert ConsensusMap(np.zeros((1, 1)), np.ones(1), np.eye(1)).rounds(1e-3) == 1


def test_a_clients_round_by_hand():
    """Private row 1 with y = 3, public row 2, α = λ = 1/2, functions θx: (θ − 3)² + (2θ − w)² + θ² is least
    at θ = (3 + 2w)/6, so the prediction 2θ is 1 + 2w/3. K_pp = 4 gives S = 4/(4 + 1/2) = 8/9."""
    given = {"regularization": 1 / 2, "alpha": 1 / 2}
    client, public = ([[1.0]], [3.0]), [[2.0]]
    np.testing.assert_allclose(distilled(dot, *client, public, [6.0], **given)([[1.0]]), [2.5])
    np.testing.assert_allclose(smoothing(dot, public, 1 / 2), [[8 / 9]])
    round_map = consensus_map(dot, [client], public, **given, deregularize=1 / 2)
    np.testing.assert_allclose(round_map.response, [[2 / 3]])
    np.testing.assert_allclose(round_map.offset, [1])
    np.testing.assert_allclose(round_map(np.array([8.0])), [1 + 2 / 3 * 9])
    assert round_map.contraction == pytest.approx(3 / 4)


def test_smoothing_is_a_regression_on_the_public_rows():
    """De-regularised values are those to which kernel ridge regression with λ₀ fits v."""
    rng = np.random.default_rng(0)
    public, w = rng.random((7, 1)), rng.normal(size=(7, 2))
    fitted = kernel_ridge(brownian, public, w, 0.1)(public)
    np.testing.assert_allclose(smoothing(brownian, public, 0.1) @ w, fitted, rtol=1e-10)


def test_jitter_is_a_share_of_the_mean_diagonal():
    """K_pp = diag(1, 3), mean 2; jitter 1/2 adds 1; with N_p λ₀ = 2: S = diag(2/4, 4/6)."""
    public = np.diag([1, np.sqrt(3)])
    S = smoothing(dot, public, 1.0, jitter=0.5)
    np.testing.assert_allclose(S, np.diag([1 / 2, 2 / 3]), atol=1e-12)


@pytest.mark.parametrize("deregularize", [0.0, 0.02])
def test_every_round_brings_the_limit_nearer_by_the_contraction(deregularize: float):
    """In the norm (vᵀ S⁻¹ v)^½, from any start; and the slowest direction shrinks by no more."""
    rng = np.random.default_rng(0)
    clients = [(rng.random((n, 1)), rng.normal(size=n)) for n in (3, 5)]
    public = rng.random((8, 1))
    round_map = consensus_map(
        brownian, clients, public, regularization=0.02, alpha=0.5, deregularize=deregularize
    )
    limit, _ = round_map.fixed_point()
    inverse = np.linalg.inv(round_map.smoothing)

    def distance(v: np.ndarray) -> float:
        return float(np.sqrt((v - limit) @ inverse @ (v - limit)))

    for start in rng.normal(size=(20, 8)):
        assert distance(round_map(start)) <= round_map.contraction * distance(start) * (1 + 1e-9)
    values, vectors = np.linalg.eig(round_map.response @ inverse)
    v = start = limit + np.real(vectors[:, np.argmax(np.abs(values))])
    rounds = round_map.rounds(0.01)
    for _ in range(rounds - 1):
        v = round_map(v)
    assert distance(v) > 0.01 * distance(start)
    assert distance(round_map(v)) <= 0.01 * distance(start) * (1 + 1e-9)


def test_too_much_deregularization_has_no_limit():
    """One row x = 1, private and public, functions θx, α = 0.01, λ = 0.1, λ₀ = 0.2 > λ/(1 − α):

    (0.01 + 0.99 + 0.1) θ = 0.01 y + 0.99 · 1.2 θ_old, which grows by 1.08 a round.
    """
    given = {"regularization": 0.1, "alpha": 0.01, "deregularize": 0.2}
    round_map = consensus_map(dot, [([[1.0]], [1.0])], [[1.0]], **given)
    assert round_map.contraction == pytest.approx(0.99 * 1.2 / 1.1)
    for ask in (round_map.fixed_point, lambda: round_map.rounds(0.1)):
        with pytest.raises(ValueError, match=r"do not converge: the spectral radius is 1\.08"):
            ask()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": []}, "no clients"),
        ({"clients": [([[0.1]], [1.0]), ([[0.2]], [[1.0, 2.0]])]}, "different outputs"),
        ({"clients": [([[0.1, 0.2]], [1.0])]}, "private rows have 2 columns, public ones 1"),
        ({"clients": [([[0.1]], [np.nan])]}, "targets hold NaN"),
        ({"clients": [([[0.1]], [1.0, 2.0])]}, "one for each row"),
        ({"public": [[0.1], [0.1]]}, "K_pp cannot be inverted"),
        ({"public": [[np.inf]]}, "inputs hold NaN or infinite"),
        ({"regularization": 0.0}, "regularization is 0"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"alpha": 0.0}, "alpha is 0"),
        ({"deregularize": -0.1}, "deregularize is -0.1"),
        ({"jitter": -1.0}, "jitter is -1"),
        ({"participation": [0.5, 0.5]}, "participation must be 1"),
        ({"participation": [0.0]}, "participation must be 1"),
    ],
)
def test_bad_input(change: dict, message: str):
    given = {
        "clients": [([[0.1], [0.5]], [1.0, 2.0])],
        "public": [[0.3], [0.7]],
        "regularization": 0.1,
        "alpha": 0.5,
        "deregularize": 0.1,
    }
    with pytest.raises(ValueError, match=message):
        distillation_limit(brownian, **{**given, **change})


def test_a_single_client_has_an_alpha_of_its_own():
    with pytest.raises(ValueError, match="alpha is 1"):
        self_distillation_limit(rbf_kernel, [[0.0]], [1.0], regularization=0.1, alpha=1.0)

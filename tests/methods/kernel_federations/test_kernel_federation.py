"""The exact federation against numbers by hand, and against refits of every client in every round."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from consilience.core.aggregation import anderson, damped
from consilience.core.errors import InvalidInput
from consilience.core.numerics.kernels import kernel_of
from consilience.methods.kernel_federations import KernelFederation
from consilience_papers.theory import distillation_limit, kernel_ridge

LAMBDA = 0.02
kernel = kernel_of("laplacian", gamma=2.0)


def same(X: Any, Z: Any) -> Any:
    """1 for equal numbers, else 0: every point for itself."""
    return (X == Z.T).astype(float)


def by_hand() -> KernelFederation:
    """Clients with one row each, at 1 and 2, and public rows at 1, 2 and 3; α = 1/2, λ = 1/6.

    Points do not touch one another. Where a client has no row its fit of w minimises
    (1/6)(h − w)² + h²/6, so h = w/2; where it has (y, w), it minimises (h − y)²/2 + (h − w)²/6 + h²/6, so
    h = (3y + w)/5. Alone h = y / (1 + λ) = 6y/7 at its row, else 0.
    """
    clients = [(np.array([[1.0]]), np.array([7.0])), (np.array([[2.0]]), np.array([14.0]))]
    public = np.array([[1.0], [2.0], [3.0]])
    return KernelFederation(same, clients, public, regularization=1 / 6, jitter=0)


def test_by_hand() -> None:
    """Round 1: means of 6 and 0, 0 and 12, 0 and 0. Round 2: ((21 + 3)/5 + 3/2)/2 = 63/20, and twice that."""
    rounds = by_hand().iterate()
    assert next(rounds).consensus[:, 0] == pytest.approx([3, 6, 0])
    second = next(rounds)
    assert second.consensus[:, 0] == pytest.approx([63 / 20, 63 / 10, 0])
    # Last: taught 63/20, client 1 has (21 + 63/20)/5 there, client 2 half of 63/20.
    values = second.models().predict(np.array([[1.0]]))[:, 0, 0]
    assert values == pytest.approx([(21 + 63 / 20) / 5, 63 / 40])


def test_limits_by_hand() -> None:
    """v = ((21 + d v)/5 + d v/2)/2 with d = 1, or d = 1 + 3 (1/6) = 3/2: v = 42/13, or 84/19."""
    plain, raised = by_hand().limit(), by_hand().limit(deregularization=1 / 6)
    assert plain.consensus[:, 0] == pytest.approx([42 / 13, 84 / 13, 0])
    assert raised.consensus[:, 0] == pytest.approx([84 / 19, 168 / 19, 0])


def data(sizes: tuple[int, ...] = (6, 4, 6), outputs: int = 1, public: int = 25) -> Any:
    rng = np.random.default_rng(0)
    clients = []
    for size in sizes:
        X = rng.random((size, 2))
        clients.append(
            (X, np.sin(X @ rng.normal(size=(2, outputs))) + rng.normal(0, 0.1, (size, 1)))
        )
    return clients, rng.random((public, 2)), rng.random((7, 2))


def refitted(X: Any, y: Any, public: Any, targets: Any, alpha: float) -> Any:
    """The distillation loss solved anew: weights α/N and (1 − α)/N_p."""
    weights = np.repeat([alpha / len(X), (1 - alpha) / len(public)], [len(X), len(public)])
    Z = np.concatenate([X, public])
    K = kernel(Z, Z) + LAMBDA * np.diag(1 / weights)
    beta = np.linalg.solve(K, np.concatenate([y, targets]))
    return lambda rows: kernel(rows, Z) @ beta


def alone(X: Any, y: Any) -> Any:
    beta = np.linalg.solve(kernel(X, X) + len(X) * LAMBDA * np.eye(len(X)), y)
    return lambda rows: kernel(rows, X) @ beta


@pytest.mark.parametrize("strength", [0.0, LAMBDA])
@pytest.mark.parametrize("memory", [0.0, 5e8])
def test_rounds_equal_refits(strength: float, memory: float) -> None:
    clients, public, X = data(outputs=2)
    raised = np.eye(25) + 25 * strength * np.linalg.inv(kernel(public, public))
    models = [alone(*client) for client in clients]
    for round in range(5):
        consensus = np.mean([model(public) for model in models], axis=0)
        sent = consensus if round == 4 else raised @ consensus
        models = [refitted(*client, public, sent, 1 / 3) for client in clients]
    federation = KernelFederation(
        kernel, clients, public, regularization=LAMBDA, jitter=0, memory=memory
    )
    found = federation.after(5, deregularization=strength).predict(X)
    assert found == pytest.approx(np.stack([model(X) for model in models]), rel=1e-10)


def test_alone_and_taught() -> None:
    clients, public, X = data()
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA, alpha=0.3)
    assert federation.alone().predict(X) == pytest.approx(
        np.stack([alone(*client)(X) for client in clients])
    )
    targets = np.cos(public[:, :1])
    expected = np.stack([refitted(*client, public, targets, 0.3)(X) for client in clients])
    assert federation.taught(targets).predict(X) == pytest.approx(expected, rel=1e-10)


def test_errors_are_means_of_squares() -> None:
    clients, public, X = data()
    models = KernelFederation(kernel, clients, public, regularization=LAMBDA).after(3)
    truth = np.arange(7.0)
    expected = np.square(models.predict(X)[:, :, 0] - truth).mean(axis=1)
    assert models.mse(X, truth) == pytest.approx(expected)


def test_participants_are_taught_in_turn() -> None:
    """Algorithm 3 with stale models: clients 0 and 2 take part, client 1 never does."""
    clients, public, X = data()
    raised = np.eye(25) + 25 * LAMBDA * np.linalg.inv(kernel(public, public))
    models = [alone(*client) for client in clients]
    turns = [(0,), (2,), (0, 2), (2,)]
    consensus = None
    for t, turn in enumerate(turns, start=1):
        proposal = np.mean([models[j](public) for j in turn], axis=0)
        step = t**-0.6
        consensus = proposal if consensus is None else (1 - step) * consensus + step * proposal
        sent = consensus if t == len(turns) else raised @ consensus
        for j in turn:
            models[j] = refitted(*clients[j], public, sent, 1 / 3)
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA, jitter=0)
    steps = federation.iterate(
        deregularization=LAMBDA, consensus=damped(exponent=0.6), participants=turns
    )
    for last in steps:
        found = last.models().predict(X)
    assert last.consensus == pytest.approx(consensus, rel=1e-10)
    assert found == pytest.approx(np.stack([model(X) for model in models]), rel=1e-10)


@pytest.mark.parametrize("strength", [0.0, LAMBDA])
@pytest.mark.parametrize("shares", [None, (1.0, 2.0, 5.0)])
def test_limit_is_the_theorems(strength: float, shares: tuple[float, ...] | None) -> None:
    clients, public, X = data()
    federation = KernelFederation(
        kernel, clients, public, regularization=LAMBDA, alpha=0.2, jitter=0
    )
    found = federation.limit(
        deregularization=strength, probabilities=None if shares is None else np.array(shares)
    )
    expected = distillation_limit(
        kernel,
        clients,
        public,
        regularization=LAMBDA,
        alpha=0.2,
        deregularize=strength,
        participation=shares,
    )
    assert found.consensus == pytest.approx(expected.consensus, rel=1e-9)
    assert found.models().predict(X) == pytest.approx(
        np.stack([final(X) for final in expected.final]), rel=1e-9
    )
    if shares is None:
        factor = federation.contraction(deregularization=strength)
        assert factor == pytest.approx(expected.contraction, rel=1e-9)


def test_rounds_come_to_the_limit() -> None:
    clients, public, _ = data()
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA)
    limit = federation.limit(deregularization=LAMBDA).coordinates
    plain = next(islice(federation.iterate(deregularization=LAMBDA), 4000, None))
    assert np.linalg.norm(plain.coordinates - limit) < 1e-8 * np.linalg.norm(limit)
    steps = federation.iterate(deregularization=LAMBDA, consensus=anderson(12))
    assert np.linalg.norm(
        next(islice(steps, 40, None)).coordinates - limit
    ) < 1e-8 * np.linalg.norm(limit)


def test_one_client_without_deregularisation_is_ridge_regression_with_more_of_it() -> None:
    """Theorem 5.2: λ / α."""
    (client, *_), public, X = data()
    federation = KernelFederation(kernel, [client], public, regularization=LAMBDA, alpha=0.25)
    expected = kernel_ridge(kernel, *client, regularization=4 * LAMBDA)(X)
    assert federation.limit().models().predict(X)[0] == pytest.approx(expected, rel=1e-8)


def test_varied_is_the_federation_made_anew() -> None:
    clients, public, X = data()
    first = KernelFederation(kernel, clients, public, regularization=1.0)
    anew = KernelFederation(kernel, clients, public, regularization=LAMBDA, alpha=0.4)
    varied = first.varied(regularization=LAMBDA, alpha=0.4)
    assert np.array_equal(varied.after(3).predict(X), anew.after(3).predict(X))


def test_landmarks_approximate_and_all_of_them_are_exact() -> None:
    clients, public, X = data(public=60)

    def after(landmarks: int | None) -> Any:
        federation = KernelFederation(
            kernel, clients, public, regularization=LAMBDA, landmarks=landmarks
        )
        return federation.after(10, deregularization=LAMBDA).predict(X)

    exact = after(None)
    assert after(60) == pytest.approx(exact, rel=1e-6)
    far, near = (np.abs(after(count) - exact).max() for count in (8, 50))
    assert near < far / 2


def test_landmarks_answer_for_the_public_rows() -> None:
    clients, public, _ = data(public=60)
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA, landmarks=20)
    step = next(federation.iterate())
    basis = federation.gathered.basis
    assert len(step.coordinates) == 20
    assert basis.of(step.consensus) == pytest.approx(step.coordinates)
    assert federation.taught(step.consensus).coordinates().mean(axis=0) == pytest.approx(
        next(islice(federation.iterate(), 1, None)).coordinates
    )


def indefinite(X: Any, Z: Any) -> Any:
    return -kernel(X, Z)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regularization": 0.0}, "regularization is 0.0"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"jitter": -1.0}, "jitter is -1.0"),
        ({"landmarks": 26}, "landmarks is 26"),
        ({"kernel": "rbff"}, "Did you mean 'rbf'"),
        ({"kernel": indefinite}, "not positive semi-definite"),
        ({"clients": []}, "there are no clients"),
        ({"clients": [(np.ones((2, 3)), np.ones(2))]}, "3 columns, public rows 2"),
        ({"clients": [(np.ones((2, 2)), np.ones(3))]}, "targets of shape (3,)"),
        ({"clients": [(np.ones((2, 2)), np.array([1.0, np.nan]))]}, "targets hold NaN"),
        (
            {"clients": [(np.eye(2), np.ones(2)), (np.eye(2), np.ones((2, 2)))]},
            "different numbers of targets: [1, 2]",
        ),
        ({"public": np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])}, "rows 0 and 2 are the same"),
        ({"public": np.full((3, 2), np.inf)}, "public rows hold NaN or infinite"),
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, Any], said: str) -> None:
    clients, public, _ = data()
    given = {"kernel": kernel, "clients": clients, "public": public, "regularization": LAMBDA}
    with pytest.raises(InvalidInput) as refused:
        KernelFederation(**{**given, **change})
    assert said in str(refused.value)


def test_a_single_client_needs_alpha() -> None:
    clients, public, _ = data()
    with pytest.raises(InvalidInput, match="a single client needs it said"):
        KernelFederation(kernel, clients[:1], public, regularization=LAMBDA)


def test_singular_public_kernel_is_refused_or_lifted() -> None:
    clients, public, X = data()
    flat = KernelFederation("linear", clients, public, regularization=LAMBDA, jitter=0)
    with pytest.raises(InvalidInput, match="K_pp cannot be inverted"):
        flat.after(2, deregularization=LAMBDA)
    lifted = KernelFederation("linear", clients, public, regularization=LAMBDA, jitter=1e-6)
    assert np.isfinite(lifted.after(50, deregularization=LAMBDA).predict(X)).all()
    for wrong in (-1, LAMBDA / (1 - 1 / 3) * 1.01):  # above λ/(1 − α) rounds diverge
        with pytest.raises(InvalidInput, match=f"deregularization is {wrong}"):
            lifted.after(2, deregularization=wrong)
    with pytest.raises(InvalidInput, match="rounds is 0"):
        lifted.after(0)


def test_rounds_of_a_part_are_asked_in_time_and_have_somebody() -> None:
    clients, public, _ = data()
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA)
    first, *_ = federation.iterate(participants=[(0,), (1,)])
    with pytest.raises(InvalidInput, match="models of round 1 are gone"):
        first.models()
    for wrong in ([], [3], [-1], [0.5]):
        with pytest.raises(InvalidInput, match="participants of round 1"):
            next(federation.iterate(participants=[wrong]))


def test_probabilities_are_checked() -> None:
    clients, public, _ = data()
    federation = KernelFederation(kernel, clients, public, regularization=LAMBDA)
    for wrong in (np.ones(2), np.zeros(3), np.array([1.0, -1.0, 1.0])):
        with pytest.raises(InvalidInput, match="probabilities"):
            federation.limit(probabilities=wrong)

"""Agents that exchange models: by hand, against protocols run fit by fit, and on the paper's toy problem."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from consilience_papers.theory import (
    alternating_distillation,
    averaged_distillation,
    ensembled_distillation,
    exchange_of,
    kernel_ridge,
    parallel_distillation,
    residual_distillation,
)
from helpers.exchanging_agents import HAND, by_hand, data, dot, toy


def constant(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.ones((len(X), len(Z)))


def test_alternating_by_hand():
    """(12, 6) → ½H(12, 6) = (9, 3) → ⅓H(9, 3) = (4, 2) → (3, 1); from agent 2, (6, 18) → ⅓(24, −12) → …

    A trip leaves a third of everything, a step 1/√3. The model of round 2 has the vector
    θ = Σ_i x_i (½ ŷ_i)/4 = (2·2, 2·1)/4 = (1, 1/2).
    """
    rounds = alternating_distillation(by_hand())
    expected = [[12, 6, 0, 0], [0, 0, 9, 3], [4, 2, 0, 0], [0, 0, 3, 1]]
    np.testing.assert_allclose([rounds.targets(t) for t in range(4)], expected, atol=1e-12)
    np.testing.assert_allclose(rounds.rate, 3**-0.5)
    np.testing.assert_allclose(by_hand().models(rounds.targets(2))[0](np.eye(2)), [1, 1 / 2])
    np.testing.assert_array_equal(rounds.limit(), np.zeros(4))
    mirror = alternating_distillation(by_hand(), first=1)
    expected = [[0, 0, 6, 18], [8, -4, 0, 0], [0, 0, 2, 6], [8 / 3, -4 / 3, 0, 0]]
    np.testing.assert_allclose([mirror.targets(t) for t in range(4)], expected, atol=1e-12)


def test_averaged_by_hand():
    """ŷ_1 ← ½(y_1 + ⅓Hŷ_2), ŷ_2 ← ½(y_2 + ½Hŷ_1); T_12 T_21/4 = I/12, so that in the limit
    ŷ_1 = ½ · 12/11 (y_1 + ½(8, −4)) = 6/11 (16, 4) and ŷ_2 = 6/11 (y_2 + ½(9, 3)) = 6/11 (10.5, 19.5)."""
    rounds = averaged_distillation(by_hand())
    expected = [
        [12, 6, 6, 18],
        [10, 1, 7.5, 10.5],
        [9, 2.5, 5.75, 11.25],
        [53 / 6, 25 / 12, 5.875, 10.625],
    ]
    np.testing.assert_allclose([rounds.targets(t) for t in range(4)], expected)
    np.testing.assert_allclose(rounds.limit(), np.array([96, 24, 63, 117]) / 11)
    np.testing.assert_allclose(rounds.rate, 12**-0.5)


def test_parallel_by_hand():
    """½(½(12, 6) + (8, −4)) = (7, −½), ½((9, 3) + ⅔(6, 18)) = (13/2, 15/2). On functions the mean of the fits
    is ½(½ + ⅔)I, so that each further round multiplies by 7/12."""
    rounds = parallel_distillation(by_hand())
    first = np.array([7, -0.5, 6.5, 7.5])
    expected = [[12, 6, 6, 18], first, first * 7 / 12, first * 49 / 144]
    np.testing.assert_allclose([rounds.targets(t) for t in range(4)], expected)
    np.testing.assert_allclose(rounds.rate, 7 / 12)


def test_ensembled_by_hand():
    """ŷ_1 ← y_1 − ⅓Hŷ_2, ŷ_2 ← y_2 − ½Hŷ_1; in the limit ŷ_1 = 3/2 (y_1 − (8, −4)), ŷ_2 = 3/2 (y_2 − (9, 3)).

    The central model minimises ¼‖Xθ − y‖² + ‖θ‖²: (XᵀX/4 + I) θ = 4θ = Xᵀy/4 = (18, −3).
    """
    exchange, rounds = by_hand(), ensembled_distillation(by_hand())
    expected = [
        [12, 6, 6, 18],
        [4, 10, -3, 15],
        [8, 12, -1, 21],
        [16 / 3, 40 / 3, -4, 20],
    ]
    np.testing.assert_allclose([rounds.targets(t) for t in range(4)], expected)
    np.testing.assert_allclose(rounds.limit(), [6, 15, -4.5, 22.5])
    np.testing.assert_allclose(exchange.ensemble(rounds.limit())(np.eye(2)), [4.5, -0.75])
    np.testing.assert_allclose(exchange.central()(np.eye(2)), [4.5, -0.75])
    # For two agents the extension to many is the same protocol.
    same = residual_distillation(exchange)
    np.testing.assert_allclose([same.targets(t) for t in range(4)], expected)


class Simulation:
    """The protocols as the paper has them: models are fitted, passed on and asked."""

    def __init__(self, kernels, agents, regularization):
        self.kernels, self.agents = kernels, agents
        self.alpha = regularization * sum(len(X) for X, _ in agents)

    def fit(self, agent, labels):
        kernel, (X, _) = self.kernels[agent], self.agents[agent]
        model = KernelRidge(alpha=self.alpha, kernel="precomputed").fit(kernel(X, X), labels)
        return lambda new: model.predict(kernel(new, X))

    def alternating(self, first, steps):
        model = self.fit(first, self.agents[first][1])
        yield model
        for step in range(1, steps):
            agent = (first + step) % len(self.agents)
            model = self.fit(agent, model(self.agents[agent][0]))
            yield model

    def together(self, rounds, relabel):
        labels = [y for _, y in self.agents]
        for _ in range(rounds):
            models = [self.fit(agent, y) for agent, y in enumerate(labels)]
            labels = [relabel(agent, X, y, models) for agent, (X, y) in enumerate(self.agents)]
        return [self.fit(agent, y) for agent, y in enumerate(labels)]

    def averaged(self, rounds):
        return self.together(
            rounds,
            lambda agent, X, y, models: np.mean(
                [y if b == agent else g(X) for b, g in enumerate(models)], axis=0
            ),
        )

    def parallel(self, rounds):
        return self.together(
            rounds, lambda _, X, __, models: np.mean([g(X) for g in models], axis=0)
        )

    def ensembled(self, steps):
        runs = [list(self.alternating(first, steps)) for first in range(len(self.agents))]
        return lambda X: sum((-1) ** t * g(X) for run in runs for t, g in enumerate(run))


SETTINGS = [
    ((rbf_kernel,) * 2, (5, 3), None),
    ((rbf_kernel, laplacian_kernel), (3, 4), 2),
    ((laplacian_kernel,) * 3, (4, 1, 3), None),
    ((rbf_kernel, laplacian_kernel, dot), (2, 4, 3), 3),
]


@pytest.mark.parametrize(("kernels", "sizes", "outputs"), SETTINGS)
def test_rounds_are_those_of_the_protocols(kernels, sizes, outputs):
    agents, new = data(*sizes, outputs=outputs)
    exchange = exchange_of(kernels, agents, regularization=0.02)
    simulation = Simulation(kernels, agents, 0.02)
    m, t = len(agents), 7

    for first in range(m):
        for step, model in enumerate(simulation.alternating(first, t)):
            labels = alternating_distillation(exchange, first=first).targets(step)
            ours = exchange.models(labels)[(first + step) % m]
            np.testing.assert_allclose(ours(new), model(new), rtol=1e-9, atol=1e-12)
    for protocol, theirs in [
        (averaged_distillation, simulation.averaged),
        (parallel_distillation, simulation.parallel),
    ]:
        ours = exchange.models(protocol(exchange).targets(t))
        for mine, model in zip(ours, theirs(t), strict=True):
            np.testing.assert_allclose(mine(new), model(new), rtol=1e-9, atol=1e-12)
    sums = exchange.ensemble(ensembled_distillation(exchange).targets(t))
    np.testing.assert_allclose(sums(new), simulation.ensembled(t + 1)(new), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kernels", "sizes", "outputs"), SETTINGS)
def test_limits_are_where_rounds_go(kernels, sizes, outputs):
    agents, _ = data(*sizes, outputs=outputs)
    exchange = exchange_of(kernels, agents, regularization=0.02)
    for rounds in (
        alternating_distillation(exchange),
        averaged_distillation(exchange),
        parallel_distillation(exchange),
        ensembled_distillation(exchange),
        residual_distillation(exchange, step=0.1),
    ):
        late = rounds.targets(2**15)
        assert late.shape == exchange.labels.shape
        np.testing.assert_allclose(late, rounds.limit(), atol=1e-8)
        # Twelve rounds are whole trips of two and of three agents.
        left = [np.linalg.norm(rounds.targets(t) - rounds.limit()) for t in (12, 24)]
        np.testing.assert_allclose((left[1] / left[0]) ** (1 / 12), rounds.rate, rtol=0.03)


def test_proposition_two():
    """As printed, with two kernels: g_2t(x) = l_xᵀ(cI+L_11)⁻¹ (M_12(cI+M_22)⁻¹L_21(cI+L_11)⁻¹)ᵗ y_1."""
    (one, y), (two, _) = (agents := data(4, 3)[0])
    new, c, n = data(4, 3)[1], 0.1, 7
    inner = np.linalg.inv(c * np.eye(4) + rbf_kernel(one, one) / n)
    outer = np.linalg.inv(c * np.eye(3) + laplacian_kernel(two, two) / n)
    trip = laplacian_kernel(one, two) / n @ outer @ rbf_kernel(two, one) / n @ inner
    exchange = exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=c)
    for t in range(4):
        expected = rbf_kernel(new, one) / n @ inner @ np.linalg.matrix_power(trip, t) @ y
        model, other = exchange.models(alternating_distillation(exchange).targets(2 * t))
        np.testing.assert_allclose(model(new), expected)
        np.testing.assert_array_equal(other(new), np.zeros(4))


def test_models_grow_without_end_with_two_kernels():
    """Against Proposition II. Rows 1 and 10, N = 2, c = ½; k_1(x, z) = xz and k_2 = 1: L_11 = L_22 = L_12 = ½
    and L_21 = 5, T_21 = 5/(½ + ½) = 5, T_12 = ½, and a trip multiplies the labels by 5/2."""
    agents = [([[1.0]], [1.0]), ([[10.0]], [1.0])]
    rounds = alternating_distillation(exchange_of((dot, constant), agents, regularization=0.5))
    np.testing.assert_allclose(rounds.targets(6), [2.5**3, 0])
    np.testing.assert_allclose(rounds.rate, 2.5**0.5)
    with pytest.raises(ValueError, match=r"do not converge: the spectral radius is 1\.58"):
        rounds.limit()


def test_averages_and_ensembles_need_not_converge_with_two_kernels():
    """As above with row 100: a trip multiplies by 50 · ½ = 25, two rounds of AvgKD by 25/4."""
    agents = [([[1.0]], [1.0]), ([[100.0]], [1.0])]
    exchange = exchange_of((dot, constant), agents, regularization=0.5)
    assert ensembled_distillation(exchange).rate == pytest.approx(5)
    assert averaged_distillation(exchange).rate == pytest.approx(2.5)
    with pytest.raises(ValueError, match="do not converge"):
        averaged_distillation(exchange).limit()


def test_regularization_may_slow_degradation_with_two_kernels():
    """Against Proposition VIII. k_1 sees the third coordinate, k_2 the others, and with C = 3c

        3 L_11 = 1, 3 L_21 = (1, −2), 3 L_22 = diag(1, 4), 3 L_12 = (1, 2):
        T_12 T_21 = (1/(C+1) − 4/(C+4)) / (C+1),

    0 for c = 0, where everything is forgotten at once, and −1/9 for C = 2.
    """
    kernels = (lambda X, Z: dot(X[:, 2:], Z[:, 2:]), lambda X, Z: dot(X[:, :2], Z[:, :2]))
    agents = [([[1.0, 1.0, 1.0]], [9.0]), ([[1.0, 0.0, 1.0], [0.0, 2.0, -2.0]], [0.0, 0.0])]
    for c, left in [(0.0, 0.0), (2 / 3, -1.0)]:
        rounds = alternating_distillation(exchange_of(kernels, agents, regularization=c))
        np.testing.assert_allclose(rounds.targets(2), [left, 0, 0], atol=1e-12)


@pytest.mark.parametrize("sizes", [(5, 3), (4, 1, 3), (2, 2, 2, 2)])
def test_one_kernel_always_degrades_or_converges(sizes):
    agents, _ = data(*sizes)
    m = len(sizes)
    for c in (1e-4, 1e-2, 1.0):
        exchange = exchange_of(rbf_kernel, agents, regularization=c)
        L = exchange.similarities
        tops = [
            np.linalg.eigvalsh(L[np.ix_(exchange.owner == a, exchange.owner == a)])[-1]
            for a in range(m)
        ]
        bound = np.prod([top / (c + top) for top in tops])
        assert alternating_distillation(exchange).rate ** m <= bound < 1
        assert averaged_distillation(exchange).rate <= (m - 1) / m
        assert parallel_distillation(exchange).rate < 1
        assert residual_distillation(exchange).rate < 1


def test_what_the_averages_miss():
    """Proposition VI, eq. 8, with c: halved coupling, and −y_2."""
    agents, new = data(4, 3)
    c, N = 0.1, 7
    exchange = exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=c)
    L, first = exchange.similarities, exchange.owner == 0
    system = np.where(first[:, None] == first, L, L / 2) + c * np.eye(N)
    beta = np.linalg.solve(system, np.where(first, 1, -1) * exchange.labels)
    one, two = exchange.models(averaged_distillation(exchange).limit())
    (X1, _), (X2, _) = agents
    np.testing.assert_allclose(one(new), rbf_kernel(new, X1) @ beta[first] / (2 * N))
    np.testing.assert_allclose(two(new), -laplacian_kernel(new, X2) @ beta[~first] / (2 * N))


def test_the_central_model_is_kernel_ridge_regression():
    agents, new = data(4, 3, outputs=2)
    exchange = exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=0.1)
    X = np.concatenate(exchange.inputs)
    for agent, kernel in enumerate(exchange.kernels):
        expected = kernel_ridge(kernel, X, exchange.labels, 0.1)(new)
        np.testing.assert_allclose(exchange.central(agent)(new), expected)


@pytest.mark.parametrize("c", [1e-3, 1e-1])
def test_the_ensemble_of_two_agents_with_one_kernel_is_central(c):
    agents, new = data(4, 3, outputs=2)
    exchange = exchange_of(rbf_kernel, agents, regularization=c)
    ensemble = exchange.ensemble(ensembled_distillation(exchange).limit())
    np.testing.assert_allclose(ensemble(new), exchange.central()(new))


def test_the_ensemble_of_two_kernels_is_nobodys_central_model():
    """It has f = y − cβ on the rows; the agents' central models are well away from it and from each other."""
    agents, _ = data(4, 3)
    c = 0.02
    exchange = exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=c)
    labels = ensembled_distillation(exchange).limit()
    X = np.concatenate(exchange.inputs)
    beta = exchange.local_power(-1) @ labels
    found = exchange.ensemble(labels)(X)
    np.testing.assert_allclose(found, exchange.labels - c * beta)
    gap = np.linalg.norm(exchange.central(0)(X) - exchange.central(1)(X))
    assert gap > 0.3
    for agent in range(2):
        assert np.linalg.norm(found - exchange.central(agent)(X)) > 0.15


def test_the_ensemble_of_two_kernels_interpolates_without_regularization():
    agents, _ = data(4, 3)
    exchange = exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=0.0)
    X = np.concatenate(exchange.inputs)
    found = exchange.ensemble(ensembled_distillation(exchange).limit())(X)
    np.testing.assert_allclose(found, exchange.labels, atol=1e-8)
    np.testing.assert_allclose(exchange.central()(X), exchange.labels, atol=1e-8)


def test_the_ensemble_on_a_ring_of_three_is_not_central_in_any_order():
    agents, new = data(3, 2, 4)
    for order in [(0, 1, 2), (0, 2, 1)]:
        exchange = exchange_of(rbf_kernel, [agents[a] for a in order], regularization=0.02)
        labels = ensembled_distillation(exchange).limit()
        central = exchange.central()(new)
        assert np.linalg.norm(exchange.ensemble(labels)(new) - central) > 0.3 * np.linalg.norm(
            central
        )
        # What it solves instead: agent a's block and its predecessor's.
        beta, owner = exchange.local_power(-1) @ labels, exchange.owner
        missing = ((owner[:, None] - owner) % 3) == 2
        system = np.where(missing, 0, exchange.similarities) + 0.02 * np.eye(len(owner))
        np.testing.assert_allclose(system @ beta, exchange.labels)


def test_agents_who_have_nothing_to_tell_each_other():
    """Orthogonal rows: on any ring the ensemble is the sum of the local models, which is the central one."""
    agents = [(np.eye(3)[[a]], [float(a + 1)]) for a in range(3)]
    exchange = exchange_of(dot, agents, regularization=1 / 3)
    labels = ensembled_distillation(exchange).limit()
    np.testing.assert_allclose(exchange.ensemble(labels)(np.eye(3)), [1 / 2, 1, 3 / 2])
    np.testing.assert_allclose(exchange.central()(np.eye(3)), [1 / 2, 1, 3 / 2])


@pytest.mark.parametrize("sizes", [(4, 3), (3, 2, 4), (2, 2, 2, 2, 2)])
def test_residuals_reach_the_central_model_with_any_number_of_agents(sizes):
    agents, new = data(*sizes, outputs=2)
    exchange = exchange_of(rbf_kernel, agents, regularization=0.01)
    ensemble = exchange.ensemble(residual_distillation(exchange).limit())
    np.testing.assert_allclose(ensemble(new), exchange.central()(new))


def test_residuals_in_full_diverge_between_three_like_agents():
    """All have the row 1, N = 3, c = 1/3: T is ½ throughout, and I + T off the diagonal (I + J)/2 with the
    eigenvalues 2 and ½. ω = 1 leaves 1 − 2 = −1 of the sum: to and fro for ever. ω = 2/3 leaves
    1 − ⅔ · 2 = −1/3 of the sum and 1 − ⅔ · ½ = 2/3 of differences."""
    agents = [([[1.0]], [1.0])] * 3
    exchange = exchange_of(dot, agents, regularization=1 / 3)
    assert residual_distillation(exchange, step=1.0).rate == pytest.approx(1)
    assert residual_distillation(exchange).rate == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("different", "plateau", "alone"), [(False, 0.174, 0.100), (True, 0.203, 0.128)]
)
def test_toy_problem(different, plateau, alone):
    """Figure 3, c = 10⁻³: training errors over all 150 rows, of agent 1's model or the ensemble's."""
    exchange = exchange_of(dot, toy(different), regularization=1e-3)
    A, b = np.concatenate(exchange.inputs), exchange.labels

    def error(model):
        return np.mean((model(A) - b) ** 2)

    central = error(exchange.central())
    assert central == pytest.approx(0.01428, abs=5e-6)
    assert error(exchange.models(b)[0]) == pytest.approx(alone, abs=5e-4)
    averaged = averaged_distillation(exchange)
    assert error(exchange.models(averaged.limit())[0]) == pytest.approx(plateau, abs=8e-4)
    np.testing.assert_allclose(averaged.targets(60), averaged.limit(), atol=1e-8)

    ensembled = ensembled_distillation(exchange)
    after = [error(exchange.ensemble(ensembled.targets(n - 1))) / central for n in (10, 60, 250)]
    assert after[0] > 3
    assert after[1] == pytest.approx(1, abs=0.01)
    assert after[2] == pytest.approx(1, abs=1e-6)

    forgotten = exchange.models(alternating_distillation(exchange).targets(400))[0]
    assert error(forgotten) == pytest.approx(np.mean(b**2), rel=1e-6)
    assert np.mean(b**2) == pytest.approx(0.870, abs=5e-4)


def test_toy_problem_without_regularization():
    """Rank 100 in 150 rows: no limit, but the mean of two successive sums goes to the central model."""
    exchange = exchange_of(dot, toy(different=False), regularization=0.0)
    rounds = ensembled_distillation(exchange)
    assert rounds.rate == pytest.approx(1, abs=1e-9)
    with pytest.raises(ValueError, match="do not converge"):
        rounds.limit()
    new = np.random.default_rng(1).normal(size=(5, 100))
    even, odd = (exchange.ensemble(rounds.targets(t))(new) for t in (1000, 1001))
    central = exchange.central()(new)
    assert np.linalg.norm(even - odd) > 0.3 * np.linalg.norm(central)
    np.testing.assert_allclose((even + odd) / 2, central, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agents": HAND[:1]}, "there are 1 agents"),
        ({"agents": [HAND[0], ([[1.0]], [1.0])]}, "rows have 2, 1 columns"),
        ({"agents": [HAND[0], ([[1.0, 1.0]], [[1.0]])]}, "different outputs"),
        ({"agents": [HAND[0], ([[1.0, 1.0]], [1.0, 2.0])]}, "one for each row"),
        ({"agents": [HAND[0], ([[1.0, np.nan]], [1.0])]}, "NaN"),
        ({"kernel": [dot]}, "1 kernels for 2 agents"),
        ({"kernel": lambda X, Z: -X @ Z.T}, "not positive semi-definite"),
        ({"regularization": -1.0}, "regularization is -1"),
        ({"regularization": np.nan}, "regularization is nan"),
    ],
)
def test_bad_input(change: dict, message: str):
    given = {"kernel": dot, "agents": HAND, "regularization": 0.1}
    with pytest.raises(ValueError, match=message):
        exchange_of(**{**given, **change})


def test_bad_arguments():
    with pytest.raises(ValueError, match="agents are counted from 0 to 1"):
        alternating_distillation(by_hand(), first=2)
    with pytest.raises(ValueError, match="step is 0"):
        residual_distillation(by_hand(), step=0)

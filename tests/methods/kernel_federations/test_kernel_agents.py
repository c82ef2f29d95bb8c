"""Kernel agents against numbers by hand, repeated fits and the theorems."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.methods.kernel_federations.agents import KernelAgents


def nth(steps: Any, t: int) -> Any:
    return next(islice(steps, t, None))


def by_hand() -> KernelAgents:
    """Two agents with two points each, linear kernel on the line, N = 4, c = 1.

    Agent 1: x = 1, 1 with y = 6, 6. Agent 2: x = 1, −1 with y = 12, −12. L_11 = ¼ [[1, 1], [1, 1]],
    L_22 = ¼ [[1, −1], [−1, 1]]. Targets (v, v) of agent 1 are eigenvectors of L_11 with eigenvalue 1/2, so
    (c I + L_11)⁻¹ (v, v) = (2/3)(v, v) and its slope is ¼ (2/3)(2v) = v/3. Targets (v, −v) of agent 2 alike:
    slope v/3. A slope s labels agent 1's points (s, s), and agent 2's (s, −s).
    """
    first = (np.array([[1.0], [1.0]]), np.array([6.0, 6.0]))
    second = (np.array([[1.0], [-1.0]]), np.array([12.0, -12.0]))
    return KernelAgents("linear", [first, second], regularization=1.0)


ONE = np.array([[1.0]])


def slopes(agents: KernelAgents, targets: Any) -> list[float]:
    return [float(model.predict(ONE)[0, 0]) for model in agents.fit(targets)]


def test_three_rounds_by_hand() -> None:
    """Slopes 2 and 4 alone. AKD: a slope s becomes s/3 at the next agent. AvgKD: (y + s)/2, divided by 3.

    AvgKD: (6 + 4)/2 = 5 and (12 + 2)/2 = 7: slopes 5/3, 7/3; then (6 + 7/3)/6 = 25/18, (12 + 5/3)/6 = 41/18.
    PKD: means of both slopes, 3 at each: slopes 1, 1; then 1/3, 1/3.
    """
    agents = by_hand()
    rounds = {
        "alternating": ([2, 4], [4 / 3, 2 / 3], [2 / 9, 4 / 9]),
        "averaged": ([2, 4], [5 / 3, 7 / 3], [25 / 18, 41 / 18]),
        "parallel": ([2, 4], [1, 1], [1 / 3, 1 / 3]),
    }
    for name, expected in rounds.items():
        found = [slopes(agents, targets) for targets in islice(getattr(agents, name)(), 3)]
        assert found == [pytest.approx(row) for row in expected], name


def test_ensemble_by_hand() -> None:
    """6, 6 − 2, 6 − 2 + 2/3, … → 6 · 3/4 = 9/2. Central: Σ x y / (N c + Σ x²) = 36 / (4 + 4) = 9/2."""
    agents = by_hand()
    sums = [float(f.predict(ONE)[0, 0]) for f in islice(agents.ensembled(), 40)]
    assert sums[:3] == pytest.approx([6, 4, 14 / 3])
    assert sums[-1] == pytest.approx(4.5)
    assert agents.central(0).predict(ONE)[0, 0] == pytest.approx(4.5)
    # All coefficients are (v, v, w, −w): two dimensions, so that two steps are enough.
    assert nth(agents.conjugate(), 2).predict(ONE)[0, 0] == pytest.approx(4.5)


def toy(c: float, kernels: Any = "linear", *, sorted_by_target: bool = False) -> KernelAgents:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(150, 100)) / 10
    b = A @ rng.normal(size=100)
    order = np.argsort(b) if sorted_by_target else rng.permutation(150)
    data = [(A[order[:90]], b[order[:90]]), (A[order[90:]], b[order[90:]])]
    return KernelAgents(kernels, data, regularization=c)


def mse(agents: KernelAgents, function: Any) -> float:
    X, y = np.concatenate(agents.X), np.concatenate(agents.y)
    return float(np.square(function.predict(X) - y).mean())


@pytest.mark.parametrize("sorted_by_target", [False, True])
def test_toy_problem_of_figure_3(sorted_by_target: bool) -> None:
    agents = toy(1e-3, sorted_by_target=sorted_by_target)
    central = mse(agents, agents.central(0))
    zero = float(np.square(np.concatenate(agents.y)).mean())
    assert (central, zero) == pytest.approx((0.01428, 0.870), rel=1e-3)
    assert mse(agents, nth(agents.ensembled(), 250)) == pytest.approx(central, rel=1e-6)
    assert mse(agents, nth(agents.ensembled(), 60)) == pytest.approx(central, rel=1e-2)
    for model in agents.fit(nth(agents.alternating(), 250)):
        assert mse(agents, model) == pytest.approx(zero, rel=1e-6)
    local = np.mean([mse(agents, model) for model in agents.fit(agents.y)])
    settled = np.mean([mse(agents, model) for model in agents.fit(nth(agents.averaged(), 250))])
    assert central < local < settled < zero
    assert mse(agents, nth(agents.conjugate(), 12)) == pytest.approx(central, rel=1e-3)


def test_three_agents_and_two_outputs() -> None:
    rng = np.random.default_rng(1)
    data = [(rng.random((n, 2)), rng.normal(size=(n, 2))) for n in (4, 1, 5)]
    agents = KernelAgents("laplacian", data, regularization=0.05)
    X = rng.random((6, 2))
    central = agents.central(1).predict(X)
    assert nth(agents.conjugate(), 9).predict(X) == pytest.approx(central, rel=1e-6)
    averaged = nth(agents.averaged(), 1)
    models = agents.fit(agents.y)
    expected = (agents.y[1] + models[0].predict(agents.X[1]) + models[2].predict(agents.X[1])) / 3
    assert averaged[1] == pytest.approx(expected)


def test_conjugate_gradients_end_at_rounding() -> None:
    agents = toy(1e-2)
    functions = list(islice(agents.conjugate(), 200))
    assert len(functions) < 60
    X = np.concatenate(agents.X)
    assert functions[-1].predict(X) == pytest.approx(agents.central(0).predict(X), abs=1e-9)


def test_without_regularisation_fits_have_least_norm() -> None:
    """y = 2 at x = 1 twice over: slope 2, though the kernel matrix is singular."""
    twice = (np.ones((2, 1)), np.full(2, 2.0))
    agents = KernelAgents("linear", [twice, twice], regularization=0.0)
    assert slopes(agents, agents.y) == pytest.approx([2, 2])
    # The series 4 − 4 + 4 − … does not settle.
    sums = [float(f.predict(ONE)[0, 0]) for f in islice(agents.ensembled(), 4)]
    assert sums == pytest.approx([4, 0, 4, 0], abs=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": [(np.ones((2, 1)), np.ones(2))]}, "fewer than two agents"),
        ({"regularization": -1.0}, "regularization is -1"),
        ({"kernels": ["linear"]}, "1 kernels for 2 agents"),
        ({"data": [(np.eye(2), np.ones(2)), (np.eye(3), np.ones(3))]}, "inputs have shape (3, 3)"),
        (
            {"data": [(np.eye(2), np.ones(2)), (np.eye(2), np.ones((2, 2)))]},
            "targets of shape (2, 2)",
        ),
        ({"data": [(np.eye(2), np.ones(2)), (np.eye(2), np.array([1, np.nan]))]}, "agent 1"),
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, Any], said: str) -> None:
    data = [(np.eye(2), np.ones(2)), (np.eye(2), np.ones(2))]
    given = {"kernels": "linear", "data": data, "regularization": 0.1, **change}
    with pytest.raises(InvalidInput) as refused:
        KernelAgents(**given)
    assert said in str(refused.value)


def test_conjugate_gradients_need_one_kernel() -> None:
    with pytest.raises(InvalidInput, match="one kernel for all agents"):
        next(toy(1e-3, ["linear", "rbf"]).conjugate())


@pytest.mark.parametrize("c", [-1, np.inf, np.nan, "a", None])
def test_regularization_is_a_finite_number(c: Any) -> None:
    with pytest.raises(InvalidInput, match="regularization is"):
        KernelAgents("linear", [(np.eye(2), np.ones(2))] * 2, regularization=c)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([(np.ones((0, 2)), np.ones(0)), (np.eye(2), np.ones(2))], r"agent 0: .* shape \(0, 2\)"),
        ([(np.ones(2), np.ones(2)), (np.eye(2), np.ones(2))], r"agent 0: .* shape \(2,\)"),
        ([(np.eye(2), ["a", "b"]), (np.eye(2), np.ones(2))], "not pairs of numbers"),
    ],
)
def test_data_that_are_none(data: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        KernelAgents("linear", data, regularization=1.0)


def test_agents_and_inputs_that_are_not_there() -> None:
    agents = KernelAgents("linear", [(np.eye(2), np.ones(2))] * 2, regularization=1.0)
    with pytest.raises(InvalidInput, match="there is no agent 5 of 2"):
        agents.central(5)
    with pytest.raises(InvalidInput, match=r"inputs have shape \(3, 4\), expected \(n, 2\)"):
        agents.central(0).predict(np.ones((3, 4)))

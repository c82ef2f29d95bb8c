"""Single repetitions of each experiment: fresh data, plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from consilience.core.federation.federation import Federation
from consilience.core.numerics.kernels import gram, kernel_of
from consilience.core.party.party import Party
from consilience.core.protocols import ProtocolFactory, local_only
from consilience.core.validation.arrays import Array
from consilience.methods.kernel_federations.agents import Expansion, KernelAgents
from consilience.methods.model_exchange.protocols import (
    alternating_distillation,
    averaged_distillation,
    parallel_distillation,
)
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience_papers.afonin2022 import problems
from consilience_papers.afonin2022.problems import Setting, Size

Numbers = dict[str, Any]


# --- kernel agents, exactly ---------------------------------------------------------------------------


def toy(*, regularization: float, ordered: bool, models: int, repetition: int) -> Numbers:
    """Figure 3: mean squared error on all training rows after 1, 2, …, ``models`` models an agent.

    For AvgKD, alone and at the limit that of each agent's model, shape ``(…, 2)``.
    """
    data, _ = problems.toy(repetition, ordered=ordered)
    agents = KernelAgents("linear", data, regularization=regularization)
    X, y = (np.concatenate(parts) for parts in zip(*data, strict=True))

    def errors(functions: Any) -> list[float]:
        return [float(np.square(f.predict(X)[:, 0] - y).mean()) for f in functions]

    alternating = [errors(agents.fit(targets)) for targets in islice(agents.alternating(), models)]
    averaged = [agents.fit(targets) for targets in islice(agents.averaged(), models)]
    limit = _averaged_limit(X, data, regularization)
    reached = [f.predict(X)[:, 0] for f in averaged[-1]]
    return {
        # The chain that begins at agent 1 is at agent 1, 2, 1, …
        "AKD": [row[t % 2] for t, row in enumerate(alternating)],
        "AvgKD": [errors(functions) for functions in averaged],
        "EKD": errors(islice(agents.ensembled(), models)),
        "alone": errors(averaged[0]),
        "central": errors([agents.central(0)])[0],
        "zero": float(np.square(y).mean()),
        "limit": [float(np.square(values - y).mean()) for values in limit],
        "from the limit": max(map(_apart, reached, limit)),
    }


def _averaged_limit(X: Array, data: Any, c: float) -> list[Array]:
    """AvgKD's models after infinitely many rounds, at all rows (Proposition V).

    Their coefficients solve ``(cI + L_aa) s_a − ½ L_ab s_b = ½ y_a``, from ŷ_a = (y_a + g_b(X_a))/2.
    """
    (first, y_first), (second, y_second) = data
    L11, L12, L22 = (
        a @ b.T / len(X) for a, b in ((first, first), (first, second), (second, second))
    )
    system = np.block(
        [[L11 + c * np.eye(len(L11)), -L12 / 2], [-L12.T / 2, L22 + c * np.eye(len(L22))]]
    )
    solution = np.linalg.solve(system, np.concatenate([y_first, y_second]) / 2)
    parts = zip(np.split(solution, [len(first)]), (first, second), strict=True)
    return [X @ (rows.T @ s) / len(X) for s, rows in parts]


def _apart(one: Array, other: Array) -> float:
    """The distance, over the length of ``other``."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def rounds_needed(
    *, regularization: float, ordered: bool, tolerance: float, most: int, repetition: int
) -> Numbers:
    """Rounds after round 0 until EKD and conjugate gradients stay within a share of central training.

    By the distance of predictions on all training rows, and by the mean squared error there; NaN where
    ``most`` rounds are not enough.
    """
    data, _ = problems.toy(repetition, ordered=ordered)
    agents = KernelAgents("linear", data, regularization=regularization)
    X, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    kernel = X @ X.T / len(X)  # once: 2,000 functions are evaluated at the same rows
    goal = kernel @ _coefficients(agents.central(0))
    error = np.square(goal - y).mean()
    found: Numbers = {}
    for name, functions in (("EKD", agents.ensembled()), ("conjugate", agents.conjugate())):
        values = [kernel @ _coefficients(f) for f in islice(functions, most + 1)]
        apart = np.array([_apart(one, goal) for one in values])
        off = np.array([abs(np.square(one - y).mean() / error - 1) for one in values])
        found |= {
            f"{name}, predictions": _settled(apart, tolerance),
            f"{name}, error": _settled(off, tolerance),
        }
    return found


def _coefficients(function: Expansion) -> Array:
    return np.concatenate([s[:, 0] for s in function.coefficients if s is not None])


def _settled(distances: Array, tolerance: float) -> float:
    """The first round from which on all are within the tolerance.

    >>> _settled(np.array([1.0, 0.1, 0.3, 0.1]), 0.2), _settled(np.array([1.0]), 0.2)
    (3.0, nan)
    """
    outside = np.flatnonzero(distances > tolerance)
    after = int(outside[-1]) + 1 if len(outside) else 0
    return float(after) if after < len(distances) else float("nan")


def different_kernels(*, regularization: float, rounds: int, repetition: int) -> Numbers:
    """EKD where agent 1 has a linear kernel and agent 2 a Gaussian one, on training and on fresh rows.

    Its limit solves ``Σ_b k_b(x, X_b) s_b / N + c s = y`` at all rows x: every row counts with the kernel of
    the agent that holds it.
    """
    data, (fresh, truth) = problems.toy(repetition, ordered=False)
    kernels = [kernel_of("linear"), kernel_of("rbf", gamma=0.5)]
    agents = KernelAgents(kernels, data, regularization=regularization)
    X, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    columns = [gram(k, X, rows) / len(X) for k, (rows, _) in zip(kernels, data, strict=True)]
    mixed = np.concatenate(columns, axis=1)
    limit = mixed @ np.linalg.solve(mixed + regularization * np.eye(len(X)), y)
    ensemble = next(islice(agents.ensembled(), rounds, None))

    def errors(function: Expansion) -> list[float]:
        pairs = ((X, y), (fresh, truth))
        return [float(np.square(function.predict(rows)[:, 0] - b).mean()) for rows, b in pairs]

    return {
        "EKD": errors(ensemble),
        "from its limit": _apart(ensemble.predict(X)[:, 0], limit),
        "central, kernel of agent 1": errors(agents.central(0)),
        "central, kernel of agent 2": errors(agents.central(1)),
        "alone": np.mean([errors(f) for f in agents.fit(agents.y)], axis=0),
    }


# --- networks and forests -----------------------------------------------------------------------------

SCHEMES: dict[str, ProtocolFactory[...]] = {
    "alternating": alternating_distillation,
    "averaged": averaged_distillation,
    "parallel": parallel_distillation,
    "FedAvg": federated_averaging,
}


def exchanged(
    *, scheme: str, setting: Mapping[str, Any], size: Mapping[str, Any], repetition: int
) -> Numbers:
    """Test accuracy after rounds 0, 1, …, T, shape ``(T + 1, M)``; and megabytes an agent sends in a round.

    For ``"alternating"`` column i is the chain that began at agent i (AKD), and ``ensemble`` is the accuracy
    of EKD, shape ``(T + 1,)``; otherwise column i is agent i. Round 0 is every agent alone, and with
    FedAvg the untrained network.
    """
    where, how = Setting(**setting), Size(**size)
    given = problems.images(where.data, how, repetition)
    parties = problems.agents(where, how, given, repetition)
    federation = Federation(parties, seed=repetition, strict=False)
    rounds = list(_predictions(federation, SCHEMES[scheme](rounds=how.rounds), given.X_test))
    sent = [d.bytes_up for d in federation.network.deliveries if d.round == how.rounds]
    found: Numbers = {"megabytes": sum(sent) / len(parties) / 1e6}
    if scheme == "alternating":
        signed = [(-1) ** t * sum(said) for t, said in enumerate(rounds)]
        found["ensemble"] = [_accuracy(f, given.y_test) for f in np.cumsum(signed, axis=0)]
        rounds = [np.roll(said, -t, axis=0) for t, said in enumerate(rounds)]
    found["accuracy"] = [[_accuracy(said, given.y_test) for said in row] for row in rounds]
    return found


def _predictions(federation: Federation, protocol: Any, X: Array) -> Iterator[Array]:
    """Predictions of all agents' models after every round, shape ``(M, n, 10)``."""
    for _ in federation.rounds(protocol):
        models = federation.network.models().values()
        yield np.stack([model.learner.predict(X) for model in models])


def _accuracy(outputs: Array, codes: Array) -> float:
    return float((outputs.argmax(axis=1) == codes).mean())


def averaged_apart(
    *,
    setting: Mapping[str, Any],
    size: Mapping[str, Any],
    kernel: bool = False,
    warm_start: bool = False,
    repetition: int,
) -> Numbers:
    """AvgKD of two agents with five classes each, after rounds 0, 1, …, T; shape ``(T + 1,)`` each.

    Test accuracy of the agents (mean), the same with each output divided by its mean over all test images,
    which takes no label, and of the sum of both models; and the sum of the outputs for the other agent's
    classes on test images of these classes.

    Args:
        setting: with ``portion`` 0.
        size: how much is trained.
        kernel: kernel ridge regression (Gaussian, c = 3e-5 over means of four pixels), not the networks.
        warm_start: whether networks go on from where they were.
        repetition: which images.
    """
    where, how = Setting(**setting), Size(**size)
    given = problems.images(where.data, how, repetition)
    parties = problems.agents(where, how, given, repetition)
    if kernel:
        rounds = _kernel_averaged(parties, given.X_test, how.rounds)
    else:
        federation = Federation(parties, seed=repetition, strict=False)
        protocol = averaged_distillation(rounds=how.rounds, warm_start=warm_start)
        rounds = _predictions(federation, protocol, given.X_test)
    high = given.y_test >= 5  # agent 1 has classes 0 to 4, agent 2 the others
    found: Numbers = {"accuracy": [], "divided": [], "sum": [], "foreign": []}
    for first, second in rounds:
        level = [one / np.maximum(one.mean(axis=0), 1e-6) for one in (first, second)]
        for name, pair in (("accuracy", (first, second)), ("divided", level)):
            found[name].append(np.mean([_accuracy(one, given.y_test) for one in pair]))
        found["sum"].append(_accuracy(first + second, given.y_test))
        foreign = first[high, 5:].sum(axis=1).mean(), second[~high, :5].sum(axis=1).mean()
        found["foreign"].append(np.mean(foreign))
    return found


def _kernel_averaged(parties: Sequence[Party], X: Array, rounds: int) -> Iterator[Array]:
    """Predictions of AvgKD's agents with one Gaussian kernel after every round, shape ``(2, n, 10)``."""
    data = [(_small(party.rows.X), party.rows.y) for party in parties]
    agents = KernelAgents(kernel_of("rbf", gamma=0.05), data, regularization=3e-5)
    rows = _small(X)
    for targets in islice(agents.averaged(), rounds + 1):
        yield np.stack([function.predict(rows) for function in agents.fit(targets)])


def _small(X: Array) -> Array:
    """Means of four pixels, shape ``(n, 196)``."""
    means = X.reshape(len(X), 14, 2, 14, 2).mean(axis=(2, 4))
    return np.asarray(means, dtype=float).reshape(len(X), -1)


def central(*, setting: Mapping[str, Any], size: Mapping[str, Any], repetition: int) -> Numbers:
    """Agent 1's model trained once on all agents' rows: its test accuracy."""
    where, how = Setting(**setting), Size(**size)
    given = problems.images(where.data, how, repetition)
    everything = problems.party("all", problems.learner(where, how, 0), given.X, given.y)
    federation = Federation([everything], seed=repetition)
    (said,) = next(_predictions(federation, local_only(), given.X_test))
    return {"accuracy": _accuracy(said, given.y_test)}

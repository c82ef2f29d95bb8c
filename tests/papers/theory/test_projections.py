"""Projections, angles and what is left: by hand and against the rounds themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from consilience_papers.theory import (
    alternating_distillation,
    common_parts,
    degradation_bound,
    ensembled_distillation,
    exchange_of,
    oblique_projections,
    parallel_distillation,
    principal_cosines,
)
from helpers.exchanging_agents import HAND, by_hand, data, dot, toy


def test_by_hand():
    """(I + L_11)^{−½} L_12 (I + L_22)^{−½} = H/√6, H = (1 1; 1 −1) of norm √2: both angles have cos² = 1/3.

    Without regularisation both span the plane, and every cosine is 1: 1/3 = ½ · ⅔ · 1 = s_1 s_2 cos² φ₀.
    """
    np.testing.assert_allclose(principal_cosines(by_hand()), [3**-0.5, 3**-0.5])
    assert degradation_bound(by_hand()) == pytest.approx(1 / 3)
    bare = exchange_of(dot, HAND, regularization=0.0)
    np.testing.assert_allclose(principal_cosines(bare), [1, 1])


@pytest.mark.parametrize("kernels", [(rbf_kernel,) * 2, (rbf_kernel, laplacian_kernel)])
@pytest.mark.parametrize("outputs", [None, 2])
def test_proposition_three(kernels, outputs):
    agents, _ = data(4, 3, outputs=outputs)
    exchange = exchange_of(kernels, agents, regularization=0.1)
    geometry = oblique_projections(exchange)
    rounds = alternating_distillation(exchange)
    for trips in range(4):
        model = exchange.models(rounds.targets(2 * trips))[0]
        np.testing.assert_allclose(
            geometry.predictions(trips), model(exchange.inputs[1]), atol=1e-12
        )

    weight = geometry.spectrum + 0.1
    for V, P, C in zip(geometry.frames, geometry.projections, geometry.contractions, strict=True):
        np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-12)
        np.testing.assert_allclose(P @ P, P, atol=1e-10)
        np.testing.assert_allclose(P @ V, V, atol=1e-10)
        np.testing.assert_allclose(weight[:, None] * P, (weight[:, None] * P).T, atol=1e-10)
        sizes = np.linalg.svd(C, compute_uv=False)
        np.testing.assert_allclose(sizes * (1 - sizes), 0, atol=1e-10)
        assert sizes.max() == pytest.approx(1)
    # V_1 and V_2 are orthogonal, and Ṽ_2 and Ṽ_1.
    for V, other in zip(geometry.frames, geometry.others, strict=True):
        np.testing.assert_allclose(V.T @ other, 0, atol=1e-12)


def test_contractions_of_two_kernels_have_no_eigenvalues_but_zero():
    agents, _ = data(4, 3)
    two = oblique_projections(
        exchange_of((rbf_kernel, laplacian_kernel), agents, regularization=0.1)
    )
    for C in two.contractions:
        np.testing.assert_allclose(C @ C, 0, atol=1e-12)
    one = oblique_projections(exchange_of(rbf_kernel, agents, regularization=0.1))
    for C in one.contractions:
        np.testing.assert_allclose(C @ C, C, atol=1e-12)


def test_the_projections_have_nothing_in_common():
    agents, _ = data(4, 3)
    geometry = oblique_projections(exchange_of(rbf_kernel, agents, regularization=0.1))
    P1, P2 = geometry.projections
    assert np.abs(np.linalg.eigvals(P1.T @ P2.T)).max() < 0.99


def test_the_angle_is_the_rate():
    agents, _ = data(5, 4)
    cosines = []
    for c in (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        exchange = exchange_of(laplacian_kernel, agents, regularization=c)
        L, first = exchange.similarities, exchange.owner == 0
        cosines.append(principal_cosines(exchange))
        assert alternating_distillation(exchange).rate == pytest.approx(cosines[-1][0])
        assert degradation_bound(exchange) == pytest.approx(cosines[-1][0] ** 2)
        blocks = [L[np.ix_(own, own)] for own in (first, ~first)]
        values = [np.linalg.eigvalsh(block) for block in blocks]
        shrunk = np.prod([v[-1] / (c + v[-1]) for v in values])
        assert cosines[-1][0] ** 2 <= shrunk * cosines[0][0] ** 2 * (1 + 1e-9)
        size = np.linalg.norm(L[np.ix_(first, ~first)], 2)
        assert cosines[-1][0] <= size / np.sqrt(np.prod([c + v[0] for v in values]))
    assert (np.diff(np.array(cosines), axis=0) < 0).all()


def test_a_step_leaves_at_most_the_cosine_of_the_labels():
    agents, _ = data(5, 4, 3)
    exchange = exchange_of(laplacian_kernel, agents, regularization=0.01)
    rounds = alternating_distillation(exchange)
    norm = exchange.local_power(-0.5)
    sizes = [np.linalg.norm(norm @ rounds.targets(t)) for t in range(10)]
    for t in range(9):
        bound = principal_cosines(exchange, t % 3, (t + 1) % 3)[0]
        assert sizes[t + 1] <= bound * sizes[t] * (1 + 1e-12)
    assert rounds.rate**3 <= degradation_bound(exchange)


def test_the_angles_without_regularization_are_those_of_the_rows():
    """With the dot product the span of k(x, ·) is that of the rows."""
    agents, _ = data(2, 3, columns=6)
    exchange = exchange_of(dot, agents, regularization=0.0)
    angles = subspace_angles(exchange.inputs[0].T, exchange.inputs[1].T)
    np.testing.assert_allclose(
        principal_cosines(exchange), np.sort(np.cos(angles))[::-1], atol=1e-10
    )


def test_what_is_common_by_hand():
    """Rows e₁, e₂ and e₂, e₃: the line of e₂ is common. y = (5, 7) and (1, 2): θ = 7e₂ and 1e₂ are left."""
    axes = np.eye(3)
    exchange = exchange_of(dot, [(axes[:2], [5, 7]), (axes[1:], [1, 2])], regularization=0.0)
    one, two = common_parts(exchange)
    np.testing.assert_allclose(one(axes), [0, 7, 0], atol=1e-12)
    np.testing.assert_allclose(two(axes), [0, 1, 0], atol=1e-12)


def test_what_is_common_is_where_rounds_go():
    """Three agents with rows in five dimensions, four rows each: two directions are common to all."""
    agents, new = data(4, 4, 4, columns=5, outputs=2)
    exchange = exchange_of(dot, agents, regularization=0.0)
    parts = common_parts(exchange)
    for first, part in enumerate(parts):
        rounds = alternating_distillation(exchange, first=first)
        for t in (30000, 30001, 30002):
            model = exchange.models(rounds.targets(t))[(first + t) % 3]
            np.testing.assert_allclose(model(new), part(new), atol=1e-6)
    assert min(np.linalg.norm(part(new)) for part in parts) > 0.1
    mean = np.mean([part(new) for part in parts], axis=0)
    for model in exchange.models(parallel_distillation(exchange).targets(30000)):
        np.testing.assert_allclose(model(new), mean, atol=1e-6)


def test_nothing_is_common_where_the_kernel_is_definite():
    agents, new = data(4, 3)
    for part in common_parts(exchange_of(laplacian_kernel, agents, regularization=0.0)):
        np.testing.assert_array_equal(part(new), np.zeros(4))


def test_self_distillation_without_regularization_changes_nothing():
    """Appendix C, with rows twice, so that K has no inverse."""
    (X, y), new = data(3)[0][0], data(3)[1]
    agent = np.concatenate([X, X]), np.concatenate([y, y + 1])
    exchange = exchange_of(rbf_kernel, [agent, agent], regularization=0.0)
    own = exchange.models(exchange.labels)[0](new)
    np.testing.assert_allclose(common_parts(exchange)[0](new), own)
    later = exchange.models(alternating_distillation(exchange).targets(6))[0](new)
    np.testing.assert_allclose(later, own)


def test_the_toy_problem_keeps_half_of_its_directions():
    """90 and 60 rows in 100 dimensions share 50; labels are a function's, so agents agree on what is left."""
    exchange = exchange_of(dot, toy(different=False), regularization=0.0)
    assert (principal_cosines(exchange) > 1 - 1e-9).sum() == 50
    one, two = common_parts(exchange)
    new = np.eye(100)
    np.testing.assert_allclose(one(new), two(new), atol=1e-8)
    assert np.linalg.norm(one(new)) > 1
    assert ensembled_distillation(exchange).rate == pytest.approx(1)


def test_bad_input():
    agents, _ = data(2, 3)
    two = exchange_of((rbf_kernel, dot), agents, regularization=0.1)
    for of_one_kernel in (principal_cosines, degradation_bound, common_parts):
        with pytest.raises(ValueError, match="different kernels"):
            of_one_kernel(two)
    with pytest.raises(ValueError, match="regularization=0 only"):
        common_parts(exchange_of(dot, agents, regularization=0.1))
    with pytest.raises(ValueError, match="agents 1 and 1"):
        principal_cosines(exchange_of(dot, agents, regularization=0.1), 1, 1)
    three = exchange_of(dot, [*agents, agents[0]], regularization=0.1)
    with pytest.raises(ValueError, match="there are 3 agents"):
        oblique_projections(three)

"""Losses: by hand, against finite differences, and what is no convex loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.methods.functional_boosting.losses import (
    LOSSES,
    ConvexLoss,
    check_convex,
    loss_of,
    on_simplex,
    softmax,
)

RNG = np.random.default_rng(0)
F, Y = RNG.normal(size=(6, 3)), np.eye(3)[[0, 1, 2, 2, 1, 0]]


def test_by_hand() -> None:
    """At f = (0, log 3) with y = (1, 0): softmax (1/4, 3/4); σ(0) = 1/2, σ(log 3) = 3/4."""
    f, y = np.array([[0.0, math.log(3)]]), np.array([[1.0, 0.0]])
    expected = {
        "cross-entropy": (math.log(4), [-3 / 4, 3 / 4], [1 / 4, 3 / 4]),
        "logistic": (math.log(2) + math.log(4), [-1 / 2, 3 / 4], [2 / 5, 3 / 5]),
        "squared": ((1 + math.log(3) ** 2) / 2, [-1, math.log(3)], [0, 1]),
    }
    assert set(expected) == set(LOSSES)
    for name, (value, gradient, probabilities) in expected.items():
        loss = loss_of(name)
        assert loss.value(f, y) == pytest.approx([value]), name
        assert loss.gradient(f, y)[0] == pytest.approx(gradient), name
        assert loss.probabilities is not None
        assert loss.probabilities(f)[0] == pytest.approx(probabilities), name


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_values(name: str) -> None:
    loss, step = LOSSES[name], 1e-6
    for c in range(3):
        shift = step * np.eye(3)[c]
        slope = (loss.value(F + shift, Y) - loss.value(F - shift, Y)) / (2 * step)
        assert loss.gradient(F, Y)[:, c] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_grow_no_faster_than_said_and_nearly_as_fast(name: str) -> None:
    """Ratios ‖∂ℓ(a) − ∂ℓ(b)‖ / ‖a − b‖ for near a, b; at two equal logits the worst direction is (1, −1)."""
    loss = LOSSES[name]
    a = np.concatenate([np.zeros((1, 2)), RNG.normal(size=(500, 2))])
    b = a + 1e-4 * np.array([1.0, -1.0])
    y = np.eye(2)[np.zeros(len(a), dtype=int)]
    ratio = np.linalg.norm(loss.gradient(a, y) - loss.gradient(b, y), axis=1)
    ratio = ratio / np.linalg.norm(a - b, axis=1)
    assert ratio.max() <= loss.smoothness * (1 + 1e-6)
    assert ratio.max() >= 0.99 * loss.smoothness


@pytest.mark.parametrize("name", LOSSES)
def test_large_values_stay_numbers(name: str) -> None:
    f = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, 1e4]])
    loss = LOSSES[name]
    for part in (loss.value(f, Y[:2]), loss.gradient(f, Y[:2]), loss.probabilities(f)):  # type: ignore[misc]
        assert np.isfinite(part).all()


def test_probabilities() -> None:
    assert softmax(F).sum(axis=1) == pytest.approx(np.ones(6))
    assert on_simplex(np.array([[-1.0, -1.0], [3.0, 1.0]])).tolist() == [[0.5, 0.5], [0.75, 0.25]]


def own(value: Any, gradient: Any, **changes: Any) -> ConvexLoss:
    return ConvexLoss("own", "regression", value, gradient, **changes)


def huber(f: Any, y: Any) -> Any:
    r = np.abs(f - y)
    return np.where(r < 1, r**2 / 2, r - 0.5).sum(axis=1)


def huber_gradient(f: Any, y: Any) -> Any:
    return np.clip(f - y, -1, 1)


def test_convex_losses_of_ones_own_are_taken() -> None:
    check_convex(own(huber, huber_gradient, smoothness=1.0), 2)
    check_convex(own(lambda f, y: np.abs(f - y).sum(axis=1), lambda f, y: np.sign(f - y)), 3)
    for name, loss in LOSSES.items():  # as if they were not known
        check_convex(
            ConvexLoss("own", loss.kind, loss.value, loss.gradient, 1.0, loss.probabilities), 3
        )
        assert loss_of(name) is loss


@pytest.mark.parametrize(
    ("value", "gradient", "said"),
    [
        (lambda f, y: -huber(f, y), lambda f, y: -huber_gradient(f, y), "not convex in its first"),
        (lambda f, y: np.log1p(huber(f, y)), huber_gradient, "not convex in its first argument"),
        (huber, lambda f, y: -huber_gradient(f, y), "its gradient is not that of its value"),
        (huber, lambda f, y: 2 * (f - y), "its gradient is not that of its value"),
        (lambda f, y: huber(f, y).mean(), huber_gradient, "its value has shape"),
        (huber, lambda f, y: huber(f, y), "its gradient \\(1200,\\)"),
        (lambda f, y: np.exp(300 * f).sum(axis=1) * np.inf, huber_gradient, "not finite"),
    ],
)
def test_what_is_no_convex_loss_is_refused(value: Any, gradient: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_convex(own(value, gradient), 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: loss_of("cross-entrpy"), "Did you mean 'cross-entropy'"),
        (lambda: loss_of(3), "loss is 3"),  # type: ignore[arg-type]
        (lambda: own(huber, None), "functions of"),
        (lambda: own(huber, huber_gradient, smoothness=0.0), "smoothness is 0"),
        (lambda: ConvexLoss("own", "ranking", huber, huber_gradient), "kind is 'ranking'"),  # type: ignore[arg-type]
        (lambda: ConvexLoss("own", "classification", huber, huber_gradient), "what probabilities"),
    ],
)
def test_bad_input(make: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make()

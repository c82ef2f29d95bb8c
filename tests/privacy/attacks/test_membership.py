"""Attacks of membership, on problems whose answer is known."""

import numpy as np
import pytest
from scipy.special import ndtr

from consilience.core.errors import InvalidInput
from consilience.privacy.accounting.losses import ORDERS, PrivacyLoss
from consilience.privacy.attacks.membership import (
    area_under_curve,
    confidence_likelihood,
    highest_area,
    public_row_likelihood,
    relative_likelihood,
    true_positives,
)


@pytest.mark.parametrize("mu", [0.0, 1.0, 2.0])
def test_an_attack_on_gaussian_noise_comes_close_to_the_best_one_and_never_beyond(
    mu: float,
) -> None:
    """Eight rows, one coordinate each, noise 1/μ: the best attack tells them with Φ(μ/√2)."""
    rng = np.random.default_rng(0)
    members = rng.random((3000, 8)) < 0.5
    released = members * mu + rng.normal(size=members.shape)
    scores = public_row_likelihood(released[:2000], members[:2000], released[2000:])
    area = area_under_curve(scores, members[2000:])
    best = highest_area(PrivacyLoss(mu))
    assert best - 0.01 < area < best + 0.01


def test_the_highest_area_of_any_loss_is_above_that_of_the_gaussian_loss_that_it_bounds() -> None:
    """Gaussian noise as Rényi divergences α μ² / 2, which permit a little more; no noise permits all."""
    for mu in (0.2, 0.72, 1.67):
        loose = highest_area(PrivacyLoss(0.0, tuple(order * mu**2 / 2 for order in ORDERS)))
        assert highest_area(PrivacyLoss(mu)) < loose < highest_area(PrivacyLoss(mu)) + 0.08
    assert highest_area(PrivacyLoss(0.0, (0.0,) * len(ORDERS))) == pytest.approx(0.5, abs=0.02)
    assert highest_area(PrivacyLoss(0.0, (1e9,) * len(ORDERS))) == 1.0


def test_a_release_without_noise_tells_every_member() -> None:
    rng = np.random.default_rng(1)
    members = rng.random((200, 10)) < 0.5
    released = members @ rng.normal(size=(10, 40))
    scores = public_row_likelihood(released[:150], members[:150], released[150:])
    assert area_under_curve(scores, members[150:]) > 0.999
    assert true_positives(scores, members[150:]) > 0.99


def test_lira_and_rmia_tell_rows_that_models_are_surer_of() -> None:
    """Log odds of members are N(d, 1), of others N(0, 1): no attack exceeds Φ(d/√2), and LiRA reaches it."""
    rng = np.random.default_rng(2)
    members = rng.random((400, 20)) < 0.5
    p = 1 / (1 + np.exp(-(members * 1.5 + rng.normal(size=members.shape))))
    others = 1 / (1 + np.exp(-rng.normal(size=(400, 50))))
    best = float(ndtr(1.5 / np.sqrt(2)))
    shadows, inside, targets = p[:200], members[:200], p[200:]
    lira = area_under_curve(confidence_likelihood(shadows, inside, targets), members[200:])
    assert best - 0.02 < lira < best + 0.02
    few = confidence_likelihood(shadows[:8], inside[:8], targets)
    assert area_under_curve(few, members[200:]) > best - 0.08
    rmia = relative_likelihood(
        shadows, inside, targets, elsewhere=others[:200], targets_elsewhere=others[200:]
    )
    assert best - 0.05 < area_under_curve(rmia, members[200:]) < best + 0.02


def test_too_few_shadows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="3 shadows"):
        public_row_likelihood(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((1, 2)))

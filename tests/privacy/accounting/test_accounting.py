"""Arithmetic of privacy: against golden numbers, another accountant, and exact divergences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, skellam

from consilience.core.errors import InvalidInput
from consilience.privacy.accounting.losses import (
    ORDERS,
    PrivacyLoss,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    noise_multiplier,
    skellam_loss,
    subsampled_gaussian_loss,
)


@pytest.mark.parametrize(
    ("epsilon", "mu", "wide"),
    [(0.5, 0.142, 0.217), (1, 0.268, 0.388), (3, 0.719, 0.964), (8, 1.666, 2.083)],
)
def test_the_largest_mu(epsilon: float, mu: float, wide: float) -> None:
    assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, abs=6e-4)
    assert gaussian_mu(epsilon, 1e-3) == pytest.approx(wide, abs=6e-4)
    assert gaussian_epsilon(gaussian_mu(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-9)


@given(st.floats(0.01, 20), st.floats(0, 20))
def test_delta_is_what_the_normal_distribution_says(mu: float, epsilon: float) -> None:
    """δ(ε) = P − e^ε Q of the likeliest set, computed plainly; and 0 where that is below rounding."""
    plain = norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert gaussian_delta(mu, epsilon) == pytest.approx(plain, abs=1e-12)


def test_against_another_accountant() -> None:
    """Gaussian releases: exactly its analytic numbers, its RDP to 1e-6, and its PLD from above."""
    other = pytest.importorskip("dp_accounting", reason="pip install --no-deps dp-accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    for sigma in (0.5, 1.39, 3.73, 20.0):
        exact = other.get_epsilon_gaussian(sigma, 1e-5)
        assert PrivacyLoss(1 / sigma).epsilon(1e-5) == pytest.approx(exact, rel=1e-6)
    sigmas = [4.0, 2.0, 7.0]
    event = other.ComposedDpEvent([other.GaussianDpEvent(sigma) for sigma in sigmas])
    total = sum((PrivacyLoss(1 / sigma) for sigma in sigmas), PrivacyLoss())
    orders = [a for a in ORDERS]
    theirs = RdpAccountant(orders).compose(event).get_epsilon(1e-5)
    as_renyi = PrivacyLoss(0.0, tuple(a * total.mu**2 / 2 for a in ORDERS))
    assert as_renyi.epsilon(1e-5) == pytest.approx(theirs, rel=1e-6)
    tight = PLDAccountant().compose(event).get_epsilon(1e-5)
    assert total.epsilon(1e-5) == pytest.approx(tight, rel=1e-3)
    assert tight <= as_renyi.epsilon(1e-5) <= 1.12 * tight


def test_noise_on_a_part_of_the_rows_against_another_accountant() -> None:
    """Its RDP to 1e-6 at whole orders, and its PLD from above, with class sums in one ledger too.

    Divergences of all orders, fractions too, are 10 to 13 % above at ε = 8.
    """
    other = pytest.importorskip("dp_accounting", reason="pip install --no-deps dp-accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    whole = [float(order) for order in ORDERS if order == int(order)]
    sums = other.GaussianDpEvent(8.0)
    for noise, rate, steps, most in (
        (6.1, 64 / 600, 188, 1.12),
        (2.4, 64 / 600, 188, 1.12),
        (1.24, 64 / 600, 188, 1.14),
        (0.84, 0.0512, 195, 1.14),
    ):
        part = other.PoissonSampledDpEvent(rate, other.GaussianDpEvent(noise))
        event = other.ComposedDpEvent([other.SelfComposedDpEvent(part, steps), sums])
        found = subsampled_gaussian_loss(noise, rate, steps)
        rdp = RdpAccountant(whole).compose(other.SelfComposedDpEvent(part, steps))
        ours = [found.renyi[ORDERS.index(order)] for order in whole]
        np.testing.assert_allclose(ours, rdp._rdp, rtol=1e-6)
        tight = PLDAccountant().compose(event).get_epsilon(1e-5)
        assert tight <= (found + PrivacyLoss(1 / 8.0)).epsilon(1e-5) <= most * tight


@pytest.mark.parametrize(("epsilon", "noise"), [(1, 6.1), (3, 2.4), (8, 1.2)])
def test_the_least_noise_of_training(epsilon: float, noise: float) -> None:
    """600 rows, parts of 64, 20 epochs; a step over all rows is a plain Gaussian release."""
    found = noise_multiplier(epsilon, 1e-5, rate=64 / 600, steps=188)
    assert found == pytest.approx(noise, abs=0.05)
    spent = subsampled_gaussian_loss(found, 64 / 600, 188).epsilon(1e-5)
    assert epsilon * (1 - 1e-9) <= spent <= epsilon
    assert subsampled_gaussian_loss(6.0, 1.0, 9) == PrivacyLoss(0.5)


def test_a_part_of_the_rows_by_hand() -> None:
    """Order 2: E[(1 − q + q L)²] = (1 − q)² + 2 q (1 − q) + q² e^(1/σ²), for L of mean 1."""
    one = subsampled_gaussian_loss(2.0, 0.25, 1)
    by_hand = np.log(0.75**2 + 2 * 0.25 * 0.75 + 0.25**2 * np.exp(1 / 4))
    assert one.renyi[ORDERS.index(2)] == pytest.approx(by_hand, rel=1e-12)
    assert one.renyi[ORDERS.index(1.5)] == one.renyi[ORDERS.index(2)]
    three = subsampled_gaussian_loss(2.0, 0.25, 3)
    np.testing.assert_allclose(three.renyi, 3 * np.array(one.renyi), rtol=1e-12)
    for wrong in ({"noise": 0.0}, {"rate": 1.5}, {"steps": 0}):
        with pytest.raises(InvalidInput, match="subsampled noise"):
            subsampled_gaussian_loss(**{"noise": 1.0, "rate": 0.1, "steps": 1, **wrong})


@pytest.mark.parametrize(("variance", "step"), [(50, 1), (50, 3), (400, 5), (2000, 20)])
def test_skellam_noise_costs_no_more_than_it_is_said_to(variance: float, step: int) -> None:
    """The Rényi divergence of two Skellam distributions, summed up over the integers."""
    reach = np.arange(-int(30 * variance**0.5), int(30 * variance**0.5))
    p, q = (skellam.logpmf(reach - shift, variance / 2, variance / 2) for shift in (0, step))
    seen = np.isfinite(p) & np.isfinite(q) & (p > -600) & (q > -600)
    loss = skellam_loss(variance, step, step)
    for order in (2, 4, 16):
        terms = order * p[seen] - (order - 1) * q[seen]
        exact = np.logaddexp.reduce(terms) / (order - 1)
        assert exact <= loss.renyi[ORDERS.index(order)] * (1 + 1e-6)
    assert loss.renyi[ORDERS.index(2)] == pytest.approx(step**2 / variance, rel=0.1)


def test_losses_are_composed_for_the_same_neighbours_alone() -> None:
    gaussian, other = PrivacyLoss(0.3), skellam_loss(100.0, 1, 1)
    both = gaussian + other
    assert both.mu == 0.3 and both.renyi == other.renyi
    assert both.epsilon(1e-5) > max(gaussian.epsilon(1e-5), other.epsilon(1e-5))
    assert PrivacyLoss(0.3) + PrivacyLoss(0.4) == PrivacyLoss(0.5)
    assert gaussian.under("replace", "row") == PrivacyLoss(0.6, adjacency="replace")
    for loss, adjacency, unit in [
        (PrivacyLoss(0.3, adjacency="replace"), "add-remove", "row"),
        (other, "replace", "row"),
        (gaussian, "add-remove", "patient"),
    ]:
        with pytest.raises(InvalidInput, match="is none under"):
            loss.under(adjacency, unit)
    assert not PrivacyLoss() and PrivacyLoss().epsilon(1e-5) == 0

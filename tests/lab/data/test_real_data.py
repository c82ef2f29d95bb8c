"""The published files themselves, where they are: known sizes, counts and first rows."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.lab.data import load


@pytest.mark.needs_data("mnist")
def test_mnist() -> None:
    """Class counts as published; the first training digits are 5 0 4 1 9 and 5 is upright."""
    data = load("mnist")
    assert (data.X.shape, data.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert data.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(data.y).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert data.X.mean() == pytest.approx(0.1307, abs=1e-4)


@pytest.mark.needs_data("fashion-mnist")
def test_fashion_mnist() -> None:
    data = load("fashion-mnist")
    assert np.bincount(data.y).tolist() == [6000] * 10
    assert data.classes is not None and data.classes[data.y[0]] == "Ankle boot"
    assert data.X.mean() == pytest.approx(0.2860, abs=1e-4)


@pytest.mark.slow
@pytest.mark.needs_data("cifar-10")
def test_cifar_10() -> None:
    """The first training image is a frog; channel means of the whole set are known."""
    data = load("cifar-10")
    assert len(data.X) % 10_000 == 0 and len(data.X_test) == 10_000
    assert (f"{len(data.X):,} of 50,000" in data.notes) == (len(data.X) < 50_000)
    assert data.classes is not None and data.classes[data.y[0]] == "frog"
    assert data.X.mean(axis=(0, 2, 3)) == pytest.approx([0.4914, 0.4822, 0.4465], abs=3e-3)


@pytest.mark.needs_data("cifar-100")
def test_cifar_100() -> None:
    data = load("cifar-100")
    assert len(data.classes or ()) == 100
    n = len(data.y) + len(data.y_test)
    assert n in (10_000, 60_000)
    assert np.ptp(np.bincount(data.y)) == 0 and np.ptp(np.bincount(data.y_test)) == 0
    assert ("No training file" in data.notes) == (n == 10_000)


@pytest.mark.needs_data("heart-disease")
def test_heart_disease() -> None:
    """FLamby: 303, 261, 46 and 130 patients are left; every hospital trains on both classes."""
    for seed in range(5):
        data = load("heart-disease", seed=seed)
        assert data.group is not None and data.group_test is not None
        both = np.concatenate([data.group, data.group_test])
        assert dict(zip(*np.unique(both, return_counts=True), strict=True)) == {
            "cleveland": 303,
            "hungarian": 261,
            "switzerland": 46,
            "va": 130,
        }
        assert all(len(np.unique(data.y[data.group == h])) == 2 for h in np.unique(data.group))
    assert data.X.shape[1] == 13
    whole = load("heart-disease", gaps=True)
    assert len(whole.X) + len(whole.X_test) == 920 and whole.X.shape[1] == 13
    assert np.isnan(whole.X[whole.group == "switzerland", 4]).all()  # cholesterol


@pytest.mark.needs_data("20news")
def test_newsgroups() -> None:
    data = load("20newsgroups")
    assert (len(data.X), len(data.X_test), len(data.classes or ())) == (11_314, 7_532, 20)
    assert np.bincount(data.y)[:2].tolist() == [480, 584]
    # Only forwarded posts still open with a header, of the post within.
    assert np.mean([text.startswith("From:") for text in data.X]) < 0.01
    assert data.notes.startswith("515 posts")


@pytest.mark.needs_data("trec")
def test_trec() -> None:
    coarse, fine = load("trec"), load("trec", fine=True)
    assert (len(coarse.X), len(coarse.X_test)) == (5_452, 500)
    assert (len(coarse.classes or ()), len(fine.classes or ())) == (6, 50)
    assert coarse.X[0] == "How did serfdom develop in and then leave Russia ?"

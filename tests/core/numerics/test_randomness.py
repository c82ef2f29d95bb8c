"""Streams that are what their key says, wherever they are drawn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController, threadpool_info

from consilience.core.numerics.randomness import SystemNoise, limited_threads, stream

KEY = (3, "party-1", 2, "fit")


def test_the_same_key_is_the_same_stream():
    np.testing.assert_array_equal(stream(*KEY).random(5), stream(*KEY).random(5))


@pytest.mark.parametrize(
    "key",
    [
        (4, "party-1", 2, "fit"),
        (3, "party-2", 2, "fit"),
        (3, "party-1", 3, "fit"),
        (3, "party-1", 2, "distill"),
        (32, "party-1", 0, "fit"),
    ],
)
def test_another_key_is_another_stream(key):
    assert not np.array_equal(stream(*KEY).random(5), stream(*key).random(5))


def test_names_and_numbers_do_not_run_together():
    """Round 1 of party "1a" is not round 11 of party "a"."""
    assert stream(0, "1a", 1, "fit").random() != stream(0, "a", 11, "fit").random()


def test_another_process_draws_the_same():
    code = f"from consilience.core.numerics.randomness import stream; print(repr(stream{KEY!r}.random()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) == stream(*KEY).random()


def test_drawing_moves_no_global_generator():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    stream(*KEY).random(100)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_threads_are_limited_for_a_while():
    torch = sys.modules.get("torch")
    before = [pool["num_threads"] for pool in threadpool_info()]
    torch_before = torch.get_num_threads() if torch else 0
    with pytest.raises(ZeroDivisionError), limited_threads(1):
        assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
        if torch:
            assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert not torch or torch.get_num_threads() == torch_before


def test_libraries_are_found_once_and_again_after_an_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []

    class Counted(ThreadpoolController):
        def __init__(self) -> None:
            found.append(1)
            super().__init__()

    monkeypatch.setattr("consilience.core.numerics.randomness.ThreadpoolController", Counted)
    monkeypatch.setitem(sys.modules, "_imported_by_this_test", sys)
    for _ in range(2):
        with limited_threads(1):
            pass
    assert len(found) == 1
    monkeypatch.setitem(sys.modules, "_imported_by_this_test_too", sys)
    with limited_threads(1):
        assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
    assert len(found) == 2


def test_noise_is_the_quantile_of_the_systems_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """63 bits of tail, Φ(-1) = 0.1586552539, and a sign; the furthest is Φ⁻¹(2⁻⁶⁵), the nearest 0."""
    one = int(0.15865525393145707 * 2**64)
    words = [one << 1, one << 1 | 1, 0, 2**64 - 1]
    raw = b"".join(word.to_bytes(8, "little") for word in words)
    monkeypatch.setattr("os.urandom", lambda count: raw[:count])
    noise = SystemNoise().normal(scale=2.0, size=(2, 2)).ravel()
    np.testing.assert_allclose(noise[:2], [-2.0, 2.0], rtol=1e-12)
    assert -18.32 < noise[2] < -18.30 and noise[3] == 0


def test_noise_is_normal_and_no_generator_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares below some quantiles, within six standard errors, and no draw twice."""
    monkeypatch.delattr("numpy.random.default_rng")
    drawn = SystemNoise().normal(scale=3.0, size=(200_000,)) / 3.0
    for z in (-3.0, -1.0, 0.0, 0.5, 2.0):
        share = ndtr(z)
        assert abs((drawn < z).mean() - share) < 6 * np.sqrt(share * (1 - share) / len(drawn))
    assert len(np.unique(drawn)) == len(drawn)

"""Streams that are what their key says, wherever they are drawn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from consilience.numerics.randomness import limited_threads, stream

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
    code = (
        f"from consilience.numerics.randomness import stream; print(repr(stream{KEY!r}.random()))"
    )
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

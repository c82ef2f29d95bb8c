"""The consensus steps on proposals 1, 3, 8 of one row and one column."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.aggregation import damped, replace
from consilience.errors import InvalidInput


def consensus(step, *proposals: float) -> list[float]:
    state, path = step.init(), []
    for proposal in proposals:
        values, state = step.update(np.array([[proposal]], np.float32), state)
        assert values.dtype == np.float32
        path.append(float(values[0, 0]))
    return path


def test_replace_is_the_newest():
    assert consensus(replace(), 1, 3, 8) == [1, 3, 8]


def test_steps_of_one_over_t_are_the_mean_so_far():
    """exponent 1: 1, (1 + 3)/2 = 2, 2/3 2 + 1/3 8 = 4."""
    assert consensus(damped(exponent=1), 1, 3, 8) == pytest.approx([1, 2, 4])


def test_the_paper_exponent():
    """g_2 = 2^-0.501 = 0.706617: 1 + 2 g_2 = 2.413234; g_3 = 3^-0.501 = 0.576716: 5.635213."""
    assert consensus(damped(), 1, 3, 8) == pytest.approx([1, 2.413234, 5.635213], abs=1e-6)


def test_a_constant_step():
    """A quarter of the way: 1, 1 + 2/4 = 1.5, 1.5 + 6.5/4 = 3.125."""
    assert consensus(damped(0.25), 1, 3, 8) == [1, 1.5, 3.125]


def test_a_step_of_one_replaces():
    assert consensus(damped(1.0), 1, 3, 8) == [1, 3, 8]


def test_what_was_proposed_stays_as_it_was():
    step, proposal = damped(0.5), np.ones((1, 1), np.float32)
    _, state = step.update(proposal, step.init())
    step.update(3 * proposal, state)
    assert proposal == 1
    assert state["t"] == 1


@pytest.mark.parametrize(("options", "what"), [({"step": 0}, "step is 0"), ({"step": 1.1}, "step")])
def test_a_step_lies_in_zero_to_one(options, what):
    with pytest.raises(InvalidInput, match=what):
        damped(**options)


def test_an_exponent_lies_in_zero_to_one():
    with pytest.raises(InvalidInput, match="exponent is -1"):
        damped(exponent=-1)

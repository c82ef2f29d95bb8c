"""The consensus steps: proposals 1, 3, 8 of one row and one column, and a map of the plane for Anderson's."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.aggregation import CONSENSUS, anderson, damped, replace
from consilience.core.errors import InvalidInput
from consilience.core.messages.wire import decode, encode
from consilience.core.protocols import RoundState


def consensus(step, *proposals: float) -> list[float]:
    memory, previous, path = step.init(), None, []
    for proposal in proposals:
        previous, memory = step.update(np.array([[proposal]], np.float32), previous, memory)
        path.append(float(previous[0, 0]))
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


def test_damping_starts_from_the_consensus_as_it_was():
    """The protocol made 2 of the 1 that was proposed: half of the way from there to 4 is 3."""
    step = damped(0.5)
    _, memory = step.update(np.array([[1.0]]), None, step.init())
    moved, _ = step.update(np.array([[4.0]]), np.array([[2.0]]), memory)
    assert moved == 3


# --- Anderson acceleration --------------------------------------------------------------------------


def plane(v):
    """G(x, y) = (x/2 + 1, y/4 + 3), which leaves (2, 4) where it is."""
    return v / [2, 4] + [1, 3]


def accelerated(step, rounds: int, shape=(1, 2)):
    """The path from a first proposal (0, 0), and the memory at its end."""
    memory, previous, path = step.init(), None, []
    for _ in range(rounds):
        proposal = np.zeros(2) if previous is None else plane(previous.ravel())
        previous, memory = step.update(proposal.reshape(shape), previous, memory)
        path.append(previous.ravel())
    return np.array(path), memory


@pytest.mark.parametrize("shape", [(1, 2), (2, 1)], ids=["one row", "one column"])
def test_a_map_of_the_plane_is_solved_in_four_rounds(shape):
    """Round 2 knows one residual, (1, 3), and takes the proposal (1, 3).

    Round 3: the proposal is (1.5, 3.75), f = (0.5, 0.75), Δf = (-0.5, -2.25), Δg = (0.5, 0.75), so
    γ = f·Δf / Δf·Δf = -1.9375 / 5.3125 = -31/85 and v = (1.5 + 15.5/85, 3.75 + 23.25/85) =
    (143/85, 342/85). Round 4: two differences span the plane, the residual cancels, v = (2, 4).
    """
    path, _ = accelerated(anderson(regularization=0), 4, shape)
    np.testing.assert_allclose(path, [[0, 0], [1, 3], [143 / 85, 342 / 85], [2, 4]], atol=1e-12)


def test_the_penalty_makes_steps_shorter():
    """One difference and ρ = 1/2: γ = -31/85 / (1 + 1/2) = -62/255."""
    path, _ = accelerated(anderson(regularization=0.5), 3)
    np.testing.assert_allclose(path[2], [1.5 + 31 / 255, 3.75 + 46.5 / 255])


def test_as_many_differences_are_kept_as_the_window_is_long():
    for window in (1, 2, 5):
        _, memory = accelerated(anderson(window), 20)
        assert memory["residuals"].shape == memory["proposals"].shape == (window + 1, 2)


def test_a_short_window_still_arrives():
    path, _ = accelerated(anderson(1), 15)
    np.testing.assert_allclose(path[-1], [2, 4], rtol=1e-6)


@pytest.mark.parametrize(("length", "forgets"), [(0.48, False), (0.5, True)])
def test_a_promise_that_is_not_kept_is_the_end_of_the_history(length, forgets):
    """Round 3 promises f - Δf γ = (27/85, -6/85), of length 0.3254; one and a half of it is 0.488."""
    step = anderson()
    path, memory = accelerated(step, 3)
    assert memory["promised"] == pytest.approx(np.hypot(27, 6) / 85)
    proposal = path[2:] + np.array([[length, 0]])
    moved, memory = step.update(proposal, path[2:], memory)
    assert (len(memory["residuals"]) == 1) == forgets
    assert (moved == proposal).all() == forgets


def test_nothing_to_learn_from_two_equal_residuals():
    """G(v) = v + 1 has no fixed point and no differences of residuals: plain steps, no NaN."""
    step = anderson()
    memory, previous = step.init(), None
    for t in range(6):
        proposal = np.zeros((1, 1)) if previous is None else previous + 1
        previous, memory = step.update(proposal, previous, memory)
        assert previous == t


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"window": 0}, "window is 0"),
        ({"window": 2.5}, "window is 2.5"),
        ({"regularization": -1e-9}, "regularization is -1e-09"),
        ({"regularization": float("nan")}, "regularization is nan"),
        ({"growth": 0.9}, "growth is 0.9"),
    ],
)
def test_anderson_takes_what_makes_sense(options, what):
    with pytest.raises(InvalidInput, match=what):
        anderson(**options)


# --- every step ---------------------------------------------------------------------------------------


def run(name: str, rounds: int = 6, through_bytes: bool = False):
    """Some rounds of a random affine map; optionally every state is written down and read again."""
    rng = np.random.default_rng(0)
    M, b = 0.3 * rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    step = CONSENSUS[name]()
    state, path = RoundState(round=0, memory=step.init()), []
    for t in range(1, rounds + 1):
        if through_bytes:
            (state,) = decode(encode([state]))
        proposal = b if state.consensus is None else M @ state.consensus + b
        values, memory = step.update(proposal, state.consensus, state.memory)
        state = RoundState(round=t, consensus=values, memory=memory)
        path.append(values)
    return path


@pytest.mark.parametrize("name", CONSENSUS)
def test_the_first_consensus_is_the_first_proposal(name):
    proposal = np.array([[0.25, 0.75]], np.float32)
    step = CONSENSUS[name]()
    assert step.update(proposal, None, step.init())[0] is proposal


@pytest.mark.parametrize("name", CONSENSUS)
def test_a_state_survives_being_written_down(name):
    straight, resumed = run(name), run(name, through_bytes=True)
    assert [v.tobytes() for v in straight] == [v.tobytes() for v in resumed]
    assert {v.shape for v in straight} == {(4, 3)}


@pytest.mark.parametrize("name", CONSENSUS)
def test_what_was_given_stays_as_it_was(name):
    """A step is pure: asked twice it says the same, and it changes nothing that it was given."""
    step, rng = CONSENSUS[name](), np.random.default_rng(0)
    memory, previous = step.init(), None
    for _ in range(4):
        proposal = rng.normal(size=(3, 2))
        given = RoundState(round=1, consensus=previous, memory={**memory, "proposal": proposal})
        before = encode([given])
        first = step.update(proposal, previous, memory)
        np.testing.assert_array_equal(first[0], step.update(proposal, previous, memory)[0])
        assert encode([given]) == before
        previous, memory = first


@pytest.mark.parametrize("name", CONSENSUS)
def test_a_fixed_point_stays(name):
    step, there = CONSENSUS[name](), np.array([[1.0, -2.0]])
    memory, previous = step.init(), None
    for _ in range(4):
        previous, memory = step.update(there, previous, memory)
        np.testing.assert_array_equal(previous, there)


@pytest.mark.parametrize(("options", "what"), [({"step": 0}, "step is 0"), ({"step": 1.1}, "step")])
def test_a_step_lies_in_zero_to_one(options, what):
    with pytest.raises(InvalidInput, match=what):
        damped(**options)


def test_an_exponent_lies_in_zero_to_one():
    with pytest.raises(InvalidInput, match="exponent is -1"):
        damped(exponent=-1)

"""Consensus steps: how a proposal becomes the next consensus, as two pure functions, ``init`` and ``update``.

It composes with any aggregator: the rule proposes a teacher, the step decides where to go from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.core.validation.printing import prints_no_rows

Memory = Mapping[str, Any]
"""Plain numbers and arrays, so that a round's state can be written down and resumed."""


@prints_no_rows
@dataclass(frozen=True)
class ConsensusUpdate:
    """A step of the consensus.

    Attributes:
        name: as reports show it.
        init: the memory before the first proposal.
        update: ``(proposal, previous, memory) -> (consensus, memory)``. Arrays have shape
            ``(n_public, n_outputs)``; ``previous`` is the consensus of the round before as it really was,
            after whatever the protocol made of the step, and ``None`` in the first round.
    """

    name: str
    init: Callable[[], Memory]
    update: Callable[[Array, Array | None, Memory], tuple[Array, Memory]]


def replace() -> ConsensusUpdate:
    """Replace the consensus by the newest proposal: a step, and not :func:`dataclasses.replace`."""
    return ConsensusUpdate("replace", dict, lambda proposal, previous, memory: (proposal, memory))


def damped(step: float | None = None, *, exponent: float = 0.501) -> ConsensusUpdate:
    """``y_t = (1 - g_t) y_{t-1} + g_t proposal`` with ``g_1 = 1``.

    Robbins–Monro damping, Park et al. 2023, Algorithm 3: the steps ``g_t = t**-exponent`` average out
    the noise of partial participation.

    Args:
        step: a constant ``g_t`` in (0, 1] for t ≥ 2; ``None`` for the schedule.
        exponent: q in [0, 1] of the schedule; the paper takes 0.501.
    """
    check_number("step", step, above=0, at_most=1, optional=True, where="damped")
    check_number("exponent", exponent, at_least=0, at_most=1, where="damped")

    def update(proposal: Array, previous: Array | None, memory: Memory) -> tuple[Array, Memory]:
        t = int(memory["t"]) + 1
        if previous is None:
            return proposal, {"t": t}
        g = t**-exponent if step is None else step
        return (1 - g) * previous + g * proposal, {"t": t}

    return ConsensusUpdate("damped", lambda: {"t": 0}, update)


def anderson(
    window: int = 12, regularization: float = 1e-10, growth: float = 1.5
) -> ConsensusUpdate:
    """Use Anderson acceleration of the fixed-point iteration over rounds.

    A round maps a consensus v to a proposal G(v), and the iteration looks for v = G(v). With
    ``g_t = G(v_{t-1})``, the residual ``f_t = g_t - v_{t-1}`` and the differences Δ of consecutive rounds,
    at most ``window`` of each,

        γ = argmin ‖f_t − ΔF γ‖² + ρ Σ_i ‖Δf_i‖² γ_i²,      v_t = g_t − ΔG γ:

    the affine combination of past proposals whose residuals cancel best. In the first round v_1 = g_1.

    G is affine for kernel ridge regression and all other linear smoothers. A window no shorter than the
    dimension d then finds the fixed point exactly in d + 2 rounds. A short window comes close after tens of
    rounds; the plain iteration needs hundreds. Clients need no change.

    Safeguard: the combination predicts a residual of length ``‖f_t − ΔF γ‖``. If the next residual is more
    than ``growth`` times as long, the history does not describe G: it is deleted, and the step is the plain
    ``v_t = g_t``. For nonlinear models, G is affine only near its fixed point. If training is random, or
    if other parties take part in every round, residuals contain noise that no combination can cancel. The
    safeguard then acts so often that most steps are plain ones, with little loss and little gain. Use
    :func:`damped` against such noise.

    Args:
        window: number of differences to keep, at least 1; the memory holds about twice as many arrays.
        regularization: ρ ≥ 0, relative to each difference's own squared length. Larger values make
            shorter, safer steps; 0 leaves only what rounding allows.
        growth: longest accepted residual, as a multiple of the predicted one; at least 1.

    Returns:
        The consensus step.

    Raises:
        InvalidInput: an argument is out of its range.

    Source:
        Anderson 1965; Walker & Ni 2011, "Anderson acceleration for fixed-point iterations" (there with a
        QR factorisation in place of ρ).
    """
    check_number("window", window, at_least=1, whole=True, where="anderson")
    check_number("regularization", regularization, at_least=0, below=1, where="anderson")
    if not growth >= 1:  # infinity switches the safeguard off
        raise InvalidInput(f"growth is {growth}", where="anderson", mend="Give 1 or more.")

    def update(proposal: Array, previous: Array | None, memory: Memory) -> tuple[Array, Memory]:
        if previous is None:
            return proposal, memory
        flat = np.ravel(proposal).astype(np.float64)
        residual = flat - np.ravel(previous)
        length = float(np.linalg.norm(residual))
        if length > growth * memory.get("promised", length):
            memory = {}
        proposals = _appended(memory.get("proposals"), flat, window + 1)
        residuals = _appended(memory.get("residuals"), residual, window + 1)
        differences = np.diff(residuals, axis=0)
        shares = _cancelling(differences, residual, regularization)
        promised = float(np.linalg.norm(residual - shares @ differences))
        consensus = (flat - shares @ np.diff(proposals, axis=0)).reshape(proposal.shape)
        return consensus, {"proposals": proposals, "residuals": residuals, "promised": promised}

    return ConsensusUpdate("anderson", dict, update)


def _appended(rows: Array | None, row: Array, most: int) -> Array:
    """The last ``most`` rows, with one more at the end."""
    return row[None] if rows is None else np.concatenate([rows, row[None]])[-most:]


def _cancelling(differences: Array, residual: Array, regularization: float) -> Array:
    """Compute γ of :func:`anderson`, shape ``(len(differences),)``.

    The least-squares problem uses columns of length 1, with the rows of the penalty appended. Differences
    shrink by orders of magnitude as the iteration converges, and normal equations would square this range.
    """
    lengths = np.linalg.norm(differences, axis=1)
    lengths[lengths == 0] = 1  # twice the same residual says nothing, and gets no share
    penalty = np.sqrt(regularization) * np.eye(len(differences))
    system = np.concatenate([(differences / lengths[:, None]).T, penalty])
    wanted = np.concatenate([residual, np.zeros(len(differences))])
    solution, *_ = np.linalg.lstsq(system, wanted)
    return np.asarray(solution / lengths)

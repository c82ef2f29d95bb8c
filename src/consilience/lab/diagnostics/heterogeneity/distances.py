"""Distances of each party's distribution from the mixture of all: total variation and Wasserstein-1.

Shen et al. 2022, equations 7, 12, 16, 18 and 19. With N parties, and α_i the distribution of party i,

    α    = (1/N) Σ_i α_i                                  the mixture
    ω_TV = (1/N) Σ_i TV(α, α_i),   TV(α, β) = sup_A |α(A) − β(A)| = ½ Σ_x |α(x) − β(x)|
    ω_W1 = (1/N) Σ_i W1(α, α_i),   W1(α, β) = min over couplings of E‖x − y‖

The functions for several parties take the parties' counts or values and return one distance a party; ω is
their mean. The paper gives every party the same weight, whatever its size; ``by_rows=True`` weights a
party, in the mixture and in the mean, by its share of all rows, which makes the mixture the pooled rows.

α_i is the empirical distribution of the party's rows. Distances of samples are never 0, even if all were
drawn from one distribution; the distances expected by chance are computed in
:mod:`consilience.lab.diagnostics.heterogeneity.comparison`.

:func:`line` replaces ``scipy.stats.wasserstein_distance``, which would repeat the sort for every party,
direction and random deal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import gammaln
from scipy.stats import wasserstein_distance_nd

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number

DIRECTIONS = 100
"""Directions of a sliced distance, unless told otherwise."""


def party_weights(sizes: Array, *, by_rows: bool = False) -> Array:
    """Weight of each party in the mixture and in ω, shape ``(N,)``: 1/N, or its share of all rows.

    Args:
        sizes: rows of each party, shape ``(N,)``.
        by_rows: weight parties by their rows.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    return sizes / sizes.sum() if by_rows else np.full(len(sizes), 1 / len(sizes))


def total_variation(p: Array, q: Array) -> float:
    """Compute the total variation distance of two distributions on the same outcomes, ½ Σ |p − q|.

    Args:
        p: probabilities, shape ``(n_outcomes,)``.
        q: probabilities of the other, shape ``(n_outcomes,)``.

    Returns:
        The distance, in [0, 1].

    Raises:
        InvalidInput: other lengths, negative or no numbers, a sum other than 1.

    Source:
        Shen et al. 2022, equation 18.

    >>> total_variation(np.array([0.3, 0.7]), np.array([0.8, 0.2]))
    0.5
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if p.ndim != 1 or p.shape != q.shape:
        raise InvalidInput(
            f"distributions of shapes {p.shape} and {q.shape}",
            where="total variation",
            mend="Give the probabilities of the same outcomes, in the same order.",
        )
    for one in (p, q):
        if not ((one >= 0).all() and abs(one.sum() - 1) < 1e-6):
            raise InvalidInput(
                "these are no probabilities: they are not all 0 or more with sum 1",
                where="total variation",
                mend="Divide counts by their sum.",
            )
    return float(0.5 * np.abs(p - q).sum())


def total_variation_to_mixture(counts: Array, *, by_rows: bool = False) -> Array:
    """Total variation distance between each party and the mixture, from counts alone.

    Args:
        counts: rows of each party with each outcome (class, cell, distinct row), shape ``(N, n_outcomes)``.
        by_rows: weight parties by their rows.

    Returns:
        TV(α, α_i), shape ``(N,)``, each in [0, 1 − w_i] with the party's weight w_i.

    Raises:
        InvalidInput: fewer than two parties, a party without rows, invalid counts.

    >>> total_variation_to_mixture(np.array([[5, 0], [0, 3]]))
    array([0.5, 0.5])
    """
    counts = checked_counts(counts)
    shares, sizes = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=1)
    mixture = party_weights(sizes, by_rows=by_rows) @ shares
    return np.asarray(0.5 * np.abs(shares - mixture).sum(axis=1))


def checked_counts(counts: Array) -> Array:
    """A table of counts as int64, shape ``(N, n_outcomes)``.

    Raises:
        InvalidInput: fewer than two parties, a party without rows, invalid counts.
    """
    counts = np.asarray(counts)
    if counts.ndim != 2 or counts.shape[1] == 0:
        raise InvalidInput(
            f"they have shape {counts.shape}, not (parties, outcomes)", where="counts"
        )
    if counts.dtype.kind not in "iuf" or not (
        np.isfinite(counts).all() and (counts >= 0).all() and (counts == np.rint(counts)).all()
    ):
        raise InvalidInput("they must be whole numbers, 0 or more", where="counts")
    check_sizes(counts.sum(axis=1))
    return counts.astype(np.int64)


def check_sizes(sizes: Array) -> None:
    """Raise ``InvalidInput`` unless there are two parties or more, and all have rows."""
    if len(sizes) < 2:
        raise InvalidInput(
            f"there {'is one party' if len(sizes) else 'are no parties'}; nothing to compare",
            mend="Give two or more.",
        )
    for i in np.flatnonzero(np.asarray(sizes) == 0):
        raise InvalidInput(
            f"party {i} (counted from 0) has no rows", mend="Leave it out, or give it rows."
        )


def wasserstein_on_a_line(parties: Sequence[Array], *, by_rows: bool = False) -> Array:
    """Exact Wasserstein-1 distance between each party and the mixture, in one dimension.

    W1(α, α_i) = ∫ |F_i(x) − F(x)| dx with the distribution functions F_i and F. Takes O(n log n) for all
    parties together.

    Args:
        parties: one array of values each, shape ``(n_i,)``.
        by_rows: weight parties by their rows.

    Returns:
        shape ``(N,)``, in the unit of the values.

    Raises:
        InvalidInput: fewer than two parties, a party without rows, values not finite.

    >>> wasserstein_on_a_line([np.array([0.0]), np.array([2.0, 4.0])])
    array([1.5, 1.5])
    """
    parts = [np.asarray(part, dtype=np.float64) for part in parties]
    check_sizes(np.array([len(part) for part in parts]))
    for i, part in enumerate(parts):
        if part.ndim != 1 or not np.isfinite(part).all():
            raise InvalidInput(f"party {i} (counted from 0) has values that are not finite numbers")
    owners, weights = owners_of([len(part) for part in parts], by_rows=by_rows)
    return line(np.concatenate(parts), weights)(owners)


def owners_of(sizes: Sequence[int], *, by_rows: bool) -> tuple[Array, Array]:
    """Return the party of each stacked row, shape ``(n,)``, and the parties' weights, shape ``(N,)``.

    Args:
        sizes: rows of each party.
        by_rows: weight parties by their rows.
    """
    # 16 bits where they do: sorting them takes numpy a few passes and no comparisons.
    kind = np.uint16 if len(sizes) <= 2**16 else np.int64
    owners = np.repeat(np.arange(len(sizes), dtype=kind), sizes)
    return owners, party_weights(np.asarray(sizes), by_rows=by_rows)


def line(values: Array, weights: Array) -> Callable[[Array], Array]:
    """Prepare distances on a line, for any assignment of values to parties.

    The values are sorted once, for any number of assignments. Between two consecutive values of one party,
    at ranks a and b, its F_i is a constant c, and the mixture's F, which rises, passes c at one rank m. So
    ∫_a^b |c − F| = c (x_m − x_a) − (S_m − S_a) + (S_b − S_m) − c (x_b − x_m), with S the integral of F.

    Args:
        values: of all parties, shape ``(n,)``.
        weights: of the parties, shape ``(N,)``.

    Returns:
        a function of the owners, shape ``(n,)``, that returns distances, shape ``(N,)``.
    """
    order = np.argsort(values, kind="stable")
    x = values[order] - values[order[0]]
    gaps = np.diff(x)

    def distances(owners: Array) -> Array:
        owner = owners[order]
        sizes = np.bincount(owner, minlength=len(weights))
        mixture = np.cumsum((weights / sizes)[owner])
        area = np.concatenate([[0.0], np.cumsum(mixture[:-1] * gaps)])
        a = np.argsort(owner, kind="stable")  # ranks, party by party
        first = np.cumsum(sizes) - sizes
        b = np.append(a[1:], 0)
        b[first + sizes - 1] = len(x) - 1  # after its last value F_i is 1 up to the end
        own = owner[a]
        level = (np.arange(len(a)) - first[own] + 1) / sizes[own]
        m = np.clip(np.searchsorted(mixture, level), a, b)
        pieces = level * (2 * x[m] - x[a] - x[b]) - (2 * area[m] - area[a] - area[b])
        total = np.bincount(own, pieces, len(weights)) + area[a[first]]
        return np.asarray(np.maximum(total, 0.0))

    return distances


def wasserstein_of_atoms(counts: Array, atoms: Array, *, by_rows: bool = False) -> Array:
    """Exact Wasserstein-1 distance between each party and the mixture, on a few distinct rows.

    A linear programme a party, of (rows with too much)·(rows with too little) variables: mass common to both
    distributions at a point stays there, since the cost is a metric.

    Args:
        counts: rows of each party at each atom, shape ``(N, n_atoms)``.
        atoms: positions of the atoms, shape ``(n_atoms, d)``.
        by_rows: weight parties by their rows.

    Returns:
        shape ``(N,)``, in the unit of the atoms.

    Raises:
        InvalidInput: no counts, or other shapes.
        RunFailed: a programme cannot be solved.

    >>> square = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> wasserstein_of_atoms(np.array([[7, 0], [0, 9]]), square)
    array([2.5, 2.5])
    """
    counts, atoms = checked_counts(counts), np.asarray(atoms, dtype=np.float64)
    if atoms.ndim != 2 or len(atoms) != counts.shape[1] or not np.isfinite(atoms).all():
        raise InvalidInput(
            f"atoms of shape {atoms.shape} for counts of shape {counts.shape}",
            mend="Give one row of finite numbers for each column of counts.",
        )
    shares = counts / counts.sum(axis=1, keepdims=True)
    mixture = party_weights(counts.sum(axis=1), by_rows=by_rows) @ shares
    return np.array([_transport_cost(own - mixture, atoms) for own in shares])


def _transport_cost(surplus: Array, atoms: Array) -> float:
    """The least cost of moving mass from atoms with too much to atoms with too little."""
    give, take = surplus > 1e-15, surplus < -1e-15
    if not (give.any() and take.any()):
        return 0.0
    mass = surplus[give].sum()
    try:
        cost = wasserstein_distance_nd(atoms[give], atoms[take], surplus[give], -surplus[take])
    except RuntimeError as error:
        raise RunFailed(f"an optimal transport cannot be solved ({error})") from error
    return float(mass * cost)


def unit_directions(dimensions: int, directions: int, seed: int) -> Array:
    """Directions drawn evenly over the unit sphere, shape ``(dimensions, directions)``.

    Args:
        dimensions: d ≥ 1.
        directions: number of draws, two or more: a standard error needs two.
        seed: of the draw.

    Raises:
        InvalidInput: fewer than two directions.
    """
    check_number(
        "directions", directions, at_least=2, whole=True, mend="Take 2 or more; 100 is usual."
    )
    drawn = stream(seed, "coordinator", 0, "directions").standard_normal((dimensions, directions))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=0))


def shortening(dimensions: int) -> float:
    """E|⟨θ, e⟩| for a unit vector e and θ even on the sphere: Γ(d/2) / (√π Γ((d+1)/2)).

    >>> round(shortening(2), 6) == round(2 / np.pi, 6)
    True
    """
    half = dimensions / 2
    return float(np.exp(gammaln(half) - gammaln(half + 0.5)) / np.sqrt(np.pi))


def along_directions(projected: Array, owners: Iterator[Array], weights: Array) -> Array:
    """Distances on a line along each of several directions, for each of several assignments.

    Args:
        projected: rows along the directions, shape ``(n, L)``.
        owners: assignments of rows to parties, each of shape ``(n,)``.
        weights: of the parties, shape ``(N,)``.

    Returns:
        shape ``(assignments, L, N)``.
    """
    lines = [line(np.ascontiguousarray(column), weights) for column in projected.T]
    return np.array([[distances(owner) for distances in lines] for owner in owners])


def sliced_wasserstein(
    parties: Sequence[Array], *, directions: int = DIRECTIONS, seed: int = 0, by_rows: bool = False
) -> tuple[Array, Array]:
    """Sliced Wasserstein-1 distance between each party and the mixture, and its standard error.

    The mean over random directions θ of the exact distance of the rows' projections on θ, divided by E|⟨θ,
    e⟩| (:func:`shortening`). That makes it the Wasserstein-1 distance itself where one distribution is the
    other one shifted, and never more than it, apart from the error of finitely many directions.

    Args:
        parties: one array of rows each, shape ``(n_i, d)``.
        directions: number of random directions.
        seed: of the directions.
        by_rows: weight parties by their rows.

    Returns:
        distances and their standard errors over directions, each of shape ``(N,)``, in the unit of the rows.

    Raises:
        InvalidInput: fewer than two parties or directions, a party without rows, other widths, values that
            are not finite numbers.

    Source:
        Bonneel, Rabin, Peyré & Pfister 2015, "Sliced and Radon Wasserstein barycenters of measures", for W2;
        here W1.
    """
    parts = [np.asarray(part, dtype=np.float64) for part in parties]
    check_sizes(np.array([len(part) for part in parts]))
    for i, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1:] != parts[0].shape[1:] or not np.isfinite(part).all():
            raise InvalidInput(
                f"party {i} (counted from 0) has rows of shape {part.shape}, or values that are not finite",
                mend="Give every party finite numbers with the same columns.",
            )
    dimensions = parts[0].shape[1]
    axes = unit_directions(dimensions, directions, seed)
    owners, weights = owners_of([len(part) for part in parts], by_rows=by_rows)
    projected = np.concatenate(parts) @ axes
    (found,) = along_directions(projected, iter([owners]), weights) / shortening(dimensions)
    return found.mean(axis=0), standard_errors(found)


def standard_errors(found: Array) -> Array:
    """Compute the standard error of means over the first axis: shape ``(L, …)`` to ``(…)``."""
    return np.asarray(found.std(axis=0, ddof=1) / np.sqrt(len(found)))

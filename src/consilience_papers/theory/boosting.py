"""Distance of federated functional gradient boosting from the minimiser (Shen et al. 2022), in numbers.

N clients with input distributions α_i, α their mean, each with a convex risk R_i, look for

    f* = argmin  F[f] = 1/N Σ_i ( R_i[f] + μ/2 ‖f‖²_{α_i} )

in T rounds of K steps η^{k,t} with weak learners of strength γ. Here are two kinds of statements on
e_T = ‖f^T − f*‖²_α:

- :func:`homogeneous_rate`, :func:`general_rate`, :func:`lipschitz_rate` are the theorems as printed: sums of
  terms under an O(·), whose constants the paper does not give. They say how e_T goes with T, K, γ and ω, not
  how large it is.
- :func:`error_bound`, :func:`lipschitz_error_bound` hold with their constants, for any step sizes. They
  follow the paper's proofs but for four steps, and then go through the rounds one by one:

  1. By convexity, 2/N Σ ⟨f* − g_i, ∇F_i[g_i]⟩ ≤ −μ ‖ḡ − f*‖² + 2/N Σ ‖∇F_i[ḡ]‖ ‖g_i − ḡ‖.
  2. g_i − f^t and g_i − ḡ are bounded by the steps that were made, with Cauchy–Schwarz in place of Young's
     inequality, which costs the paper a factor K.
  3. Residuals Δ telescope within a round, by summation by parts, and ‖f* − g_i‖ ≤ √e_t + ‖g_i − f^t‖ stays
     as it is. So a round gives e_{t+1} ≤ a e_t + b + c √e_t, where the paper splits c √e_t by Young again.
  4. Where a step is longer than 1/μ, as the first of a run are, sizes grow, and the growth is counted.

With homogeneous inputs and the theorems' steps they give

    e_T = O( G²/(μγ)² / T  +  (1−γ)²G²/(μγ)² / K² ),

so that K ≥ √T is enough for 1/T. The paper has K log(KT)/T + 1/K, and from it 1/√T (Corollary 4.1).

What in the paper does not hold as printed
    - The radius of Theorem 4.1 has μ² in the denominator (appendix D mends the main text).
    - In Theorem 4.2 it says ω_TV = 1; by eq. 12 two clients at two points have ω_TV = ½, N clients 1 − 1/N.
    - ``η^κ ≤ 2 η^k`` for κ ≤ k within a round holds from t = 1 on; in round 0 the ratio goes up to (K+1)/2.
    - Lemmas D.1, F.3 need steps of at most 1/μ; 4/(μ(tK+k+1)) starts with 2/μ.
    - In eqs. 34 and 42 the steps g^{k+1} − g^k are those of ĥ = h + μg, not of h alone.
    - Algorithm 3, line 4 is h := −Q(Δ − u); line 7 returns g^{K+1}.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, isqrt, log

import numpy as np
from numpy.typing import ArrayLike

from consilience_papers.theory.expansion import Array, positive


def boosting_steps(
    rounds: int, local_steps: int, ridge: float, *, homogeneous: bool = False
) -> Array:
    """The theorems' steps, ``η^{k,t} = c / (μ (tK + k + 1))`` for t = 0 … T−1 and k = 1 … K.

    Args:
        rounds: T ≥ 1.
        local_steps: K ≥ 1.
        ridge: μ > 0.
        homogeneous: c = 2 as in Theorem 4.3, in place of the 4 of Theorems 4.1 and 4.4.

    Returns:
        Shape ``(T, K)``.

    Example:
        >>> boosting_steps(2, 2, 1.0, homogeneous=True).round(3).tolist()
        [[1.0, 0.667], [0.5, 0.4]]
    """
    _whole(rounds, "rounds")
    _whole(local_steps, "local_steps")
    positive(ridge, "ridge")
    made = np.arange(2, rounds * local_steps + 2).reshape(rounds, local_steps)
    return np.asarray((2 if homogeneous else 4) / (ridge * made))


def best_local_steps(rounds: int) -> int:
    """K = ⌈√T⌉, the least of Corollary 4.1's K = Ω(√T).

    In the printed rate it balances K/T and 1/K. In :func:`error_bound`, with 1/T and 1/K², more local steps
    than these no longer help.

    Example:
        >>> best_local_steps(100), best_local_steps(101)
        (10, 11)
    """
    _whole(rounds, "rounds")
    root = isqrt(rounds)
    return root + (root * root < rounds)


@dataclass(frozen=True)
class Rate:
    """The terms under the O(·) of a theorem on ‖f^T − f*‖²_α.

    Attributes:
        start: what is left of the first distance, ``‖f⁰ − f*‖² / KT``.
        drift: clients that go their own ways for K steps, ``K (…) log(KT) / T``.
        oracle: residuals that the end of a round discards, ``1/K``; 0 for exact weak learners.
        steps: residuals times steps, ``log(KT) / KT``.
        radius: what no number of rounds and steps takes away; proportional to ω.
        sampling: of m clients out of N a round, ``log T / (m T)``.
    """

    start: float
    drift: float
    oracle: float
    steps: float = 0.0
    radius: float = 0.0
    sampling: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def homogeneous_rate(
    rounds: int,
    local_steps: int,
    *,
    gradient: float,
    ridge: float,
    gamma: float,
    distance: float,
    clients: int = 1,
    sampled: int | None = None,
) -> Rate:
    """Theorems 4.3 and G.1: α_i = α, weak learners in the L² sense (eq. 5), steps 2/(μ(tK+k+1)).

    ``O( ‖f⁰−f*‖²/KT + KG² log(KT)/(Tγ²μ²) + (1−γ)G²/(Kμ²γ²) + (1−γ)G² log(KT)/(KTμγ²) )``, without its
    constant. The proof has (1−γ)² in the third term.

    Args:
        rounds: T.
        local_steps: K.
        gradient: G, a bound on ‖∇R_i[f]‖_α for every f (Assumption 4.2); for cross-entropy √2.
        ridge: μ.
        gamma: γ in (0, 1].
        distance: ‖f⁰ − f*‖_α.
        clients: N.
        sampled: m, the clients in a round; all by default.

    Source:
        Shen et al. 2022, Theorems 4.3, G.1.
    """
    _check(gradient=gradient, ridge=ridge, gamma=gamma, distance=distance)
    made = _whole(rounds, "rounds") * _whole(local_steps, "local_steps")
    scale = (gradient / (ridge * gamma)) ** 2
    return Rate(
        start=distance**2 / made,
        drift=local_steps * scale * log(made) / rounds,
        oracle=(1 - gamma) * scale / local_steps,
        steps=(1 - gamma) * scale * ridge * log(made) / made,
        sampling=_sampling(rounds, scale, clients, sampled),
    )


def general_rate(
    rounds: int,
    local_steps: int,
    *,
    gradient: float,
    ridge: float,
    gamma: float,
    distance: float,
    omega: float,
    clients: int = 1,
    sampled: int | None = None,
) -> Rate:
    """Theorems 4.1 (as appendix D restates it) and G.2: any α_i, weak learners in the L∞ sense (eqs. 10, 11).

    ``O( ‖f⁰−f*‖²/KT + KG² log(KT)/(Tμ²γ²) + (1−γ)²G²/(Kμ²γ²) + G²ω_TV/(μ²γ²) )``, without its constant, for
    steps 4/(μ(tK+k+1)).

    Args:
        rounds: T.
        local_steps: K.
        gradient: G, a bound on ``‖∇R_i[f](x)‖`` at every x of client i (Assumption 4.1); √2 for
            cross-entropy.
        ridge: μ.
        gamma: γ in (0, 1].
        distance: ‖f⁰ − f*‖_α.
        omega: ω_TV = 1/N Σ TV(α, α_i), in [0, 1).
        clients: N.
        sampled: m, the clients in a round; all by default.

    Source:
        Shen et al. 2022, Theorems D.1, G.2.
    """
    _check(gradient=gradient, ridge=ridge, gamma=gamma, distance=distance, omega=omega)
    made = _whole(rounds, "rounds") * _whole(local_steps, "local_steps")
    scale = (gradient / (ridge * gamma)) ** 2
    return Rate(
        start=distance**2 / made,
        drift=local_steps * scale * log(made) / rounds,
        oracle=(1 - gamma) ** 2 * scale / local_steps,
        radius=scale * _total_variation(omega),
        sampling=_sampling(rounds, scale, clients, sampled),
    )


def lipschitz_rate(
    rounds: int,
    local_steps: int,
    *,
    lipschitz: float,
    labels: float,
    apart: float,
    gamma: float,
    distance: float,
    omega: float,
    squared_transport: float,
    clients: int = 1,
    sampled: int | None = None,
) -> Rate:
    """Theorems 4.4 and G.3: squared loss, labels of an L-Lipschitz f*, weak learners of eqs. 14 and 15.

    ``O( ‖f⁰−f*‖²/KT + K (L(LD+B)ω + G²) log(KT)/(Tγ²) + (1−γ)²B²/(Kγ²) + L(LD+B)ω/γ² )``, without its
    constant, ω = ω_W1 and G² = 2L² · ``squared_transport`` + 2B². The strong convexity μ is that of the loss
    ½(y′ − y)², hence 1, and steps are 4/(tK+k+1).

    Args:
        rounds: T.
        local_steps: K.
        lipschitz: L, of f*.
        labels: B, the largest |y|.
        apart: D, the farthest that an input of one client lies from the nearest of another (Assumption 4.3).
        gamma: γ in (0, 1].
        distance: ‖f⁰ − f*‖_α.
        omega: ω_W1 = 1/N Σ W_1(α, α_i), in the inputs' units.
        squared_transport: 1/N² Σ_{i,s} W_2²(α_s, α_i).
        clients: N.
        sampled: m, the clients in a round; all by default.

    Source:
        Shen et al. 2022, Theorems F.1, G.3.
    """
    _check(lipschitz=lipschitz, labels=labels, gamma=gamma, distance=distance)
    _check(apart=apart, omega=omega, squared_transport=squared_transport)
    made = _whole(rounds, "rounds") * _whole(local_steps, "local_steps")
    radius = lipschitz * (lipschitz * apart + labels) * omega / gamma**2
    scale = (2 * lipschitz**2 * squared_transport + 2 * labels**2) / gamma**2
    return Rate(
        start=distance**2 / made,
        drift=local_steps * (radius + scale) * log(made) / rounds,
        oracle=((1 - gamma) * labels / gamma) ** 2 / local_steps,
        radius=radius,
        sampling=_sampling(rounds, scale, clients, sampled),
    )


def error_bound(
    steps: ArrayLike,
    *,
    gradient: float,
    ridge: float,
    gamma: float,
    distance: float,
    size: float = 0.0,
    omega: float = 0.0,
) -> Array:
    """A bound on ‖f^t − f*‖²_α after every round, constants included, for Algorithm 2 with all clients.

    With ω = 0 it is for homogeneous inputs and asks what Theorem 4.3 does (Assumption 4.2, eq. 5); with
    ω > 0, what Theorem 4.1 does (Assumption 4.1, eqs. 10 and 11 with 2G/γ). It holds for every schedule of
    steps, and may be far above the error: sizes are added up where functions may well cancel.

    Args:
        steps: η^{k,t}, shape ``(T, K)``, above 0.
        gradient: G, a bound on the functional gradients of all R_i, in L²(α) if ω = 0, else at every input.
        ridge: μ.
        gamma: γ in (0, 1].
        distance: ‖f⁰ − f*‖_α.
        size: ‖f⁰‖, in the same norm as G; on all of supp(α).
        omega: ω_TV.

    Returns:
        Shape ``(T + 1,)``, its first entry ``distance**2``.

    Raises:
        ValueError: values out of range.

    Source:
        Shen et al. 2022, appendices D and E, as the head of this module says.
    """
    eta = _steps(steps)
    _check(gradient=gradient, ridge=ridge, gamma=gamma, distance=distance, size=size, omega=omega)
    _total_variation(omega)
    weak, residual = 2 * gradient / gamma, (1 - gamma) / gamma * gradient  # ‖h‖ (25), ‖Δ‖ (24, 39)
    found = [distance**2]
    for row in eta:
        sizes = _sizes(row * ridge, size, weak / ridge)
        size, g = sizes[-1], sizes[:-1]
        move = weak + ridge * g  # ‖h + μg‖
        away = _made(row * move)  # ‖g_i − f‖
        found.append(
            _after_a_round(
                found[-1],
                row,
                strength=ridge,
                own_move=move,
                mean_move=move,
                slope=gradient + ridge * g,  # ‖∇F_i[ḡ]‖
                away=away,
                # With one norm for all, the mean is the point of least mean square: E‖g − Eg‖² ≤ E‖g − f‖².
                spread=away if omega == 0 else 2 * away,
                residual=residual,
                # |⟨u, v⟩_α − ⟨u, v⟩_{α_i}| ≤ 2 ‖u‖ ‖v‖ TV, u = ḡ − f* with ‖f*‖ ≤ G/μ (31).
                gap=4 * (g + gradient / ridge) * move * omega,
            )
        )
    return np.array(found)


def lipschitz_error_bound(
    steps: ArrayLike,
    *,
    lipschitz: float,
    labels: float,
    apart: float,
    gamma: float,
    distance: float,
    omega: float,
) -> Array:
    """A bound on ‖f^t − f*‖²_α after every round, constants included, for Algorithm 3 with all clients.

    It asks what Theorem 4.4 does, and of f⁰ that ‖f⁰‖_lip ≤ L/γ and |f⁰| ≤ B/γ at every client's inputs.

    Args:
        steps: η^{k,t}, shape ``(T, K)``, above 0.
        lipschitz: L.
        labels: B.
        apart: D.
        gamma: γ in (0, 1].
        distance: ‖f⁰ − f*‖_α.
        omega: ω_W1.

    Returns:
        Shape ``(T + 1,)``, its first entry ``distance**2``.

    Raises:
        ValueError: values out of range.

    Source:
        Shen et al. 2022, appendix F, as the head of this module says.
    """
    eta = _steps(steps)
    _check(lipschitz=lipschitz, labels=labels, apart=apart, gamma=gamma)
    _check(distance=distance, omega=omega)
    everywhere = lipschitz * apart + labels  # Lemma F.4
    found, size = [distance**2], 1.0
    for row in eta:
        # g is this many times as large, and as steep, as h may be: B/γ, L/γ (Lemma F.3).
        sizes = _sizes(row, size, 1.0)
        size, g = sizes[-1], sizes[:-1]
        own, mean = (g + 1) * labels / gamma, (g + 1) * everywhere / gamma  # ‖g − h‖ on α_i, on α
        own_away, mean_away = _made(row * own), _made(row * mean)
        # Lemma F.1 with u = ḡ − f* and v = g_i − h_i.
        steepness = (g / gamma + 1) * lipschitz * mean
        steepness += (g + 1) * lipschitz / gamma * (g * everywhere / gamma + labels)
        found.append(
            _after_a_round(
                found[-1],
                row,
                strength=1.0,
                own_move=own,
                mean_move=mean,
                slope=g * everywhere / gamma + labels,  # ‖ḡ − u_i‖ on α_i
                away=own_away,
                spread=own_away + mean_away,
                residual=(1 - gamma) / gamma * labels,  # Lemma F.2
                gap=2 * steepness * omega,
            )
        )
    return np.array(found)


def decay_exponent(errors: ArrayLike, *, since: int = 1, logarithms: int = 0) -> float:
    """p of ``e_t ≈ C tᵖ (log t)^q`` by least squares on logarithmic axes, q given.

    Rounds are taken in steps of a constant factor, so that all scales from ``since`` on count alike. For
    errors of several repetitions, with a confidence interval, see :func:`slope`.

    Args:
        errors: e_t after t = 0, 1, … rounds, shape ``(T + 1,)``, above 0 from ``since`` on.
        since: the first round that counts, 1 or later; 2 or later with logarithms.
        logarithms: q, for rates such as ``log T / T``.

    Raises:
        ValueError: fewer than 3 rounds, or errors that are not above 0.

    Example:
        >>> errors = [9.0] + [5 / t for t in range(1, 1000)]
        >>> print(f"{decay_exponent(errors, since=10):.3f}")
        -1.000
    """
    e = np.asarray(errors, dtype=np.float64)
    _whole(since, "since")
    if e.ndim != 1 or len(e) - since < 3:
        raise ValueError(f"errors have shape {e.shape}; give 3 rounds or more from {since} on")
    if logarithms and since < 2:
        raise ValueError("since is 1, where log t is 0; start at 2 or later")
    t = np.unique(np.geomspace(since, len(e) - 1, 64).round().astype(int))
    if not (np.isfinite(e[t]) & (e[t] > 0)).all():
        raise ValueError("errors must be finite and above 0")
    logs = np.log(e[t]) - (logarithms * np.log(np.log(t)) if logarithms else 0)
    return float(np.polyfit(np.log(t), logs, 1)[0])


def _after_a_round(
    error: float,
    eta: Array,
    *,
    strength: float,
    own_move: Array,
    mean_move: Array,
    slope: Array,
    away: Array,
    spread: Array,
    residual: float,
    gap: Array,
) -> float:
    """e_{t+1} from e_t; everything else has one entry a step, but for the size of a residual."""
    left = np.maximum(0.0, 1 - strength * eta)
    after = np.append(np.cumprod(left[:0:-1])[::-1], 1.0)  # what later steps leave of each
    added = eta * mean_move**2 + 2 * (own_move + slope) * spread + gap
    weight = eta * after
    far = np.sqrt(error) + away  # ‖f* − g_i‖
    # Σ_k w_k ⟨f* − g^k, Δ^{k−1} − Δ^k⟩, by parts.
    kept = weight[-1] * far[-1]
    kept += (weight[1:] * (eta * own_move)[:-1] + np.abs(np.diff(weight)) * far[:-1]).sum()
    return float(left.prod() * error + weight @ added + 2 * residual * kept)


def _sizes(steps: Array, first: float, towards: float) -> Array:
    """‖g^k‖ for k = 1 … K+1, where ``g ← (1 − s) g + s h`` and ‖h‖ ≤ ``towards``."""
    sizes = [first]
    for s in steps:
        sizes.append(abs(1 - s) * sizes[-1] + s * towards)
    return np.array(sizes)


def _made(moves: Array) -> Array:
    """Sum of the steps before each."""
    return np.append(0.0, np.cumsum(moves)[:-1])


def _sampling(rounds: int, scale: float, clients: int, sampled: int | None) -> float:
    if sampled is None or sampled == clients:
        return 0.0
    if not 1 <= sampled < clients:
        raise ValueError(f"sampled is {sampled}; it must lie between 1 and the {clients} clients")
    return (clients - sampled) / (clients - 1) * scale * log(rounds) / (rounds * sampled)


def _steps(steps: ArrayLike) -> Array:
    eta = np.asarray(steps, dtype=np.float64)
    if eta.ndim != 2 or not eta.size or not (np.isfinite(eta) & (eta > 0)).all():
        raise ValueError(f"steps have shape {eta.shape}; give (T, K) finite numbers above 0")
    return eta


def _whole(value: int, name: str) -> int:
    if value != ceil(value) or value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number of at least 1")
    return int(value)


def _total_variation(omega: float) -> float:
    if not omega < 1:
        raise ValueError(f"omega is {omega}; a mean total variation lies in [0, 1)")
    return omega


def _check(**values: float) -> None:
    """γ in (0, 1]; distances and heterogeneities may be 0; all else is above 0."""
    for name, value in values.items():
        if name == "gamma":
            if not 0 < value <= 1:
                raise ValueError(f"gamma is {value}; it must lie in (0, 1]")
        elif name in ("distance", "size", "omega", "apart", "squared_transport"):
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be finite and not below 0")
        else:
            positive(value, name)

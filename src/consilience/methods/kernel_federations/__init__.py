"""Exact simulation of a federation of kernel ridge regressions in closed form.

Park, Hong & Hwang 2023 analyse clients with a common kernel k, a regularisation λ and N_p public rows X_p.
All computations can be written in the eigenbasis of K_pp = Q diag(μ) Qᵀ, which does not depend on the
clients, the round or λ. With c = λ N_p / (1 − α), P_j = K_{X_j p} Q and targets ŵ = Qᵀ w, client j needs one
small system:

    G_j = K_{X_j X_j} + (λ N_j / α) I − P_j diag(1 / (μ + c)) P_jᵀ = L_j L_jᵀ          (N_j × N_j)
    T_j = L_j⁻¹ P_j diag(1 / (μ + c)),   z_j = L_j⁻¹ y_j,   s_j = z_j − T_j ŵ
    coefficients on its own rows       a_j = L_j⁻ᵀ s_j
    coefficients on the public rows    Q u_j,   u_j = ŵ / (μ + c) − T_jᵀ s_j
    predictions of the public rows     Q ( μ ŵ / (μ + c) + c T_jᵀ s_j )

(block elimination of (K_ZZ + λ D⁻¹) β = [y; w]). A whole round with all clients is one affine map

    v̂ ↦ A d v̂ + b,   A = diag(μ / (μ + c)) − c Σ_j p_j T_jᵀ T_j,   b = c Σ_j p_j T_jᵀ z_j,
    d = 1 + N_p λ₀ / (μ + ε)                                           (de-regularisation, equation 7)

whose fixed point, the consensus after infinitely many rounds, requires one solve. Memory is O(N_p² + N_p Σ
N_j). Above a limit, the clients are processed in blocks, which reduces memory to O(N_p² + m N_p), the last
term for the m models. If N_p is too large for this, a Nyström approximation can replace the public rows' part
of the kernel; the same formulas hold with its eigenpairs.
"""

from consilience.methods.kernel_federations.federation import Iteration, KernelFederation
from consilience.methods.kernel_federations.gathered import Points
from consilience.methods.kernel_federations.models import Models

__all__ = ["Iteration", "KernelFederation", "Models", "Points"]

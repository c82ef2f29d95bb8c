"""Kernel ridge regression: by hand, against brute force, in a party, on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge as TheirKernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from consilience import Party
from consilience.core.aggregation import mean
from consilience.core.checks import check_learner, check_protocol, regressors
from consilience.core.errors import InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.learners import as_learner
from consilience.core.messages.schema import Public
from consilience.core.party.trainer import Teaching
from consilience.core.protocols import ensemble_distillation
from consilience.core.tasks.lifecycle import Describe
from consilience.models import KernelRidge
from consilience.models.kernel_ridge import GRID

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(30, 2))
Y = np.sin(5 * X) + 0.1 * RNG.normal(size=X.shape)  # two targets
WEIGHTS = RNG.uniform(0.1, 2, size=30)
NEW = RNG.uniform(size=(9, 2))
HELD = (RNG.uniform(size=(12, 2)), RNG.normal(size=(12, 2)))


def smooth(X: Any, Z: Any) -> Any:
    """A user's own kernel, in a module that can be imported."""
    return 1 + np.exp(-2 * np.square(X[:, None] - Z).sum(axis=2))


def hat(K: Any, weights: Any, regularization: float) -> Any:
    """The matrix that takes targets to fitted values, as the definition has it."""
    return K @ np.linalg.inv(K + regularization * np.diag(weights.sum() / weights))


def grid_of(K: Any, weights: Any) -> Any:
    """The λ that are chosen from."""
    root = np.sqrt(weights / weights.sum())
    return GRID * np.linalg.eigvalsh(K * root * root[:, None])[-1]


def best_on(held: Any, kernel: Any, X: Any, y: Any, weights: Any) -> float:
    """The λ with the least error on held-out rows, by one fit for each; not at the end of the grid."""
    grid = grid_of(kernel(X, X), weights)
    errors = []
    for one in grid:
        model = KernelRidge(one, kernel=kernel).fit(X, y, weights)
        errors.append(np.square(model.predict(held[0]) - held[1]).mean())
    assert 0 < np.argmin(errors) < len(grid) - 1
    return float(grid[np.argmin(errors)])


def expected_to_fail(model: KernelRidge) -> dict[str, str]:
    if model.regularization != "gcv":
        return {}
    why = (
        "weights (2, …, 2) are no weights where only ratios matter, and every row twice where they "
        "are repetitions; the cross-validation of n and of 2 n rows has another minimum"
    )
    return {"check_sample_weight_equivalence_on_dense_data": why}


@parametrize_with_checks(
    [KernelRidge(), KernelRidge("gcv")], expected_failed_checks=expected_to_fail
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_three_points_by_hand() -> None:
    """k = 1 + min at x = 0, 1, 2 with weights (1, 1, 2)/4 and λ = 1/2: λ W⁻¹ = diag(2, 2, 1), so

        K + λ W⁻¹ = [[3, 1, 1], [1, 4, 2], [1, 2, 4]],  y = (0, 8, 16),  a = (−3/2, 1/4, 17/4):

    3(−3/2) + 1/4 + 17/4 = 0,  −3/2 + 4/4 + 34/4 = 8,  −3/2 + 2/4 + 68/4 = 16. Values are
    y − λ W⁻¹ a = (3, 15/2, 47/4), and 5.25 = −3/2 + (3/2)(1/4 + 17/4) at x = 1/2. Twice the targets
    give twice the values."""
    model = KernelRidge(0.5, kernel="brownian")
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 8.0, 16.0])
    model.fit(x, y, sample_weight=[3, 3, 6])
    np.testing.assert_allclose(model.dual_coef_, [-1.5, 0.25, 4.25], rtol=1e-14)
    np.testing.assert_allclose(model.predict([[0], [1], [2], [0.5]]), [3, 7.5, 11.75, 5.25])
    assert model.regularization_ == 0.5 and model.n_features_in_ == 1
    both = model.fit(x, np.stack([y, 2 * y], axis=1), sample_weight=[1, 1, 2])
    np.testing.assert_allclose(both.predict([[0.5]]), [[5.25, 10.5]])


def test_equal_weights_are_scikit_learns_with_n_times_lambda() -> None:
    ours = KernelRidge(0.01, kernel="laplacian", gamma=2.0).fit(X, Y)
    theirs = TheirKernelRidge(alpha=0.3, kernel="laplacian", gamma=2.0).fit(X, Y)
    np.testing.assert_allclose(ours.predict(NEW), theirs.predict(NEW), rtol=1e-10)


@pytest.mark.parametrize("regularization", [1e-3, "gcv", "calibration"])
def test_weight_zero_is_a_row_left_out(regularization: Any) -> None:
    weights = np.where(np.arange(30) % 3 == 0, 0, WEIGHTS)
    kept = weights > 0
    model = KernelRidge(regularization)
    with_zeros = model.fit(X, Y, 7 * weights, validation=HELD).predict(NEW)
    without = model.fit(X[kept], Y[kept], weights[kept], validation=HELD).predict(NEW)
    np.testing.assert_allclose(with_zeros, without, rtol=1e-8)
    assert len(model.X_fit_) == kept.sum()


@pytest.mark.parametrize("kernel", ["linear", smooth])
def test_generalised_cross_validation_by_brute_force(kernel: Any) -> None:
    """The same score with explicit hat matrices H, for which H̃ = W^{1/2} H W^{-1/2}."""
    model = KernelRidge("gcv", kernel=kernel).fit(X, Y, WEIGHTS)
    K = smooth(X, X) if kernel is smooth else X @ X.T
    root = np.sqrt(WEIGHTS)
    grid = grid_of(K, WEIGHTS)
    scores = []
    for one in grid:
        left = (np.eye(30) - hat(K, WEIGHTS, one)) * root[:, None] / root
        scores.append(30 * np.square(left @ (root[:, None] * Y)).sum() / np.trace(left) ** 2)
    best = int(np.argmin(scores))
    assert 0 < best < len(grid) - 1
    np.testing.assert_allclose(model.regularization_, grid[best], rtol=1e-10)
    fixed = KernelRidge(model.regularization_, kernel=kernel).fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(model.predict(NEW), fixed.predict(NEW), rtol=1e-9)


def test_calibration_by_brute_force() -> None:
    held = (HELD[0], np.sin(5 * HELD[0]))
    model = KernelRidge("calibration", kernel=smooth).fit(X, Y, WEIGHTS, validation=held)
    best = best_on(held, smooth, X, Y, WEIGHTS)
    np.testing.assert_allclose(model.regularization_, best, rtol=1e-10)
    fixed = KernelRidge(best, kernel=smooth).fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(model.predict(NEW), fixed.predict(NEW), rtol=1e-9)


def test_nothing_to_learn_from_takes_the_largest() -> None:
    """All errors are equal; a matrix of zeros has no scale of its own."""
    model = KernelRidge("gcv", kernel="linear").fit(np.zeros((4, 1)), np.arange(4.0))
    assert model.regularization_ == 10 and not model.predict([[3.0]]).any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"regularization": 0}, "regularization is 0\n  It is a number above 0, or one of gcv"),
        ({"regularization": -1.0}, "regularization is -1.0"),
        ({"regularization": np.inf}, "regularization is inf"),
        ({"regularization": np.nan}, "regularization is nan"),
        ({"regularization": "cv"}, "regularization is 'cv'"),
        ({"regularization": None}, "regularization is None"),
        ({"kernel": "rbff"}, "Did you mean 'rbf'"),
        ({"gamma": -1}, "gamma is -1"),
    ],
)
def test_parameters_are_refused_before_any_training(given: Any, said: str) -> None:
    model = KernelRidge(**given)
    for use in (lambda: model.fit(X, Y), lambda: as_learner(model)):
        with pytest.raises(InvalidInput, match=said):
            use()


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        (KernelRidge("calibration"), {}, "no validation rows"),
        (KernelRidge("calibration"), {"validation": (X[:, :1], Y)}, "1 features"),
        (KernelRidge("calibration"), {"validation": (X, Y[:, :1])}, r"\(2,\), a validation target"),
        (KernelRidge("calibration"), {"validation": (X, Y * np.nan)}, "NaN"),
        (KernelRidge(), {"sample_weight": WEIGHTS[:-1]}, r"shape \(29,\), expected \(30,\)"),
        (KernelRidge(), {"sample_weight": -WEIGHTS}, "non-negative"),
        (KernelRidge(), {"sample_weight": 0 * WEIGHTS}, "not all zero"),
        (KernelRidge(), {"sample_weight": WEIGHTS * np.nan}, "finite"),
        (KernelRidge(), {"y": Y * np.nan}, "NaN"),
        (KernelRidge(kernel="additive_chi2"), {}, "additive_chi2: it is not positive semi-def"),
        (KernelRidge(kernel="wendland"), {"X": np.zeros((30, 4))}, "4 columns"),
        (KernelRidge(kernel=lambda X, Z: X), {}, r"it gives shape \(30, 2\)"),
        (KernelRidge(1e-25, kernel="linear"), {}, "not positive definite\n  Take a regularization"),
    ],
)
def test_what_cannot_be_fitted(model: Any, more: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model.fit(**{"X": X, "y": Y, **more})


def test_a_singular_system_says_how_much_regularization_it_takes() -> None:
    """Twice the same row, weights 1/2: the matrix is [[1, 1], [1, 1]]/2 + λ I. Its smallest eigenvalue is
    λ, and 2 ε times its diagonal of 1/2 is rounding: 2e-16; the message asks for twice that."""
    twins, y = np.ones((2, 1)), np.array([0.0, 2.0])
    with pytest.raises(InvalidInput, match="at least 4e-16"):
        KernelRidge(5e-17, kernel="linear").fit(twins, y)
    model = KernelRidge(1e-12, kernel="linear").fit(twins, y)
    np.testing.assert_allclose(model.predict([[1.0]]), [1], rtol=1e-3)


def test_an_indefinite_kernel_between_the_rows_looked_at() -> None:
    """Rows 1, 3, 5, … of 399 are not picked for the check; the factorisation finds the fault."""

    def kernel(X: Any, Z: Any) -> Any:
        return (X == Z.T) * np.where(X == 1, -1.0, 1.0)

    with pytest.raises(InvalidInput, match="this one is not positive semi-definite"):
        KernelRidge(kernel=kernel).fit(np.arange(399.0)[:, None], np.ones(399))


def test_rows_from_a_kernel_that_keeps_its_matrix_are_not_written_to() -> None:
    kept = smooth(X, X)
    before = kept.copy()
    for regularization in (1e-3, "gcv"):
        KernelRidge(regularization, kernel=lambda X, Z: kept).fit(X, Y)
    np.testing.assert_array_equal(kept, before)


def joined(model: Any, X: Any, y: Any, public: Any, **more: Any) -> Party:
    party = Party("a", model, X, y, **more)
    party.hold_public(Public(public))
    party.join(negotiate([Describe().run(party)], party.public))
    return party


@pytest.mark.parametrize("alpha", [0.2, 0.5, 30 / 39])
def test_a_party_distils_by_the_closed_form(alpha: float) -> None:
    """f = k_Z(·) (K_ZZ + λ D⁻¹)⁻¹ [y; ỹ] with D = diag(α/N …, (1 − α)/N_p …); at α = N/(N + N_p) all
    rows weigh the same."""
    party = joined(KernelRidge(1e-2, kernel=smooth), X, Y, NEW, calibration=0)
    teacher = np.cos(NEW)
    party.trainer.fit_private(1)
    K = smooth(X, X)
    alone = smooth(NEW, X) @ np.linalg.solve(K + 30 * 1e-2 * np.eye(30), Y)
    np.testing.assert_allclose(party.trainer.outputs("values"), alone, rtol=0, atol=1e-12)
    party.trainer.distill(Teaching(1, teacher, alpha))
    Z = np.concatenate([X, NEW])
    D = np.diag(np.repeat([alpha / 30, (1 - alpha) / 9], [30, 9]))
    system = smooth(Z, Z) + 1e-2 * np.linalg.inv(D)
    closed = smooth(NEW, Z) @ np.linalg.solve(system, np.concatenate([Y, teacher]))
    np.testing.assert_allclose(party.trainer.outputs("values"), closed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_party_chooses_anew_at_every_fit_by_rows_it_never_trains_on(scaled: bool) -> None:
    """λ is the best for the calibration rows whatever the teacher says; a pipeline scales those too."""
    own = KernelRidge("calibration", kernel=smooth)
    party = joined(
        make_pipeline(StandardScaler(), own) if scaled else own, X, Y, NEW, calibration=0.3
    )
    held, values = party.trainer.rows.held_out
    chosen = []
    for teacher in (None, np.sin(5 * NEW), 0.3 * RNG.normal(size=NEW.shape)):
        if teacher is None:
            party.trainer.fit_private(1)
            weights, targets = np.ones(21), party.trainer.rows.train[1]
        else:
            party.trainer.distill(Teaching(1, teacher, 0.5))
            weights = np.repeat([1 / 21, 1 / 9], [21, 9])
            targets = np.concatenate([party.trainer.rows.train[1], teacher])
        fitted: Any = party.trainer.learner._models[0]  # type: ignore[attr-defined]
        before, last = (fitted[0].transform, fitted[1]) if scaled else (np.asarray, fitted)
        best = best_on((before(held), values), smooth, last.X_fit_, targets, weights)
        np.testing.assert_allclose(last.regularization_, best, rtol=1e-10)
        chosen.append(best)
    assert len(set(chosen)) == 3


def test_a_party_without_calibration_rows_says_so() -> None:
    with pytest.raises(InvalidInput, match="calibration share above 0"):
        joined(KernelRidge("calibration"), X, Y, NEW, calibration=0)


def test_a_regressor_of_one_output_gets_one_column_of_validation_targets() -> None:
    class Column:
        def fit(self, X: Any, y: Any, validation: Any = None) -> None:
            self.seen = validation
            assert y.shape == (30,)

        def predict(self, X: Any) -> Any:
            return np.full(len(X), self.seen[1][0])

    learner = as_learner(Column(), kind="regression")
    learner.fit(X, Y, rng=RNG, validation=HELD)
    np.testing.assert_array_equal(learner.predict(NEW[:1]), HELD[1][:1])


@pytest.mark.parametrize(
    "kernel", ["rbf", smooth, Matern(nu=1.5)], ids=["rbf", "function", "Matern"]
)
@pytest.mark.parametrize("regularization", [1e-3, "gcv"])
def test_it_keeps_the_contract_of_learners(kernel: Any, regularization: Any) -> None:
    """With it: saved and loaded it is the same bit for bit, for names, functions and kernel objects."""
    check_learner(lambda: KernelRidge(regularization, kernel=kernel))


def test_a_kernel_that_no_other_process_finds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be saved"):
        as_learner(KernelRidge(kernel=lambda X, Z: X @ Z.T)).check_saving()


def test_it_keeps_the_contract_of_protocols() -> None:
    """Seeds, wire, resume, order: as for any other party, also with a λ that is chosen every time."""

    def cohort() -> Any:
        made, public = regressors()
        choices = [1e-3, "gcv", "calibration", "calibration"]
        parties = [
            Party(one.name, KernelRidge(choice), one.rows.X, one.rows.y, test=one.rows.test)
            for one, choice in zip(made, choices, strict=True)
        ]
        return parties, public

    check_protocol(ensemble_distillation(aggregate=mean(), rounds=2), parties=cohort)

"""Class sums: one unit moves them by one length at most, whatever it is and whatever the basis."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from consilience import Federation, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.numerics.outcomes import Classes
from consilience.core.party.shared_space import shared_space
from consilience.core.tasks.lifecycle import Describe
from consilience.core.tasks.outgoing import answer
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import gaussian_mu
from consilience.privacy.accounting.party import protect
from consilience.privacy.accounting.privacy_of import declare_units, privacy_of
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.party import sums_of
from consilience.privacy.class_sums.protocol import _teacher, private_sums
from consilience.privacy.class_sums.sums import (
    NO_BOUNDS,
    SCALE,
    TREES,
    PublicBasis,
    at_the_ends,
    class_ratios,
    class_sums,
    coefficients,
    fitted_values,
    on_the_grid,
    taught_by,
)
from consilience.privacy.class_sums.tasks import (
    SumClasses,
    features_by,
    public_basis,
    usual_features,
)
from helpers.stub_models import Share

RNG = np.random.default_rng(0)
PUBLIC = Public(RNG.normal(size=(60, 3)))
X, Y = RNG.normal(size=(30, 3)), np.array(["a", "b", "c"] * 10)
CLASSES = ("a", "b", "c")


def joined(X=X, y=Y, units=None, **more) -> Party:
    party = Party("p", Share(), X, y, **more, outcome=Classes(CLASSES))
    declare_units(party, units)
    party.hold_public(PUBLIC)
    party.join(negotiate([Describe().run(party)], PUBLIC))
    return party


def bases() -> dict[str, PublicBasis]:
    """Two that a coordinator makes, and one that is made to do harm."""
    honest = {kind: public_basis(PUBLIC, kind, 3) for kind in ("directions", "kernel", "leaves")}
    huge = RNG.normal(size=(3, 60)).astype(np.float32) * np.float32(1e17)
    hostile = replace(honest["directions"], matrix=huge, landmarks=np.arange(60))
    return {**honest, "huge entries": hostile}


def valued(y=None) -> Party:
    """A party of two targets, which has joined."""
    y = RNG.normal(size=(30, 2)) if y is None else y
    party = Party("p", LinearRegression(), X, y)
    party.hold_public(PUBLIC)
    party.join(negotiate([Describe().run(party)], PUBLIC))
    return party


TEXTS = Public(np.array(["red sea", "blue sea", "red sky"]))
BOUNDS = np.array([[-1.0, 1.0], [0.0, 5.0]])


def adversarial(count: int) -> list[tuple[np.ndarray, str]]:
    """Rows near and far, zeros, huge ones, gaps, and copies of landmarks, of every class."""
    scales = [0.0, 1e-30, 1.0, 1e3, 1e30]
    rows = [RNG.normal(size=3) * scales[i % 5] for i in range(count)]
    rows[::7] = [PUBLIC.X[i % 60] for i in range(len(rows[::7]))]
    rows[::11] = [np.array([1.0, np.nan, np.inf])] * len(rows[::11])
    return [(row, CLASSES[i % 3]) for i, row in enumerate(rows)]


@pytest.mark.parametrize("which", ["directions", "kernel", "leaves", "huge entries"])
def test_one_row_moves_the_sums_by_one_length_at_most(which: str) -> None:
    basis, party = bases()[which], joined()
    before = sums_of(party, basis)
    for row, label in adversarial(100 if which == "leaves" else 1000):
        party.rows.X, party.rows.y = np.vstack([X, row]), np.append(Y, label)
        moved = (sums_of(party, basis) - before).astype(object)
        assert (moved**2).sum() <= SCALE**2


def test_one_unit_moves_the_sums_by_one_length_however_many_rows_it_has() -> None:
    """Without it the others' sums are the same, to the last step."""
    units = np.array([i % 4 for i in range(30)])
    basis = bases()["directions"]
    whole = sums_of(joined(units=units), basis)
    for unit in range(4):
        rest = units != unit
        without = sums_of(joined(X[rest], Y[rest], units[rest]), basis)
        moved = (whole - without).astype(object)
        assert 0 < (moved**2).sum() <= SCALE**2


def test_one_value_moves_the_sums_by_one_length_at_most() -> None:
    basis, party = bases()["directions"], valued()
    before, values = sums_of(party, basis, BOUNDS), party.rows.y
    for i, (row, _) in enumerate(adversarial(60)):
        value = RNG.normal(size=2) * [0.0, 1.0, 1e30][i % 3]
        party.rows.X, party.rows.y = np.vstack([X, row]), np.vstack([values, value])
        moved = (sums_of(party, basis, BOUNDS) - before).astype(object)
        assert (moved**2).sum() <= SCALE**2


def test_a_value_is_a_share_of_a_row_at_either_end() -> None:
    found = at_the_ends(np.array([[0.0, 5.0], [9.0, 1.0]]), BOUNDS) * np.sqrt(2)
    np.testing.assert_allclose(found, [[0.5, 0, 0.5, 1], [0, 0.8, 1, 0.2]])


def test_without_noise_values_are_a_ridge_regression_about_their_mean() -> None:
    basis, y = bases()["directions"], RNG.uniform(-1, 1, size=(30, 1))
    party, bounds = valued(y=np.hstack([y, 0 * y])), np.array([[-1.0, 1.0], [0.0, 5.0]])
    sums = sums_of(party, basis, bounds) / SCALE
    public, rows = features_by(basis, PUBLIC), features_by(basis, PUBLIC, X)
    system = public.T @ public + 0.5 * 60 / 30 * np.eye(4)
    weights = np.linalg.solve(system, rows.T @ (y - y.mean())) * 60 / 30
    found = fitted_values(sums, public, 0.0, 0.5, bounds, public)
    np.testing.assert_allclose(found[:, 0], y.mean() + (public @ weights)[:, 0], atol=1e-3)
    np.testing.assert_allclose(found[:, 1], 0, atol=1e-3)


def test_noise_of_a_known_width_is_taken_off() -> None:
    """One feature, sums of 3 and noise of 1: a signal of 3² - 1 and noise of 1 share them 8 to 1."""
    one = np.ones((1, 1))
    fitted = partial(coefficients, 3 * one, one, rows=1e9, ridge=1.0)
    assert fitted(sigma=0.0)[0, 0] == pytest.approx(3, rel=1e-6)
    assert fitted(sigma=1.0)[0, 0] == pytest.approx(3 * 8 / 9, rel=0.02)
    assert fitted(sigma=4.0)[0, 0] == pytest.approx(0, abs=1e-6)


def test_leaves_are_shared_by_rows_that_no_split_parts() -> None:
    """Half of the trees part rows at 0 in the first column, the other half nowhere."""
    trees = np.zeros(TREES, dtype=np.float32)
    trees[: TREES[0] // 2, 0, 1] = 99.0
    trees[:, 1:, 1] = 99.0
    basis = PublicBasis("leaves", np.arange(2), np.eye(2, dtype=np.float32), 1.0, trees)
    rows = np.array([[-1.0, 5.0], [1.0, 5.0]])
    np.testing.assert_allclose(basis.kernels(rows, rows), [[1.0, 0.5], [0.5, 1.0]])
    odd = replace(basis, trees=trees + 3)
    with pytest.raises(KnowledgeRefused, match="columns that there are not"):
        sums_of(joined(), replace(odd, landmarks=np.arange(2)))


def test_features_are_chosen_by_the_public_rows() -> None:
    far = Public(np.exp(3 * RNG.normal(size=(200, 3))))
    assert usual_features(far) == "leaves" == public_basis(far).kind
    assert (usual_features(PUBLIC), usual_features(TEXTS)) == ("kernel", "directions")
    assert [
        len(public_basis(one).matrix) for one in (PUBLIC, Public(RNG.normal(size=(60, 15))))
    ] == [10, 15]
    with pytest.raises(InvalidInput, match="public rows are texts"):
        public_basis(TEXTS, "leaves")


def test_features_are_nearly_as_wide_as_one_another_and_most_rows_as_long_as_they_may_be() -> None:
    """Directions have the power ¾ of the kernel's variances, the mean's aside."""
    basis, rows = bases()["kernel"], shared_space(PUBLIC, 0).of_sums.public
    near = basis.kernels(rows, rows)
    wide = ((near @ basis.matrix.T.astype(float)) ** 2).sum(axis=0)
    variances = np.linalg.eigvalsh(near)[::-1]
    np.testing.assert_allclose(wide / wide[0], (variances[1:4] / variances[1]) ** 0.75, rtol=1e-4)
    lengths = np.linalg.norm(features_by(basis, PUBLIC), axis=1)
    assert np.isclose(lengths, 1).mean() > 0.95


def test_sums_of_texts_are_of_single_words() -> None:
    """Of words that two texts have: "red" and "sea", and of two alike their pair is left aside."""
    assert shared_space(TEXTS, 0).of_sums.public.shape == (3, 2)
    assert shared_space(Public(np.array(["red sea", "red sea"])), 0).public_words.shape == (2, 3)


def test_truncation_never_makes_a_row_longer() -> None:
    rows = RNG.normal(size=(500, 7))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = on_the_grid(np.vstack([rows, np.eye(7)]))
    assert (found * found).sum(axis=1).max() <= SCALE**2
    assert found[-1].tolist() == [0] * 6 + [SCALE - 1]
    assert class_sums(rows, np.zeros(500, dtype=int), 2)[1].tolist() == [0] * 7


def test_noise_is_as_wide_as_the_budget_says_and_comes_from_nobody() -> None:
    for adjacency, sensitivity in (("add-remove", 1), ("replace", 2)):
        party = joined()
        budget = Budget(3.0, 1e-3, adjacency=adjacency)
        protect(party, budget)
        task = SumClasses.of(public_basis(PUBLIC, "directions", 3), round=1)
        exact = sums_of(party, task.basis)
        (said,) = answer(party, [task])
        said.validate(party="p", task=task, agreement=party.agreement)
        assert said.sigma == pytest.approx(SCALE * sensitivity / gaussian_mu(3.0, 1e-3))
        assert (said.epsilon, said.adjacency, said.unit) == (3.0, adjacency, "row")
        assert 0.2 < np.std(said.values - exact) / said.sigma < 3
        assert privacy_of(party).accountant.spent.epsilon(1e-3) == pytest.approx(3.0)
    wide = joined()
    protect(wide, budget, noise=lambda: np.random.default_rng(7))
    noise = np.random.default_rng(7).normal(scale=said.sigma, size=exact.shape)
    np.testing.assert_array_equal(answer(wide, [task])[0].values, np.rint(exact + noise))


def test_another_seed_round_or_change_of_rows_draws_nothing_anew_and_another_basis_is_refused() -> (
    None
):
    party = joined()
    protect(party, Budget(1.0, 1e-3))
    task = SumClasses.of(public_basis(PUBLIC, "directions", 3), round=1)
    (first,) = answer(party, [task])
    party.join(replace(party.agreement, seed=7))
    party.rows.X = party.rows.X + 1
    (again,) = answer(party, [replace(task, round=5)])
    assert again.round == 5
    np.testing.assert_array_equal(again.values, first.values)
    other = SumClasses.of(public_basis(PUBLIC, "kernel", 3), round=1)
    failure = answer(party, [other])
    assert isinstance(failure, Failure) and failure.code == "budget"
    assert "limits.epsilon" in failure.reason


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"matrix": np.full((3, 60), np.nan, dtype=np.float32)}, "is not finite"),
        ({"matrix": np.full((3, 60), 1e30, dtype=np.float32)}, "beyond 1e"),
        ({"matrix": np.ones((3, 59), dtype=np.float32)}, "does not fit its landmarks"),
        ({"matrix": np.ones((61, 60), dtype=np.float32)}, "this is no basis"),
        ({"kind": "leaves"}, "this is no basis"),
        ({"width": -1.0}, "width is -1"),
        ({"kind": "cubic"}, "kind should be"),
        ({"bounds": np.array([[1.0, 1.0]])}, "not a low and a high number"),
        ({"digest": "0" * 32}, "not the one that its digest names"),
    ],
)
def test_a_basis_that_is_none_is_refused(change, why: str) -> None:
    task = SumClasses.of(bases()["directions"], round=1)
    with pytest.raises((InvalidInput, KnowledgeRefused, TypeError), match=why):
        replace(task, **change)


def test_a_basis_of_rows_that_are_not_there_is_refused() -> None:
    odd = replace(bases()["directions"], landmarks=np.arange(60) + 1)
    with pytest.raises(KnowledgeRefused, match="public rows that there are not"):
        sums_of(joined(), odd)


@pytest.mark.parametrize(
    ("budget", "classes", "units", "why"),
    [
        (Budget(1.0, 1e-3), (), None, "does not declare its classes"),
        (Budget(1.0, 0.01), CLASSES, None, "delta is 0.01 and there are 30 units"),
        (Budget(1.0, unit="patient"), CLASSES, None, "for one patient"),
        (Budget(1.0), CLASSES, np.arange(30), "units of another kind"),
    ],
)
def test_a_budget_that_a_party_cannot_keep_to(budget: Budget, classes, units, why: str) -> None:
    party = Party("p", Share(), X, Y, outcome=Classes(classes))
    declare_units(party, units)
    with pytest.raises(InvalidInput, match=why):
        protect(party, budget)


def test_units_are_declared_before_the_budget() -> None:
    """Else sums would be clipped by other units than the budget promises."""
    party = Party("p", Share(), X, Y, outcome=Classes(CLASSES))
    declare_units(party, np.arange(30) // 3)
    protect(party, Budget(1.0, 1e-3, unit="patient"))
    with pytest.raises(InvalidInput, match="it has a budget"):
        declare_units(party)
    assert privacy_of(party).rows.count(30) == 10


def test_a_budget_that_is_refused_changes_nothing() -> None:
    party = Party("p", Share(), X, Y, outcome=Classes(CLASSES))
    protect(party, Budget(1.0, 1e-3))
    with pytest.raises(InvalidInput, match="for one patient"):
        protect(party, Budget(100.0, 1e-3, unit="patient"))
    assert privacy_of(party).accountant.budget == Budget(1.0, 1e-3)
    with pytest.raises(InvalidInput, match="the budget is 3"):
        protect(party, 3.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="measured"):
        Budget(1.0, measured="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("units", [[None] * 15 + list(range(15)), np.zeros((30, 1)), [np.nan] * 30])
def test_every_row_has_one_unit(units) -> None:
    with pytest.raises(InvalidInput, match="unit"):
        declare_units(Party("p", Share(), X, Y), units)


def test_units_are_paired_with_rows_by_their_index() -> None:
    rows = pd.DataFrame(X, columns=list("uvw"))
    party = Party("p", Share(), rows, Y)
    with pytest.raises(InvalidInput, match="another order"):
        declare_units(party, pd.Series(np.arange(30)).iloc[::-1])


def test_settings_that_bound_nothing_are_refused() -> None:
    for wrong in ({"epsilon": 0.0}, {"epsilon": 1.0, "delta": 1.0}, {"epsilon": 1.0, "each": 2.0}):
        with pytest.raises(InvalidInput, match="Budget"):
            Budget(**wrong)
    with pytest.raises(InvalidInput, match="of one unit"):
        declare_units(Party("p", Share(), X, Y), np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="not declared, 'c'"):
        Party("p", Share(), X, Y, outcome=Classes(("a", "b")))
    with pytest.raises(InvalidInput, match="dimensions of public rows that have 3"):
        public_basis(PUBLIC, "directions", 4)


def test_without_noise_the_sums_make_the_density_ratio() -> None:
    """Of all directions: uLSIF's solution on the public rows, about an even ratio, by linear algebra."""
    basis, party = bases()["directions"], joined()
    sums, features = sums_of(party, basis) / SCALE, features_by(basis, PUBLIC)
    rows = sums[:, -1].sum() / 0.2
    assert rows == pytest.approx(30, rel=1e-4)
    ridge = 0.5 * 60 / rows
    even = rows / 60 / 3
    apart = (sums - even * features.sum(axis=0)).T
    plain = even + features @ np.linalg.inv(features.T @ features + ridge * np.eye(4)) @ apart
    ratios = class_ratios(sums, features, 0.0, 0.5, features)
    np.testing.assert_allclose(ratios, np.maximum(plain, 0), atol=1e-9)
    drowned = class_ratios(sums, features, 1e6, 0.5, features)
    np.testing.assert_allclose(drowned, even, rtol=1e-2)
    values, taught = taught_by(np.array([[3.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(values[0], [3.002 / 4.004, 1.002 / 4.004])
    assert taught.tolist() == [True, False]


def test_a_party_that_claims_more_rows_than_others_is_scaled_down_to_a_cap() -> None:
    """Lengths of 2, 2 and 2000 rows, of which the last counts for 1.5 times 2."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    own, lie = rows * SCALE, rows[::-1] * 1000 * SCALE
    sums = [
        ClassSums(party=name, round=1, values=values.astype(np.int64))
        for name, values in (("a", own), ("b", own), ("c", lie), ("d", 1.5e-3 * lie))
    ]
    capped = _teacher(sums[:3], rows, 0.5, NO_BOUNDS, "median").values
    np.testing.assert_allclose(capped, _teacher([*sums[:2], sums[3]], rows, 0.5, NO_BOUNDS).values)
    assert capped[0, 0] > 0.5 > _teacher(sums[:3], rows, 0.5, NO_BOUNDS).values[0, 0]


def test_a_run_keeps_to_the_budget_and_says_so() -> None:
    """Two exchanges after joining; metrics leave as the budget says that they may."""
    parties = [Party(name, Share(), X, Y, test=(X, Y), outcome=Classes(CLASSES)) for name in "pq"]
    for party in parties:
        protect(party, Budget(3.0, 1e-3, measured=party.name == "p"))
    federation = Federation(parties, public=PUBLIC)
    history = federation.run(private_sums(rounds=1, dimensions=3), progress=False)
    assert set(history.metrics[-1]) == {"p"}
    (note,) = history.rounds[-1].teacher.notes
    assert (
        "learns of one row whether it is there within epsilon = 3, delta = 0.001 at most" in note
        and note.endswith("outside of this guarantee, as p, q say")
    )
    sent = [one for round in history.deliveries for one in round]
    asked = [one.tasks for one in sent if one.party == "p" and "Evaluate" not in one.tasks]
    assert asked[-2:] == ["FitPrivate+SumClasses", "Distill"]


def test_values_run_with_bounds_and_not_without() -> None:
    """On a line: parties that saw one half of it each are taught the other one, at a small cost in noise."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, size=(4000, 1))
    halves = rows[rows[:, 0] < 0], rows[rows[:, 0] >= 0]
    public = Public(rng.uniform(-1, 1, size=(50, 1)))

    def run(bounds):
        parties = [
            Party(name, LinearRegression(), half, 3 * half[:, 0], calibration=0.0)
            for name, half in zip("pq", halves, strict=True)
        ]
        for party in parties:
            protect(party, Budget(3.0, 1e-5))
        federation = Federation(parties, public=public)
        return federation.run(private_sums(rounds=1, bounds=bounds), progress=False)

    teacher = run([-3, 3]).rounds[-1].teacher
    assert ((teacher.values - 3 * public.X) ** 2).mean() < 0.2 * (9 * public.X**2).mean()
    assert "epsilon = 3" in teacher.notes[0]
    for wrong, why in (
        ((), "bounds are of values"),
        ((3, 3), "a low and a high"),
        ((0, 1, 2), "a low"),
    ):
        with pytest.raises(InvalidInput, match=why):
            run(wrong)


def test_a_kept_release_is_sent_with_the_budget_of_today() -> None:
    """A larger ε buys no other noise where each release has its own, and the larger one is what holds."""
    party, said = joined(), []
    task = SumClasses.of(public_basis(PUBLIC, "directions", 3), round=1)
    for epsilon, delta in ((1.0, 1e-3), (4.0, 1e-3)):
        protect(party, Budget(epsilon, delta, each=1.0))
        said += answer(party, [task])
    np.testing.assert_array_equal(said[0].values, said[1].values)
    assert [one.epsilon for one in said] == [1.0, 4.0]


HONEST = {"sigma": 9.0, "epsilon": 1.0, "delta": 1e-3, "adjacency": "replace", "unit": "row"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"values": np.full((3, 4), 10**17)}, "are of no rows"),
        ({"values": np.full((3, 4), np.iinfo(np.int64).min)}, "are of no rows"),
        ({"sigma": 1e12}, "sigma is 1000000000000"),
        ({"sigma": float("nan")}, "sigma is nan"),
        ({"delta": 1.5}, "delta is 1.5"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"adjacency": "all of it"}, "adjacency is 'all of it'"),
        ({"adjacency": ""}, "adjacency is ''"),
        ({"epsilon": 0.0}, "noise without a guarantee"),
        ({"sigma": 0.0, "adjacency": ""}, "one without noise"),
        ({"unit": "row\n"}, "a name that is none"),
    ],
)
def test_what_a_liar_says_is_no_more_than_rows_and_noise_can_be(change, why: str) -> None:
    party = joined()
    task = SumClasses.of(public_basis(PUBLIC, "directions", 3), round=1)
    honest = replace(task.run(party), **HONEST)
    honest.validate(party="p", task=task, agreement=party.agreement)
    with pytest.raises(KnowledgeRefused, match=why):
        replace(honest, **change).validate(party="p", task=task, agreement=party.agreement)

"""How different are my parties: the findings, what chance gives, and what is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.diagnostics.heterogeneity import (
    Heterogeneity,
    compare_labels,
    how_different,
    label_counts,
)
from consilience.lab.diagnostics.heterogeneity.inputs import Inputs

RNG = np.random.default_rng
Pair = tuple[Any, Any]


def alike(parties: int = 4, rows: int = 60, width: int = 5) -> dict[str, Pair]:
    """Parties whose rows come from one distribution."""
    rng = RNG(0)
    return {
        f"p{i}": (rng.normal(size=(rows, width)), rng.integers(0, 3, size=rows))
        for i in range(parties)
    }


def shifted(parties: int = 4, rows: int = 60, width: int = 5) -> dict[str, Pair]:
    """The same, each party's inputs shifted along the first axis, and with a class of its own."""
    return {
        name: (X + 6.0 * i * np.eye(width)[0], np.full(rows, i))
        for i, (name, (X, _)) in enumerate(alike(parties, rows, width).items())
    }


def figures(found: Heterogeneity) -> str:
    return json.dumps(found.as_data(), sort_keys=True)


# --- findings -------------------------------------------------------------------------------------


def test_alike_parties_are_as_far_as_chance() -> None:
    found = how_different(alike(), seed=3)
    assert found.sentence == "labels: as far as chance; inputs: as far as chance"
    for distance in found.distances:
        assert abs(distance.omega - distance.chance_mean) < 3 * distance.chance_sd
        assert distance.omega > 0 and distance.p_value > 0.05


def test_shifted_parties_are_far_apart() -> None:
    """Disjoint labels: 1 − 1/4. Shifts 0, 6, 12, 18 have variance 45, the noise has 5."""
    found = how_different(shifted(), directions=400)
    assert found.sentence == "labels: far apart; inputs: far apart"
    assert found.labels.parties == pytest.approx(0.75)
    w1 = found.inputs_w1
    assert w1 is not None and w1.method == "sliced, 400 directions" and w1.bound
    assert w1.unit == pytest.approx(np.sqrt(45 + 5), rel=0.05)
    # (0 + 6 + 12 + 18)/4 and (6 + 0 + 6 + 12)/4; between others, mass moves both ways and slices cancel some.
    exact = np.array([9, 6, 6, 9]) / w1.unit
    assert w1.parties[[0, 3]] == pytest.approx(exact[[0, 3]], rel=0.1)
    assert (w1.parties[[1, 2]] < exact[[1, 2]]).all() and (w1.parties > 0.7 * exact).all()
    tv = found.inputs_tv
    assert tv is not None and tv.bound and tv.omega == pytest.approx(0.75, abs=0.02)
    assert all(distance.p_value == pytest.approx(1 / 21) for distance in found.distances)


def test_only_labels_differ() -> None:
    parties = {n: (X, np.full(60, i % 2)) for i, (n, (X, _)) in enumerate(alike().items())}
    found = how_different(parties)
    assert found.sentence == "labels: far apart; inputs: as far as chance"
    assert found.labels.parties == pytest.approx(0.5)
    assert found.shares(0) == "0 (100%)" and found.classes == ("0", "1")


def test_chance_by_every_deal() -> None:
    """Two parties of two rows with labels a, a, b, b: of 6 deals 2 have TV ½ at both, the others 0."""
    deals = list(itertools.combinations(range(4), 2))
    exact = np.mean([0.5 * (set(own) in ({0, 1}, {2, 3})) for own in deals])
    counts = {"x": np.array([1, 1]), "y": np.array([1, 1])}
    found = compare_labels(counts, permutations=4000)
    assert found.omega == 0 and found.p_value == 1 and found.words == "as far as chance"
    assert found.chance_mean == pytest.approx(exact, abs=0.02)
    assert set(found.omega_by_chance) == {0.0, 0.5}


def test_false_alarms_are_as_rare_as_said() -> None:
    """Alike parties are called apart once in 21 times: of 300 about 14, with deviation 3.7."""
    rng, alarms = RNG(8), 0
    for seed in range(300):
        table = rng.multinomial(40, [0.5, 0.3, 0.2], size=5)
        alarms += compare_labels({str(i): row for i, row in enumerate(table)}, seed=seed).differs
    assert 3 <= alarms <= 25


def test_random_deals_keep_sizes_and_rows() -> None:
    """Both ways to deal, over counts and over rows, have the same mean: inputs with two values."""
    rng = RNG(1)
    parties = {f"p{n}": (rng.integers(0, 2, size=(n, 1)), np.zeros(n)) for n in (10, 30, 50)}
    found = how_different(parties, permutations=400)
    w1, tv = found.inputs_w1, found.inputs_tv
    assert w1 is not None and tv is not None
    assert (w1.method, tv.method) == ("exact, in one dimension", "exact, 2 distinct rows")
    assert not w1.bound and not tv.bound and w1.standard_error == 0
    # On {0, 1} both distances are |p − q|; W1 is in units of the spread.
    assert w1.parties * w1.unit == pytest.approx(tv.parties)
    assert w1.chance.mean(axis=0) * w1.unit == pytest.approx(tv.chance.mean(axis=0), rel=0.1)
    assert tv.chance[:, 0].mean() > tv.chance[:, 2].mean()  # small parties are farther by chance


def test_values_of_a_regression() -> None:
    """Values 0, 1 against 4, 5: everything moves by 4 to the other, half of it to the mixture."""
    parties = {"a": (np.zeros((2, 1)), [0.0, 1.0]), "b": (np.zeros((2, 1)), np.array([4.0, 5.0]))}
    found = how_different(parties, kind="regression")
    assert found.classes is None and found.labels.of == "values" and found.labels.measure == "W1"
    assert found.labels.unit == pytest.approx(np.std([0, 1, 4, 5]))
    assert found.labels.parties * found.labels.unit == pytest.approx([2, 2])
    assert found.inputs_w1 is not None and found.inputs_w1.omega == 0  # all inputs are equal
    assert found.inputs_w1.words == "as far as chance"


def test_few_distinct_rows_are_exact() -> None:
    """Corners of a 3-4-5 triangle, one a party: costs 3, 4 and 5, thirds of them move."""
    corners = {"a": (0, 0), "b": (3, 0), "c": (0, 4)}
    parties = {n: (np.tile(c, (8, 1)).astype(np.float32), ["x"] * 8) for n, c in corners.items()}
    found = how_different(parties)
    w1, tv = found.inputs_w1, found.inputs_tv
    assert w1 is not None and tv is not None
    assert w1.method == tv.method == "exact, 3 distinct rows"
    assert w1.parties * w1.unit == pytest.approx([7 / 3, 8 / 3, 3])
    assert tv.parties == pytest.approx(2 / 3)
    assert found.labels.omega == 0


def test_cells_are_a_lower_bound() -> None:
    """N(−1, 1) and N(1, 1): TV to the mixture is half of 2Φ(1) − 1 = 0.6827; cells find nearly all."""
    rng = RNG(2)
    parties = {
        s: (rng.normal(m, 1, (20_000, 1)), np.zeros(20_000)) for s, m in (("l", -1), ("r", 1))
    }
    tv = how_different(parties).inputs_tv
    assert tv is not None and tv.method == "lower bound, 16 cells of the column"
    assert 0.32 < tv.omega < 0.6827 / 2 + 0.005


def test_components_are_the_principal_ones() -> None:
    rng = RNG(3)
    turn = np.linalg.qr(rng.normal(size=(30, 30))).Q
    rows = rng.normal(size=(400, 30)) * np.r_[5, 3, np.full(28, 0.5)] @ turn + 7
    held = Inputs.of({"a": rows[:150], "b": rows[150:]})
    found = held._leading(2, seed=0)
    _, _, exact = np.linalg.svd(rows - rows.mean(axis=0))
    assert np.abs(exact[:2] @ found) == pytest.approx(np.eye(2), abs=1e-4)
    counts, components = held.cells(seed=0)
    assert components == 2 and counts.sum(axis=1).tolist() == [150, 250]
    assert counts.shape[1] == 16


# --- what must not matter -------------------------------------------------------------------------


def test_the_order_of_parties_does_not_matter() -> None:
    parties = shifted()
    turned = dict(reversed(parties.items()))
    assert figures(how_different(parties)) == figures(how_different(turned))


@pytest.mark.parametrize("equalize", [False, True])
def test_the_unit_of_inputs_does_not_matter(equalize: bool) -> None:
    plain = how_different(shifted(), equalize=equalize)
    scaled = {name: (1000 * X + 5, y) for name, (X, y) in shifted().items()}
    found = how_different(scaled, equalize=equalize)
    for one, other in zip(plain.distances, found.distances, strict=True):
        assert other.parties == pytest.approx(one.parties, rel=1e-6)
        assert other.chance == pytest.approx(one.chance, rel=1e-6)


def test_equalized_columns_have_units_of_their_own() -> None:
    """Grams for kilograms in one column: nothing changes if equalized, all changes if not."""
    grams = {n: (X * np.r_[1, 1000, 1, 1, 1], y) for n, (X, y) in shifted().items()}
    for equalize in (True, False):
        a, b = (how_different(p, equalize=equalize).inputs_w1 for p in (shifted(), grams))
        assert a is not None and b is not None
        assert (b.omega == pytest.approx(a.omega)) == equalize


def test_weights() -> None:
    """By rows the mixture is the pooled rows: 0.1·0.48 + 0.2·0.18 + 0.7·0.12."""
    counts = {"a": np.array([8, 2]), "b": np.array([10, 10]), "c": np.array([14, 56])}
    assert compare_labels(counts).omega == pytest.approx((0.3 + 0 + 0.3) / 3)
    assert compare_labels(counts, by_rows=True).omega == pytest.approx(0.168)


def test_pictures_are_long_rows() -> None:
    flat = shifted(width=12)
    pictures = {name: (X.reshape(-1, 3, 4), y) for name, (X, y) in flat.items()}
    assert figures(how_different(pictures)) == figures(how_different(flat))


def test_the_seed_moves_what_is_drawn_and_nothing_else() -> None:
    one, other = (how_different(shifted(), seed=seed) for seed in (1, 2))
    assert figures(one) == figures(how_different(shifted(), seed=1))
    assert one.labels.parties == pytest.approx(other.labels.parties)
    assert not np.array_equal(one.labels.chance, other.labels.chance)
    assert one.inputs_w1 is not None and other.inputs_w1 is not None
    gap = abs(one.inputs_w1.omega - other.inputs_w1.omega)
    assert 0 < gap < 5 * one.inputs_w1.standard_error


# --- counts alone ---------------------------------------------------------------------------------


def test_sites_send_counts_only() -> None:
    """What leaves a site is its counts; the answer is that of all rows in one place."""
    rng = RNG(4)
    labels = {
        s: rng.choice(["ill", "well", "dead"], size=50, p=p)
        for s, p in (("north", [0.9, 0.0, 0.1]), ("south", [0.1, 0.9, 0.0]))
    }
    classes = ("dead", "ill", "well")
    counts = {site: label_counts(y, classes) for site, y in labels.items()}
    assert all(c.shape == (3,) and c.sum() == 50 for c in counts.values())
    together = how_different({s: (None, y) for s, y in labels.items()}, inputs=False)
    assert together.classes == classes and together.inputs_w1 is None
    assert compare_labels(counts).as_data() == together.labels.as_data()
    assert together.sentence == "labels: far apart"


@pytest.mark.parametrize(
    ("y", "what"),
    [
        ([], "there are no rows"),
        (["il"], "'il', which is no class\n.*'ill'"),
        (["ill", None], "missing"),
        ([0.5, 0.1], "continuous"),
    ],
)
def test_bad_labels(y: list[Any], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        label_counts(y, ["ill", "well"])


def test_bad_counts() -> None:
    good = np.array([1, 2])
    for counts, what in (
        ({"a": good}, "one party"),
        ({}, "no parties"),
        ({"a": good, "b": np.array([0, 0])}, "party 'b': it has no rows"),
        ({"a": good, "b": np.array([1, 2, 3])}, "party 'b': its counts have shape"),
        ({"a": good, "b": np.array([1, -2])}, "whole numbers"),
    ):
        with pytest.raises(InvalidInput, match=what):
            compare_labels(counts)


# --- what is refused ------------------------------------------------------------------------------

X, Y = np.ones((4, 2)), np.zeros(4)
BAD = {
    "one party": ({"a": (X, Y)}, {}, "one party"),
    "no party": ({}, {}, "no parties"),
    "an empty party": ({"a": (X, Y), "b": (X[:0], Y[:0])}, {}, "party 'b': it has no rows"),
    "other widths": ({"a": (X, Y), "b": (X[:, :1], Y)}, {}, "party 'b': .*shape"),
    "NaN": ({"a": (X, Y), "b": (X * np.nan, Y)}, {}, "party 'b': 8 .*NaN"),
    "infinite": ({"a": (X, Y), "b": (X * np.inf, Y)}, {}, "NaN or infinite"),
    "texts": ({"a": (X, Y), "b": (np.array(["p", "q", "r", "s"], object), Y)}, {}, "'b': .*texts"),
    "too large": ({"a": (X, Y), "b": (X * 1e200, Y)}, {}, "too large"),
    "one axis": ({"a": (X, Y), "b": (Y, Y)}, {}, r"'b': .*\n.*\(n, 1\)"),
    "complex": ({"a": (X, Y), "b": (X * 1j, Y)}, {}, "not real numbers"),
    "no columns": ({"a": (X[:, :0], Y), "b": (X[:, :0], Y)}, {}, "there are none"),
    "fewer labels": ({"a": (X, Y), "b": (X, Y[:3])}, {}, "4 rows and 3 labels"),
    "continuous labels": ({"a": (X, Y), "b": (X, Y + 0.5)}, {}, "continuous"),
    "missing values": (
        {"a": (X, Y), "b": (X, Y * np.nan)},
        {"kind": "regression"},
        "party 'b': .*NaN",
    ),
    "texts as values": (
        {"a": (X, Y), "b": (X, ["u"] * 4)},
        {"kind": "regression"},
        "one number a row",
    ),
    "unknown kind": (
        {"a": (X, Y), "b": (X, Y)},
        {"kind": "regresion"},
        "Known: classification, regression",
    ),
    "few permutations": ({"a": (X, Y), "b": (X, Y)}, {"permutations": 19}, "20 or more"),
    "few directions": ({"a": (X, Y), "b": (X, Y)}, {"directions": 1}, "directions is 1"),
    "unknown class": ({"a": (X, Y), "b": (X, Y + 1)}, {"classes": ["0"]}, "'b': .*'1'"),
}


@pytest.mark.parametrize(("parties", "options", "what"), BAD.values(), ids=BAD)
def test_bad_input(parties: dict[str, Pair], options: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        how_different(parties, **options)


def test_texts_are_compared_by_their_words() -> None:
    """Sport and baking share no word; of the same topic, texts differ by the order of theirs alone."""
    rng = np.random.default_rng(0)

    def texts(words: str) -> np.ndarray:
        made = [" ".join(rng.permutation(words.split())) for _ in range(40)]
        return np.array(made, dtype=object)

    sport, y = "goal match team league coach", ["x", "y"] * 20
    apart = how_different({"a": (texts(sport), y), "b": (texts("flour oven sugar butter salt"), y)})
    alike = how_different({"a": (texts(sport), y), "b": (texts(sport), y)})
    assert apart.inputs_w1 is not None and apart.inputs_w1.words == "far apart"
    assert alike.inputs_w1 is not None and alike.inputs_w1.words == "as far as chance"


def test_rows_that_nobody_else_has_are_at_risk() -> None:
    """Two clouds far apart: every row has own ones alone about it; in one cloud of both, 1 in 2^10 has."""
    rng, y = np.random.default_rng(0), ["x", "y"] * 50
    rows = rng.normal(size=(2, 100, 3))
    apart = how_different({"north": (rows[0], y), "south": (rows[1] + 30, y)})
    assert apart.apart is not None and apart.apart.tolist() == [1, 1]
    assert "at 2 of 2 parties" in apart.warning and "100% of north's rows" in apart.warning
    assert apart.as_data()["parties"]["south"]["rows_apart"] == 1
    alike = how_different({"north": (rows[0], y), "south": (rows[1], y)})
    assert alike.apart is not None and alike.apart.max() < 0.05 and alike.warning == ""


def test_a_large_party_has_mostly_own_rows_about_it_by_chance() -> None:
    """Of 360 rows among 400 the 10 nearest are all its own with probability 0.35: no sign of anything."""
    rows, y = np.random.default_rng(1).normal(size=(400, 3)), ["x", "y"] * 200
    found = how_different({"large": (rows[:360], y[:360]), "small": (rows[360:], y[360:])})
    assert found.apart is not None and found.apart.max() < 0.1 and found.warning == ""


def test_only_the_party_that_nobody_is_near_is_named() -> None:
    rng, y = np.random.default_rng(0), ["x", "y"] * 50
    a, b, c = rng.normal(size=(3, 100, 3))
    found = how_different({"a": (a, y), "b": (b, y), "c": (c + 30, y)})
    assert found.apart is not None and found.apart[2] == 1
    assert "at 1 of 3 parties" in found.warning and "a's rows" not in found.warning

"""Remarks on columns: units, numbers that stand for a gap, numbers of persons, the target in disguise."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.messages.columns import Schema
from consilience.core.validation.tables import Rows
from consilience.tables.remarks import group_remarks, one_spelling, says_target
from consilience.tables.rows import rows_and_schema, rows_of
from consilience.tables.table import Table

NAN = np.nan
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(75, 12, 200)


def rows(like: Schema | None = None, *, units: dict | None = None, **columns: object) -> Rows:
    table = Table.of(columns, where="here")
    if like is None:
        return rows_and_schema(table, where="here")
    return rows_of(table, like, where="here", units=units)


def public(**columns: object) -> Schema:
    schema = rows(**columns).schema
    assert schema is not None
    return schema


@pytest.mark.parametrize(
    ("values", "factor", "said"),
    [
        (RNG.normal(75, 12, 200), 2.20462, "pounds and kilograms"),
        (RNG.normal(172, 9, 200), 1 / 2.54, "inches and centimetres"),
        (RNG.lognormal(1.7, 0.25, 200), 18.016, "glucose in mg/dl and mmol/l"),
        (RNG.normal(5.2, 1, 200), 38.67, "cholesterol in mg/dl and mmol/l"),
        (RNG.lognormal(0, 0.4, 200), 88.42, "creatinine in µmol/l and mg/dl"),
        (RNG.normal(13.5, 1.5, 200), 10, "g/dl and g/l"),
    ],
)
def test_units_of_a_clinic_are_told_by_their_factor(values, factor, said: str) -> None:
    """A column's own numbers, drawn anew at another site, in another unit."""
    schema, own = public(x=values), RNG.permutation(values)[:80] * RNG.normal(1, 0.02, 80)
    try:
        notes = rows(schema, x=own * factor).notes
    except InvalidInput as error:
        notes = (str(error),)
    assert "'x' is of another unit" in notes[0] and said in notes[0]
    assert f"{np.median(own * factor):.4g}" in notes[0] and f"{np.median(values):.4g}" in notes[0]
    assert not rows(schema, x=own).notes


def test_a_unit_is_stated_by_a_factor_and_taken_as_it_is_by_1() -> None:
    schema = public(weight=WEIGHTS, t=RNG.normal(37, 0.5, 200))
    pounds, fever = WEIGHTS[:50] * 2.20462, RNG.normal(37, 0.5, 50) * 1.8 + 32
    with pytest.raises(InvalidInput, match=r'(?s)kilograms\).*units = \{ "weight" = 0.453593 \}'):
        rows(schema, weight=pounds, t=fever)
    with pytest.raises(InvalidInput, match=r"(?s)Fahrenheit.*units = \{ \"t\" = \"F to C\" \}"):
        rows(schema, weight=WEIGHTS[:50], t=fever)
    units = {"weight": 0.453592, "t": "F to C"}
    found = rows(schema, weight=pounds, t=fever, units=units)
    np.testing.assert_allclose(found.X[:, 0], WEIGHTS[:50], rtol=1e-5)
    assert not found.notes and 36 < np.median(found.X[:, 1]) < 38
    kept = rows(schema, weight=pounds, t=fever, units={"weight": 1, "t": 1})
    np.testing.assert_array_equal(kept.X[:, 1], fever)
    with pytest.raises(InvalidInput, match=r"units is about 'wight'.*\n.*'weight'"):
        rows(schema, weight=pounds, t=fever, units={"wight": 1})


def test_other_patients_are_no_other_unit() -> None:
    """Children beside adults, a ward of the severely ill, and zeros for what was not measured."""
    schema = public(age=RNG.normal(60, 12, 200), marker=RNG.lognormal(0, 1, 200), chol=WEIGHTS)
    young = rows(
        schema, age=RNG.normal(35, 10, 80), marker=RNG.lognormal(1, 1, 80), chol=np.zeros(80)
    )
    assert not young.notes
    counts = public(days=np.maximum(RNG.normal(600, 400, 200), 0))
    assert not rows(counts, days=np.append(np.zeros(70), np.full(10, 5.0))).notes
    children = rows(schema, age=RNG.uniform(1, 16, 80), marker=[NAN] * 80, chol=[NAN] * 80)
    assert not any("unit" in note for note in children.notes)


def test_a_unit_of_one_group_of_a_file_is_named() -> None:
    """Four fifths of the rows are in kilograms; the east has no heights."""
    X = np.stack([WEIGHTS, RNG.normal(170, 9, 200)], axis=1)
    group = np.repeat(["north", "south", "west", "east"], 50)
    X[:50, 0] *= 2.20462
    X[150:, 1] = NAN
    found = list(group_remarks(X, Schema.of_numbers(X, ["weight", "height"]), group))
    assert found[0] == "'height' is missing in every row of 'east'"
    assert "rows of 'north': column 'weight' is of another unit" in found[1] and len(found) == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([*RNG.integers(20, 90, 60), 999, 999, 999], "'x' is 999 in 3 rows"),
        ([*RNG.integers(1, 900, 60), -1, -1], "'x' is -1 in 2 rows"),
        ([*RNG.normal(0, 1, 60), -9999, -9999], "'x' is -9999 in 2 rows"),
        ([*RNG.integers(20, 99, 60), 99, 99], ""),
        ([-1, 0, 1] * 20, ""),
        ([*RNG.integers(20, 90, 60), 999], ""),
    ],
)
def test_numbers_that_stand_for_a_gap(values: list, said: str) -> None:
    notes = rows(
        x=np.array(values, dtype=float),
        y=[1.0, 2.0] * (len(values) // 2) + [1.0] * (len(values) % 2),
    ).notes
    assert said in notes[0] if said else not notes


def test_a_column_without_a_value_is_left_out() -> None:
    found = rows(x=[1.0, 2.0], nothing=["?", ""])
    assert found.schema is not None and found.schema.names == ("x",)
    assert found.notes == ("'nothing' is missing in every row: left out",)


@pytest.mark.parametrize(
    ("name", "values", "noted"),
    [
        ("patient_id", np.repeat(RNG.integers(100, 900, 60), 3), True),
        ("PatientID", [f"A{i // 3}" for i in range(180)], True),
        ("mrn", RNG.integers(1_000_000, 9_999_999, 180), True),
        ("number", RNG.permutation(180) + 7, True),
        ("record", RNG.integers(100_000, 999_999, 180), True),
        ("age", RNG.integers(30, 80, 180), False),
        ("paid", RNG.integers(0, 900, 180), False),
        ("site_id", [1, 2, 3] * 60, False),
    ],
)
def test_numbers_of_persons_are_noted(name: str, values: object, noted: bool) -> None:
    notes = rows(**{name: values, "x": [1.0, 2.0] * 90}).notes
    assert any("the number of a person" in note for note in notes) is noted


def test_categories_that_differ_by_capitals_and_blanks_are_one() -> None:
    found = rows(sex=["Male", "male", "Male ", "FEMALE", "female", "female"])
    assert found.schema is not None and found.schema.columns[0].categories == ("Male", "female")
    assert found.X[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert "'Male' (2 rows) and 'male' (1 rows) are read as one: 'Male'" in found.notes[0]
    assert one_spelling(["a", "A"])[0] == {"a": "a", "A": "A"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1,5", "2,5", "3,5", "<0,5"] * 8, "holds numbers and '<0,5' in 8 rows.*\n.*of a limit"),
        ([*map("{},5".format, range(30)), "much"], "holds numbers and 'much'"),
    ],
)
def test_a_word_among_decimal_commas_is_named(values: list, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        rows(x=[f"{text[:-1]}{i}" if text[0].isdigit() else text for i, text in enumerate(values)])


def test_marks_among_numbers_are_gaps() -> None:
    values = [*map(str, range(30)), "-", "unknown"]
    found = rows(x=values)
    assert (
        np.isnan(found.X[-2:, 0]).all()
        and "'-', 'unknown' in 'x' is read as missing" in found.notes
    )
    again = rows(public(x=range(30)), x=values)
    np.testing.assert_array_equal(again.X, found.X)
    assert rows(x=["+", "-"] * 10).schema.columns[0].categories == ("+", "-")


LABELS = np.array(["ill", "well"] * 30)


@pytest.mark.parametrize(
    ("values", "target", "noted"),
    [
        (["dead", "alive"] * 30, LABELS, True),
        ([None, "alive", *["dead", "alive"] * 29], LABELS, True),
        ([1.0, NAN] * 30, LABELS, True),
        (["dead", "alive"] * 29 + ["alive", "dead"], LABELS, False),
        (["dead"] * 60, LABELS, False),
        (1000 * WEIGHTS, WEIGHTS, True),
        (-np.log(WEIGHTS), WEIGHTS, True),
        (np.where(np.arange(200) % 5, WEIGHTS, NAN), WEIGHTS[:, None], True),
        (WEIGHTS + RNG.normal(0, 1, 200), WEIGHTS, False),
    ],
)
def test_the_target_under_another_name(values: object, target: np.ndarray, noted: bool) -> None:
    found = says_target(Table.of({"x": values}, where="here"), target)
    assert bool(found) is noted


def test_each_value_of_a_detailed_outcome_goes_with_one_label() -> None:
    """Two thousand rows: of three outcomes each is one label's; of a chance category none is."""
    outcome = RNG.integers(0, 3, 2000)
    target = np.where(outcome == 2, "dead", "alive")
    table = {"outcome": outcome, "ward": RNG.integers(0, 3, 2000)}
    found = says_target(Table.of(table, where="here"), target)
    assert found == ("'outcome' says the target under another name",)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
def test_the_index_of_a_table_that_was_written_with_it_is_said(name: str) -> None:
    """Whatever rows it is of: an index tells training rows apart, and often the target."""
    places = RNG.permutation(1000)[:200]
    (said,) = rows(**{name: places, "age": RNG.normal(size=200)}).notes
    assert (
        "has 200 different values: if it is the number of a person or a row, leave it out" in said
    )
    assert not rows(**{name: places // 2, "age": RNG.normal(size=200)}).notes
    assert not rows(dose=places, age=RNG.normal(size=200)).notes

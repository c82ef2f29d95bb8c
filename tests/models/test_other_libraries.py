"""Tables and arrays of other libraries: names, masks and time zones count, or the object is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from consilience import (
    FederatedClassifier,
    Federation,
    Party,
    avg,
    ensemble_distillation,
    mean,
)
from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.core.validation.tables import is_table
from consilience.tables.outcomes.several_labels import MultiLabel
from consilience.tables.outcomes.survival import Survival
from consilience.tables.rows import rows_and_schema
from consilience.tables.table import Table

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = np.where(X[:, 0] > 0, "ill", "well")
FRAME = pd.DataFrame(X, columns=list("uvw"))
A, B, PUBLIC = slice(0, 100), slice(100, 180), slice(180, 240)


class Streamed:
    """A table of a library that is not known here: it can only be exported."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class InMemory(Streamed):
    """A table as polars has them."""

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._table.to_pandas(), dtype=dtype)


class Lazy:
    """A table that is not computed yet."""

    columns = ("u", "v", "w")


TABLES = {
    "streamed": Streamed,
    "in memory": InMemory,
    "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "reader": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
}


def run(a: Party, public: Any = None, model: Any = None, rule: Any = avg) -> Any:
    other = Party("b", model or LogisticRegression(), FRAME[B], Y[B])
    protocol = ensemble_distillation(aggregate=rule(), rounds=1)
    public = FRAME[PUBLIC] if public is None else public
    return Federation([a, other], public).run(protocol, progress=False)


@pytest.mark.parametrize("kind", TABLES.values(), ids=TABLES)
def test_columns_of_any_table_are_found_by_their_names(kind: Any) -> None:
    swapped = FRAME[["w", "v", "u"]]
    answers = [
        run(Party("a", LogisticRegression(), read(swapped[A]), Y[A]), public)
        .models["a"]
        .predict_proba(read(swapped))
        for read, public in ((kind, kind(FRAME[PUBLIC])), (lambda frame: frame, FRAME[PUBLIC]))
    ]
    np.testing.assert_array_equal(*answers)
    assert (answers[0].argmax(axis=1) == (Y == "well")).mean() > 0.9


def test_test_rows_and_estimators_read_any_table() -> None:
    swapped = FRAME[["w", "v", "u"]]
    a = Party("a", LogisticRegression(), FRAME[A], Y[A], test=(InMemory(swapped[B]), Y[B]))
    assert run(a).metrics[-1]["a"]["accuracy"] > 0.9
    parties = {"a": (InMemory(swapped[A]), Y[A]), "b": (FRAME[B], Y[B])}
    made = FederatedClassifier(parties, model=LogisticRegression(), rounds=1)
    made.fit(InMemory(FRAME[PUBLIC]))
    assert (made.predict(InMemory(swapped)) == Y).mean() > 0.9


def test_a_single_column_is_no_table() -> None:
    numbers = pd.Series([1.0, 2.0])
    columns = (numbers, pa.chunked_array([[1.0]]), pa.array([1.0]), np.zeros(2))
    assert not any(map(is_table, columns))


def test_other_objects_with_columns_are_refused() -> None:
    party = Party("a", LogisticRegression(), FRAME[A], Y[A])
    for read in (Public, lambda lazy: Party("a", LogisticRegression(), lazy, Y[A])):
        with pytest.raises(InvalidInput, match=r"Lazy: it has columns.*\n.*collect"):
            read(Lazy())
    with pytest.raises(InvalidInput, match="Lazy: it has columns"):
        run(party).models["a"].predict(Lazy())


def masked(rows: np.ndarray, behind: float) -> np.ma.MaskedArray:
    """Rows whose first column is masked at every third row, with a number behind the mask."""
    mask = np.zeros_like(rows, dtype=bool)
    mask[::3, 0] = True
    return np.ma.array(np.where(mask, behind, rows), mask=mask)


@pytest.mark.parametrize("form", ["array", "mapping"])
def test_masked_places_are_gaps(form: str) -> None:
    table = form == "mapping"

    def answers(rows: Any) -> np.ndarray:
        own = {name: rows[:, i] for i, name in enumerate("uvw")} if table else rows
        a = Party("a", LogisticRegression(), own, Y[A], test=(own, Y[A]))
        b = Party("b", LogisticRegression(), FRAME[B] if table else X[B], Y[B])
        federation = Federation([a, b], FRAME[PUBLIC] if table else X[PUBLIC])
        history = federation.run(ensemble_distillation(aggregate=avg(), rounds=1), progress=False)
        assert history.failures == []
        return history.models["a"].predict_proba(own)

    holed = masked(X[A], 0).filled(np.nan)
    expected = answers(holed)
    for behind in (0.0, -300.0):
        np.testing.assert_array_equal(answers(masked(X[A], behind)), expected)


def test_masked_public_rows_and_whole_numbers_have_gaps() -> None:
    whole = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(Public(whole).X, [[1, np.nan], [3, 4]])


def test_labels_in_another_order_than_the_inputs_are_refused() -> None:
    """Rows are paired by place, and pandas' index says that other ones are meant."""
    labels = pd.Series(Y)
    turned = labels[A][::-1]
    with pytest.raises(InvalidInput, match="the same rows in another order"):
        Party("a", LogisticRegression(), FRAME[A], turned)
    with pytest.raises(InvalidInput, match="the same rows in another order"):
        Party("a", LogisticRegression(), FRAME[A], labels[A], test=(FRAME[A], turned))
    Party("a", LogisticRegression(), FRAME[A], turned.loc[FRAME[A].index])
    Party("a", LogisticRegression(), FRAME[A], turned.to_numpy())
    Party("a", LogisticRegression(), FRAME[B], labels[B].reset_index(drop=True))
    Party("a", LogisticRegression(), FRAME[A], turned.tolist())
    found = FederatedClassifier({"a": (FRAME[A], labels[A]), "b": (FRAME[B], labels[B])}, rounds=1)
    found.fit(FRAME[PUBLIC])
    with pytest.raises(InvalidInput, match="the same rows in another order"):
        found.score(FRAME[A], turned)


def test_labels_behind_a_mask_are_refused() -> None:
    codes = (Y == "ill").astype(int)
    hidden = np.arange(100) == 5
    with pytest.raises(InvalidInput, match=r"labels are .*missing"):
        Party("a", LogisticRegression(), X[A], np.ma.array(codes[A], mask=hidden))
    with pytest.raises(InvalidInput, match="some labels are missing"):
        Party("a", LogisticRegression(), X[A], np.ma.array(Y[A], mask=hidden))
    with pytest.raises(InvalidInput, match="targets: 1 of 100 rows hold NaN"):
        Party("a", LinearRegression(), X[A], np.ma.array(X[A, 0], mask=hidden))
    with pytest.raises(InvalidInput, match="weights of its test rows as own rows"):
        weights = np.ma.array(np.ones(100), mask=hidden)
        Party("a", LogisticRegression(), X[A], Y[A], test=(X[A], Y[A], weights))
    rows = np.ma.array(np.ones((3, 2)), mask=[[False, True], [False, False], [False, False]])
    with pytest.raises(InvalidInput, match="event is nan"):
        Survival(edges=[1.0, 2.0]).read(rows, where="a")


def test_several_labels_are_found_by_name_in_any_table() -> None:
    outcome = MultiLabel(["cough", "fever"])
    frame = pd.DataFrame({"fever": [1.0, 0.0, np.nan], "cough": [0.0, 1.0, 1.0]})
    expected = [[0, 1], [1, 0], [1, np.nan]]
    for table in (frame, InMemory(frame), pa.Table.from_pandas(frame), Streamed(frame)):
        np.testing.assert_array_equal(outcome.read(table, where="a"), expected)
    mask = [[False, False], [False, False], [False, True]]
    rows = np.ma.array([[0, 1], [1, 0], [1, 1]], mask=mask)
    np.testing.assert_array_equal(outcome.read(rows, where="a"), expected)


def test_parties_in_two_time_zones_mean_the_same_moment() -> None:
    """The same moments, one party's written in Berlin's time; midnight there is the day before in UTC."""
    moments = pd.date_range("2024-01-01 23:30", periods=240, freq="7h", tz="UTC")
    late = moments > moments[120]
    rows = {
        "UTC": pd.DataFrame({"at": moments}),
        "Berlin": pd.DataFrame({"at": moments.tz_convert("Europe/Berlin")}),
        "objects": pd.DataFrame(
            {"at": moments.tz_convert("Asia/Tokyo").to_pydatetime()}, dtype=object
        ),
        "texts": pd.DataFrame({"at": moments.tz_convert("Asia/Tokyo").map(datetime.isoformat)}),
    }
    public = Public(rows["UTC"])
    for name, table in rows.items():
        party = Party("a", LogisticRegression(), table, late)
        party.read_public(public)
        assert party.public is public
        np.testing.assert_array_equal(party.rows.X, public.X, err_msg=name)
    other = Party("b", LinearRegression(), rows["Berlin"], np.arange(240.0))
    Federation([other], rows["UTC"]).run(
        ensemble_distillation(aggregate=mean(), rounds=1), progress=False
    )
    np.testing.assert_array_equal(other.rows.X, public.X)


def test_dates_with_and_without_a_time_zone_are_refused() -> None:
    zone = timezone(timedelta(hours=2))
    mixed = [datetime(2024, 1, day, tzinfo=zone if day % 2 else None) for day in range(1, 13)]
    for column in (mixed, [one.isoformat() for one in mixed]):
        table = pd.DataFrame({"at": pd.Series(column, dtype=object)})
        with pytest.raises(InvalidInput, match="'at' holds dates with and without a time zone"):
            Public(table)


def test_periods_of_pandas_are_dates() -> None:
    months = pd.DataFrame({"at": pd.period_range("2020-01", periods=24, freq="M")})
    (column,) = rows_and_schema(Table.of(months, where="t"), where="t").schema.columns  # type: ignore[union-attr]
    assert (column.kind, column.low, column.high) == ("date", 18262, 18962)

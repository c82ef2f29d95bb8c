"""Federations of tables: columns are found by their names, and differences are mended or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR

from consilience import Federation, Party, PrivateTable, auto, avg, ensemble_distillation, mean
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.networks import LocalNetwork
from consilience.core.tasks.lifecycle import TakePublic
from consilience.lab.data import read_rows
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.models.encoders import encoders
from consilience.models.encoders.encoders import EncoderEntry
from consilience.tables.text_columns import text_columns, with_text_columns


def patients(seed: int, n: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n),
            "smokes": rng.choice(["no", "yes"], n),
            "pressure": rng.normal(120, 10, n),
        }
    )
    ill = frame["age"] / 10 + 2 * (frame["smokes"] == "yes") + rng.normal(size=n) > 7
    frame.loc[rng.random(n) < 0.1, "pressure"] = np.nan
    return frame, np.where(ill, "ill", "well")


PUBLIC = patients(9)[0]


def run(*parties: Party, public: Any = PUBLIC, wire: bool = False, aggregate: Any = None) -> Any:
    protocol = ensemble_distillation(aggregate=aggregate or avg(), rounds=1)
    network = LocalNetwork(parties, shared := Public(public), wire=wire)
    return federation_over(network, shared).run(protocol, progress=False)


def party(name: str, change: Any = None, model: Any = None, **options: Any) -> Party:
    frame, y = patients(len(name))
    test, y_test = patients(7)
    change = change or (lambda table: table)
    model = model or HistGradientBoostingClassifier(max_iter=5)
    rows = PrivateTable(change(frame), **options)
    return Party(name, model, rows, y, test=(change(test), y_test))


def answers(history: Any, name: str = "a") -> np.ndarray:
    return history.models[name].predict_proba(PUBLIC)


SAME = {
    "another order": (lambda table: table[["pressure", "age", "smokes"]], {}),
    "more columns": (lambda table: table.assign(note="x"), {}),
    "pyarrow": (pa.Table.from_pandas, {}),
    "texts": (lambda table: table.astype({"age": str}), {}),
    "capitals": (lambda table: table.assign(smokes=table["smokes"].str.upper()), {}),
    "truth": (lambda table: table.assign(smokes=table["smokes"] == "yes"), {}),
    "other names": (
        lambda table: table.rename(columns={"age": "years"}),
        {"rename": {"years": "age"}},
    ),
}


@pytest.mark.parametrize("change, options", SAME.values(), ids=SAME)
def test_tables_that_say_the_same_give_the_same_bits(change: Any, options: Any) -> None:
    other = party("bb", model=LogisticRegression())
    expected = answers(run(party("a"), other))
    np.testing.assert_array_equal(answers(run(party("a", change, **options), other)), expected)


def test_numbers_with_names_give_the_bits_of_arrays() -> None:
    names = ["age", "weight"]
    X = np.random.default_rng(0).normal(size=(80, 2))
    y = np.where(X[:, 0] > 0, "p", "q")

    def probabilities(table: Any) -> np.ndarray:
        parties = [Party(n, GaussianNB(), table(X[i::2]), y[i::2]) for i, n in enumerate("ab")]
        history = run(*parties, public=table(X[:30]), aggregate=auto())
        return history.models["a"].predict_proba(X)

    expected = probabilities(np.asarray)
    np.testing.assert_array_equal(probabilities(lambda X: pd.DataFrame(X, columns=names)), expected)


def test_rows_cross_the_wire_with_their_gaps_and_columns() -> None:
    sent = TakePublic.of(Public(PUBLIC)).rows()
    np.testing.assert_array_equal(sent.X, Public(PUBLIC).X)
    assert (sent.schema, sent.key) == (Public(PUBLIC).schema, Public(PUBLIC).key)
    both = [answers(run(party("a"), party("bb"), wire=wire)) for wire in (False, True)]
    np.testing.assert_array_equal(*both)


REFUSED = {
    "no names in common": (
        lambda t: t.rename(columns=str.swapcase).add_prefix("x"),
        "no input column",
    ),
    "a column less": (lambda t: t.drop(columns="age"), "no input column 'age'"),
    "another unit": (lambda t: t.assign(age=t["age"] * 12 * 30), "'age' is of another unit"),
    "a category": (lambda t: t.assign(smokes="pipe"), "do not know: 'pipe'"),
}


@pytest.mark.parametrize("change, said", REFUSED.values(), ids=REFUSED)
def test_tables_that_do_not_go_together_are_refused_by_name(change: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        run(party("a", change), party("bb"))


def test_a_party_with_fewer_columns_takes_part() -> None:
    few = party("few", lambda table: table[["smokes"]], missing="allowed")
    history = run(few, party("a"), aggregate=auto())
    assert few.rows.X.shape == (60, 1) and few.public.X.shape == (60, 1)
    assert few.public.key == Public(PUBLIC).key
    assert few.rows.notes == ("it lacks 'age', 'pressure', and takes part without",)
    said = history.models["few"].predict_proba(PUBLIC)
    smokes = (PUBLIC["smokes"] == "yes").to_numpy()
    assert len(np.unique(said[smokes], axis=0)) == 1  # nothing else tells them apart


def test_it_reads_the_public_rows_as_before_when_others_join_or_do_not() -> None:
    few = party("few", lambda table: table[["smokes"]], missing="allowed")
    federation = Federation([few, party("a")], PUBLIC)
    first = federation.run(ensemble_distillation(rounds=1))
    with pytest.raises(InvalidInput, match="'a'"):
        federation.resume(first, ensemble_distillation(rounds=2), join=[party("a")])
    assert few.public.X.shape == (60, 1)
    federation.resume(first, ensemble_distillation(rounds=2), join=[party("late")])
    assert few.public.X.shape == (60, 1)


def test_rows_are_read_as_strictly_for_the_test_as_for_training() -> None:
    test, y_test = patients(7)
    strange = test.assign(smokes=["pipe", *test["smokes"][1:]])
    frame, y = patients(1)
    with pytest.raises(InvalidInput, match=r"test data: column 'smokes'.*'pipe'"):
        run(Party("a", GaussianNB(), frame, y, test=(strange, y_test)), party("bb"))
    with pytest.raises(InvalidInput, match="test data: there is no input column 'age'"):
        less = test.drop(columns="age")
        run(
            Party(
                "a", GaussianNB(), PrivateTable(frame, missing="allowed"), y, test=(less, y_test)
            ),
            party("bb"),
        )
    mild = Party(
        "a", GaussianNB(), PrivateTable(frame, unknown="missing"), y, test=(strange, y_test)
    )
    run(mild, party("bb"))
    assert mild.rows.notes[0].startswith("in the test rows, column 'smokes' holds a category")


def test_a_party_says_its_unit() -> None:
    pounds = lambda table: table.assign(age=table["age"] * 12)  # noqa: E731
    with pytest.raises(InvalidInput, match=r"months and years.*\n.*units = \{"):
        run(party("a", pounds), party("bb"))
    other = party("bb", model=LogisticRegression())
    expected = answers(run(party("a"), other))
    stated = party("a", pounds, units={"age": 1 / 12})
    np.testing.assert_allclose(answers(run(stated, other)), expected, atol=1e-6)


def test_test_rows_are_read_as_training_rows_are() -> None:
    """Else a factor would count twice, or not at all, and metrics would be of other numbers."""
    frame, y = patients(1)
    test, y_test = patients(7)
    months = PrivateTable(frame.assign(age=frame["age"] * 12), units={"age": 1 / 12})
    with pytest.raises(InvalidInput, match="in another way"):
        Party("a", GaussianNB(), months, y, test=(PrivateTable(test), y_test))
    same = PrivateTable(test.assign(age=test["age"] * 12), units={"age": 1 / 12})
    run(given := Party("a", GaussianNB(), months, y, test=(same, y_test)), party("bb"))
    assert given.rows.test is not None
    np.testing.assert_allclose(np.sort(given.rows.test[0][:, 0]), np.sort(test["age"]), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"missing": False},
        {"missing": "refuse"},
        {"unknown": "ok"},
        {"units": {"age": 0}},
        {"units": {"age": np.nan}},
        {"rename": ["age"]},
    ],
)
def test_a_private_table_is_checked_when_it_is_made(options: Any) -> None:
    with pytest.raises(InvalidInput):
        PrivateTable(PUBLIC, **options)
    with pytest.raises(InvalidInput, match="no table of named columns"):
        PrivateTable(np.ones((3, 2)))


def test_an_input_that_says_the_target_is_noted() -> None:
    frame, y = patients(1)
    public = PUBLIC.assign(outcome=np.where(PUBLIC["age"] > 60, "dead", "alive"))
    leaking = Party(
        "a", GaussianNB(), frame.assign(outcome=np.where(y == "ill", "dead", "alive")), y
    )
    run(leaking, party("bb", lambda table: table.assign(outcome="alive")), public=public)
    assert leaking.rows.notes == ("'outcome' says the target under another name",)


def test_arrays_with_gaps_are_taken() -> None:
    """Numbers without names: each column's gaps are filled by the public rows' median."""
    X = np.random.default_rng(0).normal(size=(90, 2))
    y = np.where(X[:, 0] > 0, "p", "q")
    X[::5, 1] = np.nan
    history = run(
        *(Party(n, GaussianNB(), X[i::3], y[i::3]) for i, n in enumerate("ab")), public=X[2::3]
    )
    assert (history.models["a"].predict(X) == y).mean() > 0.8


def test_without_public_rows_tables_are_of_the_same_columns() -> None:
    """Nothing says what the columns of models that are exchanged mean, but for their names."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(X[:, 0] > 0, "p", "q")
    tables = [pd.DataFrame(X, columns=names) for names in (["a", "b"], ["b", "a"])]
    parties = [
        Party(name, GaussianNB(), table, y) for name, table in zip("xy", tables, strict=True)
    ]
    with pytest.raises(InvalidInput, match="same columns in the same order"):
        Federation(parties).run(averaged_distillation(rounds=1), progress=False)
    parties[1] = Party("y", GaussianNB(), tables[0], y)
    Federation(parties).run(averaged_distillation(rounds=1), progress=False)


def test_values_of_a_table_are_learned_too() -> None:
    rng = np.random.default_rng(0)
    parties = []
    for name in "ab":
        frame, _ = patients(len(parties))
        y = frame["age"] / 10 + rng.normal(size=len(frame))
        parties.append(Party(name, Ridge(), frame, y, test=(frame, y)))
    history = run(*parties, aggregate=mean())
    assert history.metric("mse")[-1].max() < 2


@pytest.mark.parametrize("gaps", [False, True])
def test_truth_values_beside_categories(gaps: bool) -> None:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        insured = (table["age"] > 60).astype(object)
        return table.assign(insured=insured.where(table.index % 5 > 0, None) if gaps else insured)

    history = run(party("a", change), party("bb", change), public=change(PUBLIC))
    assert not history.failures


def test_columns_on_another_scale_are_named() -> None:
    with pytest.raises(InvalidInput, match="1 of 2 columns are on another scale: 'age'"):
        run(party("a", lambda table: table.assign(age=table["age"] * 0.01 + 60)), party("bb"))


def with_notes(table: pd.DataFrame) -> pd.DataFrame:
    told = [f"a letter {'b' * (i % 3)} of day {i}" for i in range(len(table))]
    return table.assign(note=[None, *told[1:]])


def test_texts_beside_other_columns_are_read_by_what_the_public_columns_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sites keep their texts as they are; the schema names an encoder that comes with the library."""
    letters = EncoderEntry("", "helpers.stub_encoders:Letters", "none")
    monkeypatch.setitem(encoders.ENCODERS, "letters", letters)
    with pytest.raises(InvalidInput, match=r"'note': texts of which .*\n.*text_columns\(table, "):
        Public(with_notes(PUBLIC))
    public = text_columns(with_notes(PUBLIC), ["note"], encoder="letters")
    assert list(public)[-2:] == ["note: letters 0", "note: letters 1"]
    assert public.iloc[:3, -2:].to_numpy().tolist() == [[0, 0], [2, 1], [2, 2]]
    one, without = party("a", with_notes), party("bb", missing="allowed")
    history = run(one, without, public=public)
    notes = text_columns(with_notes(patients(1)[0]), ["note"], encoder="letters")
    np.testing.assert_array_equal(one.rows.X[:, 3:], notes.iloc[:, 3:])
    assert without.rows.X.shape == (60, 3)
    with_notes(PUBLIC).to_csv(tmp_path / "new.csv", index=False)
    schema = Public(public).schema
    read = read_rows(
        tmp_path / "new.csv", like=schema, prepared=lambda table: with_text_columns(table, schema)
    )
    np.testing.assert_array_equal(read.X, Public(public).X.astype(np.float32))
    said = history.models["a"].predict_proba(with_notes(PUBLIC))
    np.testing.assert_array_equal(said, history.models["a"].predict_proba(public))


@pytest.mark.parametrize(
    ("names", "encoder", "why"),
    [
        (["nott"], "static-words", r"no column 'nott'\n.*Did you mean 'note'"),
        (["age"], "static-words", "column 'age' holds no texts"),
        (["note"], "static-word", "unknown encoder 'static-word'"),
    ],
)
def test_texts_that_are_not_there_are_named(names: list[str], encoder: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        text_columns(with_notes(PUBLIC), names, encoder=encoder)


def houses(seed: int, n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A price that follows a column of small numbers, beside one of large numbers that means nothing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"rooms": rng.uniform(1, 8, n), "number": rng.uniform(0, 9000, n)})
    return frame, frame["rooms"].to_numpy() + rng.normal(0, 0.1, n)


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize(
    "model",
    [KNeighborsRegressor(), BaggingRegressor(KNeighborsRegressor(), 5, random_state=0), SVR()],
    ids=lambda model: type(model).__name__,
)
def test_models_of_distances_are_scaled_with_gaps_and_without(model: Any, gap: bool) -> None:
    """As after a scaler that was fitted to the public rows, so that the column of rooms counts."""
    (public, _), (private, y), (test, y_test) = houses(0, 150), houses(1, 200), houses(2, 100)
    if gap:
        public.loc[0, "number"] = np.nan
    alone = Party("b", Ridge(), *houses(3, 50))
    parties = [Party("a", model, private, y, calibration=0), alone]
    history = run(*parties, public=public, aggregate=mean())
    found = history.models["a"].alone.predict(test)[:, 0]
    assert np.sqrt(np.mean((found - y_test) ** 2)) < 0.5  # 2.0 without scales
    if not gap and isinstance(model, KNeighborsRegressor):
        scaler = StandardScaler().fit(public)
        expected = KNeighborsRegressor().fit(scaler.transform(private), y)
        np.testing.assert_allclose(found, expected.predict(scaler.transform(test)), rtol=1e-6)


@pytest.mark.parametrize("gap", [False, True])
def test_columns_of_one_unit_keep_their_proportions(gap: bool) -> None:
    """Pixels that hardly vary would otherwise count as much as those that tell digits apart."""
    names = [f"pixel {i}" for i in range(64)]
    X, y = load_digits(return_X_y=True)
    frame = pd.DataFrame(X / 16, columns=names)
    public, private, test = frame[:300], frame[300:700], frame[700:1700]
    if gap:
        public = public.copy()
        public.loc[0, "pixel 20"] = np.nan
    model = KNeighborsClassifier()
    parties = [
        Party("a", model, private, y[300:700], calibration=0),
        Party("b", LogisticRegression(), frame[1700:], y[1700:]),
    ]
    found = run(*parties, public=public, aggregate=avg()).models["a"].alone.predict(test)
    expected = KNeighborsClassifier().fit(private, y[300:700]).predict(test)
    assert (found == expected.astype(str)).mean() > 0.995


def test_a_pipeline_keeps_the_scales_of_its_own() -> None:
    """Its first step reads the numbers of the table, such as a logarithm of them."""
    (public, _), (private, y) = houses(0, 150), houses(1, 200)
    model = make_pipeline(FunctionTransformer(np.log), KNeighborsRegressor())
    parties = [Party("a", model, private, y, calibration=0), Party("b", Ridge(), *houses(3, 50))]
    found = run(*parties, public=public, aggregate=mean()).models["a"].alone.predict(public)
    expected = KNeighborsRegressor().fit(np.log(private.to_numpy()), y)
    np.testing.assert_allclose(found[:, 0], expected.predict(np.log(public.to_numpy())), rtol=1e-9)


def test_columns_are_counted_in_the_order_of_the_public_rows_or_not_at_all() -> None:
    """A position meant another column where a party's table had another order."""
    rows = np.random.default_rng(0).normal(size=(900, 3))
    table = pd.DataFrame(rows, columns=list("uvw"))
    labels = (table["u"] > 0).to_numpy()
    chosen = make_pipeline(ColumnTransformer([("u", StandardScaler(), [2])]), LogisticRegression())

    def run(own: pd.DataFrame, public: pd.DataFrame) -> Any:
        parties = [
            Party("a", chosen, own[:400], labels[:400]),
            Party("b", LogisticRegression(), table[400:700], labels[400:700]),
        ]
        return Federation(parties, public[700:]).run(
            ensemble_distillation(aggregate=avg(), rounds=1)
        )

    turned = table[["w", "v", "u"]]
    with pytest.raises(
        InvalidInput, match=r"party 'a': columns says columns by position(.|\n)*: u, v, w"
    ):
        run(turned, table)
    model = run(turned, turned).models["a"].alone
    assert (model.predict(turned[700:]) == labels[700:].astype(str)).mean() > 0.9

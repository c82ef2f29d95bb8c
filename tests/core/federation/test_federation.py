"""Agreement before the first round, and the loop over rounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from consilience import Federation, Party, avg, ensemble_distillation, local_only, mean
from consilience.core.checks import classifiers, regressors
from consilience.core.checks.example_parties import with_model
from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.history import History
from consilience.core.messages.schema import Public
from consilience.core.numerics.outcomes import Classes
from consilience.core.protocols import Round, RoundState
from helpers.stub_models import Share

POINTS = np.linspace(-1, 1, 12)[:, None]
XY = np.array(["x", "y"] * 6)
ROUND = ensemble_distillation(aggregate=avg(), rounds=2)


def parties(*labels, model=GaussianNB, **more) -> list[Party]:
    return [
        Party(name, model(), POINTS, y, **more) for name, y in zip("abcd", labels, strict=False)
    ]


def form(made, public=POINTS, **more):
    return Federation(made, public, **more).form()


def test_classes_are_aligned_across_types():
    """Integers, floats, strings, bytes, numpy integers: classes 3 and 10 for all, 3 first."""
    codes = np.where(XY == "x", 3, 10)
    agreement = form(
        parties(codes, codes.astype(float), codes.astype(str), [str(c).encode() for c in codes])
    )
    assert (agreement.classes, agreement.outputs) == (("3", "10"), 2)
    assert (agreement.kind, agreement.rows, agreement.seed) == ("classification", 12, 0)


def test_parties_may_know_different_classes():
    agreement = form(parties(XY, np.where(XY == "x", "x", "z"), np.where(XY == "x", "y", "z")))
    assert agreement.classes == ("x", "y", "z")


def test_other_names_are_aliased():
    a = Party("a", GaussianNB(), POINTS, XY)
    b = Party(
        "b",
        GaussianNB(),
        POINTS,
        np.where(XY == "x", 1, 2),
        outcome=Classes(aliases={1: "x", 2: "y"}),
    )
    assert form([a, b]).classes == ("x", "y")


def test_a_class_nobody_else_has_names_the_nearest():
    with pytest.raises(InvalidInput) as error:
        form(parties(["cat", "dog"] * 6, ["cat", "dog"] * 6, ["cat", "dogs"] * 6))
    assert str(error.value).startswith(
        "party 'c': no other party has class 'dogs'\n  Did you mean 'dog'?"
    )
    assert "Party(outcome=Classes(aliases={" in error.value.mend
    made = parties(["cat", "dog"] * 6, ["cat", "dogs"] * 6)
    assert form(made, strict=False).classes == ("cat", "dog", "dogs")


def test_one_class_in_two_spellings_is_refused_by_name():
    low, high = ["no", "yes"] * 6, ["No", "YES"] * 6
    with pytest.raises(InvalidInput, match=r"party 'c': its class 'No' is 'no' at another party\n"):
        form(parties(low, low, high))
    with pytest.raises(InvalidInput, match=r"aliases=\{'No': 'no', 'YES': 'yes'\}"):
        form(parties(high, low, high, low))  # two of each
    meant = ["a", "A"] * 6
    assert form(parties(meant, meant)).classes == ("A", "a")
    assert form(parties(low, high), strict=False).classes == ("No", "YES", "no", "yes")


def test_amounts_are_not_taken_for_classes():
    counts = [[17 * (36 * start + i) for i in range(36)] for start in range(2)]
    made = [Party(name, GaussianNB(), np.eye(36), y) for name, y in zip("ab", counts, strict=True)]
    with pytest.raises(InvalidInput, match=r"72 different numbers\n.*regressor"):
        form(made)


def test_a_protocol_has_to_be_called():
    federation = Federation(parties(XY, XY), public=POINTS)
    with pytest.raises(InvalidInput, match=r"Call it: ensemble_distillation\(rounds=3\)"):
        federation.run(ensemble_distillation)


def test_one_class_is_a_mistake_unless_it_is_meant():
    made = parties(XY, XY, ["x"] * 12)
    with pytest.raises(InvalidInput, match="party 'c': its private data hold one class only, 'x'"):
        form(made)
    with pytest.raises(InvalidInput, match="one class only"):
        form(parties(XY, ["x"] * 12, model=SVC), strict=False)  # SVC cannot be trained on it
    form([*parties(XY, XY), Party("c", Share(), POINTS, ["x"] * 12)], strict=False)


@pytest.mark.parametrize(
    ("make", "public", "why"),
    [
        (lambda: parties(XY, XY), POINTS[:0], "there is no public data"),
        (lambda: parties(XY, XY), POINTS * np.nan, "public data: 12 of 12 rows hold NaN"),
        (lambda: parties(XY, XY), np.hstack([POINTS, POINTS]), "a public row"),
        (lambda: parties(XY, XY), POINTS * 255, "on another scale"),
        (lambda: [], POINTS, "there are no parties"),
        (lambda: parties(XY) + parties(XY), POINTS, "two parties are called 'a'"),
        (
            lambda: [*parties(XY, XY), Party("z", LinearRegression(), POINTS, POINTS)],
            POINTS,
            r"some parties classify, others regress \(z\)",
        ),
        (
            lambda: [
                Party("a", LinearRegression(), POINTS, POINTS),
                Party("b", LinearRegression(), POINTS, np.hstack([POINTS, POINTS])),
            ],
            POINTS,
            r"different numbers of targets: \[1, 2\]",
        ),
    ],
)
def test_what_does_not_go_together(make, public, why):
    with pytest.raises(InvalidInput, match=why):
        Federation(make(), public).form()


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InvalidInput, match="seed is"):
        Federation(parties(XY, XY), POINTS, seed=seed)


def test_a_numpy_seed_is_the_same_seed():
    one, other = (Federation(parties(XY, XY), POINTS, seed=s).run(ROUND) for s in (3, np.int64(3)))
    np.testing.assert_array_equal(one.rounds[2].teacher.values, other.rounds[2].teacher.values)


def test_a_model_that_cannot_see_rows_like_these():
    with pytest.raises(InvalidInput, match="GaussianNB"):
        form(
            [Party(n, GaussianNB(), np.array(["text"] * 12), XY) for n in "ab"],
            np.array(["more", "text"]),
        )


def test_a_run_is_measured_after_every_round():
    given, public = classifiers()
    made = [with_model(one, one.prototype, test=one.rows.test, purpose="everyone") for one in given]
    history = Federation(made, public).run(ROUND)
    assert [round.number for round in history.rounds] == [0, 1, 2]
    accuracy = history.metric()
    assert accuracy.shape == (3, 4)
    assert accuracy[-1].mean() > accuracy[0].mean() + 0.05  # each lacks a class and is taught it
    assert history.failures == []
    lines = str(history).splitlines()
    assert lines[0].split() == ["own", "rows", "everyone's", "rows"]
    assert lines[1].startswith("party ") and lines[1].count("accuracy alone → after") == 2
    assert lines[2].startswith("ash ")
    for name in ("accuracy", "accuracy_own"):
        values = history.metric(name)
        assert f"{values[0, 0]:.3f} → {values[2, 0]:.3f}" in lines[2]
    assert {len(line) for line in lines[:6]} == {len(lines[0])}


def test_a_history_says_who_is_worse_off_on_own_rows():
    """Losses are better when smaller; where all rows are own there is one figure."""
    history = History()
    for losses in ((0.5, 0.7), (0.6, 0.6)):
        history.rounds.append(Round(0, RoundState(round=0)))
        history.metrics.append(
            {p: {"log_loss": x, "log_loss_own": x} for p, x in zip("ab", losses, strict=True)}
        )
    assert str(history).splitlines()[1:] == [
        "party    log_loss alone → after",
        "a                 0.500 → 0.600",
        "b                 0.700 → 0.600",
        "own rows: log_loss is worse than alone at 1 of 2: a",
    ]


def test_in_one_process_public_rows_are_shared_and_never_sent():
    history = Federation(parties(XY, XY), POINTS).run(ROUND)
    tasks = {delivery.tasks for row in history.deliveries for delivery in row}
    assert {"Describe", "Join"} < tasks and "TakePublic" not in tasks


def test_bytes_are_of_the_protocol_alone():
    made, public = classifiers()
    history = Federation(made, public).run(ROUND)
    everything = [d for row in history.deliveries for d in row]
    assert {d.tasks for d in everything} >= {"Join", "Evaluate", "FitPrivate+PredictPublic"}
    evaluation = sum(d.bytes_up for d in everything if d.tasks == "Evaluate")
    assert history.bytes_up == sum(d.bytes_up for d in everything) - evaluation
    assert evaluation > 0


def test_a_metric_that_was_not_measured():
    made, public = classifiers()
    history = Federation(made, public).run(ROUND)
    with pytest.raises(InvalidInput, match="Did you mean 'accuracy'"):
        history.metric("acuracy")
    with pytest.raises(InvalidInput, match="Give the parties test data"):
        Federation(parties(XY, XY), POINTS).run(ROUND).metric()


def test_without_test_data_nothing_is_measured():
    history = Federation(parties(XY, XY), POINTS).run(ROUND)
    assert history.metrics == [{}, {}, {}]
    assert str(history) == "2 rounds, nothing measured: the parties hold no test data"
    assert str(History()).startswith("0 rounds, nothing measured")
    assert repr(history) == "History(2 rounds, 0 parties measured)"
    assert history.parties == () and history.to_frame().empty


def test_short_lines_say_what_an_object_is() -> None:
    made = [Party(n, GaussianNB(), POINTS, XY, test=(POINTS, XY)) for n in "ab"]
    federation = Federation(made, POINTS)
    protocol = ensemble_distillation(rounds=1, aggregate=avg())
    history = federation.run(protocol)
    assert repr(made[0]) == f"Party('a', SklearnLearner(GaussianNB), {len(POINTS)} rows)"
    assert repr(federation) == f"Federation(2 parties, Public({len(POINTS)} rows of shape (1,)))"
    assert repr(protocol) == "ensemble_distillation(rounds=1, aggregate=Aggregator('avg'))"
    assert repr(history.models["a"]) == "MixedModel(SklearnLearner(GaussianNB))"
    alone, after = history.metric().mean(axis=1)
    said = f"mean accuracy {alone:.3f} → {after:.3f}"
    assert repr(history) == f"History(1 round, 2 parties measured, {said})"
    frame = history.to_frame()
    assert frame[["round", "party"]].to_numpy().tolist() == [[0, "a"], [0, "b"], [1, "a"], [1, "b"]]
    assert frame["accuracy"].tolist() == history.metric().ravel().tolist()
    assert history._repr_html_().startswith("<pre>") and "accuracy" in history._repr_html_()


def test_one_party_of_three_has_test_data():
    """That party is measured, and the others are not failures."""
    made = [*parties(XY, XY), Party("c", GaussianNB(), POINTS, XY, test=(POINTS, XY))]
    federation = Federation(made, POINTS)
    assert federation.run(ROUND, evaluate=False).metrics[-1] == {}
    history = federation.run(ROUND)
    assert set(history.metrics[-1]) == {"c"}
    assert history.metric().shape == (3, 1)
    assert history.failures == []


def test_a_second_run_starts_anew():
    made, public = classifiers()
    federation = Federation(made, public)
    first, second = federation.run(ROUND), federation.run(ROUND)
    np.testing.assert_array_equal(first.metric(), second.metric())
    np.testing.assert_array_equal(first.rounds[2].teacher.values, second.rounds[2].teacher.values)
    assert first.bytes_up == second.bytes_up
    for name in first.models:
        assert first.models[name].learner is not second.models[name].learner


def test_a_run_that_was_broken_off_leaves_no_books_behind():
    made, public = classifiers()
    federation = Federation(made, public)
    rounds = federation.rounds(ROUND)
    next(rounds), next(rounds)
    history = federation.run(local_only(rounds=1))
    assert not any("Predict" in d.tasks for row in history.deliveries for d in row)


def test_regression():
    """Four noisy fits of one plane: averaging them does no harm, and R² is near 1."""
    made, public = regressors()
    history = Federation(made, public).run(ensemble_distillation(aggregate=mean(), rounds=3))
    assert history.metric("r2")[-1].min() > 0.95
    assert "mse alone → after" in str(history)
    assert set(history.models) == {"ash", "birch", "cedar", "damson"}


def test_a_party_that_always_fails_is_in_the_books_and_has_no_model():
    class Lame(Share):
        def fit(self, X, targets, **rest):
            raise RuntimeError("out of memory")

    made = [*parties(XY, XY), Party("z", Lame(), POINTS, XY)]
    history = Federation(made, POINTS).run(ROUND)
    assert {d.party for d in history.failures} == {"z"}
    assert history.failures[0].detail == "RuntimeError: out of memory"
    assert set(history.models) == {"a", "b"}


def test_joining_needs_everybody():
    class Shy(Share):
        def check(self, example):
            raise RuntimeError("not today")

    with pytest.raises(RunFailed, match="party 'z': RuntimeError: not today"):
        form([*parties(XY, XY), Party("z", Shy(), POINTS, XY)])


class Broken(GaussianNB):
    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), np.nan)


def test_a_party_that_is_left_out_is_named():
    made = [*parties(XY, XY), Party("c", Broken(), POINTS, XY, test=(POINTS, XY))]
    said = str(Federation(made, POINTS).run(ROUND))
    assert "c was left out" in said and "as probabilities of a row" in said


def test_one_party_a_round_learns():
    """The default alpha counts the federation's parties, not the round's: with one party a round the
    public rows must still weigh, or nobody would learn anything from anybody."""
    rows = np.arange(12.0)[:, None]
    made = [
        Party(name, LogisticRegression(), rows[part], np.where(rows[part, 0] < 6, "x", "y"))
        for name, part in (("a", slice(0, 9)), ("b", slice(3, 12)))
    ]
    public = Public(rows)
    federation = Federation(made, public)
    protocol = ensemble_distillation(aggregate=avg(), rounds=3, participation=1)
    rounds = [
        {name: model.predict_proba(rows) for name, model in federation.network.models().items()}
        for _ in federation.rounds(protocol)
    ]
    assert any(not np.array_equal(rounds[0][name], rounds[-1][name]) for name in rounds[0])


def test_threads_are_the_callers_between_rounds():
    from threadpoolctl import threadpool_info

    def count():
        return [library["num_threads"] for library in threadpool_info()]

    before = count()
    federation = Federation(parties(XY, XY), POINTS, threads=2)
    for _ in federation.rounds(ROUND):
        assert count() == before
    assert count() == before


def test_rounds_after_a_state_need_parties_that_have_joined() -> None:
    X, y = np.arange(8.0)[:, None], np.tile([0, 1], 4)
    parties = [Party(name, GaussianNB(), X, y) for name in ("a", "b")]
    with pytest.raises(InvalidInput, match="the parties have not joined"):
        next(Federation(parties).rounds(local_only(rounds=2), state=RoundState(round=1)))


def test_test_rows_that_are_public_rows_are_remarked_on():
    made = parties(XY, XY)
    tested = Party("c", GaussianNB(), POINTS, XY, test=(POINTS, XY))
    assert "c noted 1 times, first: most of its test rows are public rows" in str(
        Federation([*made, tested], POINTS).run(ROUND)
    )
    assert "public rows too" not in str(Federation([*made, tested], POINTS + 0.01).run(ROUND))

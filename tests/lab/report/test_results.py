"""Numbers of a report, derived by hand."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.networks import Delivery
from consilience.lab.experiments import Ledger, parse_spec
from consilience.lab.report import as_rows, compare, read_results, table, verdict, write_report
from consilience.lab.report.by_party import party_sentences
from consilience.lab.report.results import Spread, spread
from consilience.lab.report.toml import to_toml

Make = Callable[..., Path]


def printed(renderable: object, width: int = 200) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(width=width, no_color=True, file=out).print(renderable)
    return out.getvalue()


def test_a_spread_has_n_minus_one_in_its_denominator() -> None:
    """1, 2, 3: the mean is 2, squared deviations sum to 2, over n - 1 = 2 that is 1."""
    assert spread([1, 2, 3]) == Spread(2.0, 1.0, 3)
    assert spread([0.25, float("nan")]) == Spread(0.25, None, 1)
    assert str(spread([0.25])) == "0.250 ± –"
    assert spread([float("nan")]) is None


def test_the_table_is_the_mean_over_parties_then_over_seeds(rich_run: Path) -> None:
    """avg ends at means 0.40, 0.45, 0.50 over seeds: 0.45 ± 0.05."""
    rows = as_rows(read_results(rich_run))
    assert [row["method"] for row in rows] == ["local", "avg", "<script>alert(1)</script>"]
    assert rows[1]["metric"] == "accuracy"
    assert rows[1]["mean"] == pytest.approx(0.45)
    assert rows[1]["sd"] == pytest.approx(0.05)
    assert rows[1]["seeds"] == 3


def test_the_terminal_table_shows_names_as_they_are(make_run: Make) -> None:
    run = make_run(
        {"[bold]x": {0: {"accuracy": [[0.5, 0.5], [0.5, 1.0]]}}},
        methods=[{"aggregate": "avg", "label": "[bold]x"}],
    )
    text = printed(table(read_results(run)))
    assert "[bold]x" in text
    assert "0.750 ± –" in text
    with pytest.raises(InvalidInput, match="Did you mean 'accuracy'"):
        table(read_results(run), "acuracy")


def test_bytes_leave_evaluation_out_and_what_left_does_not(rich_run: Path) -> None:
    """<b>x sends 300 in round 0 and 20,000 + 112 in round 1; its 999 of metrics are not the method's."""
    results = read_results(rich_run)
    avg = results.method("avg")
    assert avg is not None
    assert avg.bytes_up[0].tolist() == [[300, 0], [20112, 0]]
    assert avg.bytes_down[2].tolist() == [[10, 0], [20, 10]]
    assert {(entry.what, entry.bytes) for entry in results.left} == {
        ("Description", 300),
        ("Predictions(100×2)", 20000),
        ("", 112),
        ("Metrics", 999),
    }


def test_failures_and_notes_are_told_apart(rich_run: Path) -> None:
    """Three seeds: three failures; a reply with two notes counts for both."""
    results = read_results(rich_run)
    assert [(f.seed, f.party, f.kind) for f in results.failures] == [
        (seed, "$\\frac{$", "late") for seed in range(3)
    ]
    assert [(n.text, n.times, n.parties, n.methods) for n in results.notes] == [
        ("no row weights", 3, ("<b>x",), ("avg",)),
        ("other", 3, ("<b>x",), ("avg",)),
    ]


def test_trust_and_holdings_are_parties_by_classes(rich_run: Path) -> None:
    results = read_results(rich_run)
    held = results.holdings
    assert held is not None and held.counts.tolist() == [[10, 0], [5, 5]]
    trusted = results.methods[2].trust
    assert trusted is not None
    np.testing.assert_array_equal(trusted, [[0.9, 0.1], [0.1, 0.9]])
    assert results.methods[0].trust is None


def test_a_party_that_was_not_measured_is_left_out_and_said(make_run: Make) -> None:
    """Of the last round's 0.5 and nothing the mean is 0.5, not 0.25."""
    results = read_results(make_run({"avg": {0: {"accuracy": [[0.1, 0.1], [0.5, None]]}}}))
    assert results.methods[0].final("accuracy") == Spread(0.5, None, 1)
    assert "1 of 2 parties and seeds were not measured" in results.warnings[0]


def test_an_unfinished_run_says_what_is_missing(make_run: Make) -> None:
    done = {"accuracy": [[0.1, 0.1], [0.5, 0.5]]}
    run = make_run({"local": {0: done}, "avg": {}}, running=[("avg", 0)])
    results = read_results(run)
    assert [method.label for method in results.methods] == ["local"]
    assert results.warnings == (
        "The run is unfinished. Not in the figures: avg with seed 0 (at round 0).",
    )
    assert verdict(results) is None
    assert "The run is unfinished" in printed(table(results))


def test_the_main_metric_is_the_one_asked_for(make_run: Make) -> None:
    values = {"accuracy": [[0.5, 0.5]] * 2, "auc": [[0.7, 0.7]] * 2}
    assert read_results(make_run({"avg": {0: values}}, metric="auc")).metrics == ("auc", "accuracy")
    del values["auc"]
    wrong = read_results(make_run({"avg": {0: values}}, name="b", metric="auc"))
    assert wrong.metric == "accuracy"
    assert "'auc' was not measured; accuracy is shown" in wrong.warnings[0]


def test_no_metrics_at_all(make_run: Make) -> None:
    results = read_results(make_run({"avg": {0: {}}}))
    assert results.metric is None and as_rows(results) == []
    assert results.warnings == ("No metrics were measured: the parties have no test rows.",)


def test_the_verdict_on_a_gain(make_run: Make) -> None:
    """Gains by seed are 0.3, 0.4 and 0.5: 0.4 ± 0.1, and with t(2) = 4.303 the half interval is 0.248."""
    run = make_run(
        {
            "local": {s: {"accuracy": [[0.2, 0.4], [0.2, 0.4]]} for s in range(3)},
            "avg": {s: {"accuracy": [[0.2, 0.4], [0.8 + s / 5, 0.4]]} for s in range(3)},
            "uwa": {s: {"accuracy": [[0.2, 0.4], [0.2, 0.3]]} for s in range(3)},
        },
        seeds=3,
    )
    found = verdict(read_results(run))
    assert found is not None and found.own is None and not found.harm
    assert (found.method, found.candidates, found.everyone.over) == ("avg", 2, "seeds")
    assert found.everyone.mean == pytest.approx(0.4)
    assert found.everyone.interval == pytest.approx((0.4 - 0.2484, 0.4 + 0.2484), abs=1e-4)
    assert found.sentence.startswith(
        "Exchange helped: with avg, the parties' mean accuracy is 0.700"
    )
    assert found.per_party.endswith("in accuracy, by more than the standard error: 0 of 2.")


def test_harm_to_own_rows_is_said_whatever_happens_to_everyones(make_run: Make) -> None:
    """Own rows: -0.1 in every seed, at both parties; everyone's rows: +0.3."""
    metrics = {
        s: {
            "accuracy": [[0.2, 0.2], [0.5, 0.5 + s / 1000]],
            "accuracy_own": [[0.9, 0.8], [0.8, 0.7 + s / 1000]],
        }
        for s in range(3)
    }
    found = verdict(read_results(make_run({"avg": metrics}, seeds=3)))
    assert found is not None and found.harm
    assert found.opening == "Exchange did harm on own rows, and helped on everyone's rows"
    assert found.first.worse == ("a", "b")
    assert found.per_party == (
        "Worse off on own rows than alone, in accuracy, by more than the standard error: 2 of 2 (a, b)."
    )


def two_sides(own: float, everyone: float, loss: float = 0.0) -> dict[int, dict[str, object]]:
    """Three seeds in which both parties gain ``own`` and ``everyone`` in accuracy, and lose ``loss``."""
    return {
        s: {
            "accuracy": [[0.2, 0.2], [0.2 + everyone + s / 1000] * 2],
            "log_loss": [[2.0, 2.0], [1.0 + s / 1000] * 2],
            "accuracy_own": [[0.9, 0.9], [0.9 + own + s / 1000] * 2],
            "log_loss_own": [[0.1, 0.1], [0.1 + loss + s / 1000] * 2],
        }
        for s in range(3)
    }


def test_a_run_for_everyones_rows_is_judged_by_these(make_run: Make) -> None:
    """The demo's shape: +0.7 on everyone's rows, -0.1 on own ones. No party is sent back to 0.2."""
    values = {"avg": two_sides(-0.1, 0.7, 0.2)}
    results = read_results(make_run(values, seeds=3, purpose="everyone"))
    found = verdict(results)
    assert found is not None and not found.harm
    assert found.opening == "Exchange helped on everyone's rows, and did harm on own rows"
    figures = found.sentence.partition(": ")[2]
    assert figures.index("on everyone's rows is 0.901") < figures.index("on own rows 0.801")
    assert "(a change for the worse of 0.099" in figures and "on own rows 0.301" in figures
    assert found.sentence.endswith('The run is for everyone\'s rows (purpose = "everyone").')
    assert found.per_party.endswith(": 2 of 2 (a, b).")  # own rows are still counted
    first, second = party_sentences(results, found)
    assert first == (
        "a: better on everyone's rows (accuracy 0.200 → 0.901, log loss 2.000 → 1.001); own rows: "
        "accuracy 0.900 → 0.801, log loss 0.100 → 0.301."
    )
    assert "trained alone" not in first + second


def test_a_run_for_everyones_rows_says_where_these_came_out_worse(make_run: Make) -> None:
    """-0.1 on everyone's rows is harm, and a party is told so, whatever own rows gain."""
    results = read_results(
        make_run({"avg": two_sides(0.05, -0.1, -0.05)}, seeds=3, purpose="everyone")
    )
    found = verdict(results)
    assert found is not None and found.harm
    assert found.opening == "Exchange did harm on everyone's rows, and helped on own rows"
    first, _ = party_sentences(results, found)
    assert first.startswith("a: exchange made everyone's rows worse (accuracy 0.200 → 0.101, ")
    assert ": for everyone's rows, keep the model trained alone: consilience predict" in first


@pytest.mark.parametrize("purpose", ["own", "taught"])
def test_advice_to_go_back_says_what_it_costs(make_run: Make, purpose: str) -> None:
    """Own rows come first; what the model trained alone has on everyone's rows stands beside the advice."""
    values = {"avg": two_sides(-0.1, 0.7, 0.2)}
    results = read_results(make_run(values, seeds=3, purpose=purpose))
    found = verdict(results)
    assert found is not None and found.harm
    assert found.opening == "Exchange did harm on own rows, and helped on everyone's rows"
    first, _ = party_sentences(results, found)
    assert (
        "; everyone's rows: accuracy 0.200 → 0.901, log loss 2.000 → 1.001: for its own rows, keep"
        in first
    )


def test_worse_off_is_one_number_on_a_page(make_run: Make) -> None:
    """a loses in accuracy alone, b in log loss alone, c in neither: two of three, wherever it is counted."""
    metrics = {
        s: {
            "accuracy": [[0.8] * 3, [0.7, 0.9, 0.9]],
            "log_loss": [[0.5] * 3, [0.4, 0.6, 0.4]],
        }
        for s in range(3)
    }
    run = make_run({"avg": metrics}, seeds=3, parties="abc", rows=((9, 1),) * 3)
    results = read_results(run)
    found = verdict(results)
    assert found is not None
    page = write_report(run).read_text(encoding="utf-8")
    counts = re.findall(r"\d of 3", page + printed(table(results)) + found.per_party)
    assert len(counts) == 4 and {*counts} == {"2 of 3"}
    assert found.per_party == "Worse off than alone, in accuracy or log loss: 2 of 3 (a, b)."
    sentences = party_sentences(results, found)
    assert sum("keep the model trained alone" in one for one in sentences) == 2
    # In the mean both are better, and most parties are worse off all the same.
    assert found.harm and found.opening == (
        "Exchange did harm; in the mean accuracy is better, and most parties are worse off"
    )


def test_a_gain_in_log_loss_is_not_called_worse(make_run: Make) -> None:
    """Two of three parties lose a little log loss and one gains much: the mean is a gain."""
    metrics = {
        s: {
            "accuracy": [[0.8] * 3, [0.8] * 3],
            "log_loss": [[0.1, 0.1, 0.9], [0.11, 0.11, 0.2 + s / 100]],
        }
        for s in range(3)
    }
    found = verdict(
        read_results(make_run({"avg": metrics}, seeds=3, parties="abc", rows=((9, 1),) * 3))
    )
    assert found is not None and "a gain of" in found.sentence
    assert (
        "log loss is worse" not in found.opening and "most parties are worse off" in found.opening
    )


def test_harm_is_not_softened_where_the_mean_is_worse_too(make_run: Make) -> None:
    """Own rows lose 0.02 to 0.3, an interval that holds 0, at both parties; log loss is worse for certain."""
    values = {s: {} for s in range(3)}
    for seed, lost in enumerate((0.02, 0.2, 0.3)):
        values[seed] = two_sides(-lost, 0.7, 0.5)[seed]
    found = verdict(read_results(make_run({"avg": values}, seeds=3)))
    assert found is not None and found.own is not None and found.own.sign == 0
    assert found.opening == "Exchange did harm on own rows, and helped on everyone's rows"


def excluding(run: Path, party: str, round: int = 1) -> Path:
    """The run, whose teacher's notes name an excluded party in a round."""
    ledger = Ledger(run / "ledger.sqlite")
    said = f"{party} is excluded since round 1: its model agrees with 0% of its own claims"
    ledger.write("notes", [("avg", seed, round, said) for seed in (0, 1)])
    ledger.close()
    return run


def test_an_excluded_party_is_in_the_headline(make_run: Make) -> None:
    values = {s: {"accuracy": [[0.2, 0.2], [0.5 + s / 1000] * 2]} for s in range(3)}
    run = excluding(make_run({"avg": values, "uwa": values}, seeds=3, parties=("a", "a b")), "a b")
    results = read_results(run)
    assert results.missed("avg") == results.missed() == "excluded: a b" and not results.missed(
        "uwa"
    )
    found = verdict(results)
    assert found is not None and found.method == "avg"
    assert found.opening == "Exchange helped; excluded: a b"
    (warning,) = results.warnings
    assert warning == (
        "a b is excluded since round 1: its model agrees with 0% of its own claims (avg; seed 0, 1)."
    )
    assert warning in printed(table(results), 300)
    page = write_report(run).read_text(encoding="utf-8")
    assert "<strong>Exchange helped; excluded: a b</strong>" in page
    assert "No party failed" not in page
    assert "Excluded: a b; no exchange with the other parties failed." in page


HELPED = {s: {"accuracy": [[0.2, 0.2]] * 2 + [[0.5 + s / 1000] * 2]} for s in range(3)}
"""Accuracy of two parties alone, and after two rounds, with each of three seeds."""


def test_a_party_that_counted_again_at_the_end_is_no_longer_excluded(make_run: Make) -> None:
    run = excluding(make_run({"avg": HELPED}, seeds=3, protocol={"rounds": 2}), "b")
    found = verdict(read_results(run))
    assert found is not None and found.opening == "Exchange helped"
    page = write_report(run).read_text(encoding="utf-8")
    assert "(avg; seed 0, 1; it counted again in the last round)" in page
    assert "No party failed" not in page


def test_an_excluded_party_is_named_where_there_is_no_verdict(make_run: Make) -> None:
    page = write_report(excluding(make_run({"avg": {0: {}}}), "b")).read_text(encoding="utf-8")
    assert "<strong>Excluded: b.</strong>" in page and "No party failed" not in page


def test_a_party_that_is_gone_at_the_end_is_in_the_headline(make_run: Make) -> None:
    """b answers in round 1 and not in round 2; a is late once and back in the end."""

    def told(party: str, round: int, status: str = "ok", detail: str = "") -> Delivery:
        return Delivery(party, round, "PredictPublic", status, "", 10, 9, 0.1, detail)

    asked = [told("a", 1, "late", "no answer"), told("b", 1), told("a", 2)]
    asked.append(told("b", 2, "failed", "its model cannot be fitted"))
    run = make_run({"avg": HELPED}, seeds=3, protocol={"rounds": 2}, deliveries={"avg": asked})
    found = verdict(read_results(run))
    assert found is not None and found.opening == "Exchange helped; left out at the end: b"
    page = write_report(run).read_text(encoding="utf-8")
    assert "left out of 6 exchanges (listed below): a (3), b (3)." in page
    assert "No party failed" not in page


def test_harm_to_probabilities_alone_is_said(make_run: Make) -> None:
    """Accuracy is as before in every row; log loss rises by 0.2, 0.21 and 0.22 at both."""
    metrics = {
        s: {
            "accuracy": [[0.9, 0.8]] * 2,
            "log_loss": [[0.3, 0.3], [0.5 + s / 100] * 2],
            "accuracy_own": [[0.9, 0.9]] * 2,
            "log_loss_own": [[0.3, 0.3], [0.5 + s / 100] * 2],
        }
        for s in range(3)
    }
    found = verdict(read_results(make_run({"avg": metrics}, seeds=3)))
    assert found is not None and found.harm
    assert found.opening == (
        "Exchange did harm on own rows; harm to probabilities: on own rows accuracy shows no clear "
        "change, log loss is worse"
    )


def test_the_best_method_is_so_on_own_rows_and_everyones_together(make_run: Make) -> None:
    """avg: +0.30 and -0.20; uwa: +0.20 and 0."""
    alone = {"accuracy": [[0.2, 0.2]] * 2, "accuracy_own": [[0.9, 0.9]] * 2}
    avg = {"accuracy": [[0.2] * 2, [0.5] * 2], "accuracy_own": [[0.9] * 2, [0.7] * 2]}
    uwa = {"accuracy": [[0.2] * 2, [0.4] * 2], "accuracy_own": [[0.9] * 2] * 2}
    results = read_results(make_run({"local": {0: alone}, "avg": {0: avg}, "uwa": {0: uwa}}))
    found = verdict(results)
    assert found is not None and found.method == "uwa"
    text = printed(table(results))
    assert "own rows" in text and "everyone's rows" in text and "worse off" in text


@pytest.mark.parametrize(
    ("after", "opening"),
    [
        ([0.30, 0.30, 0.31], "No clear gain from exchange"),
        ([0.10, 0.11, 0.12], "Exchange did harm"),
        ([0.50, 0.51, 0.52], "Exchange helped"),
    ],
)
def test_the_verdict_does_not_flatter(make_run: Make, after: list[float], opening: str) -> None:
    """Alone it is 0.3; the first gains nothing twice and 0.01 once, well within its interval."""
    run = make_run(
        {"avg": {s: {"accuracy": [[0.3, 0.3], [v, v]]} for s, v in enumerate(after)}}, seeds=3
    )
    found = verdict(read_results(run))
    assert found is not None and found.opening == opening


def test_a_smaller_error_is_a_gain(make_run: Make) -> None:
    found = verdict(read_results(make_run({"avg": {0: {"mse": [[4.0, 2.0], [1.0, 1.0]]}}})))
    assert found is not None and found.everyone.mean == 2.0
    assert found.opening == "Better with exchange, in one seed"
    assert "a single seed does not say" in found.sentence


def test_a_party_with_more_rows_right_and_worse_probabilities_is_told_both(
    make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a: accuracy +0.1, log loss +0.2; b: accuracy -0.1; the command is as it has to be typed."""
    metrics = {
        s: {
            "accuracy": [[0.8, 0.8], [0.9 + s / 1000, 0.7]],
            "log_loss": [[0.3, 0.3], [0.5 + s / 1000, 0.3]],
        }
        for s in range(3)
    }
    run = make_run({"avg": metrics}, seeds=3)
    monkeypatch.chdir(run.parent.parent)
    results = read_results(run)
    found = verdict(results)
    assert found is not None
    first, second = party_sentences(results, found)
    words = "a: on its rows its accuracy better, its probabilities worse (accuracy 0.800 → 0.901, "
    assert first.startswith(words) and "if probabilities count, keep the model" in first
    assert second.startswith("b: exchange made its rows worse")
    typed = f"alone: consilience predict {run.parent.name}/run --party b DATA.csv --alone"
    assert second.endswith(typed)


def test_a_rare_class_brings_balanced_accuracy_into_the_table(make_run: Make) -> None:
    values = {"accuracy": [[0.9] * 2] * 2, "balanced_accuracy": [[0.5] * 2] * 2}
    for rows, shown in (((91, 9), True), ((89, 11), False)):
        run = make_run({"avg": {0: values}}, name=f"run{shown}", rows=(rows, (0, 0)))
        assert ("balanced_accuracy" in read_results(run).shown) is shown


def test_runs_side_by_side(make_run: Make) -> None:
    values = {"accuracy": [[0.2, 0.2], [0.5, 0.5]]}
    one = make_run({"local": {0: values}, "avg": {0: values}}, name="one")
    two = make_run({"avg": {0: {"accuracy": [[0.2, 0.2], [0.7, 0.7]]}}}, name="two")
    found = compare([one, two])
    assert found.warnings == ()
    assert {m: {r: v.mean for r, v in row.items()} for m, row in found.cells.items()} == {
        "local": {"one": 0.5},
        "avg": {"one": 0.5, "two": pytest.approx(0.7)},
    }
    assert "0.700 ± –" in printed(found.table())
    assert found.as_rows()[-1]["run"] == "two"


def test_runs_with_liars_are_headed_by_the_attack(make_run: Make) -> None:
    values = {"avg": {0: {"accuracy": [[0.2, 0.2], [0.5, 0.5]]}}}
    one = make_run(values, name="one")
    two = make_run(values, name="two", hostile={"attack": "lma", "parties": 2})
    found = compare([one, two])
    assert found.warnings == ()
    assert found.attacks == {"one": "nobody lies", "two": "lma, 2"}
    assert [row["attack"] for row in found.as_rows()] == ["nobody lies", "lma, 2"]
    assert "lma, 2" in printed(found.table())


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"rows": ((9, 1), (5, 5))}, "who holds what, with the same seed"),
        ({"seeds": [0, 7]}, "its seeds (0, 7 against 0)"),
        ({"versions": {"python": "3.13.0"}}, "versions: python 3.13.0 against 3.12.0"),
        ({"data": {"name": "digits", "public": 200}}, "its data"),
        ({"models": [{"name": "knn"}]}, "its models"),
        ({"protocol": {"rounds": 2}}, "its rounds (2 against 1)"),
        ({"robustness": {"watch": False}}, "its protection from liars ([robustness])"),
    ],
)
def test_an_unfair_comparison_is_said(
    make_run: Make, change: dict[str, object], warning: str
) -> None:
    def values(rounds: int) -> dict[str, object]:
        return {"avg": {0: {"accuracy": [[0.2, 0.2]] * (rounds + 1)}}}

    one = make_run(values(1), name="one")
    two = make_run(values(2 if "protocol" in change else 1), name="two", **change)
    assert f"two differs from one in {warning}." in compare([one, two]).warnings


def test_what_is_no_run_is_refused(tmp_path: Path, make_run: Make) -> None:
    with pytest.raises(InvalidInput, match=r"no config\.json"):
        read_results(tmp_path)
    run = make_run({"avg": {0: {}}})
    with pytest.raises(InvalidInput, match="none of the runs"):
        compare([run])
    with pytest.raises(InvalidInput, match="no runs"):
        compare([])
    (run / "ledger.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(RunFailed, match="damaged"):
        read_results(run)


def test_a_configuration_survives_being_written_as_toml() -> None:
    document = {
        "name": "n",
        "seeds": [3, 5],
        "methods": ["local", {"aggregate": "suwa", "temperature": 0.1, "label": 'a "b" \\ é'}],
        "data": {"name": "digits", "public": 0.2, "flat": True},
        "partition": {"name": "dirichlet", "parties": 4, "alpha": 1e-5},
        "models": [{"name": "knn", "n_neighbors": 3}, {"name": "naive-bayes"}],
        "protocol": {"rounds": 3, "consensus": {"name": "damped"}},
    }
    spec = parse_spec(document, where="test")
    assert parse_spec(tomllib.loads(to_toml(spec)), where="test") == spec

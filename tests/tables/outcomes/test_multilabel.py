"""Several labels on one simplex: coding, answers and metrics, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.metrics.metrics import outcome_scores
from consilience.core.numerics.outcomes import outcome_of
from consilience.tables.outcomes.several_labels import MultiLabel, known_pairs

TWO = MultiLabel(["cough", "fever"])


def test_a_mean_over_parties_is_the_mean_over_those_that_know_the_label():
    """Party 2 knows nothing of fever: what the others say of it is untouched by what 2 says of cough."""
    said = np.array(
        [[0.4, 0.1, 0.1, 0.4, 0.0], [0.1, 0.4, 0.0, 0.0, 0.5], [0.25, 0.25, 0.3, 0.2, 0.0]]
    )
    np.testing.assert_allclose(TWO.answers(said.mean(axis=0)[None]), [[(0.8 + 0.2 + 0.5) / 3, 0.4]])


def test_what_is_known_comes_back():
    y = TWO.read(
        pd.DataFrame({"fever": ["yes", "no", None], "cough": [True, False, True]}), where=""
    )
    np.testing.assert_array_equal(y, [[1, 1], [0, 0], [1, np.nan]])
    coded = TWO.targets(y, own=y)
    np.testing.assert_array_equal(coded.sum(axis=1), 1)
    np.testing.assert_array_equal(TWO.answers(coded), [[1, 1], [0, 0], [1, 0.5]])
    pairs, known = known_pairs(coded)
    assert known.tolist() == [[True, True], [True, True], [True, False]]
    assert pairs[1].tolist() == [[0, 1], [0, 1]]


def test_a_table_may_lack_a_label_altogether():
    y = TWO.read(pd.DataFrame({"fever": [1, 0]}), where="")
    assert np.isnan(y[:, 0]).all() and y[:, 1].tolist() == [1, 0]
    assert TWO.targets(y, own=y).tolist() == [[0, 0, 0.5, 0, 0.5], [0, 0, 0, 0.5, 0.5]]


def test_metrics_by_hand():
    """Row 1 is right in both labels, row 2 in one; of row 3 fever alone is known, and wrong."""
    y = np.array([[1, 0], [0, 1], [np.nan, 0]])
    p = np.array([[0.8, 0.4], [0.5, 0.9], [0.1, 0.6]])
    outputs = np.column_stack([p[:, 0], 1 - p[:, 0], p[:, 1], 1 - p[:, 1], np.zeros(3)]) / 2
    scores = outcome_scores(TWO, outputs, y)
    loss = [-np.log([0.8, 0.6]).mean(), -np.log([0.5, 0.9]).mean(), -np.log(0.4)]
    np.testing.assert_allclose(scores["log_loss"], loss)
    assert scores["hamming_loss"].tolist() == [0, 0.5, 1]
    assert scores["subset_accuracy"].tolist() == [1, 0, 0]
    further = TWO.further(outputs, y, np.ones(3))
    assert further == {"macro_auc": 1.0, "macro_average_precision": 1.0}
    assert TWO.further(outputs, y, np.array([1.0, 0, 0])) == {}


def test_a_label_that_is_not_known_costs_nothing_whatever_is_said_of_it():
    """Of cough the row has it, said with 0.8; a teacher's 0.75 costs 0.75 ln(1/0.8) + 0.25 ln 5."""
    targets = TWO.coded([[1, np.nan], [0.75, np.nan]])
    for fever in (np.nan, 0.1):
        losses = TWO.row_losses(TWO.coded([[0.8, fever]] * 2), targets)
        assert losses == pytest.approx([-np.log(0.8), -0.75 * np.log(0.8) + 0.25 * np.log(5)])


def test_the_rarest_label_divides_rows():
    y = np.array([[1, 1], [1, 0], [0, 0], [1, np.nan]])
    assert TWO.strata(y).tolist() == ["fever", "cough", "", "cough"]


def test_its_key_says_it():
    again = outcome_of(TWO.key)
    assert isinstance(again, MultiLabel) and again.columns == TWO.columns
    assert again.classes == tuple(sorted(again.classes))


@pytest.mark.parametrize(
    "y, why",
    [
        ([1, 0], "shape"),
        ([[1, 0, 1]], "a column for each of the 2 labels"),
        ([[1, 2]], "label 'fever' is 2"),
        ([[1, "perhaps"]], "label 'fever' is 'perhaps'"),
        ([[1, 0], [None, np.nan]], "of 1 of 2 rows no label is known"),
        (pd.DataFrame({"fevre": [1]}), "no label 'fevre'(.|\n)*'fever'"),
    ],
)
def test_what_is_no_label_is_refused(y, why):
    with pytest.raises(InvalidInput, match=why):
        TWO.read(y, where="here")


@pytest.mark.parametrize("labels", [[], ["a", "a"], [""], [f"l{i}" for i in range(201)]])
def test_labels_that_cannot_be(labels):
    with pytest.raises(InvalidInput, match="labels are"):
        MultiLabel(labels)
    with pytest.raises(InvalidInput):
        outcome_of('{"labels": 3}')


def test_a_party_has_to_have_something_to_learn():
    with pytest.raises(InvalidInput, match="nothing can be learned"):
        TWO.check_own(np.array([[1, np.nan], [1, 0]]), where="party")

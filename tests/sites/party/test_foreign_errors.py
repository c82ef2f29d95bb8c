"""Errors of foreign code quote private rows: their class and our line leave a party, their words never."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

import consilience
from consilience import Frozen, Party
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.tasks.foreign_errors import without_foreign_words
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.outgoing import answer, failure_of
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.sites.party import AUDIT, EVERYTHING, PartySite, read_log
from helpers.party_rules import set_rules
from helpers.party_sites import ask

ROW = "Jane Doe, 1977-03-05, HIV positive"
"""A private row, as a model quotes it."""
PUBLIC = Public(np.linspace(0, 1, 8)[:, None])
X, Y = np.linspace(0, 1, 12)[:, None], np.array(["no", "yes"] * 6)


class Quoting(ClassifierMixin, BaseEstimator):
    """A model that fails and quotes a row, when it is fitted or when it predicts."""

    def __init__(self, when: str = "fit", how: str = "raise") -> None:
        self.when, self.how = when, how

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Quoting:
        self.classes_ = np.unique(y)
        if self.when == "fit" and len(X) > 4:  # not when it is tried out by a few rows
            quote(self.how)
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        if self.when == "predict" and len(X) == len(PUBLIC):
            quote(self.how)
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def quote(how: str) -> None:
    if how == "own class":  # foreign code may import our errors
        raise InvalidInput(f"row {ROW}", where=ROW, mend=ROW)
    if how == "cause":
        try:
            raise KeyError(ROW)
        except KeyError as error:
            raise InvalidInput(f"no such key: {error}") from error
    if how == "lines":
        raise ValueError(f"cannot convert\n{ROW}\n")
    raise ValueError(f"could not convert string to float: '{ROW}'")


def party_of(model: Any) -> Party:
    party = Party("north", model, X, Y)
    party.hold_public(PUBLIC)
    return party


def agreed(model: Any = None) -> Any:
    one, other = party_of(model or GaussianNB()), Party("south", GaussianNB(), X, Y)
    other.hold_public(PUBLIC)
    return negotiate([Describe().run(one), Describe().run(other)], PUBLIC)


def tells(*texts: str | bytes) -> bool:
    """Tell whether a text holds a piece of the row."""
    pieces = [ROW[start : start + 8] for start in range(len(ROW) - 7)]
    plain = [one.decode(errors="replace") if isinstance(one, bytes) else one for one in texts]
    return any(piece in text for piece in pieces for text in plain)


@pytest.mark.parametrize("how", ["raise", "own class", "cause", "lines"])
@pytest.mark.parametrize("when", ["fit", "predict"])
def test_what_a_model_says_stays_in_a_private_file(when: str, how: str, tmp_path: Path) -> None:
    with PartySite(lambda: party_of(Quoting(when, how)), tmp_path, limits=EVERYTHING) as site:
        answers = [
            site.answer(encode(tasks))
            for tasks in ([Join(agreement=agreed())], [FitPrivate(round=1), PredictPublic(round=1)])
        ]
        (failure,) = decode(answers[1])
    assert isinstance(failure, Failure) and not tells(*answers)
    assert re.search(r"(Value|Key)Error|InvalidInput", failure.reason)
    file, line = re.search(r" at (consilience/[\w/]+\.py):(\d+)", failure.reason).groups()  # type: ignore[union-attr]
    code = (Path(consilience.__file__).parents[1] / file).read_text().splitlines()[int(line) - 1]
    assert re.search(r"fit|predict", code)  # where our code called the model
    assert failure.mend == "The party's own log has its words."
    log = tmp_path / AUDIT
    assert ROW in read_log(log).entries[-1]["detail"]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("returned", ["labels", "probabilities", "classes"])
def test_what_a_model_returns_is_not_quoted_outside(returned: str) -> None:
    class Returning(Quoting):
        def predict(self, X: Any) -> Any:
            return np.full(len(X), ROW)

        def predict_proba(self, X: Any) -> Any:
            if returned == "classes":
                self.classes_ = [ROW, ROW[::-1]]
            return np.full((len(X), 2), 1977.03 if returned == "probabilities" else 0.5)

    class Labels(Returning):
        predict_proba = property()  # type: ignore[assignment]

    model = (Labels if returned == "labels" else Returning)("never")
    party = party_of(model)
    assert not isinstance(answer(party, [Join(agreement=agreed())]), Failure)
    set_rules(party, redact_errors=True)
    failure = answer(party, [FitPrivate(round=1), PredictPublic(round=1)])
    assert isinstance(failure, Failure) and "ForeignValue" in failure.reason
    assert not tells(failure.reason, failure.mend) and "1977" not in failure.reason
    assert "1977" in party.outbox.withheld or ROW[:8] in party.outbox.withheld


def test_what_an_answering_function_says_stays() -> None:
    def failing(rows: Any) -> Any:
        raise TypeError(f"unhashable: {ROW}")

    model = Frozen(failing, classes=["no", "yes"])
    party = party_of(model)
    set_rules(party, redact_errors=True)
    assert not isinstance(answer(party, [Join(agreement=agreed(model))]), Failure)
    failure = answer(party, [PredictPublic(round=1)])
    assert isinstance(failure, Failure) and not tells(failure.reason, failure.mend)
    assert "TypeError at consilience/models/fixed.py:" in failure.reason
    assert ROW in party.outbox.withheld


def test_a_party_that_cannot_be_made_says_no_more(tmp_path: Path) -> None:
    def make() -> Party:
        raise ValueError(f"line 7 of patients.csv: {ROW}")

    with PartySite(make, tmp_path, name="north") as site:
        failure = ask(site, Describe())
    assert not tells(failure.reason, failure.mend) and "ValueError" in failure.reason
    assert ROW in read_log(tmp_path / AUDIT).entries[-1]["detail"]


def test_a_refusal_after_it_does_not_repeat_the_words(tmp_path: Path) -> None:
    """The log's line of each request has its own words."""
    with PartySite(lambda: party_of(Quoting()), tmp_path, limits=EVERYTHING) as site:
        ask(site, Join(agreement=agreed()))
        ask(site, FitPrivate(round=1))
        failure = ask(site, FitPrivate(round=0))
    assert failure.kind == "refused"
    assert read_log(tmp_path / AUDIT).entries[-1]["detail"] == failure.reason


def test_in_a_simulation_the_words_are_read() -> None:
    """Whoever asks there holds the rows, and has to mend the model."""
    party = party_of(Quoting())
    answer(party, [Join(agreement=agreed())])
    failure = answer(party, [FitPrivate(round=1)])
    assert isinstance(failure, Failure) and ROW in failure.reason


def wrapped(text: str, of: Exception, *, cause: bool = True, **said: str) -> Exception:
    """An error of ours that was made of another one, here as if our own code had raised it."""
    made = RunFailed(text, **said)
    made.__cause__, made.__context__ = (of, of) if cause else (None, of)
    return made


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (wrapped("no state (x)", RunFailed("x")), "no state (x)"),  # all are ours
        (wrapped(f"cannot fit: {ROW}", ValueError(ROW)), "cannot fit: ValueError"),
        (wrapped(f"cannot fit: {ROW}", ValueError(ROW), cause=False), "cannot fit: ValueError"),
        (wrapped(f"cannot: {ROW[:20]} …", ValueError(ROW)), "ValueError"),
        (wrapped(f"cannot:{ROW}", ValueError(ROW)), "cannot:ValueError"),
        (wrapped("cannot: 7", KeyError(7)), "cannot: KeyError"),
        (wrapped("17 rows", KeyError(7)), "17 rows"),
        (wrapped("no", ValueError(ROW), where=f"file {ROW}"), "file ValueError: no"),
        (wrapped("disk (No space left on device)", OSError(28, "No space left on device", "/x")),
         "disk (No space left on device)"),
        (wrapped("disk (Jane Doe's file)", OSError(28, "Jane Doe's file")), "disk (OSError)"),
        (KnowledgeRefused("no", mend="Do."), "no"),
        (ZeroDivisionError(ROW), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_our_words_stay_and_theirs_do_not(error: Exception, said: str) -> None:
    failure = failure_of("north", error)
    assert failure.reason == said and not tells(failure.reason, failure.mend)


def test_the_kind_and_the_code_stay() -> None:
    error = wrapped(f"cannot: {ROW}", ValueError(ROW))
    error.code = "budget"  # type: ignore[attr-defined]
    found = without_foreign_words(error)
    assert type(found) is RunFailed and found.code == "budget"
    failure = failure_of("north", error, discreet=True)  # a code speaks with a budget too
    assert not tells(failure.reason) and failure.code == "budget"

"""Errors that cross processes whole and name what is nearest."""

from __future__ import annotations

import copy

import pytest

from consilience.core.errors import (
    ConsilienceError,
    InvalidInput,
    KnowledgeRefused,
    MissingExtra,
    QuorumLost,
    RunFailed,
    nearest,
)
from consilience.models import ForeignCode


@pytest.mark.parametrize("kind", [InvalidInput, KnowledgeRefused, QuorumLost, RunFailed])
def test_an_error_says_where_what_and_how_to_mend(kind):
    error = kind("it is wrong", where="party 'a'", mend="Do this.")
    assert str(error) == "party 'a': it is wrong\n  Do this."
    assert str(kind("it is wrong")) == "it is wrong"


def test_copying_keeps_all_of_it():
    """Errors are sent between processes by what __reduce__ says, as copies are made."""
    error = copy.copy(InvalidInput("w", where="x", mend="m"))
    assert (type(error), error.what, error.where, error.mend) == (InvalidInput, "w", "x", "m")


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("w", where="x", mend="m", code="not-joined"),
        MissingExtra("torch", extra="torch", where="x"),
        ForeignCode("mine:Model"),
    ],
)
def test_an_error_is_located_whatever_its_constructor_takes(error):
    found = error.located("method 'uwa', seed 0")
    assert type(found) is type(error)
    assert found.where == f"method 'uwa', seed 0: {error.where}"
    assert (found.what, found.mend, found.code) == (error.what, error.mend, error.code)
    assert str(found).startswith(f"{found.where}: {error.what}")


def test_what_the_command_line_makes_of_them():
    assert (InvalidInput.exit_code, RunFailed.exit_code) == (2, 1)
    assert issubclass(InvalidInput, ValueError) and issubclass(InvalidInput, ConsilienceError)


def test_a_missing_extra_names_its_command():
    error = MissingExtra("torch", extra="torch")
    assert "pip install 'consilience[torch]'" in str(error)
    assert isinstance(error, ImportError)


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("uwaa", ["uwa", "avg"], "Did you mean 'uwa'?"),
        ("Round", ["rounds"], "Did you mean 'rounds'?"),
        ("DOG", ["Dog", "Cat"], "Did you mean 'Dog'?"),
        ("zzz", ["b", "a"], "Known: a, b."),
    ],
)
def test_the_nearest_known_word(word, known, said):
    assert nearest(word, known) == said

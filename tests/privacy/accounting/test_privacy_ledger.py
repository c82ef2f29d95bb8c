"""The ledger of releases: nothing is spent twice, and nothing is forgotten."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import RunFailed
from consilience.core.files import write_whole
from consilience.privacy.accounting import ledger as privacy_ledger
from consilience.privacy.accounting.ledger import PrivacyLedger, Release, entries
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.accounting.stage import Accountant


def named(question: str, mu: float = 0.3) -> Release:
    return Release.of("sums", (question,), PrivacyLoss(mu))


def kept(folder: Path) -> Accountant:
    accountant = Accountant()
    accountant.keep_in(PrivacyLedger(folder))
    return accountant


def closed(accountant: Accountant) -> None:
    assert accountant._ledger is not None
    accountant._ledger.close()


def test_what_was_released_is_released_again_by_whoever_opens_the_ledger(tmp_path: Path) -> None:
    first = kept(tmp_path / "ledger")
    drawn = first.release(named("q"), lambda: np.arange(3))
    first.release(named("free", 0.0), lambda: np.zeros(1))  # costs nothing, and is not written
    closed(first)
    again = kept(tmp_path / "ledger")
    np.testing.assert_array_equal(again.release(named("q"), lambda: np.zeros(3)), drawn)
    again.release(named("r", 0.4), lambda: np.ones(2))
    assert again.spent.mu == pytest.approx(0.5)
    again.clear()  # as before a state is restored
    assert again.spent.mu == pytest.approx(0.5)
    assert [one["kind"] for one in entries(tmp_path / "ledger")] == ["sums", "sums"]


def test_two_cannot_spend_at_once(tmp_path: Path) -> None:
    first = PrivacyLedger(tmp_path)
    with pytest.raises(RunFailed, match="another process spends"):
        PrivacyLedger(tmp_path)
    first.close()
    PrivacyLedger(tmp_path).close()


def without_last_line(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))


def another_cost(folder: Path) -> None:
    file = folder / "ledger.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"mu": 0.3', b'"mu": 0.1', 1))


def torn(folder: Path) -> None:
    file = folder / "ledger.jsonl"
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda folder: (folder / "ledger.jsonl").unlink(), "lacks its line"),
        (without_last_line, "lacks its line"),
        (another_cost, "line 2 does not follow"),
        (torn, "its last line is not whole"),
        (lambda folder: (folder / named("q").digest).unlink(), "values of a release are gone"),
        (lambda folder: (folder / named("q").digest).write_bytes(b"x"), "values of a release"),
    ],
)
def test_a_ledger_that_was_cut_or_changed_is_not_taken_up(tmp_path: Path, harm, why: str) -> None:
    ledger = PrivacyLedger(tmp_path)
    for question in ("q", "r"):
        ledger.add(named(question), np.zeros(2))
    ledger.close()
    harm(tmp_path)
    with pytest.raises(RunFailed, match=why):
        PrivacyLedger(tmp_path)
    with pytest.raises(RunFailed, match=why):  # and the lock was let go
        PrivacyLedger(tmp_path)


def test_a_state_that_knows_more_than_the_ledger_shows_that_it_was_set_back(tmp_path: Path) -> None:
    accountant = kept(tmp_path / "one")
    accountant.release(named("q"), lambda: np.zeros(2))
    state = accountant.arrays()
    with pytest.raises(RunFailed, match="cut or set back"):
        kept(tmp_path / "another").restore(state)


def spend(folder: Path, step: int) -> None:
    """Add a release, and be killed right after so many files were written."""
    written = 0

    def write(*args, **options) -> None:
        nonlocal written
        write_whole(*args, **options)
        written += 1
        if written == step:
            os.kill(os.getpid(), signal.SIGKILL)

    privacy_ledger.write_whole = write
    PrivacyLedger(folder).add(named("q"), np.ones(2))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_killed_at_every_step(tmp_path: Path, step: int) -> None:
    """Values without their line never left, and are drawn anew; with their line they are what leaves."""
    process = multiprocessing.get_context("fork").Process(target=spend, args=(tmp_path, step))
    process.start()
    process.join()
    ledger = PrivacyLedger(tmp_path)
    assert len(ledger.released) == (0 if step == 1 else 1)
    accountant = Accountant()
    accountant.keep_in(ledger)
    values = accountant.release(named("q"), lambda: np.zeros(2))
    np.testing.assert_array_equal(values, np.zeros(2) if step == 1 else np.ones(2))
    assert accountant.spent.mu == pytest.approx(0.3) and len(entries(tmp_path)) == 1

"""The log says what left; it is mended aloud, and does not hide what was done to it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import RunFailed
from consilience.core.messages.replies import Predictions
from consilience.core.messages.scores import RowCount
from consilience.core.messages.wire import decode
from consilience.core.tasks.lifecycle import Join
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.core.tasks.requests import sent_through, write_request
from consilience.core.tasks.scores import CountRows
from consilience.methods.compression.codec import chain, quantized, zstd
from consilience.methods.compression.stage import Compressed, Compression
from consilience.sites.party import AUDIT, AuditLog, PartySite, read_log, read_session
from consilience.sites.party.audit import BEGINNING, contents
from helpers.party_sites import agreement, ask, one_party, requests


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three lines."""
    path = tmp_path / AUDIT
    written = AuditLog(path)
    for number in range(3):
        written.append(round=number, tasks="FitPrivate", detail="ü" * number)
    return path


def test_what_a_party_writes_of_what_leaves(tmp_path: Path) -> None:
    asked = requests(1)
    with PartySite(one_party, tmp_path) as site:
        replies = [site.answer(request) for request in asked]
    entries = read_log(tmp_path / AUDIT).entries
    assert [entry["tasks"] for entry in entries] == [
        "Describe",
        "Join",
        "FitPrivate+CountRows+PredictPublic",
        "Distill",
        "Checkpoint",
    ]
    assert [entry["bytes"] for entry in entries] == [len(reply) for reply in replies]
    for entry, request, reply in zip(entries, asked, replies, strict=True):
        assert entry["sha256"] == hashlib.sha256(reply).hexdigest()
        assert entry["asked"] == hashlib.sha256(request).hexdigest()
        assert entry["left"] == contents(decode(reply))
    assert {"name": "Predictions.values", "type": "float32", "shape": [20, 3]} in entries[2]["left"]
    assert {"name": "RowCount.rows", "type": "int"} in entries[2]["left"]


def test_compressed_replies_are_named_as_they_were_before(tmp_path: Path) -> None:
    """Bytes and digest are those of what left; so too where an answer is given again, by another process."""
    tasks = (PredictPublic(round=1), CountRows(round=1))
    stage = Compression(chain(quantized(8), zstd()))
    request = write_request(sent_through([stage], tasks, agreement()))
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=1))
        reply = site.answer(request)
    with PartySite(one_party, tmp_path) as site:
        assert site.answer(request) == reply
    assert type(decode(reply)[-1]) is Compressed
    for entry, status in zip(
        read_log(tmp_path / AUDIT).entries[-2:], ("ok", "repeated"), strict=True
    ):
        table = {"name": "Predictions.values", "type": "float32", "shape": [20, 3]}
        assert table in entry["left"] and {"name": "RowCount.rows", "type": "int"} in entry["left"]
        assert not any(part["name"].startswith("Compressed") for part in entry["left"])
        assert (entry["status"], entry["bytes"]) == (status, len(reply))
        assert entry["sha256"] == hashlib.sha256(reply).hexdigest()


def test_every_field_is_named() -> None:
    """Numbers of every depth; what they are is not repeated in the log."""
    values = np.zeros((2, 3), dtype=np.float32)
    said = Predictions(
        party="a", round=1, kind="logits", classes=("x", "y", "z"), public="k", values=values
    )
    found = contents([said, RowCount(party="a", round=1, rows=7)])
    assert found[3:6] == [
        {"name": "Predictions.classes", "type": "text", "shape": [3]},
        {"name": "Predictions.public", "type": "text"},
        {"name": "Predictions.values", "type": "float32", "shape": [2, 3]},
    ]
    assert "7" not in json.dumps(found[-1])


def test_the_chain(log: Path) -> None:
    found = read_log(log)
    assert (found.faults, found.notes) == ((), ())
    lines = log.read_bytes().splitlines()
    before = [BEGINNING, *(hashlib.sha256(line).hexdigest() for line in lines)]
    assert [entry["before"] for entry in found.entries] == before[:3]
    assert found.head == before[3]


def changed(log: Path) -> None:
    log.write_text(log.read_text().replace('"round":1', '"round":7'))


def removed(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + lines[2])


def moved(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[1] + lines[0] + lines[2])


def inserted(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + lines[0] + lines[1] + lines[2])


def garbled(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + "nothing\n" + lines[1] + lines[2])


def the_last(log: Path) -> None:
    log.write_text(log.read_text().replace('"round":2', '"round":7'))


@pytest.mark.parametrize(
    ("how", "sealed"),
    [(changed, 1), (removed, 0), (moved, 0), (inserted, 0), (garbled, 1), (the_last, 2)],
)
def test_whoever_touches_it_breaks_it(log: Path, how, sealed: int) -> None:
    """A line that is not followed may be the one that was changed: it is not among those that hold."""
    assert read_log(log).sealed == 3
    how(log)
    found = read_log(log)
    assert found.faults and found.sealed == sealed


def test_a_shortened_log_is_known_by_the_state(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        for request in requests(2):
            site.answer(request)
    session, log = read_session(tmp_path), tmp_path / AUDIT
    assert session is not None
    assert read_log(log, written_after=session.audit).faults == ()
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-3]))
    log.with_suffix(".next").unlink()
    assert read_log(log).faults == ()
    (fault,) = read_log(log, written_after=session.audit).faults
    assert "lines are missing" in fault


def test_a_torn_line_is_mended_aloud_wherever_it_is_torn(log: Path) -> None:
    """At every byte of the last line, and again at every byte of the line that mends it."""
    whole, announced = log.read_bytes(), log.with_suffix(".next").read_bytes()

    def opened(content: bytes, announced: bytes) -> list[int | None]:
        log.write_bytes(content)
        log.with_suffix(".next").write_bytes(announced)
        AuditLog(log).append(round=9)
        found = read_log(log)
        assert found.faults == () and len(found.notes) == 1 and "the power failed" in found.notes[0]
        return [entry.get("round") for entry in found.entries]

    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last + 1, len(whole)):
        assert opened(whole[:cut], announced) == [0, 1, None, 2, 9], cut
    log.write_bytes(whole[:-5])
    log.with_suffix(".next").write_bytes(announced)
    AuditLog(log)
    mended, again = log.read_bytes(), log.with_suffix(".next").read_bytes()
    added = mended.rindex(b"\n", 0, -1) + 1
    for cut in range(len(whole) - 4, added + 1):
        assert opened(mended[:cut], announced) == [0, 1, None, 2, 9], cut
    assert opened(mended[:added], again) == opened(mended, again) == [0, 1, None, 2, 9]


def test_a_line_that_is_cut_from_the_end_is_added_again(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    found = read_log(log)
    assert found.faults == () and "still to be added, or was cut off" in found.notes[0]
    AuditLog(log)
    assert log.read_bytes() == whole
    assert read_log(log).notes == ()


@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_was_cut_further_is_not_taken_up(log: Path, left: int) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:left]))
    assert "lines are missing" in read_log(log).faults[0]
    with pytest.raises(RunFailed, match="its audit log is not whole: lines are missing"):
        AuditLog(log)


def test_a_log_is_held_against_the_state_when_a_site_opens(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        for request in requests(1):
            site.answer(request)
    log = tmp_path / AUDIT
    log.with_suffix(".next").unlink()
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(RunFailed, match="when the party's state was written"):
        PartySite(one_party, tmp_path)


def test_a_mend_cannot_hide_a_line(log: Path) -> None:
    """Who spoils a line and forges the words of a mend has to break the chain behind it."""
    lines = log.read_bytes().splitlines(keepends=True)
    torn = lines[1][:-9] + b" (torn)\n"
    forged = json.loads(lines[1]) | {
        "status": "mended",
        "torn": hashlib.sha256(torn).hexdigest(),
    }
    log.write_bytes(lines[0] + torn + json.dumps(forged).encode() + b"\n" + lines[2])
    assert read_log(log).faults


def test_long_lines_are_found_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / AUDIT
    for _ in range(3):
        AuditLog(path, tail=64).append(detail="x" * 200)
    assert read_log(path).faults == ()
    assert read_log(tmp_path / "none").entries == ()

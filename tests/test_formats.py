"""Every kind of stored file carries the format number; another one is refused with both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from consilience import __version__
from consilience.core.errors import RunFailed
from consilience.core.files import FORMAT, check_format
from consilience.core.messages.columns import Column, Schema
from consilience.core.tasks.lifecycle import Join
from consilience.lab.cli.check_table import _read_schema, _write_schema
from consilience.lab.config.reading import stored_spec
from consilience.lab.runs.folder import store_configuration
from consilience.lab.runs.ledger import Ledger
from consilience.privacy.accounting.ledger import PrivacyLedger, Release, entries
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.sites.operations.invitation import Invitation, read_invitation
from consilience.sites.party import PartySite, read_session
from consilience.sites.party.privacy_limits import whole_ledger
from helpers.command_line import CONFIG
from helpers.configurations import spec_with
from helpers.party_sites import agreement, ask, one_party

Change = Callable[[Path, int | None], None]


def in_json(path: Path, number: int | None) -> None:
    """Put another number into a JSON document, or none."""
    document = json.loads(path.read_text())
    assert document.pop("format") == FORMAT
    changed = document if number is None else {**document, "format": number}
    path.write_text(json.dumps(changed) + "\n")


def in_sqlite(path: Path, number: int | None) -> None:
    """Put another number into an SQLite file; 0 is that of files that nobody has numbered."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        connection.execute(f"PRAGMA user_version = {number or 0}")


@dataclass(frozen=True)
class Kind:
    """A kind of stored file: ``make`` gives its path, ``openings`` are all that open it."""

    make: Callable[[Path], Path]
    openings: tuple[Callable[[Path], object], ...]
    change: Change = in_json


def state(folder: Path) -> Path:
    party = one_party()
    party.join(agreement())
    party.write_state(folder)
    return folder / "state.json"


def read_party_state(path: Path) -> None:
    party = one_party()
    party.join(agreement())
    party.read_state(path.parent)


def home(folder: Path) -> Path:
    with PartySite(one_party, folder) as site:
        ask(site, Join(agreement=agreement()))
    (path,) = folder.glob("state-*/state.json")
    return path


def simulated(folder: Path) -> Path:
    store_configuration(folder, "simulated", spec_with(CONFIG))
    return folder / "config.json"


def run_ledger(folder: Path) -> Path:
    Ledger.begin(folder / "ledger.sqlite")
    return folder / "ledger.sqlite"


def privacy_ledger(folder: Path) -> Path:
    ledger = PrivacyLedger(folder)
    ledger.add(Release.of("sums", ("q",), PrivacyLoss(0.3)), np.zeros(2))
    ledger.close()
    return folder / "ledger.jsonl"


def invitation(folder: Path) -> Path:
    facts = {"federation": "heart", "party": "north", "address": "a.example.org:9092"}
    made = Invitation.new(3, certificate="-----BEGIN CERTIFICATE-----", **facts)
    made.write(folder / "north.json")
    return folder / "north.json"


def schema(folder: Path) -> Path:
    _write_schema(Schema((Column("age"), Column("pressure"))), folder / "schema.json")
    return folder / "schema.json"


KINDS = {
    "state": Kind(state, (read_party_state,)),
    "home": Kind(
        home,
        (
            lambda path: read_session(path.parent.parent),
            lambda path: whole_ledger(path.parent.parent, path.parent.parent / "privacy"),
        ),
    ),
    "simulated run": Kind(simulated, (lambda path: stored_spec(path.parent),)),
    "run ledger": Kind(
        run_ledger,
        (lambda path: Ledger(path), lambda path: Ledger(path, read_only=True)),
        in_sqlite,
    ),
    "privacy ledger": Kind(
        privacy_ledger,
        (
            lambda path: PrivacyLedger(path.parent).close(),
            lambda path: PrivacyLedger(path.parent, shared=True).close(),
            lambda path: entries(path.parent),
        ),
    ),
    "invitation": Kind(invitation, (read_invitation,)),
    "schema": Kind(schema, (_read_schema,)),
}


@pytest.mark.parametrize(("number", "said"), [(FORMAT + 1, FORMAT + 1), (None, "missing")])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_another_number_is_refused_with_both(
    tmp_path: Path, kind: Kind, number: int | None, said: object
) -> None:
    path = kind.make(tmp_path)
    for read in kind.openings:
        read(path)
    kind.change(path, number)
    for read in kind.openings:
        with pytest.raises(RunFailed) as refused:
            read(path)
        assert refused.value.what == (
            f"its format number is {said}, and this version of consilience reads format {FORMAT} alone"
        )
        assert refused.value.where == str(path)
        assert str(refused.value.mend).startswith("Go on with it by consilience ")


@pytest.mark.parametrize("number", [True, str(FORMAT), float(FORMAT), [FORMAT], {}])
def test_what_is_no_number_counts_as_none(tmp_path: Path, number: object) -> None:
    with pytest.raises(RunFailed, match="its format number is missing"):
        check_format({"format": number}, tmp_path, anew="start anew")
    check_format({"format": FORMAT}, tmp_path, anew="start anew")


@pytest.mark.parametrize("writer", ["0.9.1", "9" * 999, 7, None, __version__])
def test_the_version_that_wrote_the_file_is_named_if_the_file_has_it(
    tmp_path: Path, writer: object
) -> None:
    with pytest.raises(RunFailed) as refused:
        check_format({"consilience": writer}, tmp_path, anew="start anew")
    named = (
        isinstance(writer, str) and writer != __version__
    )  # whose own number would send in a circle
    known = str(writer)[:20] if named else "in the revision that wrote it"
    assert refused.value.mend == f"Go on with it by consilience {known}; or start anew."

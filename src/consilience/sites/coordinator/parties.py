"""Parties of a running federation: invited, added and removed without a restart of the run.

coordinator.toml        [parties] names the current parties
invitations/NAME.json   the invitation of a party, the key in its answer, and the time when it was added
run-next/               the run without leaving parties, until the previous run is put aside
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from consilience.core.errors import InvalidInput, command, nearest
from consilience.core.files import write_whole
from consilience.core.protocols import PROTOCOLS
from consilience.core.protocols.rounds import SECURE
from consilience.lab.config.sections import first_of, read_toml
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.leaving import keep_record, record_of
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.checks import check_stopped
from consilience.sites.coordinator.configuration import (
    CONFIGURATION,
    CoordinatorSpec,
    check_folder,
    edited,
    edits,
    stored_coordinator,
)
from consilience.sites.operations.certificates import check_authority, public_key
from consilience.sites.operations.invitation import (
    PLAIN,
    Answer,
    Invitation,
    check_party_name,
    read_invitation,
)

_ANSWERED, _USED = "answered", "used"

_NEXT = "run-next"


@edits
def invite(folder: Path, name: str, out: Path, *, days: int = 14) -> Invitation:
    """Write the invitation of a party; an earlier, unanswered invitation of the party becomes void.

    Args:
        folder: the coordinator's folder.
        name: name of the party.
        out: file to write.
        days: number of days for which the invitation is valid.

    Returns:
        The invitation.

    Raises:
        InvalidInput: the name is not allowed, the party takes part already, or ``out`` exists.
        RunFailed: the file cannot be written.
    """
    check_party_name(name, where="NAME")
    document = _document(folder)
    if document.get("parties", {}).get(name):
        raise InvalidInput(
            f"{name!r} takes part already",
            where="parties",
            mend=f"For another key, first: {command('coordinator', 'remove', folder)} {name}",
        )
    if out.exists():
        raise InvalidInput("there is something already", where=str(out), mend="Give another name.")
    authority = folder / "tls" / "ca.pem"
    check_authority(authority, where=str(authority))
    try:
        made = Invitation.new(
            days,
            federation=document.get("name"),
            party=name,
            address=document.get("address"),
            certificate=authority.read_text(encoding="utf-8"),
        )
    except ValidationError as error:
        raise first_of(error, str(folder / CONFIGURATION), Invitation) from error
    kept = _kept(folder, name)
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    made.write(kept)
    made.write(out)
    return made


@edits
def add(folder: Path, line: str) -> str:
    """Add the party that answers an invitation, and return its name.

    Args:
        folder: the coordinator's.
        line: the answer.

    Raises:
        InvalidInput: the answer is to no invitation that counts, or the party cannot take part.
    """
    answer = Answer.read(line)
    check_party_name(answer.party, where="NAME")
    document, kept = _document(folder), _kept(folder, answer.party)
    if not kept.exists():
        raise InvalidInput(
            f"nobody called {answer.party!r} was invited",
            where="LINE",
            mend=f"First: {command('coordinator', 'invite', folder)} {answer.party}",
        )
    invitation, facts = read_invitation(kept, more=(_ANSWERED, _USED))
    there = " ".join(str(document.get("parties", {}).get(answer.party, "")).split()[:2])
    if _USED in facts and there == answer.key:
        raise InvalidInput(
            f"{answer.party!r} was added with this key on {facts[_USED]}: there is nothing left to do",
            where="LINE",
        )
    if _USED in facts:
        raise InvalidInput(
            f"the invitation of {answer.party!r} was used on {facts[_USED]}, and counts once",
            where="LINE",
            mend="Was it that party? If not, remove it, and tell those who answered.",
        )
    invitation.check_time(str(kept))
    if not invitation.proves(answer):
        raise InvalidInput(
            f"this does not answer the invitation that was written for {answer.party!r} last: there is a "
            "newer one, or the file or this line was changed on its way",
            where="LINE",
            mend="Have party join print the line again, and compare fingerprints by telephone (here "
            f"{invitation.spoken}); or invite it anew.",
        )
    public_key(answer.key, where="LINE")
    if {there or answer.key, facts.get(_ANSWERED, answer.key)} != {answer.key}:
        raise InvalidInput(
            f"another key was given for {answer.party!r} before",
            where="LINE",
            mend="Was it that party? If not, remove it, and invite it anew.",
        )
    going = stored_coordinator(folder)
    if going is not None:
        check_joinable(going, [*going.parties, answer.party])
    text = _changed(folder, document, answer.party, f"{answer.key} {answer.party}")
    by = {_ANSWERED: answer.key}  # killed from here on, the same line goes on, and no other
    invitation.write(kept, **by)
    write_whole(folder / CONFIGURATION, text)
    invitation.write(kept, **by, **{_USED: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"})
    return answer.party


@edits
def remove(folder: Path, name: str) -> None:
    """Take a party out of the configuration, and void its invitation.

    Args:
        folder: the coordinator's.
        name: of the party.

    Raises:
        InvalidInput: there is no such party, or the others could not go on.
    """
    document = _document(folder)
    if name not in (parties := document.get("parties", {})):
        raise InvalidInput(
            f"no party is called {name!r}", where="parties", mend=nearest(name, parties)
        )
    write_whole(folder / CONFIGURATION, _changed(folder, document, name, None))
    if re.fullmatch(PLAIN, name):
        _kept(folder, name).unlink(missing_ok=True)


def note_on_sums(folder: Path, *, added: bool = False) -> str:
    """Describe the effect of secure aggregation when parties are added or leave.

    Args:
        folder: the coordinator's folder.
        added: true if parties are added, false if they leave.

    Returns:
        A sentence; empty if the configuration has no secure aggregation or there is no run yet.
    """
    protocol = _document(folder).get("protocol")
    secure = isinstance(protocol, dict) and protocol.get(SECURE) is not None
    if not secure or not (folder / "run" / LEDGER).exists():
        return ""
    if added:
        return "Its answers are in no secure sum of this run: it is taught."
    return (
        "All secure sums are over the parties of the first one, and a run without one of these ends before "
        "its next sum. For sums without it each party's engineer changes its [roster], and a run begins."
    )


def leave(folder: Path, names: Sequence[str]) -> Path:
    """Remove parties and prepare a certified retraining without them (exact unlearning).

    The current run is put aside. When the coordinator is started next, the other parties train from the
    beginning on their private rows, with the same seed and the same secrets. The result is bit-identical to a
    federation that never included the removed parties.

    Args:
        folder: the folder of the stopped coordinator.
        names: names of the parties.

    Returns:
        The folder of the run put aside.

    Raises:
        InvalidInput: the coordinator runs, there is no run, or it does not include such a party.
    """
    check_folder(folder)
    check_stopped(folder)
    run = folder / "run"
    if not (run / LEDGER).exists():
        raise InvalidInput(
            "there is no run yet",
            where=str(run),
            mend=f"Start it with: {command('coordinator', 'start', folder)}",
        )
    with closing(Ledger(run / LEDGER)) as ledger:
        before = record_of(run, ledger, names)
    for name in names:
        if name in _document(folder).get("parties", {}):
            remove(folder, name)
    (folder / _NEXT).mkdir(mode=0o700, exist_ok=True)
    keep_record(folder / _NEXT, before)
    aside = next(path for i in count(1) if not (path := folder / f"run-{i}").exists())
    run.rename(aside)
    take_up(folder)
    return aside


def take_up(folder: Path) -> None:
    """Have the run be the one without those that left, once the run before is put aside."""
    if (folder / _NEXT).exists() and not (folder / "run").exists():
        (folder / _NEXT).rename(folder / "run")


def forget_next(folder: Path) -> None:
    """Delete the run prepared by an interrupted :func:`leave`, because the previous run is resumed."""
    shutil.rmtree(folder / _NEXT, ignore_errors=True)


def check_joinable(spec: CoordinatorSpec, parties: Collection[str]) -> None:
    """Raise ``InvalidInput`` if parties are new to a run whose protocol does not admit parties later.

    Args:
        spec: configuration of the resumed run.
        parties: names of all parties after the change.
    """
    name = spec.make_protocol().name
    if not PROTOCOLS[name].any_party and (new := sorted(set(parties) - spec.parties.keys())):
        raise InvalidInput(
            f"{new[0]!r} cannot join a run of {name!r}, which asks all parties before its first round",
            where="parties",
            mend="Move the run folder away first, and start anew with it.",
        )


def _document(folder: Path) -> dict[str, Any]:
    """Read the contents of coordinator.toml, in which some keys may still be empty."""
    check_folder(folder)
    found = read_toml(folder / CONFIGURATION)
    if not isinstance(found.get("parties", {}), dict):
        raise InvalidInput("it should be a table", where=f"{folder / CONFIGURATION}: parties")
    return found


def _kept(folder: Path, name: str) -> Path:
    return folder / "invitations" / f"{name}.json"


def _changed(folder: Path, before: dict[str, Any], name: str, key: str | None) -> str:
    """The text of coordinator.toml with a party's line written, replaced or deleted, and all else as it is.

    Raises:
        InvalidInput: no coordinator could go on with the file, or it is written so that this cannot be done.
    """
    path = folder / CONFIGURATION
    lines = path.read_text(encoding="utf-8").splitlines()
    parties = dict(before.get("parties", {}))
    new = [] if key is None else [f"{json.dumps(name)} = {json.dumps(key)}"]
    if key is None:
        del parties[name]
    else:
        parties[name] = key
    ends = next((i for i, line in enumerate(lines) if re.match(r"\s*\[parties\]", line)), None)
    if ends is None:
        new = ["", "[parties]", *new]
        ends = len(lines) - 1
    mine = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
    at = next((i for i, one in enumerate(lines) if i > ends and mine.match(one)), None)
    if at is not None:
        lines[at : at + 1] = new
    else:
        lines[ends + 1 : ends + 1] = new
    mend = f"By hand: {new[-1] if new else f'take out the line of {name}'}"
    return edited(path, lines, {**before, "parties": parties}, what="[parties]", mend=mend)

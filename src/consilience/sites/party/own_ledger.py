"""Privacy ledger of a party: in the party's folder, or shared by the federations of a site.

    home/privacy/             ledger in the party's folder
    LEDGER/SUBJECTS/          shared ledger, if limits.ledger and limits.subjects are set

Two federations with separate ledgers would spend the budget of the same people twice. The limits of both
therefore set the same folder of ledgers and the same digest, that of a file of these people's rows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from consilience.core.errors import InvalidInput, RunFailed
from consilience.privacy.accounting.ledger import FOLDER, PrivacyLedger, read_lines
from consilience.sites.party.privacy_limits import PrivacyLimits
from consilience.sites.party.secret import own_secret


def ledger_of(home: Path, limits: PrivacyLimits) -> tuple[PrivacyLedger, str]:
    """Open the privacy ledger of a party, and return the scope of its releases.

    Args:
        home: the folder of the party's state.
        limits: its limits.

    Returns:
        The ledger, and the scope: empty for a ledger in the party's folder, else a digest of its secret.

    Raises:
        RunFailed: another process has the ledger open, it cannot be read or written, or it was cut, set back
            or changed; or the party has releases in its private ledger, which the shared one does not count.
    """
    folder = limits.ledger_in(home)
    if limits.subjects is None:
        return PrivacyLedger(folder), ""
    if read_lines(home / FOLDER):
        raise RunFailed(
            "the party has spent from a ledger of its own, which the one of its subjects does not count",
            where=str(home / FOLDER),
            mend=f"If nothing is in {folder}, move that folder there; else take limits.subjects and "
            "limits.ledger off again.",
        )
    secret = own_secret(home)  # which stays as long as the party does
    return PrivacyLedger(folder, shared=True), hashlib.sha256(b"scope" + secret).hexdigest()[:32]


def ledger_warnings(limits: PrivacyLimits) -> tuple[str, ...]:
    """Warn of limits under which the same people's budget could be spent twice, a sentence each."""
    if limits.ledger is None or limits.subjects is None:
        alone = (
            "limits.subjects and limits.ledger are not set: a party of another federation with rows of the "
            "same people would spend a budget of its own"
        )
        return () if limits.epsilon is None else (alone,)
    others = _begun_in(limits.ledger)
    if limits.subjects in others or not others:
        return ()
    return (
        f"limits.subjects begins a new ledger, and {limits.ledger} has others: if one is of the same people, "
        f"as of a file that was written anew, declare that one: {', '.join(others[:5])}",
    )


def check_subjects(data: Path | None, limits: PrivacyLimits) -> None:
    """Check that ``limits.subjects`` identifies the people in a file of rows.

    A file that gets new rows has a new digest. ``limits.subjects`` therefore keeps the digest with which its
    ledger was begun.

    Args:
        data: the file of the party's rows; ``None`` for none.
        limits: the limits.

    Raises:
        InvalidInput: ``limits.subjects`` differs from the file's digest and no ledger has this name.
    """
    if limits.subjects is None or limits.ledger is None:
        return
    there = _begun_in(limits.ledger)
    if limits.subjects in there:
        return
    own = "" if data is None else hashlib.sha256(data.read_bytes()).hexdigest()
    if own == limits.subjects:
        return
    raise InvalidInput(
        f"there is no ledger of these subjects in {limits.ledger}, and it is not the digest of {data}",
        where="limits.subjects",
        mend=f'For people with no ledger yet write subjects = "{own}".'
        + (f" Ledgers are there of {', '.join(there)}." if there else ""),
    )


def _begun_in(folder: Path) -> list[str]:
    """Digests of the subjects that a folder has ledgers of, in their order."""
    return sorted(one.name for one in folder.glob("?" * 64))

"""Joining by an invitation: the party's folder, its key, and the line that answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import privately, write_whole
from consilience.sites.operations.certificates import check_certificates, make_key
from consilience.sites.operations.invitation import Invitation, read_invitation
from consilience.sites.party import read_party
from consilience.sites.party.template import TEMPLATE

_LEAST = 16
"""Digits of a fingerprint that count as compared."""


@privately()
def join(
    file: Path, folder: Path | None, *, fingerprint: str | None = None
) -> tuple[Invitation, str]:
    """Create the files with which a party joins a federation, from an invitation.

    A ``party.toml`` is written with the address filled in. An existing one must name the same party and the
    same address. An existing private key is kept, and the key never leaves the folder.

    Args:
        file: the invitation.
        folder: the party's folder, created if needed; ``None`` for a folder named after the party.
        fingerprint: fingerprint of the invitation as the coordinator read it aloud; ``None`` skips the check.

    Returns:
        The invitation, and the line with the public key to send back to the coordinator.

    Raises:
        InvalidInput: the invitation was changed, has expired, or is for another party.
        RunFailed: the folder cannot be written.
        MissingExtra: cryptography is not installed.
    """
    invitation, _ = read_invitation(file)
    invitation.check_time(str(file))
    if fingerprint is not None:
        _check_fingerprint(invitation, fingerprint)
    check_certificates(invitation.certificate.encode(), "its certificate", where=str(file))
    folder = Path(invitation.party) if folder is None else folder
    path = folder / "party.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, _filled_in(invitation))
        spec = read_party(path)
        asked = {"name": invitation.party, "coordinator.address": invitation.address}
        there = {"name": spec.name, "coordinator.address": ""}
        if spec.coordinator is not None:
            there["coordinator.address"] = spec.coordinator.address
        for key, wanted in asked.items():
            if there[key] != wanted:
                raise InvalidInput(
                    f"{key} is {there[key]!r}, and the invitation says {wanted!r}",
                    where=str(path),
                    mend="Change it, or join into another folder: --folder.",
                )
        assert spec.coordinator is not None
        authority = spec.coordinator.certificate
        if authority.exists() and authority.read_text(encoding="utf-8") != invitation.certificate:
            raise InvalidInput(
                "there is another authority's certificate, and the invitation has its own",
                where=str(authority),
                mend="Ask the coordinator which is right, and move this one away.",
            )
        write_whole(authority, invitation.certificate, mode=0o644)
    except OSError as error:
        raise RunFailed(f"cannot be written ({error.strerror})", where=str(folder)) from error
    return invitation, invitation.answer(make_key(spec.coordinator.key, spec.name))


def _check_fingerprint(invitation: Invitation, given: str) -> None:
    """Raise ``InvalidInput`` unless the given digits are the beginning of the invitation's fingerprint."""
    digits = re.sub(r"[\s:-]", "", given).lower()
    if len(digits) < _LEAST:
        raise InvalidInput(
            f"{len(digits)} were given, and it takes {_LEAST} digits or more",
            where="--fingerprint",
            mend="Give those that the coordinator read aloud; without the option none are compared.",
        )
    if not invitation.fingerprint.startswith(digits):
        raise InvalidInput(
            f"the invitation's is {invitation.spoken}",
            where="--fingerprint",
            mend="It is another file than the coordinator wrote: do not join.",
        )


def _filled_in(invitation: Invitation) -> str:
    """Return a configuration with the name, federation and address of the invitation filled in."""
    text = TEMPLATE.replace('"my-site"', json.dumps(invitation.party))
    text = re.sub(
        r'(?m)^# federation = ".*?"',
        lambda _: f"federation = {json.dumps(invitation.federation)}",
        text,
    )
    text = re.sub(r"(?m)^(?=public = )", "# ", text)
    head, section, rest = text.partition("# [coordinator]")
    rest = re.sub(r"(?m)^# (?=(address|certificate|key) =)", "", rest)
    rest = re.sub(
        r'(?m)^address = ".*?"', lambda _: f"address = {json.dumps(invitation.address)}", rest
    )
    return head + section.removeprefix("# ") + rest

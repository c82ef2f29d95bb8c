"""Invitation of a party: one file from the coordinator, and a one-line answer.

The file contains the address, the certificate of the authority and a single-use token. Its fingerprint
covers all of them; comparing it over the telephone shows whether the file arrived unchanged. The answer
contains the party's public key, and a proof, made with the token, of the file to which it belongs.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, ValidationError

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import FORMAT, check_format, read_text, write_whole
from consilience.lab.config.sections import Address, Section, first_of

MOST_BYTES = 100_000
"""Bytes of an invitation, at most: certificates are small."""

ANSWER = "consilience-answer"

PLAIN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Names of parties and federations: no part of a path, no markup."""

NAMES = "letters, digits, dots, dashes and underscores"
"""What such a name is made of, in words."""

_COMPARED = 32
"""Digits of a fingerprint that are read aloud."""

_PROOF = sha256().digest_size * 2
"""Digits of the proof that ends an answer."""

_ASK = "Ask the coordinator for another: consilience coordinator invite."


def check_party_name(name: str, *, where: str) -> None:
    """Raise ``InvalidInput`` unless ``name`` is valid for a party; ``where`` is the option that sets it."""
    if not re.fullmatch(PLAIN, name):
        raise InvalidInput(
            f"{name!r} is no name of a party", where=where, mend=f"Take {NAMES}, 100 at most."
        )


class Invitation(Section):
    """All facts that a party needs to join a federation.

    Attributes:
        federation: its name.
        party: name of the invited party.
        address: host and port at which the party reaches the coordinator.
        certificate: certificate of the coordinator's authority, as PEM.
        until: expiry time, in ISO form.
        token: secret shared by the coordinator and the party.
    """

    federation: Annotated[str, Field(pattern=PLAIN)]
    party: Annotated[str, Field(pattern=PLAIN)]
    address: Address
    certificate: str
    until: AwareDatetime
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def new(cls, days: int, **facts: Any) -> Invitation:
        """Make an invitation with a new token, from the other attributes; it is valid for ``days`` days."""
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
        return cls.model_validate({**facts, "until": until, "token": secrets.token_hex(32)})

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all attributes, as hexadecimal digits."""
        return sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def spoken(self) -> str:
        """The beginning of the fingerprint, in groups to be read aloud."""
        return " ".join(self.fingerprint[i : i + 4] for i in range(0, _COMPARED, 4))

    def check_time(self, where: str) -> None:
        """Raise ``InvalidInput`` where its time is over; ``where`` names its file."""
        if datetime.now(UTC) > self.until:
            raise InvalidInput(
                f"the invitation counted until {self.until:%Y-%m-%d %H:%M} UTC",
                where=where,
                mend=_ASK,
            )

    def write(self, path: Path, **more: Any) -> None:
        """Write it with further facts to a file that only its owner can read.

        Raises:
            RunFailed: the file cannot be written.
        """
        said = self.model_dump(mode="json")
        document = {"format": FORMAT, **said, "fingerprint": self.fingerprint, **more}
        try:
            write_whole(path, json.dumps(document, indent=2), mode=0o600)
        except OSError as error:
            raise RunFailed(f"cannot be written ({error.strerror})", where=str(path)) from error

    def answer(self, key: str) -> str:
        """Make the line that answers it.

        Args:
            key: the party's public key in OpenSSH format; its comment is dropped.

        Returns:
            The line, with the party's name, its key and the proof.
        """
        kind, numbers, *_ = key.split(" ")
        return f"{ANSWER} {self.party} {kind} {numbers} {self._proof(f'{kind} {numbers}')}"

    def proves(self, answer: Answer) -> bool:
        """Tell whether an answer is to this very invitation."""
        return hmac.compare_digest(self._proof(answer.key), answer.proof)

    def _proof(self, key: str) -> str:
        said = f"{self.fingerprint} {self.party} {key}".encode()
        return hmac.new(bytes.fromhex(self.token), said, sha256).hexdigest()


def read_invitation(path: Path, *, more: tuple[str, ...] = ()) -> tuple[Invitation, dict[str, Any]]:
    """Read an invitation and further facts from its file.

    Args:
        path: the file.
        more: allowed names of further facts.

    Returns:
        The invitation, and the further facts by name.

    Raises:
        InvalidInput: there is no such file, it is not an invitation, or it was changed after it was written.
        RunFailed: it has another format.
    """
    where = str(path)
    try:
        document = json.loads(read_text(path, MOST_BYTES))
    except FileNotFoundError as error:
        raise InvalidInput("there is no such file", where=where) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput("this is no invitation", where=where, mend=_ASK) from error
    if not isinstance(document, Mapping):
        raise InvalidInput("this is no invitation", where=where, mend=_ASK)
    check_format(document, path, anew="ask the coordinator for another invitation")
    facts = {name: document[name] for name in more if name in document}
    beside = "format", "fingerprint"
    said = {name: one for name, one in document.items() if name not in (*more, *beside)}
    try:
        found = Invitation.model_validate_json(json.dumps(said))
    except ValidationError as error:
        raise first_of(error, where, Invitation) from error
    if document.get("fingerprint") != found.fingerprint:
        raise InvalidInput(
            "the invitation was changed since it was written", where=where, mend=_ASK
        )
    return found, facts


@dataclass(frozen=True)
class Answer:
    """The answer to an invitation.

    Attributes:
        party: name of the party.
        key: its public key, without a comment.
        proof: shows by the token which invitation it answers.
    """

    party: str
    key: str
    proof: str

    @classmethod
    def read(cls, line: str) -> Answer:
        """Read the line that a party gave; a mail may have broken it into several.

        Raises:
            InvalidInput: it is no such line, or broken in the middle.
        """
        words = [word for part in line.split() if (word := part.lstrip(">"))]
        if len(words) > 5:
            rest = "".join(words[3:])
            words = [*words[:3], rest[:-_PROOF], rest[-_PROOF:]]
        if len(words) != 5 or words[0] != ANSWER or not words[4].isascii():
            raise InvalidInput(
                "this is no answer to an invitation",
                where="LINE",
                mend="Give the whole line, in quotes, that this printed: consilience party join FILE",
            )
        return cls(words[1], f"{words[2]} {words[3]}", words[4])

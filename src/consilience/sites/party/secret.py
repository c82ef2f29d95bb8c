"""Secret of a party, in its folder, that its random streams are mixed with.

    home/secret      32 bytes of the operating system's, readable by its user alone

The coordinator knows the seed that all streams are keyed by, and could compute again what a model does with
rows that it guesses. The secret is made once, before anything is drawn, and stays: joining, restoring and
crashes leave it as it is, and it is in no state, log or message.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from consilience.core.errors import RunFailed
from consilience.core.files import force, write_whole
from consilience.sites.party.state import current_state

FILE = "secret"

_SIZE = 32
_MEND = (
    "Restore it from a copy; or move the folder away, and the party starts anew with another one: all "
    "that its limits count in all its life is then counted from 0, and its log begins again."
)


def own_secret(home: Path) -> bytes:
    """The secret of the party whose folder this is; made where the party has not joined anything yet.

    Raises:
        RunFailed: it is gone though the party has drawn by it, damaged, or cannot be written.
    """
    path = home / FILE
    try:
        if not path.exists() and current_state(home) is None:
            write_whole(path, secrets.token_bytes(_SIZE), sync=True, mode=0o600)
            force(home)
        secret = path.read_bytes()
    except FileNotFoundError as error:
        raise RunFailed("its secret is gone", where=str(path), mend=_MEND) from error
    except OSError as error:
        raise RunFailed(
            f"its secret cannot be read or written ({error.strerror})", where=str(path)
        ) from error
    if len(secret) != _SIZE:
        raise RunFailed(
            f"its secret is damaged: {len(secret)} bytes, expected {_SIZE}",
            where=str(path),
            mend=_MEND,
        )
    return secret

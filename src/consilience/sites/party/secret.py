"""Secret of a party, stored in its folder and mixed into its random streams.

    home/secret      32 random bytes of the operating system, readable only by the party's user

The coordinator has the seed of all random streams. Without the secret it could guess rows and repeat the
party's training on them. The secret is created once, before the first random draw. Joining, restoring and
crashes do not change it, and no state, log or message contains it.
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

"""History of a party: a digest of all that its answers depend on and that a coordinator chose.

    h_0      of a join: SHA-256 of the agreement, which names the public rows, the seed and the classes, and
             of the columns of these rows
    h_(i+1)  SHA-256 of h_i and of the next task that changes the model or the memory

Two parties of one history were asked the same in the same order since they joined. It is saved with the state
and restored with it, so that it describes the model as it is. Nothing of the party's own enters: no rows,
name, limits or secret. Secure sums compare their parties' histories
(:mod:`consilience.privacy.secure_aggregation.secure_sum`).
"""

from __future__ import annotations

import hashlib
import secrets
from weakref import WeakKeyDictionary

from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import encode

_DIGESTS: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()
"""Digests of tasks: parties of one process are asked with the same objects."""


class TaskHistory:
    """History of a party since it joined.

    Args:
        agreement: the agreement that it joined.
        public: the public rows that it holds.

    Attributes:
        digest: SHA-256 in hexadecimal digits.
    """

    def __init__(self, agreement: Agreement, public: Public) -> None:
        columns = public.columns_key.encode()
        self.digest = hashlib.sha256(encode([agreement]) + columns).hexdigest()
        # A federation that is too large for secure sums compares no histories.
        self._recorded = bool(agreement.summed)

    def add(self, task: object) -> None:
        """Add a task, a message, before it runs."""
        if not self._recorded:
            return
        if (digest := _DIGESTS.get(task)) is None:
            digest = _DIGESTS[task] = hashlib.sha256(encode([task])).digest()
        self.digest = hashlib.sha256(bytes.fromhex(self.digest) + digest).hexdigest()

    def restore(self, digest: str) -> None:
        """Go back to the history of a saved state."""
        self.digest = digest

    def forget(self) -> None:
        """Take a history that no other party has, because it is not known what answers depend on."""
        self.digest = secrets.token_hex(32)

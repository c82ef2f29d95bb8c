"""History of a party: a digest of the coordinator's inputs that determine its answers.

    h_0      of a join: SHA-256 of the agreement, which names the public rows, the seed and the classes, and
             of the columns of these rows
    h_(i+1)  SHA-256 of h_i and of the next task that changes the model or the memory

Two parties have the same history if they received the same tasks in the same order since they joined. The
history is saved and restored with the state, and therefore always describes the current model. It contains no
data of the party: no rows, name, limits or secret. Secure sums compare the histories of their parties
(:mod:`consilience.privacy.secure_aggregation.secure_sum`).
"""

from __future__ import annotations

import hashlib
import secrets
from weakref import WeakKeyDictionary

from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import encode

_DIGESTS: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()
"""Digests of tasks; parties in one process receive the same task objects."""


class TaskHistory:
    """History of a party since it joined.

    Args:
        agreement: agreement of the federation.
        public: public rows of the party.

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
        """Set the history to that of a saved state."""
        self.digest = digest

    def forget(self) -> None:
        """Replace the history by a random one, because it no longer describes the inputs of the answers."""
        self.digest = secrets.token_hex(32)

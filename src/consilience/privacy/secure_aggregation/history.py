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
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import encode

if TYPE_CHECKING:
    from consilience.core.party.party import Party

_DIGESTS: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()
"""Digests of tasks: parties of one process are asked with the same objects."""


def beginning(agreement: Agreement, public: Public | None) -> str:
    """Compute the history of a party that has just joined.

    Args:
        agreement: the agreement.
        public: the public rows that it holds; ``None`` for none.

    Returns:
        SHA-256 in hexadecimal digits.
    """
    columns = "" if public is None else public.columns_key
    return hashlib.sha256(encode([agreement]) + columns.encode()).hexdigest()


def remember(party: Party, task: object) -> None:
    """Add a task to the history of a party, before it runs.

    Args:
        party: the party; without an agreement, or in a federation too large for secure sums, it has none.
        task: the task, a message.
    """
    if party.agreement is None or not party.agreement.summed:
        return
    if (digest := _DIGESTS.get(task)) is None:
        digest = _DIGESTS[task] = hashlib.sha256(encode([task])).digest()
    party.history = hashlib.sha256(bytes.fromhex(party.history) + digest).hexdigest()


def forget(party: Party) -> None:
    """Give a party a history that no other party has, because it is not known what its answers depend on."""
    party.history = secrets.token_hex(32)

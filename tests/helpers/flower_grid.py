"""Flower's grid without Flower's processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import pytest

with warnings.catch_warnings():  # flwr's command line uses what click has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, Message, RecordDict  # noqa: F401 (for tests)
    from flwr.clientapp import ClientApp  # noqa: F401 (so that no later import warns)
    from flwr.supercore.task_identity import TaskIdentity

from consilience.sites.transport.flower.network import Waits

Node = Callable[[Message], list[Message]]

QUICK = Waits(absence=0.01, pause=0.001, poll=0.001)
"""Nobody waits for what is here at once."""


def in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets nobody make messages outside a run."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@dataclass
class Info:
    """What Flower says of a node."""

    node_id: int
    name: str = ""
    last_activated_at: str = "monday"


class Grid:
    """Flower's grid with nodes that are functions of this process: message in, replies out."""

    def __init__(self, **nodes: Node) -> None:
        # The ids run against the names: results may not depend on either order.
        self.nodes = {100 - number: node for number, node in enumerate(nodes.values())}
        self.infos = {node: Info(node) for node in self.nodes}
        self.sent: list[Message] = []
        self.replies: list[Message] = []

    def get_nodes(self) -> list[Info]:
        return list(self.infos.values())

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id  # as Flower's grid does
            self.sent.append(message)
            self.replies += self.nodes[message.metadata.dst_node_id](message)
        return [message.object_id for message in messages]

    def pull_messages(self, identities: list[str]) -> list[Message]:
        """All there is, also what is not asked for."""
        replies, self.replies = self.replies[::-1], []
        return replies

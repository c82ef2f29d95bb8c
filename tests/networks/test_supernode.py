"""The answer to the message that a SuperNode took leaves before it takes another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from consilience.errors import RunFailed
from consilience.networks.flower.internals import insides
from consilience.networks.flower.supernode import each_answered
from helpers import flower_grid  # noqa: F401 (imports flwr without its warnings)

LOOP = "flwr.supernode.start_client_internal"


def message(name: str, reply_to: str = "") -> Any:
    metadata = SimpleNamespace(
        message_id=name, reply_to_message_id=reply_to, run_id=1, group_id="1", message_type="query"
    )
    return SimpleNamespace(metadata=metadata)


class State:
    """What Flower's loop asks of its state; there are new answers at every look."""

    def __init__(self, *looks: list[Any]) -> None:
        self.looks = list(looks)

    def get_messages_legacy(self, *, is_reply: bool) -> list[Any]:
        assert is_reply
        return self.looks.pop(0)

    def get_message_processing_duration(self, *, message_id: str) -> float:
        return 0.0

    def delete_messages(self, *, message_ids: list[str]) -> None:
        pass


STORE = SimpleNamespace(get_object_tree=lambda name: None, delete=lambda name: None)


@pytest.mark.parametrize("patched", [True, False])
def test_a_late_answer_to_another_message_is_not_taken_for_this_one(
    patched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpatched, Flower sends the late answer alone and looks for the next message."""
    module = __import__(LOOP, fromlist=["time"])
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(module, "push_object_contents_from_iterable", lambda *_, **__: None)
    push = insides(LOOP, "_push_messages")[0]
    pull: Any = lambda *, receive: receive()[0].metadata.run_id  # noqa: E731
    if patched:
        pull, push = each_answered(pull, push)
    sent: list[str] = []

    def send(reply: Any, *_: Any) -> tuple[set[str], str]:
        sent.append(reply.metadata.message_id)
        return set(), ""

    late, own = message("late", "another"), message("own", "asked")
    assert pull(receive=lambda: (message("asked"), None)) == 1
    state = State([late], [], [own])
    push(state=state, object_store=STORE, send=send, push_object=None)
    assert sent == (["late", "own"] if patched else ["late"])


def test_answers_that_come_together_leave_together() -> None:
    pull, push = each_answered(
        lambda *, receive: receive(),
        lambda *, send: [
            send(one) for one in (message("own", "asked"), message("late", "another"))
        ],
    )
    sent: list[Any] = []
    pull(receive=lambda: (message("asked"), None))
    push(send=sent.append)
    assert [one.metadata.message_id for one in sent] == ["own", "late"]


def test_another_flwr_is_refused() -> None:
    with pytest.raises(RunFailed, match="has no _pull"):
        insides(LOOP, "_push_messages", "_pull")

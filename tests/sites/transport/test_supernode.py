"""The answer to the message that a SuperNode took leaves before it takes another."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from consilience.core.errors import RunFailed
from consilience.sites.transport.flower.internals import insides
from consilience.sites.transport.flower.supernode import each_answered, end_with, lasting, supernode
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


ENDING = """
import os, signal, threading, time
import flwr.supernode.cli, flwr.supernode.start_client_internal as loop
from flwr.supercore.exit import add_exit_handler
from flwr.supercore.telemetry import EventType
from consilience.sites.transport.flower.supernode import supernode

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def main():
    # As Flower's: a server in a thread that does not end by itself, and handlers for signals.
    threading.Thread(target=time.sleep, args=(60,)).start()
    loop.register_signal_handlers(event_type=EventType.RUN_SUPERNODE_LEAVE)
    add_exit_handler(interrupt, run_before_force_exit=True)
    interrupt()
    time.sleep(60)

flwr.supernode.cli.flower_supernode = main
print("begun", flush=True)
supernode()
"""


def test_a_second_signal_does_not_break_the_end() -> None:
    """It comes in the midst of the exit that the first one began; Flower's own process would live on."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "begun\n"), done.stderr
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 1),
        (OSError("the disk is full"), 1),
        (KeyboardInterrupt(), 1),
        (SystemExit(), 0),
        (SystemExit(0), 0),
        (SystemExit(7), 7),
        (SystemExit("no"), 1),
    ],
)
def test_the_process_ends_with_its_main_thread(
    error: BaseException | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        raise Ended(status)

    def main() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr("consilience.sites.transport.flower.supernode.os._exit", end)
    with pytest.raises(Ended) as ended:
        end_with(main)
    assert ended.value.args == (status,)


def test_a_heartbeat_goes_on_after_an_error() -> None:
    """Flower's thread would end at an exception that it does not know, and the loop would go on without."""
    marks: list[str] = []
    answers = iter([True, False, RuntimeError("not recognised"), True])

    def beat() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told = lasting(beat, marks.append)
    assert [told() for _ in range(4)] == [True, False, False, True]
    assert marks == ["connected", "lost", "lost", "connected"]


def test_every_step_of_the_loop_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own loop: a pull, a wait for the answer, and a call that is tried again."""
    marks: list[str] = []
    loop = __import__(LOOP, fromlist=["time"])
    connection = __import__("flwr.supernode.fleet_http_connection", fromlist=["HeartbeatSender"])
    for module, names in (
        (loop, ("_pull_and_store_message", "_push_messages", "register_signal_handlers")),
        (connection, ("HeartbeatSender", "make_simple_http_retry_invoker")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr("flwr.supercore.retry.http_retry.time.sleep", lambda seconds: None)
    monkeypatch.setattr(loop, "push_object_contents_from_iterable", lambda *_, **__: None)

    class Done(BaseException):
        pass

    def run() -> None:
        given = dict.fromkeys(("get_run", "get_fab", "pull_object", "confirm_message_received"))
        state = State([], [message("own", "")])
        pulled = loop._pull_and_store_message(
            state=state,
            object_store=STORE,
            node_config={},
            trusted_entities=None,
            receive=lambda: None,
            **given,
        )
        assert pulled is None and marks == ["progress", "connected"]
        loop._push_messages(
            state=state, object_store=STORE, push_object=print, send=lambda *_: (set(), "")
        )
        assert marks.count("progress") > 4 and "lost" not in marks
        connection.make_simple_http_retry_invoker().wait_function(0.0)
        assert marks[-3:] == ["progress", "lost", "progress"]
        raise Done

    monkeypatch.setattr("flwr.supernode.cli.flower_supernode", run)
    monkeypatch.setattr(
        "consilience.sites.transport.flower.supernode.end_with", lambda main: main()
    )
    with pytest.raises(Done):
        supernode(marks.append)


def test_another_flwr_is_refused() -> None:
    with pytest.raises(RunFailed, match="has no _pull"):
        insides(LOOP, "_push_messages", "_pull")

"""Flower's SuperNode, changed so that a party sends each answer before it takes the next message.

Flower 1.41 takes a message, waits until there is *some* answer, sends all available answers, and takes the
next message. If a coordinator was killed while a message was in transit, Flower makes up an answer to this
message minutes later. This answer is sent in place of the awaited one, which then stays until another message
arrives, and so on: the party would stay one answer behind forever, and count as unresponsive.

Flower also leaves idle processes behind. Its heartbeat and its loop each send their own process SIGINT when
the coordinator refuses a call. The second signal interrupts the exit that the first one began, and the thread
of Flower's local server keeps the process alive. An error in the loop has the same effect, and an unknown
error in the heartbeat ends only the heartbeat. Here, a second signal is therefore ignored, the process ends
with its main thread, and the heartbeat is repeated.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, Literal, NoReturn

from consilience.sites.transport.flower.internals import flwr, insides, replaced

_LOOP = "flwr.supernode.start_client_internal"
_CONNECTION = "flwr.supernode.fleet_http_connection"

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""The signals that Flower ends at."""

Mark = Callable[[Literal["progress", "connected", "lost"]], None]
"""Told that the loop made a step, that the coordinator answered, or that it did not."""


def supernode(mark: Mark = lambda what: None) -> NoReturn:
    """Run Flower's ``flower-supernode``, with the arguments of the process, and end the process.

    Args:
        mark: called at every step of the loop, at least every two minutes, and at every attempt to reach the
            coordinator. By default these events are ignored.

    Raises:
        RunFailed: the internals of the installed flwr version are not supported.
        MissingExtra: flwr is not installed.
    """
    flwr()
    pull, push, register = insides(
        _LOOP, "_pull_and_store_message", "_push_messages", "register_signal_handlers"
    )
    sender, invoker = insides(_CONNECTION, "HeartbeatSender", "make_simple_http_retry_invoker")
    pull, push = each_answered(_reaching(_stepping(pull, mark), mark), _stepping(push, mark))
    replaced(
        _LOOP,
        _pull_and_store_message=pull,
        _push_messages=push,
        register_signal_handlers=first_signal_only(register),
    )
    replaced(
        _CONNECTION,
        HeartbeatSender=lambda beat: sender(lasting(beat, mark)),
        make_simple_http_retry_invoker=lambda: _retrying(invoker(), mark),
    )
    end_with(import_module("flwr.supernode.cli").flower_supernode)


def end_with(main: Callable[[], Any]) -> NoReturn:
    """Call a function and end the process with it, even if other threads are still active.

    Args:
        main: its ``SystemExit`` gives the exit status. It is 1 after another exception, and after a return,
            since a SuperNode is not expected to return.
    """
    status: Any = 1
    try:
        main()
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    for output in (sys.stdout, sys.stderr):
        output.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def first_signal_only(register: Callable[..., None]) -> Callable[..., None]:
    """Have the process ignore each signal after the first one that ends it.

    Args:
        register: Flower's function, which sets the handlers of these signals. Its handlers restore the
            earlier ones, then begin to end the process.

    Returns:
        A function that takes its place.
    """

    def registered(**given: Any) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # this is what Flower's handlers put back
        register(**given)
        flowers: dict[int, Any] = {number: signal.getsignal(number) for number in _ENDING}

        def first(number: int, frame: FrameType | None) -> None:
            # Flower's handler holds a lock for a moment, and would wait for itself if it were interrupted.
            for other in _ENDING:
                signal.signal(other, signal.SIG_IGN)
            flowers[number](number, frame)

        for number in _ENDING:
            signal.signal(number, first)

    return registered


def lasting(beat: Callable[[], bool], mark: Mark) -> Callable[[], bool]:
    """Keep Flower's heartbeat running after an error.

    Args:
        beat: sends one heartbeat, and returns true if the coordinator accepted it.
        mark: called with ``"connected"`` if it was accepted, else with ``"lost"``.

    Returns:
        A function that takes its place. It returns false after an exception, so that Flower tries again.
    """

    def told() -> bool:
        try:
            taken = beat()
        except Exception as error:
            logging.getLogger("flwr").error("A heartbeat failed: %s", error)
            taken = False
        mark("connected" if taken else "lost")
        return taken

    return told


class _Stepping:
    """An object or a function whose every use marks a step."""

    def __init__(self, wrapped: Any, mark: Mark) -> None:
        self._wrapped, self._mark = wrapped, mark

    def __getattr__(self, name: str) -> Any:
        self._mark("progress")
        return getattr(self._wrapped, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._mark("progress")
        return self._wrapped(*given, **named)


def _stepping(step: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    """Have a function of Flower's loop mark its use of the state and its calls to the coordinator."""

    def called(*, state: Any, **given: Any) -> Any:
        watched = {
            name: _Stepping(value, mark) if callable(value) else value
            for name, value in given.items()
        }
        return step(state=_Stepping(state, mark), **watched)

    return called


def _reaching(pull: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    """Mark the coordinator as connected whenever a request for a message returns."""

    def called(*, receive: Callable[[], Any], **given: Any) -> Any:
        def received() -> Any:
            found = receive()
            mark("connected")
            return found

        return pull(receive=received, **given)

    return called


def _retrying(invoker: Any, mark: Mark) -> Any:
    """Have one who calls the coordinator mark every wait before it calls again."""
    wait = invoker.wait_function

    def waited(seconds: float) -> None:
        mark("progress")
        mark("lost")
        wait(seconds)
        mark("progress")

    invoker.wait_function = waited
    return invoker


def each_answered(
    pull: Callable[..., Any], push: Callable[..., None]
) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Have a SuperNode push until the answer to the last pulled message has been sent.

    Args:
        pull: takes a message, by its argument ``receive``, and stores it.
        push: waits until there is an answer, and sends all there are, by its argument ``send``.

    Returns:
        Functions that take their places.
    """
    asked = ""

    def pulled(*, receive: Callable[[], Any], **given: Any) -> Any:
        def noted() -> Any:
            nonlocal asked
            found = receive()
            if found is not None:
                asked = found[0].metadata.message_id
            return found

        return pull(receive=noted, **given)

    def pushed(*, send: Callable[..., Any], **given: Any) -> None:
        answered: set[str] = set()

        def noted(message: Any, *rest: Any) -> Any:
            answered.add(message.metadata.reply_to_message_id)
            return send(message, *rest)

        while asked not in answered:
            push(send=noted, **given)

    return pulled, pushed

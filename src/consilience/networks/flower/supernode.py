"""Flower's SuperNode, which has a party answer one message after another, and hands over each answer.

Flower 1.41 takes a message, waits until there is *some* answer, sends what there is, and looks for the next
message. Where a coordinator was killed while a message was on its way, Flower makes up an answer to that one
minutes later. It is sent in the place of the one that is waited for, which then stays until another message
comes, and so on: the party would be one answer behind for ever, and count as one that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from consilience.networks.flower.internals import flwr, insides, replaced

_LOOP = "flwr.supernode.start_client_internal"


def supernode() -> None:
    """Do what Flower's ``flower-supernode`` does, with the arguments of the process.

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
        MissingExtra: flwr is not installed.
    """
    flwr()
    pull, push = each_answered(*insides(_LOOP, "_pull_and_store_message", "_push_messages"))
    replaced(_LOOP, _pull_and_store_message=pull, _push_messages=push)
    import_module("flwr.supernode.cli").flower_supernode()


def each_answered(
    pull: Callable[..., Any], push: Callable[..., None]
) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Have a SuperNode push until the answer to the message that it pulled last has left.

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

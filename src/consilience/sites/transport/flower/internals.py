"""The parts of flwr that the other files of this room need: its messages, and insides that may change with a
version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from consilience.core.errors import KnowledgeRefused, MissingExtra, RunFailed

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables that keep Flower and Ray from reporting to anyone."""

PATIENCE = 600.0
"""Seconds an exchange may take where the network was given no ``timeout``."""

START = 300.0
"""Seconds that a process in the background has to do, or to be told, what it was started for."""

NODE_UNAVAILABLE = 5
"""Flower's code for a node whose heartbeat stopped while it was asked."""

_MEND = "Install the flwr of consilience's extra: pip install 'consilience[flower]'"
_KEY = "consilience"
_ENVELOPE = "consilience.envelope"


def flwr() -> Any:
    """The package ``flwr.app``.

    Raises:
        MissingExtra: flwr is not installed.
    """
    try:
        import flwr.app as app
    except ImportError as error:
        raise MissingExtra("flwr", extra="flower", where="network") from error
    return app


def task_commands() -> tuple[str, ...]:
    """List the commands that a SuperNode may start on request, such as ``flwr-clientapp``.

    Raises:
        RunFailed: the internals of the installed flwr version are not supported.
    """
    flwr()
    constants: Any = import_module("flwr.supercore.constant")
    try:
        return tuple(constants.TASK_TYPE_TO_COMMAND.values())
    except AttributeError as error:
        raise RunFailed(
            "this flwr has no TASK_TYPE_TO_COMMAND", where="flwr", mend=_MEND
        ) from error


def insides(module: str, *names: str) -> tuple[Any, ...]:
    """Functions and constants of a module of flwr.

    Args:
        module: its name.
        names: of the functions and constants.

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
    """
    inside = import_module(module)
    for name in names:
        if not hasattr(inside, name):
            raise RunFailed(f"this flwr has no {name}", where="flwr", mend=_MEND)
    return tuple(getattr(inside, name) for name in names)


def replaced(module: str, **instead: Callable[..., Any]) -> None:
    """Put functions of ours in the place of those that a module of flwr calls by name.

    Args:
        module: its name.
        instead: the functions, under the names of those whose places they take.

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
    """
    insides(module, *instead)
    for name, function in instead.items():
        setattr(import_module(module), name, function)


def wrap(data: bytes, **envelope: str | int) -> RecordDict:
    """Put bytes into a record, as an array: Flower sends it in pieces of 5 MB, and a plain value in one."""
    app = flwr()
    array = app.Array(dtype="uint8", shape=(len(data),), stype=_KEY, data=data)
    record: RecordDict = app.RecordDict({_KEY: app.ArrayRecord({_KEY: array})})
    if envelope:
        record[_ENVELOPE] = app.ConfigRecord(envelope)
    return record


def unwrap(message: Message) -> bytes:
    """Take the bytes out of a Flower message.

    Raises:
        KnowledgeRefused: there are none.
    """
    try:
        return bytes(message.content.array_records[_KEY][_KEY].data)
    except (KeyError, ValueError) as error:
        raise KnowledgeRefused("not a message of consilience", where="wire") from error


def envelope_of(message: Message) -> dict[str, Any]:
    """Read the ``federation`` that a request is of, whom it goes ``to``, and the round last ``recorded``."""
    written: Mapping[str, Any] = message.content.config_records.get(_ENVELOPE) or {}
    recorded = written.get("recorded")
    return {
        "federation": str(written.get("federation", "")),
        "to": str(written["to"]) if written.get("to") else None,
        "recorded": recorded if isinstance(recorded, int) else -1,
    }

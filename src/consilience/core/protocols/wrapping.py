"""Options that any protocol has, each of a feature that puts something around the protocol's rounds.

Compression is one, secure aggregation another. A package adds one by an entry point: its name is the
option's, and its value a :class:`Wrapping`::

    [project.entry-points."consilience.wrappings"]
    codec = "consilience.methods.compression.rounds:WRAPPING"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from consilience.core.errors import InvalidInput
from consilience.core.messages.message import TaskGroup
from consilience.core.protocols.rounds import SECURE, Rounds
from consilience.core.registry import registered_names, registered_object

GROUP = "consilience.wrappings"
"""Group of entry points whose values are a :class:`Wrapping`."""

Summed = bool | Literal["class sums"]
"""Whether sums of answers suffice for a protocol, or the kind of answers that support shared noise."""


class WrappedProtocol(Protocol):
    """A protocol, as a :class:`Wrapping` sees it."""

    @property
    def name(self) -> str:
        """Name of the protocol."""

    @property
    def exchanges(self) -> TaskGroup | None:
        """Group of the messages that parties send; ``None`` if they send none."""

    @property
    def summed(self) -> Summed:
        """Whether sums of the parties' answers are enough for it."""

    def takes(self, option: str) -> bool:
        """Return whether the protocol has this option."""


@dataclass(frozen=True)
class Wrapping:
    """A change of the rounds of any protocol by a feature, switched on by an option.

    Attributes:
        kind: class of the option's values.
        what: noun of the class, for errors.
        example: call that makes a value, for errors.
        check: of the protocol, the value and all options as given; raises ``InvalidInput`` on a combination
            that cannot work, when the options are bound.
        around: of the protocol, the function to wrap, the value, the network, the public rows and the state,
            and the protocol's own options by name; makes the rounds.
    """

    kind: type[Any]
    what: str
    example: str
    check: Callable[[WrappedProtocol, Any, Mapping[str, Any]], None]
    around: Callable[..., Rounds]


def wrapping(option: str) -> Wrapping:
    """Load what an option puts around a protocol."""
    made = registered_object(GROUP, option)
    assert isinstance(made, Wrapping), f"entry point {option} of {GROUP} is no Wrapping"
    return made


def wrapping_options(summed: Summed) -> tuple[str, ...]:
    """List the options of every protocol, sorted, without loading them.

    Args:
        summed: whether sums are enough for the protocol; else it has no option for them.
    """
    return tuple(name for name in registered_names(GROUP) if summed or name != SECURE)


def check_made(option: str, value: object, kind: type[Any], what: str, example: str) -> None:
    """Raise ``InvalidInput`` unless an option is ``None`` or of its kind, not the function that makes one.

    Args:
        option: name of the option.
        value: the value.
        kind: the class of valid values.
        what: noun of the class, for the error.
        example: call that makes one, for the error.
    """
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(
            f"{option} is {value!r}, not {what}",
            where="protocol",
            mend=f"Call what makes one: {option}={example}; or make a {kind.__name__} of your own.",
        )

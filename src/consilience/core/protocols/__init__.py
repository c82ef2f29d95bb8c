"""Protocols, one method or family of methods a file.

All of them take the option ``codec`` (:meth:`Protocol.compressed`).
"""

import sys
from collections.abc import Mapping
from functools import cache

from consilience.core.protocols.base import Protocol as Protocol
from consilience.core.protocols.base import ProtocolFactory as ProtocolFactory
from consilience.core.protocols.base import Round as Round
from consilience.core.protocols.base import RoundState as RoundState
from consilience.core.protocols.base import protocol as protocol
from consilience.core.protocols.ensemble_distillation import (
    ensemble_distillation as ensemble_distillation,
)
from consilience.core.protocols.iterative_distillation import (
    iterative_distillation as iterative_distillation,
)
from consilience.core.protocols.local_only import local_only as local_only
from consilience.core.registry import Registry, named, registered_modules


@cache
def _all() -> tuple[ProtocolFactory[...], ...]:
    modules = (sys.modules[__name__], *registered_modules("consilience.protocols"))
    factories = (value for module in modules for value in vars(module).values())
    found = named(
        ((one.name, one) for one in factories if isinstance(one, ProtocolFactory)), what="protocol"
    )
    return tuple(found[name] for name in sorted(found))


PROTOCOLS: Mapping[str, ProtocolFactory[...]] = Registry(
    lambda: {p.name: p for p in _all() if not p.python_only}
)
"""The protocols that a configuration can name: those here, and those in a module that a package registers
under ``consilience.protocols``."""

PYTHON_ONLY: Mapping[str, str] = Registry(
    lambda: {p.name: p.python_only for p in _all() if p.python_only}
)
"""Protocols that a configuration cannot name, and why."""

ALSO_CALLED: Mapping[str, str] = Registry(
    lambda: {alias: p.name for p in _all() for alias in p.also_called}
)
"""Names that papers give the protocols, to the names here."""

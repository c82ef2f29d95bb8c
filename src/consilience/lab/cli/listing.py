"""Lists of everything that a configuration can name, with one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consilience.core.errors import InvalidInput, MissingExtra, nearest


def _learners() -> dict[str, str]:
    from consilience.models.presets import LEARNERS

    return {
        name: entry.summary + (f" [needs {entry.extra}]" if entry.extra else "")
        for name, entry in LEARNERS.items()
    }


def _encoders() -> dict[str, str]:
    from consilience.models.encoders.encoders import ENCODERS, find_encoder

    def digest(name: str) -> str:
        try:
            return f"its digest here: {find_encoder(name).key}"
        except MissingExtra:
            return f"[needs {ENCODERS[name].extra}]"

    return {name: f"{entry.summary}; {digest(name)}" for name, entry in ENCODERS.items()}


def _datasets() -> dict[str, str]:
    from consilience.lab.data import DATASETS

    return {name: entry.line for name, entry in DATASETS.items()}


def _partitions() -> dict[str, str]:
    from consilience.lab.data import PARTITIONS

    return {name: entry.line for name, entry in PARTITIONS.items()}


def _aggregators() -> dict[str, str]:
    from consilience.core.aggregation import AGGREGATORS
    from consilience.lab.config.methods import first_lines

    return first_lines(AGGREGATORS)


def _consensus() -> dict[str, str]:
    from consilience.core.aggregation import CONSENSUS
    from consilience.lab.config.methods import first_lines

    return first_lines(CONSENSUS)


def _codecs() -> dict[str, str]:
    from consilience.lab.config.methods import first_lines
    from consilience.methods.compression.codec import CODECS

    return first_lines(CODECS)


def _protocols() -> dict[str, str]:
    from consilience.core.protocols import PROTOCOLS
    from consilience.lab.config.methods import first_lines

    return first_lines(PROTOCOLS)


def _methods() -> dict[str, str]:
    from consilience.lab.config.methods import method_lines

    return method_lines()


KINDS: Mapping[str, Callable[[], dict[str, str]]] = {
    "learners": _learners,
    "encoders": _encoders,
    "aggregators": _aggregators,
    "protocols": _protocols,
    "datasets": _datasets,
    "partitions": _partitions,
    "consensus": _consensus,
    "codecs": _codecs,
    "methods": _methods,
}
"""Lists of ``consilience list``; imported only when asked for."""


def listed(kind: str) -> dict[str, str]:
    """Look up the names of a kind, each with a line about it.

    Raises:
        InvalidInput: there is no such list.
    """
    if kind not in KINDS:
        raise InvalidInput(f"there is no list of {kind!r}", mend=nearest(kind, KINDS))
    return KINDS[kind]()

"""Figures of a page in OpenMetrics, which Prometheus and others read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One figure.

    Attributes:
        name: name of the family, without the prefix ``consilience_``; counters without ``_total``.
        value: the figure.
        help: one sentence on the family.
        counter: true if the value can only grow during a run.
        labels: names and values that distinguish it from others of the family.
    """

    name: str
    value: float
    help: str
    counter: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def open_metrics(samples: Iterable[Sample]) -> bytes:
    """Write figures as OpenMetrics 1.0.

    Args:
        samples: those of one family have the same help, kind and names of labels.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    from prometheus_client.openmetrics.exposition import generate_latest

    return bytes(generate_latest(_Registry(tuple(samples))))


@dataclass(frozen=True)
class _Registry:
    """Registry of families, as prometheus-client wants it."""

    samples: tuple[Sample, ...]

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for one in self.samples:
            if one.name not in families:
                kind = CounterMetricFamily if one.counter else GaugeMetricFamily
                families[one.name] = kind(
                    f"consilience_{one.name}", one.help, labels=list(one.labels)
                )
            families[one.name].add_metric(list(one.labels.values()), one.value)
        yield from families.values()

"""Makes the text of a scrape from values, in the format that the scraper asks for.

The only module that imports prometheus_client, which costs 130 ms: it is imported by a daemon that
serves metrics, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kubectl_nodelife.daemon.metrics.change_counts import Histogram
from kubectl_nodelife.daemon.metrics.families import COUNTER, FAMILIES, HISTOGRAM, MetricFamily
from kubectl_nodelife.daemon.metrics.values import Values
from kubectl_nodelife.kube.zones import zone_display

MOST_CHARACTERS: Final = 128
"""Of a label's value; names in Kubernetes have 253 at the most, zones far less."""


class Exposition(NamedTuple):
    """The body of an answer and its content type."""

    body: bytes
    content_type: str


class _Collected(Collector):
    """Values that were taken beforehand, as a collector."""

    def __init__(self, values: Values, plain_zones: bool) -> None:
        self._values = values
        self._plain_zones = plain_zones

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            samples = self._values.get(family.name)
            if samples:
                made = _family(family)
                zone_at = family.labels.index("zone") if "zone" in family.labels else -1
                for labels, value in samples:
                    words = [
                        zone_display(word) if at == zone_at and self._plain_zones else word
                        for at, word in enumerate(labels)
                    ]
                    _add(made, [word[:MOST_CHARACTERS] for word in words], value)
                yield made


def expose(values: Values, accept: str, *, plain_zones: bool = False) -> Exposition:
    """All values with those of this process, as the Accept header wants them."""
    registry = CollectorRegistry()
    registry.register(_Collected(values, plain_zones))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    encoder, content_type = choose_encoder(accept)
    return Exposition(encoder(registry), content_type)


def _family(family: MetricFamily) -> Metric:
    name, text, labels = family.name, family.help, list(family.labels)
    if family.type == COUNTER:
        return CounterMetricFamily(name.removesuffix("_total"), text, labels=labels)
    if family.type == HISTOGRAM:
        return HistogramMetricFamily(name, text, labels=labels)
    return GaugeMetricFamily(name, text, labels=labels)


def _add(made: Metric, labels: list[str], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        assert isinstance(made, HistogramMetricFamily)
        made.add_metric(labels, buckets=value.cumulative(), sum_value=value.sum)
    else:
        assert isinstance(made, (CounterMetricFamily, GaugeMetricFamily))
        made.add_metric(labels, value)

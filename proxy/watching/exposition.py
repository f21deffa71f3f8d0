"""Metrics in the form that Prometheus reads. Handed counts, spreads and single numbers; hands on families of its
library, and the text of them. Loaded when somebody asks for metrics first: few do, and the library takes its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .metric_parts import Count, Spread


def written(families: Iterable[Metric]) -> bytes:
    return generate_latest(_Collected(families))


def family(part: Count | Spread) -> Metric:
    return _counter_family(part) if isinstance(part, Count) else _histogram_family(part)


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def total(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _counter_family(count: Count) -> Metric:
    family = CounterMetricFamily(count.name, count.text, labels=count.labels)
    for labels, value in count.items():
        family.add_metric(labels, value)
    return family


def _histogram_family(spread: Spread) -> Metric:
    family = HistogramMetricFamily(spread.name, spread.text, labels=spread.labels)
    for labels, row in spread.rows.items():
        family.add_metric(labels, list(_buckets(spread, row)), row[-1])
    return family


def _buckets(spread: Spread, row: list[float]) -> Iterator[tuple[str, float]]:
    total = 0.0
    for bound, count in zip((*map(str, spread.bounds), "+Inf"), row[:-1], strict=True):
        total += count
        yield bound, total

"""The numbers that metrics are made of, each for every set of labels: a count that grows, and a spread. Handed what is
to be added; hands on a family for Prometheus, or itself as plain JSON, which another process can add to its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric

Labels = tuple[str, ...]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SHORT_SECONDS = (0.0005, 0.001, 0.0025, *SECONDS[:10])  # of what we do ourselves


class Count:
    """A number that only grows, for each set of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name, self._text, self._labels = name, text, labels
        self.values: Counter[Labels] = Counter()

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[labels] += by  # type: ignore[assignment]  # Counter is typed for whole numbers

    def family(self) -> Metric:
        family = CounterMetricFamily(self.name, self._text, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family

    def told(self) -> list[Any]:
        return list(self.values.items())

    def add_told(self, told: list[Any]) -> None:
        """What another one of this name has told."""
        for labels, value in told:
            self.add(*labels, by=value)

    def copied(self) -> Self:
        other = copy(self)
        other.values = self.values.copy()
        return other


class Spread:
    """A histogram, for each set of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float] = SECONDS) -> None:
        self.name, self._text, self._labels = name, text, labels
        self._bounds = bounds
        self.counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: Counter[Labels] = Counter()
        if not labels:
            self.counts[()]  # shown from the start

    def add(self, value: float, *labels: str) -> None:
        self.counts[labels][bisect_left(self._bounds, value)] += 1
        self.sums[labels] += value  # type: ignore[assignment]  # Counter is typed for whole numbers

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self._text, labels=self._labels)
        for labels, counts in self.counts.items():
            family.add_metric(labels, list(self._buckets(counts)), self.sums[labels])
        return family

    def told(self) -> list[Any]:
        return [(labels, counts, self.sums[labels]) for labels, counts in self.counts.items()]

    def add_told(self, told: list[Any]) -> None:
        for given, counts, total in told:
            labels = tuple(given)
            self.counts[labels] = [own + other for own, other in zip(self.counts[labels], counts, strict=True)]
            self.sums[labels] += total

    def copied(self) -> Self:
        other = copy(self)
        other.counts, other.sums = self.counts.copy(), self.sums.copy()  # no list in it is changed by `add_told`
        return other

    def _buckets(self, counts: Sequence[int]) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            yield bound, total

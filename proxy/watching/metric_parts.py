"""The numbers that metrics are made of, each for every set of labels: a count that grows, and a spread. Handed what is
to be added; told as plain JSON, which another process can add to its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self

Labels = tuple[str, ...]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SHORT_SECONDS = (0.0005, 0.001, 0.0025, *SECONDS[:10])  # of what we do ourselves


class Count(defaultdict[Labels, float]):
    """A number that only grows, for each set of labels: `count["up", "input"] += 5`."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(int)
        self.name, self.text, self.labels = name, text, labels

    def told(self) -> list[Any]:
        return list(self.items())

    def add_told(self, told: list[Any]) -> None:
        """What another one of this name has told."""
        for labels, value in told:
            self[tuple(labels)] += value

    def copied(self) -> Self:
        other = type(self)(self.name, self.text, self.labels)
        other.update(self)
        return other


class Spread:
    """A histogram, for each set of labels. A row of it counts how many values are not above each of `bounds`, then how
    many are above all of them; behind these it has the sum of all values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float] = SECONDS) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.bounds = bounds
        self.rows: dict[Labels, list[float]] = defaultdict(lambda: [0] * (len(bounds) + 2))
        if not labels:
            self.rows[()]  # shown from the start

    def add(self, value: float, *labels: str) -> None:
        row = self.rows[labels]
        row[bisect_left(self.bounds, value)] += 1
        row[-1] += value

    def told(self) -> list[Any]:
        return [(labels, row[:-1], row[-1]) for labels, row in self.rows.items()]

    def add_told(self, told: list[Any]) -> None:
        for given, counts, total in told:
            labels = tuple(given)
            self.rows[labels] = [own + other for own, other in zip(self.rows[labels], (*counts, total), strict=True)]

    def copied(self) -> Self:
        other = type(self)(self.name, self.text, self.labels, self.bounds)
        other.rows.update(self.rows)  # no row in it is changed by `add_told`
        return other

"""Metrics as Prometheus reads them, by its own parser: figures by name and labels, and how they grew."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Samples:
    """`samples("groundwire_rounds_total", upstream="up")` is a figure; what is not there is 0."""

    def __init__(self, exposition: bytes) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(exposition.decode())}
        self.values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.values.get((name, tuple(sorted(labels.items()))), 0.0)

    def since(self, before: Samples) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
        """What has grown, and by how much."""
        grown = {key: value - before.values.get(key, 0.0) for key, value in self.values.items()}
        return {key: value for key, value in grown.items() if value}

    @property
    def series(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return set(self.values)

    @property
    def label_names(self) -> dict[str, set[str]]:
        """The labels of each name, where there is a figure of it."""
        return {name: {label for label, _ in labels} for name, labels in self.values}

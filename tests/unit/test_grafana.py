"""docs/grafana.json: a dashboard that Grafana can read, about metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from proxy.watching.metric_parts import Count, Spread
from proxy.watching.metrics import Metrics

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
OF_PROMETHEUS = {"job", "le"}
WANTED = {
    "groundwire_requests_total",
    "groundwire_first_token_seconds_bucket",
    "groundwire_tool_calls_total",
    "groundwire_cache_answers_total",
    "groundwire_provider_cooldowns_total",
    "groundwire_tokens_total",
    "groundwire_cost_total",
    "groundwire_loop_lag_seconds_bucket",
    "groundwire_streams",
    "groundwire_waiting",
    "groundwire_queue_seconds_bucket",
}


def known() -> dict[str, set[str]]:
    """Every series that can be asked for, with its labels."""
    metrics = Metrics()
    kinds = {family.name: family.type for family in metrics.families()}
    found = {name: set[str]() for name in kinds}
    for part in vars(metrics).values():
        if isinstance(part, Count | Spread):  # what is told with labels
            found[part.name] = set(part.labels)
    assert found["groundwire_requests"] == {"dialect", "upstream", "outcome"}
    series: dict[str, set[str]] = {}
    for name, labels in found.items():
        if kinds[name] == "counter":
            series[name + "_total"] = labels
        elif kinds[name] == "histogram":
            series |= {f"{name}_{end}": labels for end in ("bucket", "sum", "count")}
        else:
            series[name] = labels
    return series


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:groundwire|gen_ai_client)_\w+", query))


def labels_in(query: str) -> set[str]:
    grouped = [name.strip() for names in re.findall(r"\bby \(([^)]*)\)", query) for name in names.split(",")]
    return {*grouped, *re.findall(r"[{,]\s*(\w+)\s*(?:=~?|!~|!=)", query)}


@pytest.mark.parametrize("query", QUERIES)
def test_its_metrics_and_labels_exist(query: str) -> None:
    series = known()
    named = metrics_in(query)
    assert named
    for name in named:
        assert name in series, f"there is no {name}"
        assert labels_in(query) - OF_PROMETHEUS <= series[name], name
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")
    assert query.count('job=~"$job"') == len(re.findall(r"\b(?:groundwire|gen_ai_client)_\w+", query))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_its_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown == labels_in(target["expr"]) - OF_PROMETHEUS - set(re.findall(r'(\w+)="', target["expr"]))


def test_it_shows_what_matters() -> None:
    assert set().union(*map(metrics_in, QUERIES)) >= WANTED


def test_quantiles_are_of_buckets_by_their_bounds() -> None:
    quantiles = [query for query in QUERIES if "histogram_quantile" in query]
    assert quantiles
    for query in quantiles:
        assert re.fullmatch(
            r"histogram_quantile\(0\.\d+, sum by \(le(?:, \w+)?\) \(rate\(\w+_bucket{[^}]+}\[[^]]+]\)\)\)", query
        )


def test_it_is_a_dashboard() -> None:
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= BOARD.keys()
    assert "id" not in BOARD, "Grafana gives it one"
    assert BOARD["schemaVersion"] >= 39
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)", json.dumps(BOARD["panels"]))) == variables
    for panel in PANELS:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C", "D"][: len(panel["targets"])]


def cells(panel: dict[str, Any]) -> Iterator[tuple[int, int]]:
    place = panel["gridPos"]
    assert place["x"] + place["w"] <= 24
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_no_panel_lies_on_another() -> None:
    for one, other in combinations(BOARD["panels"], 2):
        assert not set(cells(one)) & set(cells(other)), (one["title"], other["title"])

"""The metrics: what is counted under which labels, in numbers that add up, and in no more series than the operator's
own names allow. Read back with Prometheus's own parser.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from providers.base import ProviderCall
from proxy.config.prices import PricesConfig
from proxy.watching.lag import LoopLag
from proxy.watching.metrics import CONTENT_TYPE, Metrics
from proxy.watching.observer import Observer
from proxy.watching.prices import PriceList
from proxy.watching.steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Queued,
    Received,
    Retried,
    Step,
    Tokens,
    ToolCalled,
)
from tests.fakes.samples import Samples

PRICES = PriceList(
    PricesConfig.model_validate({"models": {"*": {"output": 1_000_000}}, "providers": {"library": {"search": 0.25}}})
)
PAGE = Path(__file__).parents[2] / "docs" / "observing.md"


def provider_call(**changes: Any) -> ProviderCall:
    given = {"provider": "library", "role": "search", "outcome": "ok", "cached": False, "seconds": 0.2, **changes}
    return ProviderCall(**given)


def watched(
    metrics: Metrics, *steps: Step, status: int = 200, failure: object = None, dialect: str = "chat", **about: Any
) -> None:
    """One request, from its beginning to its end."""
    request = Observer([metrics], dialect=dialect, **about)
    for step in steps:
        request.tell(step)
    request.status = status
    if failure:
        request.fail(failure)
    request.end()


def samples(*steps: Step, **about: Any) -> Samples:
    metrics = Metrics()
    watched(metrics, *steps, **about)
    return Samples(metrics.exposition())


def everything() -> Metrics:
    """Metrics in which each has something to show."""
    metrics = Metrics()
    watched(
        metrics,
        Queued("turn", 0.1, "waiting"),
        Received(0.0),
        Decided(True, "auto"),
        ModelAsked("up", "m"),
        ModelFailed("up", 503, "x"),
        Retried("up", "asked"),
        Queued("turn", 0.1),
        Queued("upstream", 0.2, "upstream"),
        provider_call(),
        ToolCalled("web_search", True, 0.2),
        Queued("turn", 0.1, "waiting"),
        FirstContent(),
        Cited(1),
        ModelAnswered("up", 0.5, Tokens(10, 5)),
        prices=PRICES,
    )
    metrics.cooled_down("library", 60.0)
    metrics.lagged(0.001)
    return metrics


# What is counted


def test_a_request_by_dialect_upstream_and_outcome() -> None:
    shown = samples(Decided(True, "auto"), ModelAsked("up", "m"), ModelAnswered("up", 0.5), Cited(1), Cited(2))
    assert shown("groundwire_requests_total", dialect="chat", upstream="up", outcome="ok") == 1
    assert shown("groundwire_rounds_total", upstream="up") == 1
    assert shown("groundwire_citations_total", dialect="chat") == 2
    assert shown("groundwire_streams") == 0


def test_retries_by_what_became_of_them() -> None:
    shown = samples(*(Retried("up", outcome) for outcome in ("asked", "asked", "spent", "over_budget")))
    made = {
        outcome: shown("groundwire_retries_total", upstream="up", outcome=outcome) for outcome in ("asked", "spent")
    }
    assert made == {"asked": 2, "spent": 1}
    assert shown("groundwire_retries_total", upstream="up", outcome="over_budget") == 1


@pytest.mark.parametrize(
    ("status", "failure", "outcome"),
    [
        (200, None, "ok"),
        (0, None, "client_left"),
        (200, "client_left", "client_left"),
        (401, "invalid_api_key", "refused"),
        (405, None, "refused"),
        (429, "whatever the server said", "refused"),
        (200, "upstream_truncated", "failed"),
        (502, "upstream_unreachable", "failed"),
        (0, "shutting_down", "failed"),
    ],
)
def test_outcomes_are_four_words(status: int, failure: str | None, outcome: str) -> None:
    shown = samples(status=status, failure=failure)
    assert shown("groundwire_requests_total", dialect="chat", upstream="", outcome=outcome) == 1


def test_waits_by_what_was_waited_for_and_refusals_by_their_reason() -> None:
    shown = samples(Queued("turn", 0.03), Queued("server", 0.2, "key"), status=429, failure="too_many_requests")
    assert shown("groundwire_queue_seconds_count", queue="turn") == 1
    assert shown("groundwire_queue_seconds_sum", queue="server") == 0.2
    assert shown("groundwire_shed_total", reason="key") == 1
    assert shown("groundwire_waiting") == 0
    assert Samples(Metrics(waiting=lambda: 7).exposition())("groundwire_waiting") == 7


def test_tool_calls_by_the_name_that_the_operator_gave_the_provider() -> None:
    shown = samples(
        provider_call(provider="web", outcome="timed_out", seconds=3.0),
        provider_call(provider="ddg"),
        provider_call(provider="ddg", cached=True, seconds=0.0),
        provider_call(provider="reader", role="read", outcome="blocked"),
        provider_call(provider="web", outcome="cooling_down", seconds=0.0),
    )
    calls = "groundwire_tool_calls_total"
    assert shown(calls, tool="web_search", provider="web", outcome="timed_out") == 1
    assert shown(calls, tool="web_search", provider="web", outcome="cooling_down") == 1
    assert shown(calls, tool="web_search", provider="ddg", outcome="ok") == 2
    assert shown(calls, tool="open_page", provider="reader", outcome="blocked") == 1
    assert shown("groundwire_cache_answers_total", tool="web_search", result="hit") == 1
    assert shown("groundwire_cache_answers_total", tool="web_search", result="miss") == 2
    assert shown("groundwire_provider_seconds_count", tool="web_search", provider="web") == 1, "it was asked once"
    assert shown("groundwire_provider_seconds_sum", tool="web_search", provider="web") == 3.0
    assert shown("groundwire_provider_seconds_count", tool="web_search", provider="ddg") == 1


def test_tokens_and_the_time_of_each_question() -> None:
    shown = samples(
        ModelAsked("up", "m"),
        ModelAnswered("up", 0.5, Tokens(100, 10)),
        ModelAsked("up", "m"),
        ModelAnswered("up", 2.0, Tokens(300, 20)),
    )
    assert shown("groundwire_tokens_total", upstream="up", type="input") == 400
    assert shown("groundwire_tokens_total", upstream="up", type="output") == 30
    by = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "up"}
    assert shown("gen_ai_client_operation_duration_seconds_count", **by) == 2
    assert shown("gen_ai_client_operation_duration_seconds_sum", **by) == 2.5
    assert shown("gen_ai_client_operation_duration_seconds_bucket", **by, le="0.5") == 1
    assert shown("gen_ai_client_token_usage_sum", **by, gen_ai_token_type="input") == 400
    assert shown("gen_ai_client_token_usage_bucket", **by, gen_ai_token_type="input", le="256") == 1


def test_a_forwarded_request() -> None:
    asked = ModelAsked("up", "m")
    shown = samples(asked, Forwarded("up", 200, "embeddings", 0.1, Tokens(8, 0)), dialect="http")
    by = {"gen_ai_operation_name": "embeddings", "gen_ai_provider_name": "up"}
    assert shown("groundwire_rounds_total", upstream="up") == 1
    assert shown("groundwire_tokens_total", upstream="up", type="input") == 8
    assert ("groundwire_tokens_total", (("type", "output"), ("upstream", "up"))) not in shown.series
    assert shown("gen_ai_client_operation_duration_seconds_count", **by) == 1
    other = samples(asked, Forwarded("up", 200, "", 0.1, Tokens(8, 0)))
    assert other("groundwire_tokens_total", upstream="up", type="input") == 8
    assert not [name for name, _ in other.series if name.startswith("gen_ai_")]
    failed = samples(asked, ModelFailed("up", 500, ""), Forwarded("up", 500, "chat", 0.1), status=500)
    assert failed("groundwire_model_failures_total", upstream="up", status="5xx") == 1
    assert not [name for name, _ in failed.series if name.startswith("gen_ai_")]


def test_first_token_and_overhead() -> None:
    metrics = Metrics()
    request = Observer([metrics], dialect="chat")
    request.began -= 200.0  # it came some minutes ago,
    request.tell(Received(150.0))  # most of which its client took
    request.tell(ModelAsked("up", "m"))
    request.began -= 300.0
    request.tell(FirstContent())
    request.status = 200
    request.end()
    shown = Samples(metrics.exposition())
    assert 50.0 <= shown("groundwire_overhead_seconds_sum", dialect="chat") < 150.0
    assert shown("groundwire_overhead_seconds_count", dialect="chat") == 1
    assert shown("groundwire_overhead_seconds_bucket", dialect="chat", le="0.25") == 0
    assert 500.0 <= shown("groundwire_first_token_seconds_sum", dialect="chat", upstream="up") < 600.0


def test_a_request_that_asks_nobody_has_no_overhead() -> None:
    shown = samples(Received(0.1), Decided(False, "off"), status=404, failure="model_not_found")
    assert not [name for name, _ in shown.series if name.startswith("groundwire_overhead")]


def test_answers_under_way() -> None:
    metrics = Metrics()
    probe, decided, forwarded = (Observer([metrics], dialect="chat") for _ in range(3))
    decided.tell(Decided(True, "auto"))
    decided.tell(ModelAsked("up", "m"))
    decided.tell(ModelAsked("up", "m"))
    forwarded.tell(ModelAsked("up", "m"))
    assert Samples(metrics.exposition())("groundwire_streams") == 2, "probes and scrapes are none"
    decided.end()
    assert Samples(metrics.exposition())("groundwire_streams") == 1
    forwarded.end()
    probe.end()
    assert Samples(metrics.exposition())("groundwire_streams") == 0


def test_cool_downs() -> None:
    metrics = Metrics()
    metrics.cooled_down("web", 60.0)
    metrics.cooled_down("web", 120.0)
    assert Samples(metrics.exposition())("groundwire_provider_cooldowns_total", provider="web") == 2


async def test_a_loop_that_is_held_up_shows_it() -> None:
    metrics = Metrics()
    assert ("groundwire_loop_lag_seconds_count", ()) in Samples(metrics.exposition()).series, "there from the start"
    seen = asyncio.Event()

    def report(seconds: float) -> None:
        metrics.lagged(seconds)
        seen.set()

    lag = LoopLag(report, every=0.01)
    lag.start()
    time.sleep(0.1)  # this very thing is looked for
    await seen.wait()
    lag.stop()
    shown = Samples(metrics.exposition())
    assert shown("groundwire_loop_lag_seconds_sum") >= 0.08
    assert shown("groundwire_loop_lag_seconds_bucket", le="0.05") < shown("groundwire_loop_lag_seconds_count")
    before = shown("groundwire_loop_lag_seconds_count")
    await asyncio.sleep(0.05)
    assert Samples(metrics.exposition())("groundwire_loop_lag_seconds_count") == before, "it was stopped"


# How it adds up


def test_several_processes_can_be_summed() -> None:
    """Sums and counts of two processes are those of one that did the work of both."""
    work: list[tuple[Step, ...]] = [
        (ModelAsked("up", "m"), ModelAnswered("up", 0.3, Tokens(7, 3)), provider_call(seconds=0.7)),
        (ModelAsked("up", "m"), ModelAnswered("up", 4.0, Tokens(900, 80)), provider_call(seconds=0.004)),
    ]
    both, one, other = Metrics(), Metrics(), Metrics()
    for metrics, share in ((both, work), (one, work[:1]), (other, work[1:])):
        for steps in share:
            watched(metrics, *steps)
    summed = [Samples(metrics.exposition()) for metrics in (one, other)]
    for key, value in Samples(both.exposition()).values.items():
        if (
            "overhead" not in key[0] and key[0] != "groundwire_workers"
        ):  # one is measured, and of the other there are two
            assert sum(part.values.get(key, 0.0) for part in summed) == pytest.approx(value), key


def test_histograms_are_whole() -> None:
    shown = Samples(everything().exposition())
    for name, labels in shown.series:
        if name.endswith("_count"):
            assert shown(name.removesuffix("_count") + "_bucket", **dict(labels), le="+Inf") == shown(
                name, **dict(labels)
            )


def test_costs_by_who_is_paid() -> None:
    steps = [ModelAsked("up", "m"), provider_call(), provider_call(cached=True), ModelAnswered("up", 0.5, Tokens(0, 3))]
    shown = samples(*steps, prices=PRICES)
    assert shown("groundwire_cost_total", kind="model", source="up") == 3
    assert shown("groundwire_cost_total", kind="search", source="library") == 0.25


def test_estimates_cost_and_are_no_tokens_that_a_server_counted() -> None:
    shown = samples(ModelAsked("up", "m"), ModelLeft("up", Tokens(9, 2, estimated=True)), prices=PRICES)
    assert shown("groundwire_cost_total", kind="model", source="up") == 2
    assert "groundwire_tokens_total{" not in str(shown.series)


# What cannot grow


def test_nothing_that_clients_or_servers_send_makes_a_series() -> None:
    def hostile(metrics: Metrics, word: str, number: int) -> None:
        about = {"method": word, "path": f"/{word}", "request_id": word, "prices": PRICES}
        steps: list[Step] = [
            Received(number),
            Decided(True, word),
            ModelAsked("up", word),
            ModelFailed("up", 400 + number % 200, word),
            ToolCalled(word, True, 0.1, [{"query": word}]),
            provider_call(),
            FirstContent(),
            Cited(number),
            ModelAnswered("up", number, Tokens(number, number)),
            Forwarded("up", 200, "chat", 0.1, Tokens(number, number)),
        ]
        watched(metrics, *steps, status=200 + number % 400, failure=word, **about)

    metrics = Metrics()
    for number in range(400):
        hostile(metrics, f"word{number}", number)
    settled = Samples(metrics.exposition()).series
    for number in range(400, 1000):
        hostile(metrics, f"word{number}", number)
    assert Samples(metrics.exposition()).series == settled
    assert "word" not in metrics.exposition().decode()
    counters = [name for name, _ in settled if name.endswith(("_total", "_count"))]
    assert len(counters) < 40


# What is documented


def test_its_form_is_named_as_prometheus_names_it() -> None:
    assert CONTENT_TYPE == CONTENT_TYPE_LATEST


def test_every_metric_is_documented_with_its_labels_and_every_documented_one_exists() -> None:
    shown = Samples(everything().exposition())
    labels = {name: names - {"le"} for name, names in shown.label_names.items()}
    actual = {}
    for family in shown.families.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        sample = f"{family.name}_count" if family.type == "histogram" else name
        actual[name] = (family.type, labels[sample])
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.M)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", names))) for name, kind, names in rows}
    assert documented == actual


def test_the_names_that_were_promised_are_there() -> None:
    shown = Samples(everything().exposition()).label_names
    assert shown["groundwire_requests_total"] == {"dialect", "upstream", "outcome"}
    assert shown["groundwire_tool_calls_total"] == {"tool", "provider", "outcome"}
    for name in ("groundwire_first_token_seconds_count", "groundwire_streams", "groundwire_loop_lag_seconds_count"):
        assert name in shown


def test_one_of_several_workers_shows_what_all_have_counted() -> None:
    other = everything()
    mine = Metrics(others=lambda: [(other.snapshot(), True), (b"", True)], workers=lambda: 2)
    alone, shown = Samples(other.exposition()), Samples(mine.exposition())
    assert shown("groundwire_workers") == 2
    for key, value in alone.values.items():
        if key[0] != "groundwire_workers":
            assert shown.values[key] == pytest.approx(value), key
    assert Samples(mine.exposition()).values == shown.values, "asking changes nothing"


def test_a_worker_that_is_gone_has_counted_and_holds_nothing() -> None:
    gone = Metrics(connections=lambda: 7, turned_away=lambda: 3)
    watched(gone, ModelAsked("up", "m"))
    shown = Samples(Metrics(others=lambda: [(gone.snapshot(), False)]).exposition())
    assert shown("groundwire_connections") == 0
    assert shown("groundwire_connections_turned_away_total") == 3
    assert shown("groundwire_rounds_total", upstream="up") == 1


def test_who_takes_the_place_of_another_counts_on() -> None:
    before = Metrics(log_dropped=lambda: 5)
    watched(before, ModelAsked("up", "m"), ModelAnswered("up", 0.3, Tokens(7, 3)))
    after = Metrics(log_dropped=lambda: 1)
    after.take_over(before.snapshot())
    after.take_over(b"")
    watched(after, ModelAsked("up", "m"), ModelAnswered("up", 0.3, Tokens(7, 3)))
    third = Metrics()
    third.take_over(after.snapshot())
    shown = Samples(third.exposition())
    assert shown("groundwire_rounds_total", upstream="up") == 2
    assert shown("groundwire_log_dropped_total") == 6
    assert (
        shown("gen_ai_client_operation_duration_seconds_count", gen_ai_operation_name="chat", gen_ai_provider_name="up")
        == 2
    )

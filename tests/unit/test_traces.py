"""Spans of requests that want to do harm: what clients and models wrote is shown nowhere, and breaks nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from providers.web.egress import Egress
from proxy.config.traces import TracesConfig
from proxy.watching.log import hide
from proxy.watching.observer import Observer
from proxy.watching.span_export import SpanExport
from proxy.watching.steps import ModelAsked, ToolBegan
from proxy.watching.traces import Traces
from tests.fakes.groundwire import gone

SECRET = "sk-of-the-operator-5f2c9d1e7a"


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exported: InMemorySpanExporter) -> Traces:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return Traces(provider.get_tracer("test"), contents=True)


@pytest.fixture
def secret() -> Iterator[str]:
    hide([SECRET])
    yield SECRET
    hide([])


def spans(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exported.get_finished_spans()}


def test_halves_of_characters_in_a_query(
    traces: Traces, exported: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Models write such things; no text in UTF-8 can hold them."""
    request = Observer([traces], method="POST", path="/v1/chat/completions")
    request.tell(ToolBegan("web_search", [{"query": "sky \ud83d"}]))
    request.end()
    (tool,) = [span for name, span in spans(exported).items() if "web_search" in name]
    assert "sky" in str((tool.attributes or {})["gen_ai.tool.call.arguments"])
    assert caplog.records == []


@pytest.mark.parametrize("status", [200, 401, 404, 405, 500])
def test_a_key_in_the_path(traces: Traces, exported: InMemorySpanExporter, secret: str, status: int) -> None:
    request = Observer([traces], method="GET", path=f"/v1/files/{secret}\x1b[2J")
    request.status = status
    request.end()
    (span,) = exported.get_finished_spans()
    shown = f"{span.name} {dict(span.attributes or {})}"
    assert secret not in shown
    assert "\x1b" not in span.name
    assert ("http.route" in shown) == (status in (200, 500)), "whoever is turned away chooses no names of spans"


def test_what_a_client_says_is_no_reason_why_a_collector_is_gone() -> None:
    """OpenTelemetry's own words about a header that it cannot read repeat that header."""
    export = SpanExport(TracesConfig(endpoint=gone()["base_url"]), Egress())
    request = Observer([Traces(export.tracer)], method="POST", path="/v1/chat/completions")
    request.trace_headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00", "tracestate": "all is well, said eve"}
    request.tell(ModelAsked("up", "m"))
    request.end()
    export.close()
    assert export._exporter._last_words.said == "no reason was given"

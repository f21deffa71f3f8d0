"""Traces, as a collector gets them: one span for each request, with what it asked of models, tools and providers inside
it, and joined to the client's own trace and to the model's server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from proxy.watching import trace_names
from tests.e2e.conftest import SITE
from tests.fakes.collector import Collector, SeenSpan
from tests.fakes.groundwire import Groundwire, config_file, gone, groundwire
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, Turn, call, text

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
JOINED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=opaque"}
QUESTION = "Why is the sky blue, asks the patient?"
SECRET = "sk-collector-5f2c9d1e7a"
BUSY = Turn(status=503, body=b'{"error":{"message":"busy","code":"overloaded"}}')


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def held() -> Iterator[HeldSearch]:
    with HeldSearch() as engine:
        yield engine


@pytest.fixture(scope="module")
def traced(config: dict[str, Any], collector: Collector, held: HeldSearch) -> dict[str, Any]:
    dead = gone()["base_url"].removesuffix("/v1")
    broken = {"name": "broken", "type": "searxng", "base_url": dead, "private": False}
    waiting = {"name": "waiting", "type": "searxng", "base_url": held.url, "private": False}
    return {
        **config,
        "server": {"retry_floor": 10},
        "providers": [*config["providers"], broken, waiting],
        "tools": {"search": ["library", "broken", "waiting"], "read": ["library"], "parameters": "full"},
        "traces": {"endpoint": collector.url, "headers": {"x-token": SECRET}},
    }


@pytest.fixture(scope="module")
def proxy(traced: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire(traced) as running:
        yield running


def ask(proxy: Groundwire, headers: Any = None, path: str = "chat/completions", **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], **fields}
    return CLIENT.post(f"{proxy.url}/{path}", json=body, headers=headers)


def parent_of(span: SeenSpan, spans: list[SeenSpan]) -> SeenSpan:
    (parent,) = [other for other in spans if other.id == span.parent_id]
    assert (parent.trace_id, parent.start <= span.start) == (span.trace_id, True)
    return parent


def spans_of(collector: Collector, answer: httpx.Response) -> tuple[SeenSpan, list[SeenSpan]]:
    spans = collector.all_of(answer.headers["x-request-id"])
    (whole,) = [span for span in spans if span.kind == "server"]
    assert all(span.start <= span.end <= whole.end for span in spans)
    return whole, [span for span in spans if span is not whole]


class PassedOn(NamedTuple):
    trace_id: str
    span_id: str
    sampled: bool


def passed_on(model: ModelServer) -> PassedOn:
    """What the last question to the model said it is a part of."""
    read = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", model.heads[-1]["traceparent"])
    assert read
    return PassedOn(read[1], read[2], bool(int(read[3], 16) & 1))


def test_a_searched_answer(proxy: Groundwire, model: ModelServer, collector: Collector) -> None:
    opened = call("open_page", {"url": SITE + "sky.md"}, id="b")
    model.script(call("web_search", {"query": "sky blue"}), opened, text("It is blue [1]."))
    answer = ask(proxy, stream=True)
    assert "library.example" in answer.text
    whole, inner = spans_of(collector, answer)
    assert (whole.name, whole.parent_id, whole.failed) == ("POST /v1/chat/completions", "", False)
    assert whole.resource["service.name"] == "groundwire"
    about = whole.attributes
    assert about.pop("groundwire.first_content_seconds") > 0
    assert about == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "groundwire.request_id": answer.headers["x-request-id"],
        "groundwire.dialect": "chat",
        "groundwire.search": "offered",
        "groundwire.reason": "auto",
        "groundwire.rounds": 3,
        "groundwire.citations": 1,
        "groundwire.outcome": "ok",
    }
    models = [span for span in inner if span.name == "chat m"]
    assert [parent_of(span, [whole, *inner]) for span in models] == [whole] * 3
    assert {span.kind for span in models} == {"client"}
    assert models[0].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    tools = [span for span in inner if span.name.startswith("execute_tool ")]
    assert [span.attributes["gen_ai.tool.name"] for span in tools] == ["web_search", "open_page"]
    assert [parent_of(span, [whole, *inner]) for span in tools] == [whole] * 2
    search, read = (next(span for span in inner if span.name == name) for name in ("retrieval library", "read library"))
    assert [parent_of(span, inner) for span in (search, read)] == tools
    assert search.attributes["groundwire.results"] == 1
    assert search.attributes["groundwire.bytes"] > 0
    assert search.attributes["gen_ai.operation.name"] == "retrieval"
    assert len(inner) == 7


def test_calls_that_run_together_have_their_own_children(
    proxy: Groundwire, model: ModelServer, collector: Collector
) -> None:
    queries = ["salty sea", "green tea brewed", "rayleigh scattering"]
    calls = [(f"call_{n}", "web_search", {"query": query}) for n, query in enumerate(queries)]
    model.script(Turn(calls=calls), text("Salt."))
    whole, inner = spans_of(collector, ask(proxy))
    tools = [span for span in inner if span.name == "execute_tool web_search"]
    calls_out = [span for span in inner if span.name == "retrieval library"]
    assert len(tools) == len(calls_out) == 3
    assert {parent_of(span, inner).id for span in calls_out} == {span.id for span in tools}
    assert {parent_of(span, [whole]).id for span in tools} == {whole.id}


def test_a_trace_of_the_clients_goes_through_us(proxy: Groundwire, model: ModelServer, collector: Collector) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Blue."))
    before = len(model.heads)
    whole, inner = spans_of(collector, ask(proxy, JOINED))
    assert (whole.trace_id, whole.parent_id) == (TRACE, PARENT)
    rounds = [span for span in inner if span.name == "chat m"]
    seen = model.heads[before:]
    assert [head["traceparent"] for head in seen] == [f"00-{TRACE}-{span.id}-01" for span in rounds]
    assert {head["tracestate"] for head in seen} == {"vendor=opaque"}


@pytest.mark.parametrize("headers", [{}, {"x-groundwire-search": "off"}])
def test_a_trace_of_ours_reaches_the_model(
    proxy: Groundwire, model: ModelServer, collector: Collector, headers: dict[str, str]
) -> None:
    model.script(text("Blue."))
    whole, (asked,) = spans_of(collector, ask(proxy, headers))
    assert passed_on(model) == PassedOn(whole.trace_id, asked.id, True)
    assert asked.attributes["gen_ai.usage.output_tokens"] == 5


@pytest.mark.parametrize("wrong", ["00-0-0-01", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "\u00e9"])
def test_a_header_that_names_no_trace_is_none(
    proxy: Groundwire, model: ModelServer, collector: Collector, wrong: str
) -> None:
    model.script(text("Blue."))
    whole, (asked,) = spans_of(collector, ask(proxy, {"traceparent": wrong.encode("latin-1")}))
    assert whole.parent_id == ""
    assert passed_on(model) == PassedOn(whole.trace_id, asked.id, True)


def test_who_does_not_want_its_trace_recorded_is_heard(
    proxy: Groundwire, model: ModelServer, collector: Collector
) -> None:
    other = "0123456789abcdef0123456789abcdef"
    model.script(text("Blue."))
    ask(proxy, {"traceparent": f"00-{other}-{PARENT}-00"})
    assert (passed_on(model).trace_id, passed_on(model).sampled) == (other, False)
    spans_of(collector, ask(proxy))  # came later, and is there
    assert other not in {span.trace_id for span in collector.spans}


def test_providers_see_nothing_of_it(config: dict[str, Any], model: ModelServer, collector: Collector) -> None:
    with ModelServer() as engine:  # any server that keeps the heads it was sent
        engine.script(Turn(body=b'{"results": [{"url": "https://a.example/", "title": "A", "content": "sky"}]}'))
        web = {"name": "web", "type": "searxng", "base_url": engine.url.removesuffix("/v1"), "private": False}
        traced = {**config, "providers": [web], "traces": {"endpoint": collector.url}}
        with Groundwire(traced) as proxy:
            model.script(call("web_search", {"query": "sky"}), text("Blue."))
            _, inner = spans_of(collector, ask(proxy, JOINED))
        assert [span.name for span in inner if span.name.startswith("retrieval")] == ["retrieval web"]
        assert engine.heads
        assert not any("trace" in name for head in engine.heads for name in head)


def test_failures_are_marked(proxy: Groundwire, model: ModelServer, collector: Collector) -> None:
    model.script(BUSY, call("web_search", {"query": "sky", "provider": "broken"}), text("Blue."))
    whole, inner = spans_of(collector, ask(proxy))
    assert not whole.failed
    assert whole.attributes["groundwire.retries"] == 1
    failed = {span.name: span.attributes.get("error.type") for span in inner if span.failed}
    assert failed == {"chat m": "overloaded", "retrieval broken": "unavailable"}
    (broken,) = [span for span in inner if span.name == "retrieval broken"]
    assert parent_of(broken, inner).name == "execute_tool web_search"
    assert not parent_of(broken, inner).failed, "another provider answered"


def test_a_request_that_fails(proxy: Groundwire, model: ModelServer, collector: Collector) -> None:
    model.script(Turn(status=401, body=b'{"error":{"message":"no","code":"nope"}}'))
    whole, (asked,) = spans_of(collector, ask(proxy))
    assert (whole.failed, asked.failed) == (True, True)
    assert whole.attributes["error.type"] == "upstream_auth"
    assert asked.attributes["error.type"] == "upstream_auth"


def test_a_request_that_is_refused_is_no_fault_of_ours(proxy: Groundwire, collector: Collector) -> None:
    whole, inner = spans_of(collector, ask(proxy, messages="none"))
    assert (whole.failed, inner, whole.attributes["http.response.status_code"]) == (False, [], 400)
    unknown = CLIENT.get(proxy.url + "/some/where/else")
    assert spans_of(collector, unknown)[0].name == "GET"


def test_a_tool_without_a_model(proxy: Groundwire, collector: Collector) -> None:
    answer = CLIENT.post(proxy.url + "/search", json={"query": "sky blue", "limit": 3})
    whole, inner = spans_of(collector, answer)
    assert whole.name == "POST /v1/search"
    assert [span.name for span in inner] == ["retrieval library", "execute_tool web_search"]
    assert parent_of(inner[0], inner) is inner[1]


def test_a_client_that_leaves(proxy: Groundwire, model: ModelServer, collector: Collector, held: HeldSearch) -> None:
    model.script(text("Blue ", "light", end="hang", finish=None))
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
    with CLIENT.stream("POST", f"{proxy.url}/chat/completions", json=body) as answer:
        assert any("light" in part for part in answer.iter_lines())
    whole, (asked,) = spans_of(collector, answer)
    assert (whole.attributes["groundwire.outcome"], whole.failed) == ("client_left", False)
    assert asked.attributes["groundwire.outcome"] == "left"
    model.script(Turn(text=["Let me look."], calls=[("a", "web_search", {"query": "x", "provider": "waiting"})]))
    with CLIENT.stream("POST", f"{proxy.url}/chat/completions", json=body) as answer:
        assert held.asked.acquire(timeout=20)
    whole, inner = spans_of(collector, answer)
    assert {span.name: span.attributes.get("groundwire.outcome") for span in inner} == {
        "chat m": None,
        "execute_tool web_search": "client_left",
    }


def test_what_people_wrote_and_keys_are_in_no_span(proxy: Groundwire, model: ModelServer, collector: Collector) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text("It is blue [1]."))
    answer = ask(proxy, {"authorization": "Bearer sk-upstream"}, model="sk-upstream")
    spans_of(collector, answer)
    told = str(collector.spans)
    assert not re.search(r"patient|sky|Rayleigh|sk-upstream", told)
    assert SECRET in {head.get("x-token") for head in collector.heads}
    assert {head[":path"] for head in collector.heads} == {"/v1/traces"}


def test_probes_leave_no_span(proxy: Groundwire, collector: Collector) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert CLIENT.get(proxy.root + path).status_code == 200
    spans_of(collector, CLIENT.get(proxy.url + "/some/where/else"))
    assert not [span for span in collector.spans if "/v1" not in span.attributes.get("url.path", "/v1")]


def test_contents_where_they_are_wanted(traced: dict[str, Any], model: ModelServer, collector: Collector) -> None:
    opened = call("open_page", {"url": SITE + "sky.md"}, id="b")
    model.script(call("web_search", {"query": "sky blue"}), opened, text("It is blue [1]."))
    with Groundwire({**traced, "log": {"contents": True}}) as proxy:
        _, inner = spans_of(collector, ask(proxy))
    by_name = {span.name: span.attributes for span in inner}
    assert by_name["execute_tool web_search"]["gen_ai.tool.call.arguments"] == '[{"query":"sky blue"}]'
    assert by_name["retrieval library"]["gen_ai.retrieval.query.text"] == "sky blue"
    assert by_name["read library"]["url.full"] == SITE + "sky.md"


def test_variables_of_opentelemetry_count(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Collector() as other:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": other.url + "/base/",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=blue",
            "OTEL_SERVICE_NAME": "search-gateway",
        }
        with Groundwire({**config, "traces": {"sample": 1.0}}, env=env) as proxy:
            whole, _ = spans_of(other, ask(proxy))
        assert whole.resource["service.name"] == "search-gateway"
        assert (other.heads[0][":path"], other.heads[0]["x-team"]) == ("/base/v1/traces", "blue")
        count = len(other.heads)
        with Groundwire(config, env=env) as silent:
            ask(silent)
        assert len(other.heads) == count, "nobody wrote the section"


def test_no_sample_is_no_span(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Collector() as other:
        with Groundwire({**config, "traces": {"endpoint": other.url, "sample": 0}}) as proxy:
            ask(proxy)
            assert not passed_on(model).sampled
        assert other.heads == []


def test_a_collector_that_refuses_is_told_of_once(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Collector() as other:
        other.status = 403
        with Groundwire({**config, "traces": {"endpoint": other.url}}) as proxy:
            for number in (1, 2):
                assert ask(proxy).status_code == 200
                other.await_post(number)
            assert "403" in proxy.logged("traces cannot be sent to")
            other.status = 200
            spans_of(other, ask(proxy))
            proxy.logged("traces are taken by")
            assert proxy.log.read_text().count("traces cannot be sent") == 1


def test_a_collector_that_is_gone_delays_nobody(config: dict[str, Any], model: ModelServer) -> None:
    """Neither an answer nor the end of the process: the SDK alone would go on trying for ten seconds."""
    model.script(text("Blue."))
    nobody = gone()["base_url"].removesuffix("/v1")
    with Groundwire({**config, "traces": {"endpoint": nobody}}) as proxy:
        assert all(ask(proxy).status_code == 200 for _ in range(20))
        assert proxy.process is not None
        proxy.process.terminate()
        assert proxy.process.wait(9) == 0


def test_the_names_are_opentelemetrys(collector: Collector) -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes, http_attributes, service_attributes, url_attributes

    modules = (gen_ai_attributes, error_attributes, http_attributes, service_attributes, url_attributes)
    known = {value for module in modules for name, value in vars(module).items() if name.isupper()}
    ours = {value for name, value in vars(trace_names).items() if name.isupper() and "." in value}
    assert {name for name in ours if not name.startswith("groundwire.")} <= known
    operations = {member.value for member in gen_ai_attributes.GenAiOperationNameValues}
    assert {trace_names.CHAT, trace_names.EXECUTE_TOOL, trace_names.RETRIEVAL} <= operations


def test_a_wrong_address_is_refused_at_the_start(tmp_path: Any) -> None:
    path = config_file(tmp_path, {"traces": {"endpoint": "collector:4318"}})
    said = groundwire(tmp_path, "serve", "--config", path, code=2).stderr
    assert "traces.endpoint" in said
    assert "http://127.0.0.1:4318" in said
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector"}
    said = groundwire(tmp_path, "serve", "--config", config_file(tmp_path, {"traces": {"sample": 1}}), code=2, env=env)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in said.stderr

"""`upstreams[].max_requests`: who waits for a place at a model's server, who is told that it is full, and who is served
by another one instead; with events and with bytes.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.held_streams import HELD, HELD_TURN, held, waiting
from tests.fakes.log_lines import entry, eventually
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.samples import Samples

ROADS = [{}, {"x-groundwire-search": "off"}]
CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture(scope="module")
def second() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(text("From the second."))
        yield server


@pytest.fixture(autouse=True)
def _parts(model: ModelServer) -> None:
    model.part(HELD, HELD_TURN)
    model.part("m", text("From the first."))


def started(config: dict[str, Any], queue: float, **upstream: Any) -> Groundwire:
    first = {**config["upstreams"][0], "max_requests": 1, **upstream}
    log = {"format": "json"}
    return Groundwire(
        {**config, "upstreams": [first, *config["upstreams"][1:]], "server": {"queue": queue}, "log": log}
    )


@pytest.fixture(scope="module")
def narrow(config: dict[str, Any]) -> Iterator[Groundwire]:
    with started(config, 0.1) as running:
        yield running


@pytest.fixture(scope="module")
def helped(config: dict[str, Any], second: ModelServer) -> Iterator[Groundwire]:
    both = {**config, "upstreams": [*config["upstreams"], {"name": "second", "base_url": second.url}]}
    with started(both, 60, fallback=["second"]) as running:
        yield running


def post(proxy: Groundwire, headers: dict[str, str], **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], **fields}
    return CLIENT.post(f"{proxy.url}/chat/completions", json=body, headers=headers)


@pytest.mark.parametrize("road", ROADS, ids=["searched", "forwarded"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_full_upstream_is_said_to_be_full(
    narrow: Groundwire, model: ModelServer, road: dict[str, str], stream: bool
) -> None:
    with held(narrow, 1, road):
        answer = post(narrow, road, stream=stream)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "upstream_full"
        assert 1 <= int(answer.headers["retry-after"]) <= 2
        assert "x-should-retry" not in answer.headers
        said = entry(narrow, answer)
        assert (said["outcome"], said["queued"] > 0.05) == ("upstream_full", True)
        assert "model_failures" not in said, "nobody was asked, so nobody failed"
    assert eventually(lambda: post(narrow, road, stream=stream).status_code == 200)
    assert len(model.asked["m"]) == 1
    samples = Samples(CLIENT.get(f"{narrow.root}/metrics").content)
    assert samples("groundwire_shed_total", reason="upstream") >= 1
    assert not samples("groundwire_model_failures_total", upstream="scripted", status="5xx")


@pytest.mark.parametrize("road", ROADS, ids=["searched", "forwarded"])
def test_where_a_fallback_stands_ready_nobody_waits(
    helped: Groundwire, model: ModelServer, road: dict[str, str]
) -> None:
    with held(helped, 1, road):
        answer = post(helped, road)
        assert answer.json()["choices"][0]["message"]["content"] == "From the second."
        assert model.asked["m"] == []
        helped.logged("upstream scripted is full: trying second")
    assert eventually(lambda: post(helped, road).json()["choices"][0]["message"]["content"] == "From the first.")


class HeldSearch(BaseHTTPRequestHandler):
    """A SearXNG that answers when it may."""

    asked, released = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        assert self.released.wait(20)
        found = {"title": "Sky", "url": "https://example.org/", "content": "Blue."}
        body = json.dumps({"results": [found]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), HeldSearch)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_what_a_model_has_worked_for_waits_as_long_as_it_takes(
    config: dict[str, Any], model: ModelServer, engine: str
) -> None:
    """While it searches another request takes the only place, for longer than a new one would wait."""
    model.part("m", call("web_search", {"query": "sky"}), text("From the first."))
    answers: list[httpx.Response] = []
    searching = {**config, "providers": [{"name": "engine", "type": "searxng", "base_url": engine, "timeout": 30}]}
    with started(searching, 0.05) as proxy:
        asking = threading.Thread(target=lambda: answers.append(post(proxy, {})))
        asking.start()
        assert HeldSearch.asked.wait(20)
        with held(proxy, 1):
            HeldSearch.released.set()
            eventually(lambda: waiting(proxy) == 1)
            assert post(proxy, {}).status_code == 503  # so long it is that somebody else gives up meanwhile
            assert waiting(proxy) == 1
        asking.join(20)
        assert answers[0].json()["choices"][0]["message"]["content"] == "From the first."
        assert entry(proxy, answers[0])["queued"] > 0.05


@pytest.mark.parametrize("road", ROADS, ids=["searched", "forwarded"])
def test_who_leaves_while_it_waits_gives_up_its_place_in_the_line(
    config: dict[str, Any], model: ModelServer, road: dict[str, str]
) -> None:
    with started(config, 60) as proxy, held(proxy, 1, road) as streams:
        body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{proxy.url}/chat/completions", json=body, headers=road, timeout=0.5)
        eventually(lambda: waiting(proxy) == 0)
        streams[0].close()
        assert post(proxy, road).status_code == 200
        assert len(model.asked["m"]) == 1


@pytest.mark.parametrize("headers", ROADS)
def test_who_has_all_of_an_answer_holds_no_place_any_more(
    helped: Groundwire, model: ModelServer, headers: dict[str, str]
) -> None:
    """Where another one may serve, nobody waits for a place: who asks again at once must find its own free."""
    model.part("m", text("From the first.", late_end=True))
    body = {"model": "m", "messages": [{"role": "user", "content": "Who?"}], "stream": True}
    with httpx.Client(timeout=20, headers=headers) as client:
        for _ in range(8):
            assert "From the first." in client.post(f"{helped.url}/chat/completions", json=body).text


# With a limit and without


@pytest.fixture(scope="module")
def bounded(config: dict[str, Any]) -> Iterator[Groundwire]:
    with started(config, 60, max_requests=50, retries=1, retry_wait=0.01) as running:
        yield running


@pytest.fixture(scope="module")
def unbounded(config: dict[str, Any]) -> Iterator[Groundwire]:
    with started(config, 60, max_requests=None, retries=1, retry_wait=0.01) as running:
        yield running


SEARCHED = (call("web_search", {"query": "sky blue"}, glued=True), text("Blue [1].", glued=True))
ERROR = {"message": "no", "type": "t", "param": None, "code": "odd"}
ANSWERS: dict[str, tuple[Turn, ...]] = {
    "text": (text("Blue ", "sky.", glued=True),),
    "reasoning": (Turn(reasoning=["hm"], text=["Blue."], glued=True),),
    "search": SEARCHED,
    "call": (call("weather", {"city": "Bern"}, glued=True),),
    "refused": (Turn(status=400, body=json.dumps({"error": ERROR}).encode()),),
    "busy": (Turn(status=429, body=b"{}", headers={"retry-after": "60"}),),
    "broken": (Turn(status=500, body=b"oh no"),),
    "twice": (Turn(status=503, body=b"{}"), text("Blue.", glued=True)),
    "page": (Turn(body=b"<html>Not here</html>", content_type="text/html"),),
    "cut": (text("Half", end="reset", finish=None, usage=None),),
    "nothing": (Turn(body=b"", content_type="text/event-stream"),),
    "odd": (Turn(body=b"data: {oh\n\n", content_type="text/event-stream"),),
    "error in a stream": (
        Turn(body=b"data: " + json.dumps({"error": ERROR}).encode(), content_type="text/event-stream"),
    ),
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
MADE_UP = re.compile(
    rb'((?:chatcmpl|resp|msg|req|rs|ws|fc|call|srvtoolu)[_-])[0-9a-zA-Z_-]+|"(?:created|completed)(?:_at)?":[0-9.]+'
)
OF_THIS_ANSWER = frozenset({"x-request-id", "request-id", "date", "content-length"})


def said(proxy: Groundwire, api: str, road: dict[str, str], stream: bool) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and bytes of an answer, without what is made up for each."""
    question = {"model": "m", "stream": stream}
    if api == "responses":
        body = {**question, "input": "Why?"}
    else:
        body = {**question, "max_tokens": 9, "messages": [{"role": "user", "content": "Why?"}]}
    if api == "chat/completions":
        body["tools"] = [WEATHER]
    answer = CLIENT.post(f"{proxy.url}/{api}", json=body, headers={**road, "anthropic-version": "2023-06-01"})
    headers = [(name, value) for name, value in answer.headers.items() if name not in OF_THIS_ANSWER]
    return answer.status_code, headers, MADE_UP.sub(rb"\1-", answer.content)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("api", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("road", ROADS, ids=["searched", "forwarded"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_is_the_same_with_a_limit_and_without(
    bounded: Groundwire,
    unbounded: Groundwire,
    model: ModelServer,
    answer: str,
    api: str,
    road: dict[str, str],
    stream: bool,
) -> None:
    model.part("m", *ANSWERS[answer])
    without = said(unbounded, api, road, stream)
    asked = list(model.asked["m"])
    model.part("m", *ANSWERS[answer])
    assert said(bounded, api, road, stream) == without
    assert (model.asked["m"][0], len(model.asked["m"])) == (asked[0], len(asked))


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("road", ROADS, ids=["searched", "forwarded"])
def test_who_leaves_ends_the_answer_with_a_limit_and_without(
    bounded: Groundwire, unbounded: Groundwire, model: ModelServer, road: dict[str, str], limited: bool
) -> None:
    proxy = bounded if limited else unbounded
    model.part("m", text("Blue ", "light", end="hang", finish=None))
    body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], "stream": True}
    with CLIENT.stream("POST", f"{proxy.url}/chat/completions", json=body, headers=road) as answer:
        assert any("light" in line for line in answer.iter_lines())
    line = entry(proxy, answer)
    assert (line["status"], line["outcome"], line["output_tokens"] > 0) == (200, "client_left", True)
    eventually(lambda: model.answering == 0)

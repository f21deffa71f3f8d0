"""A model is asked again only while nothing was said, only as often as the budget allows, and nothing is done twice."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, Turn, call, text
from tests.faults.asking import QUESTION, ask, error_event, error_of, road_headers
from tests.faults.table import BOTH, SEARCHED, fault
from tests.faults.trouble import ended, impatient

SEARCH = call("web_search", {"query": "sky blue"})
BUSY = Turn(status=503, body=b'{"error":{"message":"busy"}}')
RESET = Turn(end="reset", finish=None, usage=None)
CITED = f"Scattering [[1]]({SITE}sky.md)."


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    with impatient(config) as running:
        yield running


@fault(39)
@pytest.mark.parametrize("trouble", [BUSY, RESET], ids=["busy", "reset"])
@pytest.mark.parametrize("stream", [True, False])
def test_death_in_the_second_round(proxy: Groundwire, model: ModelServer, trouble: Turn, stream: bool) -> None:
    model.script(SEARCH, trouble, trouble, text("Scattering [1]."))
    answer = ask(proxy, SEARCHED, stream=stream)
    assert answer.status_code == 200
    assert CITED in re.sub(r'"}[^\n]*\n\ndata: [^\n]*?"content":"', "", answer.text)
    assert len(model.requests) == 4
    assert model.requests[1] == model.requests[2] == model.requests[3], "with the results that were there"
    line = ended(proxy, answer)
    assert " rounds=4 retries=2 " in line
    assert len(re.findall(r"library:", line)) == 1, "no search is paid twice"


ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
BUSY_EVENT = b'data: {"error":{"message":"busy","code":503}}\n\n'


@fault(39)
@pytest.mark.parametrize("rest", [b"", BUSY_EVENT], ids=["an end", "an error"])
def test_death_behind_a_beginning_that_the_client_has_seen(proxy: Groundwire, model: ModelServer, rest: bytes) -> None:
    """The client knows by then that there is an answer, and nothing of what it says."""
    half = Turn(pieces=lambda: [ROLE, 0.1, rest], content_type="text/event-stream")
    model.script(half, half, text("Blue", "."))
    answer = ask(proxy, SEARCHED, stream=True)
    assert re.findall(r'"content":"([^"]+)"', answer.text) == ["Blue", "."]
    assert answer.text.count('"role":"assistant"') == 1
    assert answer.text.endswith("data: [DONE]\n\n")
    assert len(model.requests) == 3
    assert " retries=2 " in ended(proxy, answer)


@fault(39)
def test_two_in_all_and_not_for_each_round(proxy: Groundwire, model: ModelServer) -> None:
    model.script(BUSY, SEARCH, BUSY, BUSY, text("Never said."))
    answer = ask(proxy, SEARCHED)
    assert (answer.status_code, error_of(answer)["message"]) == (503, "busy")
    assert answer.headers["x-should-retry"] == "false"
    assert len(model.requests) == 4
    assert " rounds=4 retries=2 " in ended(proxy, answer)


@fault(39)
def test_not_once_something_was_said(proxy: Groundwire, model: ModelServer) -> None:
    half = text("Half an ", "answ", end="reset", finish=None, usage=None)
    model.script(SEARCH, half, text("Never said."))
    answer = ask(proxy, SEARCHED, stream=True)
    assert error_event(answer)["code"] == "upstream_truncated"
    assert answer.text.count("Half an ") == 1
    assert len(model.requests) == 2
    assert " outcome=upstream_truncated " in ended(proxy, answer)


@fault(39)
def test_death_in_the_second_round_for_good(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, RESET)
    answer = ask(proxy, SEARCHED)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
    assert answer.headers["x-should-retry"] == "false", "a client that asks again would search again"
    assert len(model.requests) == 4


async def storm(proxy: Groundwire, road: str, clients: int) -> list[httpx.Response]:
    body = {"model": "m", "messages": [QUESTION]}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits, headers=road_headers(road)) as client:
        asking = [client.post(f"{proxy.url}/chat/completions", json=body) for _ in range(clients)]
        return await asyncio.gather(*asking)


@fault(85, *BOTH)
def test_two_hundred_clients_of_a_server_that_always_fails(
    config: dict[str, Any], model: ModelServer, road: str
) -> None:
    upstream = {**config["upstreams"][0], "retry_wait": 0.01}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(BUSY)
        answers = asyncio.run(storm(proxy, road, 200))
        assert len(model.requests) <= 240
        assert {answer.status_code for answer in answers} == {503}
        failed = [answer for answer in answers if answer.json()["error"]["message"] == "busy"]  # others found no place
        assert failed
        told = [answer.headers.get("x-should-retry") for answer in failed]
        assert told == ["false"] * len(failed), "else each of them would ask twice more"
        shown = httpx.get(f"{proxy.root}/metrics", timeout=10).text
        made = re.search(r'groundwire_retries_total\{outcome="asked",upstream="scripted"\} ([\d.]+)', shown)
        refused = re.search(r'groundwire_retries_total\{outcome="over_budget",upstream="scripted"\} ([\d.]+)', shown)
        assert made is not None
        assert 10 <= float(made[1]) <= 40
        assert refused is not None
        eventually(lambda: proxy.log.read_text().count(" /v1/chat/completions 503 ") == 200)


@fault(87, *BOTH)
def test_a_fallback_is_never_joined_to_a_begun_answer(config: dict[str, Any], model: ModelServer, road: str) -> None:
    with ModelServer() as second:
        upstreams = [
            {**config["upstreams"][0], "models": ["m"], "fallback": ["second"]},
            {"name": "second", "base_url": second.url},
        ]
        with Groundwire({**config, "upstreams": upstreams}) as proxy:
            model.script(text("Half an ", "answ", end="reset", finish=None, usage=None))
            second.script(text("Another one."))
            answer = ask(proxy, road, stream=True)
            assert error_event(answer)["code"] == "upstream_truncated"
            assert "Half an " in answer.text
            assert (len(model.requests), len(second.requests)) == (1, 0)
            model.script(BUSY)
            assert "Another one." in ask(proxy, road, stream=True).text
            assert len(model.requests) == 1, "a fallback is asked instead of a second attempt"
            second.script(BUSY, text("Another one."))
            model.script(BUSY)
            assert "Another one." in ask(proxy, road, stream=True).text
            assert (len(model.requests), len(second.requests)) == (1, 2), "the last one is asked again"


@pytest.mark.parametrize("road", BOTH)
def test_no_descriptor_for_an_upstream_is_our_own_trouble(
    config: dict[str, Any], model: ModelServer, road: str
) -> None:
    with impatient(config) as proxy, httpx.Client(headers=road_headers(road), timeout=20) as client:
        model.script(text("Blue."))
        body = {"model": "m", "messages": [QUESTION]}
        assert client.get(f"{proxy.root}/healthz").status_code == 200, "this connection is kept"
        assert proxy.process is not None
        used = {int(path.name) for path in Path(f"/proc/{proxy.process.pid}/fd").iterdir()}
        none_left = min(set(range(len(used) + 1)) - used)
        soft, hard = resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (none_left, hard))
        answer = client.post(f"{proxy.url}/chat/completions", json=body)
        assert (answer.status_code, error_of(answer)["code"]) == (503, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
        assert "x-should-retry" not in answer.headers
        assert " rounds=1 " in ended(proxy, answer), "not asked again at once"
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert client.post(f"{proxy.url}/chat/completions", json=body).status_code == 200


def test_a_path_that_may_make_something_is_asked_once(config: dict[str, Any], model: ModelServer) -> None:
    upstream = {**config["upstreams"][0], "retry_wait": 0.01, "forward": ["/v1/batches"]}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(BUSY, Turn(body=b"{}"))
        answer = httpx.post(f"{proxy.url}/batches", json={"model": "m"}, timeout=20)
        assert (answer.status_code, len(model.requests)) == (503, 1)
        assert "x-should-retry" not in answer.headers, "the client knows what it asked for"
        model.script(BUSY, Turn(body=b"{}"))
        answer = httpx.post(f"{proxy.url}/embeddings", json={"model": "m", "input": "x"}, timeout=20)
        assert (answer.status_code, len(model.requests)) == (200, 2)

"""What models do to tools: calls in any pieces, arguments that are none, tools nobody has, too many, without end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.pages import PageServer
from tests.faults.asking import ask
from tests.faults.table import SEARCHED, fault

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
WEB = {"type": "function", "function": {"name": "web", "parameters": {"type": "object"}}}
MOST_ROUNDS = 3


@pytest.fixture(scope="module")
def reading(config: dict[str, Any]) -> Iterator[tuple[Groundwire, PageServer]]:
    """A Groundwire that may open pages of loopback, and the server of those pages."""
    with PageServer() as pages:
        changed = {
            **config,
            "providers": [*config["providers"], {"name": "reader", "type": "direct"}],
            "tools": {
                "allow_networks": ["127.0.0.0/8"],
                "search": ["library"],
                "read": ["library", "reader"],
                "max_rounds": MOST_ROUNDS,
            },
        }
        with Groundwire(changed) as running:
            yield running, pages


@pytest.fixture
def proxy(reading: tuple[Groundwire, PageServer]) -> Groundwire:
    return reading[0]


def streamed(*deltas: dict[str, Any]) -> Turn:
    """An answer that consists of these fragments of calls, one chunk each."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return Turn(body=events.encode(), content_type="text/event-stream")


def in_pieces(name: list[str], arguments: list[str], index: int, id_: str) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"index": index, "function": {"name": piece}} for piece in name]
    deltas += [{"index": index, "function": {"arguments": piece}} for piece in arguments]
    deltas[0] |= {"id": id_, "type": "function"}
    return deltas


def events(answer_text: str) -> list[dict[str, Any]]:
    return [json.loads(part) for part in answer_text.split("data: ")[1:] if not part.startswith("[DONE]")]


@fault(34)
@pytest.mark.parametrize("name", [["web_", "search"], ["web", "_search"], ["web_search"] * 2, list("web_search")])
def test_our_tool_in_pieces_is_run_and_never_shown(proxy: Groundwire, model: ModelServer, name: list[str]) -> None:
    ours = in_pieces(name, ['{"que', 'ry": "sky ', 'blue"}'], 3, "call_a")
    model.script(streamed(*ours), text("Scattering [1]."))
    answer = ask(proxy, SEARCHED, stream=True, tools=[WEB])
    assert f"[[1]]({SITE}sky.md)" in answer.text
    assert "tool_calls" not in answer.text
    made = model.requests[1]["messages"][-2]["tool_calls"]
    assert made == [
        {"id": "call_a", "type": "function", "function": {"name": "web_search", "arguments": '{"query": "sky blue"}'}}
    ]


@fault(34)
def test_the_clients_tools_in_pieces_reach_it_whole(proxy: Groundwire, model: ModelServer) -> None:
    """Two at once, their fragments in between each other, with indexes that jump; one is named like half of ours."""
    one = in_pieces(["wea", "ther"], ['{"city":', '"Bern"}'], 2, "call_a")
    other = in_pieces(["web"], ["{", '"x":1}'], 7, "call_b")
    both = [
        fragment
        for pair in zip(one, [*other, {"index": 7, "function": {"arguments": ""}}], strict=True)
        for fragment in pair
    ]
    model.script(streamed(*both))
    answer = ask(proxy, SEARCHED, stream=True, tools=[WEATHER, WEB])
    pieces = [
        piece
        for chunk in events(answer.text)
        for choice in chunk["choices"]
        for piece in choice["delta"].get("tool_calls", ())
    ]
    calls: dict[int, list[str]] = {}
    for piece in pieces:
        assert ("id" in piece) == (piece["index"] not in calls), "the first piece has the id"
        known = calls.setdefault(piece["index"], [piece["function"].get("name", ""), ""])
        known[1] += piece["function"].get("arguments", "")
    assert sorted(calls) == [0, 1]
    assert sorted(map(tuple, calls.values())) == [("weather", '{"city":"Bern"}'), ("web", '{"x":1}')]


@fault(35)
def test_arguments_that_are_no_json(proxy: Groundwire, model: ModelServer) -> None:
    model.script(
        call("web_search", "sky, please", id="a"), call("web_search", {"query": "sky"}, id="b"), text("Blue [1].")
    )
    answer = ask(proxy, SEARCHED)
    assert answer.json()["choices"][0]["message"]["content"] == f"Blue [[1]]({SITE}sky.md)."
    told = model.requests[1]["messages"][-1]
    assert told["tool_call_id"] == "a"
    assert "JSON" in told["content"]
    assert len(model.requests) == 3


@fault(36)
def test_a_tool_that_nobody_has(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("search_the_web", {"query": "sky"}), text("Blue."))
    answer = ask(proxy, SEARCHED, tools=[WEATHER])
    assert answer.json()["choices"][0]["message"]["content"] == "Blue."
    told = model.requests[1]["messages"][-1]["content"]
    assert "web_search" in told, "it is told which there are"
    assert "weather" in told


@fault(36)
def test_ours_and_the_clients_in_one_turn(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "weather", {"city": "Bern"})]))
    choice = ask(proxy, SEARCHED, tools=[WEATHER]).json()["choices"][0]
    (made,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], made["function"]["name"]) == ("tool_calls", "weather")
    history = [choice["message"], {"role": "tool", "tool_call_id": made["id"], "content": "Rain."}]
    model.script(text("Blue [1], and rain."))
    question = {"role": "user", "content": "Why is the sky blue?"}
    answer = ask(proxy, SEARCHED, tools=[WEATHER], messages=[question, *history])
    assert f"[[1]]({SITE}sky.md)" in answer.text
    sent = model.requests[0]["messages"]
    assert [made["function"]["name"] for made in sent[1]["tool_calls"]] == ["web_search", "weather"]
    assert [message["tool_call_id"] for message in sent[2:]] == ["a", "b"]


@fault(37)
def test_two_hundred_calls_in_one_turn(reading: tuple[Groundwire, PageServer], model: ModelServer) -> None:
    proxy, pages = reading
    urls = [pages.url(f"/page{n}") for n in range(200)]
    for n in range(200):
        pages.page(f"/page{n}", b"<html><title>T</title><body><p>A page about the tides of the sea.</p></body></html>")
    pages.requests.clear()
    model.script(Turn(calls=[(f"call_{n}", "open_page", {"url": url}) for n, url in enumerate(urls)]), text("Done."))
    question = {"role": "user", "content": "Read all of " + " ".join(urls)}
    answer = ask(proxy, SEARCHED, messages=[question], timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    assert 1 <= len(pages.requests) <= 8
    results = model.requests[1]["messages"][-200:]
    assert [result["tool_call_id"] for result in results] == [f"call_{n}" for n in range(200)], "each has its answer"
    assert "tides" in results[0]["content"]
    assert "tides" not in results[-1]["content"]


@fault(38)
def test_calls_without_end(proxy: Groundwire, model: ModelServer) -> None:
    searches = [call("web_search", {"query": f"sky {n}"}, id=f"call_{n}") for n in range(MOST_ROUNDS)]
    model.script(*searches, text("All that I found."))
    answer = ask(proxy, SEARCHED)
    assert answer.json()["choices"][0]["message"]["content"] == "All that I found."
    assert len(model.requests) == MOST_ROUNDS + 1
    assert model.requests[-1]["tool_choice"] == "none", "the last round answers"


@fault(38)
def test_calls_without_end_even_when_there_is_no_tool_left(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}))
    answer = ask(proxy, SEARCHED)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "stop"
    assert "tool_calls" not in answer.json()["choices"][0]["message"]
    assert len(model.requests) == MOST_ROUNDS + 2, "once more with no tool in sight"
    assert "tools" not in model.requests[-1]

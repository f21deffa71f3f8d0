"""One script, three dialects, streamed and in one piece: the same text, the same citations, the same calls, the same
usage, whichever way a client asks. In Messages there are citations where the server tool is named, and then no markers
in the text; otherwise the links in the text are all there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import USAGE, ModelServer, Turn, call, text
from tests.unit import messages_scripts
from tests.unit.responses_scripts import payloads, text_of

QUESTION = "Why is the sky blue?"
SKY, SEA = f"[[1]]({SITE}sky.md)", f"[[2]]({SITE}sea.md)"
SEARCH = ("a", "web_search", {"query": "sky"})
FUNCTION = {"name": "weather", "parameters": {"type": "object"}}
COUNTED = {**USAGE, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}


class Seen(NamedTuple):
    """What a user gets to know of an answer, in no dialect."""

    text: str
    citations: list[tuple[str, str, str]]  # the cited piece of the text, URL and title
    calls: list[tuple[str, str]]
    tokens: tuple[int, int, int, int, int]  # in, out, total, of those cached and reasoning
    searches: int
    whole: bool  # or was it cut?


SCRIPTS: dict[str, tuple[tuple[Turn, ...], str]] = {
    "plain": ((text("Hel", "lo, [1] is nothing."),), "Hello, [1] is nothing."),
    "cited": (
        (Turn(calls=[SEARCH]), text("😀 空は青い ", "[", "1", "] and once more [1]", ".")),
        f"😀 空は青い {SKY} and once more {SKY}.",
    ),
    "at the very end": ((Turn(calls=[SEARCH]), text("Blue [1]")), f"Blue {SKY}"),
    "two rounds with a preamble": (
        (
            Turn(text=["Let me ", "look."], calls=[SEARCH], reasoning=["hm"], usage=COUNTED),
            Turn(text=["First [1]."], calls=[("c", "web_search", {"query": "sea"})], usage=COUNTED),
            call("open_page", {"url": SITE + "sea.md"}, id="p", usage=COUNTED),
            text("Both ", "[1][2].", usage=COUNTED),
        ),
        f"Let me look.\n\nFirst {SKY}.\n\nBoth {SKY}{SEA}.",
    ),
    "code": ((Turn(calls=[SEARCH]), text("`a[1]` is code, this [1] is not.")), f"`a[1]` is code, this {SKY} is not."),
    "several in one": (
        (Turn(calls=[SEARCH, ("c", "web_search", {"query": "sea"})]), text("Both [1, 2].")),
        f"Both {SKY}{SEA}.",
    ),
    "a failed search": ((call("web_search", {"query": "zzzz qqqq"}), text("No idea.")), "No idea."),
    "cut short": ((Turn(calls=[SEARCH]), text("Blue [1] as", finish="length")), f"Blue {SKY} as"),
    "cut in a marker": ((Turn(calls=[SEARCH]), text("Blue [1", finish="length")), "Blue [1"),
    "a call of the client": ((Turn(text=["Wait."], calls=[("w", "weather", {"city": "Bern"})]),), "Wait."),
    "a mixed turn": ((Turn(text=["Wait."], calls=[SEARCH, ("w", "weather", {"city": "Bern"})]),), "Wait."),
    "a cited mixed turn": (
        (Turn(calls=[SEARCH]), Turn(text=["Blue [1]."], calls=[("w", "weather", "")])),
        f"Blue {SKY}.",
    ),
    "nothing at all": ((text(""),), ""),
    "no usage": ((Turn(calls=[SEARCH], usage=None), text("Blue [1].", usage=None)), f"Blue {SKY}."),
}


# What a round may leave open costs the next one nothing.
OPEN = {
    "JSON": '{"plan": "search"}',
    "half of JSON": '{"plan": ["search"',
    "a JSON list": '["search", "read"]',
    "a fence": "Plan:\n```\nsearch",
    "a fence at its beginning": "```",
    "a span": "I call `web_search",
    "a tag": "<plan>\nsearch",
    "a comment": "Plan <!-- search",
    "an attribute": 'See <plan kind="',
    "a diff": "@@ -1 +1 @@\n+search",
    "a header": "---\ntitle: search",
    "a link": "See [this](https://x.example/",
    "an address": "See https://x.example/",
    "values": "a,b,c\n1,2,3",
    "half a marker": "See [1",
}
SCRIPTS |= {
    f"{name} left open": (
        (Turn(text=[said], calls=[SEARCH]), text("Blue ", "[1].")),
        f"{said}\n\nBlue {SKY}.",
    )
    for name, said in OPEN.items()
}
SCRIPTS["JSON behind words"] = (
    (Turn(text=["Let me look."], calls=[SEARCH]), text('{"a": "Blue [1]."}')),
    'Let me look.\n\n{"a": "Blue [1]."}',
)


def post(proxy: Groundwire, path: str, **body: Any) -> httpx.Response:
    answer = httpx.post(f"{proxy.url}/{path}", json={"model": "m", **body}, timeout=20)
    assert answer.status_code == 200, answer.text
    return answer


def by_chat(proxy: Groundwire) -> Seen:
    tools = [{"type": "function", "function": FUNCTION}]
    body = post(proxy, "chat/completions", messages=[{"role": "user", "content": QUESTION}], tools=tools).json()
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    return in_chat(message["content"] or "", message.get("annotations"), calls, body["usage"], choice["finish_reason"])


def by_chat_stream(proxy: Groundwire) -> Seen:
    tools = [{"type": "function", "function": FUNCTION}]
    asked = {"messages": [{"role": "user", "content": QUESTION}], "tools": tools}
    answer = post(proxy, "chat/completions", stream=True, stream_options={"include_usage": True}, **asked)
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls: list[tuple[str, str]] = []
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls") or ()):
        if piece["index"] == len(calls):
            calls.append((piece["function"]["name"], ""))
        name, arguments = calls[piece["index"]]
        calls[piece["index"]] = name, arguments + piece["function"]["arguments"]
    marks = [mark for delta in deltas for mark in delta.get("annotations") or ()]
    whole = "".join(delta.get("content") or "" for delta in deltas)
    (finish,) = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    return in_chat(whole, marks, calls, chunks[-1]["usage"], finish)


def in_chat(said: str, marks: Any, calls: list[tuple[str, str]], usage: dict[str, Any] | None, finish: str) -> Seen:
    places = [mark["url_citation"] for mark in marks or ()]
    cited = [(said[p["start_index"] : p["end_index"]], p["url"], p["title"]) for p in places]
    usage = usage or {}
    given, made = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    counts = [usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    tokens = (*counts, given.get("cached_tokens", 0), made.get("reasoning_tokens", 0))
    searches = (usage.get("server_tool_use") or {}).get("web_search_requests", 0)
    assert (finish == "tool_calls") is bool(calls)
    return Seen(said, cited, calls, tokens, searches, finish != "length")


def by_responses(proxy: Groundwire) -> Seen:
    return in_responses(post(proxy, "responses", input=QUESTION, tools=[{"type": "function", **FUNCTION}]).json())


def by_responses_stream(proxy: Groundwire) -> Seen:
    answer = post(proxy, "responses", input=QUESTION, tools=[{"type": "function", **FUNCTION}], stream=True)
    sent = payloads(answer.content)
    seen = in_responses(sent[-1]["response"])
    deltas = [event["delta"] for event in sent if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == seen.text.replace("\n\n", ""), "the events tell what the object holds"
    added = [event["annotation"] for event in sent if event["type"] == "response.output_text.annotation.added"]
    assert [(mark["url"], mark["title"]) for mark in added] == [mark[1:] for mark in seen.citations]
    return seen


def in_responses(response: dict[str, Any]) -> Seen:
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    cited = [
        (part["text"][mark["start_index"] : mark["end_index"]], mark["url"], mark["title"])
        for part in parts
        for mark in part["annotations"]
    ]
    calls = [(item["name"], item["arguments"]) for item in response["output"] if item["type"] == "function_call"]
    usage = response["usage"]
    counts = [usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")]
    of_those = usage["input_tokens_details"]["cached_tokens"], usage["output_tokens_details"]["reasoning_tokens"]
    searches = response["tool_usage"]["web_search"]["num_requests"]
    tokens = (counts[0], counts[1], counts[2], *of_those)
    return Seen(text_of(response), cited, calls, tokens, searches, response["status"] == "completed")


WAYS: list[Callable[[Groundwire], Seen]] = [by_chat, by_chat_stream, by_responses, by_responses_stream]


def by_messages(proxy: Groundwire) -> Seen:
    return in_messages(ask_messages(proxy).json())


def by_messages_stream(proxy: Groundwire) -> Seen:
    return in_messages(messages_scripts.gathered(messages_scripts.payloads(ask_messages(proxy, stream=True).content)))


def by_messages_tool(proxy: Groundwire) -> Seen:
    return in_messages(ask_messages(proxy, messages_scripts.SERVER_TOOL).json())


def by_messages_tool_stream(proxy: Groundwire) -> Seen:
    answer = ask_messages(proxy, messages_scripts.SERVER_TOOL, stream=True)
    return in_messages(messages_scripts.gathered(messages_scripts.payloads(answer.content)))


def ask_messages(proxy: Groundwire, *tools: dict[str, Any], stream: bool = False) -> httpx.Response:
    function = {"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}
    asked = {"messages": [{"role": "user", "content": QUESTION}], "tools": [function, *tools], "max_tokens": 100}
    return post(proxy, "messages", stream=stream, **asked)


def in_messages(message: dict[str, Any]) -> Seen:
    blocks = message["content"]
    cited = [("", mark["url"], mark["title"]) for block in blocks for mark in block.get("citations") or ()]
    calls = [(block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"]
    usage = message["usage"]
    cached, made = usage["cache_read_input_tokens"], usage["output_tokens"]
    given = usage["input_tokens"] + cached
    thought = usage.get("output_tokens_details", {}).get("thinking_tokens", 0)
    searches = usage.get("server_tool_use", {}).get("web_search_requests", 0)
    assert (message["stop_reason"] == "tool_use") is bool(calls)
    tokens = (given, made, given + made, cached, thought)
    return Seen(
        messages_scripts.text_of(message), cited, calls, tokens, searches, message["stop_reason"] != "max_tokens"
    )


def in_one_spelling(seen: Seen) -> Seen:
    """Arguments as JSON says them: in Messages they are objects."""
    return seen._replace(calls=[(name, json.dumps(json.loads(given or "{}"))) for name, given in seen.calls])


MESSAGES = [by_messages, by_messages_stream]
TOOL = [by_messages_tool, by_messages_tool_stream]


@pytest.mark.parametrize("name", SCRIPTS)
def test_messages_tell_the_same(proxy: Groundwire, model: ModelServer, name: str) -> None:
    turns, said = SCRIPTS[name]

    def played(way: Callable[[Groundwire], Seen]) -> Seen:
        model.script(*turns)
        return way(proxy)

    first = in_one_spelling(played(by_chat))
    assert [played(way) for way in MESSAGES] == [first._replace(citations=[])] * len(MESSAGES)
    unmarked = re.sub(r" ?(?:\[\[\d\]\]\([^)]*\))+", "", said)
    cited = [("", url, title) for _, url, title in first.citations]
    assert [played(way) for way in TOOL] == [first._replace(text=unmarked, citations=cited)] * len(TOOL)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_way_tells_the_same(proxy: Groundwire, model: ModelServer, name: str) -> None:
    turns, said = SCRIPTS[name]
    seen = []
    for way in WAYS:
        model.script(*turns)
        seen.append(way(proxy))
        assert len(model.requests) == len(turns)
    first = seen[0]
    assert first.text == said
    links = {SKY: ("sky.md", "Why the sky is blue"), SEA: ("sea.md", "Why the sea is salty")}
    found = sorted((at, mark) for mark in links for at in places(said, mark))
    assert first.citations == [(mark, SITE + links[mark][0], links[mark][1]) for _, mark in found]
    assert seen == [first] * len(WAYS)


def places(of: str, piece: str) -> list[int]:
    return [at for at in range(len(of)) if of.startswith(piece, at)]


def test_what_is_counted_is_the_sum_of_all_rounds(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SCRIPTS["two rounds with a preamble"][0])
    seen = by_responses(proxy)
    assert (seen.tokens, seen.searches) == ((40, 20, 60, 16, 8), 2)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_code_left_open_in_one_message_hides_no_link_in_the_next(
    config: dict[str, Any], model: ModelServer, stream: bool
) -> None:
    """A response shows each message by itself: what is code in the first is none in the second."""
    model.script(Turn(text=["```\nplan\n"], calls=[SEARCH]), text("See [here](https://evil.example/?q=1)."))
    with Groundwire({**config, "citations": {"strip_foreign": True}}) as stripping:
        answer = post(stripping, "responses", input=QUESTION, stream=stream)
    assert "evil.example" in answer.text
    assert "evil.example/?q" not in answer.text

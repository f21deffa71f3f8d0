"""Messages requests by clients that mean harm, or know the API only half: each is refused in words or answered, none of
them fills the memory, and errors do not repeat what was sent.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from proxy.dialects.messages.blocks import CallBlock
from proxy.dialects.messages.handles import MOST_OPENED, Handles
from proxy.dialects.messages.history import conversation
from proxy.dialects.messages.request import MOST_BLOCKS, decode
from proxy.dialects.messages.usage import as_usage
from proxy.values.errors import RequestError
from proxy.values.request import PageDomains
from tests.unit.messages_scripts import FETCH_TOOL, HANDLES, SERVER_TOOL, body

USER = {"role": "user", "content": "Why?"}
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
SOURCE = {"n": 1, "url": "https://x.example/", "title": "X", "snippet": "x"}


def read(handles: Handles = HANDLES, **fields: Any) -> list[dict[str, Any]]:
    asked = decode(json.dumps(body(**fields)).encode())
    return conversation(asked.system, asked.messages, asked.tools, handles).messages


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.failed.status == 400
    return dict(caught.value.failed.error)


# Choices


@pytest.mark.parametrize("kind", [[], {}, [{"a": 1}], 1, True, None, "", "required", "function"])
def test_a_choice_of_no_known_kind(kind: Any) -> None:
    assert refused(tools=[WEATHER], tool_choice={"type": kind})["param"] == "tool_choice"


@pytest.mark.parametrize("name", [None, 1, [], {}, "", "other", "web_fetch_20250910"])
def test_a_choice_of_no_known_tool(name: Any) -> None:
    choice = {"type": "tool", "name": name}
    assert refused(tools=[WEATHER, SERVER_TOOL, FETCH_TOOL], tool_choice=choice)["param"] == "tool_choice"
    assert refused(tool_choice=choice)["param"] == "tool_choice"


def test_a_choice_forces_the_very_tool_that_it_names() -> None:
    for tool, ours in ((SERVER_TOOL, "web_search"), (FETCH_TOOL, "open_page")):
        choice = {"type": "tool", "name": tool["name"]}
        search = decode(json.dumps(body(tools=[SERVER_TOOL, FETCH_TOOL], tool_choice=choice)).encode()).search
        assert (search.forced, search.forced_tool) == (True, ours)
    own = {"name": "web_search", "input_schema": {"type": "object"}}
    theirs = decode(json.dumps(body(tools=[own], tool_choice={"type": "tool", "name": "web_search"})).encode())
    assert theirs.body["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
    assert not theirs.search.forced


def test_each_server_tool_has_a_count_of_its_own() -> None:
    def counts(*tools: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
        search = decode(json.dumps(body(tools=list(tools))).encode()).search
        return search.max_searches, search.max_pages, search.max_calls

    bare = {key: value for key, value in SERVER_TOOL.items() if key != "max_uses"}
    assert counts(SERVER_TOOL, {**FETCH_TOOL, "max_uses": 2}) == (8, 2, None)
    assert counts(bare, {**FETCH_TOOL, "max_uses": 0}) == (None, 0, None)
    assert counts({**FETCH_TOOL, "max_uses": 3}) == (None, 3, None)
    odd: list[Any] = [-1, True, "5", 2.5, [], None]
    for wrong in odd:
        assert counts({**bare, "max_uses": wrong}) == (None, None, None)


def test_each_server_tool_has_domains_of_its_own() -> None:
    def domains(*tools: dict[str, Any]) -> tuple[Any, Any, Any]:
        search = decode(json.dumps(body(tools=list(tools))).encode()).search
        return search.allowed_domains, search.blocked_domains, search.page_domains

    search, fetch = {**SERVER_TOOL, "allowed_domains": ["a.org"]}, {**FETCH_TOOL, "allowed_domains": ["b.org"]}
    for both in ([search, fetch], [fetch, search]):
        assert domains(*both) == (("a.org",), (), PageDomains(("b.org",)))
    assert domains(search, FETCH_TOOL) == (("a.org",), (), None), "what was found may be opened, and no more"
    assert domains(SERVER_TOOL, {**FETCH_TOOL, "blocked_domains": ["b.org"]}) == ((), (), PageDomains((), ("b.org",)))
    assert domains(fetch) == (("b.org",), (), PageDomains(("b.org",)))
    assert domains({**search, "blocked_domains": ["c.a.org"]})[:2] == (("a.org",), ("c.a.org",))
    odd: list[Any] = ["x", 1, {}, [1, None, ""], [[]], True]
    for wrong in odd:
        assert domains({**SERVER_TOOL, "allowed_domains": wrong}) == ((), (), None)


# What is long


def test_there_are_only_so_many_blocks() -> None:
    few = [{"type": "text", "text": "x"}] * (MOST_BLOCKS // 2)
    assert len(read(messages=[{"role": "user", "content": few}])) == 1
    error = refused(messages=[{"role": "user", "content": few + few}, {"role": "user", "content": few[:1]}])
    assert (error["param"], error["code"]) == ("messages", "array_above_max_length")
    result = {"type": "tool_result", "tool_use_id": "a", "content": few + few}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "w", "input": {}}]}
    assert refused(messages=[USER, called, {"role": "user", "content": [result]}])["param"] == "messages"


def test_what_handles_hold_has_an_end() -> None:
    """A page of one letter is short once it is packed: a small body could ask for gigabytes."""
    text = "a" * (MOST_OPENED // 4)
    handle = HANDLES.seal({**SOURCE, "id": "c", "arguments": "{}", "text": text})
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": handle}]}
    messages = [USER, {"role": "assistant", "content": [use, found] * 50}, USER]
    told = read(Handles(b"secret", "owner"), messages=messages)
    assert MOST_OPENED // 2 < len(orjson.dumps(told)) < 2 * MOST_OPENED
    assert [message["role"] for message in told[:3]] == ["user", "assistant", "tool"]


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": [{"type": LONG}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": LONG}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": {"a": LONG}}]}]},
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": LONG}},
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": [LONG]}},
    ],
)
def test_errors_do_not_repeat_what_is_long(fields: dict[str, Any]) -> None:
    assert len(refused(**fields)["message"]) < 400


# Blocks that are none


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": "not base64!"},
        {"type": "base64", "media_type": "image/png", "data": ""},
        {"type": "base64", "media_type": "image/png", "data": "AAA"},
        {"type": "base64", "media_type": {"a": 1}, "data": "AAAA"},
        {"type": "base64", "media_type": "text/html,<script>", "data": "AAAA"},
        {"type": "url", "url": "file:///etc/passwd"},
        {"type": "url", "url": ""},
        {"type": "url", "url": ["https://x.example/"]},
        {"type": [], "data": "AAAA"},
        {},
        None,
        "AAAA",
    ],
)
def test_pictures_that_are_none(source: Any) -> None:
    picture = {"type": "image", "source": source}
    assert refused(messages=[{"role": "user", "content": [picture]}])["param"] == "messages.0.content.0.source"
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "w", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [picture]}
    param = refused(messages=[USER, call, {"role": "user", "content": [result]}])["param"]
    assert param == "messages.2.content.0.content.0.source"


def test_pictures_as_clients_write_them() -> None:
    wrapped = {"type": "base64", "media_type": "image/webp", "data": "AAAA\nAA=="}
    for source in (wrapped, {"type": "url", "url": "HTTPS://x.example/a.png"}):
        assert read(messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])


# What a model's server counts


@pytest.mark.parametrize("odd", ["x", [1], 7, {"cached_tokens": "5"}, {"cached_tokens": {}}, True])
def test_counts_that_are_none(odd: Any) -> None:
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "prompt_tokens_details": odd,
        "completion_tokens_details": odd,
        "server_tool_use": odd,
    }
    counted = as_usage(usage)
    assert (counted["input_tokens"], counted["output_tokens"], counted["cache_read_input_tokens"]) == (3, 2, 0)


def test_a_call_knows_when_it_is_whole() -> None:
    call = CallBlock(0, "a", "w")
    seen = []
    for piece in ('{"a": ', "1", "}", ""):
        call.write(piece)
        seen.append(call.is_complete)
    assert seen == [False, False, True, True]

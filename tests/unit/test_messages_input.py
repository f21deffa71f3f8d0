"""Messages requests → the chat request that a model is asked with: blocks, histories, tools, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects.messages.dialect import MessagesDialect
from proxy.dialects.messages.handles import Handles
from proxy.dialects.messages.history import OWN_SIGNATURE, Conversation, conversation
from proxy.dialects.messages.request import decode
from proxy.store.store import MemoryStore
from proxy.values.errors import RequestError
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Finished,
    Proof,
    RoundFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from tests.unit.messages_scripts import FETCH_TOOL, HANDLES, SERVER_TOOL, body, encoder
from tests.unit.test_messages_dialect import SKY, THOUGHTS, cited

WEATHER = {"name": "weather", "description": "How it is", "input_schema": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "Why?"}


def talk(messages: list[Any], system: Any = None, handles: Handles = HANDLES, **fields: Any) -> Conversation:
    asked = decode(json.dumps(body(messages=messages, system=system, **fields)).encode())
    return conversation(asked.system, asked.messages, asked.tools, handles)


def read(messages: list[Any], **more: Any) -> list[str]:
    """What the model reads, a line for each message."""
    return [line(message) for message in talk(messages, **more).messages]


def line(message: dict[str, Any]) -> str:
    content = message["content"]
    said = content if isinstance(content, str) else "-" if content is None else json.dumps(content)
    calls = [
        f"{c['id']}={c['function']['name']}({c['function']['arguments']})" for c in message.get("tool_calls") or ()
    ]
    return " ".join([message["role"], *filter(None, [message.get("tool_call_id")]), said, *calls])


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(RequestError) as caught:
        talk(**{"messages": [USER], **fields})
    assert caught.value.failed.status == 400
    return dict(caught.value.failed.error)


# What is said


def test_system_in_all_its_forms() -> None:
    assert read([USER], system="Be brief.") == ["system Be brief.", "user Why?"]
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=a1b2;"}
    blocks = [billing, {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert read([USER], system=[*blocks, {"type": "text", "text": "Be kind."}])[0] == "system Be brief.\n\nBe kind."
    reminder = {"role": "system", "content": "It is late."}
    assert read([USER, reminder, USER]) == ["user Why?", "system It is late.", "user Why?"]
    assert read([USER], system=[]) == ["user Why?"]


def test_images_and_documents() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}}
    (message,) = talk([{"role": "user", "content": [{"type": "text", "text": "See:"}, picture, linked, pdf]}]).messages
    assert message["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,BBBB"}},
    ]
    plain = {"type": "document", "title": "Notes", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}}
    listed = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Ho"}]}}
    found = {"type": "search_result", "source": "a.md", "title": "A", "content": [{"type": "text", "text": "Ha"}]}
    assert read([{"role": "user", "content": [plain, listed, found]}]) == ["user Notes:\n\nHi\nHo\nA\na.md\nHa"]


def test_calls_and_results() -> None:
    calls = [
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
        {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
    ]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    results = [
        {"type": "tool_result", "tool_use_id": "t2", "content": "No city", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Rain"}, picture]},
        {"type": "text", "text": "Go on."},
    ]
    sent = [USER, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    messages = talk(sent, tools=[WEATHER]).messages
    assert [line(message) for message in messages[:-1]] == [
        "user Why?",
        'assistant Wait. t1=weather({"city":"Bern"}) t2=weather({})',
        "tool t1 Rain",
        "tool t2 Error: No city",
    ]
    assert [part["type"] for part in messages[-1]["content"]] == ["image_url", "text"]
    nothing = {"type": "tool_result", "tool_use_id": "t1"}
    assert read([USER, {"role": "assistant", "content": calls}, {"role": "user", "content": [nothing]}]) == [
        "user Why?",
        'assistant Wait. t1=weather({"city":"Bern"})',
        "tool t1 ",
    ]


def test_what_is_refused() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "t9", "content": "?"}
    assert refused(messages=[{"role": "user", "content": [orphan]}])["param"] == "messages.0.content.0.tool_use_id"
    assert refused(messages=[])["param"] == "messages"
    assert refused(messages=[{"role": "tool", "content": "x"}])["param"] == "messages.0.role"
    assert refused(messages=[{"role": "user", "content": 1}])["param"] == "messages.0.content"
    assert (
        refused(messages=[{"role": "user", "content": [{"type": "hologram"}]}])["param"] == "messages.0.content.0.type"
    )
    kept = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    assert refused(messages=[{"role": "user", "content": [kept]}])["param"] == "messages.0.content.0.source"
    assert refused(messages=[{"role": "system", "content": "x"}])["param"] == "messages"
    assert refused(max_tokens="many")["param"] == "max_tokens"
    assert refused(max_tokens=0)["param"] == "max_tokens"
    assert refused(model="")["param"] == "model"
    assert refused(stream=1)["param"] == "stream"
    assert refused(tools=[{"input_schema": {}}])["param"] == "tools.0.name"
    assert refused(tool_choice={"type": "tool", "name": "x"})["param"] == "tool_choice"
    assert refused(tool_choice="auto")["param"] == "tool_choice"
    computer = {"type": "computer_20250124", "name": "computer"}
    assert refused(tools=[computer], tool_choice={"type": "any"})["param"] == "tool_choice"


# What goes up


def test_fields_by_their_names_in_chat() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked = decode(
        json.dumps(
            body(
                stream=True,
                temperature=0.5,
                top_k=3,
                stop_sequences=["END"],
                metadata={"user_id": "{}"},
                thinking={"type": "enabled", "budget_tokens": 5000},
                context_management={"edits": []},
                output_config={"format": {"type": "json_schema", "schema": schema}},
                tools=[{**WEATHER, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
                service_tier="auto",
                something_new=[1],
            )
        ).encode()
    )
    function = {"name": "weather", "description": "How it is", "parameters": WEATHER["input_schema"]}
    assert asked.body == {
        "model": "asked",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "temperature": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}},
        "reasoning_effort": "medium",
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    assert asked.thinks
    assert "reasoning_effort" not in decode(json.dumps(body(thinking={"type": "adaptive"})).encode()).body


@pytest.mark.parametrize("kind", ["web_search_20250305", "web_search_20260318", "web_search_20991231"])
def test_the_server_tool_asks_for_search(kind: str) -> None:
    where = {"type": "approximate", "country": "ch", "city": "Bern"}
    tool = {
        **SERVER_TOOL,
        "type": kind,
        "allowed_domains": ["a.example"],
        "blocked_domains": [],
        "user_location": where,
    }
    asked = decode(json.dumps(body(tools=[tool], tool_choice={"type": "tool", "name": "web_search"})).encode())
    search = asked.search
    assert (search.asked, search.forced, search.max_searches, search.country) == ("tool", True, 8, "CH")
    assert (search.allowed_domains, search.blocked_domains) == (("a.example",), ())
    assert asked.shown == {"web_search"}
    assert "tools" not in asked.body
    assert "tool_choice" not in asked.body


def test_pages_are_counted() -> None:
    asked = decode(json.dumps(body(tools=[{**FETCH_TOOL, "max_uses": 2}])).encode())
    assert (asked.search.max_pages, asked.search.max_searches, asked.shown) == (2, None, {"open_page"})


async def test_tools_that_only_their_vendor_knows_are_named() -> None:
    tools = [WEATHER, {"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"}]
    sent = json.dumps(body(tools=tools)).encode()
    decoded = await MessagesDialect(MemoryStore()).decode(sent, "")
    assert decoded.request.left_out == ("bash_20250124", "memory_20250818")
    assert [tool["function"]["name"] for tool in decoded.request.body["tools"]] == ["weather"]
    assert not decoded.request.wants_no_tools
    assert (await MessagesDialect(MemoryStore()).decode(json.dumps(body(tools=[])).encode(), "")).request.wants_no_tools


# Histories


SEARCHED: list[Event] = [
    ToolStarted("call_7", "web_search", {"query": "sky", "limit": 3}),
    ToolFinished("call_7", "web_search", True, "p", (SKY,)),
    RoundFinished(
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "call_7", "function": {"name": "web_search", "arguments": '{"query": "sky" }'}}],
            },
            {"role": "tool", "tool_call_id": "call_7", "content": "[1] Sky: blue, of course"},
        )
    ),
]
END: list[Event] = [UsageSeen({}), Finished("stop")]


def answered(events: list[Event], handles: Handles = HANDLES, **fields: Any) -> dict[str, Any]:
    """The assistant's message as a client sends it back."""
    made = encoder(**fields)
    made._handles = handles
    made.feed([Begun(), *events])
    return {"role": "assistant", "content": json.loads(json.dumps(made.message["content"]))}


def test_a_search_is_read_again() -> None:
    said = [TextDelta("Let me look."), *SEARCHED, *cited("\n\nBlue [1]. And so on [1]", before="Let me look.")]
    echo = answered([*said, *END], tools=[SERVER_TOOL])
    again = talk([USER, echo, {"role": "user", "content": "More?"}])
    assert [line(message) for message in again.messages] == [
        "user Why?",
        'assistant Let me look. call_7=web_search({"query": "sky" })',
        "tool call_7 [1] Sky: blue, of course",
        "assistant Blue [1]. And so on [1]",
        "user More?",
    ]
    assert {n: source.url for n, source in again.sources.items()} == {1: SKY.url}
    assert again.sources[1].given == (SKY.snippet, "The sky is blue because of air.")
    assert again.sources[1].basis == "snippet"


def test_a_marker_that_the_model_did_not_write_is_not_read_again() -> None:
    said = [
        *SEARCHED,
        TextDelta("It is blue."),
        Citation(11, 11, SKY, Proof("Blue.", "page"), auto=True),
        *END,
    ]
    again = talk([USER, answered(said, tools=[SERVER_TOOL]), {"role": "user", "content": "More?"}])
    assert line(again.messages[-2]) == "assistant It is blue."
    assert (again.sources[1].given, again.sources[1].basis) == (("Blue.",), "page")


def test_the_text_of_a_fetched_page_is_known_again() -> None:
    started = ToolStarted("call_8", "open_page", {"url": SKY.url})
    page = f"Page [1]: Sky\nURL: {SKY.url}\n\nAir scatters blue."
    fenced = f"<<<web-0123456789abcdef\n{page}\nweb-0123456789abcdef>>>"
    told = RoundFinished(({"role": "tool", "tool_call_id": "call_8", "content": fenced},))
    opened = [started, ToolFinished("call_8", "open_page", True, "p", (SKY,)), told]
    events = [*SEARCHED, *opened, *cited("Blue [1]."), *END]
    again = talk([USER, answered(events, tools=[SERVER_TOOL, FETCH_TOOL]), USER])
    assert (again.sources[1].given[0], again.sources[1].basis) == ("Air scatters blue.", "page")


def test_handles_are_for_their_caller_alone() -> None:
    echo = answered([*SEARCHED, *cited("Blue [1]."), *END], Handles(b"secret", "somebody else"), tools=[SERVER_TOOL])
    assert read([USER, echo, USER]) == ["user Why?", "assistant Blue.", "user Why?"]
    theirs = talk([USER, echo, USER], handles=Handles(b"secret", "somebody else"))
    assert line(theirs.messages[-2]) == "assistant Blue [1]."
    assert HANDLES.open(HANDLES.seal({"n": 1})) == {"n": 1}
    sealed = HANDLES.seal({"n": 1})
    for wrong in ("", "é", "AAAA", None, 7, sealed[:-8], "B" + sealed[1:], sealed + "AAAA"):
        assert HANDLES.open(wrong) is None


def test_a_client_with_a_search_of_its_own() -> None:
    echo = answered([*SEARCHED, *END], tools=[SERVER_TOOL])
    own = {"name": "web_search", "input_schema": {"type": "object"}}
    assert "groundwire_web_search" in read([USER, echo, USER], tools=[own])[1]


def test_rounds_stay_apart_and_calls_of_one_round_together() -> None:
    second: list[Event] = [
        ToolStarted("b", "web_search", {"query": "sea"}),
        ToolFinished("b", "web_search", True, "p", (SKY,)),
        RoundFinished(({"role": "tool", "tool_call_id": "b", "content": "salt"},)),
    ]
    one_by_one = answered([*SEARCHED, *second, *END], tools=[SERVER_TOOL])
    assert [said.split()[0] for said in read([USER, one_by_one])] == ["user", "assistant", "tool", "assistant", "tool"]
    both: list[Event] = [SEARCHED[0], second[0], SEARCHED[1], second[1]]
    results = [*SEARCHED[2].messages, *second[2].messages]  # type: ignore[union-attr]
    together = answered([*both, RoundFinished(tuple(results)), *END], tools=[SERVER_TOOL])
    assert [said.split()[0] for said in read([USER, together])] == ["user", "assistant", "tool", "tool"]


def test_a_search_before_the_question_and_a_page() -> None:
    first = answered([*SEARCHED[:2], TextDelta("Blue."), *END], tools=[SERVER_TOOL])
    assert read([USER, first])[2].startswith(f"tool {first['content'][0]['id']} [1] Sky\n{SKY.url}")
    page: list[Event] = [
        ToolStarted("p", "open_page", {"url": SKY.url}),
        ToolFinished("p", "open_page", True, "d", (SKY,)),
        RoundFinished(()),
    ]
    opened = answered([*page, TextDelta("Blue."), *END], tools=[FETCH_TOOL])
    assert read([USER, opened])[1:3] == [
        f'assistant - {opened["content"][0]["id"]}=open_page({{"url":"{SKY.url}"}})',
        f"tool {opened['content'][0]['id']} {SKY.snippet}",
    ]


def test_a_paused_turn_is_taken_back() -> None:
    """Ours never pauses, but who was paused elsewhere sends it on: a use without a result is left out."""
    paused = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ]
    assert read([USER, {"role": "assistant", "content": paused}]) == ["user Why?", "assistant I look."]
    found = answered(SEARCHED, tools=[SERVER_TOOL])
    assert [said.split()[0] for said in read([USER, found])] == ["user", "assistant", "tool"]
    foreign = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "Eq=="}]}
    unknown = {"type": "code_execution_tool_result", "tool_use_id": "x", "content": {}}
    sent = {"role": "assistant", "content": [*paused, foreign, unknown, {"type": "text", "text": " Blue."}]}
    assert read([USER, sent]) == ["user Why?", "assistant I look. Blue."]


def test_thinking_goes_back() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    own = {"type": "thinking", "thinking": "aha", "signature": OWN_SIGNATURE}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Rain"}]}
    messages = talk([USER, {"role": "assistant", "content": [signed, hidden, call]}, result]).messages
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["thinking_blocks"] == [signed, hidden]
    messages = talk([USER, {"role": "assistant", "content": [own, call]}, result]).messages
    assert (messages[1]["reasoning_content"], "thinking_blocks" in messages[1]) == ("aha", False)
    old = talk([USER, {"role": "assistant", "content": [own, {"type": "text", "text": "So."}]}, USER]).messages
    assert old[1] == {"role": "assistant", "content": "So."}
    assert [
        block["type"]
        for block in answered([*THOUGHTS, TextDelta("So."), *END], thinking={"type": "adaptive"})["content"]
    ] == ["thinking", "text"]


def test_there_are_only_so_many_tools() -> None:
    error = refused(tools=[{**WEATHER, "name": f"t{n}"} for n in range(2001)])
    assert (error["param"], error["code"]) == ("tools", "array_above_max_length")

"""Events → Messages: the order of the events, what every block looks like, and errors in this API's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.answering.citations import Citer
from proxy.dialects.messages.dialect import MessagesDialect
from proxy.dialects.messages.history import OWN_SIGNATURE
from proxy.store.store import MemoryStore
from proxy.values.errors import failure
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Finished,
    Proof,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from tests.unit.messages_scripts import (
    FETCH_TOOL,
    HANDLES,
    SERVER_TOOL,
    encoder,
    gathered,
    payloads,
    short,
    stream,
)
from tools.ledger import Source

SAID = "Tea is hot. The sky is blue because of air. Rain falls."
SKY = Source(1, "https://sky.example/a", "Sky", SAID, "2026-05-01", given=(SAID,))
SEA = Source(2, "https://sea.example/b", "Sea")
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 12},
    "completion_tokens_details": {"reasoning_tokens": 3},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
}
END: list[Event] = [UsageSeen(USAGE), Finished("stop")]
SEARCH = ToolStarted("a", "web_search", {"query": "sky"})
FOUND = ToolFinished("a", "web_search", True, "p", (SKY, SEA))
ROUND = RoundFinished(
    (
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": "[1] Sky …"},
    )
)
SEARCHED: list[Event] = [SEARCH, FOUND, ROUND]
USE = ("server_tool_use", "web_search", {"query": "sky"})
RESULT = ("web_search_tool_result", SKY.url, SEA.url)


def cited(*pieces: str, before: str = "") -> list[Event]:
    """What the citer makes of a model's text, where blocks cite; `before` was said already."""
    citer = Citer({1: SKY, 2: SEA}.get, "none")
    citer.feed(before)
    return [event for piece in pieces for event in citer.feed(piece)] + list(citer.flush())


def message_of(events: list[Event], **fields: Any) -> dict[str, Any]:
    """The message of a stream, which is the one of a whole answer, however the events are cut into batches."""
    events = [Begun("up"), *events]
    streamed, whole, single = encoder(**fields), encoder(**fields), encoder(**fields)
    message = gathered(payloads(streamed.feed(events)))
    whole.feed(events)
    one_by_one = gathered(payloads(b"".join(single.feed(batch) for batch in batches(events))))
    assert plain(message) == plain(whole.message)
    assert short(one_by_one) == short(message)
    return message


def batches(events: list[Event]) -> list[list[Event]]:
    """As small as they come: a citation stands in one batch with the text before it."""
    out: list[list[Event]] = []
    for event in events:
        if isinstance(event, Citation) and isinstance(out[-1][-1], TextDelta | Citation):
            out[-1].append(event)
        else:
            out.append([event])
    return out


def plain(message: dict[str, Any]) -> Any:
    """Without what differs from one making to the next."""
    ids = {block["id"]: f"id{at}" for at, block in enumerate(message["content"]) if "id" in block}
    text = json.dumps({**message, "id": "…"})
    for id_, name in ids.items():
        text = text.replace(id_, name)
    return json.loads(text)


def test_the_order_of_the_events() -> None:
    sent = stream([Begun("up"), *SEARCHED, *cited("Blue [1]. Salty."), *END], tools=[SERVER_TOOL])
    kinds = [event.get("delta", {}).get("type") or event["type"] for event in sent]
    block = ["content_block_start", "{}", "content_block_stop"]
    assert kinds == [
        "message_start",
        *(kind.format("input_json_delta") for kind in block),
        "content_block_start",
        "content_block_stop",
        "content_block_start",
        "text_delta",
        "text_delta",
        "citations_delta",
        "content_block_stop",
        *(kind.format("text_delta") for kind in block),
        "message_delta",
        "message_stop",
    ]
    start = sent[0]["message"]
    assert (start["model"], start["content"], start["stop_reason"]) == ("up", [], None)
    assert start["usage"]["input_tokens"] == 0


def test_a_plain_answer() -> None:
    message = message_of([TextDelta("Hel"), TextDelta("lo."), *END])
    assert message["content"] == [{"type": "text", "text": "Hello."}]
    assert (message["role"], message["type"], message["stop_reason"]) == ("assistant", "message", "end_turn")
    assert message["usage"] == {
        "input_tokens": 18,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 12,
        "output_tokens": 7,
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
        "output_tokens_details": {"thinking_tokens": 3},
    }


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use"), ("content_filter", "refusal")],
)
def test_why_it_stopped(reason: str, expected: str) -> None:
    assert message_of([TextDelta("a"), UsageSeen({}), Finished(reason)])["stop_reason"] == expected


@pytest.mark.parametrize(
    ("reason", "word", "expected"),
    [
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", "<|im_end|>", ("end_turn", None)),  # a word of the server's own
        ("stop", "", ("end_turn", None)),
        ("length", "END", ("max_tokens", None)),
        ("tool_calls", "END", ("tool_use", None)),
    ],
)
def test_the_word_at_which_it_stopped(reason: str, word: str, expected: tuple[str, str | None]) -> None:
    stops = ["STOP", "END"]
    message = message_of([TextDelta("a"), UsageSeen({}), Finished(reason, word)], stop_sequences=stops)
    assert (message["stop_reason"], message["stop_sequence"]) == expected


@pytest.mark.parametrize(
    ("pieces", "blocks"),
    [
        (["Blue [1]."], [("Blue.", SKY.url)]),
        (["Blue ", "[", "1", "]", ".", " And"], [("Blue.", SKY.url), " And"]),
        (["Blue [1] and salty [2]!"], [("Blue", SKY.url), (" and salty!", SEA.url)]),
        (["Both [1][2]. So [1, 2]"], [("Both.", SKY.url, SEA.url), (" So", SKY.url, SEA.url)]),
        (['He said "blue" [1]). Then'], [('He said "blue").', SKY.url), " Then"]),
        (["Blue. [1]\n\nNext."], [("Blue.", SKY.url), "\n\nNext."]),
        (["Blue [1].\n\n"], [("Blue.", SKY.url)]),
        (["空は青い[1]。次"], [("空は青い。", SKY.url), "次"]),
        (["Nothing [3]."], ["Nothing [3]."]),
        (["", " \n"], []),
    ],
)
def test_a_block_ends_behind_its_citation(pieces: list[str], blocks: list[Any]) -> None:
    message = message_of([*SEARCHED, *cited(*pieces), *END], tools=[SERVER_TOOL])
    assert short(message) == [USE, RESULT, *blocks]
    by_character = message_of([*SEARCHED, *cited(*"".join(pieces)), *END], tools=[SERVER_TOOL])
    assert short(by_character) == short(message)


def test_what_a_citation_says() -> None:
    message = message_of([*SEARCHED, *cited("The sky is blue [1]; the sea too [2]."), *END], tools=[SERVER_TOOL])
    (sky,), (sea,) = (block["citations"] for block in message["content"][2:])
    assert {key: value for key, value in sky.items() if key != "encrypted_index"} == {
        "type": "web_search_result_location",
        "url": SKY.url,
        "title": "Sky",
        "cited_text": "The sky is blue because of air.",
        "basis": "snippet",
    }
    assert HANDLES.open(sky["encrypted_index"])["n"] == 1
    assert sea["cited_text"] == "Sea", "where the model was given no text a title stands in"


def test_what_we_put_in_and_what_is_not_found_is_told_here_too() -> None:
    marked = Citation(16, 16, SKY, Proof("The sky", "page", ("1871",)), auto=True)
    message = message_of([*SEARCHED, TextDelta("Blue since 1871."), marked, *END], tools=[SERVER_TOOL])
    (shown,) = message["content"][2]["citations"]
    told = {name: shown[name] for name in ("cited_text", "basis", "auto", "unmatched")}
    assert told == {"cited_text": "The sky", "basis": "page", "auto": True, "unmatched": ["1871"]}


def test_without_the_server_tool_it_is_one_text() -> None:
    link = "[[1]](https://sky.example/a)"
    events: list[Event] = [TextDelta("Let me look."), *SEARCHED, TextDelta(f"\n\nBlue {link}."), TextDelta(" Yes.")]
    message = message_of([*events, *END])
    assert message["content"] == [{"type": "text", "text": f"Let me look.\n\nBlue {link}. Yes."}]


def test_a_search_that_failed() -> None:
    failed = ToolFinished("a", "web_search", False)
    assert short(message_of([SEARCH, failed, ROUND, *END], tools=[SERVER_TOOL]))[1] == (
        "web_search_tool_result",
        "unavailable",
    )
    empty = ToolStarted("a", "web_search", {})
    found = short(message_of([empty, failed, ROUND, *END], tools=[SERVER_TOOL]))
    assert found[1] == ("web_search_tool_result", "invalid_tool_input")
    tools = [{**SERVER_TOOL, "max_uses": 0}]
    assert short(message_of([SEARCH, failed, ROUND, *END], tools=tools))[1][1] == "max_uses_exceeded"


def test_a_page_that_was_opened() -> None:
    url = SEA.url
    page = f"Page [2] Sea\nURL: {url}\n\nRivers bring salt. Whales sing."
    fenced = f"Read this.\n<<<web-0123456789abcdef\n{page}\nweb-0123456789abcdef>>>"
    read: list[Event] = [
        ToolStarted("p", "open_page", {"url": url}),
        ToolFinished("p", "open_page", True, "d", (SEA,)),
        RoundFinished(({"role": "tool", "tool_call_id": "p", "content": fenced},)),
    ]
    hidden = message_of([*read, *cited("Salt comes from rivers [2]."), *END], tools=[SERVER_TOOL])
    assert short(hidden) == [("Salt comes from rivers.", url)]
    shown = message_of([*read, TextDelta("Salty."), *END], tools=[FETCH_TOOL])
    assert short(shown) == [
        ("server_tool_use", "web_fetch", {"url": url}),
        ("web_fetch_tool_result", url),
        "Salty.",
    ]
    assert shown["content"][1]["content"]["content"]["source"]["data"] == "Rivers bring salt. Whales sing."


def test_a_search_before_the_question_is_shown_too() -> None:
    assert short(message_of([SEARCH, FOUND, TextDelta("Blue."), *END], tools=[SERVER_TOOL])) == [USE, RESULT, "Blue."]


# Thinking


THOUGHTS: list[Event] = [ReasoningDelta({"reasoning_content": "h"}), ReasoningDelta({"reasoning": "m"})]
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def test_thinking_is_shown_to_who_asked_for_it() -> None:
    events = [*THOUGHTS, TextDelta("\n\n"), TextDelta("Blue."), *END]
    asked = {"thinking": {"type": "adaptive"}}
    assert short(message_of(events, **asked)) == [f"<hm|{OWN_SIGNATURE}>", "\n\nBlue."]
    assert short(message_of(events)) == ["\n\nBlue."]
    assert short(message_of(events, thinking={"type": "disabled"})) == ["\n\nBlue."]


def test_what_a_vendor_signed() -> None:
    signed = ReasoningDelta({"reasoning_content": "", "thinking_blocks": [SIGNED]})
    asked = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert short(message_of([*THOUGHTS, signed, TextDelta("Blue."), *END], **asked)) == ["<hm|c2ln>", "Blue."]
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    whole = ReasoningDelta({"reasoning_content": "hm", "thinking_blocks": [SIGNED, hidden]})
    content = message_of([whole, TextDelta("Blue."), *END], **asked)["content"]
    assert content == [SIGNED, hidden, {"type": "text", "text": "Blue."}]


# Calls


def test_calls_of_the_client() -> None:
    long = "mcp__a_server_with_a_very_long_name__and_a_tool_whose_name_is_even_longer_than_that"
    tools = [{"name": "weather", "input_schema": {"type": "object"}}, {"name": long, "input_schema": {}}]
    wire = encoder(tools=tools)._tools.functions[1]["function"]["name"]
    events: list[Event] = [
        TextDelta("Wait."),
        ToolCallDelta(0, "c1", "weather", '{"city":'),
        ToolCallDelta(0, arguments='"Bern"}'),
        ToolCallDelta(1, "c2", wire, "{}"),
        UsageSeen({}),
        Finished("tool_calls"),
    ]
    message = message_of(events, tools=tools)
    assert len(wire) == 64
    assert short(message) == ["Wait.", ("tool_use", "weather", {"city": "Bern"}), ("tool_use", long, {})]
    assert [block.get("id") for block in message["content"]] == [None, "c1", "c2"]


@pytest.mark.parametrize("pieces", [["not json"], [" ", "[1]"], ['"{}"'], ["", "nul", "l"]])
def test_arguments_that_are_no_object_are_not_shown(pieces: list[str]) -> None:
    """SDKs read them as JSON while they come, and break at what is none."""
    events: list[Event] = [ToolCallDelta(0, "c", "weather", ""), *(ToolCallDelta(0, arguments=p) for p in pieces)]
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    events = [Begun("up"), *events, UsageSeen({}), Finished("tool_calls")]
    assert not [sent for sent in stream(events, tools=tools) if sent["type"] == "content_block_delta"]
    assert short(message_of(events[1:], tools=tools)) == [("tool_use", "weather", {})]


def test_calls_whose_pieces_are_mixed() -> None:
    events: list[Event] = [
        ToolCallDelta(0, "c1", "weather", ""),
        ToolCallDelta(1, "c2", "time", '{"at":'),
        ToolCallDelta(0, arguments='{"city":"Bern"}'),
        ToolCallDelta(1, arguments='"noon"}'),
        UsageSeen({}),
        Finished("tool_calls"),
    ]
    assert short(message_of(events)) == [
        ("tool_use", "weather", {"city": "Bern"}),
        ("tool_use", "time", {"at": "noon"}),
    ]


def test_a_mixed_turn() -> None:
    call = ToolCallDelta(0, "c1_gwABCDEFGHIJKL", "weather", "{}")
    events: list[Event] = [TextDelta("Wait."), call, *SEARCHED, UsageSeen({}), Finished("tool_calls")]
    assert short(message_of(events, tools=[SERVER_TOOL])) == ["Wait.", ("tool_use", "weather", {}), USE, RESULT]
    assert short(message_of(events)) == ["Wait.", ("tool_use", "weather", {})]


# Errors


@pytest.mark.parametrize(
    ("status", "shown", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (403, 403, "permission_error"),
        (404, 404, "not_found_error"),
        (413, 413, "request_too_large"),
        (422, 422, "invalid_request_error"),
        (429, 429, "rate_limit_error"),
        (500, 500, "api_error"),
        (502, 502, "api_error"),
        (503, 529, "overloaded_error"),
        (504, 504, "timeout_error"),
    ],
)
def test_errors_have_this_apis_shape(status: int, shown: int, kind: str) -> None:
    dialect = MessagesDialect(MemoryStore())
    failed = failure(status, "It went wrong.", code="why")
    expected = {"type": "error", "error": {"type": kind, "message": "It went wrong.", "code": "why"}}
    assert dialect.status(failed) == shown
    assert json.loads(dialect.error(failed)) == expected
    assert payloads(dialect.error_event(failed)) == [expected]
    assert stream([Begun(), TextDelta("a"), failed])[-1] == expected

"""Events → Responses: the order of the events, and what every item looks like."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.request import decode
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tests.unit.responses_scripts import (
    BROKEN,
    END,
    ERROR,
    FOUND,
    HOSTED,
    PREAMBLE,
    REQUEST,
    SCRIPTS,
    SEA,
    SEA_LINK,
    SEARCH,
    SKY,
    SKY_LINK,
    fold,
    messages,
    plain,
    request,
    short,
    stream,
    text_of,
    told,
    wire,
)
from tools.ledger import Source


def test_the_full_order() -> None:
    said = ["output_item.added", "content_part.added", "output_text.delta"]
    told_ = ["output_text.done", "content_part.done", "output_item.done"]
    web = ["output_item.added", "web_search_call.in_progress", "web_search_call.searching"]
    cited = ["output_text.delta", "output_text.annotation.added"]
    expected: list[str] = ["created", "in_progress"]
    thought = ["part.added", "text.delta", "text.delta", "text.done", "part.done"]
    expected += ["output_item.added 0", *(f"reasoning_summary_{name} 0" for name in thought), "output_item.done 0"]
    expected += [f"{name} 1" for name in said + told_]
    expected += [f"{name} 2" for name in web] + [f"{name} 3" for name in web]
    expected += [
        "web_search_call.completed 2",
        "output_item.done 2",
        "web_search_call.completed 3",
        "output_item.done 3",
    ]
    expected += [f"{name} 4" for name in (*said, *cited, "output_text.delta", *cited, "output_text.delta", *told_)]
    assert short(stream(SCRIPTS["rounds"])) == [*expected, "completed"]


def test_the_whole_response() -> None:
    sent = stream(SCRIPTS["rounds"])
    assert plain(sent[0]["response"]) == {
        **plain(decode(json.dumps(REQUEST).encode()).echo),
        "id": "…",
        "object": "response",
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": "up",
        "service_tier": "flex",
        "output": [],
        "usage": None,
        "tool_usage": sent[0]["response"]["tool_usage"],
    }
    response = sent[-1]["response"]
    assert response["created_at"] <= response["completed_at"]
    assert (response["status"], response["id"]) == ("completed", "resp_1")
    assert response["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 37,
    }
    assert response["tool_usage"]["web_search"] == {"num_requests": 1}
    assert response["tool_usage"]["image_gen"]["total_tokens"] == 0
    text = f"Blue 😀 {SKY_LINK} as the sea {SEA_LINK}."
    assert plain(response["output"]) == [
        {
            "id": "…",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "I should search"}],
            "encrypted_content": None,
        },
        message("Let me look."),
        {
            "id": "…",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "sky", "queries": ["sky"]},
        },
        {
            "id": "…",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "open_page", "url": SKY.url},
        },
        message(text, [annotation(text, SKY_LINK, SKY), annotation(text, SEA_LINK, SEA)]),
    ]


def message(text: str, annotations: list[Any] | None = None, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": annotations or [], "logprobs": []}
    return {"id": "…", "type": "message", "status": status, "role": "assistant", "content": [part]}


def annotation(text: str, marker: str, source: Source) -> dict[str, Any]:
    start = text.index(marker)
    place = {"start_index": start, "end_index": start + len(marker)}
    return {"type": "url_citation", **place, "url": source.url, "title": source.title}


def test_an_annotation_comes_right_after_its_marker() -> None:
    sent = stream(SCRIPTS["rounds"])
    written: dict[str, str] = {}
    numbers = []
    for before, event in pairwise(sent):
        if event["type"] == "response.output_text.delta":
            written[event["item_id"]] = written.get(event["item_id"], "") + event["delta"]
        if event["type"] == "response.output_text.annotation.added":
            mark = event["annotation"]
            assert before["type"] == "response.output_text.delta"
            assert written[event["item_id"]][mark["start_index"] : mark["end_index"]] == before["delta"]
            numbers.append(event["annotation_index"])
    assert numbers == [0, 1]


def test_client_calls() -> None:
    sent = stream(SCRIPTS["function"])
    calls = [e for e in sent if "function_call" in e["type"] or e.get("item", {}).get("type") == "function_call"]
    assert [f"{e['type'].removeprefix('response.')} {e['output_index']}" for e in calls] == [
        "output_item.added 3",
        "function_call_arguments.delta 3",
        "output_item.added 4",
        "function_call_arguments.delta 3",
        "function_call_arguments.delta 4",
        "function_call_arguments.done 3",
        "output_item.done 3",
        "function_call_arguments.done 4",
        "output_item.done 4",
    ]
    whole = {"type": "function_call", "status": "completed", "name": "weather", "arguments": '{"city": "Bern"}'}
    assert plain(calls[0]["item"]) == {
        **whole,
        "status": "in_progress",
        "id": "…",
        "call_id": "call_1",
        "arguments": "",
    }
    assert plain(sent[-1]["response"]["output"][3]) == {**whole, "id": "…", "call_id": "call_1"}
    assert calls[5]["arguments"] == '{"city": "Bern"}'
    assert [item["type"] for item in sent[-1]["response"]["output"]] == [
        "message",
        "web_search_call",
        "reasoning",
        "function_call",
        "function_call",
    ]
    assert sent[-1]["type"] == "response.completed"


def test_a_search_that_failed_ends_without_completing() -> None:
    sent = stream(SCRIPTS["failed search"], include=["web_search_call.action.sources"])
    assert short(sent)[2:6] == [
        "output_item.added 0",
        "web_search_call.in_progress 0",
        "web_search_call.searching 0",
        "output_item.done 0",
    ]
    assert sent[5]["item"]["status"] == "failed"
    assert sent[-1]["response"]["status"] == "completed"


def test_what_was_found_is_shown_only_if_asked() -> None:
    def search(*include: str) -> dict[str, Any]:
        response = fold(SCRIPTS["cut"], include=list(include))
        item: dict[str, Any] = response["output"][0]
        return item

    assert set(search()) == {"id", "type", "status", "action"}
    assert set(search()["action"]) == {"type", "query", "queries"}
    sources = search("web_search_call.action.sources")["action"]["sources"]
    assert sources == [{"type": "url", "url": SKY.url}, {"type": "url", "url": SEA.url}]
    assert search("web_search_call.results")["results"] == [
        {"url": SKY.url, "title": "Sky", "snippet": "Why it is blue", "date": "2026-05-01", "basis": "snippet"},
        {"url": SEA.url, "title": "Sea", "snippet": "", "date": None, "basis": "snippet"},
    ]


@pytest.mark.parametrize(
    ("arguments", "urls"),
    [
        ({"url": "https://a"}, ["https://a"]),
        ({"urls": ["https://a", "https://b", "https://a"]}, ["https://a", "https://b"]),
        ({"url": "https://a", "urls": ["https://b"]}, ["https://a", "https://b"]),
        ({"url": 7, "urls": {"x": 1}}, [None]),
        ({}, [None]),
    ],
)
def test_every_page_is_an_action(arguments: dict[str, Any], urls: list[str | None]) -> None:
    opened = ToolStarted("b", "open_page", arguments)
    encoder = Encoder(request(), "resp_1")
    encoder.feed([Begun("m"), opened, ToolFinished("b", "open_page", True), *told("Read."), *END])
    items = [item for item in encoder.response["output"] if item["type"] == "web_search_call"]
    assert [item["action"] for item in items] == [{"type": "open_page", "url": url} for url in urls]
    assert {item["status"] for item in items} == {"completed"}


def test_a_query_may_be_anything() -> None:
    strange = [
        Begun("m"),
        ToolStarted("a", "web_search", {"query": ["x"]}),
        ToolFinished("a", "web_search", False),
        *END,
    ]
    item = fold(strange)["output"][0]
    assert item["action"] == {"type": "search", "query": "", "queries": [""]}


def test_a_tool_that_nobody_offered_is_not_shown() -> None:
    unknown: list[Event] = [ToolStarted("x", "made_up", {}), ToolFinished("x", "made_up", False)]
    response = fold([Begun("m"), PREAMBLE, *unknown, TextDelta("\n\nSo."), *END])
    assert plain(response["output"]) == [message("Let me look.\n\nSo.")]


def test_refusals_are_parts_of_their_own_kind() -> None:
    sent = stream(SCRIPTS["refusal"])
    assert short(sent)[2:] == [
        "output_item.added 0",
        "content_part.added 0",
        "refusal.delta 0",
        "refusal.delta 0",
        "refusal.done 0",
        "content_part.done 0",
        "output_item.done 0",
        "completed",
    ]
    assert sent[6]["refusal"] == "I cannot."
    assert sent[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]


@pytest.mark.parametrize(
    ("script", "reason", "statuses"),
    [
        ("cut", "max_output_tokens", ["completed", "incomplete"]),
        ("cut call", "max_output_tokens", ["incomplete"]),
        ("filtered", "content_filter", ["incomplete"]),
    ],
)
def test_an_answer_that_was_cut_is_incomplete(script: str, reason: str, statuses: list[str]) -> None:
    *_, done, last = stream(SCRIPTS[script])
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": reason}
    assert last["response"]["completed_at"] is None
    assert [item["status"] for item in last["response"]["output"]] == statuses
    assert done["item"] == last["response"]["output"][-1]


@pytest.mark.parametrize("script", ["nothing", "only searched"])
def test_an_empty_answer_is_a_message(script: str) -> None:
    response = stream(SCRIPTS[script])[-1]["response"]
    assert response["output"][-1]["type"] == "message"
    assert text_of(response).strip() == ""
    assert response["usage"]["total_tokens"] == response["usage"]["input_tokens"] + response["usage"]["output_tokens"]


@pytest.mark.parametrize("script", BROKEN)
def test_a_failure_is_a_nested_error_and_the_failed_response(script: str) -> None:
    *before, error, failed = stream(SCRIPTS[script])
    assert short(before)[:2] == ["created", "in_progress"]
    assert error["type"] == "error"
    assert error["error"]["message"] == failed["response"]["error"]["message"] != ""
    for said in (error["error"], failed["response"]["error"]):
        assert all(isinstance(said[name], str) and said[name] for name in ("type", "code", "message"))
    assert isinstance(error["error"]["param"], str | None)
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert {item.get("status") for item in failed["response"]["output"]} <= {"completed", "incomplete", "failed"}


def test_what_came_before_a_failure_is_kept() -> None:
    failed = stream(SCRIPTS["death"])[-1]["response"]
    assert plain(failed["output"][1]) == message("Half an ans", status="incomplete")
    assert failed["usage"] is None
    searching = stream(SCRIPTS["death in a search"])[-1]["response"]
    assert [item["status"] for item in searching["output"]] == ["completed", "failed"]


def test_nothing_follows_the_end() -> None:
    for end in (Finished("stop"), Failed(502, ERROR)):
        encoder = Encoder(request(), "resp_1")
        encoder.feed([Begun("m"), *told("Done"), end])
        assert encoder.feed([TextDelta("!"), SEARCH, Finished("stop"), Failed(502, ERROR)]) == b""


def test_blank_text_alone_makes_no_item() -> None:
    events: list[Event] = [
        Begun("m"),
        ReasoningDelta({"reasoning_content": "\n\n"}),
        TextDelta("\n"),
        TextDelta("\n"),
        SEARCH,
        FOUND,
        TextDelta("\n\n"),
        TextDelta("    code"),
        Citation(4, 8, SKY),
        *END,
    ]
    response = fold(events)
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert text_of(response) == "\n\n    code"  # the first message of all keeps its blanks
    events[2:2] = [*told("Well."), SEARCH, FOUND]
    assert text_of(fold(events)) == "Well.\n\n    code"


def test_a_citation_without_a_marker_stands_where_it_was() -> None:
    events: list[Event] = [Begun("m"), Citation(0, 0, SKY), *told("Blue"), Citation(4, 4, SEA), *END]
    (item,) = fold(events)["output"]
    marks = [(mark["start_index"], mark["end_index"], mark["url"]) for mark in item["content"][0]["annotations"]]
    assert marks == [(0, 0, SKY.url), (4, 4, SEA.url)]


def test_our_names_stay_ours() -> None:
    assert b"open_page(" not in wire(SCRIPTS["rounds"])
    assert stream(SCRIPTS["rounds"])[-1]["response"]["tools"] == request().echo["tools"]
    assert b"server_tool_use" not in wire(SCRIPTS["rounds"])


def test_ids_are_long_and_named_for_what_they_are() -> None:
    output = fold(SCRIPTS["function"])["output"]
    assert [re.sub(r"_[0-9a-f]{32}$", "", item["id"]) for item in output] == ["msg", "ws", "rs", "fc", "fc"]
    assert len({item["id"] for item in output}) == len(output)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"tools": None}, False),
        ({"tools": [{"type": "function", "name": "weather"}]}, False),
        ({"tools": None, "include": ["reasoning.encrypted_content"]}, False),
        ({"tools": None, "include": ["web_search_call.results"]}, True),
        ({"tools": [{"type": "web_search_preview"}]}, True),
        ({"tools": [HOSTED], "tool_choice": HOSTED}, True),
    ],
)
def test_searches_are_shown_to_who_knows_them(fields: dict[str, Any], shown: bool) -> None:
    sent = stream(SCRIPTS["rounds"], **fields)
    assert ("web_search_call" in {item["type"] for item in sent[-1]["response"]["output"]}) == shown
    assert any("web_search_call" in event["type"] for event in sent) == shown
    assert sent[-1]["response"]["tool_usage"]["web_search"] == {"num_requests": 1}
    assert [text_of({"output": [item]}) for item in messages(sent[-1]["response"])] == [
        "Let me look.",
        f"Blue 😀 {SKY_LINK} as the sea {SEA_LINK}.",
    ]

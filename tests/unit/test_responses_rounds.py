"""Which output item stands for which part of a conversation, as the encoder learns it from finished rounds."""

from __future__ import annotations

from typing import Any

from proxy.dialects.responses.encoder import Encoder
from proxy.values.events import (
    Begun,
    Event,
    Finished,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from tests.unit.responses_scripts import request


def made(id_: str, name: str = "web_search") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}


def spoken(text: str | None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {}), **more}


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": f"found {id_}"}


def stood_for(*events: Event) -> list[tuple[str, str, int, list[dict[str, Any]]]]:
    encoder = Encoder(request(), "resp_1")
    encoder.feed([Begun("m"), *events, UsageSeen({}), Finished("stop")])
    return [(k.item["type"], k.round_id, k.place, list(k.messages)) for k in encoder.known_items]


def test_each_part_of_a_round_stands_with_one_item() -> None:
    look = spoken("Let me see.", made("a"), made("b"), reasoning_content="hm")
    assert stood_for(
        ReasoningDelta({"reasoning_content": "hm"}),
        TextDelta("Let me see."),
        ToolStarted("a", "web_search", {"query": "sky"}),
        ToolStarted("b", "open_page", {"urls": ["https://a", "https://b"]}),
        ToolFinished("a", "web_search", True),
        ToolFinished("b", "open_page", True),
        RoundFinished((look, result("a"), result("b"))),
        TextDelta("\n\nBlue."),
        RoundFinished((spoken("Blue."),)),
    ) == [
        ("reasoning", "resp_1:0", 0, [spoken(None, reasoning_content="hm")]),
        ("message", "resp_1:0", 0, [spoken("Let me see.")]),
        ("web_search_call", "resp_1:0", 1, [spoken(None, made("a")), result("a")]),
        ("web_search_call", "resp_1:0", 2, [spoken(None, made("b")), result("b")]),
        ("web_search_call", "resp_1:0", 2, []),
        ("message", "resp_1:1", 0, [spoken("Blue.")]),
    ]


def test_a_mixed_turn() -> None:
    turn = spoken("Wait.", made("a"), made("w", "weather"))
    assert stood_for(
        TextDelta("Wait."),
        ToolCallDelta(0, "w_gw", "weather", "{}"),
        ToolStarted("a", "web_search", {"query": "sky"}),
        ToolFinished("a", "web_search", True),
        RoundFinished((turn, result("a"))),
    ) == [
        ("message", "resp_1:0", 0, [spoken("Wait.")]),
        ("function_call", "resp_1:0", 2, [spoken(None, made("w", "weather"))]),
        ("web_search_call", "resp_1:0", 1, [spoken(None, made("a")), result("a")]),
    ]


def test_what_is_stored_names_the_clients_calls_as_it_was_shown_them() -> None:
    encoder = Encoder(request(), "resp_1")
    turn = spoken("Wait.", made("a"), made("w", "weather"))
    called = ToolCallDelta(0, "w_gw", "weather", "{}")
    encoder.feed([Begun("m"), called, RoundFinished((turn, result("a"))), UsageSeen({}), Finished("tool_calls")])
    assert [call["id"] for call in encoder.rounds.messages[0]["tool_calls"]] == ["a", "w_gw"]


def test_a_text_that_goes_on_over_two_rounds_stands_for_both() -> None:
    nudge = {"role": "user", "content": "Call it."}
    assert stood_for(
        TextDelta("I will search."),
        RoundFinished((spoken("I will search."), nudge)),
        TextDelta("\n\nWell: blue."),
        RoundFinished((spoken("Well: blue."),)),
    ) == [("message", "resp_1:1", 0, [spoken("I will search."), spoken("Well: blue.")])]


def test_what_a_round_kept_to_itself_stands_with_nothing() -> None:
    assert stood_for(
        ToolStarted("a", "web_search", {"query": "sky"}),
        ToolFinished("a", "web_search", True),
        RoundFinished((spoken("Not shown.", made("a")), result("a"))),
        TextDelta("{}"),
        RoundFinished((spoken("{}"),)),
    ) == [
        ("web_search_call", "resp_1:0", 1, [spoken(None, made("a")), result("a")]),
        ("message", "resp_1:1", 0, [spoken("{}")]),
    ]


def test_a_refusal_is_what_was_said() -> None:
    assert stood_for(
        ReasoningDelta({"refusal": "I cannot."}),
        RoundFinished((spoken(None, refusal="I cannot."),)),
    ) == [("message", "resp_1:0", 0, [spoken("I cannot.")])]


def test_an_empty_answer_stands_for_nothing() -> None:
    assert stood_for(RoundFinished((spoken(None),))) == [("message", "", 0, [])]

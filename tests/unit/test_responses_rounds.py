"""Which output item stands for which part of a conversation, as the encoder learns it from finished rounds."""

from __future__ import annotations

from typing import Any

from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.history import KnownItem, conversation, hidden
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
from tests.unit.responses_scripts import TOOLS, request


def made(id_: str, name: str = "web_search") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}


def spoken(text: str | None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {}), **more}


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": f"found {id_}"}


def stood_for(*events: Event, tools: Any = TOOLS) -> list[tuple[str, str, int, list[dict[str, Any]]]]:
    encoder = Encoder(request(tools=tools), "resp_1")
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


# Searches that are not shown


def searched(id_: str) -> list[Event]:
    return [ToolStarted(id_, "web_search", {"query": "sky"}), ToolFinished(id_, "web_search", True)]


def found(id_: str, round_: int, place: int = 1) -> list[dict[str, Any]]:
    """A call and its result as an item keeps them that stands for more than itself."""
    return [hidden(part, f"resp_1:{round_}", place) for part in (spoken(None, made(id_)), result(id_))]


def test_rounds_without_an_item_belong_to_the_next_that_comes_back() -> None:
    assert stood_for(
        *searched("a"),
        RoundFinished((spoken(None, made("a"), reasoning_content="signed"), result("a"))),
        ReasoningDelta({"reasoning_content": "hm"}),
        *searched("b"),
        *searched("c"),
        RoundFinished((spoken(None, made("b"), made("c"), reasoning_content="hm"), result("b"), result("c"))),
        TextDelta("Blue."),
        RoundFinished((spoken("Blue."),)),
        tools=None,
    ) == [
        ("reasoning", "resp_1:1", 0, [spoken(None, reasoning_content="hm")]),
        (
            "message",
            "resp_1:2",
            0,
            [
                hidden(spoken(None, reasoning_content="signed"), "resp_1:0", 1),
                *found("a", 0),
                *found("b", 1, 1),
                *found("c", 1, 2),
                spoken("Blue."),
            ],
        ),
    ]


def test_what_nothing_follows_belongs_to_the_last_item() -> None:
    assert stood_for(
        ToolCallDelta(0, "w_gw", "weather", "{}"),
        *searched("a"),
        RoundFinished((spoken(None, made("a"), made("w", "weather")), result("a"))),
        tools=None,
    ) == [("function_call", "resp_1:0", 2, [spoken(None, made("w", "weather")), *found("a", 0)])]


def test_the_next_turn_reads_what_was_not_shown() -> None:
    """Sent again, referred to or edited: the searches stand where they were made."""
    look = spoken("Let me see.", made("a"), reasoning_content="hm")
    turn = spoken("Wait.", made("b"), made("w", "weather"))
    encoder = Encoder(request(tools=None), "resp_1")
    encoder.feed([Begun("m"), ReasoningDelta({"reasoning_content": "hm"}), TextDelta("Let me see."), *searched("a")])
    encoder.feed(
        [RoundFinished((look, result("a"))), TextDelta("\n\nWait."), ToolCallDelta(0, "w_gw", "weather", "{}")]
    )
    encoder.feed([*searched("b"), RoundFinished((turn, result("b"))), UsageSeen({}), Finished("tool_calls")])
    output = encoder.response["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "message", "function_call"]
    known = {entry.item["id"]: entry for entry in encoder.known_items}
    given = {"type": "function_call_output", "call_id": "w_gw", "output": "sunny"}
    asked = {"role": "user", "content": "Why?"}
    sunny = {"role": "tool", "tool_call_id": "w", "content": "sunny"}
    whole = [asked, look, result("a"), turn, result("b"), sunny]
    refer = [{"type": "item_reference", "id": item["id"]} for item in output]
    assert told([asked, *output, given], known) == told([asked, *refer, given], known) == whole
    without_thoughts = {key: value for key, value in look.items() if key != "reasoning_content"}
    assert told([asked, *output[1:], given], known) == [asked, without_thoughts, *whole[2:]]
    edited = {**output[2], "content": [{"type": "output_text", "text": "Hold on."}]}
    changed = {**turn, "content": "Hold on."}
    assert told([asked, *output[:2], edited, output[3], given], known) == [*whole[:3], changed, *whole[4:]]
    assert told([asked, *output[:3], {**asked, "content": "And?"}], known) == [
        *whole[:3],
        spoken("Wait."),
        {**asked, "content": "And?"},
    ]


def told(items: list[dict[str, Any]], known: dict[str, KnownItem]) -> list[dict[str, Any]]:
    messages = conversation(request(input=items), (), known).messages
    assert "hidden" not in str(messages)
    return messages

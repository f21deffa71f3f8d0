"""Turns in which the model calls the client: what the client sees, what runs meanwhile, what is kept for its return."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.answering.loop import End, KeepTurn, ToolLoop
from proxy.answering.turns import Turn, marked, restored
from proxy.values.events import (
    Begun,
    Event,
    Finished,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolStarted,
    UsageSeen,
)
from tests.unit.test_loop import USER, WEATHER, answer_tools, asked, call, make_loop, running, search_round


def kept(loop: ToolLoop) -> KeepTurn:
    action = loop.next_action()
    assert isinstance(action, KeepTurn)
    return action


def shown(events: list[Event]) -> list[ToolCallDelta]:
    return [event for event in events if isinstance(event, ToolCallDelta)]


MIXED: list[Event] = [
    Begun("m"),
    TextDelta("Wait."),
    ReasoningDelta({"reasoning_content": "hm"}),
    call("web_search", {"query": "q"}, 0),
    call("weather", '{"ci', 1),
    ToolCallDelta(1, arguments='ty":1}'),
    call("open_page", {"url": "https://a.example/"}, 2),
    call("weather", "", 3),
    Finished("tool_calls"),
]


def test_ours_run_and_the_clients_pass_renumbered() -> None:
    loop = make_loop(tools=[WEATHER])
    seen = loop.receive(MIXED)
    first, rest, second, empty = shown(seen)
    key = first.id.removeprefix("id1_gw")
    assert len(key) == 12
    assert (first, rest) == (
        ToolCallDelta(0, marked("id1", key), "weather", '{"ci'),
        ToolCallDelta(0, arguments='ty":1}'),
    )
    assert (second, empty) == (ToolCallDelta(1, marked("id3", key), "weather", ""), ToolCallDelta(1, arguments="{}"))
    assert [event.tool for event in seen if isinstance(event, ToolStarted)] == ["web_search", "open_page"]
    assert not any(isinstance(event, Finished) for event in seen), "the end waits for the store"
    assert [c.tool for c in running(loop)] == ["web_search", "open_page"]
    answer_tools(loop)
    turn = kept(loop)
    assert (turn.key, turn.before) == (key, [])
    assert turn.results == {"id0": "result of id0", "id2": "result of id2"}
    assert [c["id"] for c in turn.calls["tool_calls"]] == ["id0", "id1", "id2", "id3"]
    assert [c["function"]["arguments"] for c in turn.calls["tool_calls"]][1:4:2] == ['{"city":1}', "{}"]
    assert (turn.calls["content"], turn.calls["reasoning_content"]) == ("Wait.", "hm")
    results = [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in turn.results.items()]
    assert loop.turn_kept() == [RoundFinished((turn.calls, *results)), UsageSeen({}), Finished("tool_calls")]
    assert loop.next_action() == End()


def test_rounds_that_only_searched_are_kept_too() -> None:
    loop = make_loop(tools=[WEATHER])
    search_round(loop)
    seen = loop.receive([Begun("m"), call("weather", "{}", call_id="w"), Finished("tool_calls")])
    assert [event.name for event in shown(seen)] == ["weather"]
    turn = kept(loop)
    assert [m["role"] for m in turn.before] == ["assistant", "tool"]
    assert [c["id"] for c in turn.calls["tool_calls"]] == ["w"]
    assert turn.results == {}
    assert loop.turn_kept()[-1] == Finished("tool_calls")


def test_where_nothing_is_hidden_nothing_is_kept() -> None:
    loop = make_loop(tools=[WEATHER])
    seen = loop.receive([Begun("m"), call("weather"), Finished("stop")])
    assert seen[-1] == Finished("tool_calls")
    assert loop.next_action() == End()


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_turn_that_was_cut_short_runs_nothing_but_keeps_what_was(reason: str) -> None:
    loop = make_loop(tools=[WEATHER])
    search_round(loop)
    loop.receive([Begun("m"), call("web_search", "{}", 0, "s"), call("weather", '{"ci', 1, "w"), Finished(reason)])
    turn = kept(loop)
    assert [c["id"] for c in turn.calls["tool_calls"]] == ["w"]
    assert loop.turn_kept()[-1] == Finished(reason)


def test_in_the_last_round_ours_are_discarded() -> None:
    loop = make_loop(max_rounds=1, tools=[WEATHER])
    search_round(loop)
    loop.receive([Begun("m"), call("web_search", "{}", 0, "s"), call("weather", "{}", 1, "w"), Finished("tool_calls")])
    assert [c["id"] for c in kept(loop).calls["tool_calls"]] == ["w"]


def test_what_may_run_while_the_client_is_still_being_called() -> None:
    loop = make_loop(tools=[WEATHER])
    loop.receive([Begun("m"), call("web_search", {"query": "q"}, 0)])
    assert loop.ready() == [], "its arguments may go on"
    loop.receive([call("weather", '{"ci', 1)])
    assert [(c.id, c.tool) for c in loop.ready()] == [("id0", "web_search")]
    loop.receive([ToolCallDelta(1, arguments='ty":1}'), call("open_page", {"url": "https://a.example/"}, 2)])
    assert loop.ready() == []


def test_what_the_conversation_grows_by() -> None:
    loop = make_loop()
    loop.receive([Begun("m"), call("web_search", {"query": "q"}), Finished("tool_calls")])
    events = answer_tools(loop) + loop.receive([TextDelta("Blue [1]."), Finished("stop")])
    rounds = [event.messages for event in events if isinstance(event, RoundFinished)]
    assert [[m["role"] for m in messages] for messages in rounds] == [["assistant", "tool"], ["assistant"]]
    assert rounds[-1] == ({"role": "assistant", "content": "Blue [1]."},)


def test_the_next_request_goes_on_where_the_turn_ended() -> None:
    """The whole way: what was kept, the client's own history, and the request that the model gets."""
    loop = make_loop(tools=[WEATHER])
    search_round(loop, "early")
    seen = loop.receive(MIXED)
    answer_tools(loop)
    action = kept(loop)
    turn = Turn(action.before, action.calls, action.results, "Wait.")
    ids = [event.id for event in shown(seen) if event.id]
    calls = [{"id": id_, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for id_ in ids]
    history: list[dict[str, Any]] = [
        USER,
        {"role": "assistant", "content": "Wait.", "tool_calls": calls},
        *({"role": "tool", "tool_call_id": id_, "content": "rain"} for id_ in reversed(ids)),
    ]
    messages = restored(history, {action.key: turn}).messages
    assert [m.get("tool_call_id") for m in messages] == [None, None, "early", None, "id0", "id1", "id2", "id3"]
    again = make_loop(tools=[WEATHER], messages=messages)
    assert asked(again)["messages"] == messages

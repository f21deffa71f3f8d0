"""The last round, fed by hand: the model is told to answer, the list of tools stays, and a call of ours is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from proxy.answering.loop import End, KeepTurn, ToolLoop
from proxy.values.events import Finished, RoundFinished, TextDelta, ToolCallDelta, UsageSeen
from proxy.values.request import SearchOptions
from tests.unit.test_loop import WEATHER, asked, call, make_loop, names, running, search_round
from tools import prompts
from tools.base import ToolResult

ALL = ["weather", "web_search", "open_page"]


def last_round(**body: Any) -> ToolLoop:
    loop = make_loop(max_rounds=1, **body)
    search_round(loop)
    return loop


def refused(loop: ToolLoop) -> None:
    loop.receive([call("web_search", {"query": "more"}, call_id="late"), Finished("tool_calls")])


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_it_is_told_in_the_last_result_and_only_there(tools: list[Any]) -> None:
    loop = make_loop(max_rounds=2, tools=tools)
    search_round(loop)
    assert asked(loop)["messages"][-1]["content"] == "result of id0"
    search_round(loop)
    results = [message["content"] for message in asked(loop)["messages"] if message["role"] == "tool"]
    assert results[0] == "result of id0"
    assert results[1].endswith("\n\n" + prompts.ANSWER_NOW)


def test_of_several_results_the_last_one_says_it() -> None:
    loop = make_loop(max_rounds=1)
    loop.receive([call("web_search"), call("open_page", index=1), Finished("tool_calls")])
    loop.tools_done([ToolResult(c.id, "r") for c in running(loop)])
    assert [m["content"] == "r" for m in asked(loop)["messages"][2:]] == [True, False]


def test_a_spent_budget_says_it_too() -> None:
    loop = make_loop(max_rounds=9, tools=[WEATHER])
    loop.receive([call("web_search"), Finished("tool_calls")])
    loop.tools_done([ToolResult("id0", "r")], spent=True)
    assert asked(loop)["messages"][-1]["content"].endswith(prompts.ANSWER_NOW)


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}])
def test_beside_tools_of_the_clients_nothing_but_the_messages_changes(choice: dict[str, Any]) -> None:
    loop = make_loop(max_rounds=1, tools=[WEATHER], **choice)
    before = asked(loop)
    search_round(loop)
    last = asked(loop)
    assert names(last) == ALL
    assert {**last, "messages": None} == {**before, "messages": None}


def test_a_call_of_ours_is_refused_in_words_and_then_ours_go() -> None:
    loop = last_round(tools=[WEATHER], tool_choice="auto", parallel_tool_calls=False)
    before = asked(loop)["messages"].copy()
    refused(loop)
    body = asked(loop)
    assert body["messages"][: len(before)] == before, "the prefix stays"
    said, result = body["messages"][len(before) :]
    assert [c["id"] for c in said["tool_calls"]] == ["late"]
    assert result == {"role": "tool", "tool_call_id": "late", "content": prompts.NO_MORE_CALLS}
    assert names(body) == ["weather"]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)


def test_one_refusal_is_enough() -> None:
    loop = last_round(tools=[WEATHER])
    refused(loop)
    assert loop.receive([call("web_search"), Finished("tool_calls")])[-1] == Finished("stop")
    assert loop.next_action() == End()


def test_what_was_said_beside_the_call_is_no_answer_yet() -> None:
    loop = last_round(tools=[WEATHER])
    seen = loop.receive([TextDelta("One more look."), call("web_search"), Finished("tool_calls")])
    assert seen[0] == TextDelta("One more look.")
    assert isinstance(seen[1], RoundFinished)
    assert asked(loop)["messages"][-2]["content"] == "One more look."
    assert loop.receive([TextDelta("Blue."), Finished("stop")])[0] == TextDelta("\n\nBlue.")


def test_a_format_is_not_written_twice() -> None:
    loop = last_round(tools=[WEATHER], response_format={"type": "json_object"}, search=SearchOptions("header"))
    assert asked(loop)["response_format"] == {"type": "json_object"}
    assert loop.receive([TextDelta("{}"), call("web_search"), Finished("tool_calls")])[-1] == Finished("stop")


def test_the_client_may_still_be_called() -> None:
    loop = last_round(tools=[WEATHER])
    seen = loop.receive([call("weather", {"city": "Bern"}), Finished("tool_calls")])
    assert isinstance(seen[0], ToolCallDelta)
    assert isinstance(kept := loop.next_action(), KeepTurn)
    assert kept.results == {}


def test_who_allows_nothing_but_search_has_no_tools_left_to_call() -> None:
    loop = make_loop(max_rounds=1, tools=[WEATHER], tool_choice="none", search=SearchOptions("tool", allowed=True))
    search_round(loop)
    body = asked(loop)
    assert body["tool_choice"] == "none"
    assert names(body) == ALL


def test_the_refused_round_counts_in_usage() -> None:
    loop = last_round(tools=[WEATHER])
    loop.receive([call("web_search"), UsageSeen({"n": 1}), Finished("tool_calls")])
    assert UsageSeen({"n": 3}) in loop.receive([TextDelta("x"), UsageSeen({"n": 2}), Finished("stop")])


def test_every_request_begins_as_the_one_before_it() -> None:
    """As a server sees it that keeps what it has read: byte by byte."""
    loop = make_loop(max_rounds=2, tools=[WEATHER])
    prompts_read = [_prompt(asked(loop))]
    for number in range(2):
        search_round(loop, f"c{number}")
        prompts_read.append(_prompt(asked(loop)))
    for before, after in itertools.pairwise(prompts_read):
        assert after.startswith(before)


def _prompt(body: dict[str, Any]) -> str:
    return json.dumps(body["tools"]) + "".join(json.dumps(message) for message in body["messages"])

"""The tool loop, fed by hand: what it passes on, what it holds back, what it asks next."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from proxy.answering import offer as offers
from proxy.answering.announced_search import announces_search
from proxy.answering.loop import AskModel, End, RunTools, ToolLoop
from proxy.answering.offer import Offer
from proxy.values.events import (
    Begun,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from proxy.values.request import ChatRequest, SearchOptions
from proxy.values.usage import add_usage
from tools.base import ToolCall, ToolResult, ToolSpec

SPECS = (ToolSpec("web_search", "Search.", {"type": "object"}), ToolSpec("open_page", "Open.", {"type": "object"}))
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {}}}
USER = {"role": "user", "content": "Why is the sky blue?"}


def make_offer(search: SearchOptions | None = None, **body: Any) -> Offer:
    full = {"model": "m", "messages": [USER], **body}
    return offers.make_offer(ChatRequest(full, b"", "m", search=search or SearchOptions()), SPECS)


def make_loop(max_rounds: int = 3, search: SearchOptions | None = None, **body: Any) -> ToolLoop:
    return ToolLoop(make_offer(search, **body), max_rounds)


def call(name: str, arguments: object = "{}", index: int = 0, call_id: str = "") -> ToolCallDelta:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCallDelta(index, call_id or f"id{index}", name, text)


def asked(loop: ToolLoop) -> dict[str, Any]:
    action = loop.next_action()
    assert isinstance(action, AskModel)
    return action.body


def running(loop: ToolLoop) -> tuple[ToolCall, ...]:
    action = loop.next_action()
    assert isinstance(action, RunTools)
    return action.calls


def answer_tools(loop: ToolLoop) -> list[Event]:
    return loop.tools_done([ToolResult(c.id, f"result of {c.id}") for c in running(loop)])


def search_round(loop: ToolLoop, call_id: str = "id0") -> None:
    loop.receive([Begun("m"), call("web_search", {"query": "q"}, call_id=call_id), Finished("tool_calls")])
    answer_tools(loop)


def names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def test_an_answer_without_calls_passes_straight_through() -> None:
    loop = make_loop()
    assert names(asked(loop)) == ["web_search", "open_page"]
    events: list[Event] = [Begun("m"), TextDelta("Hi"), ReasoningDelta({"reasoning": "hm"}), TextDelta("!")]
    assert loop.receive(events) == events
    assert loop.receive([UsageSeen({"total_tokens": 3}), Finished("stop")]) == [
        RoundFinished(({"role": "assistant", "content": "Hi!", "reasoning": "hm"},)),
        UsageSeen({"total_tokens": 3}),
        Finished("stop"),
    ]
    assert loop.next_action() == End()


def test_two_rounds_hidden_from_the_client() -> None:
    loop = make_loop()
    seen = loop.receive(
        [Begun("m"), TextDelta("Let me look."), call("web_search", {"query": "sky"}), UsageSeen({"n": 1})]
    )
    seen += loop.receive([Finished("tool_calls")])
    assert seen == [Begun("m"), TextDelta("Let me look."), ToolStarted("id0", "web_search", {"query": "sky"})]
    assert running(loop) == (ToolCall("id0", "web_search", '{"query": "sky"}'),)
    finished, over = answer_tools(loop)
    assert finished == ToolFinished("id0", "web_search", True)

    body = asked(loop)
    assert over == RoundFinished(tuple(body["messages"][1:]))
    assert body["messages"] == [
        USER,
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "id0", "type": "function", "function": {"name": "web_search", "arguments": '{"query": "sky"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "id0", "content": "result of id0"},
    ]
    end = loop.receive([Begun("other"), TextDelta("Blue."), UsageSeen({"n": 2}), Finished("stop")])
    last = RoundFinished(({"role": "assistant", "content": "Blue."},))
    assert end == [TextDelta("\n\nBlue."), last, UsageSeen({"n": 3}), Finished("stop")]


def test_cut_anywhere_the_events_mean_the_same() -> None:
    events: list[Event] = [
        Begun("m"),
        TextDelta("a"),
        ToolCallDelta(0, "x", "web_search", '{"que'),
        ToolCallDelta(1, "y", "open_page", "{"),
        ToolCallDelta(0, arguments='ry":1}'),
        ToolCallDelta(1, arguments="}"),
        UsageSeen({"n": 1}),
        Finished("tool_calls"),
    ]
    for cuts in itertools.combinations(range(len(events) + 1), 2):
        loop = make_loop()
        batches = [events[a:b] for a, b in itertools.pairwise((0, *cuts, len(events))) if a < b]
        seen = [e for batch in batches for e in loop.receive(batch)]
        assert [type(e) for e in seen] == [Begun, TextDelta, ToolStarted, ToolStarted]
        assert running(loop) == (ToolCall("x", "web_search", '{"query":1}'), ToolCall("y", "open_page", "{}"))


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [("a", "b", "a\n\nb"), ("a\n", "b", "a\nb"), ("a", " b", "a b"), ("a ", "\nb", "a \nb")],
)
def test_texts_of_two_rounds_stand_apart(first: str, second: str, shown: str) -> None:
    loop = make_loop()
    seen = loop.receive([Begun("m"), TextDelta(first), call("web_search"), Finished("tool_calls")])
    seen += answer_tools(loop)
    assert asked(loop)["messages"][1]["content"] == first, "the separator never goes upstream"
    seen += loop.receive([TextDelta(second), Finished("stop")])
    assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == shown


def test_reasoning_and_vendor_fields_are_echoed_verbatim() -> None:
    loop = make_loop()
    signature = {"extra_content": {"google": {"thought_signature": "s"}}}
    loop.receive(
        [Begun("m"), ReasoningDelta({"reasoning_content": "I "}), ReasoningDelta({"reasoning_content": "think"})]
    )
    loop.receive([ReasoningDelta({"reasoning_details": [{"a": 1}]}), ReasoningDelta({"reasoning_details": [{"b": 2}]})])
    loop.receive([ToolCallDelta(0, "x", "web_search", "{}", signature), Finished("tool_calls")])
    answer_tools(loop)
    message = asked(loop)["messages"][1]
    assert message["reasoning_content"] == "I think"
    assert message["reasoning_details"] == [{"a": 1}, {"b": 2}]
    assert message["tool_calls"][0]["extra_content"] == signature["extra_content"]
    assert message["content"] is None


def test_a_tool_that_nobody_offered_is_answered_not_shown() -> None:
    loop = make_loop(tools=[WEATHER])
    assert loop.receive([Begun("m"), call("frobnicate"), Finished("tool_calls")]) == [
        Begun("m"),
        ToolStarted("id0", "frobnicate", {}),
    ]
    assert running(loop)[0].tool == "frobnicate"


def test_calls_count_whatever_the_finish_reason_says() -> None:
    loop = make_loop()
    loop.receive([Begun("m"), call("web_search"), Finished("stop")])
    assert running(loop)
    none = make_loop()
    assert none.receive([Begun("m"), TextDelta("x"), Finished("tool_calls")])[-1] == Finished("stop")


def test_a_call_cut_by_the_token_limit_ends_the_answer() -> None:
    loop = make_loop()
    assert loop.receive([Begun("m"), call("web_search", '{"que'), Finished("length")])[-1] == Finished("length")


def test_malformed_arguments_reach_the_tool_but_not_the_history() -> None:
    loop = make_loop()
    loop.receive([Begun("m"), call("web_search", "not json"), Finished("tool_calls")])
    assert running(loop)[0].arguments == "not json"
    answer_tools(loop)
    assert asked(loop)["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_ids_that_repeat_in_later_rounds_are_made_new() -> None:
    loop = make_loop()
    search_round(loop, "functions.web_search:0")
    search_round(loop, "functions.web_search:0")
    messages = asked(loop)["messages"]
    ids = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert len(set(ids)) == 2
    assert ids == [m["tool_calls"][0]["id"] for m in messages if m["role"] == "assistant"]


def test_the_last_round_keeps_the_tools_and_forbids_calls() -> None:
    loop = make_loop(max_rounds=2)
    search_round(loop)
    assert "tool_choice" not in asked(loop)
    search_round(loop)
    body = asked(loop)
    assert body["tool_choice"] == "none"
    assert names(body) == ["web_search", "open_page"]
    assert loop.receive([TextDelta("Answer."), Finished("stop")])[-1] == Finished("stop")


def test_a_spent_budget_makes_the_next_round_the_last() -> None:
    loop = make_loop(max_rounds=9)
    loop.receive([Begun("m"), call("web_search"), Finished("tool_calls")])
    loop.tools_done([ToolResult("id0", "r")], spent=True)
    assert asked(loop)["tool_choice"] == "none"


def test_a_model_that_calls_all_the_same_is_asked_once_more_without_tools() -> None:
    loop = make_loop(max_rounds=1, parallel_tool_calls=True)
    search_round(loop)
    assert loop.receive([call("web_search"), Finished("tool_calls")]) == []
    body = asked(loop)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    assert loop.receive([call("web_search"), Finished("tool_calls")])[-1] == Finished("stop")
    assert loop.next_action() == End()


def test_calls_beside_the_text_of_the_last_round_are_discarded() -> None:
    loop = make_loop(max_rounds=1)
    search_round(loop)
    assert loop.receive([TextDelta("Answer."), call("web_search"), Finished("tool_calls")]) == [
        TextDelta("Answer."),
        RoundFinished(({"role": "assistant", "content": "Answer."},)),
        UsageSeen({}),
        Finished("stop"),
    ]


def test_a_forced_search_is_free_after_it_ran() -> None:
    loop = make_loop(search=SearchOptions("tool_choice", forced=True))
    assert asked(loop)["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
    search_round(loop)
    assert asked(loop)["tool_choice"] == "auto"
    required = make_loop(tool_choice="required", search=SearchOptions("tool"))
    assert asked(required)["tool_choice"] == "required"
    search_round(required)
    assert asked(required)["tool_choice"] == "auto"


def test_a_format_waits_for_the_final_request() -> None:
    wanted = {"type": "json_object"}
    loop = make_loop(response_format=wanted, search=SearchOptions("header"))
    assert "response_format" not in asked(loop)
    seen = loop.receive([Begun("m"), TextDelta("I will search."), call("web_search"), Finished("tool_calls")])
    seen += answer_tools(loop)
    assert "response_format" not in asked(loop)
    seen += loop.receive([TextDelta("Plain text that nobody asked for"), Finished("stop")])
    body = asked(loop)
    assert body["response_format"] == wanted
    assert body["tool_choice"] == "none"
    assert len(body["messages"]) == 3, "the discarded text is not in the history"
    seen += loop.receive([TextDelta('{"a":'), TextDelta("1}"), Finished("stop")])
    assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == '{"a":1}'
    assert seen[-1] == Finished("stop")


def test_at_the_round_limit_the_last_round_is_the_formatted_one() -> None:
    loop = make_loop(max_rounds=1, response_format={"type": "json_object"}, search=SearchOptions("header"))
    search_round(loop)
    assert asked(loop)["response_format"] == {"type": "json_object"}
    assert loop.receive([TextDelta("{}"), Finished("stop")])[-1] == Finished("stop")


def test_a_failure_ends_it() -> None:
    loop = make_loop()
    failed = Failed(502, {"message": "x"})
    assert loop.receive([Begun("m"), TextDelta("x"), failed]) == [Begun("m"), TextDelta("x"), failed]
    assert loop.next_action() == End()


def test_with_nothing_offered_calls_belong_to_the_client() -> None:
    loop = ToolLoop(Offer({"messages": [USER]}), 3)
    assert asked(loop) == {"messages": [USER]}
    assert loop.receive([Begun("m"), call("anything"), Finished("tool_calls")])[-1] == Finished("tool_calls")


def test_an_endless_caller_is_stopped() -> None:
    loop, asks = make_loop(max_rounds=4), 0
    while not isinstance(action := loop.next_action(), End):
        if isinstance(action, RunTools):
            loop.tools_done([ToolResult(c.id, "r") for c in action.calls])
        else:
            asks += 1
            forbidden = action.body.get("tool_choice") == "none"
            turn = TextDelta("done") if forbidden else call("web_search", {"query": str(asks)})
            loop.receive([Begun("m"), turn, Finished("stop")])
    assert asks == 5


@pytest.mark.parametrize(
    ("text", "announced"),
    [
        ("I will search the web for that.", True),
        ("Sure, let me look that up.", True),
        ("The question is about Bern. Let me search for the weather there:", True),
        ("Searching the web for the newest release...", True),
        ("I'll use the web_search tool to find out.", True),
        ("Ich werde danach suchen.", True),
        ("我来搜索一下。", True),
        ("Paris is the capital of France. Let me know if you'd like me to check anything else!", False),
        ("I will use binary search.", False),
        ("It uses a tree for searching.", False),
        ("Please send me the log and I'll check it.", False),
        ("You can search the web for that.", False),
        ("Rayleigh scattering [1]. Let me search for more.", False),
        ("", False),
    ],
)
def test_what_counts_as_an_announced_search(text: str, announced: bool) -> None:
    assert announces_search(text) is announced


def test_usage_is_summed_at_every_depth() -> None:
    total: dict[str, Any] = {}
    add_usage(total, {"prompt_tokens": 1, "details": {"cached": 2, "audio": None}, "tier": "a"})
    add_usage(total, {"prompt_tokens": 3, "details": {"cached": 4}, "tier": "b", "cost": 0.5})
    assert total == {"prompt_tokens": 4, "details": {"cached": 6, "audio": None}, "tier": "b", "cost": 0.5}


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_client_call_that_was_cut_short_says_so(reason: str) -> None:
    loop = make_loop(tools=[WEATHER])
    begun, called, _, usage, finished = loop.receive([Begun("m"), call("weather", '{"city":"Ber'), Finished(reason)])
    assert isinstance(called, ToolCallDelta)
    assert (called.name, called.arguments) == ("weather", '{"city":"Ber')
    assert (begun, usage, finished) == (Begun("m"), UsageSeen({}), Finished(reason))


def test_ids_of_the_clients_history_are_not_used_again() -> None:
    before = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    }
    loop = make_loop(messages=[USER, before, {"role": "tool", "tool_call_id": "call_1", "content": "x"}, USER])
    search_round(loop, "call_1")
    assert asked(loop)["messages"][-1]["tool_call_id"] != "call_1"


def test_a_hidden_round_cut_by_length_still_gets_its_final_request() -> None:
    loop = make_loop(response_format={"type": "json_object"}, search=SearchOptions("header"))
    assert loop.receive([Begun("m"), TextDelta("So much to say"), Finished("length")]) == [Begun("m")]
    assert asked(loop)["response_format"] == {"type": "json_object"}


def test_the_word_at_which_the_last_round_stopped() -> None:
    loop = make_loop()
    loop.receive([Begun("m"), call("web_search", {"query": "q"}), Finished("tool_calls", "of a round before")])
    answer_tools(loop)
    assert loop.receive([Begun("m"), TextDelta("Blue"), Finished("stop", "END")])[-1] == Finished("stop", "END")
    again = make_loop()
    again.receive([Begun("m"), call("web_search", {"query": "q"}), Finished("tool_calls", "END")])
    answer_tools(again)
    assert again.receive([Begun("m"), TextDelta("Blue"), Finished("stop")])[-1] == Finished("stop")

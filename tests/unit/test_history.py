"""A history put together in any order: every call answered once, right behind it, in order; and what it grew by."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.values.history import History, HistoryCall, with_unique_ids
from proxy.values.messages import arguments_of, call_name, calls_in, role_of, text_of, texts_in

USER = {"role": "user", "content": "Why?"}


def made(call_id: str, name: str = "weather", place: int = 0) -> HistoryCall:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return HistoryCall(call, (call_id,) if call_id else (), name, place)


def turn(history: History, *calls: HistoryCall, text: str | None = None) -> None:
    history.begin_turn({"role": "assistant", "content": text})
    history.call(calls)


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def told(messages: list[dict[str, Any]]) -> list[str]:
    lines = []
    for message in messages:
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        ids += [message["tool_call_id"]] if "tool_call_id" in message else []
        lines.append(" ".join([message["role"], *filter(None, [message["content"]]), *ids]))
    return lines


def test_results_stand_behind_their_calls_in_the_order_of_the_calls() -> None:
    history = History()
    history.add(USER)
    turn(history, made("b", place=2), made("a", place=1))
    history.add({"role": "user", "content": "Well?"})
    assert history.answer("b", result("sun"))
    assert history.answer("a", result("rain"))
    assert not history.answer("c", result("nothing"))
    assert told(history.messages()) == ["user Why?", "assistant a b", "tool rain a", "tool sun b", "user Well?"]


def test_what_nobody_answered_is_left_out_and_the_first_of_two_results_counts() -> None:
    history = History()
    turn(history, made("a"), made("b"), text="Wait.")
    turn(history, made("c"))
    assert history.answer("b", result("one"))
    assert history.answer("b", result("two"))
    assert told(history.messages()) == ["assistant Wait. b", "tool one b"]


def test_of_calls_with_one_id_the_latest_turn_comes_first() -> None:
    history = History()
    turn(history, made("x"))
    turn(history, made("x"), made("x"))
    for text in ("1", "2", "3"):
        assert history.answer("x", result(text))
    assert told(history.messages()) == ["assistant x", "tool 3 x", "assistant x x", "tool 1 x", "tool 2 x"]


def test_a_result_without_an_id_goes_to_the_oldest_open_call_of_its_name() -> None:
    history = History()
    turn(history, made("", "clock"), made("a", "weather"))
    assert history.answer_in_order("weather", result("rain"), has_id=False)
    assert not history.answer_in_order("weather", result("more rain"), has_id=False)
    assert not history.answer_in_order("weather", result("strange"), has_id=True), "every call of that name has an id"
    assert history.answer_in_order("", result("noon"), has_id=True), "this one has none"
    clock, weather = history.entries[0].calls
    assert (clock.results, weather.results) == ([result("noon")], [result("rain")])


def test_results_of_a_turn_that_is_added_as_it_is_are_nobodys_affair() -> None:
    history = History()
    turn(history, made("x"))
    history.add({"role": "assistant", "content": None, "tool_calls": [made("x").call]})
    assert not history.answer("x", result("theirs"))


def test_what_a_history_has_grown_by() -> None:
    history = History()
    history.add(USER)
    turn(history, made("a"), made("b"))
    history.answer("a", result("early"))
    history.mark()
    history.answer("b", result("late"))
    history.add({"role": "user", "content": "And?"})
    turn(history, made("c"))
    history.answer("c", result("new"))
    own = history.since_mark()
    assert told(own) == ["tool late b", "user And?", "assistant c", "tool new c"]


@given(st.lists(st.lists(st.sampled_from("xyz"), max_size=3), max_size=6))
def test_ids_are_unique_and_always_the_same(turns: list[list[str]]) -> None:
    history = History()
    for ids in turns:
        turn(history, *(made(id_, place=place) for place, id_ in enumerate(ids)))
        for id_ in ids:
            history.answer(id_, result(id_))
    once, twice = (with_unique_ids(history.messages()) for _ in range(2))
    assert once == twice
    ids = [call["id"] for message in once for call in message.get("tool_calls") or ()]
    assert len(set(ids)) == len(ids)
    assert [m["tool_call_id"] for m in once if m["role"] == "tool"] == ids
    assert [c["id"] for m in history.messages() for c in m.get("tool_calls") or ()] == [id_ for t in turns for id_ in t]


def test_messages_are_read_whatever_they_hold() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, "x", {"type": "text", "text": 7}, {"text": "b"}]
    assert texts_in(parts) == ["a", "b"]
    assert text_of({"content": parts}) == "ab"
    assert text_of({"content": "whole"}) == "whole"
    assert [text_of(odd) for odd in ({}, {"content": 7}, None, "x")] == [""] * 4
    assert [role_of(odd) for odd in ({"role": "user"}, {"role": 7}, None)] == ["user", "", ""]
    calls = [{"id": "a"}, {"id": 7}, "x", {}]
    assert calls_in({"role": "assistant", "tool_calls": calls}) == [{"id": "a"}]
    assert calls_in({"role": "user", "tool_calls": calls}) == calls_in({"role": "assistant"}) == []
    assert [call_name(odd) for odd in ({"function": {"name": "f"}}, {"function": "f"}, {})] == ["f", "", ""]
    assert [arguments_of(odd) for odd in ('{"a": 1}', "{ }", "", None, "{", 7)] == [{"a": 1}, {}, {}, {}, "{", 7]

"""Histories put back: whatever the client left out, changed or sent twice, every call is answered once and in order."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering.turns import MOST_KEYS, Turn, decoded, keys_in, marked, new_key, restored, without_calls
from tools.ledger import KnownSource

KEY = "abcdefABCDEF"


def call(id_: str, name: str = "weather") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}


def tool(id_: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


SEARCHED = [{"role": "assistant", "content": "First.", "tool_calls": [call("s0", "web_search")]}, tool("s0", "found 0")]
TURN = Turn(
    before=SEARCHED,
    calls={
        "role": "assistant",
        "content": "Then.",
        "tool_calls": [call("s1", "web_search"), call("c1"), call("s2", "open_page"), call("c2")],
        "reasoning_content": "hm",
    },
    results={"s1": "found 1", "s2": "page 2"},
    shown="First.\n\nThen.",
    sources={1: KnownSource("https://a.example/", "A")},
)
USER = {"role": "user", "content": "Why?"}
SEEN = {
    "role": "assistant",
    "content": "First.\n\nThen.",
    "tool_calls": [call(marked("c1", KEY)), call(marked("c2", KEY))],
}
RESULTS = [tool(marked("c1", KEY), "rain"), tool(marked("c2", KEY), "sun")]
WHOLE = [
    USER,
    *SEARCHED,
    TURN.calls,
    tool("s1", "found 1"),
    tool("c1", "rain"),
    tool("s2", "page 2"),
    tool("c2", "sun"),
]


def test_everything_is_put_back_in_its_order() -> None:
    back = restored([USER, SEEN, *RESULTS], {KEY: TURN})
    assert back.messages == WHOLE
    assert back.sources == {1: KnownSource("https://a.example/", "A")}


def test_results_in_another_order_and_the_history_sent_twice() -> None:
    assert restored([USER, SEEN, *reversed(RESULTS)], {KEY: TURN}).messages == WHOLE
    assert restored([USER, SEEN, *RESULTS, USER, SEEN, *RESULTS], {KEY: TURN}).messages == WHOLE + WHOLE


def test_a_result_that_is_missing_takes_its_call_along() -> None:
    back = restored([USER, SEEN, RESULTS[1]], {KEY: TURN}).messages
    assert [c["id"] for c in back[3]["tool_calls"]] == ["s1", "s2", "c2"]
    assert back[4:] == [tool("s1", "found 1"), tool("s2", "page 2"), tool("c2", "sun")]


def test_a_store_that_forgot_leaves_our_part_out() -> None:
    back = restored([USER, SEEN, *RESULTS], {}).messages
    assert back == [
        USER,
        {**SEEN, "tool_calls": [call("c1"), call("c2")]},
        tool("c1", "rain"),
        tool("c2", "sun"),
    ]
    assert restored([USER, SEEN], {}).messages == [USER, {"role": "assistant", "content": SEEN["content"]}]


def test_a_text_that_was_edited_stays_edited() -> None:
    edited = {**SEEN, "content": "Nothing."}
    back = restored([USER, edited, *RESULTS], {KEY: TURN}).messages
    assert [m.get("content") for m in back if m["role"] == "assistant"] == [None, "Nothing."]
    for same in (None, "", "First.\n\nThen. ", [{"type": "text", "text": "First.\n\nThen."}]):
        assert restored([USER, {**SEEN, "content": same}, *RESULTS], {KEY: TURN}).messages == WHOLE


def test_arguments_that_were_edited_stay_edited_and_others_keep_what_the_model_signed() -> None:
    signed = {**call("c1"), "extra_content": {"signature": "x"}}
    turn = Turn([], {"role": "assistant", "content": None, "tool_calls": [signed, call("c2")]}, {}, "")
    other = {
        "id": marked("c2", KEY),
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
    }
    spaced = {**call(marked("c1", KEY)), "function": {"name": "weather", "arguments": "{ }"}}
    back = restored(
        [{"role": "assistant", "content": None, "tool_calls": [spaced, other]}, *RESULTS], {KEY: turn}
    ).messages
    assert back[0]["tool_calls"][0] == signed
    assert back[0]["tool_calls"][1] == {**other, "id": "c2"}


def test_what_was_found_before_the_question_stands_with_it_again() -> None:
    turn = Turn([], {"role": "assistant", "content": None, "tool_calls": [call("c1")]}, {}, "", "Sources: A.")
    seen = {"role": "assistant", "content": None, "tool_calls": [call(marked("c1", KEY))]}
    back = restored([USER, seen, RESULTS[0]], {KEY: turn})
    assert back.searched
    assert back.messages[0]["content"] == "Sources: A.\n\nWhy?"
    again = restored([USER, seen, RESULTS[0], {"role": "assistant", "content": "So."}, USER], {KEY: turn})
    assert not again.searched, "the next question has not been searched for"
    assert again.messages[0]["content"] == "Sources: A.\n\nWhy?"


def test_without_the_calls_of_some_tools() -> None:
    assert without_calls(WHOLE, {"web_search", "open_page"}) == [
        USER,
        {"role": "assistant", "content": "First."},
        {**TURN.calls, "tool_calls": [call("c1"), call("c2")]},
        tool("c1", "rain"),
        tool("c2", "sun"),
    ]
    assert without_calls(WHOLE, {"weather"})[3]["tool_calls"] == [call("s1", "web_search"), call("s2", "open_page")]


@pytest.mark.parametrize("content", ["", None, [], ...], ids=repr)
def test_without_calls_a_message_that_says_nothing_is_gone(content: Any) -> None:
    """`...`: the message has no such field at all."""

    def calling(*calls: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
        return message if content is not ... else {k: v for k, v in message.items() if k != "content"}

    search, weather = call("s1", "web_search"), call("c1")
    found, rain = tool("s1", "found"), tool("c1", "rain")
    ours = {"web_search", "open_page"}
    assert without_calls([USER, calling(search), found], ours) == [USER]
    both = [USER, calling(search, weather), found, rain]
    assert without_calls(both, ours) == [USER, calling(weather), rain]
    theirs = [USER, calling(weather), rain]
    assert without_calls(theirs, ours) == theirs
    silent = [USER, {k: v for k, v in calling().items() if k != "tool_calls"}, USER]
    assert without_calls(silent, ours) == silent, "it never held a call of ours"


@pytest.mark.parametrize("content", ["Let me look.", [{"type": "text", "text": "Let me look."}]], ids=["text", "parts"])
def test_without_calls_a_message_that_says_something_stays(content: Any) -> None:
    said = {"role": "assistant", "content": content}
    searching = {**said, "tool_calls": [call("s1", "web_search")]}
    assert without_calls([USER, searching, tool("s1", "found")], {"web_search"}) == [USER, said]


# Calls that a client adds


def adding(*calls: dict[str, Any]) -> dict[str, Any]:
    return {**SEEN, "tool_calls": list(calls)}


def made_by(back: list[dict[str, Any]]) -> list[str]:
    """The calls of the mixed turn, and that each is answered in its place."""
    assert_valid(back)
    (turn,) = [message for message in back if len(message.get("tool_calls") or ()) > 1]
    return [made["id"] for made in turn["tool_calls"]]


ADDED, ANOTHER = call("mine", "clock"), call("more", "clock")
TOLD = [tool("mine", "noon"), tool("more", "one")]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("id_", ["mine", marked("mine", KEY)], ids=["its own id", "with our key"])
def test_a_call_that_the_client_adds_is_kept_and_answered_once(place: int, id_: str) -> None:
    calls = [*SEEN["tool_calls"]]
    calls.insert(place, {**ADDED, "id": id_})
    results = [*RESULTS]
    results.insert(place, tool(id_, "noon"))
    back = restored([USER, adding(*calls), *results], {KEY: TURN}).messages
    assert made_by(back) == ["s1", "c1", "s2", "c2", "mine"], "behind the model's own, which stay in their order"
    assert back[3]["tool_calls"][-1] == ADDED
    assert back[4:] == [*WHOLE[4:], tool("mine", "noon")]


def test_calls_that_the_client_adds_stay_in_their_order() -> None:
    first, second = SEEN["tool_calls"]
    history = [USER, adding(ANOTHER, first, ADDED, second), *TOLD, *RESULTS, USER]
    back = restored(history, {KEY: TURN}).messages
    assert made_by(back) == ["s1", "c1", "s2", "c2", "more", "mine"]
    assert back[4:] == [*WHOLE[4:], tool("more", "one"), tool("mine", "noon"), USER]


def test_a_call_that_the_client_adds_needs_its_result() -> None:
    back = restored([USER, adding(*SEEN["tool_calls"], ADDED), *RESULTS], {KEY: TURN}).messages
    assert back == WHOLE


def test_calls_that_the_client_adds_to_a_turn_that_is_forgotten() -> None:
    first, second = SEEN["tool_calls"]
    history = [USER, adding(first, ADDED, second), *RESULTS, TOLD[0]]
    back = restored(history, {}).messages
    assert made_by(back) == ["c1", "mine", "c2"]
    assert back[2:] == [tool("c1", "rain"), tool("mine", "noon"), tool("c2", "sun")]


@pytest.mark.parametrize("taken", ["s1", "c1"])
def test_an_id_that_is_taken_already_is_answered_once_all_the_same(taken: str) -> None:
    history = [USER, adding(*SEEN["tool_calls"], call(taken, "clock")), *RESULTS, tool(taken, "noon")]
    back = restored(history, {KEY: TURN}).messages
    assert made_by(back) == ["s1", "c1", "s2", "c2"]


@pytest.mark.parametrize("text", [5, ["x"], None, {"a": 1}])
def test_odd_parts_of_a_text_do_no_harm(text: Any) -> None:
    seen = {**SEEN, "content": [{"type": "text", "text": text}]}
    assert_valid(restored([USER, seen, *RESULTS], {KEY: TURN}).messages)


def test_a_long_history_takes_linear_work() -> None:
    def work(size: int) -> int:
        keys = [new_key() for _ in range(size)]
        history = [
            m
            for key in keys
            for m in (USER, {**SEEN, "tool_calls": [call(marked("c", key))]}, tool(marked("c", key), "x"))
        ]
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(note)
        try:
            restored(history, {})
        finally:
            sys.setprofile(None)
        return count

    assert work(400) < 2.5 * work(200)


def test_a_call_that_was_edited_away_is_gone() -> None:
    fewer = {**SEEN, "tool_calls": [call(marked("c2", KEY))]}
    back = restored([USER, fewer, *RESULTS], {KEY: TURN}).messages
    assert [c["id"] for c in back[3]["tool_calls"]] == ["s1", "s2", "c2"]
    assert "rain" not in str(back), "an orphan result goes with it"


def test_what_is_not_ours_is_left_alone() -> None:
    plain = [USER, {"role": "assistant", "content": None, "tool_calls": [call("c1")]}, tool("c1", "rain")]
    assert keys_in(plain) == []
    assert restored(plain, {}).messages == plain
    assert restored(plain, {}).messages[1] is plain[1]


def test_only_the_latest_turns_are_asked_for() -> None:
    many = [{"role": "assistant", "tool_calls": [call(marked("c", new_key()))]} for _ in range(MOST_KEYS + 5)]
    assert len(keys_in(many)) == MOST_KEYS
    assert marked("c", keys_in(many)[0]) == many[-1]["tool_calls"][0]["id"]


def test_what_is_stored_comes_back() -> None:
    assert decoded(TURN.encoded()) == TURN
    for junk in (b"junk", b"5", b"[]", b'[99,[],{},{},"","",[]]', b'[1,[],{},{},"","",[1]]', b'[1,[],{},{},"","",5]'):
        assert decoded(junk) is None
    assert decoded(b'[99,[],{},{},"",[]]') is None


def assert_valid(messages: list[dict[str, Any]]) -> None:
    """What every upstream demands: each call answered exactly once, right behind its turn and in its order."""
    at = 0
    while at < len(messages):
        message = messages[at]
        assert message["role"] != "tool", "an orphan result"
        calls = [c["id"] for c in message.get("tool_calls") or ()]
        assert calls or "tool_calls" not in message
        answers = [m.get("tool_call_id") for m in messages[at + 1 : at + 1 + len(calls)]]
        assert answers == calls
        assert not any("_gw" in id_ for id_ in calls)
        at += 1 + len(calls)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Turn]]:
    """Conversations of mixed turns, some forgotten, then cut, forked, shuffled and thinned out at random."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    turns: dict[str, Turn] = {}
    history: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        key = new_key()
        ids = [f"c{n}" for n in range(rng.randint(1, 3))]  # repeated in every turn, as Kimi does
        ours = [f"s{n}" for n in range(rng.randint(0, 2))]
        calls = [*ids, *ours]
        rng.shuffle(calls)
        before = SEARCHED if rng.random() < 0.5 else []
        whole = {"role": "assistant", "content": "Then.", "tool_calls": [call(id_) for id_ in calls]}
        if rng.random() < 0.8:
            turns[key] = Turn(before, whole, dict.fromkeys(ours, "found"), "Then.")
        given = [marked(id_, key) for id_ in ids]
        if rng.random() < 0.3:  # one that the client made up
            given.insert(rng.randint(0, len(given)), marked(rng.choice(["mine", "s0"]), key))
        history += [USER, {**SEEN, "content": "Then.", "tool_calls": [call(id_) for id_ in given]}]
        results = [tool(id_, "done") for id_ in given]
        rng.shuffle(results)
        history += [result for result in results if rng.random() < 0.85]
        if rng.random() < 0.5:
            history.append({"role": "assistant", "content": "Done."})
    if rng.random() < 0.3:
        history += history[: rng.randint(0, len(history))]  # a fork that was glued on
    if rng.random() < 0.3:
        history = history[rng.randint(0, len(history) - 1) :]  # truncated from the front
    if rng.random() < 0.3:
        history = [message for message in history if rng.random() < 0.8]
    return history, turns


@settings(max_examples=500, deadline=None)
@given(histories())
def test_the_history_is_always_valid(given: tuple[list[dict[str, Any]], dict[str, Turn]]) -> None:
    history, turns = given
    whole = restored(history, turns).messages
    assert_valid(whole)
    for role in ("user", "assistant"):  # nothing is lost that can stand
        said = [m["content"] for m in history if m["role"] == role and m["content"]]
        assert [m["content"] for m in whole if m["role"] == role and m["content"] and m not in SEARCHED] == said
    keyed = {id_ for m in history for id_ in [c["id"] for c in m.get("tool_calls") or ()]}
    for key, turn in turns.items():
        if any(id_.endswith(key) for id_ in keyed):
            assert all(text in str(whole) for text in turn.results.values())


@pytest.mark.parametrize("junk", [None, 5, "x", [], [None], [{"id": 5}], [{"id": None}]])
def test_junk_does_not_disturb(junk: Any) -> None:
    odd = {"role": "assistant", "tool_calls": junk}
    assert restored([odd, SEEN, *RESULTS], {KEY: TURN}).messages[0] is odd

"""The loop where a model cannot be asked as it was meant to: other ways to ask, the search before the question, and the
promise that an answer begins with `Begun`, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from proxy.answering.loop import MOST_REPLANS, AskModel, End, SearchFirst, ToolLoop
from proxy.answering.offer import Offer, without_ours
from proxy.values.errors import failure
from proxy.values.events import Begun, Event, Failed, Finished, Replan, RoundFinished, TextDelta, UsageSeen
from tests.unit.test_loop import USER, WEATHER, asked, call, make_loop, make_offer, search_round

REFUSED = failure(400, "m does not support tools")


def searched_for(loop: ToolLoop) -> None:
    """What the engine does when it is told to search first."""
    offer = without_ours(make_offer())
    read = {"role": "user", "content": "Rayleigh. Why is the sky blue?"}
    loop.searched(replace(offer, body={**offer.body, "messages": [read]}, reading="Rayleigh."), {"n": 1})


@pytest.mark.parametrize("mode", ["prompted", "native"])
def test_a_model_that_refuses_tools_is_asked_again(mode: Literal["prompted", "native"]) -> None:
    loop = make_loop()
    before = asked(loop)
    assert loop.receive([Replan(mode, REFUSED)]) == []
    assert asked(loop) == before, "how it is put is the upstream's affair"
    assert loop.receive([Begun("m"), TextDelta("Hi."), Finished("stop")])[:2] == [Begun("m"), TextDelta("Hi.")]


def test_one_that_cannot_call_is_searched_for_first() -> None:
    loop = make_loop()
    assert loop.receive([Replan("none", REFUSED)]) == []
    assert loop.next_action() == SearchFirst()
    searched_for(loop)
    action = loop.next_action()
    assert isinstance(action, AskModel)
    assert (action.known_tools, "tools" in action.body) == (None, False)
    assert "Rayleigh" in action.body["messages"][0]["content"]
    end = loop.receive([Begun("m"), TextDelta("Blue."), UsageSeen({"n": 2}), Finished("stop")])
    assert end[-2:] == [UsageSeen({"n": 3}), Finished("stop")]


def test_one_that_is_known_for_it_too() -> None:
    loop = ToolLoop(make_offer(), 3, search_first=True)
    assert loop.next_action() == SearchFirst()
    searched_for(loop)
    assert isinstance(loop.next_action(), AskModel)


def test_without_tools_of_ours_there_is_nothing_to_search_first() -> None:
    body: dict[str, Any] = {"model": "m", "messages": [USER], "tools": [WEATHER]}
    loop = ToolLoop(Offer(body, client_tools=frozenset({"weather"})), 3, search_first=True)
    assert isinstance(loop.next_action(), AskModel)
    assert loop.receive([Replan("none", REFUSED)]) == []
    assert isinstance(loop.next_action(), AskModel)


def test_what_has_begun_goes_on_in_words() -> None:
    loop = make_loop()
    search_round(loop)
    assert loop.receive([Replan("none", REFUSED)]) == []
    assert [message["role"] for message in asked(loop)["messages"]] == ["user", "assistant", "tool"]


def test_who_takes_over_after_a_refusal_may_want_another_way_again() -> None:
    loop = make_loop()
    loop.receive([Replan("prompted", REFUSED)])
    loop.receive([Replan("none", failure(503, "overloaded"))])
    assert loop.next_action() == SearchFirst()


def test_an_upstream_that_never_settles_is_not_asked_for_ever() -> None:
    loop = make_loop()
    seen: list[Event] = []
    for _ in range(MOST_REPLANS + 1):
        assert isinstance(loop.next_action(), AskModel)
        seen += loop.receive([Replan("prompted", REFUSED)])
    assert seen == [REFUSED]
    assert loop.next_action() == End()


# More to read than the model can hold

OVERFLOW = failure(400, "request (4250 tokens) exceeds the available context size (4096 tokens)")


def handed(loop: ToolLoop, reading: str = "Rayleigh.") -> None:
    bare = without_ours(make_offer())
    read = {"role": "user", "content": f"{reading} Why is the sky blue?"}
    loop.searched(replace(bare, body={**bare.body, "messages": [read]}, reading=reading), {}, bare)


def test_a_model_that_cannot_hold_the_sources_is_asked_without_them() -> None:
    loop = ToolLoop(make_offer(), 3, search_first=True)
    handed(loop)
    assert loop.receive([OVERFLOW]) == []
    assert loop.gave_up_reading
    assert (asked(loop)["messages"], loop.reading) == ([USER], "")
    assert loop.receive([OVERFLOW])[-1] == OVERFLOW, "once"
    assert loop.next_action() == End()


@pytest.mark.parametrize("before", [[], [Begun("m"), TextDelta("Blue")]], ids=["another failure", "it has spoken"])
def test_nothing_else_is_asked_again(before: list[Event]) -> None:
    loop = ToolLoop(make_offer(), 3, search_first=True)
    handed(loop)
    failed = OVERFLOW if before else REFUSED
    assert loop.receive([*before, failed])[-1] == failed
    assert loop.next_action() == End()


def test_who_was_handed_nothing_is_not_asked_again() -> None:
    loop = ToolLoop(make_offer(), 3, search_first=True)
    handed(loop, reading="")
    assert loop.receive([OVERFLOW]) == [OVERFLOW]


# The beginning


def test_an_answer_begins_once_however_many_rounds_it_has() -> None:
    loop = make_loop()
    search_round(loop)
    end = loop.receive([Begun("m"), TextDelta("Blue."), Finished("stop")])
    assert [type(event) for event in end] == [TextDelta, RoundFinished, UsageSeen, Finished]


@pytest.mark.parametrize("first", [TextDelta("Hi."), Finished("stop"), call("weather")])
def test_it_begins_even_if_the_server_does_not_say_so(first: Event) -> None:
    loop = make_loop(tools=[WEATHER])
    assert loop.receive([first])[0] == Begun()


def test_a_failure_may_be_all_there_is() -> None:
    assert make_loop().receive([REFUSED]) == [REFUSED]
    assert isinstance(REFUSED, Failed)


def test_a_search_that_comes_first_begins_the_answer() -> None:
    loop = ToolLoop(make_offer(), 3, search_first=True)
    assert loop.begin() == [Begun()]
    assert loop.begin() == []
    searched_for(loop)
    assert loop.receive([Begun("m"), TextDelta("Blue.")]) == [TextDelta("Blue.")]
    assert asked(loop)["messages"] != [USER]

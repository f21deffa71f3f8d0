"""Items and what the store knows of them → chat messages: every call answered once, right behind it, in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.decoration import strip_decoration
from proxy.dialects.responses.history import KnownItem, conversation, instructions, references
from proxy.dialects.responses.request import ResponsesRequest, decode
from proxy.values.errors import RequestError
from tools.ledger import KnownSource

HI = {"role": "user", "content": "hi"}
AND = {"role": "user", "content": "and?"}


def read(items: Any, **fields: Any) -> ResponsesRequest:
    return decode(json.dumps({"model": "m", "input": items, **fields}).encode())


def chat(
    *items: Any, previous: Sequence[dict[str, Any]] = (), told: Sequence[str] = (), known: Any = (), **fields: Any
) -> list[dict[str, Any]]:
    """`told` are the ids of the items that `previous` came from."""
    request = read(list(items), **fields)
    made = [*instructions(request, dict(known)), *conversation(request, previous, dict(known), told).messages]
    check(made)
    return made


def check(made: list[dict[str, Any]]) -> None:
    """Every call is answered exactly once, right behind the message that made it and in its order."""
    due: list[str] = []
    for message in made:
        if message["role"] == "tool":
            assert due, "an answer to nothing"
            assert message["tool_call_id"] == due.pop(0)
        else:
            assert not due, "a call that nobody answered"
            due = [call["id"] for call in message.get("tool_calls", ())]
            assert message["content"] or due
    assert not due


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def call(call_id: str, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(call_id: str, text: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def ref(item_id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": item_id}


def assistant(text: str | None, *calls: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": [made(c) for c in calls]} if calls else {}), **more}


def made(call_id: str, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def tool(call_id: str, content: Any = "sunny") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


def knows(item: dict[str, Any], *hidden: dict[str, Any], round_id: str = "") -> tuple[str, KnownItem]:
    return item["id"], KnownItem(item, hidden, round_id)


WS = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "sky"}}
SEARCHED = (assistant(None, "s1"), tool("s1", "[1] Sky"))


# Order


def test_instructions_come_first_and_others_stay_where_they_are() -> None:
    made_ = chat(HI, {"role": "developer", "content": "Be kind."}, AND, instructions="Be brief.")
    assert made_ == [
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "developer", "content": "Be kind."},
        AND,
    ]
    listed = chat(HI, instructions=[{"role": "developer", "content": "Be brief."}])
    assert listed == [{"role": "developer", "content": "Be brief."}, HI]


def test_the_previous_transcript_stands_between_instructions_and_input() -> None:
    before = [HI, *SEARCHED, assistant("Blue [1].", reasoning_content="hm")]
    assert chat(AND, previous=before, instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        *before,
        AND,
    ]
    assert conversation(read([], previous_response_id="resp_1"), before, {}).messages == before


def test_what_the_previous_transcript_holds_is_not_told_in_one_breath() -> None:
    before = [HI, assistant("One."), assistant("Two.")]
    assert chat(said("Three."), AND, previous=before) == [*before, assistant("Three."), AND]


def test_the_output_of_one_turn_is_one_message() -> None:
    turn = [said("Let me look."), call("a"), call("b", "clock"), output("a"), output("b", "noon")]
    answer = {**assistant("Let me look."), "tool_calls": [made("a"), made("b", "clock")]}
    assert chat(HI, *turn, said("It is noon.")) == [
        HI,
        answer,
        tool("a"),
        tool("b", "noon"),
        assistant("It is noon."),
    ]


def test_two_texts_of_one_turn_are_parted() -> None:
    assert chat(HI, said("One."), WS, said("Two."), AND) == [HI, assistant("One.\n\nTwo."), AND]


def test_outputs_follow_their_calls_wherever_the_client_put_them() -> None:
    assert chat(HI, call("a"), call("b"), AND, output("b", "B"), output("a", "A")) == [
        HI,
        assistant(None, "a", "b"),
        tool("a", "A"),
        tool("b", "B"),
        AND,
    ]


def test_calls_one_by_one_stay_one_by_one() -> None:
    made_ = chat(HI, call("a"), output("a"), call("b"), output("b"))
    assert made_ == [HI, assistant(None, "a"), tool("a"), assistant(None, "b"), tool("b")]


def test_ids_that_repeat_in_every_turn() -> None:
    made_ = chat(HI, call("x"), output("x", "1"), AND, call("x"), output("x", "2"))
    fresh = made_[4]["tool_calls"][0]["id"]
    assert fresh != "x"
    assert made_ == [HI, assistant(None, "x"), tool("x", "1"), AND, assistant(None, fresh), tool(fresh, "2")]
    abandoned = chat(HI, call("x"), AND, call("x"), output("x", "2"))
    assert abandoned == [HI, AND, assistant(None, "x"), tool("x", "2")]


def test_outputs_may_be_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://x/y.png"}]
    (*_, answer) = chat(HI, call("a"), output("a", parts))
    assert answer["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    ]
    (*_, answer) = chat(HI, call("a"), output("a", parts[:1]))
    assert answer["content"] == "a"


# What cannot stand


def test_an_unanswered_call_is_left_out() -> None:
    assert chat(HI, call("a"), AND) == [HI, AND]
    assert chat(HI, said("Wait."), call("a"), AND) == [HI, assistant("Wait."), AND]
    assert chat(HI, call("a"), call("b"), output("b")) == [HI, assistant(None, "b"), tool("b")]
    assert chat(AND, previous=[HI, assistant(None, "a")]) == [HI, AND]


def test_of_two_outputs_the_first_counts() -> None:
    assert chat(HI, call("a"), output("a", "1"), output("a", "2")) == [HI, assistant(None, "a"), tool("a", "1")]


@pytest.mark.parametrize("items", [[HI, output("zz")], [output("zz"), call("zz")], [HI, call("z"), output("zz")]])
def test_an_output_without_a_call_is_refused(items: list[dict[str, Any]]) -> None:
    with pytest.raises(RequestError) as caught:
        chat(*items)
    failed = caught.value.failed
    assert failed.status == 400
    assert failed.error["message"] == "No tool call found for function call output with call_id zz."
    assert failed.error["param"] == f"input[{items.index(output('zz'))}].call_id"


def test_an_unknown_reference_is_not_found() -> None:
    with pytest.raises(RequestError) as caught:
        chat(HI, ref("msg_9"))
    failed = caught.value.failed
    assert failed.status == 404
    assert failed.error["message"] == "Item with id 'msg_9' not found."
    assert (failed.error["param"], failed.error["code"]) == ("input[1].id", "item_not_found")


def test_nothing_to_answer_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        chat(call("a"))
    assert (caught.value.failed.status, caught.value.failed.error["param"]) == (400, "input")


def test_what_only_the_store_could_explain_is_left_out() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert chat(HI, thought, WS, said("Blue."), AND) == [HI, assistant("Blue."), AND]


def test_refusals_are_read_as_text() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert chat(HI, refusal, AND) == [HI, assistant("No."), AND]


# What the store knows


def test_everything_with_an_id_that_was_output_is_looked_up() -> None:
    items = [{**HI, "id": "msg_u"}, WS, said("x", id="msg_1"), call("a", id="fc_1"), call("b"), ref("rs_1"), WS]
    items += [{"type": "reasoning", "id": "rs_2", "summary": []}, said("y", id=""), {**output("a"), "id": "fco_1"}]
    assert references(read(items)) == ["ws_1", "msg_1", "fc_1", "a", "b", "rs_1", "rs_2"]


def test_references_become_what_they_stand_for() -> None:
    answer = said("Blue [[1]](https://sky.example/a).", id="msg_1")
    known = [
        knows({"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "reasoning_content": "hm"}),
        knows(WS, *SEARCHED),
        knows(answer, assistant("Blue [1].")),
    ]
    expected = [HI, {**SEARCHED[0], "reasoning_content": "hm"}, SEARCHED[1], assistant("Blue [1]."), AND]
    assert chat(HI, ref("rs_1"), ref("ws_1"), ref("msg_1"), AND, known=known) == expected
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert chat(HI, thought, WS, answer, AND, known=known) == expected, "echoed in full it is the same"


def test_an_edited_answer_counts_as_it_was_written() -> None:
    known = [knows(said("Blue.", id="msg_1"), assistant("Blue as stored."))]
    assert chat(HI, said("Blue.", id="msg_1"), known=known)[1] == assistant("Blue as stored.")
    assert chat(HI, said("Green.", id="msg_1"), known=known)[1] == assistant("Green.")
    stored = {**call("a", id="fc_1")}
    known = [knows(stored, assistant(None, "stored"))]
    assert chat(HI, stored, output("a"), known=known)[1:] == [assistant(None, "stored"), tool("stored")]
    edited = {**stored, "arguments": '{"x": 1}'}
    assert chat(HI, edited, output("a"), known=known)[2] == tool("a")


def test_a_mixed_turn_is_one_message_again() -> None:
    """The model called ours and the client's at once; the client's ids carry our mark."""
    signed = made("c1", extra_content={"google": {"thought_signature": "s"}})
    shown = call("c1_gwABCDEFGHIJKL", id="fc_1")
    known = [
        knows({"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "reasoning_content": "hm"}, round_id="1"),
        knows(WS, *SEARCHED, round_id="1"),
        knows(shown, {"role": "assistant", "content": None, "tool_calls": [signed]}, round_id="1"),
        knows({**WS, "id": "ws_2"}, assistant(None, "s2"), tool("s2", "[2] Sea"), round_id="2"),
    ]
    items = [HI, ref("rs_1"), ref("ws_1"), ref("fc_1"), output("c1_gwABCDEFGHIJKL"), ref("ws_2"), said("Done.")]
    assert chat(*items, known=known) == [
        HI,
        {**assistant(None), "tool_calls": [made("s1"), signed], "reasoning_content": "hm"},
        tool("s1", "[1] Sky"),
        tool("c1"),
        assistant(None, "s2"),
        tool("s2", "[2] Sea"),
        assistant("Done."),
    ]


def test_rounds_of_ours_that_follow_each_other_stay_apart() -> None:
    known = [
        knows(WS, *SEARCHED, round_id="1"),
        knows({**WS, "id": "ws_2"}, assistant(None, "s2"), tool("s2", "page"), round_id="2"),
        knows({**WS, "id": "ws_3"}, assistant(None, "s3"), tool("s3", "other"), round_id="2"),
    ]
    assert chat(HI, ref("ws_1"), ref("ws_2"), ref("ws_3"), known=known) == [
        HI,
        *SEARCHED,
        assistant(None, "s2", "s3"),
        tool("s2", "page"),
        tool("s3", "other"),
    ]


def test_outputs_answer_the_calls_of_the_previous_transcript() -> None:
    before = [HI, {**assistant("Look."), "tool_calls": [made("s1"), made("c1")]}, tool("s1", "[1] Sky")]
    for call_id in ("c1", "c1_gwABCDEFGHIJKL"):
        assert chat(AND, output(call_id), previous=before) == [*before, tool("c1"), AND]


def test_ids_with_our_mark_stay_where_the_store_has_forgotten() -> None:
    """Another room puts the turn back by that mark."""
    marked = "c1_gwABCDEFGHIJKL"
    assert chat(HI, call(marked), output(marked)) == [HI, assistant(None, marked), tool(marked)]


def test_annotations_of_echoed_answers_tell_what_was_cited() -> None:
    link = "([sky.example](https://sky.example/a))"
    mark = {"type": "url_citation", "start_index": 5, "end_index": 5 + len(link), "url": "https://sky.example/a"}
    part = {"type": "output_text", "text": f"Blue {link}", "annotations": [{**mark, "title": "Sky"}]}
    cleaned = strip_decoration(chat(HI, {"role": "assistant", "content": [part]}, AND))
    assert cleaned.known_sources == {1: KnownSource("https://sky.example/a", "Sky")}
    assert cleaned.messages[1] == assistant("Blue [1]")
    twice = strip_decoration(chat(HI, said("First."), {"role": "assistant", "content": [part]}, AND))
    assert twice.messages[1]["content"].startswith("First.\n\nBlue ")


IDS = st.sampled_from(["a", "b", "c_gwABCDEFGHIJKL", "c"])
KNOWN = dict(
    [
        knows(WS, *SEARCHED, round_id="1"),
        knows({**WS, "id": "ws_2"}, assistant(None, "s2"), tool("s2", "page"), round_id="1"),
        knows(call("c_gwABCDEFGHIJKL", id="fc_1"), assistant(None, "c"), round_id="1"),
        knows(said("Blue.", id="msg_1"), assistant("Blue."), round_id="2"),
        knows({"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "reasoning": "hm"}, round_id="2"),
    ]
)
ITEMS = st.lists(
    st.one_of(
        st.just(HI),
        st.sampled_from([said("One."), said(""), WS]),
        IDS.map(call),
        IDS.map(output),
        st.sampled_from(sorted(KNOWN)).map(ref),
    ),
    max_size=10,
)
BEFORE: list[dict[str, Any]] = [HI, {**assistant("Look."), "tool_calls": [made("s9"), made("a")]}, tool("s9", "x")]


@given(ITEMS, st.booleans())
def test_any_items_become_a_valid_history(items: list[dict[str, Any]], continued: bool) -> None:
    """However a client cut, forked, repeated or shuffled its history: it is valid, or an output of it is refused."""
    before = BEFORE if continued else []
    try:
        made_ = chat(HI, *items, previous=before, known=KNOWN)
    except RequestError as error:
        orphan = error.failed.error["param"].removeprefix("input[").removesuffix("].call_id")
        refused = [HI, *items][int(orphan)]
        assert refused["type"] == "function_call_output"
        assert not any(item.get("call_id") == refused["call_id"] for item in items[: int(orphan) - 1] if "name" in item)
    else:
        users = [message for message in made_ if message["role"] == "user"]
        assert len(users) == items.count(HI) + 1 + continued


def test_one_thing_sent_twice_stands_once() -> None:
    search = KnownItem(WS, (assistant(None, "s"), tool("s", "found")), "resp:0")
    made_ = chat(HI, WS, WS, AND, known={"ws_1": search})
    assert made_ == [HI, assistant(None, "s"), tool("s", "found"), AND]
    before = [HI, assistant(None, "s"), tool("s", "found")]
    built_on = chat(WS, AND, previous=before, told=["ws_1"], known={"ws_1": search})
    assert built_on == [HI, assistant(None, "s"), tool("s", "found"), AND]


def test_many_outputs_take_linear_work() -> None:
    def work(size: int) -> int:
        items = [HI]
        for n in range(size):
            items += [call(f"c{n}"), output(f"c{n}")]
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        asked = read(items)
        sys.setprofile(note)
        try:
            conversation(asked, (), {})
        finally:
            sys.setprofile(None)
        return count

    assert work(400) < 2.5 * work(200)


def test_calls_with_one_id_of_two_answers_are_both_told() -> None:
    shown = [call("x_gwabcdefABCDE1", id="fc_1"), call("x_gwabcdefABCDE2", "clock", id="fc_2")]
    known = [
        knows(shown[0], assistant(None, "x"), round_id="resp_1:0"),
        knows(shown[1], {**assistant(None), "tool_calls": [made("x", "clock")]}, round_id="resp_2:0"),
    ]
    items = [shown[0], output(shown[0]["call_id"], "sun"), shown[1], output(shown[1]["call_id"], "noon")]
    told = chat(HI, *items, AND, known=known)
    assert [m["content"] for m in told if m["role"] == "tool"] == ["sun", "noon"]
    assert [c["function"]["name"] for m in told for c in m.get("tool_calls") or ()] == ["weather", "clock"]


def test_the_key_in_an_id_says_which_call_of_a_chain_is_meant() -> None:
    one, two = "x_gwabcdefABCDE1", "x_gwabcdefABCDE2"
    before = [HI, assistant(None, one), AND, {**assistant(None), "tool_calls": [made(two, "clock")]}]
    request = read([output(one, "sun"), output(two, "noon")])
    talk = conversation(request, before, {})
    check(talk.messages)
    answers = {c["function"]["name"]: c["id"] for m in talk.messages for c in m.get("tool_calls") or ()}
    results = {m["tool_call_id"]: m["content"] for m in talk.messages if m["role"] == "tool"}
    assert {name: results[id_] for name, id_ in answers.items()} == {"weather": "sun", "clock": "noon"}
    again = conversation(read([AND]), [*before, *talk.own], {})
    assert again.messages[:-1] == talk.messages, "and so it is told from the store"

"""The repairs as machines: arguments, calls in text, thinking, ends; each with its switch off too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.vocabulary import REPAIRS
from proxy.upstreams import repairs
from proxy.upstreams.calls import ArgumentReader, Calls
from proxy.upstreams.repairs import AnswerRepair, replayable
from proxy.values.events import Begun, Event, Failed, Finished, ReasoningDelta, TextDelta, ToolCallDelta

TOOLS = {"web_search": {"properties": {"query": {"type": "string"}}}}
LEAK = '<tool_call>{"name": "web_search", "arguments": {"query": "sky"}}</tool_call>'

ARGUMENTS = [
    ('{"a": 1}', '{"a": 1}'),
    ('{"a": "}{\\"", "b": [1, {"c": "\\\\"}]} trailing {"x": 1}', '{"a": "}{\\"", "b": [1, {"c": "\\\\"}]}'),
    ('{"a": 1}{"a": 1}', '{"a": 1}'),
    ('{"a": 1}</tool_call>', '{"a": 1}'),
    ('"{\\"a\\": 1}"', '{"a":1}'),
    ('Sure: {"a": 1}.', '{"a":1}'),
    ('```json\n{"a": 1}\n```', '{"a":1}'),
    ('  {"a": 1}  ', '{"a": 1}'),
    ('{"a": "unterminated', '{"a": "unterminated'),
    ("not JSON at all", "not JSON at all"),
    ("", ""),
]


def arguments(pieces: list[str]) -> str:
    reader = ArgumentReader()
    return "".join(reader.feed(piece) for piece in pieces) + reader.flush()


@pytest.mark.parametrize(("text", "meant"), ARGUMENTS)
def test_arguments_whatever_the_pieces(text: str, meant: str) -> None:
    assert arguments([text]) == arguments(list(text)) == meant
    for at in range(len(text)):
        assert arguments([text[:at], text[at:]]) == meant


@given(st.recursive(st.integers() | st.text() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner)))
def test_good_arguments_pass_unchanged(value: object) -> None:
    text = json.dumps({"value": value}, ensure_ascii=False)
    assert arguments(list(text)) == text == arguments([text + " and more"])


def test_good_arguments_pass_at_once() -> None:
    reader = ArgumentReader()
    assert reader.feed('{"path": "a.py", "text": "x = {') == '{"path": "a.py", "text": "x = {'


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ("[1]", "{}"),
        ('"{\\"a\\":1}"', '{"a":1}'),
        ('{"a":1} x', '{"a":1}'),
        ("x", "{}"),
        ('{"a": "\\ud83d"}', "{}"),
        ('x {"a": 123456789012345678901234567890}', "{}"),
    ],
)
def test_what_may_stand_in_the_history(arguments: str, kept: str) -> None:
    assert replayable(arguments) == kept


def mended(*events: Event, off: frozenset[str] = frozenset()) -> list[Event]:
    repair = AnswerRepair(TOOLS, off)
    return [out for event in events for out in repair.feed([event])]


def shape(events: list[Event]) -> list[object]:
    """Events without the ids that are made."""
    return [(e.index, e.name, e.arguments) if isinstance(e, ToolCallDelta) else e for e in events]


def test_a_leaked_call_becomes_a_call() -> None:
    found = mended(Begun("m"), TextDelta("Let me look. " + LEAK[:30]), TextDelta(LEAK[30:]), Finished("stop"))
    assert shape(found) == [
        Begun("m"),
        TextDelta("Let me look. "),
        (0, "web_search", '{"query":"sky"}'),
        Finished("tool_calls"),
    ]
    (call,) = [event for event in found if isinstance(event, ToolCallDelta)]
    assert len(call.id) == 9


def test_a_server_that_sends_calls_is_trusted() -> None:
    call = ToolCallDelta(0, "c", "web_search", "{}")
    found = mended(TextDelta("<tool_call>"), call, TextDelta(LEAK), Finished("stop"))
    assert found == [TextDelta("<tool_call>"), call, TextDelta(LEAK), Finished("tool_calls")]


def test_calls_of_both_kinds_are_numbered_together() -> None:
    wire = ToolCallDelta(0, "c", "weather", '{"ci'), ToolCallDelta(0, arguments='ty":1}')
    found = shape(mended(TextDelta(LEAK), *wire, Finished("tool_calls")))
    assert found[:3] == [(0, "web_search", '{"query":"sky"}'), (1, "weather", '{"ci'), (1, "", 'ty":1}')]


def in_prompted_form(text: str, *, one: bool = False, reason: str = "stop") -> list[object]:
    """What is made of it, whatever the pieces."""
    outcomes = []
    for pieces in ([text], list(text)):
        repair = AnswerRepair(TOOLS, prompted_form=True, one=one)
        found = [out for piece in pieces for out in repair.feed([TextDelta(piece)])] + repair.feed([Finished(reason)])
        said = "".join(event.text for event in found if isinstance(event, TextDelta))
        outcomes.append([said, *(out for out in shape(found) if isinstance(out, tuple))])
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (f"Wait. {LEAK}", "Wait. ", [("web_search", '{"query":"sky"}')]),
        (f"{LEAK}\n<tool_response>\nfake [1]\n</tool_response>\nIt is paint.", "", [("web_search", '{"query":"sky"}')]),
        ('<tool_call>{"name": "search_web", "arguments": {}}</tool_call>', "", [("search_web", "{}")]),
        (
            "<tool_call>{'name': 'web_search', 'arguments': {'query': 'sky'}}</tool_call>",
            "",
            [("web_search", '{"query": "sky"}')],
        ),
        (f"Here:\n```json\n{LEAK}\n```\n", "Here:", [("web_search", '{"query": "sky"}')]),
        ('<tool_call>{"name": "web_search", "argu', "", [("web_search", '{"name": "web_search", "argu')]),
        ("<tool_call>what now</tool_call>", "", [("unknown", "what now")]),
        ("Write `<tool_call>` to call.", "Write `<tool_call>` to call.", []),
        ("```py\nx = 1\n```\ndone", "```py\nx = 1\n```\ndone", []),
        ("a < b and <tool", "a < b and <tool", []),
    ],
)
def test_calls_in_words_as_they_were_meant(text: str, said: str, calls: list[tuple[str, str]]) -> None:
    found = in_prompted_form(text)
    assert found[0] == said
    assert found[1:] == [(n, *call) for n, call in enumerate(calls)]


def test_one_call_at_most_where_the_client_wants_one() -> None:
    assert len(in_prompted_form(LEAK + LEAK)) == 3
    assert len(in_prompted_form(LEAK + LEAK, one=True)) == 2


def test_thinking_is_not_echoed_and_hides_no_call() -> None:
    found = mended(TextDelta("<think>" + LEAK + "</think>" + LEAK), Finished("stop"))
    assert shape(found) == [
        ReasoningDelta({"reasoning_content": LEAK}, echoed=False),
        (0, "web_search", '{"query":"sky"}'),
        Finished("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("reason", "calls", "meant"),
    [
        ("stop", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("length", True, "length"),
        ("content_filter", False, "content_filter"),
    ],
)
def test_calls_say_what_the_end_means(reason: str, calls: bool, meant: str) -> None:
    call = [ToolCallDelta(0, "c", "web_search", "{}")] if calls else []
    assert mended(*call, Finished(reason))[-1] == Finished(meant)


ATTEMPT = Failed(400, {"message": "x"}, attempt='<function=web_search>{"query": "sky"}</function>')


def test_groqs_failed_generation_is_the_call_that_it_was() -> None:
    assert shape(mended(ATTEMPT)) == [Begun(), (0, "web_search", '{"query":"sky"}'), Finished("tool_calls")]
    begun = mended(Begun("m"), TextDelta("Hm. <func"), ATTEMPT)
    assert shape(begun) == [
        Begun("m"),
        TextDelta("Hm. "),
        (0, "web_search", '{"query":"sky"}'),
        Finished("tool_calls"),
    ]


def test_a_failed_generation_without_a_call_stays_a_failure() -> None:
    failed = Failed(400, {"message": "x"}, attempt="I do not know")
    assert mended(TextDelta("a <tool"), failed) == [TextDelta("a "), TextDelta("<tool"), failed]


def test_every_switch_leaves_the_answer_as_it_came() -> None:
    odd = Finished("stop")
    assert mended(TextDelta(LEAK), odd, off=frozenset({"leaked_calls"})) == [TextDelta(LEAK), odd]
    assert mended(ATTEMPT, off=frozenset({"failed_generation"})) == [ATTEMPT]
    thought = TextDelta("<think>x</think>y")
    assert mended(thought, odd, off=frozenset({"thinking"})) == [TextDelta("<think>x</think>y"), odd]
    call = ToolCallDelta(0, "c", "web_search", "{}")
    assert mended(call, odd, off=frozenset({"finish_reason"})) == [call, odd]
    assert repairs.finish_reason("end_turn", frozenset({"finish_reason"})) == "end_turn"
    assert repairs.call_name("functions.f<|x|>", frozenset({"call_name"})) == "functions.f<|x|>"


def test_the_switches_of_assembly() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '"{}"'}}
    other = {"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}}
    assert len([e for e in _assembled(first, other, off=frozenset()) if e.id]) == 2
    assert len([e for e in _assembled(first, other, off=frozenset({"call_index"})) if e.id]) == 1
    same = [{**first, "index": n} for n in (0, 1)]
    assert len({e.id for e in _assembled(*same, off=frozenset()) if e.id}) == 2
    assert len({e.id for e in _assembled(*same, off=frozenset({"call_id"})) if e.id}) == 1
    assert [e.arguments for e in _assembled(first, off=frozenset())] == ["", "{}"]
    ghost = {"index": 0, "function": {"name": "f", "arguments": ""}}
    whole = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert len([e for e in _assembled(whole, ghost, off=frozenset()) if e.id]) == 1, "a name repeated is no new call"
    assert [e.arguments for e in _assembled(first, off=frozenset({"call_arguments"}))] == ['"{}"']


def _assembled(*entries: dict[str, object], off: frozenset[str]) -> list[ToolCallDelta]:
    calls = Calls(off)
    found = [event for entry in entries for event in calls.feed(entry)] + calls.flush()
    return [event for event in found if isinstance(event, ToolCallDelta)]


def test_every_repair_has_its_switch_tried() -> None:
    """The table and the tests above (and `content_parts` in test_chunks) speak of the same repairs."""
    assert set(REPAIRS) == {
        "call_index",
        "call_id",
        "call_name",
        "call_arguments",
        "finish_reason",
        "content_parts",
        "leaked_calls",
        "failed_generation",
        "thinking",
    }

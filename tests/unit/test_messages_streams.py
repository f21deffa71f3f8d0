"""Whatever happens while an answer is made, its stream is one that clients can put together, and what they get is the
whole answer: blocks one behind the other, every call with all of its arguments, nothing lost and nothing twice.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.values.events import (
    Begun,
    Citation,
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
from tests.unit.messages_scripts import FETCH_TOOL, SERVER_TOOL, encoder, gathered, payloads, short, text_of
from tools.ledger import Source

SOURCES = [Source(n, f"https://s{n}.example/", f"S{n}", "It is so.") for n in (1, 2)]
ARGUMENTS = ("{}", '{"a":1}', '{"a": "}{"}', '{"b":[1,{"c":"x"}]}')
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "xyz"}

texts = st.sampled_from(["a", " ", "\n\n", "Blue.", ". ", '"', "é🙂", ")!"]).map(TextDelta)
thoughts = st.sampled_from(
    [
        ReasoningDelta({"reasoning_content": "h"}),
        ReasoningDelta({"reasoning": "m"}),
        ReasoningDelta({"reasoning_content": "", "thinking_blocks": [SIGNED]}),
        ReasoningDelta({"thinking_blocks": [HIDDEN]}),
        ReasoningDelta({"thought_signature": "x"}),
        ReasoningDelta({"refusal": "No."}),
    ]
)


@st.composite
def calls_of_one_turn(draw: st.DrawFn) -> list[Event]:
    """The pieces of some calls, mixed as servers may mix them, some with other things between them."""
    between = draw(st.integers(0, 1))
    queues: list[list[Event]] = []
    for index in range(draw(st.integers(0, 3))):
        given = draw(st.sampled_from(ARGUMENTS))
        cut = draw(st.integers(0, len(given)))
        rest = [ToolCallDelta(index, arguments=piece) for piece in (given[:cut], given[cut:]) if piece]
        queues.append([ToolCallDelta(index, f"c{index}", "weather", ""), *rest])
    out: list[Event] = []
    while queue := draw(st.sampled_from([one for one in queues if one] or [[]])):
        out.append(queue.pop(0))
        out += draw(st.lists(st.one_of(texts, thoughts), max_size=between))
    return out


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    out: list[Event] = [Begun("up")]
    for round_ in range(draw(st.integers(0, 3))):
        out += draw(st.lists(st.one_of(texts, thoughts), max_size=6))
        started = [
            ToolStarted(f"{round_}-{at}", tool, {"query": "q"} if tool == "web_search" else {"urls": ["u", "v"]})
            for at, tool in enumerate(draw(st.lists(st.sampled_from(["web_search", "open_page"]), max_size=3)))
        ]
        out += started
        for call in started:
            ok = draw(st.booleans())
            out.append(ToolFinished(call.id, call.tool, ok, "p", tuple(SOURCES) if ok else ()))
        said = tuple({"role": "tool", "tool_call_id": call.id, "content": "[1] found"} for call in started)
        out.append(RoundFinished(said))
    out += draw(st.lists(st.one_of(texts, thoughts), max_size=6))
    out += draw(calls_of_one_turn())
    reason = "tool_calls" if any(isinstance(event, ToolCallDelta) for event in out) else "stop"
    return [*out, RoundFinished(()), UsageSeen({"prompt_tokens": 3, "completion_tokens": 2}), Finished(reason)]


def with_citations(events: list[Event], places: list[int]) -> list[Event]:
    """Citations behind some texts, where the citer would put them: in one batch with the text before them."""
    out, said, left = [], 0, list(places)
    for event in events:
        out.append(event)
        if isinstance(event, TextDelta):
            said += len(event.text)
            if left and left.pop() % 2:
                out.append(Citation(said, said, SOURCES[said % 2]))
    return out


def batches(events: list[Event], cuts: list[int]) -> list[list[Event]]:
    out: list[list[Event]] = [[]]
    for at, event in enumerate(events):
        if at in cuts and not isinstance(event, Citation):
            out.append([])
        out[-1].append(event)
    return [batch for batch in out if batch]


def same(message: dict[str, Any]) -> Any:
    """Without what is made anew each time."""
    names = {block["id"]: f"id{at}" for at, block in enumerate(message["content"]) if "id" in block}
    text = json.dumps({**message, "id": ""})
    for made, name in names.items():
        text = text.replace(made, name)
    return json.loads(text)


# A refusal is text here, and no part of the text in which citations have their places.
REFUSED: list[Event] = [
    Begun("up"),
    TextDelta("a"),
    ReasoningDelta({"reasoning_content": "h"}),
    ReasoningDelta({"refusal": "No."}),
    TextDelta("a"),
    TextDelta("a"),
    RoundFinished(()),
    UsageSeen({"prompt_tokens": 3, "completion_tokens": 2}),
    Finished("stop"),
]
TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}]


@pytest.mark.parametrize("named", [[], [SERVER_TOOL], [SERVER_TOOL, {**FETCH_TOOL, "max_uses": 1}]])
@pytest.mark.parametrize("thinking", ["adaptive", "disabled"])
@settings(max_examples=150, deadline=None)
@given(events=answers(), places=st.lists(st.integers(0, 1), max_size=8), cuts=st.lists(st.integers(0, 30), max_size=8))
@example(events=REFUSED, places=[1, 0, 0], cuts=[5])
def test_the_stream_is_the_answer(
    named: list[dict[str, Any]], thinking: str, events: list[Event], places: list[int], cuts: list[int]
) -> None:
    events = with_citations(events, places)
    fields: dict[str, Any] = {"tools": [*TOOLS, *named], "thinking": {"type": thinking}}
    streamed, whole = encoder(**fields), encoder(**fields)
    sent = b"".join(streamed.feed(batch) for batch in batches(events, cuts))
    whole.feed(events)
    message = gathered(payloads(sent))
    assert same(message) == same(streamed.message)
    assert short(message) == short(whole.message)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    refusals = [event for event in events if isinstance(event, ReasoningDelta) and "refusal" in event.fields]
    assert text_of(message).replace("No.", "").strip() == said.strip() or refusals
    written: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            written[event.index] = written.get(event.index, "") + event.arguments
    calls = {block["id"]: block["input"] for block in message["content"] if block["type"] == "tool_use"}
    assert calls == {f"c{index}": json.loads(given or "{}") for index, given in written.items()}
    assert all(block.get("text", "x") for block in message["content"]), "no block is empty"

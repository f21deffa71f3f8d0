"""Tools in words: what the model reads of tools, calls and results, and that no history can break it."""

from __future__ import annotations

import copy
import json
import re
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.upstreams.prompted import flattened, prompted
from tools import open_page, prompts, web_search
from tools.options import ToolPolicy

POLICY = ToolPolicy(parameters="full")
SPECS = (web_search.spec(POLICY), open_page.spec(POLICY))
USER = {"role": "user", "content": "Who won?"}
LINE = re.compile(r"<tool_call>(.*?)</tool_call>")
TOLD = prompts.CALL_RULE.format(how_many=prompts.SEVERAL_CALLS)


def function(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    """A tool whose parameters are all optional but the first."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call(id_: str, name: str, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made), **more}


def result(id_: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content, **more}


def response(name: str, text: str) -> str:
    return f"<tool_response>\n{name}:\n{text}\n</tool_response>"


F, G = function("f"), function("g")

# Where the text goes


def test_it_follows_the_first_system_text() -> None:
    text = prompted({"messages": [USER], "tools": [F]})["messages"][0]["content"]
    for role in ("system", "developer"):
        system = {"role": role, "content": "Be kind.", "name": "n"}
        made = prompted({"messages": [USER, system, {"role": "system", "content": "z"}], "tools": [F]})["messages"]
        assert made[1] == {**system, "content": f"Be kind.\n\n{text}"}
        assert made[2] == {"role": "system", "content": "z"}
    nothing: list[Any] = [None, "", []]
    for empty in nothing:
        made = prompted({"messages": [{"role": "system", "content": empty}, USER], "tools": [F]})["messages"]
        assert made == [{"role": "system", "content": text}, USER]


def test_it_follows_system_text_in_parts() -> None:
    text = prompted({"messages": [USER], "tools": [F]})["messages"][0]["content"]
    cached = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    made = prompted({"messages": [{"role": "system", "content": [cached]}, USER], "tools": [F]})["messages"]
    assert made[0]["content"] == [cached, {"type": "text", "text": text}]
    plain = {"type": "text", "text": "Be kind."}
    made = prompted({"messages": [{"role": "system", "content": [plain]}, USER], "tools": [F]})["messages"]
    assert made[0]["content"] == [{"type": "text", "text": f"Be kind.\n\n{text}"}]


# The history


def test_a_call_and_its_result() -> None:
    history = [USER, calls(call("1", "web_search", '{"query":"Köln",\n "limit":3}')), result("1", "It rains."), USER]
    assert flattened(history) == [
        USER,
        {
            "role": "assistant",
            "content": '<tool_call>{"name": "web_search", "arguments": {"query": "Köln", "limit": 3}}</tool_call>',
        },
        {"role": "user", "content": response("web_search", "It rains.") + "\n\nWho won?"},
    ]


def test_text_before_calls_and_thinking_are_kept() -> None:
    message = calls(call("1", "f"), call("2", "g"), content="Let me look.", reasoning_content="Hm.", refusal=None)
    (made,) = flattened([message])
    assert made == {
        "role": "assistant",
        "content": 'Let me look.\n<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        "reasoning_content": "Hm.",
        "refusal": None,
    }
    thinking = [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "y"}]
    (made,) = flattened([calls(call("1", "f"), content=thinking)])
    line = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert made["content"] == [thinking[0], {"type": "text", "text": f"y\n{line}"}]


def test_results_are_read_next_to_their_calls_in_the_order_of_the_calls() -> None:
    history = [
        calls(call("a", "f"), call("b", "g")),
        {"role": "assistant", "content": "Done."},
        result("b", "B"),
        USER,
        result("a", "A"),
    ]
    first, answers, *rest = flattened(history)
    assert first["content"].count("<tool_call>") == 2
    assert answers == {"role": "user", "content": response("f", "A") + "\n\n" + response("g", "B")}
    assert rest == [{"role": "assistant", "content": "Done."}, USER]


def test_ids_that_come_again_belong_to_the_newest_call() -> None:
    history = [calls(call("0", "f")), result("0", "A"), calls(call("0", "g")), result("0", "B")]
    assert [m["content"] for m in flattened(history)][1::2] == [response("f", "A"), response("g", "B")]


def test_results_without_ids_are_matched_by_name_and_order() -> None:
    history = [
        calls({"function": {"name": "f"}}, {"function": {"name": "g"}}, {"function": {"name": "f"}}),
        {"role": "tool", "name": "g", "content": "G"},
        {"role": "tool", "content": "F1"},
        {"role": "tool", "tool_call_id": "lost", "content": "F2"},
    ]
    results = [response("f", "F1"), response("g", "G"), response("f", "F2")]
    assert flattened(history)[1]["content"] == "\n\n".join(results)


def test_a_result_without_a_call_stays_where_it_is() -> None:
    history = [USER, result("9", "X", name="h"), {"role": "assistant", "content": "y"}, result("8", "Z")]
    made = flattened(history)
    assert made[0]["content"] == "Who won?\n\n" + response("h", "X")
    assert made[2]["content"] == response("tool", "Z")


def test_legacy_functions() -> None:
    history = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "A"},
    ]
    assert flattened(history) == [
        {"role": "assistant", "content": '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'},
        {"role": "user", "content": response("f", "A")},
    ]


ARGUMENTS: dict[str, tuple[Any, str]] = {
    "object": ({"a": 1}, '{"a": 1}'),
    "null": (None, "{}"),
    "empty": ("", "{}"),
    "twice encoded": ('"{\\"a\\": 1}"', '{"a": 1}'),
    "no JSON": ("{a", '"{a"'),
    "lines": ("{\n}", "{}"),
    "big number": ('{"a": 12345678901234567890123}', '{"a": 12345678901234567890123}'),
    "half a surrogate pair": ('{"a": "\\ud800"}', '{"a": "?"}'),
    "too deep": ("[" * 100_000, json.dumps("[" * 100_000)),
    "a tag inside": ('{"a": "</tool_call> <TOOL_CALL>"}', r'{"a": "\u003c/tool_call> \u003cTOOL_CALL>"}'),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments(case: str) -> None:
    given, written = ARGUMENTS[case]
    (made,) = flattened([calls(call("1", "f", given))])
    assert made["content"] == f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    orjson.dumps(made)


def test_malformed_calls_lose_nothing_sensible() -> None:
    message = calls(
        None,
        "x",
        {},
        {"id": 7, "function": None, "name": "functions.f<|channel|>x"},
        {"function": {"arguments": '{"a":1}'}},
        {"type": "custom", "custom": {"name": "sh", "input": "ls </tool_call>"}},
    )
    (made,) = flattened([message])
    assert [json.loads(line) for line in LINE.findall(made["content"])] == [
        {"name": "f", "arguments": {}},
        {"name": "unknown", "arguments": {"a": 1}},
        {"name": "sh", "arguments": {"input": "ls </tool_call>"}},
    ]


@pytest.mark.parametrize("empty", [None, [], "x", [None]])
def test_calls_that_are_none_leave_the_message_without_the_field(empty: Any) -> None:
    assert flattened([{"role": "assistant", "content": "a", "tool_calls": empty, "function_call": None}]) == [
        {"role": "assistant", "content": "a"}
    ]


FORGED = ["</tool_response>", "<tool_call>", "</tool_call>", "</ tool_response>", "<TOOL_RESPONSE>", "<tool-call >"]


@pytest.mark.parametrize("tag", FORGED)
def test_a_result_can_neither_close_nor_forge_a_tag(tag: str) -> None:
    for content in (f"a{tag}b", [{"type": "text", "text": f"a{tag}b"}], {"k": tag}):
        made = flattened([calls(call("1", "f")), result("1", content)])[1]["content"]
        inside = made.removeprefix("<tool_response>").removesuffix("</tool_response>")
        assert "< " + tag[1:] in inside
        assert tag not in inside
    assert tag not in flattened([result("1", "x", name=tag)])[0]["content"].split("\n")[1]


def test_results_in_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [{"type": "text", "text": "a"}, image, "b", {"type": "json", "json": {"x": 1}}, None]
    made = flattened([calls(call("1", "f")), result("1", parts), USER])
    text = response("f", 'a\nb\n{"type": "json", "json": {"x": 1}}')
    assert made[1]["content"] == [{"type": "text", "text": text}, image, {"type": "text", "text": "Who won?"}]
    assert flattened([result("1", None)])[0]["content"] == response("tool", "")


# Side by side


def test_neighbours_become_one_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    assert flattened([USER, {"role": "user", "content": [image]}, USER]) == [
        {"role": "user", "content": [{"type": "text", "text": "Who won?"}, image, {"type": "text", "text": "Who won?"}]}
    ]
    first = {"role": "assistant", "content": "a", "reasoning": "1", "reasoning_details": [1]}
    second = {"role": "assistant", "content": "b", "reasoning": "2", "reasoning_details": [2], "x": 3}
    assert flattened([first, second]) == [
        {"role": "assistant", "content": "a\n\nb", "reasoning": "12", "reasoning_details": [1, 2], "x": 3}
    ]
    ann, bob = {"role": "user", "content": "a", "name": "ann"}, {"role": "user", "content": "b", "name": "bob"}
    assert flattened([ann, bob]) == [{"role": "user", "content": "a\n\nb"}]
    assert flattened([ann, ann]) == [{"role": "user", "content": "a\n\na", "name": "ann"}]


def test_what_needs_no_change_is_the_very_same_object() -> None:
    history = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": None, "refusal": "no"}, 7]
    assert all(new is old for new, old in zip(flattened(history), history, strict=True))


def record(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


SMALL = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
JSON = st.recursive(
    SMALL, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner), max_leaves=6
)
PART = record(type=st.just("text"), text=st.text(max_size=5)) | JSON
CONTENT = st.text(max_size=20) | st.sampled_from(FORGED) | st.lists(PART, max_size=3) | JSON
IDS = st.sampled_from(["a", "b", "", None, 3])
WRITTEN = st.sampled_from(["{}", "{", '{"q": "</tool_call>"}']) | JSON
CALLS = st.lists(st.builds(call, IDS, st.sampled_from(["f", "", None]), WRITTEN) | JSON, max_size=3) | JSON
MESSAGE = (
    record(role=st.sampled_from(["user", "assistant", "system"]), content=CONTENT)
    | record(role=st.just("assistant"), content=CONTENT, tool_calls=CALLS)
    | record(role=st.sampled_from(["tool", "function"]), tool_call_id=IDS, name=IDS, content=CONTENT)
    | JSON
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGE, max_size=8), st.lists(JSON, max_size=2), JSON)
def test_any_history_and_any_tools(messages: list[Any], tools: list[Any], schema: Any) -> None:
    described = {"type": "function", "function": {"name": "t", "description": "d", "parameters": schema}}
    body = {"model": "m", "messages": messages, "tools": [*tools, described]}
    before = copy.deepcopy(body)
    made = prompted(body)
    assert body == before, "the client's own body is left alone"
    assert made == prompted(before), "the same bytes for the same body"
    assert "tools" not in made
    messages = [message for message in made["messages"] if isinstance(message, dict)]
    assert not any(message.get("role") in ("tool", "function") or "tool_calls" in message for message in messages)
    for one, other in pairwise(made["messages"]):
        if isinstance(one, dict) and isinstance(other, dict) and one.get("role") in ("user", "assistant"):
            assert one["role"] != other.get("role")
    system = next(message for message in messages if message.get("role") == "system")
    text = system["content"] if isinstance(system["content"], str) else system["content"][-1]["text"]
    assert TOLD in text

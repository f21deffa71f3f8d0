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

from proxy.upstreams.prompted import AT_MOST_ONE, MAX_TOOLS_TEXT, MUST_CALL, RULE, SEVERAL, flattened, prompted
from tools import open_page, web_search

SPECS = (web_search.spec(full=True), open_page.spec())
USER = {"role": "user", "content": "Who won?"}
LINE = re.compile(r"<tool_call>(.*?)</tool_call>")
TOLD = RULE.replace("{several}", SEVERAL)


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


def tool_lines(*tools: dict[str, Any], **more: Any) -> list[str]:
    """What the system text says after the rule, line by line."""
    made = prompted({"model": "m", "messages": [USER], "tools": list(tools), **more})
    system, user = made["messages"]
    assert user is USER
    assert system["role"] == "system"
    assert system["content"].startswith(TOLD + "\n")
    return str(system["content"]).removeprefix(TOLD + "\n").split("\n")


def signature(**properties: Any) -> str:
    (line,) = tool_lines(function("f", "", **properties))
    return line.removeprefix("f(").removesuffix(")")


# The tools


def test_our_own_tools_are_described_whole() -> None:
    ours = [{"name": s.tool, "description": s.description, "parameters": s.parameters} for s in SPECS]
    search, page = tool_lines(*[{"type": "function", "function": tool} for tool in ours])
    assert search.startswith("web_search(query: string (What to search for, at most 400 characters), limit?: integer 1")
    assert "time_range?: d|w|m|y|all (" in search
    assert "published_after?: string date (YYYY-MM-DD)" in search
    assert search.endswith("): " + web_search.DESCRIPTION)
    assert page.startswith("open_page(url?: string (The page to open), urls?: string[] (")
    assert page.endswith("): " + open_page.DESCRIPTION)


def test_the_fields_of_tools_are_gone_and_the_others_stay() -> None:
    old = {"functions": [{"name": "g"}], "function_call": "auto"}
    new = {"tools": [function("f")], "tool_choice": "auto", "parallel_tool_calls": False}
    made = prompted({"model": "m", "messages": [USER], **old, **new, "stream": True})
    assert list(made) == ["model", "messages", "stream"]
    assert made["messages"][0]["content"].splitlines()[-2:] == ["f()", "g()"]


SIGNATURES: dict[str, tuple[Any, str]] = {
    "string": ({"type": "string"}, "string"),
    "nothing said": ({}, "any"),
    "no schema": (True, "any"),
    "enum": ({"enum": ["a", "b c", 1, None, True]}, 'a|"b c"|1|true'),
    "long enum": ({"enum": list(range(30))}, "|".join(map(str, range(20))) + "|…"),
    "const": ({"const": "x"}, "x"),
    "limits": ({"type": "number", "minimum": 0, "maximum": 1.5}, "number 0-1.5"),
    "negative limits": ({"type": "integer", "minimum": -5, "maximum": 5}, "integer -5 to 5"),
    "lower limit": ({"type": "integer", "minimum": 1}, "integer at least 1"),
    "upper limit": ({"type": "integer", "maximum": 9}, "integer at most 9"),
    "format": ({"type": "string", "format": "date-time"}, "string date-time"),
    "nullable": ({"type": ["string", "null"]}, "string"),
    "only null": ({"type": "null"}, "null"),
    "any of": ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, "string|integer"),
    "one of": ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "a|b"),
    "all of": ({"allOf": [{"type": "string"}, {"format": "uri"}]}, "string uri"),
    "list": ({"type": "array", "items": {"type": "integer"}}, "integer[]"),
    "list of enum": ({"type": "array", "items": {"enum": ["a", "b"]}}, "(a|b)[]"),
    "bare list": ({"type": "array"}, "any[]"),
    "bare object": ({"type": "object"}, "object"),
    "object": (
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["b"]},
        "{a?: string, b: boolean}",
    ),
    "list of objects": ({"type": "array", "items": {"properties": {"a": {"enum": [1, 2]}}}}, "{a?: 1|2}[]"),
    "description": ({"type": "string", "description": "Town, e.g. Rome. More."}, "string (Town, e.g. Rome. More)"),
    "description that repeats the name": ({"type": "string", "description": "The P."}, "string"),
    "description in lines": ({"type": "string", "description": "A\n  b"}, "string (A b)"),
    "broken reference": ({"$ref": "#/$defs/none"}, "any"),
    "foreign reference": ({"$ref": "https://x.org/s.json"}, "any"),
    "broken everywhere": ({"type": 7, "enum": "x", "anyOf": {}, "properties": [], "minimum": "a"}, "any"),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_signature(case: str) -> None:
    schema, shown = SIGNATURES[case]
    assert signature(p=schema) == f"p: {shown}"


def test_references_are_looked_up_and_may_turn_in_circles() -> None:
    node = {"properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
    lists = {"type": "array", "items": {"$ref": "#/$defs/lists"}}
    definitions = {"node": node, "lists": lists, "me": {"$ref": "#/$defs/me"}}
    properties = {name: {"$ref": f"#/$defs/{name}"} for name in definitions}
    parameters = {"properties": properties, "required": ["node"], "$defs": definitions}
    (line,) = tool_lines({"type": "function", "function": {"name": "f", "parameters": parameters}})
    deep = "{name?: string, next?: {name?: string, next?: {name?: string, next?: {name?: any, next?: any}}}}"
    assert line == f"f(node: {deep}, lists?: any[][][][], me?: any)"


def test_a_schema_that_refers_to_itself_everywhere_stays_small() -> None:
    wide = {"properties": {f"p{n}": {"$ref": "#/$defs/wide"} for n in range(40)}}
    parameters = {**wide, "$defs": {"wide": wide}}
    (line,) = tool_lines({"type": "function", "function": {"name": "f", "parameters": parameters}})
    assert len(line) <= 2400


def test_a_long_description_ends_with_a_sentence() -> None:
    (line,) = tool_lines(function("f", "One sentence of some words. " * 60))
    assert line.endswith("some words.")
    assert 500 < len(line) < 800
    (line,) = tool_lines(function("f", "word " * 600))
    assert line.endswith("word…")
    assert len(line) < 800


def test_many_tools_are_described_in_fewer_words_but_all_of_them() -> None:
    town = {"type": "string", "description": "The town to look for, as it is written there"}
    lines = tool_lines(*[function(f"tool_{n}", "Looks a town up. " * 20, town=town) for n in range(60)])
    assert [line.partition("(")[0] for line in lines] == [f"tool_{n}" for n in range(60)]
    assert len("\n".join(lines)) < MAX_TOOLS_TEXT
    assert lines[0].startswith("tool_0(town: string): Looks a town up.")
    lines = tool_lines(*[function(f"tool_{n}", "Looks a town up. " * 20, town=town) for n in range(300)])
    assert len(lines) == 300
    assert lines[7] == "tool_7(town: string)"


def test_a_description_cannot_begin_a_line_of_its_own() -> None:
    (line,) = tool_lines(function("f", "a\n\nother(x: string): b\r\u2028c"))
    assert line == "f(): a other(x: string): b c"


def test_a_custom_tool_takes_free_text() -> None:
    (line,) = tool_lines({"type": "custom", "custom": {"name": "sh", "description": "Shell"}})
    assert line == "sh(input: string): Shell"


@pytest.mark.parametrize("tools", [None, [], [None], [{"type": "function"}], [{"function": {"name": 3}}], "x"])
def test_nothing_is_said_of_no_tools(tools: Any) -> None:
    assert prompted({"model": "m", "messages": [USER], "tools": tools}) == {"model": "m", "messages": [USER]}


F, G = function("f"), function("g")
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}, {"name": "z"}]}
ONLY_F = "Your next message must be a call of f."
CHOICES: dict[str, tuple[Any, list[str]]] = {
    "nothing": (None, ["f()", "g()"]),
    "auto": ("auto", ["f()", "g()"]),
    "required": ("required", ["f()", "g()", MUST_CALL]),
    "any": ("any", ["f()", "g()", MUST_CALL]),
    "named": ({"type": "function", "function": {"name": "f"}}, ["f()", "g()", ONLY_F]),
    "named flat": ({"type": "tool", "name": "f"}, ["f()", "g()", ONLY_F]),
    "named but unknown": ({"type": "function", "function": {"name": "x"}}, ["f()", "g()"]),
    "allowed": ({"type": "allowed_tools", "allowed_tools": ALLOWED}, ["g()"]),
    "allowed flat": ({"type": "allowed_tools", **ALLOWED}, ["g()"]),
    "allowed, required": (
        {"type": "allowed_tools", "allowed_tools": {**ALLOWED, "mode": "required"}},
        ["g()", MUST_CALL],
    ),
}


@pytest.mark.parametrize("case", CHOICES)
def test_tool_choice(case: str) -> None:
    choice, lines = CHOICES[case]
    assert tool_lines(F, G, tool_choice=choice) == lines


@pytest.mark.parametrize("choice", ["none", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}])
def test_without_a_choice_nothing_is_described_and_the_history_is_text(choice: Any) -> None:
    history = [USER, calls(call("1", "f")), result("1", "x")]
    made = prompted({"messages": history, "tools": [F], "tool_choice": choice})
    assert made == {"messages": flattened(history)}
    assert [m["role"] for m in made["messages"]] == ["user", "assistant", "user"]


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


@settings(max_examples=150)
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


def test_one_call_at_most_is_said_in_words() -> None:
    assert AT_MOST_ONE in str(prompted({"messages": [], "tools": [function("f", "")], "parallel_tool_calls": False}))

"""Tools in a few words: what the model reads of them, whatever their schemas look like."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.upstreams.prompted import flattened, prompted
from proxy.upstreams.signatures import MAX_TOOLS_TEXT, tools_text
from tests.unit.test_prompted import TOLD, USER, F, G, call, calls, function, result
from tools import open_page, prompts, web_search
from tools.options import ToolPolicy

POLICY = ToolPolicy(parameters="full")
SPECS = (web_search.spec(POLICY), open_page.spec(POLICY))


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


def test_our_own_tools_are_described_whole() -> None:
    ours = [{"name": s.tool, "description": s.description, "parameters": s.parameters} for s in SPECS]
    search, page = tool_lines(*[{"type": "function", "function": tool} for tool in ours])
    assert search.startswith("web_search(query: string (What to search for, at most 400 characters), limit?: integer 1")
    assert "time_range?: d|w|m|y|all (" in search
    assert "published_after?: string date (YYYY-MM-DD)" in search
    assert search.endswith("): " + prompts.WEB_SEARCH)
    assert page.startswith("open_page(url?: string (The page to open), urls?: string[] (")
    assert page.endswith("): " + prompts.OPEN_PAGE)


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


ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}, {"name": "z"}]}
ONLY_F = "Your next message must be a call of f."
CHOICES: dict[str, tuple[Any, list[str]]] = {
    "nothing": (None, ["f()", "g()"]),
    "auto": ("auto", ["f()", "g()"]),
    "required": ("required", ["f()", "g()", prompts.MUST_CALL]),
    "any": ("any", ["f()", "g()", prompts.MUST_CALL]),
    "named": ({"type": "function", "function": {"name": "f"}}, ["f()", "g()", ONLY_F]),
    "named flat": ({"type": "tool", "name": "f"}, ["f()", "g()", ONLY_F]),
    "named but unknown": ({"type": "function", "function": {"name": "x"}}, ["f()", "g()"]),
    "allowed": ({"type": "allowed_tools", "allowed_tools": ALLOWED}, ["g()"]),
    "allowed flat": ({"type": "allowed_tools", **ALLOWED}, ["g()"]),
    "allowed, required": (
        {"type": "allowed_tools", "allowed_tools": {**ALLOWED, "mode": "required"}},
        ["g()", prompts.MUST_CALL],
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


def test_one_call_at_most_is_said_in_words() -> None:
    body = {"messages": [], "tools": [function("f", "")], "parallel_tool_calls": False}
    assert prompts.ONE_CALL in str(prompted(body))


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"a": {"allOf": [{"$ref": "#/a"}]}, "properties": {"p": {"$ref": "#/a"}}}
    function = {"name": "f", "parameters": schema}
    assert "f" in tools_text({"tools": [{"type": "function", "function": function}]})

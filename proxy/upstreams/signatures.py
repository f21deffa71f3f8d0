"""Tools in a few words: what a model that knows no tools reads of them. Handed a Chat Completions body; hands on the
rule for calling and one line per tool, as short as its JSON schema allows. The same bytes for the same tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from providers.text.words import terms
from tools import prompts
from tools.clean import one_line

# About what a small model reads without losing the question; beyond it the tools are described in fewer words.
MAX_TOOLS_TEXT = 12_000

_DEEPEST_REFERENCE = 8
_MOST_KINDS = 8  # of one parameter
_FREE_TEXT = {"properties": {"input": {"type": "string"}}, "required": ["input"]}
_SENTENCE_END = re.compile(r"(?<=[.!?。])\s")
_PLAIN_VALUE = re.compile(r"[\w.+:/-]+")
_LONGEST_READ = 2000  # characters of what is said of a parameter: of more nothing is shown
_READ = (  # the keywords of a schema that are read here: the rest is not copied
    *("$ref", "allOf", "anyOf", "const", "description", "enum", "format", "items", "maximum", "minimum", "oneOf"),
    *("properties", "required", "type"),
)


class _Detail(NamedTuple):
    """How many characters are said of each tool."""

    description: int
    parameter: int
    line: int


_DETAILS = (_Detail(700, 120, 2400), _Detail(160, 0, 600), _Detail(0, 0, 240))


def tools_text(body: Mapping[str, Any]) -> str:
    tools, demand = _offered(body)
    if not tools:
        return ""
    how_many = prompts.ONE_CALL if body.get("parallel_tool_calls") is False else prompts.SEVERAL_CALLS
    lines = [prompts.CALL_RULE.format(how_many=how_many), *_tool_lines(tools)]
    return "\n".join([*lines, demand] if demand else lines)


def _offered(body: Mapping[str, Any]) -> tuple[dict[str, Mapping[str, Any]], str]:
    """The tools that may be called, and the demand to call one of them, if there is any."""
    tools = _described(body)
    choice = mode = body.get("tool_choice") or body.get("function_call")
    if choice == "none":
        return {}, ""
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools")
        listed = inner if isinstance(inner, Mapping) else choice
        allowed = {_named(entry) for entry in _list(listed.get("tools"))}
        tools = {name: tool for name, tool in tools.items() if name in allowed}
        mode = listed.get("mode")
    named = _named(choice)
    if named in tools:
        return tools, prompts.MUST_CALL_ONE.format(name=named)
    return tools, prompts.MUST_CALL if mode in ("required", "any") else ""


def _tool_lines(tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each, in as much detail as there is room for."""
    lines: list[str] = []
    for detail in _DETAILS:
        lines = [_tool_line(name, tool, detail) for name, tool in tools.items()]
        if sum(map(len, lines)) <= MAX_TOOLS_TEXT:
            break
    return lines


def _described(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name → what the request says of the tool, whatever its kind; legacy functions too."""
    tools = [*_list(body.get("tools")), *_list(body.get("functions"))]
    return {name: described_in(tool) for tool in tools if (name := _named(tool))}


def _named(entry: Any) -> str:
    """The name in a tool, a `tool_choice` or an entry of allowed tools; empty if there is none."""
    name = described_in(entry).get("name")
    return name if isinstance(name, str) else ""


def described_in(entry: Any) -> Mapping[str, Any]:
    """What a tool, a choice or a call says under the name of its kind, or by itself."""
    if not isinstance(entry, Mapping):
        return {}
    for kind in ("function", "custom"):
        inner = entry.get(kind)
        if isinstance(inner, Mapping):
            return {"parameters": _FREE_TEXT, **inner} if kind == "custom" else inner
    return entry


def _tool_line(name: str, tool: Mapping[str, Any], detail: _Detail) -> str:
    schema = tool.get("parameters")
    signature = _Signature(schema if isinstance(schema, Mapping) else {}, detail)
    description = tool.get("description")
    said = _sentences(description, detail.description) if isinstance(description, str) else ""
    line = f"{one_line(name, 100)}({signature.parameters()})" + (f": {said}" if said else "")
    return one_line(line, detail.line)


def _sentences(text: str, most: int) -> str:
    """As many whole sentences as fit, or the beginning of the first."""
    text = one_line(text, 20_000) if most else ""
    if len(text) <= most:
        return text
    ends = [end.start() for end in _SENTENCE_END.finditer(text, 0, most + 1) if end.start() <= most]
    return text[: ends[-1]] if ends else one_line(text, most)


class _Signature:
    """A JSON schema in the few characters that a model needs to fill it."""

    def __init__(self, schema: Mapping[str, Any], detail: _Detail) -> None:
        self._root = schema
        self._detail = detail
        self._most = detail.line * 8  # characters of which the line is made, in which blanks count once
        self._room = 300  # how many types are spelled out: a schema may refer to itself
        self._steps = 3000  # how many schemas are looked up for them: those that refer to many, which refer to many …
        self._required: dict[int, frozenset[str]] = {}  # by the list that says so: many may refer to one
        self._shown: dict[int, str] = {}  # the same of values

    def parameters(self) -> str:
        return self._fields(self._resolved(self._root), 0)

    def _fields(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = schema.get("properties")
        required = self._required_in(schema)
        shown: list[str] = []
        left = self._detail.line
        for name, given in properties.items() if isinstance(properties, Mapping) else ():
            value = self._resolved(given)
            mark = "" if name in required else "?"
            shown.append(f"{name[: self._most]}{mark}: {self._type(value, depth)}{self._remark(name, value)}")
            left -= sum(map(len, shown[-1].split()))
            if left < 0:
                break
        return ", ".join(shown)

    def _required_in(self, schema: Mapping[str, Any]) -> frozenset[str]:
        listed = schema.get("required")
        if not isinstance(listed, list):
            return frozenset()
        if id(listed) not in self._required:
            self._required[id(listed)] = frozenset(name for name in listed if isinstance(name, str))
        return self._required[id(listed)]

    def _value(self, value: Any) -> str:
        if id(value) not in self._shown:
            self._shown[id(value)] = _value(value[: self._most] if isinstance(value, str) else value)
        return self._shown[id(value)]

    def _type(self, schema: Any, depth: int) -> str:
        schema = self._resolved(schema)
        self._room -= 1
        if depth > 3 or self._room < 0:
            return "any"
        if "const" in schema:
            return self._value(schema["const"])
        if values := _list(schema.get("enum")):
            shown = [self._value(value) for value in values[:20] if value is not None]
            return "|".join(shown) + ("|…" if len(values) > 20 else "")
        kinds = _alternatives(schema)
        if kinds is not None:
            return self._union(kinds, depth)
        return self._one_type(schema, depth)

    def _one_type(self, schema: Mapping[str, Any], depth: int) -> str:
        kind = schema.get("type")
        if kind == "array":
            item = self._type(schema.get("items"), depth + 1)
            return f"({item})[]" if "|" in item and not item.startswith("{") else f"{item}[]"
        if isinstance(schema.get("properties"), Mapping):
            return f"{{{self._fields(schema, depth + 1)}}}"
        return kind + _limits(schema) if isinstance(kind, str) else "any"

    def _union(self, kinds: Sequence[Any], depth: int) -> str:
        shown = [self._type(kind, depth + 1) for kind in kinds[:_MOST_KINDS]]
        return "|".join(kind for kind in dict.fromkeys(shown) if kind != "null") or "null"

    def _resolved(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """What a local `$ref` points to, and an `allOf` as one schema. One that refers to itself ends somewhere."""
        whole = _read_of(schema)
        self._steps -= 1
        pointer = whole.pop("$ref", None)
        if isinstance(pointer, str) and pointer.startswith("#/"):
            target: Any = self._root
            for step in pointer[2:].split("/"):
                target = target.get(step) if isinstance(target, Mapping) else None
            whole = {**_read_of(target), **whole}
        for part in _list(whole.pop("allOf", None)):
            if self._steps < 0:
                break
            if isinstance(part, Mapping) and "allOf" not in part and depth < _DEEPEST_REFERENCE:
                whole = {**self._resolved(part, depth + 1), **whole}
        return whole

    def _remark(self, name: str, schema: Mapping[str, Any]) -> str:
        """The parameter's description, unless it only repeats the name."""
        said = schema.get("description")
        if not isinstance(said, str) or not self._detail.parameter:
            return ""
        said = said[:_LONGEST_READ]
        if set(terms(said)) <= set(terms(name[:_LONGEST_READ].replace("_", " "))):
            return ""
        said = _sentences(said, self._detail.parameter).rstrip(".")
        return f" ({said})" if said else ""


def _alternatives(schema: Mapping[str, Any]) -> list[Any] | None:
    """The schemas of which one must hold; None if it is itself the only one."""
    kinds = _list(schema.get("anyOf")) or _list(schema.get("oneOf"))
    if kinds:
        return kinds
    kind = schema.get("type")
    return [{**schema, "type": one} for one in kind[:_MOST_KINDS]] if isinstance(kind, list) else None


def _read_of(schema: Any) -> dict[str, Any]:
    return {name: schema[name] for name in _READ if name in schema} if isinstance(schema, Mapping) else {}


def _limits(schema: Mapping[str, Any]) -> str:
    low, high, form = schema.get("minimum"), schema.get("maximum"), schema.get("format")
    numbers = [n for n in (low, high) if isinstance(n, int | float) and not isinstance(n, bool)]
    if len(numbers) == 2:
        return f" {low} to {high}" if min(numbers) < 0 else f" {low}-{high}"
    if numbers:
        return f" {'at least' if low in numbers else 'at most'} {numbers[0]}"
    return f" {one_line(form, 20)}" if isinstance(form, str) and form else ""


def _value(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_VALUE.fullmatch(value):
        return value
    return one_line(as_json(value), 60)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_json(value: Any) -> str:
    """On one line, and without half surrogate pairs, which nobody could send."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()

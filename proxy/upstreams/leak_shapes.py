"""The shapes in which models write a tool call as text. Handed a `Tape` and the offered tools; hands on the calls, or
raises `NotACall` at the first character that no call could have. Which model or server writes which shape is said in
`tests/unit/test_leaks.py`, with the report that showed it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import Any, TypeGuard

import orjson

from providers.records import dataclass

from .leak_tape import Names, NotACall, Steps, Tape, parsed

_MOST_WRAPPERS = 3  # before a call
_MOST_CLOSERS = 4  # after it

# DeepSeek's bars come in every width: `<｜DSML｜invoke`, `<‖DSML‖invoke`, `<｜｜DSML｜｜invoke`, `<|DSML|invoke`.
_DSML = tuple(f"{bars}DSML{bars}" for bars in ("｜", "‖", "｜｜", "|", "‖‖", "||"))


def _tags(begin: str, *ends: str) -> tuple[str, ...]:
    return tuple(begin + dsml + end for dsml, end in product(("", *_DSML), ends))


WRAPPERS = (
    *("<tool_call>", "<minimax:tool_call>", "<|tool_calls_section_begin|>", "<|python_tag|>"),
    *("[TOOL_CALLS]", "[TOOL_REQUEST]"),
    *_tags("<", "tool_calls>", "function_calls>"),
)
_KIMI, _START, _CHANNEL = "<|tool_call_begin|>", "<|start|>assistant", "<|channel|>"
_HEADS = ("<function=", _KIMI, _START, _CHANNEL, *_tags("<", 'invoke name="'))
_PARAMETERS = ("<parameter=", "<arg_key>", *_tags("<", 'parameter name="'))
_PARAMETER_ENDS = _tags("</", "parameter>")
_CALL_ENDS = ("</function>", *_tags("</", "invoke>"))
_CLOSERS = (
    *("</tool_call>", "</minimax:tool_call>", "[END_TOOL_REQUEST]", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    *("<|call|>", "<|end|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "</s>"),
    *_CALL_ENDS,
    *_tags("</", "tool_calls>", "function_calls>"),
)
OPENERS = (*WRAPPERS, *_HEADS)
# gpt-oss without its special tokens: `analysisWe need to …assistantfinalThe answer`.
_ANALYSIS = ("analysis", f"{_CHANNEL}analysis<|message|>", f"{_START}{_CHANNEL}analysis<|message|>")
_FINAL = ("assistantfinal", f"{_CHANNEL}final<|message|>")
_COMMENTARY = ("assistantcommentary", f"{_CHANNEL}commentary")
_FENCE_INFO = ("", "json", "xml", "text", "plaintext", "tool_call", "tool_calls", "tool_code", "function_call")
_ENTRY_KEYS = {"name", "type", "id", "index", "function", "arguments", "parameters"}

_LESS = re.compile("<")
_MORE = re.compile(">")
_BRACKET = re.compile(r"\[")
_LESS_OR_A = re.compile("[<a]")
_KEY = re.compile(r'([^"<>\n]{1,100}?)"?(?:[ \t]+string="(true|false)")?[ \t]*')


@dataclass(frozen=True, slots=True)
class LeakedCall:
    name: str
    arguments: str  # a JSON object as text


class Shapes:
    """Every shape of a call, read from one tape. `tools`: offered name → JSON schema of its parameters."""

    def __init__(self, tape: Tape, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._tape = tape
        self._tools = tools
        self._names = Names({prefix + name: name for name in tools for prefix in ("", "functions.")})

    @cached_property
    def _recipients(self) -> Names:
        """gpt-oss glues the format to the name: `to=functions.web_searchjson`."""
        names = self._names.tools
        return Names({**names, **{f"{word}json": name for word, name in names.items()}})

    def call(self, bare: bool = False) -> Steps[list[LeakedCall]]:
        """From an opener, or an offered name before `[ARGS]`, to the end of what must be there."""
        tape = self._tape
        wrapped = 0
        while wrapped < _MOST_WRAPPERS and (yield from tape.literal(*WRAPPERS)):
            wrapped += 1
            yield from tape.blanks()
        char = yield from tape.peek()
        if char and char in "{[":
            if not wrapped and not bare:
                raise NotACall
            return (yield from self._json_calls(bare=not wrapped))
        if char == "<":
            return [(yield from self._tagged())]
        name = yield from tape.word(self._names)
        if (yield from tape.literal("[CALL_ID]")):
            yield from tape.until(_BRACKET, "[ARGS]")
        elif not (yield from tape.literal("[ARGS]")):
            if not wrapped:
                raise NotACall
            return [(yield from self._arguments(name))]
        return [(yield from self._json_arguments(name))]

    def tail(self) -> Steps[list[LeakedCall]]:
        """After a call: its closing tags and the white space that leads to the next call or the end of the message."""
        tape = self._tape
        for _ in range(_MOST_CLOSERS):
            tape.hold()
            yield from tape.blanks()
            if not (yield from self._closer()):
                return (yield from self.call()) if (yield from tape.peek()) else []
        tape.hold()
        raise NotACall

    def _closer(self) -> Steps[bool]:
        """A closing tag, or as much of one as the end of the message left."""
        tape = self._tape
        if (yield from tape.literal(*_CLOSERS)):
            return True
        rest = tape.cut(tape.at, tape.end)
        if not rest or not tape.ended or not any(closer.startswith(rest) for closer in _CLOSERS):
            return False
        tape.at = tape.end
        return True

    def whole(self) -> Steps[list[LeakedCall]]:
        """From the beginning of the message: what is a call only if nothing else stands in it."""
        tape = self._tape
        char = yield from tape.peek()
        if char and char in "`~":
            return (yield from self._fenced(char))
        if char and char in "{[":
            calls: list[LeakedCall] = []
            while (yield from tape.peek()):
                calls += yield from self._json_calls(bare=True)
                yield from tape.literal(";")
                while (yield from self._closer()):
                    pass
                yield from tape.blanks()
            return calls
        opener = yield from tape.expect("commentary", *_COMMENTARY, *_ANALYSIS)
        if opener.endswith("commentary"):
            return [(yield from self._commentary())]
        if opener == "analysis" and not (yield from tape.peek()).isupper():
            raise NotACall
        while (yield from tape.until(_LESS_OR_A, *_FINAL, *_COMMENTARY))[1] not in _FINAL:
            back = tape.at
            try:
                return [(yield from self._commentary())]
            except NotACall:
                tape.at = back
        return []

    def _fenced(self, mark: str) -> Steps[list[LeakedCall]]:
        tape = self._tape
        fence = yield from tape.expect(mark * 3)
        info = ""
        while (char := (yield from tape.peek())) != "\n":
            if not char or not (char.isalpha() or char in "_ \r") or len(info) > 16:
                raise NotACall
            info += char
            tape.at += 1
        if info.strip() not in _FENCE_INFO:
            raise NotACall
        calls: list[LeakedCall] = []
        while True:
            yield from tape.blanks()
            if calls and (yield from tape.literal(fence)):
                break
            calls += yield from self.call(bare=True)
            yield from tape.blanks()
            while (yield from self._closer()):
                yield from tape.blanks()
        yield from tape.blanks()
        if (yield from tape.peek()):
            raise NotACall
        return calls

    def _json_calls(self, bare: bool) -> Steps[list[LeakedCall]]:
        """`{"name": …, "arguments": …}` or a list of these. A name that comes first is tested at once, and a bare one
        must: many an answer is JSON.
        """
        tape = self._tape
        begin = tape.at
        yield from tape.literal("[")
        yield from tape.blanks()
        yield from tape.expect("{")
        while True:
            yield from tape.blanks()
            key = yield from tape.literal('"name"', '"type"', '"function"')
            if not key and bare:
                raise NotACall
            if key != '"name"' and not bare:
                break
            yield from tape.blanks()
            yield from tape.expect(":")
            yield from tape.blanks()
            if key == '"type"':
                yield from tape.expect('"function"')
                yield from tape.blanks()
                yield from tape.expect(",")
            elif (yield from tape.expect("{", '"')) == '"':
                yield from tape.word(self._names)
                yield from tape.expect('"')
                if bare:  # the description of a tool is disproved here
                    yield from tape.blanks()
                    yield from tape.expect(",")
                    yield from tape.blanks()
                    yield from tape.expect('"arguments"', '"parameters"', '"type"', '"id"')
                break
        tape.at = begin
        return self.calls((yield from tape.json()), bare)

    def _tagged(self) -> Steps[LeakedCall]:
        tape = self._tape
        head = yield from tape.expect(*_HEADS)
        if head in (_START, _CHANNEL):
            return (yield from self._harmony(head))
        yield from tape.blanks()
        name = yield from tape.word(self._names)
        if head == _KIMI:
            if (yield from tape.literal(":")):
                while (yield from tape.peek()).isdigit():
                    tape.at += 1
            yield from tape.blanks()
            yield from tape.expect("<|tool_call_argument_begin|>")
            return (yield from self._json_arguments(name))
        end = yield from tape.expect(">", "/>", '">', '"/>', '" />')
        if end.endswith("/>"):
            return self._made(name, {})
        return (yield from self._arguments(name))

    def _harmony(self, head: str) -> Steps[LeakedCall]:
        tape = self._tape
        if head == _START:
            yield from tape.blanks()
            if (yield from tape.literal("to=")):
                name = yield from tape.word(self._recipients)
                yield from tape.blanks()
                yield from tape.expect(f"{_CHANNEL}commentary", f"{_CHANNEL}analysis")
                return (yield from self._message(name))
            yield from tape.expect(_CHANNEL)
        yield from tape.expect("commentary", "analysis")
        return (yield from self._commentary())

    def _commentary(self) -> Steps[LeakedCall]:
        tape = self._tape
        yield from tape.blanks()
        yield from tape.expect("to=")
        return (yield from self._message((yield from tape.word(self._recipients))))

    def _message(self, name: str) -> Steps[LeakedCall]:
        tape = self._tape
        yield from tape.blanks()
        for part in ("<|constrain|>", "json", "<|message|>"):
            yield from tape.literal(part)
            yield from tape.blanks()
        return (yield from self._json_arguments(name))

    def _json_arguments(self, name: str) -> Steps[LeakedCall]:
        yield from self._tape.blanks()
        if (yield from self._tape.peek()) != "{":
            raise NotACall
        return LeakedCall(name, _object((yield from self._tape.json())))

    def _arguments(self, name: str) -> Steps[LeakedCall]:
        """A JSON object, or parameters in tags with whatever closes them. What closes the call may be missing."""
        tape = self._tape
        yield from tape.blanks()
        if (yield from tape.peek()) == "{":
            return (yield from self._json_arguments(name))
        values: dict[str, Any] = {}
        while True:
            yield from tape.blanks()
            opener = yield from tape.literal(*_PARAMETERS)
            if not opener:
                break
            stop = ""
            if opener == "<arg_key>":
                key, _ = yield from tape.until(_LESS, "</arg_key>")
                yield from tape.blanks()
                yield from tape.expect("<arg_value>")
                value, _ = yield from tape.until(_LESS, "</arg_value>")
                said: str | None = None
            else:
                head = _KEY.fullmatch((yield from tape.until(_MORE, ">"))[0])
                if head is None:
                    raise NotACall
                key, said = head.groups()
                value, stop = yield from tape.until(_LESS, *_PARAMETER_ENDS, *_CALL_ENDS)
            values[key.strip()] = self._typed(name, key.strip(), value, said)
            if stop in _CALL_ENDS:
                return self._made(name, values)
        back = tape.at
        if not (yield from self._closer()) and (yield from tape.peek()):
            yield from tape.expect(*OPENERS)
            tape.at = back
        return self._made(name, values)

    def _made(self, name: str, values: dict[str, Any]) -> LeakedCall:
        if not values and self._tools[name].get("required"):
            raise NotACall  # `<tool_call>web_search</tool_call>` is more likely talk about the tool than a use of it
        return LeakedCall(name, _text(values))

    def _typed(self, name: str, key: str, written: str, said: str | None) -> Any:
        value = written.removeprefix("\n").removesuffix("\n")
        properties = self._tools[name].get("properties")
        kinds = _kinds(properties.get(key)) if isinstance(properties, Mapping) else set()
        if "string" in kinds or (not kinds and said != "false"):
            return value
        if "boolean" in kinds and value.strip() in ("True", "False"):
            return value.strip() == "True"
        try:
            return parsed(value)
        except NotACall:
            return value

    def calls(self, value: Any, bare: bool = False) -> list[LeakedCall]:
        """What a JSON value calls: `{"name", "arguments"}`, OpenAI's own nesting of it, or a list of these."""
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        made = [self._entry(entry, bare) for entry in (value if isinstance(value, list) else [value])]
        if not made:
            raise NotACall
        return made

    def _entry(self, entry: Any, bare: bool) -> LeakedCall:
        if not isinstance(entry, dict) or (bare and entry.keys() - _ENTRY_KEYS):
            raise NotACall
        function = entry.get("function")
        if isinstance(function, dict):
            entry = entry | function
        name = entry.get("name", function)
        given = [entry[key] for key in ("arguments", "parameters") if key in entry]
        if not isinstance(name, str) or name not in self._names.tools or (bare and not given):
            raise NotACall
        return LeakedCall(self._names.tools[name], _object(given[0] if given else None))


def _kinds(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    kinds = (
        {kind} if isinstance(kind, str) else {one for one in kind if isinstance(one, str)} if _is_list(kind) else set()
    )
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        for choice in choices if _is_list(choices) else ():
            kinds |= _kinds(choice)
    return kinds - {"null"}


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _object(value: Any) -> str:
    """Arguments as JSON text. They may be JSON in a string; a schema is a description of the tool, not a call."""
    if isinstance(value, str):
        value = parsed(value or "{}")
    if value is None:
        value = {}
    if not isinstance(value, dict) or (value.get("type") == "object" and isinstance(value.get("properties"), dict)):
        raise NotACall
    return _text(value)


def _text(value: dict[str, Any]) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # integers beyond 64 bits and lone surrogates
        return json.dumps(value)

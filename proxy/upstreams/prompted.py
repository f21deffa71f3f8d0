"""Tools in words, for models that know none. Handed a Chat Completions body with tools, calls and results; hands on one
in which the tools are described in the system text, calls are lines of the assistant and results are text of the user.
`flattened` does the history alone. Pure, and the same bytes for the same body, so that prompt caches hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, dropwhile, groupby
from typing import Any

from providers.text.stretches import substituted
from tools.clean import one_line

from ..values.history import AssistantTurn, History, HistoryCall
from ..values.messages import role_of
from ..values.patient_json import is_of_many_parts
from . import repairs
from .signatures import as_json, described_in, tools_text

_TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
_CALL_FIELDS = ("tool_calls", "function_call")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_RICH_PARTS = ("image_url", "input_audio", "audio_url", "video_url", "file")
_TAG = re.compile(r"<(?=/?\s*tool[_-]?(?:call|response))", re.IGNORECASE)


def prompted(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a model that knows no tools; its calls come back as `<tool_call>` lines in the text."""
    out = {name: value for name, value in body.items() if name not in _TOOL_FIELDS}
    messages = body.get("messages")
    if isinstance(messages, list):
        text = tools_text(body)
        out["messages"] = flattened(_with_system(messages, text) if text else messages)
    return out


def flattened(messages: Sequence[Any]) -> list[Any]:
    """Calls and results as text. Neighbours of one role become one message: many templates demand alternation."""
    told = (message for entry in _read(messages).entries for message in _told(entry))
    out: list[Any] = []
    for role, group in groupby(told, role_of):
        neighbours = list(group)
        out += [_as_one(neighbours)] if role in ("user", "assistant") else neighbours
    return out


def _told(entry: Any) -> Iterator[Any]:
    """An entry of the history as messages."""
    if not isinstance(entry, AssistantTurn):
        yield entry
        return
    yield _in_words(entry)
    for call in entry.calls:
        for result in call.results:
            yield {"role": "user", "content": _result(result, call.name)}


# The history


def _read(messages: Sequence[Any]) -> History:
    """The history with each result next to its call, wherever it stood."""
    history = History()
    for message in messages:
        role = role_of(message)
        if role == "assistant" and any(name in message for name in _CALL_FIELDS):
            history.begin_turn(message)
            history.call(_calls(message))
        elif role not in ("tool", "function"):
            history.add(message)
        elif not _answers(message, history):  # its call is not in the history
            history.add({"role": "user", "content": _result(message, "")})
    return history


def _answers(result: dict[str, Any], history: History) -> bool:
    """By id; where one is missing by name or order, the oldest of the open calls first."""
    id_, name = result.get("tool_call_id"), result.get("name")
    if isinstance(id_, str) and id_ and history.answer(id_, result):
        return True
    return isinstance(name, str | None) and history.answer_in_order(name or "", result, has_id=bool(id_))


def _calls(message: Mapping[str, Any]) -> list[HistoryCall]:
    given = message.get("tool_calls")
    entries = list(given) if isinstance(given, list) else []
    if message.get("function_call"):
        entries.append({"function": message["function_call"]})
    calls = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        described, id_ = described_in(entry), entry.get("id")
        name = repairs.call_name(described.get("name"))
        arguments = {"input": described["input"]} if "input" in described else described.get("arguments")
        if name or arguments:
            written = {"id": id_, "line": _call_line(name or "unknown", arguments)}
            calls.append(HistoryCall(written, (id_,) if isinstance(id_, str) and id_ else (), name))
    return calls


def _call_line(name: str, given: Any) -> str:
    """The form that the model is asked to write. Arguments that are no JSON, or too much of it, stay the text they
    were."""
    arguments = given or {}
    try:
        for _ in range(2):  # some are encoded twice
            if isinstance(arguments, str) and not is_of_many_parts(arguments.encode(errors="replace")):
                arguments = json.loads(arguments)
    except (ValueError, RecursionError):
        pass
    try:
        line = as_json({"name": name, "arguments": arguments})
    except RecursionError:
        line = as_json({"name": name, "arguments": given})
    # In JSON a `<` stands only inside strings, where it may as well be an escape.
    return "<tool_call>" + _TAG.sub(r"\\u003c", line) + "</tool_call>"


def _in_words(turn: AssistantTurn) -> dict[str, Any]:
    plain = {name: value for name, value in turn.message.items() if name not in _CALL_FIELDS}
    if turn.calls:
        lines = "\n".join(call.call["line"] for call in turn.calls)
        plain["content"] = _joined(turn.message.get("content"), lines, "\n")
    return plain


def _result(message: Mapping[str, Any], called: str) -> Any:
    """A result as content of a user message: text, or parts where it holds more than text."""
    name = message.get("name") if isinstance(message.get("name"), str) else ""
    name = _inert(one_line(called or name or "tool", 100))
    content = message.get("content")
    texts, rich = [], []
    for piece in content if isinstance(content, list) else [content]:
        if isinstance(piece, Mapping) and piece.get("type") in _RICH_PARTS:
            rich.append(piece)
        elif piece is not None:
            texts.append(_text_of(piece))
    text = _inert("\n".join(texts))
    whole = f"<tool_response>\n{name}:\n{text}\n</tool_response>"
    return [{"type": "text", "text": whole}, *rich] if rich else whole


def _text_of(piece: Any) -> str:
    if isinstance(piece, Mapping) and piece.get("type") == "text":
        piece = piece.get("text")
    return piece if isinstance(piece, str) else as_json(piece)


def _inert(text: str) -> str:
    """Text that can neither close the tags around it nor pass for a call."""
    return substituted(_TAG, "< ", text)


# Messages side by side


def _as_one(neighbours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Messages of one role as one, put together at once: to add each to those before it would copy them all again."""
    first = neighbours[0]
    if len(neighbours) == 1:
        return first
    one: dict[str, Any] = {}
    for message in reversed(neighbours):  # what the first of them says counts
        one |= message
    one["content"] = _together([message.get("content") for message in neighbours])
    for name in _REASONING:
        thoughts = [message[name] for message in neighbours if name in message]
        same = [thought for thought in thoughts if type(thought) is type(thoughts[0])]
        if same and isinstance(same[0], str):
            one[name] = "".join(same)
        elif same and isinstance(same[0], list):
            one[name] = list(chain.from_iterable(same))
    if any(message.get("name") != first.get("name") for message in neighbours):
        one.pop("name", None)  # two speakers: no name is better than a wrong one
    return one


def _together(contents: Sequence[Any]) -> Any:
    """Contents as one: text if all are, else a list of parts. Those that say nothing are left out."""
    kept = [content for content in dropwhile(_is_blank, contents) if content]
    if len(kept) < 2:
        return kept[0] if kept else contents[-1]
    if all(isinstance(content, str) for content in kept):
        return "\n\n".join(kept)
    parts: list[Any] = []
    texts: list[str] = []  # of the last part, while the next content may go on with it
    for content in kept:
        new = _parts(content)
        if texts and _is_bare_text(new[0]):  # servers differ in what they put between two text parts
            texts.append(new.pop(0)["text"])
        if new:
            _close(parts, texts)
            parts += new
            texts = [new[-1]["text"]] if _is_bare_text(new[-1]) else []
    _close(parts, texts)
    return parts


def _close(parts: list[Any], texts: Sequence[str]) -> None:
    if len(texts) > 1:
        parts[-1] = {"type": "text", "text": "\n\n".join(texts)}


def _is_blank(content: Any) -> bool:
    return not content or (isinstance(content, str) and not content.strip())


def _joined(first: Any, second: Any, between: str = "\n\n") -> Any:
    """Two contents as one: text if both are, else a list of parts."""
    if _is_blank(first):
        return second
    if not second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return first + between + second
    head, tail = _parts(first), _parts(second)
    if _is_bare_text(head[-1]) and _is_bare_text(tail[0]):  # servers differ in what they put between two text parts
        head[-1:] = [{"type": "text", "text": head[-1]["text"] + between + tail.pop(0)["text"]}]
    return head + tail


def _parts(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": _text_of(content)}]


def _is_bare_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and isinstance(part["text"], str)


def _with_system(messages: Sequence[Any], text: str) -> list[Any]:
    for place, message in enumerate(messages):
        if role_of(message) in ("system", "developer"):
            longer = {**message, "content": _joined(message.get("content"), text)}
            return [*messages[:place], longer, *messages[place + 1 :]]
    return [{"role": "system", "content": text}, *messages]

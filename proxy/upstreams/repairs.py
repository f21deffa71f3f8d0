"""Every repair of a model's bad output, and nothing else. Handed pieces of an answer as a server sent them, hands on
what they meant. An operator can switch each off by its name (`config/vocabulary.py`).

Some have rooms of their own: `calls` (put together from fragments), `leaks` (calls written as text), `thinking`.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from tools.base import BadArguments, decode_arguments

from ..values.events import Begun, Event, Failed, Finished, ReasoningDelta, TextDelta, ToolCallDelta
from .leaks import LeakedCall, LeakReader, recovered
from .prompted_calls import PromptedCallReader
from .server_json import is_plain
from .thinking import ThoughtReader

ALL_ON: frozenset[str] = frozenset()

_ALPHABET = string.ascii_letters + string.digits
_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_LENGTH_REASONS = frozenset({"max_tokens", "MAX_TOKENS", "model_length"})
FUNCTIONS = "functions."
_KIMI_COUNT = re.compile(r":\d+\Z")


def new_call_id() -> str:
    """Nine alphanumerics: the one form of id that every upstream accepts (Mistral demands it)."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


def call_name(name: object, off: frozenset[str] = ALL_ON) -> str:
    """The bare function name. gpt-oss on vLLM writes `functions.ls<|channel|>commentary`, Kimi `functions.ls:0`; LM
    Studio repeats ""."""
    if not isinstance(name, str):
        return ""
    if "call_name" in off:
        return name
    return _KIMI_COUNT.sub("", name.split("<|", 1)[0].strip().removeprefix(FUNCTIONS))


def call_arguments(arguments: object) -> str:
    """The arguments as the JSON text they should be. Ollama's native shape and LiteLLM send an object, or null."""
    if arguments is None or arguments == "":
        return ""
    if isinstance(arguments, str):
        return arguments
    return orjson.dumps(arguments).decode() if is_plain(arguments) else "[]"  # which no tool takes for its arguments


def finish_reason(reason: object, off: frozenset[str] = ALL_ON) -> str:
    """One of the five that clients know. Servers send `end_turn`, `eos_token`, `error`, ``."""
    if not isinstance(reason, str):
        return "stop"
    if reason in _REASONS or "finish_reason" in off:
        return reason
    return "length" if reason in _LENGTH_REASONS else "stop"


def content_parts(content: Any) -> list[Event]:
    """Content as a list of parts (Mistral): text is text, thinking is reasoning."""
    out: list[Event] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text" and (text := _text_in(part)):
            out.append(TextDelta(text))
        elif part.get("type") == "thinking":
            thinking = part.get("thinking")
            pieces = thinking if isinstance(thinking, list) else [{"text": thinking}]
            if text := "".join(_text_in(piece) for piece in pieces if isinstance(piece, dict)):
                out.append(ReasoningDelta({"reasoning_content": text}))
    return out


def _text_in(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else ""


def replayable(arguments: str) -> str:
    """Arguments as they may stand in the history: Ollama and vLLM refuse old calls that are no JSON objects."""
    try:
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.dumps(decode_arguments(arguments)).decode()
    except (BadArguments, orjson.JSONEncodeError):  # half an emoji, a number that is no 64 bits, a nest too deep
        return "{}"


class AnswerRepair:
    """The repairs that need the whole answer: events in, events out. One per question to the model.

    `tools` are those that were offered; a call in the text is a call only if it names one of them. `prompted_form`: the
    model was asked to write its calls as text (`one`: at most one), so whatever looks like a call was meant as one.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any]],
        off: frozenset[str] = ALL_ON,
        prompted_form: bool = False,
        one: bool = False,
    ) -> None:
        self._off = off
        self._tools = tools
        self._thoughts = None if "thinking" in off else ThoughtReader()
        leaks = tools and (prompted_form or "leaked_calls" not in off)
        self._leaks = LeakReader(tools) if leaks else None
        self._words = PromptedCallReader() if leaks and prompted_form else None
        self._one = one
        self._calls = 0  # all calls so far, sent as such or found in the text
        self._numbers: dict[int, int] = {}  # of a call on the wire → among all calls
        self._begun = False

    def feed(self, events: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if type(event) is TextDelta:
                if self._thoughts is not None and self._thoughts.is_absent(event.text):
                    self._thoughts = None
                if (
                    self._thoughts is None
                    and self._words is None
                    and (self._leaks is None or self._leaks.passes(event.text))
                ):
                    out.append(event)  # almost all text of almost all answers
                else:
                    for piece in event.cut:
                        self._read(piece, out)
            elif type(event) is ToolCallDelta:
                self._pass_call(event, out)
            elif type(event) is Finished:
                self._flush(out)
                out.append(self._finish(event))
            elif type(event) is Failed:
                self._fail(event, out)
            else:
                self._begun = self._begun or type(event) is Begun
                out.append(event)
        return out

    def _pass_call(self, event: ToolCallDelta, out: list[Event]) -> None:
        """A call that was sent as one, numbered among all calls of the answer."""
        if event.id:
            self._trust_the_wire(out)
            self._numbers[event.index] = self._calls
            self._calls += 1
        number = self._numbers.get(event.index, event.index)
        out.append(event if number == event.index else replace(event, index=number))

    def _read(self, text: str, out: list[Event]) -> None:
        if self._thoughts is None:
            self._answer(text, out)
            return
        self._put_thoughts(self._thoughts.feed(text), out)
        if self._thoughts.done:
            self._thoughts = None

    def _put_thoughts(self, found: Iterable[tuple[str, str]], out: list[Event]) -> None:
        for kind, text in found:
            if kind == "thought":
                out.append(ReasoningDelta({"reasoning_content": text}, echoed=False))
            else:
                self._answer(text, out)

    def _answer(self, text: str, out: list[Event]) -> None:
        if self._leaks is None:
            out.append(TextDelta(text))
        else:
            self._put(self._leaks.feed(text), out)

    def _put(self, found: Sequence[str | LeakedCall], out: list[Event]) -> None:
        for piece in found:
            if self._words is not None and isinstance(piece, str):
                self._put_words(self._words.feed(piece), out)
            elif isinstance(piece, str):
                out.append(TextDelta(piece))
            else:
                if self._words is not None:
                    self._put_words(self._words.settle(), out)
                self._put_call(piece, out)

    def _put_words(self, found: Sequence[str | LeakedCall], out: list[Event]) -> None:
        """Text behind a call is what the model imagines that the tool would say: it is not shown to anybody."""
        for piece in found:
            if not isinstance(piece, str):
                self._put_call(piece, out)
            elif not self._calls:
                out.append(TextDelta(piece))

    def _put_call(self, call: LeakedCall, out: list[Event]) -> None:
        if self._one and self._calls:
            return
        out.append(ToolCallDelta(self._calls, new_call_id(), call.name, call.arguments))
        self._calls += 1

    def _trust_the_wire(self, out: list[Event]) -> None:
        """The server sends calls as calls, so what looks like one in its text is text."""
        if self._leaks is not None:
            if held := self._leaks.release():
                out.append(TextDelta(held))
            self._leaks = None

    def _flush(self, out: list[Event]) -> None:
        if self._thoughts is not None:
            self._put_thoughts(self._thoughts.flush(), out)
            self._thoughts = None
        if self._leaks is not None:
            self._put(self._leaks.flush(), out)
            self._leaks = None
        if self._words is not None:
            self._put_words(self._words.flush(), out)
            self._words = None

    def _finish(self, event: Finished) -> Finished:
        """Whether there are calls says what the end means; what the server calls it does not."""
        if "finish_reason" in self._off or event.reason not in ("stop", "tool_calls"):
            return event
        meant = "tool_calls" if self._calls else "stop"
        return event if event.reason == meant else replace(event, reason=meant)

    def _fail(self, event: Failed, out: list[Event]) -> None:
        found: list[LeakedCall] = []
        if event.attempt and not self._calls and "failed_generation" not in self._off:
            found = recovered(event.attempt, self._tools)
        if not found:
            self._flush(out)
            out.append(event)
            return
        if self._leaks is not None:
            self._leaks.release()  # the attempt holds it again
            self._leaks = None
        if not self._begun:
            out.append(Begun())
        self._put(found, out)
        out.append(Finished("tool_calls"))

"""Chat Completions JSON → events. Handed the payloads of a streamed answer (or one whole answer), hands on events in
one fixed order: Begun, then deltas as they come, then UsageSeen and Finished, or Failed. The first piece of every
call has its id and its name, whatever the model's server sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from ..values.errors import as_error, failure, truncated
from ..values.events import Begun, Event, Finished, ReasoningDelta, TextDelta, UsageSeen
from . import repairs
from .calls import Calls
from .server_json import is_plain, parse, plain_usage

_KEPT_FIELDS = ("system_fingerprint", "service_tier")
# Not for the client as they are: `role` is ours to say once, citations come from our own ledger alone.
_DROPPED_DELTA_KEYS = frozenset({"role", "content", "tool_calls", "annotations", "function_call"})


class ChunkReader:
    """`feed(payloads)` per network read, then `flush()` at the end of the body. `names` are those of the tools that the
    model knows. Raises `EventTooLong` where calls have no end."""

    def __init__(self, off: frozenset[str] = repairs.ALL_ON, names: Collection[str] = ()) -> None:
        self.begun = False
        self.over = False
        self._off = off  # the repairs that are switched off
        self._names = names
        self._reason = ""
        self._stop_word = ""
        self._usage: dict[str, Any] | None = None
        self._calls: Calls | None = None  # made for the first of them

    @property
    def complete(self) -> bool:
        """Has the model said that it is done? Then a missing end of the stream is no loss."""
        return bool(self._reason)

    def feed(self, payloads: Iterable[bytes]) -> list[Event]:
        out: list[Event] = []
        for payload in payloads:
            if self.over:
                break
            if payload.startswith(b"[DONE]"):
                if self.begun:  # some servers end with that alone
                    self._reason = self._reason or "stop"
                out += self._end()
                break
            chunk = parse(payload)
            if chunk is None:
                self.over = True
                out.append(
                    failure(502, "The model's server sent an event that is not JSON.", code="upstream_bad_response")
                )
                break
            self._read(chunk, out)
        return out

    def feed_noting(self, payloads: list[bytes]) -> tuple[list[Event], bool]:
        """The same; and was it one chunk with nothing in it but a piece of text?"""
        usage, reason, stop_word = self._usage, self._reason, self._stop_word
        out = self.feed(payloads)
        unchanged = usage is self._usage and reason == self._reason and stop_word == self._stop_word
        return out, unchanged and len(payloads) == 1 and _is_one_text(out)

    def feed_answer(self, answer: object) -> list[Event]:
        """A whole, non-streamed answer: the same events, as if it had come in one chunk."""
        out: list[Event] = []
        self._read(answer, out, "message")
        return out if self.over else out + self._end()

    def flush(self, rest: Iterable[bytes] = ()) -> list[Event]:
        """The body ended. Without `[DONE]` the answer counts as whole only if the model had finished it."""
        out: list[Event] = []
        for payload in rest:
            # The unterminated last event of a body: if it is cut it is no JSON, and nothing is lost by dropping it.
            if not self.over and (payload.startswith(b"[DONE]") or parse(payload) is not None):
                out += self.feed([payload])
        return out if self.over else out + self._end()

    def _end(self) -> list[Event]:
        self.over = True
        if not self._reason:
            return [truncated()]
        out = self._calls.flush() if self._calls else []
        if self._usage:
            out.append(UsageSeen(plain_usage(self._usage)))
        out.append(Finished(self._reason, self._stop_word))
        return out

    def _read(self, chunk: Any, out: list[Event], part: Literal["delta", "message"] = "delta") -> None:
        """`part` is what holds the text of a choice. Some whole answers have a `delta` all the same."""
        suspect = type(chunk) is not dict or "error" in chunk or chunk.get("object") == "error"
        if suspect and not self._is_readable(chunk, out):
            return
        if not self.begun:
            self._begin(chunk, out)
        usage = chunk.get("usage") or ("x_groq" in chunk and _groq_usage(chunk))
        if usage and type(usage) is dict:
            self._usage = usage
        choices = chunk.get("choices")
        choice = choices[0] if choices and type(choices) is list else None
        if type(choice) is dict:
            self._read_choice(choice, out, part)
        if "__verbose" in chunk:
            self._stop_word = self._stop_word or _verbose_stop_word(chunk["__verbose"])

    def _is_readable(self, chunk: object, out: list[Event]) -> bool:
        """Some servers say in every chunk that there is no error; only a real one ends the answer."""
        failed = as_error(chunk)
        if failed is not None:
            self.over = True
            out.append(failed)
        return failed is None and isinstance(chunk, dict)

    def _begin(self, chunk: dict[str, Any], out: list[Event]) -> None:
        self.begun = True
        kept = {}
        for key in _KEPT_FIELDS:
            if key in chunk and type(chunk[key]) is str:
                kept[key] = chunk[key]
        model = chunk.get("model")
        out.append(Begun(model if type(model) is str else "", kept))

    def _read_choice(self, choice: dict[str, Any], out: list[Event], part: str) -> None:
        delta = choice.get(part)
        if type(delta) is not dict:
            delta = choice.get("delta")
        if delta and type(delta) is dict:
            self._read_delta(delta, out)
        reason = choice.get("finish_reason")
        if reason and not self._reason:
            self._reason = repairs.finish_reason(reason, self._off)
            self._stop_word = _stop_word(choice)

    def _read_delta(self, delta: dict[str, Any], out: list[Event]) -> None:
        content = delta.get("content")
        if not delta.keys() <= _DROPPED_DELTA_KEYS:
            others = {k: v for k, v in delta.items() if v and k not in _DROPPED_DELTA_KEYS and is_plain(v)}
            if others:
                out.append(ReasoningDelta(others))
        if content:
            if type(content) is str:
                out.append(TextDelta(content))
            elif "content_parts" not in self._off:
                out += repairs.content_parts(content)
        if "tool_calls" in delta:
            self._read_calls(delta["tool_calls"], out)

    def _read_calls(self, entries: object, out: list[Event]) -> None:
        if not entries or type(entries) is not list:
            return
        calls = self._calls = self._calls or Calls(self._off, self._names)
        for entry in entries:
            if type(entry) is dict:
                out += calls.feed(entry)


def _is_one_text(events: list[Event]) -> bool:
    """Is it a piece of text alone? The first one comes behind the beginning."""
    if not events or type(events[-1]) is not TextDelta:
        return False
    return len(events) == 1 or (len(events) == 2 and type(events[0]) is Begun)


def _stop_word(choice: dict[str, Any]) -> str:
    """The client's own word, where a server tells which one it was: vLLM, and SGLang. Numbers are tokens."""
    for name in ("stop_reason", "matched_stop"):
        if name in choice and type(choice[name]) is str:
            return str(choice[name])
    return ""


def _verbose_stop_word(said: object) -> str:
    """The same from a llama.cpp that was started to be verbose."""
    word = said.get("stopping_word") if isinstance(said, dict) else None
    return word if isinstance(word, str) else ""


def _groq_usage(chunk: dict[str, Any]) -> Any:
    """Groq counts in a place of its own."""
    groq = chunk.get("x_groq")
    return groq.get("usage") if isinstance(groq, dict) else None

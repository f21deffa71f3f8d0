"""Chat Completions JSON → events. Handed the payloads of a streamed answer (or one whole answer), hands on events in
one fixed order: Begun, then deltas as they come, then UsageSeen and Finished, or Failed. The first piece of every
call has its id and its name, whatever the model's server sent.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..errors import as_error, failure, truncated
from ..events import Begun, Event, Finished, ReasoningDelta, TextDelta, ToolCallDelta, UsageSeen
from . import quirks

_ALPHABET = string.ascii_letters + string.digits
_KEPT_FIELDS = ("system_fingerprint", "service_tier")
# Not for the client as they are: `role` is ours to say once, citations come from our own ledger alone.
_DROPPED_DELTA_KEYS = frozenset({"role", "content", "tool_calls", "annotations", "function_call"})
_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


def new_call_id() -> str:
    """Nine alphanumerics: the one form of id that every upstream accepts (Mistral demands it)."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


@dataclass(slots=True)
class _Call:
    """One call under assembly. Its number counts calls; the wire's `index` cannot be trusted to."""

    number: int
    raw_id: str
    id: str
    name: str = ""
    early: str = ""  # arguments that came before the name
    said: str = ""  # all its arguments
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.said.endswith("}") and _parse(self.said.encode()) is not None


class ChunkReader:
    """`feed(payloads)` per network read, then `flush()` at the end of the body."""

    def __init__(self) -> None:
        self.begun = False
        self._reason = ""
        self._usage: Mapping[str, Any] | None = None
        self._over = False
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @property
    def complete(self) -> bool:
        """Has the model said that it is done? Then a missing end of the stream is no loss."""
        return bool(self._reason)

    @property
    def over(self) -> bool:
        return self._over

    def feed(self, payloads: Iterable[bytes]) -> list[Event]:
        out: list[Event] = []
        for payload in payloads:
            if self._over:
                break
            if payload.startswith(b"[DONE]"):
                out += self._end()
                break
            chunk = _parse(payload)
            if chunk is None:
                self._over = True
                out.append(
                    failure(502, "The model's server sent an event that is not JSON.", code="upstream_bad_response")
                )
                break
            self._read(chunk, out)
        return out

    def feed_answer(self, answer: object) -> list[Event]:
        """A whole, non-streamed answer: the same events, as if it had come in one chunk."""
        out: list[Event] = []
        if isinstance(answer, dict) and isinstance(answer.get("choices"), list) and answer["choices"]:
            choice = answer["choices"][0]
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                answer = answer | {"choices": [choice | {"delta": choice["message"]}]}
        self._read(answer, out)
        return out if self._over else out + self._end()

    def flush(self, rest: Iterable[bytes] = ()) -> list[Event]:
        """The body ended. Without `[DONE]` the answer counts as whole only if the model had finished it."""
        out: list[Event] = []
        for payload in rest:
            # The unterminated last event of a body: if it is cut it is no JSON, and nothing is lost by dropping it.
            if not self._over and (payload.startswith(b"[DONE]") or _parse(payload) is not None):
                out += self.feed([payload])
        return out if self._over else out + self._end()

    def _end(self) -> list[Event]:
        self._over = True
        if not self._reason:
            return [truncated()]
        usage: list[Event] = [UsageSeen(self._usage)] if self._usage else []
        return [*usage, Finished(self._reason)]

    def _read(self, chunk: object, out: list[Event]) -> None:
        if not isinstance(chunk, dict) or "error" in chunk or chunk.get("object") == "error":
            error = as_error(chunk)
            if error is not None:
                self._over = True
                out.append(error)
                return
            if not isinstance(chunk, dict):
                return
        if not self.begun:
            self.begun = True
            kept = {key: chunk[key] for key in _KEPT_FIELDS if chunk.get(key) is not None}
            out.append(Begun(str(chunk.get("model") or ""), kept))
        usage = chunk.get("usage")
        if usage and isinstance(usage, dict):
            self._usage = usage
        choices = chunk.get("choices")
        choice = choices[0] if choices and isinstance(choices, list) else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta")
        if delta and isinstance(delta, dict):
            self._read_delta(delta, out)
        reason = choice.get("finish_reason")
        if reason and not self._reason:
            self._reason = reason if isinstance(reason, str) and reason in _REASONS else "stop"

    def _read_delta(self, delta: dict[str, Any], out: list[Event]) -> None:
        content = delta.get("content")
        if len(delta) > 1 or content is None:
            others = {key: value for key, value in delta.items() if value and key not in _DROPPED_DELTA_KEYS}
            if others:
                out.append(ReasoningDelta(others))
        if content:
            if isinstance(content, str):
                out.append(TextDelta(content))
            else:
                out += quirks.content_parts(content)
        calls = delta.get("tool_calls")
        for entry in calls if isinstance(calls, list) else ():
            if isinstance(entry, dict):
                self._read_call(entry, out)

    def _read_call(self, entry: dict[str, Any], out: list[Event]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        name = quirks.call_name(function.get("name"))
        arguments = quirks.call_arguments(function.get("arguments"))
        call = self._call_of(entry, name)
        call.said += arguments
        extra = {k: v for k, v in entry.items() if k not in ("index", "id", "type", "function") and v is not None}
        if call.name:
            if arguments or extra:
                out.append(ToolCallDelta(call.number, arguments=arguments, extra=extra or None))
            return
        call.early += arguments
        call.extra |= extra
        if name:
            call.name = name
            out.append(ToolCallDelta(call.number, call.id, name, call.early, call.extra or None))

    def _call_of(self, entry: dict[str, Any], name: str) -> _Call:
        """Which call a fragment belongs to. Servers leave out the index, or give every call the index 0."""
        index, raw_id = entry.get("index"), str(entry.get("id") or "")
        if isinstance(index, int):
            call = self._by_index.get(index)
            other_id = raw_id and call is not None and call.raw_id and raw_id != call.raw_id
            another = name and call is not None and call.name and (other_id or (not raw_id and call.complete))
            if call is None or another:
                call = self._by_index[index] = self._new_call(raw_id)
            elif raw_id and not call.raw_id and not call.name:
                call.raw_id = call.id = raw_id
            return call
        for call in self._calls:
            if raw_id and call.raw_id == raw_id:
                return call
        if raw_id or name or not self._calls:
            return self._new_call(raw_id)
        return self._calls[-1]

    def _new_call(self, raw_id: str) -> _Call:
        taken = {call.id for call in self._calls}
        call = _Call(len(self._calls), raw_id, raw_id if raw_id and raw_id not in taken else new_call_id())
        self._calls.append(call)
        return call


def _parse(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:  # bytes that are no UTF-8 and lone surrogates are replaced, the stream goes on
        text = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    clean = json.dumps(text, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(clean)

"""The calls of one answer, assembled from their fragments. Handed the entries of `tool_calls` as a server sent them and
the names of the tools that the model knows; hands on pieces, the first of each call with its id and its whole name.

A name may be cut like any other text, repeated with every fragment, or come last. It is shown once no known name begins
with what is there and goes on: half of a name may be the whole of another one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

import orjson

from providers.records import dataclass
from tools.base import BadArguments, decode_arguments

from ..values.events import Event, ToolCallDelta
from ..values.sse import EventTooLong
from .repairs import ALL_ON, FUNCTIONS, call_arguments, call_name, new_call_id
from .server_json import is_plain

MOST_CALLS = 1000  # of one answer
MOST_ARGUMENTS = 4_000_000  # characters, of one call

_CALL_KEYS = frozenset({"index", "id", "type", "function"})
_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class ArgumentReader:
    """The arguments of one call while they stream: the first whole object passes, whatever else is around it goes.

    What does not begin as an object (encoded twice, words before it) is held until the call is complete.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._depth = 0
        self._in_string = False
        self._skip = 0  # characters of the next piece that a backslash at the end of this one escapes
        self.over = False  # is the object whole?

    def feed(self, text: str) -> str:
        if self.over or not text:
            return ""
        if not self._depth:
            text = text if self._held else text.lstrip()
            if self._held or not text.startswith("{"):
                if text:
                    self._held.append(text)
                return ""
            if text[-1] == "}" and _is_object(text):  # all of it came at once
                self.over = True
                return text
        at, self._skip = self._skip, 0
        while found := (_IN_STRING if self._in_string else _STRUCTURE).search(text, at):
            mark, at = found[0], found.end()
            if mark == "\\":
                at += 1
                self._skip = max(at - len(text), 0)
            elif mark == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark in "{[" else -1
                if not self._depth:
                    self.over = True
                    return text[:at]
        return text

    def flush(self) -> str:
        held, self._held = "".join(self._held), []
        try:
            return orjson.dumps(decode_arguments(held)).decode() if held else ""
        except (BadArguments, orjson.JSONEncodeError):
            return held  # the client reads what the model wrote, and says itself what is wrong with it


def _is_object(text: str) -> bool:
    try:
        return type(orjson.loads(text)) is dict
    except orjson.JSONDecodeError:
        return False


@dataclass(slots=True)
class _StreamedCall:
    """One call under assembly. Its number counts calls; the wire's `index` cannot be trusted to."""

    number: int
    raw_id: str
    id: str
    written: str = ""  # its name as far as it was sent
    name: str = ""  # the same once it is whole: from then on the call is shown
    size: int = 0  # of all its arguments
    early: list[str] = field(default_factory=list)  # those that came before that
    extra: dict[str, Any] = field(default_factory=dict)
    reader: ArgumentReader = field(default_factory=ArgumentReader)

    def is_another(self, raw_id: str, name: str, arguments: str) -> bool:
        """Does a fragment that came under this call's index begin a call of its own? Only one with a name does."""
        if not (name and self.written):
            return False
        if raw_id:
            return bool(self.raw_id) and raw_id != self.raw_id
        return self.reader.over and (name != self.written or bool(arguments))


class Calls:
    """`feed(entry)` per fragment, `flush()` at the end of the answer. Raises `EventTooLong` where there is no end."""

    def __init__(self, off: frozenset[str] = ALL_ON, names: Collection[str] = ()) -> None:
        self._off = off  # the repairs that are switched off
        self._mends_arguments = "call_arguments" not in off
        self._names = names
        self._calls: list[_StreamedCall] = []
        self._by_index: dict[int, _StreamedCall] = {}
        self._by_id: dict[str, list[_StreamedCall]] = {}
        self._ids: set[str] = set()

    @cached_property
    def _sorted_names(self) -> list[str]:
        return sorted(self._names)

    def feed(self, entry: Mapping[str, Any]) -> list[Event]:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        name = function.get("name")
        name = name if isinstance(name, str) and name.strip() else ""  # LM Studio repeats ""
        arguments = call_arguments(function.get("arguments"))
        call = self._call_of(entry, name, arguments)
        shown = self._read(call, arguments)
        extra: dict[str, Any] = {}
        if not entry.keys() <= _CALL_KEYS:
            extra = {k: v for k, v in entry.items() if k not in _CALL_KEYS and v is not None and is_plain(v)}
        if call.name:
            return [ToolCallDelta(call.number, arguments=shown, extra=extra or None)] if shown or extra else []
        call.early.append(shown)
        call.extra |= extra
        return self._begin(call) if self._is_named(call, name) else []

    def flush(self) -> list[Event]:
        """The answer is over: names that waited for more, and what was held of the arguments."""
        out: list[Event] = []
        for call in self._calls:
            if not call.name and call.written:
                out += self._begin(call)
            if call.name and self._mends_arguments and (text := call.reader.flush()):
                out.append(ToolCallDelta(call.number, arguments=text))
        return out

    def _read(self, call: _StreamedCall, arguments: str) -> str:
        """More of a call's arguments: what of them is shown."""
        call.size += len(arguments)
        if call.size > MOST_ARGUMENTS:
            raise EventTooLong
        mended = call.reader.feed(arguments)
        return mended if self._mends_arguments else arguments

    def _begin(self, call: _StreamedCall) -> list[Event]:
        """A call is shown once its name is known; what came before that has waited."""
        call.name = call_name(call.written, self._off)
        if not call.name:
            return []
        early, call.early = "".join(call.early), []
        return [ToolCallDelta(call.number, call.id, call.name, early, call.extra or None)]

    # Names

    def _is_named(self, call: _StreamedCall, piece: str) -> bool:
        """Takes another piece of the name. Is it whole now? It is if no known one goes on behind it, if it is a known
        one and the arguments have begun, or if it is repeated."""
        repeated = bool(piece) and piece == call.written and (bool(call.size) or not self._goes_on(piece + piece))
        if piece and not repeated:
            call.written = self._joined(call.written, piece)
        name = call_name(call.written, self._off)
        if not name:
            return False
        return repeated or not self._is_part(call.written, name) or (bool(call.size) and name in self._names)

    def _joined(self, written: str, piece: str) -> str:
        """By the contract pieces are joined. Some servers send with every piece what was there before."""
        grown = bool(written) and piece.startswith(written) and not self._goes_on(written + piece)
        return piece if grown else written + piece

    def _goes_on(self, written: str) -> bool:
        """Is this a known name, or the beginning of one?"""
        name = call_name(written, self._off)
        return self._is_part(written, name) or name in self._names

    def _is_part(self, written: str, name: str) -> bool:
        """May more of a known name follow?"""
        at = bisect_right(self._sorted_names, name)  # in their order, those that it begins stand right behind it
        if at < len(self._sorted_names) and self._sorted_names[at].startswith(name):
            return True
        return bool(self._names) and "call_name" not in self._off and FUNCTIONS.startswith(written.strip())

    # Which call a fragment belongs to

    def _call_of(self, entry: Mapping[str, Any], name: str, arguments: str) -> _StreamedCall:
        """Servers leave out the index, or give every call the index 0."""
        index, raw_id = entry.get("index"), _id(entry.get("id"))
        if "call_index" in self._off:
            index = index if isinstance(index, int) else 0
            return self._by_index.get(index) or self._new_call(raw_id, index)
        if not isinstance(index, int):
            return self._call_without_index(raw_id, name)
        call = self._by_index.get(index)
        if call is None or (call.is_another(raw_id, name, arguments) and not self._is_more(call, raw_id, name)):
            return self._new_call(raw_id, index)
        if raw_id and not call.raw_id and not call.name:
            call.raw_id = call.id = raw_id
            self._by_id.setdefault(raw_id, []).append(call)
        return call

    def _call_without_index(self, raw_id: str, name: str) -> _StreamedCall:
        """The one with its id; without any the last, unless there is a name, which begins a new one."""
        for call in self._by_id.get(raw_id, ()) if raw_id else ():
            if not (name and call.reader.over):
                return call
        if not self._calls or ((raw_id or name) and not self._is_more(self._calls[-1], raw_id, name)):
            return self._new_call(raw_id, None)
        return self._calls[-1]

    def _is_more(self, call: _StreamedCall, raw_id: str, name: str) -> bool:
        """Does a fragment with a name bring the rest of this call's, which is not whole yet?"""
        if not name or raw_id or not call.written or call.name:
            return False
        joined = self._joined(call.written, name)
        return joined != call.written and self._goes_on(joined)

    def _new_call(self, raw_id: str, index: int | None) -> _StreamedCall:
        if len(self._calls) >= MOST_CALLS:
            raise EventTooLong
        repeated = "call_id" not in self._off and raw_id in self._ids
        call = _StreamedCall(len(self._calls), raw_id, raw_id if raw_id and not repeated else new_call_id())
        self._calls.append(call)
        if raw_id:
            self._by_id.setdefault(raw_id, []).append(call)
        self._ids.add(call.id)
        if index is not None:
            self._by_index[index] = call
        return call


def _id(value: object) -> str:
    return str(value) if value and isinstance(value, str | int) else ""

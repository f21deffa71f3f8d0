"""A stream of completions that is forwarded, looked at while it passes. A pure machine: handed bytes as the network cut
them, it hands on the very same bytes up to the end of the last whole event, and says what it noticed in them.

No half event leaves, nothing that is not JSON, and nothing behind `[DONE]`. Nearly all events of an answer differ in
one string, its next piece. So an event that was read in full becomes the pattern of those that follow: while they are
cut from it, only their pieces are looked at, all of a network read at once, for a fraction of the cost of reading them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..values.errors import failure, too_large, truncated
from ..values.events import Failed
from ..values.sse import CR, DONE, EVENT_END, payload_of
from .forwarded_json import NO_JSON, error_in, has_openai_shape, is_utf8, parsed_event, replaced, usage_in

LONGEST_EVENT = 1_000_000  # bytes

_TERMINATED = re.compile(rb"(?>\r\n|\n|\r){2}\Z")
_CONTENT = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")


class ForwardedStream:
    """`feed(bytes)` per network read, then `end()`. Once it is `over` it takes and gives no more."""

    def __init__(self) -> None:
        self.begun = False  # an event is here, and it is no error
        self.content_began = False
        self.done = False
        self.usage: Mapping[str, Any] = {}
        self.failed: Failed | None = None  # what ended the stream instead of `[DONE]`
        self.error_event = b""  # the upstream's own words for it, where they have OpenAI's shape
        self._held = bytearray()  # the beginning of an event
        self._pattern = _Pattern()
        self._choices: dict[object, bool] = {}  # by index: has the model said that it is done?

    @property
    def finished(self) -> bool:
        """Has the model said that it is done, with each of its answers?"""
        return bool(self._choices) and all(self._choices.values())

    @property
    def over(self) -> bool:
        return self.done or self.failed is not None

    def feed(self, data: bytes) -> bytes:
        """What may leave now."""
        if self.done or self.failed is not None:
            return b""
        if self._held:
            looked_at = len(self._held)
            self._held += data
            if not EVENT_END.search(self._held, max(looked_at - 3, 0)):
                self._check_length()
                return b""
            data = bytes(self._held)
            self._held.clear()
        return self._look_through(data)

    def end(self, failed: Failed | None = None) -> bytes:
        """The body is over, or broke off for the reason given; the last bytes. Servers that forget the last blank line
        exist, and so do those that forget `[DONE]`."""
        out = b""
        if self._held and not self.over:
            rest = bytes(self._held)
            self._held.clear()
            out = self._read(rest) if _TERMINATED.search(rest) else self._read_cut(rest)
        if self.over:
            return out
        if self.finished:
            self.done = True
            return out + DONE
        self.failed = failed or truncated()
        return out

    def _look_through(self, data: bytes) -> bytes:
        """What is left over is the beginning of the next event."""
        pattern = self._pattern
        start = pattern.covers(data, 0)
        if start == len(data):  # nearly every read there is
            return data
        out, unchanged = b"", 0  # what leaves, but for all bytes from there on
        lines_end_in_lf = CR not in data
        while end := _end_of_event(data, start, lines_end_in_lf):
            event = data[start:end]
            leaves = self._read(event)
            if leaves is not event:
                out += data[unchanged:start] + leaves
                unchanged = end
            if self.done or self.failed:
                return out + data[unchanged:end]
            if self.content_began and not self.finished:
                pattern.learn(event)
            start = pattern.covers(data, end)
        self._held += data[start:]
        self._check_length()
        return out + data[unchanged:start]

    def _read_cut(self, event: bytes) -> bytes:
        """An event that lacks its blank line; nothing, if it lacks more."""
        payload = _payload(event + b"\n\n")
        if payload is None or not (payload.startswith(b"[DONE]") or parsed_event(payload) is not NO_JSON):
            return b""
        return self._read(event + (b"\n" if event.endswith(b"\n") else b"\n\n"))

    def _read(self, event: bytes) -> bytes:
        """The event as it may leave."""
        payload = _payload(event)
        if payload is not None:
            chunk = parsed_event(payload)
            if chunk is not NO_JSON:
                return self._take(chunk, event)
        if not is_utf8(event):
            return self._read(replaced(event))
        if payload is None:  # a comment, or nothing
            return event
        if not payload.startswith(b"[DONE]"):
            text = "The model's server sent an event that is not JSON."
            self.failed = failure(502, text, code="upstream_bad_response")
        elif self.begun:
            self.done = True
            return event
        else:
            self.failed = truncated()
        return b""

    def _take(self, chunk: Any, event: bytes) -> bytes:
        self.failed = error_in(chunk)
        if self.failed:
            self.error_event = event if has_openai_shape(chunk) else b""
            return b""
        self.begun = True
        if isinstance(chunk, dict):
            self._note(chunk)
        return event

    def _note(self, chunk: Mapping[str, Any]) -> None:
        if "usage" in chunk or "x_groq" in chunk:
            self.usage = usage_in(chunk) or self.usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                index = index if isinstance(index, int) else 0
                self._choices[index] = bool(choice.get("finish_reason")) or self._choices.get(index, False)
                self.content_began = self.content_began or _has_content(choice)

    def _check_length(self) -> None:
        if len(self._held) > LONGEST_EVENT:
            self.failed = too_large()


class _Pattern:
    """What stands before and behind the one string in which events differ."""

    _MOST = 8  # in vain, one after the other: there are servers whose events differ in more than one place
    _LONGEST = 4_000  # bytes: what is longer is not worth the search for its piece
    _MARK = 16  # bytes just before a piece, by which events are told apart: short ones are found fast
    _CHARACTERS = rb'[^"\\\x00-\x1f]'
    _STRING = re.compile(rb'%b*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})%b*+)*+' % (_CHARACTERS, _CHARACTERS))
    # Inside a JSON string a backslash stands before each quote, so in an event that is JSON these are keys.
    _KEYS = tuple(
        f'"{name}":{blank}"'.encode()
        for blank in ("", " ")
        for name in ("content", "reasoning_content", "reasoning", "text", "arguments")
    )

    def __init__(self) -> None:
        self._before = self._behind = b""
        self._mark = self._between = b""  # the end of `before`; from the end of a piece to the next mark
        self._in_vain = 0

    def covers(self, data: bytes, start: int) -> int:
        """Where the events end that begin here and are cut from it."""
        if not self._before or not data.startswith(self._before, start):
            return start
        begin, end = start + len(self._before), data.rfind(self._behind)
        if end < begin or not self._covers_all(data[begin:end]):
            self._in_vain += 1
            self._before = b""
            return start
        if self._in_vain:
            self._in_vain -= 1
        return end + len(self._behind)

    def _covers_all(self, data: bytes) -> bool:
        """Is this one piece, or several with nothing but the pattern between them?"""
        text = data
        if self._mark in data:
            parts = data.split(self._mark)
            last, between = parts.pop(), self._between
            # A blank behind each piece ends what it leaves open: an escape, a character of several bytes.
            text = b" ".join([*[part.removesuffix(between) for part in parts], last])
            if len(text) != len(data) - (len(self._mark) + len(between) - 1) * len(parts):
                return False
        return self._STRING.fullmatch(text) is not None and (text.isascii() or is_utf8(text))

    def learn(self, event: bytes) -> None:
        """Takes an event that was read as the pattern of those that follow."""
        if self._in_vain == self._MOST or len(event) > self._LONGEST:
            return
        for key in self._KEYS:
            begin = event.find(key) + len(key)
            end = event.find(b'"', begin)
            if len(key) <= begin < end and event.find(b"\\", begin, end) < 0:
                self._before, self._behind = event[:begin], event[end:]
                self._mark = self._before[-self._MARK :]
                self._between = self._behind + self._before[: -self._MARK]
                return


def _has_content(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and any(map(delta.get, _CONTENT)))


def _end_of_event(data: bytes, start: int, lines_end_in_lf: bool) -> int:
    """Where the event ends that begins here; 0 if that is not known yet."""
    if lines_end_in_lf:
        at = data.find(b"\n\n", start)
        return at + 2 if at >= 0 else 0
    found = EVENT_END.search(data, start)
    return found.end() if found else 0


def _payload(event: bytes) -> bytes | None:
    """Its data; None for comments and empty events."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and CR not in event:
        return event[6:-2]  # nearly every event there is
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return payload_of(lines.rstrip(b"\n").removeprefix(b"\xef\xbb\xbf"))

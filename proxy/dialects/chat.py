"""Chat Completions: `decode(body)` → ChatRequest; events → chunks or one body (`ChatWriter`); errors dressed.

Bad input is refused in `decode` and nowhere later. The writer writes one id, one role chunk, one finishing chunk
with all annotations on it, and one `[DONE]`, however many rounds the answer took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import orjson

from providers.apart import in_thread, is_worth_a_thread
from providers.random_ids import random_id
from tools.ledger import Source
from tools.toolbox import tool_named

from ..values.dialect import REQUEST_ID, Decoded
from ..values.errors import refuse
from ..values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    GatheredFields,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
    merge_fields,
)
from ..values.messages import said_since_question
from ..values.request import MOST_TOOLS, ChatRequest, CitationStyle, check_length, json_object
from ..values.sse import DONE, PING, encode
from .proof_fields import proof_fields
from .search import take_out_search

_OBJECTS_ALONE = frozenset({dict})
_DEEPEST = 254  # what orjson writes; it reads deeper
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


# Request


def decode(raw: bytes, is_long: bool = False) -> ChatRequest:
    body = json_object(raw)
    if len(raw) > _DEEPEST and raw.count(b"[") + raw.count(b"{") > _DEEPEST and not _can_be_sent(body):
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json")
    model, messages, stream = body.get("model"), body.get("messages"), body.get("stream")
    if type(model) is not str or not model:
        raise refuse(400, "`model` is missing: name the model that should answer.", param="model", code="missing_field")
    if type(messages) is not list or set(map(type, messages)) != _OBJECTS_ALONE:
        text = "`messages` must be a non-empty list of message objects."
        raise refuse(400, text, param="messages", code="invalid_type")
    check_length(messages, "messages")
    if stream is not None and type(stream) is not bool:
        raise refuse(400, "`stream` must be true or false.", param="stream", code="invalid_type")
    if "tools" in body:
        _check_tools(body["tools"])
    search, stripped = take_out_search(body)
    return ChatRequest(
        stripped,
        raw,
        model,
        bool(stream),
        "stream_options" in body and _wants_usage(body["stream_options"]),
        search,
        changed=stripped is not body and stripped != body,
        begun=said_since_question(messages),
        is_long=is_long,
    )


def _check_tools(tools: object) -> None:
    if not isinstance(tools, list | None):
        raise refuse(400, "`tools` must be a list.", param="tools", code="invalid_type")
    check_length(tools or (), "tools", MOST_TOOLS)


def _wants_usage(options: object) -> bool:
    return isinstance(options, dict) and options.get("include_usage") is True


def _can_be_sent(body: dict[str, Any]) -> bool:
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return False
    return True


# Answer


class ChatWriter:
    """An answer on its way out: chunks for each batch of events, or one body. Nothing is kept of it here: chat clients
    bring their history."""

    def __init__(self, request: ChatRequest, progress: bool = False) -> None:
        self._answer = _Body(request)
        self._usage_asked = request.include_usage
        self._progress = progress
        self._text_head = self._text_tail = b""

    def feed(self, events: Iterable[Event]) -> bytes:
        """What it returns is written in one go."""
        out: list[bytes] = []
        for event in events:
            if type(event) is TextDelta:
                if event.pieces:
                    out.append(self._encode_pieces(event.pieces))
                else:
                    out += (self._text_head, orjson.dumps(event.text), self._text_tail)
            elif type(event) in _ENCODERS:
                out.append(_ENCODERS[type(event)](self, event))
        return b"".join(out)

    async def end(self, events: Iterable[Event]) -> bytes:
        return self.feed(events)

    async def whole(self, events: Iterable[Event]) -> bytes:
        return self.fold(events)

    def fold(self, events: Iterable[Event]) -> bytes:
        """The same events as one body."""
        answer = self._answer
        text: list[str] = []
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        thought: GatheredFields | None = None
        calls: list[dict[str, Any]] = []
        reason = "stop"
        for event in events:
            if type(event) is TextDelta:
                text.append(event.text)
            elif type(event) is Begun:
                answer.begin(event)
            elif type(event) is ReasoningDelta:
                thought = thought or GatheredFields()
                thought.add(event.fields)
            elif type(event) is ToolCallDelta:
                _add_call(calls, event)
            elif type(event) is Finished:
                reason = event.reason
            elif type(event) in _GATHERERS:
                _GATHERERS[type(event)](answer, event)
        if thought:
            message |= thought.whole()
        if text or not calls:
            message["content"] = "".join(text)
        if calls:
            message["tool_calls"] = [_whole_call(call) for call in calls]
        if answer.annotations:
            message["annotations"] = answer.annotations
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return orjson.dumps(
            {**answer.head("chat.completion"), "choices": [choice], "usage": answer.usage, **answer.extras()}
        )

    def _encode_pieces(self, pieces: tuple[str, ...]) -> bytes:
        """A chunk for each piece. Where no quotation mark is in them, what stands between two as a list is written is
        the end of one and the beginning of the next; read from behind the first mark, as a piece may be a comma."""
        head, tail = self._text_head + b'"', b'"' + self._text_tail
        listed = orjson.dumps(pieces)
        if listed.find(b'\\"') >= 0:
            return b"".join([self._text_head + orjson.dumps(piece) + self._text_tail for piece in pieces])
        return head + listed[2:-2].replace(b'","', tail + head) + tail

    def _begin(self, event: Begun) -> bytes:
        self._answer.begin(event)
        whole = self._chunk({"content": 0})
        head, _, tail = whole.partition(b'"content":0')
        self._text_head, self._text_tail = head + b'"content":', tail
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def _think(self, event: ReasoningDelta) -> bytes:
        return self._chunk(dict(event.fields))

    def _call(self, event: ToolCallDelta) -> bytes:
        return self._chunk({"tool_calls": [_call_delta(event)]})

    def _start(self, event: ToolStarted) -> bytes:
        line = progress_line(event) if self._progress else ""
        return self._chunk({"reasoning_content": line}) if line else b""

    def _gather(self, event: Event) -> bytes:
        _GATHERERS[type(event)](self._answer, event)
        return b""

    def _fail(self, event: Failed) -> bytes:
        return encode(error_body(event))

    def _finish(self, event: Finished) -> bytes:
        answer = self._answer
        delta = {"annotations": answer.annotations} if answer.annotations else {}
        out = self._chunk(delta, event.reason, **answer.extras())
        if self._usage_asked:
            out += encode(orjson.dumps({**answer.head("chat.completion.chunk"), "choices": [], "usage": answer.usage}))
        return out + DONE

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, **extras: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {**self._answer.head("chat.completion.chunk"), "choices": [choice], **extras}
        if self._usage_asked:
            chunk["usage"] = None
        return encode(orjson.dumps(chunk))


_ENCODERS: dict[type, Callable[[ChatWriter, Any], bytes]] = {
    Begun: ChatWriter._begin,
    ReasoningDelta: ChatWriter._think,
    ToolCallDelta: ChatWriter._call,
    ToolStarted: ChatWriter._start,
    ToolFinished: ChatWriter._gather,
    Citation: ChatWriter._gather,
    UsageSeen: ChatWriter._gather,
    Finished: ChatWriter._finish,
    Failed: ChatWriter._fail,
}


def error_body(failed: Failed) -> bytes:
    return orjson.dumps({"error": failed.error})


class ChatDialect:
    """Chat Completions, and the errors of every path that has no dialect of its own."""

    citation_style: CitationStyle = "link"
    ping = PING
    id_headers = (REQUEST_ID,)

    def __init__(self, *, name: str = "chat", progress: bool = False) -> None:
        self.name = name
        self._progress = progress  # are searches shown as reasoning?

    async def decode(self, raw: bytes, owner: str, former: str = "") -> Decoded:
        request = await in_thread(decode, raw, is_long=True) if is_worth_a_thread(raw) else decode(raw)
        return Decoded(request, partial(ChatWriter, request, self._progress), "/chat/completions")

    def status(self, failed: Failed) -> int:
        return failed.status

    def error(self, failed: Failed) -> bytes:
        return error_body(failed)

    def error_event(self, failed: Failed) -> bytes:
        return encode(error_body(failed))


class _Body:
    """What the streamed and the whole answer have in common: its head, and what gathers until its end."""

    def __init__(self, request: ChatRequest) -> None:
        self._id = "chatcmpl-" + random_id()
        self._created = int(time.time())
        self._model = request.model
        self._fields: Mapping[str, Any] = {}
        self._sources: dict[int, Source] = {}
        self._cited: dict[int, Citation] = {}  # the first of each source
        self.annotations: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = _NO_USAGE

    def begin(self, event: Begun) -> None:
        self._model = event.model or self._model
        self._fields = event.fields

    def cite(self, event: Citation) -> None:
        self.annotations.append(annotation(event))
        self._cited.setdefault(event.source.n, event)

    def find(self, event: ToolFinished) -> None:
        for source in event.sources:
            self._sources[source.n] = source

    def count(self, event: UsageSeen) -> None:
        self.usage = {**_NO_USAGE, **event.usage}

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model, **self._fields}

    def extras(self) -> dict[str, Any]:
        """Perplexity's list of sources, for clients that read it: those cited first, in the order of their numbers."""
        found = {**self._cited, **self._sources}
        return {"search_results": [self._listed(n) for n in found]} if found else {}

    def _listed(self, n: int) -> dict[str, Any]:
        """A source under the title that it is cited by, with what proved its first citation."""
        cited = self._cited.get(n)
        source = cited.source if cited else self._sources[n]
        listed = {"title": source.title, "url": source.url, "date": source.date, "snippet": source.snippet}
        proved = {**listed, **(proof_fields(cited, place=False) if cited else {})}
        return {**proved, "basis": self._sources[n].basis} if n in self._sources else proved


_GATHERERS: dict[type, Callable[[_Body, Any], None]] = {
    Citation: _Body.cite,
    ToolFinished: _Body.find,
    UsageSeen: _Body.count,
}


def annotation(event: Citation) -> dict[str, Any]:
    place = {"start_index": event.start, "end_index": event.end, "url": event.source.url, "title": event.source.title}
    return {"type": "url_citation", "url_citation": {**place, **proof_fields(event)}}


def _call_delta(event: ToolCallDelta) -> dict[str, Any]:
    if not event.id:
        return {"index": event.index, "function": {"arguments": event.arguments}, **(event.extra or {})}
    function = {"name": event.name, "arguments": event.arguments}
    return {"index": event.index, "id": event.id, "type": "function", "function": function, **(event.extra or {})}


def _add_call(calls: list[dict[str, Any]], event: ToolCallDelta) -> None:
    if event.id:
        calls.append({"id": event.id, "type": "function", "function": {"name": event.name, "arguments": []}})
    call = calls[event.index]
    call["function"]["arguments"].append(event.arguments)
    if event.extra:
        merge_fields(call, event.extra)


def _whole_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": "".join(function["arguments"])}}


def progress_line(event: ToolStarted) -> str:
    """What our tool is about to do; nothing if the model made it up."""
    tool = tool_named(event.tool)
    return f"{tool.progress(event.arguments)}\n" if tool else ""

"""Chat Completions: `decode(body)` → ChatRequest; events → chunks (`Encoder`) or one body (`fold`); errors dressed.

Bad input is refused in `decode` and nowhere later. The encoder writes one id, one role chunk, one finishing chunk
with all annotations on it, and one `[DONE]`, however many rounds the answer took.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import orjson

from providers.apart import apart
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

_DEEPEST = 254  # what orjson writes; it reads deeper
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


# Request


def decode(raw: bytes) -> ChatRequest:
    body = json_object(raw)
    if raw.count(b"[") + raw.count(b"{") > _DEEPEST and not _can_be_sent(body):
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json")
    model, messages = body.get("model"), body.get("messages")
    if not isinstance(model, str) or not model:
        raise refuse(400, "`model` is missing: name the model that should answer.", param="model", code="missing_field")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        text = "`messages` must be a non-empty list of message objects."
        raise refuse(400, text, param="messages", code="invalid_type")
    check_length(messages, "messages")
    if not isinstance(body.get("stream"), bool | None):
        raise refuse(400, "`stream` must be true or false.", param="stream", code="invalid_type")
    if not isinstance(body.get("tools"), list | None):
        raise refuse(400, "`tools` must be a list.", param="tools", code="invalid_type")
    check_length(body.get("tools") or (), "tools", MOST_TOOLS)
    search, stripped = take_out_search(body)
    options = body.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    begun = said_since_question(messages)
    return ChatRequest(
        stripped,
        raw,
        model,
        bool(body.get("stream")),
        usage,
        search,
        changed=stripped is not body and stripped != body,
        begun=begun,
    )


def _can_be_sent(body: dict[str, Any]) -> bool:
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return False
    return True


# Answer


class Encoder:
    """Events → bytes for the wire. `feed(events)` per batch; what it returns is written in one go."""

    def __init__(self, request: ChatRequest, *, progress: bool = False) -> None:
        self._answer = _Body(request)
        self._usage_asked = request.include_usage
        self._progress = progress
        self._text_head = self._text_tail = b""

    def feed(self, events: Iterable[Event]) -> bytes:
        out = []
        for event in events:
            if isinstance(event, TextDelta):
                out.append(self._encode_text(event))
            else:
                out.append(self._encode(event))
        return b"".join(out)

    def _encode_text(self, event: TextDelta) -> bytes:
        """A chunk for each piece; where no quotation mark is in them, a comma between two stands between chunks."""
        head, tail = self._text_head, self._text_tail
        if not event.pieces:
            return head + orjson.dumps(event.text) + tail
        listed = orjson.dumps(event.pieces)[1:-1]
        if b'\\"' in listed:
            return b"".join([head + orjson.dumps(piece) + tail for piece in event.pieces])
        return head + listed.replace(b'","', b'"' + tail + head + b'"') + tail

    def _encode(self, event: Event) -> bytes:
        answer = self._answer
        if isinstance(event, Begun):
            answer.begin(event)
            whole = self._chunk({"content": 0})
            head, _, tail = whole.partition(b'"content":0')
            self._text_head, self._text_tail = head + b'"content":', tail
            return self._chunk({"role": "assistant", "content": "", "refusal": None})
        if isinstance(event, ReasoningDelta):
            return self._chunk(dict(event.fields))
        if isinstance(event, ToolCallDelta):
            return self._chunk({"tool_calls": [_call_delta(event)]})
        if isinstance(event, ToolStarted):
            line = progress_line(event) if self._progress else ""
            return self._chunk({"reasoning_content": line}) if line else b""
        if isinstance(event, Finished):
            return self._finish(event)
        if isinstance(event, Failed):
            return encode(error_body(event))
        answer.take(event)
        return b""

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


def fold(events: Iterable[Event], request: ChatRequest) -> bytes:
    """The same events as one body."""
    answer = _Body(request)
    text: list[str] = []
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    fields = GatheredFields()
    calls: list[dict[str, Any]] = []
    reason = "stop"
    for event in events:
        if isinstance(event, TextDelta):
            text.append(event.text)
        elif isinstance(event, Begun):
            answer.begin(event)
        elif isinstance(event, ReasoningDelta):
            fields.add(event.fields)
        elif isinstance(event, ToolCallDelta):
            _add_call(calls, event)
        elif isinstance(event, Finished):
            reason = event.reason
        else:
            answer.take(event)
    message |= fields.whole()
    if text or not calls:
        message["content"] = "".join(text)
    if calls:
        message["tool_calls"] = [_whole_call(call) for call in calls]
    if answer.annotations:
        message["annotations"] = answer.annotations
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    body = {**answer.head("chat.completion"), "choices": [choice], "usage": answer.usage, **answer.extras()}
    return orjson.dumps(body)


class ChatWriter:
    """An answer on its way out, streamed or whole. Nothing is kept of it here: chat clients bring their history."""

    def __init__(self, request: ChatRequest, *, progress: bool = False) -> None:
        self._request = request
        self._progress = progress
        self._encoder: Encoder | None = None  # a whole answer needs none

    def feed(self, events: Sequence[Event]) -> bytes:
        if self._encoder is None:
            self._encoder = Encoder(self._request, progress=self._progress)
        return self._encoder.feed(events)

    async def end(self, events: Sequence[Event]) -> bytes:
        return self.feed(events)

    async def whole(self, events: Sequence[Event]) -> bytes:
        return fold(events, self._request)


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

    async def decode(self, raw: bytes, owner: str) -> Decoded:
        request = await apart(len(raw), decode, raw)
        writer = partial(ChatWriter, request, progress=self._progress)
        return Decoded(request, writer, forward_to="/chat/completions")

    def status(self, failed: Failed) -> int:
        return failed.status

    def error(self, failed: Failed) -> bytes:
        return error_body(failed)

    def error_event(self, failed: Failed) -> bytes:
        return encode(error_body(failed))


class _Body:
    """What the streamed and the whole answer have in common: its head, and what gathers until its end."""

    def __init__(self, request: ChatRequest) -> None:
        self._id = "chatcmpl-" + secrets.token_hex(12)
        self._created = int(time.time())
        self._model = request.model
        self._fields: dict[str, Any] = {}
        self._sources: dict[int, Source] = {}
        self._cited: dict[int, Citation] = {}  # the first of each source
        self.annotations: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = dict(_NO_USAGE)

    def begin(self, event: Begun) -> None:
        self._model = event.model or self._model
        self._fields = dict(event.fields)

    def take(self, event: Event) -> None:
        if isinstance(event, Citation):
            self.annotations.append(annotation(event))
            self._cited.setdefault(event.source.n, event)
        elif isinstance(event, ToolFinished):
            self._sources.update((source.n, source) for source in event.sources)
        elif isinstance(event, UsageSeen):
            self.usage = {**_NO_USAGE, **event.usage}

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model, **self._fields}

    def extras(self) -> dict[str, Any]:
        """Perplexity's list of sources, for clients that read it: those cited first, in the order of their numbers."""
        found = [self._listed(n) for n in {**self._cited, **self._sources}]
        return {"search_results": found} if found else {}

    def _listed(self, n: int) -> dict[str, Any]:
        """A source under the title that it is cited by, with what proved its first citation."""
        cited = self._cited.get(n)
        source = cited.source if cited else self._sources[n]
        listed = {"title": source.title, "url": source.url, "date": source.date, "snippet": source.snippet}
        proved = {**listed, **(proof_fields(cited, place=False) if cited else {})}
        return {**proved, "basis": self._sources[n].basis} if n in self._sources else proved


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

"""Messages: events → the events of a message stream (`Encoder`), or one message (`message`). One machine makes both.

Blocks stand one behind the other, each begun, written and stopped before the next begins. Our searches, and text that
is cut behind each citation, are blocks for clients that named such a tool; for all others an answer is one text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from providers.random_ids import random_id
from tools.base import OPEN_PAGE, WEB_SEARCH

from ...values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from ...values.messages import answered_id, calls_in, text_of
from ..proof_fields import proof_fields
from .blocks import Block, CallBlock, PlainBlock, ServerCallBlock, TextBlock, ThinkingBlock
from .errors import error_event
from .found import ShownCalls, ToldCall, as_known
from .handles import Handles
from .history import OWN_SIGNATURE
from .request import MessagesRequest
from .usage import as_usage

LONGEST_QUOTE = 150  # characters, as this API has it
_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_SAID = (TextDelta, Citation, ReasoningDelta)
# Behind a marker these still belong to the sentence that it stands in.
_CLOSING = re.compile(r"""[.,;:!?…)\]}"'”’»*_~。、，；：！？）】」』》]+""")


class Encoder:
    """`feed(events)` per batch; `message` is the answer as it stands."""

    def __init__(self, request: MessagesRequest, handles: Handles) -> None:
        self._tools = request.tools
        self._thinks = request.thinks
        self._cites = bool(request.shown)
        self._stop_words = request.body.get("stop") or ()
        self._handles = handles
        self._head: dict[str, Any] = {
            "id": "msg_" + random_id(),
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._usage: dict[str, Any] = as_usage({})
        self._out: list[bytes] = []
        self._blocks: list[Block] = []
        self._open: Block | None = None
        self._position = 0  # in the whole text, in code points
        self._blank: list[str] = []  # white space that waits for text: alone it makes no block
        self._early: list[Citation] = []  # that came before there was any text
        self._calls: dict[int, CallBlock] = {}
        self._later: list[Event] = []  # what was said in the middle of a call
        most = {WEB_SEARCH: request.search.max_searches, OPEN_PAGE: request.search.max_pages}
        self._shown = ShownCalls(request.shown, most)

    @property
    def message(self) -> dict[str, Any]:
        return {**self._head, "content": [block.whole() for block in self._blocks], "usage": self._usage}

    def feed(self, events: Iterable[Event]) -> bytes:
        self._feed(events)
        out, self._out = b"".join(self._out), []
        return out

    def _feed(self, events: Iterable[Event]) -> None:
        text = ""
        for event in events:
            if self._shown.ended and not isinstance(event, ToolFinished | RoundFinished):
                self._show_results({})  # of a search before the question no round is told
            if self._is_calling and isinstance(event, _SAID):
                self._later.append(event)
            elif isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, Citation):
                if self._cites:
                    text = self._say_until(event.start, text)
                    self._cite(event)
            elif type(event) in _TAKERS:
                self._say(text)
                text = ""
                _TAKERS[type(event)](self, event)
        self._say(text)

    @property
    def _is_calling(self) -> bool:
        """Is a call of the client's half written? What the model says in its middle waits for its end."""
        return isinstance(self._open, CallBlock) and not self._open.is_complete

    def _say_later(self) -> None:
        if self._later:
            waited, self._later = self._later, []
            self._feed(waited)

    def _count(self, event: UsageSeen) -> None:
        self._usage = as_usage(event.usage)

    def _fail(self, event: Failed) -> None:
        self._out.append(error_event(event))

    def _begin(self, event: Begun) -> None:
        self._head["model"] = event.model or self._head["model"]
        self._send("message_start", message=self.message)

    def _send(self, kind: str, **fields: Any) -> None:
        payload = orjson.dumps({"type": kind, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), payload))

    # Blocks

    def _add(self, block: Block) -> None:
        self._close()
        self._blocks.append(block)
        self._open = block
        self._send("content_block_start", index=block.index, content_block=block.begun())

    def _delta(self, block: Block, kind: str, **fields: Any) -> None:
        self._send("content_block_delta", index=block.index, delta={"type": kind, **fields})

    def _close(self) -> None:
        block, self._open = self._open, None
        if block is None:
            return
        if isinstance(block, TextBlock):
            self._close_text(block)
        elif isinstance(block, ThinkingBlock) and not block.signature:
            self._sign(block, OWN_SIGNATURE)
        self._send("content_block_stop", index=block.index)

    # Text

    def _say_until(self, place: int, text: str) -> str:
        """The text up to a place in the answer; hands back what is behind it."""
        cut = max(0, min(place - self._position, len(text)))
        self._say(text[:cut])
        return text[cut:]

    def _say(self, text: str) -> None:
        if text:
            self._position += len(text)
            self._show(text)

    def _show(self, text: str) -> None:
        block = self._open
        if isinstance(block, TextBlock) and block.is_closing:
            closing = _CLOSING.match(text)
            if closing:
                self._write(block, closing[0])
                text = text[closing.end() :]
            if not text:
                return
            self._close()
        if isinstance(self._open, TextBlock):
            self._write(self._open, text)
            return
        self._blank.append(text)
        if not text.isspace():
            blank, self._blank = self._blank, []
            self._begin_text("".join(blank))

    def _begin_text(self, text: str) -> None:
        block = TextBlock(len(self._blocks))
        self._add(block)
        block.cited += [(citation, 0) for citation in self._early]
        self._early = []
        self._write(block, text)

    def _write(self, block: TextBlock, text: str) -> None:
        block.write(text)
        head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,' % block.index
        self._out.append(b'%b"delta":{"type":"text_delta","text":%b}}\n\n' % (head, orjson.dumps(text)))

    def _cite(self, citation: Citation) -> None:
        block = self._open
        if not isinstance(block, TextBlock):
            self._early.append(citation)
            return
        block.is_closing = True
        if not any(known.source == citation.source and place == block.length for known, place in block.cited):
            block.cited.append((citation, block.length))

    def _close_text(self, block: TextBlock) -> None:
        """A citation goes into its block behind the text, while that is still open."""
        for citation, place in block.cited:
            shown = self._shown_citation(citation, block.length - place)
            block.citations.append(shown)
            self._delta(block, "citations_delta", citation=shown)

    def _shown_citation(self, citation: Citation, behind: int) -> dict[str, Any]:
        """This API always has a `cited_text`: where nothing matches, a title stands in for it."""
        source, proof = citation.source, citation.proof
        known = {**as_known(source), "snippet": proof.quote, "basis": proof.basis or "snippet", "behind": behind}
        marked = {"auto": True} if citation.auto else {}
        return {
            "type": "web_search_result_location",
            "url": source.url,
            "title": source.title,
            "encrypted_index": self._handles.seal({**known, **marked}),
            "cited_text": source.title[:LONGEST_QUOTE],
            **proof_fields(citation),
        }

    # Thinking

    def _reason(self, event: ReasoningDelta) -> None:
        """Of all that is no text and no call, thoughts and refusals have a place here."""
        refusal = event.fields.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._show(refusal)  # no part of the text in which citations have their places
        if not self._thinks:
            return
        signed = event.fields.get("thinking_blocks")
        if isinstance(signed, list) and signed:
            for block in signed:
                self._take_signed(block)
        elif thought := event.text:
            self._think(thought)

    def _think(self, thought: str) -> None:
        if not isinstance(self._open, ThinkingBlock):
            self._add(ThinkingBlock(len(self._blocks)))
        block = self._open
        assert isinstance(block, ThinkingBlock)
        block.text.append(thought)
        self._delta(block, "thinking_delta", thinking=thought)

    def _take_signed(self, block: Any) -> None:
        """A block as its vendor wants it back. What there is to read of it may have been sent already."""
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "redacted_thinking":
            self._add(PlainBlock(len(self._blocks), block))
            self._close()
        elif kind == "thinking":
            if not isinstance(self._open, ThinkingBlock) and (thought := str(block.get("thinking") or "")):
                self._think(thought)
            if isinstance(self._open, ThinkingBlock):
                self._sign(self._open, str(block.get("signature") or ""))
                self._close()

    def _sign(self, block: ThinkingBlock, signature: str) -> None:
        block.signature = signature
        self._delta(block, "signature_delta", signature=signature)

    # Calls of the client's tools

    def _call(self, event: ToolCallDelta) -> None:
        """One call after the other. A server that mixes the pieces of several has the later ones wait."""
        block = self._calls.get(event.index)
        if block is None:
            block = self._calls[event.index] = CallBlock(-1, event.id, self._tools.called(event.name))
        shown = block.write(event.arguments)
        if block is self._open:
            self._write_call(block, shown)
        elif block.index < 0 and not self._is_calling:
            self._begin_call(block)
        if not self._is_calling:
            self._say_later()

    def _begin_call(self, block: CallBlock) -> None:
        block.index = len(self._blocks)
        self._add(block)
        self._write_call(block, "".join(block.arguments))

    def _write_call(self, block: CallBlock, arguments: str) -> None:
        if arguments:
            self._delta(block, "input_json_delta", partial_json=arguments)

    def _begin_waiting_calls(self) -> None:
        """No more comes of any call: what waited for one to end need not wait longer."""
        for block in self._calls.values():
            if block.index < 0:
                self._begin_call(block)
        if isinstance(self._open, CallBlock):
            self._close()
        self._say_later()

    # Calls of ours

    def _start(self, event: ToolStarted) -> None:
        self._begin_waiting_calls()
        for block in self._shown.start(event, len(self._blocks)):
            self._add(block)
            self._delta(block, "input_json_delta", partial_json=orjson.dumps(block.input).decode())
        if isinstance(self._open, ServerCallBlock):
            self._close()

    def _finish_tool(self, event: ToolFinished) -> None:
        self._shown.finish(event)

    def _finish_round(self, event: RoundFinished) -> None:
        """What the model read of our results is known now: they are shown."""
        self._begin_waiting_calls()
        self._show_results(_told(event))

    def _show_results(self, told: Mapping[str, ToldCall]) -> None:
        for call in self._shown.take(told):
            for result in call.results(self._handles):
                self._add(PlainBlock(len(self._blocks), result))
                self._close()

    # The end

    def _finish(self, event: Finished) -> None:
        self._begin_waiting_calls()
        self._show_results({})
        self._close()
        ended: dict[str, Any] = {"stop_reason": _REASONS.get(event.reason, "end_turn"), "stop_sequence": None}
        if event.reason == "stop" and event.stop_word in self._stop_words:  # servers have words of their own as well
            ended = {"stop_reason": "stop_sequence", "stop_sequence": event.stop_word}
        self._head |= ended
        self._send("message_delta", delta=ended, usage=self._usage)
        self._send("message_stop")


_TAKERS: dict[type, Callable[[Encoder, Any], None]] = {
    Begun: Encoder._begin,
    ReasoningDelta: Encoder._reason,
    ToolCallDelta: Encoder._call,
    ToolStarted: Encoder._start,
    ToolFinished: Encoder._finish_tool,
    RoundFinished: Encoder._finish_round,
    UsageSeen: Encoder._count,
    Finished: Encoder._finish,
    Failed: Encoder._fail,
}


def _told(event: RoundFinished) -> dict[str, ToldCall]:
    written = {call["id"]: call["function"]["arguments"] for said in event.messages for call in calls_in(said)}
    results = [(answered_id(said), text_of(said)) for said in event.messages if answered_id(said)]
    return {id_: ToldCall(written.get(id_, ""), text) for id_, text in results}

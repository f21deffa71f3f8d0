"""An answer as the Responses API tells it. Handed events of the house; hands on frames of a response stream, and the
response object as it stands after them, which at the end is a whole answer. Pure: however the events are cut, the bytes
are the same.

Text before a call is a message of its own, our searches are `web_search_call` items for clients
that know such a tool, every item keeps its id and its place from its first event to the final object, and nothing of
ours is listed among the tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from tools.ledger import KnownSource, known

from ...values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    RoundFinished,
    StepTold,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from .frames import end_frame, frame
from .history import KnownItem
from .output import CALLS, Called, Item, Kind, Said, Searched, actions, as_usage, tool_usage
from .request import ResponsesRequest
from .rounds import AnswerRounds

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Encoder:
    """Events → bytes for the wire. `feed(events)` per batch; `response` is the object as it stands."""

    def __init__(self, request: ResponsesRequest, response_id: str) -> None:
        self._include = request.include
        self._tools = request.tools
        self._shows_searches = request.shows_searches
        self._head: dict[str, Any] = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            **request.echo,
        }
        self._out: list[bytes] = []
        self._sent = 0  # events so far
        self._over = False
        self._items: list[Item] = []
        self._open: Said | None = None  # the text that is being written
        self._blank: tuple[Kind, str] = ("output_text", "")  # white space that waits for text to begin
        self._position = 0  # in the whole answer, in code points
        self._called: dict[int, Called] = {}
        self._running: dict[str, list[Searched]] = {}
        self._usage: Mapping[str, Any] | None = None
        self._calls: dict[str, str] = {}  # id of a `web_search_call` → id of our call behind it
        # How far the output was when the round began: the number of items, the open one and how much it said.
        self._round_began: tuple[int, Said | None, int] = 0, None, 0
        self.rounds = AnswerRounds(response_id, request.tools)
        self.sources: dict[int, KnownSource] = {}  # all that was found or cited

    @property
    def response(self) -> dict[str, Any]:
        usage = self._usage or {}
        counted = {"usage": None if self._usage is None else as_usage(usage), "tool_usage": tool_usage(usage)}
        return {**self._head, "output": [item.item() for item in self._items], **counted}

    @property
    def status(self) -> str:
        return str(self._head["status"])

    @property
    def known_items(self) -> list[KnownItem]:
        return self.rounds.known(self._items)

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if type(event) is TextDelta and self._open is not None and self._open.kind == "output_text":
                self._position += len(event.text)
                self._write(self._open, event.text)
            elif type(event) in _TAKERS and not self._over:
                _TAKERS[type(event)](self, event)
        return self._taken()

    def _taken(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out

    def _take_text(self, event: TextDelta) -> None:
        self._position += len(event.text)
        self._say("output_text", event.text)

    def _count(self, event: UsageSeen) -> None:
        self._usage = event.usage

    def _finish(self, event: Finished) -> None:
        self._close_answer(event.reason)
        self._send_end()

    def queue(self) -> bytes:
        """What is made in the background says so before anybody was asked."""
        self._head["status"] = "queued"
        self._send("response.created", response=self.response)
        self._send("response.queued", response=self.response)
        return self._taken()

    def _begin_answer(self, event: Begun) -> None:
        self._head["status"] = "in_progress"
        self._head["model"] = event.model or self._head["model"]
        self._head["service_tier"] = event.fields.get("service_tier") or self._head["service_tier"]
        if not self._sent:
            self._send("response.created", response=self.response)
        self._send("response.in_progress", response=self.response)

    def _show_step(self, event: StepTold) -> None:
        if not self._sent:  # clients want to hear of the response first, whatever else they hear
            self._send("response.created", response=self.response)
        self._send("groundwire.step", step=event.fields)

    def _send(self, kind: str, **fields: Any) -> None:
        self._out.append(frame(kind, self._sent, **fields))
        self._sent += 1

    def _send_end(self) -> None:
        self._over, self._open = True, None
        self._out.append(end_frame(self.response, self._sent))
        self._sent += 1

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self._send("response.output_item.added", output_index=item.index, item=item.item())

    def _done(self, item: Item) -> None:
        self._send("response.output_item.done", output_index=item.index, item=item.item())

    # Text

    def _think(self, event: ReasoningDelta) -> None:
        """Of all that is no text and no call, thoughts and refusals have a place here."""
        if thought := event.text:
            self._say("reasoning", thought)
        if isinstance(refusal := event.fields.get("refusal"), str) and refusal:
            self._say("refusal", refusal)

    def _say(self, kind: Kind, text: str) -> None:
        said = self._open
        if said is not None and said.kind == kind:
            self._write(said, text)
            return
        # Models write blank lines before calls and between thinking and answering: those alone make no item.
        waited, blank = self._blank
        self._blank = kind, blank + text if waited == kind else text
        if text and not text.isspace():
            self._begin(kind)

    def _begin(self, kind: Kind) -> Said:
        """Opens an item and writes what waited. What parts that from the text of another item is no part of it."""
        self._close()
        waited, text = self._blank
        text = text if waited == kind else ""
        self._blank = kind, ""
        if kind != "output_text" or any(isinstance(item, Said) and item.kind == kind for item in self._items):
            written = text.lstrip()
            text = text[: len(text) - len(written)].rpartition("\n")[2] + written
        said = self._open = Said(kind, len(self._items), self._position - len(text))
        self._add(said)
        self._send(f"{said.part_event}.added", **said.place, part=said.part())
        if text:
            self._write(said, text)
        return said

    def _write(self, said: Said, text: str) -> None:
        said.text.append(text)
        self._out.append(b'%b%b,"sequence_number":%d}\n\n' % (said.delta, orjson.dumps(text), self._sent))
        self._sent += 1

    def _cite(self, event: Citation) -> None:
        self.sources |= known([event.source])
        said = self._open
        if said is None or said.kind != "output_text":  # a marker that is not shown, before any text
            said = self._begin("output_text")
        count = len(said.annotations)
        added = {"annotation_index": count, "annotation": said.cite(event)}
        self._send("response.output_text.annotation.added", **said.place, **added)

    def _close(self, status: str = "completed") -> None:
        said, self._open = self._open, None
        if said is None:
            return
        said.status = status
        self._send(f"{said.text_event}.done", **said.place, **said.said, **said.logprobs)
        self._send(f"{said.part_event}.done", **said.place, part=said.part())
        self._done(said)

    # Calls

    def _break_off(self) -> None:
        """A call begins: the text is over, and blanks that waited for more of it are nothing."""
        self._close()
        self._blank = "output_text", ""

    def _call(self, event: ToolCallDelta) -> None:
        if event.id:
            self._break_off()
            tool = self._tools.tool_called(event.name)
            self._called[event.index] = CALLS[tool.kind](len(self._items), event.id, tool)
            self._add(self._called[event.index])
        called = self._called[event.index]
        if event.arguments:
            self._write_call(called, called.write(event.arguments))

    def _write_call(self, called: Called, text: str) -> None:
        if text:
            self._send(f"{called.event}.delta", **called.place, delta=text)

    def _close_call(self, called: Called, status: str) -> None:
        self._write_call(called, called.end())
        called.status = status
        if called.event:
            self._send(f"{called.event}.done", **called.place, **called.whole)
        self._done(called)

    def _start(self, event: ToolStarted) -> None:
        shown = actions(event)
        if not shown:
            return
        self._break_off()
        if not self._shows_searches:
            return
        self._running[event.id] = []
        for action in shown:
            searched = Searched(len(self._items), action)
            self._running[event.id].append(searched)
            self._calls[searched.id] = event.id
            self._add(searched)
            self._send("response.web_search_call.in_progress", **searched.place)
            searched.status = "searching"
            self._send("response.web_search_call.searching", **searched.place)

    def _finish_tool(self, event: ToolFinished) -> None:
        self.sources |= known(event.sources)
        for searched in self._running.pop(event.id, ()):
            searched.status = "completed" if event.ok else "failed"
            searched.found(event.sources, self._include)
            if event.ok:
                self._send("response.web_search_call.completed", **searched.place)
            self._done(searched)

    # The end

    def _finish_round(self, event: RoundFinished) -> None:
        """What was written since the last round belongs to this one; text that goes on, to both."""
        count, said, size = self._round_began
        items = self._items[count:]
        if said is not None and len(said.text) > size:
            items.insert(0, said)
        self.rounds.finish(event.messages, items, self._calls)
        self._round_began = len(self._items), self._open, len(self._open.text) if self._open else 0

    def close(self, events: Sequence[Event]) -> bytes:
        """The last batch, all but the event that says that the response is complete: what it holds is settled now."""
        finished = events[-1]
        assert isinstance(finished, Finished)
        data = self.feed(events[:-1])
        self._close_answer(finished.reason)
        return data + self._taken()

    def complete(self, *, stored: bool) -> bytes:
        """The event that was left out. What could not be stored says so."""
        self._head["store"] = stored
        self._send_end()
        return self._taken()

    def _close_answer(self, reason: str) -> None:
        cut = _CUT.get(reason)
        if not cut and not any(isinstance(item, Called) or _is_message(item) for item in self._items):
            self._begin("output_text")  # an empty answer is a message: without one, agents ask for ever
        last = self._items[-1] if self._items else None  # what a limit cuts short is what was written last
        self._close("incomplete" if cut and self._open is last else "completed")
        for called in self._called.values():
            self._close_call(called, "incomplete" if cut and called is last else "completed")
        self._usage = self._usage or {}
        if cut:
            self._head |= {"status": "incomplete", "incomplete_details": {"reason": cut}}
        else:
            self._head |= {"status": "completed", "completed_at": int(time.time())}

    def _fail(self, event: Failed) -> None:
        """The error as clients raise it, then the response as far as it came. What was open stays undone."""
        error = event.error
        if not self._sent:  # it is all that there is, in a stream that pings have begun
            self._begin_answer(Begun())
        self._leave_undone()
        kind, message = str(error.get("type") or "server_error"), str(error.get("message") or "")
        code = str(error.get("code") or kind)
        self._head |= {"status": "failed", "error": {"code": code, "message": message, "type": kind}}
        param = error.get("param")
        told = {"type": kind, "code": code, "message": message, "param": None if param is None else str(param)}
        self._send("error", error=told)
        self._send_end()

    def cancel(self) -> bytes:
        self._leave_undone()
        self._head["status"] = "cancelled"
        self._send_end()
        return self._taken()

    def _leave_undone(self) -> None:
        for item in self._items:
            if item.status in ("in_progress", "searching"):
                item.status = "failed" if isinstance(item, Searched) else "incomplete"


_TAKERS: dict[type, Callable[[Encoder, Any], None]] = {
    Begun: Encoder._begin_answer,
    TextDelta: Encoder._take_text,
    Citation: Encoder._cite,
    ReasoningDelta: Encoder._think,
    ToolCallDelta: Encoder._call,
    ToolStarted: Encoder._start,
    ToolFinished: Encoder._finish_tool,
    RoundFinished: Encoder._finish_round,
    UsageSeen: Encoder._count,
    Finished: Encoder._finish,
    Failed: Encoder._fail,
    StepTold: Encoder._show_step,
}


def _is_message(item: Item) -> bool:
    return isinstance(item, Said) and item.kind != "reasoning"

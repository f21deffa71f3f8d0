"""What the fakes of vendors' own APIs share: sockets and turns as in `model.py`, another wire on top. A vendor says how
a turn looks on its wire and what a request to it must look like; a request that breaks a rule is refused as the vendor
refuses it, and noted in `complaints`. `ModelLane` and `hear` are the other end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.upstreams.transport import Transport
from proxy.values.events import (
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageSeen,
    merge_fields,
)
from tests.fakes.model import ModelServer, Turn, chunks, finish_of


class VendorServer(ModelServer):
    stream_type = "text/event-stream"

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    def script(self, *turns: Turn) -> None:
        super().script(*turns)
        self.complaints.clear()

    # What a vendor says

    def pieces(self, turn: Turn) -> Iterator[bytes]:
        """A turn as the pieces of a streamed body."""
        raise NotImplementedError

    def answer(self, turn: Turn) -> dict[str, Any]:
        """A turn as one body."""
        raise NotImplementedError

    def error(self, status: int, message: str) -> dict[str, Any]:
        raise NotImplementedError

    def break_off(self, message: str) -> bytes:
        """An error in the middle of a streamed body."""
        raise NotImplementedError

    def rules(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[tuple[object, str]]:
        """What must hold of a request, each with the complaint if it does not."""
        raise NotImplementedError

    def is_stream(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))

    # Turns that go wrong, in the vendor's own words

    def refusal(self, status: int, message: str, **more: Any) -> Turn:
        return Turn(status=status, body=json.dumps(self.error(status, message)).encode(), **more)

    def broken(self, turn: Turn, message: str) -> Turn:
        """The pieces of a turn up to its last text, then an error."""
        body = b"".join(self.unfinished(turn)) + self.break_off(message)
        return Turn(body=body, content_type=self.stream_type)

    def unfinished(self, turn: Turn) -> list[bytes]:
        pieces = list(self.pieces(replace(turn, finish=None)))
        last = max(at for at, piece in enumerate(pieces) if turn.text[-1].encode() in piece)
        return pieces[: last + 1]

    # The wire

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ", 2)[1]
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(raw or b"{}")
        self.paths.append(path)
        self.heads.append(headers)
        self.raw.append(raw)
        self.requests.append(body)
        turn = self._turns[min(len(self.requests), len(self._turns)) - 1]
        complaint = next((text for holds, text in self.rules(path, headers, body) if not holds), "")
        if complaint:
            self.complaints.append(complaint)
            turn = self.refusal(400, complaint)
        watcher = asyncio.create_task(self._watch(reader))
        try:
            if turn.body is not None:
                kind = turn.content_type
                await self._send_whole(writer, turn.status, turn.body, kind, turn.headers, turn.halved)
            elif self.is_stream(path, body):
                return await self._send_pieces(writer, turn)
            else:
                await self._send_whole(writer, 200, json.dumps(self.answer(turn)).encode(), "application/json")
        finally:
            watcher.cancel()
        return True

    async def _send_pieces(self, writer: asyncio.StreamWriter, turn: Turn) -> bool:
        kind = self.stream_type.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)
        for piece in self.pieces(turn) if turn.end == "done" else self.unfinished(turn):
            await asyncio.sleep(turn.delay)
            if writer.is_closing():
                self.left.set()
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            self.sent_pieces += 1
        if turn.end == "hang":
            await asyncio.sleep(60)
        if turn.end == "reset":
            await asyncio.sleep(0.05)
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def arguments_of(given: object) -> dict[str, Any]:
    value = json.loads(given) if isinstance(given, str) else given
    assert isinstance(value, dict)
    return value


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def reason_of(turn: Turn, names: dict[str, str]) -> str:
    """The vendor's word for why a turn ends."""
    return names[finish_of(turn) or "stop"]


@dataclass(frozen=True)
class ModelLane:
    """An upstream and the server at its far end, whichever wire they speak."""

    name: str
    model: str
    server: ModelServer
    upstream: Callable[..., Transport]

    @property
    def vendor(self) -> VendorServer | None:
        return self.server if isinstance(self.server, VendorServer) else None

    def refusal(self, status: int, message: str, **more: Any) -> Turn:
        if self.vendor:
            return self.vendor.refusal(status, message, **more)
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return Turn(status=status, body=json.dumps({"error": error}).encode(), **more)

    def broken(self, turn: Turn, message: str) -> Turn:
        if self.vendor:
            return self.vendor.broken(turn, message)
        said: list[dict[str, Any]] = [*chunks(turn)[:-2], {"error": {"message": message, "code": 503}}]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in said)
        return Turn(body=body.encode(), content_type="text/event-stream")


@dataclass
class Heard:
    """What a stream of events says, whatever pieces it came in."""

    text: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str = ""
    failed: Failed | None = None
    kinds: list[type] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.kinds += [type(event)] * (len(event.cut) if isinstance(event, TextDelta) else 1)
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ReasoningDelta):
            merge_fields(self.fields, event.fields)
        elif isinstance(event, ToolCallDelta):
            made = {"id": event.id, "name": event.name, "arguments": "", "extra": {}}
            known = self.calls.setdefault(event.index, made)
            known["arguments"] += event.arguments
            merge_fields(known["extra"], event.extra or {})
        elif isinstance(event, UsageSeen):
            self.usage = dict(event.usage)
        elif isinstance(event, Finished):
            self.finish = event.reason
        elif isinstance(event, Failed):
            self.failed = event

    @property
    def called(self) -> list[tuple[str, Any]]:
        return [(known["name"], json.loads(known["arguments"])) for known in self.calls.values()]

    def as_message(self) -> dict[str, Any]:
        """The turn as the loop puts it into the next request."""
        calls = [
            {
                "id": known["id"],
                "type": "function",
                "function": {"name": known["name"], "arguments": known["arguments"]},
                **known["extra"],
            }
            for known in self.calls.values()
        ]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls, **self.fields}


async def hear(upstream: Transport, asked: dict[str, Any], headers: dict[str, str] | None = None) -> Heard:
    heard = Heard()
    async with aclosing(upstream.stream(asked, headers or {})) as batches:
        async for events in batches:
            for event in events:
                heard.add(event)
    return heard

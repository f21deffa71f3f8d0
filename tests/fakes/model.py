"""A scripted model server on loopback: speaks Chat Completions over raw sockets, so that every cut, stall and reset of
a real server can be played. A test hands it turns; it answers one request with each and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True)
class Turn:
    """One answer. Text pieces become one chunk each; every call is cut in two fragments."""

    text: Sequence[str] = ()
    calls: Sequence[tuple[str, str, object]] = ()  # id, name, arguments (an object, or text as it is)
    reasoning: Sequence[str] = ()
    finish: str | None = ""  # "": what fits
    usage: dict[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    delay: float = 0.0  # before every piece of text
    end: Literal["done", "eof", "reset", "hang"] = "done"
    status: int = 200
    body: bytes | None = None  # instead of an answer; any `end` but "done" then closes the connection
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    glued: bool = False  # all events in one network write
    late_end: bool = False  # the end of the body comes a moment after its last event
    halved: bool = False  # `body` comes in two pieces
    bytewise: bool = False  # `body` comes one byte per network write
    pieces: Callable[[], Iterable[bytes | float]] | None = None  # instead of an answer: bytes, and seconds between them


def text(*pieces: str, **more: Any) -> Turn:
    return Turn(text=pieces, **more)


def call(name: str, arguments: object, id: str = "call_1", **more: Any) -> Turn:  # noqa: A002
    return Turn(calls=[(id, name, arguments)], **more)


class ModelServer:
    """`with ModelServer() as model: model.script(call(…), text(…))`. The last turn repeats."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.raw: list[bytes] = []
        self.left = threading.Event()  # somebody hung up on an answer
        self.sent_pieces = 0
        self.connections = 0
        self.answering = 0  # answers under way
        self.listing: list[dict[str, Any]] = [
            {"id": name, "object": "model", "created": 1, "owned_by": "test"} for name in ("m", "vendor/m")
        ]
        self.props: dict[str, Any] | None = None  # what llama.cpp says of itself
        self.asked: dict[str, list[dict[str, Any]]] = {}  # the requests for every model that has a part of its own
        self._turns: list[Turn] = []
        self._parts: dict[str, Sequence[Turn]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def script(self, *turns: Turn) -> None:
        self._turns = list(turns)
        self.requests.clear()
        self.heads.clear()
        self.paths.clear()
        self.raw.clear()
        self.left.clear()
        self.sent_pieces = 0

    def part(self, model: str, *turns: Turn) -> None:
        """What one model answers, whatever is scripted for the others: many can play at the same time."""
        self._parts[model] = turns
        self.asked[model] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._hang_up()

    def hang_up(self) -> None:
        """Closes every connection, those too on which nothing is asked just now."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(5)

    async def _hang_up(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET" and path.endswith("/models"):
            listing = json.dumps({"object": "list", "data": self.listing}).encode()
            await self._send_whole(writer, 200, listing, "application/json")
            return True
        if method == "GET" and path == "/props" and self.props is not None:
            await self._send_whole(writer, 200, json.dumps(self.props).encode(), "application/json")
            return True
        self.paths.append(path)
        self.heads.append(headers)
        self.raw.append(raw)
        body = json.loads(raw or b"{}") if headers.get("content-type", "").startswith("application/json") else {}
        self.requests.append(body)
        turn = self.turn_for(body)
        answer = asyncio.create_task(self._answer(writer, turn, streamed=bool(body.get("stream"))))
        watcher = asyncio.create_task(self._watch(reader))
        self.answering += 1
        try:
            await asyncio.wait({answer, watcher}, return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.result()
        except ConnectionError:
            self.left.set()
            raise
        finally:
            self.answering -= 1
            watcher.cancel()
            answer.cancel()
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may see us hang up

    def turn_for(self, body: dict[str, Any]) -> Turn:
        turns: Sequence[Turn] = self._turns
        requests = self.requests
        if (model := body.get("model")) in self._parts:
            turns, requests = self._parts[model], self.asked[model]
            requests.append(body)
        return turns[min(len(requests), len(turns)) - 1]

    async def _answer(self, writer: asyncio.StreamWriter, turn: Turn, *, streamed: bool) -> bool:
        """Whether the connection can be used again."""
        if turn.pieces is not None:
            return await self._send_pieces(writer, turn, turn.pieces())
        if turn.body is not None:
            cuts = {"halved": turn.halved, "bytewise": turn.bytewise}
            await self._send_whole(writer, turn.status, turn.body, turn.content_type, turn.headers, **cuts)
            return turn.end == "done"
        if streamed:
            return await self._send_stream(writer, turn)
        for _ in turn.text:
            await asyncio.sleep(turn.delay)
        if turn.end == "hang":
            await asyncio.sleep(60)
        if turn.end == "reset":
            writer.transport.abort()
            return False
        await self._send_whole(writer, turn.status, json.dumps(whole(turn)).encode(), "application/json")
        return True

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        while not reader.at_eof():
            await asyncio.sleep(0.02)
        self.left.set()

    async def _send_whole(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        body: bytes,
        kind: str,
        more: dict[str, str] | None = None,
        halved: bool = False,
        bytewise: bool = False,
    ) -> None:
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        if halved:
            writer.write(head.encode() + body[: len(body) // 2])
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(body[len(body) // 2 :])
        elif bytewise:
            writer.write(head.encode())
            for at in range(len(body)):
                await asyncio.sleep(0.2 if at == 1 else 0)  # the first read, at least, sees one byte and no more
                writer.write(body[at : at + 1])
                await writer.drain()
        else:
            writer.write(head.encode() + body)
        await writer.drain()

    async def _send_pieces(self, writer: asyncio.StreamWriter, turn: Turn, pieces: Iterable[bytes | float]) -> bool:
        head = f"HTTP/1.1 {turn.status} X\r\nContent-Type: {turn.content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
                self.sent_pieces += 1
        return await self._end(writer, turn)

    async def _send_stream(self, writer: asyncio.StreamWriter, turn: Turn) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        events = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode() for chunk in chunks(turn)]
        if turn.end == "done":
            events.append(b"data: [DONE]\n\n")
        if turn.glued:
            events = [b"".join(events)]
        for event in events:
            if turn.delay and b'"content"' in event:
                await asyncio.sleep(turn.delay)
            if writer.is_closing():
                self.left.set()
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            self.sent_pieces += 1
        return await self._end(writer, turn)

    async def _end(self, writer: asyncio.StreamWriter, turn: Turn) -> bool:
        if turn.end == "hang":
            await asyncio.sleep(60)
        if turn.end == "reset":
            await asyncio.sleep(0.05)
            writer.transport.abort()
            return False
        if turn.late_end:
            await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def finish_of(turn: Turn) -> str | None:
    return ("tool_calls" if turn.calls else "stop") if turn.finish == "" else turn.finish


def chunks(turn: Turn) -> list[dict[str, Any]]:
    """The stream of a turn as OpenAI sends it."""
    head = {"id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 1700000000, "model": "m-1"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    out = [chunk({"role": "assistant", "content": ""})]
    out += [chunk({"reasoning_content": piece}) for piece in turn.reasoning]
    out += [chunk({"content": piece}) for piece in turn.text]
    for index, (call_id, name, arguments) in enumerate(turn.calls):
        given = arguments if isinstance(arguments, str) else json.dumps(arguments)
        first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        out.append(chunk({"tool_calls": [first]}))
        middle = len(given) // 2
        for piece in (given[:middle], given[middle:]):
            out.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    finish = finish_of(turn)
    if finish is not None:
        out.append(chunk({}, finish))
    if turn.usage is not None:
        out.append({**head, "choices": [], "usage": turn.usage})
    return out


def whole(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(turn.text) or None}
    if turn.reasoning:
        message["reasoning_content"] = "".join(turn.reasoning)
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
            }
            for call_id, name, a in turn.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(turn)}
    return {
        "id": "chatcmpl-up",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m-1",
        "choices": [choice],
        "usage": turn.usage,
    }

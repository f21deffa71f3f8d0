"""A model and a search engine that fail now and then, for the soak: asyncio, in the process of who asks, so that both
know which answers were spoilt. Handed a share of faults; answers Chat Completions and SearXNG's API on loopback.
"""

import asyncio
import json
import random
import re
from collections import Counter
from contextlib import suppress

PIECES = 40
FAULTS = ("reset", "stall", "500", "garbage", "truncated", "html")
STALL = 6.0  # seconds; longer than the idle limit of the soak's config


class FaultyServer:
    """`spoilt` holds the numbers of the questions that got a fault; a question says its own: `number 17`."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._random = random.Random(7)
        self.spoilt: set[int] = set()
        self.faults: Counter[str] = Counter()
        self.answers = self.searches = 0
        self.url = ""

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.I)
                body = await reader.readexactly(int(length[1])) if length else b""
                if head.startswith(b"GET"):
                    await self._find(writer)
                else:
                    await self._answer(writer, json.loads(body))
        writer.close()

    async def _find(self, writer: asyncio.StreamWriter) -> None:
        self.searches += 1
        if self._random.random() < self._share:
            self.faults["search"] += 1
            await _send(writer, b"{}", status=b"503 Busy")
            return
        found = [{"title": f"Page {n}", "url": f"https://e{n}.example/", "content": "Blue."} for n in range(5)]
        await _send(writer, json.dumps({"results": found}).encode())

    async def _answer(self, writer: asyncio.StreamWriter, asked: dict) -> None:
        self.answers += 1
        if self._random.random() < self._share:
            kind = self._random.choice(FAULTS)
            self.faults[kind] += 1
            self.spoilt.add(_number(asked))
            await self._fail(writer, kind, streamed=bool(asked.get("stream")))
        elif _wants_search(asked):
            await self._say(writer, asked, calls=True)
        else:
            await self._say(writer, asked, calls=False)

    async def _say(self, writer: asyncio.StreamWriter, asked: dict, *, calls: bool) -> None:
        query = json.dumps({"query": f"sky {self._random.randrange(2000)}"})
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "web_search", "arguments": query}}
        finish = "tool_calls" if calls else "stop"
        if not asked.get("stream"):
            message = {"role": "assistant", "content": None if calls else "Blue [1]. " * PIECES}
            if calls:
                message["tool_calls"] = [call]
            choice = {"index": 0, "message": message, "finish_reason": finish}
            await _send(writer, json.dumps({"id": "x", "model": "m", "choices": [choice], "usage": _USAGE}).encode())
            return
        await _begin_stream(writer)
        deltas = [{"tool_calls": [call]}] if calls else [{"content": "Blue [1]. "}] * PIECES
        for delta in deltas:
            await _piece(writer, _event(delta, None))
            await asyncio.sleep(0.002)
        await _piece(writer, _event({}, finish) + b"data: [DONE]\n\n")
        await _piece(writer, b"")

    async def _fail(self, writer: asyncio.StreamWriter, kind: str, *, streamed: bool) -> None:
        if kind == "500":
            await _send(writer, b'{"error":{"message":"broken"}}', status=b"500 Broken")
            return
        if kind == "html":
            await _send(writer, b"<html>Bad gateway</html>", kind=b"text/html")
            return
        if streamed:
            await _begin_stream(writer)
            await _piece(writer, _event({"content": "Half an "}, None))
        if kind == "stall":
            await asyncio.sleep(STALL)
        if kind == "garbage" and streamed:
            await _piece(writer, b"data: {not json\n\n")
        if kind == "truncated" and streamed:
            await _piece(writer, b"")
            return
        writer.transport.abort()
        raise ConnectionResetError


_USAGE = {"prompt_tokens": 20, "completion_tokens": 80, "total_tokens": 100}


def _number(asked: dict) -> int:
    found = re.search(r"number (\d+)", json.dumps(asked.get("messages")))
    return int(found[1]) if found else -1


def _wants_search(asked: dict) -> bool:
    offered = any(tool["function"]["name"] == "web_search" for tool in asked.get("tools") or ())
    return offered and all(message.get("role") != "tool" for message in asked["messages"])


def _event(delta: dict, finish: str | None) -> bytes:
    chunk = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def _begin_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")


async def _piece(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()


async def _send(
    writer: asyncio.StreamWriter, body: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json"
) -> None:
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body))
    writer.write(head + body)
    await writer.drain()

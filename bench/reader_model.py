"""A model that opens pages, and the pages: what the burdens of `lags.py` are made with. Handed a port; answers Chat
Completions and large web pages on loopback until it is ended.

The user's message names the addresses to open and what to look for in them: `open URL [URL …] about WORDS`. The second
answer cites the pages in many sentences, so that each has to be proved. `say KIND` brings an answer of that kind.
"""

import asyncio
import json
import random
import re
import sys
from contextlib import suppress
from typing import Any

PAGE = 2_000_000  # bytes
SENTENCES = 400
WORDS = (
    "energy",
    "solar",
    "panel",
    "grid",
    "storage",
    "battery",
    "power",
    "price",
    "market",
    "turbine",
    "wind",
    "report",
)


def prose(sentences: int, seed: int) -> str:
    dice = random.Random(seed)
    said = (f"In {dice.randint(1990, 2030)} the {' '.join(dice.choices(WORDS, k=14))} rose." for _ in range(sentences))
    return " ".join(said)


def page(kind: str) -> bytes:
    if kind == "brackets":
        return b"<html><body><article><p>" + b"[1](" * (PAGE // 4) + b"</p></article></body></html>"
    dice = random.Random(kind)
    parts, size = ["<html><head><title>Energy</title></head><body><article>"], 0
    while size < PAGE - 100:
        links = "".join(f'<a href="/{kind}/{dice.random()}">more</a> ' for _ in range(8)) if kind == "links" else ""
        parts.append(f"<h2>{dice.choice(WORDS)}</h2><p>{prose(6, dice.randint(0, 1000))} {links}</p>\n")
        size += len(parts[-1])
    return "".join([*parts, "</article></body></html>"]).encode()


PAGES = {kind: page(kind) for kind in ("prose", "links", "brackets")}
# What was made to be slow: the same over and over, as Markdown and as an answer.
SLOW = {
    "ticks": "`",
    "runs": "` `` ``` ",
    "fences": "```\n",
    "marks": "\u0315\u0300",
    "stops": ". ",
    "blanks": " ",
    "angles": "<",
    "openers": "<tool_call>",
    "cited": "The solar panel [1][2] ",
}
LONG = 500_000  # characters


def slow(kind: str) -> str:
    return SLOW[kind] * (LONG // len(SLOW[kind])) + "<tool_call>no</tool_call>\n\n[1] solar panel storage <!-- x -->"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: *(\d+)", head, re.I)
            body = await reader.readexactly(int(length[1])) if length else b""
            if head.startswith(b"GET"):
                kind = head.split()[1].decode().split("/")[1].split("?")[0]
                if kind in SLOW:
                    await send(writer, slow(kind).encode(), b"text/markdown; charset=utf-8")
                else:
                    await send(writer, PAGES.get(kind, b"ok"), b"text/html")
            else:
                await send(writer, json.dumps(answer(json.loads(body))).encode(), b"application/json")
    writer.close()


async def send(writer: asyncio.StreamWriter, body: bytes, kind: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body)
    await writer.drain()


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    messages = asked["messages"]
    said: dict[str, Any] = {"role": "assistant", "content": prose(SENTENCES, 3).replace(" rose.", " rose [1].")}
    if str(messages[-1]["content"]).startswith("say "):
        said = {"role": "assistant", "content": slow(messages[-1]["content"].split()[1])}
    elif not any(message["role"] == "tool" for message in messages):
        wanted = messages[-1]["content"][-5000:].strip().removeprefix("open ")
        urls, _, about = wanted.partition(" about ")
        arguments = json.dumps({"urls": urls.split(), "query": about})
        call = {"id": "c1", "type": "function", "function": {"name": "open_page", "arguments": arguments}}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "tool_calls" if "tool_calls" in said else "stop"
    choice = {"index": 0, "message": said, "finish_reason": reason}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": [choice]}


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 26)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

"""How late a stream's words are while somebody else's work is heavy. One stream with a chunk every 20 ms is read at the
client; beside it, one burden after the other: large bodies, large pages, long passages, long answers with proofs.

    make lags                      # all of them, about two minutes; ONLY=pages,brackets for some of them

Prints the longest time by which a chunk came later than 20 ms after the one before it, for each burden and for none.
Run it on a quiet machine: whatever else is at work there is in these figures. Linux only, like the rest of the bench.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loaded import KEY, Bench, Server
from measure import HERE, LOAD_CORE, spawn
from reader_model import SLOW
from run import await_health, free_port, stop

DELAY = 0.02  # seconds between two chunks
WANTED = 0.05
WANTED_OF_MANY = 0.15  # beside bodies of more than 60,000 JSON values
TIMES = 3  # each burden, one after the other
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

Asked = tuple[str, Any]  # a path and a body


def _talk(messages: list[dict[str, Any]], **more: Any) -> list[Asked]:
    """The same conversation in all dialects."""
    return [
        (PATHS["chat"], {"model": "m", "messages": messages, **more}),
        (PATHS["responses"], {"model": "m", "input": messages, **more}),
        (PATHS["messages"], {"model": "m", "max_tokens": 100, "messages": messages, **more}),
    ]


def _said(count: int, text: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n in range(count)] + [{"role": "user", "content": "And?"}]


def _answered(text: str) -> list[dict[str, Any]]:
    said = (("user", "Hello"), ("assistant", text), ("user", "And?"))
    return [{"role": role, "content": content} for role, content in said]


def _reading(web: str, kinds: list[str], before: int = 0) -> list[Asked]:
    urls = " ".join(f"{web}/{kind}/{time.time_ns()}" for kind in kinds)
    talk = _said(before, "word " * 1000)[:-1]
    ask = {"role": "user", "content": f"open {urls} about solar panel storage 2024"}
    return [(PATHS["chat"], {"model": "reader", "messages": [*talk, ask]})]


def _opening(web: str, kind: str) -> list[Asked]:
    url = f"{web}/{kind}/{time.time_ns()}"
    return [("/v1/open", {"url": url, "query": "solar panel storage"}), ("/extract", {"urls": [url]})]


BURDENS: dict[str, Callable[[str], list[Asked]]] = {
    "none": lambda web: [],
    "history": lambda web: _talk(_said(200, "word " * 1000)),
    "one_text": lambda web: _talk([{"role": "user", "content": "word " * 200_000}]),
    "messages_100k": lambda web: _talk(_said(100_000, "word word")),
    "messages_19k": lambda web: _talk(_said(19_000, "word " * 10)),
    "brackets_9mb": lambda web: _talk(_answered("[1](" * 2_250_000)),
    "our_links": lambda web: _talk(_answered("x [[1]](https://example.org/a) " * 150_000)),
    "prompted_19k": lambda web: [(PATHS["chat"], {"model": "prompted", "messages": _of_one(19_500, "user")})],
    "searched_first_19k": lambda web: [(PATHS["chat"], {"model": "none", "messages": _of_one(19_500, "user")})],
    "bedrock_19k": lambda web: [
        (PATHS["responses"], {"model": "bedrock", "input": _of_one(19_500, "user"), "tools": []})
    ],
    "assistant_items": lambda web: [
        (PATHS["responses"], {"model": "m", "input": _of_one(19_500, "assistant", "word " * 96)})
    ],
    "unsigned_blocks": lambda web: [
        (
            path,
            {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": _fetched(20_000)}, *_ASKED]},
        )
        for path in (PATHS["messages"], "/v1/messages/count_tokens")
    ],
    "backticks_112kb": lambda web: _talk(_answered("[1] " + "`x" * 24_000 + "`" * 60_000)),
    "backticks_16kb": lambda web: _talk(_answered("[1] " + "`x" * 8000)),
    "parts_60k": lambda web: [(path, {**body, "metadata": _values(60_000)}) for path, body in _talk(_said(1, "a"))],
    "lists_390k": lambda web: [(PATHS["chat"], {"model": "m", "messages": _said(1, "a"), "x": [[]] * 390_000})],
    "parts_400k": lambda web: [
        *((path, {**body, "metadata": _values(399_900)}) for path, body in _talk(_said(1, "a"))),
        ("/v1/embeddings", {"model": "m", "input": [1] * 399_900}),
        ("/v1/search", {"query": "sky", **_values(399_900)}),
    ],
    "parts_refused": lambda web: [
        *((path, {**body, "metadata": _values(500_000)}) for path, body in _talk(_said(1, "a"))),
        ("/v1/search", {"query": "sky", "x": "a, [b], {" * 500_000 + "c", "y": [1] * 400_000}),
    ],
    "tools_2000": lambda web: [
        (PATHS["chat"], {"model": "m", "messages": _said(1, "a"), "tools": [_tool(n) for n in range(2000)]})
    ],
    "forwarded": lambda web: [
        (PATHS["chat"], {"model": "m", "messages": _said(1800, "word " * 1000), "web_search_options": None}),
        ("/v1/embeddings", {"model": "m", "input": ["word " * 1000] * 1800}),
    ],
    "count_tokens": lambda web: [
        ("/v1/messages/count_tokens", {"model": "m", "messages": _said(1800, "word " * 1000)})
    ],
    "pages": lambda web: _opening(web, "prose"),
    "pages_of_links": lambda web: _opening(web, "links"),
    "page_of_brackets": lambda web: _opening(web, "brackets"),
    "proofs": lambda web: _reading(web, ["prose", "links"]),
    "long_talk_and_page": lambda web: _reading(web, ["prose"], before=200),
}


def _saying(kind: str) -> list[Asked]:
    """An answer that was made to be slow, from a model that calls tools and from one that writes its calls."""
    asked = {"messages": [{"role": "user", "content": f"say {kind}"}]}
    return [(PATHS["chat"], {"model": model, **asked}) for model in ("reader", "in-words")]


for _kind in SLOW:
    BURDENS[f"slow_page_{_kind}"] = lambda web, kind=_kind: [*_opening(web, kind), *_reading(web, [kind])]
    BURDENS[f"slow_answer_{_kind}"] = lambda web, kind=_kind: _saying(kind)


OF_MANY = frozenset({"messages_100k", "unsigned_blocks", "lists_390k", "parts_400k", "parts_refused"})
_ASKED = [{"role": "user", "content": "And?"}]


def _of_one(count: int, role: str, text: str = "word " * 10) -> list[dict[str, Any]]:
    """Messages of one role: some servers want them as one."""
    return [{"role": role, "content": text}] * (count - 1) + _ASKED


def _fetched(count: int) -> list[dict[str, Any]]:
    """What a client says that pages said."""
    blocks: list[dict[str, Any]] = []
    for n in range(count):
        page = {"url": "https://example.org/", "content": {"source": {"data": f"page {n}"}}}
        blocks.append({"type": "server_tool_use", "id": f"s{n}"})
        blocks.append({"type": "web_fetch_tool_result", "tool_use_id": f"s{n}", "content": page})
    return blocks


def _values(count: int) -> dict[str, Any]:
    return {f"key{n}": str(n) for n in range(count)}


def _tool(number: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5)}}
    return {"type": "function", "function": {"name": f"f{number}", "parameters": schema}}


def ask(port: int, path: str, body: bytes) -> str:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)


def burden(name: str, port: int, web: str, key: str) -> None:
    """In a process of its own, so that the one who measures is not held up by who asks."""
    globals()["KEY"] = key
    seen = []
    for _ in range(TIMES):
        for path, body in BURDENS[name](web):
            seen.append(ask(port, path, json.dumps(body).encode()))
    print(" ".join(seen))


class Stream:
    """The steady stream, read as it comes."""

    def __init__(self, server: Server) -> None:
        self._line = socket.create_connection(("127.0.0.1", server.port), 60)
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}).encode()
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {KEY}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._line.sendall(head.encode() + body)
        self._line.recv(65536)

    def gaps(self, until: Callable[[], bool]) -> list[float]:
        """The seconds between two reads, until there is nothing more to wait for."""
        gaps, last = [], time.perf_counter()
        while not until():
            if not self._line.recv(65536):
                sys.exit("the stream ended")
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        return gaps


def measure(name: str, server: Server, web: str, quiet: float) -> str:
    command = [sys.executable, __file__, "--burden", name, str(server.port), web, KEY]
    stream = Stream(server)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE})
    ) as asking:
        began = time.perf_counter()
        least = began + (quiet if name == "none" else 1.0)
        gaps = stream.gaps(lambda: asking.poll() is not None and time.perf_counter() > least)
        seconds = time.perf_counter() - began
        assert asking.stdout
        answers = asking.stdout.read().split()
    late = sorted(max(gap - DELAY, 0.0) * 1000 for gap in gaps)
    told = ", ".join(f"{answers.count(status)}× {status}" for status in dict.fromkeys(answers)) or "–"
    wanted = WANTED_OF_MANY if name in OF_MANY else WANTED
    flag = "  LATE" if late[-1] > wanted * 1000 else ""
    third = late[-3] if len(late) > 2 else late[-1]
    return (
        f"{name:<20}{late[-1]:7.1f} ms  third worst {third:6.1f}  {len(late):5} chunks, {seconds:5.1f} s  {told}{flag}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groundwire", metavar="SCRIPT", required=True, help="Groundwire's console script")
    parser.add_argument("--only", default=",".join(BURDENS), help="comma-separated (default: %(default)s)")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(BURDENS):
        parser.error(f"no such burden: {', '.join(sorted(unknown))}")
    os.sched_setaffinity(0, {LOAD_CORE})
    web_port = free_port()
    web = f"http://127.0.0.1:{web_port}"
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        model = spawn([sys.executable, str(HERE / "reader_model.py"), str(web_port)], LOAD_CORE, folder / "model.log")
        try:
            assert await_health(f"{web}/health", model)
            bench = Bench(arguments.groundwire, folder, short=False)
            fake = {"name": "fake", "base_url": f"{bench.upstream}/v1", "models": ["*"]}
            reader = {"name": "reader", "base_url": f"{web}/v1", "models": ["reader"]}
            ways = [
                {**reader, "name": "in-words", "models": ["in-words"], "tool_calls": "prompted"},
                {**fake, "name": "prompted", "models": ["prompted"], "tool_calls": "prompted"},
                {**fake, "name": "none", "models": ["none"], "tool_calls": "none"},
                {**fake, "name": "bedrock", "models": ["bedrock"], "profile": "bedrock"},
            ]
            with bench.server(
                upstreams=[reader, *ways, fake],
                providers=[
                    {"name": "engine", "type": "searxng", "base_url": bench.upstream},
                    {"name": "direct", "type": "direct"},
                ],
                tools={"search": ["engine"], "read": ["direct"], "allow_networks": ["127.0.0.0/8"]},
                server={"max_body": "40MiB"},
            ) as server:
                bench.configure(chunks=4000, delay_us=int(DELAY * 1e6))
                for name in names:
                    print(measure(name, server, web, 5.0), flush=True)
        finally:
            stop(model)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--burden"]:
        burden(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        main()

"""The loopback server behind every faked service: one scripted reply to every request, all requests remembered.

`FakeServer` is what `search.py`, `search_hosted.py` and `readers.py` build on; `Fault` says which of our errors a reply
must become, and `usual_faults` has the replies that any JSON service may give.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self, cast
from urllib.parse import parse_qs, urlsplit

from providers import registry
from providers.base import SearchQuery, SearchResults, as_results
from providers.errors import AuthFailed, BadRequest, ProviderError, QuotaExceeded, RateLimited, TimedOut, Unavailable
from providers.registry import NamedProvider, ProviderEntry

KEY = "sk-canary-0123456789"
FOR_OPERATORS = re.compile(r"`|base_url|api_key|settings\.yml|config|\bset ")  # advice that no model can follow


@dataclass(frozen=True)
class Asked:
    """One request: `params` are those of the query, the form or the JSON body; one that is repeated is a list."""

    method: str
    path: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0


@dataclass(frozen=True)
class Fault:
    reply: Reply
    error: type[ProviderError]
    says: str = ""
    retry_after: float | None = None
    advises: str = ""


HTML_ERROR = b"<!doctype html><html><body><h1>Something went wrong</h1></body></html>"
JSON_ERROR = b'{"error": "something went wrong with %s"}' % KEY.encode()  # some services quote the key
HUGE = b'{"x": "' + b"x" * (9 * 2**20) + b'"}'
GZIP_BOMB = gzip.compress(b'{"x": "' + b"x" * 100_000_000 + b'"}', 9)  # a thousandth of what it becomes
GZIPPED = {"Content-Encoding": "gzip"}
MANY_PARTS = b'{"results": [' + b"[]," * 1_000_000 + b"[]]}"


def as_json(value: object, status: int = 200, **headers: str) -> Reply:
    body = json.dumps(value, ensure_ascii=False).encode()
    return Reply(status, body, "application/json", {name.replace("_", "-"): text for name, text in headers.items()})


def usual_faults(own: Mapping[str, Fault]) -> dict[str, Fault]:
    """What any JSON service may do, and must become the same error for all of them; `own` adds and overrides."""
    return {
        "400": Fault(Reply(400, JSON_ERROR), BadRequest),
        "401": Fault(Reply(401, JSON_ERROR), AuthFailed),
        "401 HTML": Fault(Reply(401, HTML_ERROR), AuthFailed),
        "403": Fault(Reply(403, JSON_ERROR), AuthFailed),
        "404": Fault(Reply(404, HTML_ERROR), Unavailable, "answered with status", advises="check its base_url"),
        "quota": Fault(Reply(402, JSON_ERROR), QuotaExceeded, "used up"),
        "429": Fault(Reply(429, b"Too many requests"), RateLimited, "rate-limiting"),
        "429 with Retry-After": Fault(
            Reply(429, JSON_ERROR, headers={"Retry-After": "7", "X-RateLimit-Reset": "9"}), RateLimited, retry_after=7.0
        ),
        "429 with a reset": Fault(
            Reply(429, JSON_ERROR, headers={"X-RateLimit-Reset": "3, 1419704"}), RateLimited, retry_after=3.0
        ),
        "500 JSON": Fault(Reply(500, JSON_ERROR, "application/json"), Unavailable, "500"),
        "500 HTML": Fault(Reply(500, HTML_ERROR), Unavailable, "500"),
        "503": Fault(Reply(503, b"", headers={"Retry-After": "5"}), Unavailable, "503", retry_after=5.0),
        "504": Fault(Reply(504, HTML_ERROR), TimedOut, "504"),
        "redirect": Fault(
            Reply(302, headers={"Location": "/elsewhere"}),
            Unavailable,
            "answered with status",
            advises="check its base_url",
        ),
        "truncated": Fault(Reply(body=b'{"results": [{"url": "https://exa'), Unavailable, "JSON"),
        "wrong content": Fault(Reply(body=HTML_ERROR), Unavailable, "JSON"),
        "a list": Fault(Reply(body=b"[]", content_type="application/json"), Unavailable, "JSON"),
        "huge": Fault(Reply(body=HUGE, content_type="application/json"), Unavailable, "more than 4 MB"),
        "gzip bomb": Fault(Reply(body=GZIP_BOMB, headers=GZIPPED), Unavailable, "more than 4 MB"),
        "nested gzip": Fault(
            Reply(body=GZIP_BOMB, headers={"Content-Encoding": "gzip, gzip"}), Unavailable, "not asked for"
        ),
        "an encoding not asked for": Fault(Reply(headers={"Content-Encoding": "br"}), Unavailable, "not asked for"),
        "no gzip at all": Fault(Reply(body=b"{}", headers=GZIPPED), Unavailable, "gzip"),
        "many parts": Fault(Reply(body=MANY_PARTS), Unavailable, "too many parts"),
        "slow": Fault(Reply(body=b"{}", wait=20), TimedOut),
        **own,
    }


@asynccontextmanager
async def provider_of(entry: ProviderEntry) -> AsyncIterator[NamedProvider]:
    named = registry.build([entry], cast(Any, None))["fake"]
    try:
        yield named
    finally:
        await registry.close([named])


async def search(named: NamedProvider, query: SearchQuery) -> SearchResults:
    return as_results(await cast(Any, named.provider).search(query))


class FakeServer:
    """Gives `reply` to every request. What it must not be sent is raised when it closes."""

    type: ClassVar[str]
    path: ClassVar[str] = ""
    faults: ClassVar[Mapping[str, Fault]]
    reply: Reply

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self._at_once = 0
        self._complaints: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        assert not self._complaints, self._complaints

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.path}"

    def answer(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.check(asked)
        except AssertionError as error:
            self._complaints.append(str(error))
        reply = self.reply_to(asked)
        self._closing.wait(reply.wait)
        with self._lock:
            self._at_once -= 1
        return reply

    def check(self, asked: Asked) -> None:
        raise NotImplementedError

    def reply_to(self, asked: Asked) -> Reply:
        return self.reply


def _server(fake: FakeServer) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(Asked("GET", parts.path, _params(parts.query), self._headers()))

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_json = self.headers["Content-Type"] == "application/json"
            self._answer(Asked("POST", self.path, json.loads(sent) if is_json else _params(sent), self._headers()))

        def _headers(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def _answer(self, asked: Asked) -> None:
            reply = fake.answer(asked)
            try:
                self.send_response(reply.status)
                for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            except ConnectionError:  # the client gave up: what the slow replies are for
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server(("127.0.0.1", 0), Handler)


def _params(text: str) -> dict[str, Any]:
    return {name: values[0] if len(values) == 1 else values for name, values in parse_qs(text).items()}

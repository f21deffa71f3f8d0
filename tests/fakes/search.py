"""Search services on loopback: DuckDuckGo's HTML page, SearXNG's JSON, and a folder for `local`.

Handed to the contract suite, which runs the same assertions over all of them. Each fake checks the form of what it
receives, remembers it, and says which error each fault must become; `FAKES` has one for every search service.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from providers.base import SearchQuery, SearchResult
from providers.errors import (
    AuthFailed,
    BadRequest,
    NoResults,
    ProviderError,
    RateLimited,
    TimedOut,
    Unavailable,
)
from providers.registry import ProviderEntry

HITS = (
    SearchResult("Heat pumps", "https://example.org/heat/pumps.md", "A heat pump moves heat from cold to warm."),
    SearchResult("Wärme und 熱 ⚡", "https://example.org/heat/waerme.md", "Die Wärme, 熱, heat & <more> of it."),
    SearchResult("Heat death", "https://docs.example.org/heat/death.md", "Heat spreads until it is even."),
    SearchResult("Latent heat", "https://example.net/heat/latent.md", "Latent heat melts ice without warming it."),
)


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    params: Mapping[str, str]
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


HTML_ERROR = b"<!doctype html><html><body><h1>Something went wrong</h1></body></html>"
JSON_ERROR = b'{"error": "something went wrong"}'


class FakeEngine:
    """A loopback server that gives `reply` to every request. What it must not be sent is raised when it closes."""

    type: ClassVar[str]
    path: ClassVar[str]
    faults: ClassVar[Mapping[str, Fault]]
    filters: ClassVar[Mapping[str, tuple[SearchQuery, Mapping[str, str]]]]

    def __init__(self) -> None:
        self.reply = self.page(HITS)
        self.pages: dict[str, Reply] = {}
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self._at_once = 0
        self._complaints: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FakeEngine:
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

    def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
        return ProviderEntry(name="fake", type=self.type, base_url=self.url, timeout=timeout, options=options)

    def answer(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.check(asked)
        except AssertionError as error:
            self._complaints.append(str(error))
        reply = self.pages.get(self.page_of(asked), self.reply)
        self._closing.wait(reply.wait)
        with self._lock:
            self._at_once -= 1
        return reply

    def check(self, asked: Asked) -> None:
        raise NotImplementedError

    def page(self, hits: tuple[SearchResult, ...]) -> Reply:
        raise NotImplementedError

    def bare_page(self) -> Reply:
        """One hit with nothing but what the service always sends."""
        raise NotImplementedError

    def page_of(self, asked: Asked) -> str:
        return "1"


class FakeSearxng(FakeEngine):
    type = "searxng"
    path = ""
    faults: ClassVar = {
        "empty": Fault(Reply(body=b'{"results": []}'), NoResults),
        "engines silent": Fault(
            Reply(body=b'{"results": [], "unresponsive_engines": [["google", "Suspended: too many requests"]]}'),
            Unavailable,
            "google",
        ),
        "400": Fault(Reply(400, JSON_ERROR), BadRequest),
        "401": Fault(Reply(401, JSON_ERROR), AuthFailed),
        "403": Fault(Reply(403, HTML_ERROR), AuthFailed, "add `json` under `search: formats:`"),
        "429": Fault(Reply(429, b"Too many requests"), RateLimited),
        "429 with Retry-After": Fault(
            Reply(429, b"", headers={"Retry-After": "7"}), RateLimited, "rate-limiting", retry_after=7.0
        ),
        "500 JSON": Fault(Reply(500, JSON_ERROR, "application/json"), Unavailable, "500"),
        "500 HTML": Fault(Reply(500, HTML_ERROR), Unavailable, "500"),
        "truncated": Fault(Reply(body=b'{"results": [{"url": "https://exa'), Unavailable),
        "wrong content": Fault(Reply(body=HTML_ERROR), Unavailable, "JSON format is off"),
        "slow": Fault(Reply(body=b"{}", wait=20), TimedOut),
    }
    filters: ClassVar = {
        "plain": (SearchQuery("heat"), {"q": "heat"}),
        "allowed": (SearchQuery("heat", allowed_domains=("example.org",)), {"q": "heat site:example.org"}),
        "several allowed": (
            SearchQuery("heat", allowed_domains=("example.org", "example.net")),
            {"q": "heat (site:example.org OR site:example.net)"},
        ),
        "blocked": (SearchQuery("heat", blocked_domains=("a.org", "b.org")), {"q": "heat -site:a.org -site:b.org"}),
        "time range": (SearchQuery("heat", time_range="w"), {"q": "heat", "time_range": "week"}),
        "language": (SearchQuery("heat", language="de"), {"q": "heat", "language": "de"}),
        "country": (SearchQuery("heat", language="de", country="CH"), {"q": "heat", "language": "de-CH"}),
        "category": (SearchQuery("heat", category="news"), {"q": "heat", "categories": "news"}),
    }

    def check(self, asked: Asked) -> None:
        assert (asked.method, asked.path) == ("GET", "/search")
        assert asked.params["format"] == "json"
        assert asked.headers["accept"] == "application/json"
        known = {"q", "format", "time_range", "language", "categories", "engines", "pageno"}
        assert asked.params.keys() <= known, asked.params

    def page_of(self, asked: Asked) -> str:
        return asked.params.get("pageno", "1")

    def page(self, hits: tuple[SearchResult, ...]) -> Reply:
        results = [
            {
                "title": hit.title,
                "url": hit.url,
                "content": hit.snippet,
                "publishedDate": "2026-05-01T00:00:00",
                "engine": "duckduckgo",
                "engines": ["duckduckgo", "brave"],
                "score": 2.5,
                "category": "general",
            }
            for hit in hits
        ]
        empty: dict[str, Any] = {"answers": [], "corrections": [], "infoboxes": [], "suggestions": []}
        body = {"query": "heat", "results": results, **empty, "unresponsive_engines": []}
        return Reply(body=json.dumps(body).encode(), content_type="application/json")

    def bare_page(self) -> Reply:
        body = {"results": [{"url": HITS[0].url}, {"title": "no address"}, "not an object"]}
        return Reply(body=json.dumps(body).encode(), content_type="text/plain")


class FakeDuckDuckGo(FakeEngine):
    """The library cannot tell a refusal from an empty page, so all of them become the same soft failure."""

    type = "duckduckgo"
    path = "/html/"
    faults: ClassVar = {
        "empty": Fault(Reply(body=b"<html><body><div>No results.</div></body></html>"), NoResults, "throttling"),
        "anomaly page": Fault(Reply(202, HTML_ERROR), NoResults, "throttling"),
        "400": Fault(Reply(400, JSON_ERROR), NoResults),
        "401": Fault(Reply(401, JSON_ERROR), NoResults),
        "403": Fault(Reply(403, HTML_ERROR), NoResults, "throttling"),
        "429": Fault(Reply(429, b"Too many requests"), NoResults, "throttling"),
        "429 with Retry-After": Fault(Reply(429, b"", headers={"Retry-After": "7"}), NoResults),
        "500 JSON": Fault(Reply(500, JSON_ERROR, "application/json"), NoResults),
        "500 HTML": Fault(Reply(500, HTML_ERROR), NoResults),
        "truncated": Fault(Reply(body=b'<html><body><div class="result__bo'), NoResults),
        "wrong content": Fault(Reply(body=JSON_ERROR, content_type="application/json"), NoResults),
        "slow": Fault(Reply(body=HTML_ERROR, wait=20), TimedOut),
    }
    filters: ClassVar = {
        "plain": (SearchQuery("heat"), {"q": "heat", "l": "us-en"}),
        "allowed": (
            SearchQuery("heat", allowed_domains=("example.org",)),
            {"q": "heat site:example.org", "l": "us-en"},
        ),
        "several allowed": (
            SearchQuery("heat", allowed_domains=("example.org", "example.net")),
            {"q": "heat (site:example.org OR site:example.net)", "l": "us-en"},
        ),
        "blocked": (
            SearchQuery("heat", blocked_domains=("a.org", "b.org")),
            {"q": "heat -site:a.org -site:b.org", "l": "us-en"},
        ),
        "time range": (SearchQuery("heat", time_range="w"), {"q": "heat", "l": "us-en", "df": "w"}),
        "date range": (
            SearchQuery("heat", published_after="2026-01-01", published_before="2026-02-01"),
            {"q": "heat", "l": "us-en", "df": "2026-01-01..2026-02-01"},
        ),
        "open date range": (
            SearchQuery("heat", published_before="2026-02-01"),
            {"q": "heat", "l": "us-en", "df": "1990-01-01..2026-02-01"},
        ),
        "language": (SearchQuery("heat", language="de"), {"q": "heat", "l": "de-de"}),
        "english": (SearchQuery("heat", language="en"), {"q": "heat", "l": "us-en"}),
        "country": (SearchQuery("heat", country="GB"), {"q": "heat", "l": "uk-en"}),
        "country and language": (SearchQuery("heat", language="fr", country="CH"), {"q": "heat", "l": "ch-fr"}),
        "foreign language": (SearchQuery("heat", language="en", country="DE"), {"q": "heat", "l": "de-de"}),
        "unknown country": (SearchQuery("heat", country="ZZ"), {"q": "heat", "l": "us-en"}),
    }

    def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
        return super().entry(timeout, **{"rate": 1000, **options})

    def check(self, asked: Asked) -> None:
        assert (asked.method, asked.path) == ("POST", "/html/")
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        assert asked.params.keys() <= {"q", "b", "l", "df"}, asked.params

    def page(self, hits: tuple[SearchResult, ...]) -> Reply:
        return Reply(body=f"<html><body>{''.join(map(_result, hits))}</body></html>".encode())

    def bare_page(self) -> Reply:
        return Reply(body=_result(SearchResult("", HITS[0].url)).encode())


class FakeFolder:
    """The folder behind `local`: one Markdown file per hit."""

    type = "local"

    def __init__(self, folder: Path) -> None:
        for hit in HITS:
            file = folder / urlsplit(hit.url).path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# {hit.title}\n\n{hit.snippet}\n", encoding="utf-8")
        self.folder = folder

    def entry(self, **options: Any) -> ProviderEntry:
        base_url = "https://example.org/"
        return ProviderEntry(
            name="fake", type=self.type, base_url=base_url, options={"path": str(self.folder), **options}
        )


HTTP_FAKES: Mapping[str, type[FakeEngine]] = {fake.type: fake for fake in (FakeDuckDuckGo, FakeSearxng)}
FAKES = {*HTTP_FAKES, FakeFolder.type}


def _result(hit: SearchResult) -> str:
    href = html.escape(hit.url)
    return (
        f'<div class="result__body"><h2><a href="{href}">{html.escape(hit.title)}</a></h2>'
        f'<a href="{href}">{html.escape(hit.snippet)}</a></div>'
    )


def _server(engine: FakeEngine) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(Asked("GET", parts.path, dict(parse_qsl(parts.query)), self._headers()))

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(Asked("POST", self.path, dict(parse_qsl(form)), self._headers()))

        def _headers(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def _answer(self, asked: Asked) -> None:
            reply = engine.answer(asked)
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

"""Search services on loopback: DuckDuckGo's HTML page, SearXNG's JSON, a folder for `local`, and the hosted ones.

Handed to the contract suite, which runs the same assertions over all of them. Each fake checks the form of what it
receives, remembers it, and says which error each fault must become; `FAKES` has one for every search service.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from providers.base import SearchQuery, SearchResult
from providers.errors import AuthFailed, NoResults, RateLimited, TimedOut, Unavailable
from providers.registry import ProviderEntry
from tests.fakes.search_engine import HITS, FakeEngine
from tests.fakes.search_hosted import HOSTED
from tests.fakes.search_model import FakeModelSearch
from tests.fakes.service import GZIP_BOMB, HTML_ERROR, HUGE, JSON_ERROR, Asked, Fault, Reply, as_json, usual_faults


class FakeSearxng(FakeEngine):
    type = "searxng"
    faults: ClassVar = usual_faults({
        "empty": Fault(Reply(body=b'{"results": []}'), NoResults),
        "engines silent": Fault(
            Reply(body=b'{"results": [], "unresponsive_engines": [["google", "Suspended: too many requests"]]}'),
            Unavailable,
            "google",
        ),
        "401": Fault(Reply(401, JSON_ERROR), AuthFailed, "who asks", advises="api_key, or username and password"),
        "403": Fault(Reply(403, HTML_ERROR), AuthFailed, "JSON format", advises="add `json` under `search: formats:`"),
        "wrong content": Fault(Reply(body=HTML_ERROR), Unavailable, "JSON format is off", advises="add `json`"),
        "429": Fault(Reply(429, b"Too Many Requests"), RateLimited, "limiter", advises="`pass_ip` in limiter.toml"),
    })  # fmt: skip
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

    config = as_json({
        "categories": ["general", "it", "news"],
        "engines": [{"name": "duckduckgo", "enabled": True}, {"name": "brave", "enabled": False}],
    })  # fmt: skip

    def reply_to(self, asked: Asked) -> Reply:
        return self.config if asked.path == "/config" else super().reply_to(asked)

    def check(self, asked: Asked) -> None:
        assert asked.method == "GET"
        assert asked.headers["accept"] == "application/json"
        if asked.path == "/config":
            return
        assert asked.path == "/search"
        assert asked.params["format"] == "json"
        known = {"q", "format", "time_range", "language", "categories", "engines", "pageno"}
        assert asked.params.keys() <= known, asked.params

    def page_of(self, asked: Asked) -> str:
        return str(asked.params.get("pageno", "1"))

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
        return as_json(body)

    def bare_page(self) -> Reply:
        return as_json({"results": [{"url": HITS[0].url}, {"title": "no address"}, "not an object"]})


class FakeDuckDuckGo(FakeEngine):
    """The library cannot tell a refusal from an empty page, so all of them become the same soft failure."""

    type = "duckduckgo"
    path = "/html/"
    faults: ClassVar = {
        "empty": Fault(Reply(body=b"<html><body><div>No results.</div></body></html>"), NoResults, "throttling"),
        "anomaly page": Fault(Reply(202, HTML_ERROR), NoResults, "throttling"),
        "400": Fault(Reply(400, JSON_ERROR), NoResults),
        "401": Fault(Reply(401, JSON_ERROR), NoResults),
        "quota": Fault(Reply(402, JSON_ERROR), NoResults),
        "403": Fault(Reply(403, HTML_ERROR), NoResults, "throttling"),
        "429": Fault(Reply(429, b"Too many requests"), NoResults, "throttling"),
        "429 with Retry-After": Fault(Reply(429, b"", headers={"Retry-After": "7"}), NoResults),
        "500 JSON": Fault(Reply(500, JSON_ERROR, "application/json"), NoResults),
        "500 HTML": Fault(Reply(500, HTML_ERROR), NoResults),
        "truncated": Fault(Reply(body=b'<html><body><div class="result__bo'), NoResults),
        "wrong content": Fault(Reply(body=JSON_ERROR, content_type="application/json"), NoResults),
        "huge": Fault(Reply(body=HUGE), Unavailable),
        "gzip bomb": Fault(Reply(body=GZIP_BOMB, headers={"Content-Encoding": "gzip"}), Unavailable),
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


HTTP_FAKES: Mapping[str, type[FakeEngine]] = {
    FakeDuckDuckGo.type: FakeDuckDuckGo,
    FakeSearxng.type: FakeSearxng,
    FakeModelSearch.type: FakeModelSearch,
    **HOSTED,
}
FAKES = {*HTTP_FAKES, FakeFolder.type}


def _result(hit: SearchResult) -> str:
    href = html.escape(hit.url)
    return (
        f'<div class="result__body"><h2><a href="{href}">{html.escape(hit.title)}</a></h2>'
        f'<a href="{href}">{html.escape(hit.snippet)}</a></div>'
    )

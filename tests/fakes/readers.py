"""The hosted readers on loopback: one row each, one server for all of them.

A row says how the reader is asked for `URL` (path, key, body, headers) and how it answers: `PAGE` in its own words, the
least it may send, and its own faults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from providers.base import Page
from providers.errors import PageBlocked, QuotaExceeded, Unavailable
from providers.registry import ProviderEntry
from tests.fakes.service import HTML_ERROR, JSON_ERROR, KEY, Asked, FakeServer, Fault, Reply, as_json, usual_faults

URL = "https://example.org/heat?q=a%20b&熱=1#part"
TEXT = "# Wärme 熱 ⚡\n\nHeat & <more>, see [pumps](https://example.org/pumps_(heat)) and ![no](https://example.org/i.png)."
LINKS = ("https://example.org/pumps_(heat)",)
PAGE = Page("https://example.org/heat/final", "Wärme 熱 ⚡", TEXT, "2026-05-01", LINKS)
BEARER = ("authorization", f"Bearer {KEY}")


@dataclass(frozen=True)
class Row:
    type: str
    request: str  # method and path
    sends: Mapping[str, Any]
    page: Callable[[Page], object]
    bare: object  # an answer with TEXT and nothing that may be left out
    gives: Page = PAGE  # what of the page survives the service
    auth: tuple[str, str] = BEARER
    headers: Mapping[str, str] = field(default_factory=dict)
    empty: object = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)


class FakeReader(FakeServer):
    row: ClassVar[Row]

    def __init__(self) -> None:
        super().__init__()
        self.reply = as_json(self.row.page(PAGE))
        self.expects_key = True

    def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
        return ProviderEntry.model_validate(
            {
                "name": "fake",
                "type": self.type,
                "api_key": KEY,
                "base_url": self.url,
                "timeout": timeout,
                "options": options,
            }
        )

    def check(self, asked: Asked) -> None:
        assert f"{asked.method} {asked.path}" == self.row.request
        key = self.row.auth[1] if self.expects_key else None
        expected = {self.row.auth[0]: key, "accept": "application/json", **self.row.headers}
        assert {name: asked.headers.get(name) for name in expected} == expected


def reader(row: Row) -> type[FakeReader]:
    given = row

    class Reader(FakeReader):
        type = given.type
        row = given
        faults: ClassVar = usual_faults(
            {
                "empty": Fault(as_json(given.empty), PageBlocked, "no readable text"),
                "no object": Fault(Reply(body=b'{"data": "x", "results": 7, "markdown": 1}'), PageBlocked),
                **given.faults,
            }
        )

    return Reader


TAVILY = Row(
    type="tavily",
    request="POST /extract",
    sends={"urls": [URL], "extract_depth": "basic", "format": "markdown", "timeout": 10.0},
    page=lambda page: {
        "results": [{"url": page.url, "title": page.title, "raw_content": page.text, "images": []}],
        "failed_results": [],
        "response_time": 0.02,
    },
    gives=Page(PAGE.url, PAGE.title, PAGE.text, None, LINKS),
    bare={"results": [{"raw_content": TEXT}]},
    empty={"results": [], "failed_results": []},
    faults={
        "page failed": Fault(
            as_json({"results": [], "failed_results": [{"url": URL, "error": "Failed to fetch url"}]}),
            PageBlocked,
            "could not fetch",
        ),
        "quota": Fault(as_json({"detail": {"error": KEY}}, 432), QuotaExceeded, "432"),
        "pay-as-you-go": Fault(as_json({"detail": {"error": KEY}}, 433), QuotaExceeded, "433"),
    },
)

EXA = Row(
    type="exa",
    request="POST /contents",
    auth=("x-api-key", KEY),
    sends={"urls": [URL], "text": True},
    page=lambda page: {
        "requestId": "r",
        "results": [
            {"id": URL, "url": page.url, "title": page.title, "publishedDate": f"{page.date}T00:00Z", "text": page.text}
        ],
        "statuses": [{"id": URL, "status": "success", "source": "cached"}],
    },
    bare={"results": [{"text": TEXT}]},
    empty={"results": [], "statuses": []},
    faults={
        "page failed": Fault(
            as_json(
                {
                    "results": [],
                    "statuses": [
                        {"id": URL, "status": "error", "error": {"tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404}}
                    ],
                }
            ),
            PageBlocked,
            "CRAWL_NOT_FOUND",
        ),
        "page failed without a word": Fault(as_json({"statuses": [{"status": "error"}]}), PageBlocked, "no reason"),
    },
)

JINA = Row(
    type="jina",
    request="POST /",
    headers={"x-retain-images": "none"},
    sends={"url": URL},
    page=lambda page: {
        "code": 200,
        "status": 20000,
        "data": {
            "title": page.title,
            "url": page.url,
            "content": page.text,
            "publishedTime": "Fri, 01 May 2026 09:00:00 GMT",
            "warning": "This is a cached snapshot of the original page",
            "usage": {"tokens": 1234},
        },
    },
    bare={"data": {"content": TEXT}},
    empty={"code": 200, "data": None},
    faults={
        "page failed": Fault(
            as_json({"data": {"content": "# Not Found", "warning": "Target URL returned error 404: Not Found"}}),
            PageBlocked,
            "status 404",
        ),
        "challenge": Fault(
            as_json({"data": {"content": "# Wait", "warning": "This page maybe requiring CAPTCHA"}}),
            PageBlocked,
            "a challenge",
        ),
        "403": Fault(as_json({"name": "OperationNotAllowedError"}, 403), PageBlocked, "403"),
        "409": Fault(as_json({"status": 40904}, 409), PageBlocked, "409"),
        "413": Fault(as_json({"status": 41302}, 413), PageBlocked, "413"),
        "422": Fault(as_json({"status": 42206}, 422), PageBlocked, "422"),
        "451": Fault(as_json({"status": 45102}, 451), PageBlocked, "451"),
        "quota": Fault(as_json({"name": "InsufficientBalanceError", "status": 40203}, 402), QuotaExceeded),
    },
)

FIRECRAWL = Row(
    type="firecrawl",
    request="POST /v2/scrape",
    sends={"url": URL, "formats": ["markdown", "links"], "onlyMainContent": True, "timeout": 10000},
    page=lambda page: {
        "success": True,
        "data": {
            "markdown": page.text,
            "metadata": {
                "title": page.title,
                "sourceURL": URL,
                "url": page.url,
                "statusCode": 200,
                "publishedTime": f"{page.date}T09:00:00+02:00",
            },
            "links": [*page.links, *page.links, "mailto:a@example.org", "/relative", None],
        },
    },
    bare={"success": True, "data": {"markdown": TEXT}},
    empty={"success": True, "data": {"metadata": {"statusCode": 200}}},
    faults={
        "page failed": Fault(
            as_json({"success": True, "data": {"markdown": "# Gone", "metadata": {"statusCode": 404}}}),
            PageBlocked,
            "status 404",
        ),
        "no success": Fault(as_json({"success": False, "error": KEY}), Unavailable, "Firecrawl"),
        "no success for the page": Fault(
            as_json({"success": False, "code": "SCRAPE_SITE_ERROR"}), PageBlocked, "SCRAPE_SITE_ERROR"
        ),
        "no such host": Fault(
            as_json({"success": False, "error": KEY, "code": "SCRAPE_DNS_RESOLUTION_ERROR"}, 500),
            PageBlocked,
            "SCRAPE_DNS_RESOLUTION_ERROR",
        ),
        "403": Fault(as_json({"success": False, "error": "not supported"}, 403), PageBlocked, "403"),
    },
)

CRAWL4AI = Row(
    type="crawl4ai",
    request="POST /md",
    sends={"url": URL, "f": "fit", "c": "0"},
    page=lambda page: {
        "url": URL,
        "filter": "fit",
        "query": None,
        "cache": "0",
        "markdown": page.text,
        "success": True,
    },
    gives=Page(URL, PAGE.title, PAGE.text, None, LINKS),  # it says neither title nor date; the heading is the title
    bare={"markdown": TEXT},
    empty={"markdown": "", "success": True},
    faults={
        "page failed": Fault(as_json({"success": False, "markdown": ""}), PageBlocked, "could not read"),
        "page failed as 500": Fault(as_json({"detail": "Crawl failed"}, 500), PageBlocked, "500"),
        "400": Fault(as_json({"detail": "Rejected request"}, 400), PageBlocked, "400"),
        "403": Fault(Reply(403, HTML_ERROR), PageBlocked, "403"),
        "413": Fault(Reply(413, JSON_ERROR), PageBlocked, "413"),
        "500 JSON": Fault(as_json({"error": "Internal server error", "correlation_id": KEY}, 500), Unavailable, "500"),
    },
)

ROWS = {row.type: row for row in (TAVILY, EXA, JINA, FIRECRAWL, CRAWL4AI)}
READERS: Mapping[str, type[FakeReader]] = {kind: reader(row) for kind, row in ROWS.items()}


def bare_reply(kind: str) -> Reply:
    return Reply(body=json.dumps(ROWS[kind].bare).encode(), content_type="text/plain")

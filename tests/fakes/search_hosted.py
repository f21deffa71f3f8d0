"""The table of hosted search services on loopback: one row each, one server for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from providers.errors import AuthFailed, NoResults, QuotaExceeded, RateLimited, Unavailable
from tests.fakes.search_engine import DAY, DaysAgo, FakeEngine, Row, hosted
from tests.fakes.service import JSON_ERROR, KEY, Fault, Reply, as_json

BEARER = ("authorization", f"Bearer {KEY}")
GOOGLE_TIMES = {
    "time range": {"tbs": "qdr:w"},
    "since": {"tbs": DaysAgo(0, "cdr:1,cd_min:1/2/2026,cd_max:{today.month}/{today.day}/{today.year}")},
    "until": {"tbs": "cdr:1,cd_min:1/1/1990,cd_max:2/1/2026"},
    "between": {"tbs": "cdr:1,cd_min:1/2/2026,cd_max:2/1/2026"},
    "range within dates": {
        "tbs": DaysAgo(7, "cdr:1,cd_min:{day.month}/{day.day}/{day.year},cd_max:{today.month}/{today.day}/{today.year}")
    },
}
SITES = {
    "plain": {},
    "allowed": {"q": "heat site:example.org"},
    "several allowed": {"q": "heat (site:example.org OR site:example.net)"},
    "blocked": {"q": "heat -site:a.org -site:b.org"},
    "allowed and blocked": {"q": "heat site:example.org -site:a.example.org"},
}

TAVILY = Row(
    type="tavily",
    request="POST /search",
    auth=BEARER,
    words="query",
    count=("max_results", 20),
    always={"max_results": 4, "search_depth": "basic"},
    sends={
        "plain": {},
        "allowed": {"include_domains": ["example.org"]},
        "several allowed": {"include_domains": ["example.org", "example.net"]},
        "blocked": {"exclude_domains": ["a.org", "b.org"]},
        "allowed and blocked": {"include_domains": ["example.org"], "exclude_domains": ["a.example.org"]},
        "time range": {"time_range": "week"},
        "since": {"start_date": "2026-01-02"},
        "until": {"end_date": "2026-02-01"},
        "between": {"start_date": "2026-01-02", "end_date": "2026-02-01"},
        "range within dates": {"start_date": DaysAgo(7, "{day}")},
        "language": {"language": "de", "filter_by_language": True},
        "country": {"country": "switzerland"},
        "unknown country": {},
        "category": {"topic": "news"},
        "unknown category": {},
    },
    wrap=lambda rows: {"query": "heat", "answer": None, "images": [], "results": rows, "response_time": "1.09"},
    hit=lambda hit: {
        "title": hit.title,
        "url": hit.url,
        "content": hit.snippet,
        "score": 0.91,
        "raw_content": None,
        "published_date": "Fri, 01 May 2026 09:00:00 GMT",
    },
    faults={
        "quota": Fault(as_json({"detail": {"error": f"{KEY} exceeds"}}, 432), QuotaExceeded, "432"),
        "pay-as-you-go": Fault(as_json({"detail": {"error": "limit"}}, 433), QuotaExceeded, "433"),
        "keyless limit": Fault(
            as_json({"error": {"code": "limit", "message": "m", "retry_after_seconds": 60}}, 429),
            RateLimited,
            "without a key",
            retry_after=60.0,
            advises="set its api_key",
        ),
    },
)

EXA = Row(
    type="exa",
    request="POST /search",
    auth=("x-api-key", KEY),
    words="query",
    count=("numResults", 100),
    always={"numResults": 4, "type": "auto", "contents": {"highlights": True}},
    sends={
        "plain": {},
        "allowed": {"includeDomains": ["example.org"]},
        "several allowed": {"includeDomains": ["example.org", "example.net"]},
        "blocked": {"excludeDomains": ["a.org", "b.org"]},
        "allowed and blocked": {"includeDomains": ["example.org"]},
        "time range": {"startPublishedDate": DaysAgo(7, "{day}T00:00:00.000Z")},
        "since": {"startPublishedDate": "2026-01-02T00:00:00.000Z"},
        "until": {"endPublishedDate": "2026-02-01T23:59:59.999Z"},
        "between": {
            "startPublishedDate": "2026-01-02T00:00:00.000Z",
            "endPublishedDate": "2026-02-01T23:59:59.999Z",
        },
        "range within dates": {"startPublishedDate": DaysAgo(7, "{day}T00:00:00.000Z")},
        "language": {},
        "country": {"userLocation": "CH"},
        "unknown country": {"userLocation": "ZZ"},
        "category": {"category": "news"},
        "unknown category": {},
    },
    wrap=lambda rows: {"requestId": "b5947044", "results": rows, "costDollars": {"total": 0.007}},
    hit=lambda hit: {
        "id": hit.url,
        "url": hit.url,
        "title": hit.title,
        "author": None,
        "publishedDate": "2026-05-01T00:00:00.000Z",
        "highlights": [hit.snippet, "And more."],
        "highlightScores": [0.46, 0.3],
    },
    faults={
        "quota": Fault(as_json({"requestId": "r", "error": KEY, "tag": "NO_MORE_CREDITS"}, 402), QuotaExceeded),
    },
)

BRAVE = Row(
    type="brave",
    request="GET /res/v1/web/search",
    auth=("x-subscription-token", KEY),
    words="q",
    count=("count", 20),
    always={"count": "4", "text_decorations": "false", "result_filter": "web"},
    sends={
        **SITES,
        "time range": {"freshness": "pw"},
        "since": {"freshness": DaysAgo(0, "2026-01-02to{today}")},
        "until": {"freshness": "1990-01-01to2026-02-01"},
        "between": {"freshness": "2026-01-02to2026-02-01"},
        "range within dates": {"freshness": DaysAgo(7, "{day}to{today}")},
        "language": {"search_lang": "de"},
        "country": {"country": "CH"},
        "unknown country": {},
        "category": {"text_decorations": None, "result_filter": None},
        "unknown category": {},
    },
    places={"category": "/res/v1/news/search"},
    wrap=lambda rows: {"type": "search", "query": {"original": "heat"}, **({"web": {"results": rows}} if rows else {})},
    hit=lambda hit: {
        "title": hit.title,
        "url": hit.url,
        "description": hit.snippet,
        "page_age": "2026-05-01T00:00:00",
        "age": "May 1, 2026",
        "extra_snippets": ["And more."],
    },
    faults={
        "bad token": Fault(
            as_json({"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}, 422), AuthFailed, "key"
        ),
        "429 with windows": Fault(
            as_json(
                {"error": {"code": "RATE_LIMITED", "meta": {"quota_limit": 2000, "quota_current": 15}}},
                429,
                X_RateLimit_Reset="1, 1419704",
            ),
            RateLimited,
            retry_after=1.0,
        ),
        "quota": Fault(
            as_json({"error": {"code": "RATE_LIMITED", "meta": {"quota_limit": 2000, "quota_current": 2000}}}, 429),
            QuotaExceeded,
            "used up",
        ),
    },
)

PERPLEXITY = Row(
    type="perplexity",
    request="POST /search",
    auth=BEARER,
    words="query",
    count=("max_results", 20),
    always={"max_results": 4, "max_tokens_per_page": 512},
    sends={
        "plain": {},
        "allowed": {"search_domain_filter": ["example.org"]},
        "several allowed": {"search_domain_filter": ["example.org", "example.net"]},
        "blocked": {"search_domain_filter": ["-a.org", "-b.org"]},
        "allowed and blocked": {"search_domain_filter": ["example.org"]},
        "time range": {"search_recency_filter": "week"},
        "since": {"search_after_date_filter": "01/02/2026"},
        "until": {"search_before_date_filter": "02/01/2026"},
        "between": {"search_after_date_filter": "01/02/2026", "search_before_date_filter": "02/01/2026"},
        "range within dates": {"search_after_date_filter": DaysAgo(7, "{day:%m/%d/%Y}")},
        "language": {"search_language_filter": ["de"]},
        "country": {"country": "CH"},
        "unknown country": {"country": "ZZ"},
        "category": {},
        "unknown category": {},
    },
    wrap=lambda rows: {"id": "e38104d5", "server_time": None, "results": rows},
    hit=lambda hit: {"title": hit.title, "url": hit.url, "snippet": hit.snippet, "date": DAY, "last_updated": None},
)

SERPER = Row(
    type="serper",
    request="POST /search",
    auth=("x-api-key", KEY),
    words="q",
    count=("num", 100),
    always={"num": 4},
    sends={
        **SITES,
        **GOOGLE_TIMES,
        "language": {"hl": "de", "lr": "lang_de"},
        "country": {"gl": "ch"},
        "unknown country": {"gl": "zz"},
        "category": {},
        "unknown category": {},
    },
    places={"category": "/news", "papers": "/scholar"},
    address="link",
    wrap=lambda rows: {"searchParameters": {"q": "heat"}, **({"organic": rows} if rows else {}), "credits": 1},
    hit=lambda hit: {
        "title": hit.title,
        "link": hit.url,
        "snippet": hit.snippet,
        "date": "May 1, 2026",
        "position": 1,
    },
    faults={
        "403": Fault(as_json({"message": "Unauthorized.", "statusCode": 403}, 403), AuthFailed, "key"),
        "quota": Fault(as_json({"message": "Not enough credits", "statusCode": 400}, 400), QuotaExceeded, "used up"),
    },
)

JINA = Row(
    type="jina",
    request="GET /",
    auth=BEARER,
    words="q",
    count=("num", 20),
    always={"num": "4"},
    sends={
        "plain": {},
        "allowed": {"site": "example.org"},
        "several allowed": {"site": ["example.org", "example.net"]},
        "blocked": {"q": "heat -site:a.org -site:b.org"},
        "allowed and blocked": {"site": "example.org", "q": "heat -site:a.example.org"},
        **{name: {} for name in GOOGLE_TIMES},  # it knows no time
        "language": {"hl": "de"},
        "country": {"gl": "ch"},
        "unknown country": {"gl": "zz"},
        "category": {"type": "news"},
        "unknown category": {},
    },
    wrap=lambda rows: {"code": 200, "status": 20000, "data": rows, "meta": {"usage": {"tokens": 10000}}},
    hit=lambda hit: {"title": hit.title, "url": hit.url, "description": hit.snippet, "date": "May 1, 2026"},
    faults={
        "nothing": Fault(as_json({"data": None, "code": 422, "name": "AssertionFailureError"}, 422), NoResults),
        "quota": Fault(as_json({"data": None, "code": 402, "status": 40203}, 402), QuotaExceeded),
    },
)

FIRECRAWL = Row(
    type="firecrawl",
    request="POST /v2/search",
    auth=BEARER,
    words="query",
    count=("limit", 100),
    always={"limit": 4, "sources": ["web"], "timeout": 10000},
    sends={
        "plain": {},
        "allowed": {"includeDomains": ["example.org"]},
        "several allowed": {"includeDomains": ["example.org", "example.net"]},
        "blocked": {"excludeDomains": ["a.org", "b.org"]},
        "allowed and blocked": {"includeDomains": ["example.org"]},
        **GOOGLE_TIMES,
        "language": {},
        "country": {"country": "CH"},
        "unknown country": {"country": "ZZ"},
        "category": {"sources": ["news"]},
        "unknown category": {},
    },
    wrap=lambda rows: {"success": True, "data": {"web": rows} if rows else {}, "warning": None},
    hit=lambda hit: {"title": hit.title, "url": hit.url, "description": hit.snippet, "position": 1, "date": DAY},
    faults={
        "no success": Fault(as_json({"success": False, "error": KEY}), Unavailable, "Firecrawl"),
        "403": Fault(Reply(403, JSON_ERROR), AuthFailed),
    },
)

ROWS = {row.type: row for row in (TAVILY, EXA, BRAVE, PERPLEXITY, SERPER, JINA, FIRECRAWL)}
HOSTED: Mapping[str, type[FakeEngine]] = {kind: hosted(row) for kind, row in ROWS.items()}

"""Tavily's API: `POST /search` and `POST /extract`. Handed a body; hands on the search or the pages that it asks for,
and of what was found the answer that Tavily's clients read. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from providers.records import dataclass
from providers.services.tavily import COUNTRIES
from tools.ledger import Source
from tools.render import SearchAnswer
from tools.web_search import MAX_QUERY

from ..values.errors import refuse
from ..values.language import primary_language
from ..values.request import json_object
from .search_engines import Day, EngineSearch, ReadText, Shape, Strings, checked, score_of, since

MOST_RESULTS = 20
MOST_URLS = 20
CHUNK = 500  # characters
_CODES = {name: code for code, name in COUNTRIES.items()}
_NAMES = {
    "allowed_domains": "include_domains",
    "blocked_domains": "exclude_domains",
    "category": "topic",
    "published_after": "start_date",
    "published_before": "end_date",
}
_TIME_RANGES = Literal["day", "week", "month", "year", "d", "w", "m", "y"]


class _Search(Shape):
    query: str
    search_depth: Literal["basic", "advanced", "fast", "ultra-fast"] = "basic"  # here all are one
    topic: Literal["general", "news", "finance"] = "general"
    time_range: _TIME_RANGES | None = None
    days: Annotated[int, Field(ge=1)] | None = None
    start_date: Day | None = None
    end_date: Day | None = None
    max_results: Annotated[int, Field(ge=0)] | None = None
    include_domains: Annotated[Strings, Field(default_factory=list)]
    exclude_domains: Annotated[Strings, Field(default_factory=list)]
    include_answer: bool | Literal["basic", "advanced"] = False
    include_raw_content: bool | Literal["markdown", "text"] = False
    country: str = ""
    language: str = ""


class _Extract(Shape):
    urls: Annotated[Strings, BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""
    chunks_per_source: Annotated[int, Field(ge=1, le=5)] = 3


@dataclass(frozen=True, slots=True)
class TavilySearch:
    search: EngineSearch
    most: int | None  # results that are shown
    answer: bool  # is a direct answer wanted?
    pages: bool  # are the pages of the results?


@dataclass(frozen=True, slots=True)
class TavilyExtract:
    urls: tuple[str, ...]
    query: str
    length: int | None  # characters of a page that speak of the query; None: all of it


def decode_search(raw: bytes, today: dt.date) -> TavilySearch:
    body = checked(_Search, json_object(raw))
    if body.start_date and body.end_date and body.start_date > body.end_date:
        raise refuse(400, "`end_date` must not lie before `start_date`.", param="end_date", code="invalid_value")
    most = body.max_results
    arguments: dict[str, Any] = {
        "query": body.query,
        "allowed_domains": body.include_domains,
        "blocked_domains": body.exclude_domains,
        "category": "" if body.topic == "general" else body.topic,
        **(since(body.days, today) if body.days else {}),
    }
    if body.time_range:
        arguments["time_range"] = body.time_range[0]
    if body.start_date:
        arguments["published_after"] = body.start_date.isoformat()
    if body.end_date:
        arguments["published_before"] = body.end_date.isoformat()
    country, language = _CODES.get(body.country.strip().lower(), ""), primary_language(body.language)
    limit = None if most is None else min(max(most, 1), MOST_RESULTS)
    search = EngineSearch(arguments, _NAMES, limit, country, language)
    return TavilySearch(search, most, bool(body.include_answer), bool(body.include_raw_content))


def decode_extract(raw: bytes) -> TavilyExtract:
    body = checked(_Extract, json_object(raw))
    urls = tuple(dict.fromkeys(url.strip() for url in body.urls))
    if not 1 <= len(urls) <= MOST_URLS:
        text = f"`urls` must hold 1 to {MOST_URLS} addresses."
        raise refuse(400, text, param="urls", code="invalid_value")
    query = body.query.strip()
    return TavilyExtract(urls, query, body.chunks_per_source * CHUNK if query else None)


def search_answer(
    asked: TavilySearch, found: SearchAnswer, pages: Mapping[str, str], seconds: float, request_id: str
) -> dict[str, Any]:
    """`pages` is what the pages say, by their address."""
    shown = found.sources if asked.most is None else found.sources[: asked.most]
    return {
        "query": found.query,
        "follow_up_questions": None,
        "answer": found.direct if asked.answer else None,  # who asks for one is promised a text
        "images": [],
        "results": [_result(rank, source, pages) for rank, source in enumerate(shown)],
        "response_time": round(seconds, 2),
        "request_id": request_id,
    }


def _result(rank: int, source: Source, pages: Mapping[str, str]) -> dict[str, Any]:
    dated = {"published_date": source.date} if source.date else {}
    return {
        "url": source.url,
        "title": source.title,
        "content": source.snippet,
        "score": score_of(rank),
        "raw_content": pages.get(source.url),
        **dated,
    }


def extract_answer(pages: Sequence[ReadText], seconds: float, request_id: str) -> dict[str, Any]:
    return {
        "results": [
            {"url": page.url, "title": page.title, "raw_content": page.text, "images": []}
            for page in pages
            if not page.error
        ],
        "failed_results": [{"url": page.url, "error": page.error} for page in pages if page.error],
        "response_time": round(seconds, 2),
        "request_id": request_id,
    }

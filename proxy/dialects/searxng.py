"""SearXNG's API: `GET /search?q=…&format=json`, and the same at the root. Handed the parameters of an address; hands on
the search that they ask for, and of what was found the answer that SearXNG's clients read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from providers.records import dataclass
from tools.ledger import Source
from tools.render import SearchAnswer

from ..values.errors import refuse
from ..values.language import primary_language
from .search_engines import EngineSearch, score_of

ON_A_PAGE = 10
_PAGES = 2  # beyond them nobody has results for us
_TIME_RANGES = {"day": "d", "week": "w", "month": "m", "year": "y"}
_COUNTRY = re.compile(r"[a-z]{2,3}[-_]([A-Za-z]{2})")
_NAMES = {"query": "q", "category": "categories", "allowed_domains": "q", "blocked_domains": "q"}
_GENERAL = "general"
_DOMAIN = r"[\w-]+(?:\.[\w-]+)+"
_SITE = re.compile(rf"(?<!\S)(?:(-?)site:({_DOMAIN})|\((site:{_DOMAIN}(?: OR site:{_DOMAIN})+)\))(?!\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SearxngSearch:
    search: EngineSearch
    page: int
    category: str

    @property
    def beyond(self) -> bool:
        """Whether nothing can be there, so that nobody need be asked."""
        return self.page > _PAGES


def decode_search(given: Mapping[str, str]) -> SearxngSearch:
    kind = given.get("format", "html")
    if kind != "json":
        text = f"The format '{kind[:20]}' is not served here: ask for `format=json`."
        raise refuse(400, text, param="format", code="invalid_value")
    page, period = given.get("pageno") or "1", given.get("time_range", "")
    if not re.fullmatch(r"[1-9][0-9]*", page):
        raise refuse(400, "`pageno` must be a number from 1 on.", param="pageno", code="invalid_value")
    if period and period not in _TIME_RANGES:
        text = f"`time_range` must be one of {', '.join(_TIME_RANGES)}."
        raise refuse(400, text, param="time_range", code="invalid_value")
    number = int(page[:6])  # far beyond the last page each is as good as the other
    category = _category(given.get("categories", ""))
    text, allowed, blocked = _sites(given.get("q", ""))
    arguments = {
        "query": text,
        "allowed_domains": allowed,
        "blocked_domains": blocked,
        "time_range": _TIME_RANGES.get(period, "all"),
        "category": "" if category == _GENERAL else category,
    }
    language = given.get("language", "")
    country = _COUNTRY.fullmatch(language)
    search = EngineSearch(
        arguments,
        _NAMES,
        limit=min(number, _PAGES) * ON_A_PAGE,
        country=country[1] if country else "",
        language=primary_language(language.replace("_", "-")),
    )
    return SearxngSearch(search, number, category)


def _sites(q: str) -> tuple[str, list[str], list[str]]:
    """What is searched for, in which domains alone, and in which not. Engines take `site:` and `-site:` in the query;
    few of our providers do, but all know domains. Where nothing else is asked they are the question."""
    allowed: list[str] = []
    blocked: list[str] = []
    for minus, single, several in _SITE.findall(q):
        named = [single] if single else [site[len("site:") :] for site in several.split()[::2]]
        (blocked if minus else allowed).extend(named)
    text = " ".join(_SITE.sub("", q).split()) if allowed or blocked else q
    return (text, allowed, blocked) if text else (q, [], [])


def _category(given: str) -> str:
    """The first that says something; there is no search in several at once."""
    named = [name.strip() for name in given.split(",") if name.strip()]
    return next((name for name in named if name != _GENERAL), _GENERAL)


def search_answer(asked: SearxngSearch, found: SearchAnswer) -> dict[str, Any]:
    """`unresponsive_engines` is where SearXNG says that nothing was found because nobody could look."""
    begin = (asked.page - 1) * ON_A_PAGE
    results = found.sources[begin : begin + ON_A_PAGE]
    return {
        "query": found.query,
        "number_of_results": len(results),
        "results": [_result(begin + rank, source, asked, found) for rank, source in enumerate(results)],
        "answers": [found.direct] if found.direct and asked.page == 1 else [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [["groundwire", found.message]] if found.fault else [],
    }


def nothing_found(asked: SearxngSearch) -> SearchAnswer:
    """For a page on which nothing can be."""
    return SearchAnswer(str(asked.search.arguments["query"]))


def _result(rank: int, source: Source, asked: SearxngSearch, found: SearchAnswer) -> dict[str, Any]:
    return {
        "url": source.url,
        "title": source.title,
        "content": source.snippet,
        "publishedDate": source.date,
        "engine": found.provider,
        "engines": [found.provider],
        "positions": [rank + 1],
        "score": score_of(rank),
        "category": asked.category,
        "template": "default.html",
    }

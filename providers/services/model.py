"""A model that searches the web by itself, as a search service: hosted OpenAI, Perplexity's Sonar, OpenRouter's
`:online`, xAI. Whoever has a subscription to one of them can search with it for every other model.

Handed a `SearchQuery`; asks the model over Chat Completions or Responses, and hands on the sources that it names. What
it says of a source is that source's snippet, and all that it says the direct answer. No source, no result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..api import ServiceApi, bearer
from ..base import MOST_HITS, SearchQuery, SearchResult, SearchResults
from ..errors import NoResults, Unavailable
from ..queries import days_of
from ..rows import as_day, part, records
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

LONGEST_SNIPPET = 500
LONGEST_ANSWER = 4000
LONGEST_TEXT = 20_000  # of which sources are looked up
RULE = (
    "You are a search engine. Search the web for what the user writes, whatever it is, and do not answer from memory. "
    "Name up to {limit} pages that tell most about it, best first, one in a line: what the page says about it, with "
    "facts and numbers, in one or two sentences, and its citation. Write nothing else."
)
_THOUGHT, _THOUGHT_END = "<think>", "</think>"
SOURCES = ["web_search_call.action.sources"]

# Each part has an end: what it is tried on comes from outside.
_LINK = re.compile(r"\(?\[{1,2}[^\[\]\n]{1,200}\]{1,2}\((?:[^()\n]|\([^()\n]{0,100}\)){1,500}\){1,2}")
_MARKER = re.compile(r"\[\d{1,3}\]|【[^】\n]{0,80}】|^[\s\-*•]*(?:\d{1,2}[.)]\s+)?")


class Model:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        model: Annotated[str, Field(min_length=1)]
        """The model's name, as its server knows it."""
        api_key: Key | None = None
        base_url: BaseUrl = "https://api.openai.com/v1"
        timeout: float = Field(60.0, gt=0)
        api: Literal["chat", "responses"] = "chat"
        """`chat` asks `/chat/completions`, `responses` asks `/responses`."""
        body: Annotated[dict[str, Any], Field(default_factory=dict)]
        """More fields of the request, such as `search_parameters`. `null` removes one of ours: `web_search_options` in
        chat; `tools`, `include` and `store` in Responses.
        """

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        self._name = f"the model {settings.model}"
        headers = bearer(settings.api_key)
        self._api = ServiceApi(self._name, settings.base_url, timeout=settings.timeout, headers=headers, egress=egress)

    async def search(self, query: SearchQuery) -> SearchResults:
        chat = self._settings.api == "chat"
        body = _chat_body(query) if chat else _responses_body(query)
        path = "/chat/completions" if chat else "/responses"
        said = await self._api.post(path, {"model": self._settings.model, **body, **self._settings.body})
        if said.get("error"):
            raise Unavailable(f"{self._name} answered with an error")
        text, hits = _from_chat(said) if chat else _from_responses(said)
        if not hits:
            raise NoResults(f"{self._name} found nothing: it named no source")
        return SearchResults(tuple(hits.values())[:MOST_HITS], text[:LONGEST_ANSWER])

    async def aclose(self) -> None:
        await self._api.aclose()


# What it is asked


def rules(query: SearchQuery) -> str:
    """The filters as sentences: few of these models have parameters for them, and each its own."""
    first, last = days_of(query, relative=True)
    said = {
        "Name only pages of {}.": ", ".join(query.allowed_domains),
        "Name no page of {}.": ", ".join(query.blocked_domains),
        "Name only pages that were published on {} or later.": first and first.isoformat(),
        "Name only pages that were published on {} or earlier.": last and last.isoformat(),
        "Prefer pages in the language {}.": query.language,
        "Prefer pages that matter in the country {}.": query.country,
        "Prefer pages of the category {}.": query.category,
    }
    return " ".join([RULE.format(limit=query.limit), *(text.format(value) for text, value in said.items() if value)])


def _chat_body(query: SearchQuery) -> dict[str, Any]:
    place = {"type": "approximate", "approximate": {"country": query.country}}
    return {
        "messages": [{"role": "system", "content": rules(query)}, {"role": "user", "content": query.text}],
        "web_search_options": {"user_location": place} if query.country else {},
    }


def _responses_body(query: SearchQuery) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "web_search"}
    if query.country:
        tool["user_location"] = {"type": "approximate", "country": query.country}
    if query.allowed_domains:
        tool["filters"] = {"allowed_domains": list(query.allowed_domains)}
    return {
        "instructions": rules(query),
        "input": query.text,
        "tools": [tool],
        "include": SOURCES,
        "store": False,
    }


# What it answers


Hits = dict[str, SearchResult]  # by address


def _from_chat(said: Mapping[str, Any]) -> tuple[str, Hits]:
    message = part(next(iter(records(said.get("choices"))), None), "message")
    whole = _content(part(message, "content"))
    text = _spoken(whole)[:LONGEST_TEXT]
    hits: Hits = {}
    _add_results(hits, said.get("search_results"), text)
    _add_annotations(hits, part(message, "annotations"), whole[:LONGEST_TEXT])  # places count from its first character
    for citations in (said.get("citations"), part(message, "citations")):
        _add_addresses(hits, citations, text)
    return text, hits


def _content(given: object) -> str:
    """One text, or several in parts."""
    if isinstance(given, str):
        return given
    return "".join(piece["text"] for piece in records(given)[:MOST_HITS] if isinstance(piece.get("text"), str))


def _spoken(text: str) -> str:
    """Without what a reasoning model of Perplexity's thinks aloud before it speaks."""
    if not text.lstrip().startswith(_THOUGHT):
        return text
    return text.partition(_THOUGHT_END)[2].strip()


def _from_responses(said: Mapping[str, Any]) -> tuple[str, Hits]:
    items = records(said.get("output"))
    hits: Hits = {}
    texts = []
    for item in items[:MOST_HITS]:
        for piece in records(item.get("content"))[:MOST_HITS]:
            if isinstance(piece.get("text"), str):
                texts.append(piece["text"][:LONGEST_TEXT])
                _add_annotations(hits, piece.get("annotations"), texts[-1])
    text = "\n".join(texts)[:LONGEST_TEXT]
    for item in items[:MOST_HITS]:
        _add_addresses(hits, [part(source, "url") for source in records(part(item, "action", "sources"))], text)
    _add_addresses(hits, said.get("citations"), text)
    return text, hits


def _add_results(hits: Hits, rows: object, text: str) -> None:
    """Perplexity's: its n-th result is cited as [n]."""
    for n, row in enumerate(records(rows)[:MOST_HITS], 1):
        snippet = _words(row.get("snippet")) or _line_with(text, f"[{n}]")
        date = as_day(row.get("date")) or as_day(row.get("last_updated"))
        _add(hits, row.get("url"), row.get("title"), snippet, date)


def _add_annotations(hits: Hits, rows: object, text: str) -> None:
    """OpenAI's: in Chat Completions one level deeper than in Responses. OpenRouter adds what the page says."""
    for row in records(rows)[:MOST_HITS]:
        cited = row.get("url_citation") if isinstance(row.get("url_citation"), Mapping) else row
        begin = part(cited, "start_index")
        before = text[:begin].rpartition("\n")[2] if isinstance(begin, int) and 0 <= begin <= len(text) else ""
        snippet = _words(part(cited, "content")) or _plain(before) or _line_with(text, part(cited, "url"))
        _add(hits, part(cited, "url"), part(cited, "title"), snippet)


def _add_addresses(hits: Hits, urls: object, text: str) -> None:
    """Bare addresses, cited by number or by a link."""
    for n, url in enumerate(urls[:MOST_HITS] if isinstance(urls, list) else (), 1):
        _add(hits, url, "", _line_with(text, url) or _line_with(text, f"[{n}]"))


def _add(hits: Hits, url: object, title: object, snippet: str, date: str | None = None) -> None:
    if isinstance(url, str) and url and url not in hits:
        hits[url] = SearchResult(_words(title), url, snippet[:LONGEST_SNIPPET], date)


def _line_with(text: str, mark: object) -> str:
    lines: Iterable[str] = text.split("\n") if isinstance(mark, str) and mark else ()
    return next((_plain(line) for line in lines if str(mark) in line), "")


def _plain(line: str) -> str:
    """What a line says, without the links and numbers that say where it is from."""
    return " ".join(_MARKER.sub("", _LINK.sub("", line)).split())


def _words(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""

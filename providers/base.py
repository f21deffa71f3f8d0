"""The contract of every provider: what it is asked (`SearchQuery`, a URL) and what it gives (`SearchResult`, `Page`).

The contract is structural: a third-party provider imports nothing from here, may implement `search`, `read` or both,
and may return plain mappings with these field names; `as_results` and `as_page` make them ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from .errors import Outcome, Unavailable
from .records import dataclass

Role = Literal["search", "read"]
TimeRange = Literal["d", "w", "m", "y", "all"]
Basis = Literal["page", "snippet"]  # what a text is: of the page itself, or an engine's line about it

# What is kept of an answer, whoever gave it: far more than anybody is shown.
MOST_HITS = 100
LONGEST_TITLE = 2000
LONGEST_SNIPPET = 20_000
LONGEST_NOTE = 300
LONGEST_AUTHOR = 200
LONGEST_TEXT = 2_000_000
MOST_LINKS = 2000


@dataclass(frozen=True, slots=True)
class SearchQuery:
    text: str
    limit: int = 5
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    time_range: TimeRange = "all"
    published_after: str | None = None  # YYYY-MM-DD
    published_before: str | None = None
    country: str | None = None  # ISO 3166 alpha-2
    language: str | None = None  # ISO 639-1
    category: str | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    title: str
    url: str
    snippet: str = ""
    date: str | None = None
    author: str | None = None
    score: float | None = None  # as the service counts it; no two count alike
    basis: Basis = "snippet"  # of the snippet: `page` where it is a passage of the page, word for word


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a search gave: the hits in order, the service's own direct answer if it has one, and what whoever reads them
    must know of how they were found (`note`, part of a sentence). A `partial` one lacks something, and is not kept."""

    results: tuple[SearchResult, ...]
    answer: str = ""
    note: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a service that works says of its settings, for `groundwire check`. `{name}` in `fix` is the provider's."""

    problem: str = ""
    fix: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as the model reads it: Markdown, and the absolute links it holds (they may be opened next)."""

    url: str  # where it was in the end, after redirects
    title: str
    text: str
    date: str | None = None
    links: tuple[str, ...] = ()
    public: bool = True  # False if only `allow_networks` let it be read: then it is kept for the caller alone
    cut_short: str = ""  # the sentence its text begins with, if more was there than could be read


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """What became of one call of a provider, for those who watch. What was `asked` is people's: who may not show
    contents does not show it."""

    provider: str  # as the operator calls it
    role: Role
    outcome: Outcome
    cached: bool  # an earlier answer that was kept
    seconds: float  # as the asker felt them, with the wait for its turn
    asked: str = field(default="", repr=False)  # the query, or the page's URL
    size: int = 0  # bytes of the texts that it brought
    results: int | None = None  # hits of a search that brought some

    @property
    def answered(self) -> bool:
        """That there is nothing to find is an answer too."""
        return self.outcome in ("ok", "empty")


Observe = Callable[[ProviderCall], None]


@runtime_checkable
class SearchProvider(Protocol):
    async def search(self, query: SearchQuery) -> list[SearchResult] | SearchResults: ...


@runtime_checkable
class Inspectable(Protocol):
    """A provider that can tell more than whether it answers."""

    async def inspect(self) -> Inspection: ...


@runtime_checkable
class Remarking(Protocol):
    """A provider that notices more than it can put into an answer."""

    @property
    def remark(self) -> str:
        """What it noticed the last time, for the operator; empty if nothing."""


@runtime_checkable
class ReadProvider(Protocol):
    async def read(self, url: str) -> Page: ...


T = TypeVar("T", SearchResult, Page)

_REQUIRED = {"title": "", "url": "", "text": ""}  # what a plugin may leave out, though it has no default
_READ: Mapping[str, Callable[[Any], object]] = {
    "links": lambda links: tuple(str(link) for link in links or ()),
    "public": bool,
    "score": lambda score: float(score) if isinstance(score, int | float) else None,
    "basis": lambda basis: "page" if basis == "page" else "snippet",
}


def as_results(value: object) -> SearchResults:
    """What a provider returned, ours or a plugin's, as `SearchResults` of a size that can be kept. A hit without a URL
    is dropped."""
    if isinstance(value, SearchResults):
        return SearchResults(_hits(value.results), *_told(value.answer, value.note), value.partial)
    if isinstance(value, Mapping):
        told = _told(value.get("answer"), value.get("note"))
        return SearchResults(_hits(value.get("results") or ()), *told, value.get("partial") is True)
    return SearchResults(_hits(value))


def _told(answer: object, note: object) -> tuple[str, str]:
    return str(answer or "")[:LONGEST_SNIPPET], str(note or "")[:LONGEST_NOTE]


def is_whole(value: SearchResults | Page) -> bool:
    """An answer from which something is missing is a stopgap: the next one may be better."""
    return isinstance(value, Page) or not value.partial


def size_of(value: SearchResults | Page) -> int:
    """Bytes, in UTF-8, of what there is to read in it."""
    if isinstance(value, Page):
        return _bytes(value.title) + _bytes(value.text)
    texts = [value.answer]
    for hit in value.results:
        texts += (hit.title, hit.url, hit.snippet)
    return _bytes("".join(texts))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _hits(rows: object) -> tuple[SearchResult, ...]:
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise Unavailable(f"the provider returned {type(rows).__name__}, not a list of results")
    hits = []
    for row in islice(rows, MOST_HITS):
        hit = row if isinstance(row, SearchResult) else _from_mapping(SearchResult, row)
        if hit.url:
            hits.append(_cut(hit))
    return tuple(hits)


def _cut(hit: SearchResult) -> SearchResult:
    title, snippet, author = hit.title, hit.snippet, hit.author
    if (
        len(title) <= LONGEST_TITLE
        and len(snippet) <= LONGEST_SNIPPET
        and (not author or len(author) <= LONGEST_AUTHOR)
    ):
        return hit
    author = author and author[:LONGEST_AUTHOR]
    return replace(hit, title=title[:LONGEST_TITLE], snippet=snippet[:LONGEST_SNIPPET], author=author)


def as_page(value: object) -> Page:
    page = value if isinstance(value, Page) else _from_mapping(Page, value)
    if len(page.text) <= LONGEST_TEXT and len(page.links) <= MOST_LINKS:
        return page
    return replace(page, text=page.text[:LONGEST_TEXT], links=page.links[:MOST_LINKS])


def _from_mapping(kind: type[T], value: object) -> T:
    if not isinstance(value, Mapping):
        raise Unavailable(f"the provider returned {type(value).__name__}, not a {kind.__name__}")
    given = {**_REQUIRED, **{key: found for key, found in value.items() if found is not None}}
    names = [field.name for field in fields(kind) if field.name in given]
    read: dict[str, Any] = {name: _READ.get(name, str)(given[name]) for name in names}
    return kind(**read)

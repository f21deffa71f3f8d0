"""SearXNG, the metasearch engine people host themselves, over its JSON format.

Handed a `SearchQuery`; hands on hits, infoboxes and the instant answers of its answerers. It has no count parameter, so
more results mean more pages. It obeys commands in the query (`!g`, `:de`, `<3`), which are a model's words to us. It
knows no users; a proxy before it may, so it takes a key or a name and password.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, SecretStr, StringConstraints, model_validator
from yarl import URL

from ..api import ServiceApi, bearer
from ..base import MOST_HITS, Inspection, SearchQuery, SearchResult, SearchResults
from ..countries import SPOKEN
from ..errors import AuthFailed, BadRequest, NoResults, ProviderError, RateLimited, Unavailable
from ..queries import PERIODS, with_sites
from ..rows import as_author, as_day, as_score, part, records
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress
from ..web.http import REDIRECTS
from ..web.service_wire import ServiceAnswer

_MOST_NAMES, _MOST_KNOWN = 20, 2000  # engines that are named, and that are compared
_LONGEST_NAME = 200
FULL_PAGE = 10  # results: what most engines give at once; a page with fewer is the last
MORE_PAGES = (2, 3)
OF_ANY_TIME = "nothing was found in that time range, so these results are of any time"
ENABLE_JSON = "add `json` under `search: formats:` in its settings.yml and restart it"
LET_US_IN = "turn `server.limiter` off in its settings.yml, or add this machine to `pass_ip` in limiter.toml"

_COMMAND = re.compile(r"(?:^|\s)[!:<]")  # where one may begin

Language = Annotated[str, StringConstraints(pattern=r"^(?:auto|[a-z]{2,3}(?:-[A-Za-z]{2})?)$")]


class Searxng:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        base_url: BaseUrl
        timeout: float = Field(10.0, gt=0)
        api_key: Key | None = None
        username: str | None = None
        """The name for HTTP basic authentication, if your SearXNG asks for it."""
        password: SecretStr | None = None
        """The password that belongs to `username`."""
        categories: list[str] = []
        """SearXNG's categories to search, such as `general` or `science`. Empty: its default."""
        engines: list[str] = []
        """SearXNG's engines to ask, such as `duckduckgo` or `wikipedia`. Empty: its default."""
        language: Language | None = None
        """The language for queries that name none, such as `de`, `de-CH`, `all` or `auto`."""

        @model_validator(mode="after")
        def _one_way_in(self) -> Self:
            if (self.username is None) != (self.password is None):
                raise ValueError("username and password belong together")
            if self.api_key and self.username is not None:
                raise ValueError("it takes an api_key, or username and password, not both")
            return self

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        url, headers = settings.base_url, bearer(settings.api_key) or _basic(settings.username, settings.password)
        self._api = _SearxngApi(
            "SearXNG", url, timeout=settings.timeout, headers=headers, translate=_translate, egress=egress
        )
        self._silent: Sequence[str] = ()  # the engines that did not answer the last search, with their reasons

    async def search(self, query: SearchQuery) -> SearchResults:
        words = without_commands(query.text)
        if words != query.text:
            query = replace(query, text=words)
        if not words:
            raise BadRequest("the query holds no word to search for")
        found = await self._find(query)
        if found is None and query.time_range in PERIODS:
            # Engines that know no time ranges were not even asked.
            found = await self._find(replace(query, time_range="all"))
            found = found and replace(found, note=OF_ANY_TIME)
        if found is None:
            raise self._nothing()
        return found

    @property
    def remark(self) -> str:
        return f"engines that did not answer: {', '.join(self._silent)}" if self._silent else ""

    async def inspect(self) -> Inspection:
        """What of the settings it ignores silently, and which engines kept silent in the last search."""
        remark = self.remark
        try:
            known = await self._api.get("/config", {})
        except ProviderError:  # some keep it to themselves
            return Inspection(remark=remark)
        wanted = {"category": self._settings.categories, "engine": self._settings.engines}
        there = {
            "category": _names(known.get("categories")),
            "engine": _names([engine.get("name") for engine in records(known.get("engines"))]),
        }
        return _inspection(wanted, there, remark)

    async def aclose(self) -> None:
        await self._api.aclose()

    async def _find(self, query: SearchQuery) -> SearchResults | None:
        deadline = time.monotonic() + self.timeout
        first = await self._page(query, 1)
        self._silent = _silent(first)
        hits, answer = _hits(first), _answer(first)
        pages = [_infoboxes(first), _answers(first), hits]
        if not any(pages) and not answer:
            return None
        if FULL_PAGE <= len(hits) < query.limit:
            pages += map(_hits, await self._more(query, deadline))
        return SearchResults(_each_once(pages), answer)

    async def _more(self, query: SearchQuery, deadline: float) -> list[dict[str, Any]]:
        """The pages after the first, asked for together. What page one gave is kept, whatever happens to them."""
        pages = [asyncio.create_task(self._page(query, number)) for number in MORE_PAGES]
        try:
            await asyncio.wait(pages, timeout=deadline - time.monotonic())
        finally:
            for page in pages:
                page.cancel()
        given = await asyncio.gather(*pages, return_exceptions=True)
        return [page for page in given if isinstance(page, dict)]

    async def _page(self, query: SearchQuery, number: int) -> dict[str, Any]:
        params: dict[str, str | int] = {"q": with_sites(query), "format": "json"}
        if query.time_range in PERIODS:
            params["time_range"] = PERIODS[query.time_range]
        if language := _language(query, self._settings.language or ""):
            params["language"] = language
        if query.category or self._settings.categories:
            params["categories"] = query.category or ",".join(self._settings.categories)
        if self._settings.engines:
            params["engines"] = ",".join(self._settings.engines)
        if number > 1:
            params["pageno"] = number
        return await self._api.get("/search", params)

    def _nothing(self) -> ProviderError:
        """Empty because nothing matched, or because the engines behind it gave up: the second is a fault."""
        if not self._silent:
            return NoResults("SearXNG found nothing")
        return Unavailable(f"the engines behind SearXNG did not answer: {', '.join(self._silent)}")


class _SearxngApi(ServiceApi):
    def decode(self, answer: ServiceAnswer) -> dict[str, Any]:
        """A redirect to elsewhere is its answer to this one query, and no news about SearXNG."""
        if answer.status in REDIRECTS and self._leads_elsewhere(answer.header(b"location")):
            advice = "if this happens to every query, correct its base_url: it seems to have moved"
            raise BadRequest("SearXNG sends this query to another site; use other words", advice=advice)
        return super().decode(answer)

    def _leads_elsewhere(self, location: str) -> bool:
        here = URL(self.base_url)
        try:
            return here.join(URL(location)).host != here.host
        except ValueError:
            return True


def without_commands(text: str) -> str:
    """The query with nothing in it that SearXNG would obey: `!engine`, `!!site`, `:language`, `<timeout`."""
    if not _COMMAND.search(text):
        return " ".join(text.split())
    return " ".join(filter(None, map(_as_word, text.split())))


def _as_word(word: str) -> str:
    """Commands only begin a word: `<vector>`, `12:30` and `wow!` are none."""
    while word.startswith(("!", ":")) or (word.startswith("<") and word[1:].isdigit()):
        word = word[1:]
    return word


def _language(query: SearchQuery, usual: str) -> str:
    """SearXNG has languages with a country, and no country alone."""
    country = (query.country or "").upper()
    usual = "" if country and usual in ("all", "auto") else usual
    language = query.language or (usual.partition("-")[0] if country else usual) or SPOKEN.get(country, "")
    return f"{language}-{country}" if language and country else language


def _basic(username: str | None, password: SecretStr | None) -> dict[str, str]:
    if username is None or password is None:
        return {}
    credentials = b64encode(f"{username}:{password.get_secret_value()}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


# What it gives, by URL


def _hits(page: Mapping[str, Any]) -> dict[str, SearchResult]:
    """The hits of one page, in the engine's order."""
    hits: dict[str, SearchResult] = {}
    for hit in records(page.get("results"))[:MOST_HITS]:
        url = hit.get("url")
        if not isinstance(url, str):
            continue
        day = hit.get("publishedDate")
        author = hit.get("author") or hit.get("authors")
        hits[url] = SearchResult(
            str(hit.get("title") or ""),
            url,
            str(hit.get("content") or ""),
            as_day(day) if day else None,
            as_author(author) if author else None,
            as_score(hit.get("score")),
        )
    return hits


def _infoboxes(page: Mapping[str, Any]) -> dict[str, SearchResult]:
    """What it shows beside the hits. Of a stock instance these are all that Wikipedia gives."""
    boxes: dict[str, SearchResult] = {}
    for box in records(page.get("infoboxes"))[:MOST_HITS]:
        links = [box.get("id"), *(link.get("url") for link in records(box.get("urls")))]
        url = next((link for link in links if isinstance(link, str) and link.startswith(("https://", "http://"))), "")
        facts = [
            f"{fact['label']}: {fact['value']}"
            for fact in records(box.get("attributes"))
            if isinstance(fact.get("label"), str) and isinstance(fact.get("value"), str)
        ]
        says = " … ".join(filter(None, [str(box.get("content") or ""), *facts]))
        if url:
            boxes.setdefault(url, SearchResult(str(box.get("infobox") or ""), url, says))
    return boxes


def _answers(page: Mapping[str, Any]) -> dict[str, SearchResult]:
    """The instant answers that say where they come from."""
    return {
        said["url"]: SearchResult("", said["url"], said["answer"])
        for said in records(page.get("answers"))[:MOST_HITS]
        if isinstance(said.get("url"), str) and said["url"] and isinstance(said.get("answer"), str) and said["answer"]
    }


def _answer(page: Mapping[str, Any]) -> str:
    """The other instant answers; older versions send strings, newer ones objects."""
    given = page.get("answers")
    if not isinstance(given, list):
        return ""
    rest = [item for item in given if not part(item, "url")]
    answers = (part(item, "answer") or item for item in rest)
    return "\n".join(answer for answer in answers if isinstance(answer, str) and answer)


def _each_once(pages: Iterable[Mapping[str, SearchResult]]) -> tuple[SearchResult, ...]:
    """In their order; of two for the same address the first says more."""
    found: dict[str, SearchResult] = {}
    for page in pages:
        for url, hit in page.items():
            found.setdefault(url, hit)
    return tuple(found.values())


def _silent(page: Mapping[str, Any]) -> list[str]:
    """The engines that did not answer, each with its reason."""
    rows = page.get("unresponsive_engines")
    if not isinstance(rows, list):
        return []
    return [_one_line(_of_engine(row)) for row in rows[:_MOST_NAMES]]


def _one_line(text: str) -> str:
    """As much of it as can be printed: the engines write it, and whatever stands behind them."""
    return " ".join("".join(filter(str.isprintable, text[:_LONGEST_NAME])).split())


def _of_engine(row: object) -> str:
    if not isinstance(row, list) or not row:
        return str(row)
    name, *reasons = map(str, row)
    return f"{name} ({', '.join(reasons)})" if reasons else name


# What its operator hears


def _names(value: object) -> list[str]:
    names = value if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str) and len(name) <= _LONGEST_NAME][:_MOST_KNOWN]


def _inspection(wanted: Mapping[str, Sequence[str]], there: Mapping[str, Sequence[str]], remark: str) -> Inspection:
    """`wanted` and `there` are names by what they are names of; a list that is not told proves nothing."""
    unknown = [
        (kind, name) for kind, names in wanted.items() for name in names if there[kind] and name not in there[kind]
    ]
    if not unknown:
        return Inspection(remark=remark)
    problem = " and ".join(f"no {kind} {name}" for kind, name in unknown)
    keys = {"category": "`options.categories`", "engine": "`options.engines`"}
    places = ", ".join(dict.fromkeys(keys[kind] for kind, _ in unknown))
    near = [match for kind, name in unknown for match in get_close_matches(name.lower(), there[kind], n=1)]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return Inspection(
        f"SearXNG knows {problem}, and ignores that", f"correct {places} of provider {{name}}{hint}", remark
    )


def _translate(status: int, body: str) -> ProviderError | None:
    if status == 401:
        advice = "set its api_key, or username and password"
        return AuthFailed("SearXNG wants to know who asks (status 401)", advice=advice)
    if status == 403:
        return AuthFailed("SearXNG refused the JSON format (status 403)", advice=ENABLE_JSON)
    if status == 429:
        return RateLimited("SearXNG's limiter keeps us out (status 429)", advice=LET_US_IN)
    if status == 200 and "<html" in body[:2000].lower():
        return Unavailable("SearXNG answered with a web page, so its JSON format is off", advice=ENABLE_JSON)
    return None

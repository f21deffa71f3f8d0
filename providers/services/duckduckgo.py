"""DuckDuckGo without a key, through the library `ddgs`, which reads the HTML page with a browser's fingerprint.

Handed a `SearchQuery`; hands on hits. DuckDuckGo blocks addresses that ask in bursts, so it is limited to few calls
from the start.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, Field

from ..base import SearchQuery, SearchResult
from ..errors import NoResults, ProxyFailed, TimedOut, Unavailable
from ..queries import LONG_AGO, days_of, with_sites
from ..settings import check_url
from ..web.egress import DIRECT, Egress, Failing, failing, happening

if TYPE_CHECKING:
    from ddgs import DDGS

_ENGINE = "duckduckgo"  # as the library calls it
_MAX_PAGE = 2_000_000
_HOME = "https://html.duckduckgo.com/"

# Every region DuckDuckGo knows, as country-language; the first of a country is its default.
REGIONS = (  # noqa: SIM905 - sixty quoted strings read worse
    "ar-es at-de au-en be-nl be-fr bg-bg br-pt ca-en ca-fr ch-de ch-fr ch-it cl-es cn-zh co-es cz-cs de-de dk-da "
    "ee-et es-es fi-fi fr-fr gr-el hk-tzh hr-hr hu-hu id-id id-en ie-en il-he in-en it-it jp-jp kr-kr lt-lt lv-lv "
    "mx-es my-en my-ms nl-nl no-no nz-en pe-es ph-en ph-tl pl-pl pt-pt ro-ro ru-ru se-sv sg-en sk-sk sl-sl th-th "
    "tr-tr tw-tzh ua-uk uk-en us-en ve-es vn-vi za-en"
).split()
COUNTRIES = {"gb": "uk", "si": "sl"}  # ISO 3166 → DuckDuckGo
LANGUAGES = {"ja": "jp", "ko": "kr", "nb": "no"}  # ISO 639 → DuckDuckGo


class DuckDuckGo:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        base_url: Annotated[str, AfterValidator(check_url)] | None = (
            None  # the search page itself; DuckDuckGo's own unless given
        )
        timeout: float = Field(10.0, gt=0)
        rate: float = Field(1.0, gt=0)
        """The most searches that may start per second. More gets this address blocked for a while."""
        in_flight: int = Field(4, gt=0)
        """The most searches under way at once."""
        region: str = "us-en"
        """The region for queries that name neither a country nor a language, such as `us-en` or `de-de`."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self.limits = {"rate": settings.rate, "concurrency": settings.in_flight}
        self._settings = settings
        self._egress = egress
        self.search_url = settings.base_url or _HOME
        self._proxy = egress.proxy_to_url(self.search_url)
        # A pool of its own: its size bounds the calls in flight even when callers leave before their thread is done.
        self._pool = ThreadPoolExecutor(settings.in_flight, thread_name_prefix="duckduckgo")

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, query)

    async def aclose(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, query: SearchQuery) -> list[SearchResult]:
        from ddgs.exceptions import DDGSException, TimeoutException

        try:
            hits: list[dict[str, Any]] = self._library().text(
                with_sites(query),
                region=_region(query) or self._settings.region,
                timelimit=_time_limit(query),
                max_results=max(10, query.limit),  # one page; the chain filters, then cuts
                backend=_ENGINE,
            )
        except TimeoutException:
            raise TimedOut(f"DuckDuckGo did not answer within {self._settings.timeout:g} s") from None
        except DDGSException as error:
            # The library says the same for an empty page, a challenge and every refusal.
            if str(error) == "No results found.":
                raise NoResults("DuckDuckGo gave no results; it may be throttling this address") from None
            if self._proxy and (trouble := _proxy_trouble(str(error))):
                sentence = f"the proxy before DuckDuckGo {happening(trouble)}"
                raise ProxyFailed(sentence, advice=self._proxy.remedy(trouble)) from None
            raise Unavailable("DuckDuckGo could not be asked (no connection, or a page nobody can read)") from error
        return [SearchResult(hit.get("title", ""), hit.get("href", ""), hit.get("body", "")) for hit in hits]

    def _library(self) -> DDGS:
        """The library for one call. It keeps the engine that it makes, so what this engine is given holds for this call
        alone; on the engine's class it would hold for the process."""
        from ddgs import DDGS

        proxy = self._proxy.url if self._proxy else None
        verify = self._egress.ca_file or True  # besides those it knows itself
        library = DDGS(proxy, timeout=self._settings.timeout, verify=verify)  # type: ignore[arg-type]  # fractions work
        for engine in library._get_engines("text", _ENGINE):
            engine.http_client.client.proxy = proxy  # without one it would take the environment's
            engine.http_client.client = _BoundedClient(engine.http_client.client)  # type: ignore[assignment]
            if self._settings.base_url:
                engine.search_url = self._settings.base_url
        return library


class _Answer(NamedTuple):
    status_code: int
    content: bytes
    text: str


class _BoundedClient:
    """The library's HTTP client, except that an answer may only be so large: by itself it inflates whatever comes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def request(self, *arguments: Any, **named: Any) -> _Answer:
        body = bytearray()
        with self._client.request(*arguments, **named, stream=True) as response:
            for piece in response.iter_bytes():  # some kilobytes each, inflated
                body += piece
                if len(body) > _MAX_PAGE:
                    raise ValueError("the page is too large")
        return _Answer(response.status_code, bytes(body), body.decode("utf-8", "replace"))


def _proxy_trouble(said: str) -> Failing | None:
    """What the library's words say about the proxy on the way; its errors say everything in words alone."""
    if refused := re.search(r"CONNECT failed: HTTP/1\.[01] ([0-9]{3})", said):
        return failing(int(refused[1]))
    if re.search(r"socks5 proxy .*(?:credentials|auth)", said):
        return "credentials"
    if "socks5 proxy connect failed" in said:
        return "refused"
    return "unreachable" if "Connection refused" in said or "dns error" in said else None


def _region(query: SearchQuery) -> str | None:
    """DuckDuckGo's region nearest to the query's country and language; None if it names neither or an unknown one."""
    country = (query.country or "").lower()
    language = (query.language or "").lower()
    country = COUNTRIES.get(country, country)
    language = LANGUAGES.get(language, language)
    if country:
        near = [f"{country}-{language}", *(region for region in REGIONS if region.startswith(f"{country}-"))]
    else:
        spoken = (region for region in REGIONS if region.endswith(f"-{language}"))
        near = [f"{language}-{language}", f"us-{language}", *spoken]
    return next((region for region in near if region in REGIONS), None)


def _time_limit(query: SearchQuery) -> str | None:
    first, last = days_of(query)
    if first or last:
        return f"{first or LONG_AGO}..{last or datetime.now(UTC).date()}"
    return None if query.time_range == "all" else query.time_range

"""Tavily: search with a direct answer if wanted, and page extraction, through the vendor's `tavily-python`.

Handed a `SearchQuery` or a URL; hands on hits or a page. The SDK writes the key onto the HTTP client it is given and
loses status and Retry-After, so it gets a client of its own, on which each answer is judged before the SDK sees it.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, cast

import httpx
from pydantic import BaseModel, Field

from ..api import ServiceApi
from ..base import Page, SearchQuery, SearchResults
from ..errors import PageBlocked, ProviderError, QuotaExceeded, RateLimited, TimedOut
from ..queries import PERIODS, days_of
from ..registry import ProviderConfigError
from ..rows import error_part, records
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress
from ..web.service_wire import ServiceAnswer

MAX_RESULTS = 20
MAX_QUERY = 400
SDK_PATIENCE = 120.0  # the most it takes; our own time limit comes before
TOPICS = ("general", "news", "finance")
# Tavily wants English names. A country that is not here is left out: an unknown name would fail the whole search.
COUNTRIES = {
    "AE": "united arab emirates", "AR": "argentina", "AT": "austria", "AU": "australia", "BE": "belgium",
    "BG": "bulgaria", "BR": "brazil", "CA": "canada", "CH": "switzerland", "CL": "chile", "CN": "china",
    "CO": "colombia", "CY": "cyprus", "CZ": "czech republic", "DE": "germany", "DK": "denmark", "EE": "estonia",
    "EG": "egypt", "ES": "spain", "FI": "finland", "FR": "france", "GB": "united kingdom", "GR": "greece",
    "HR": "croatia", "HU": "hungary", "ID": "indonesia", "IE": "ireland", "IL": "israel", "IN": "india",
    "IS": "iceland", "IT": "italy", "JP": "japan", "KE": "kenya", "KR": "south korea", "LT": "lithuania",
    "LU": "luxembourg", "LV": "latvia", "MA": "morocco", "MT": "malta", "MX": "mexico", "MY": "malaysia",
    "NG": "nigeria", "NL": "netherlands", "NO": "norway", "NZ": "new zealand", "PE": "peru", "PH": "philippines",
    "PK": "pakistan", "PL": "poland", "PT": "portugal", "RO": "romania", "RS": "serbia", "RU": "russia",
    "SA": "saudi arabia", "SE": "sweden", "SG": "singapore", "SI": "slovenia", "SK": "slovakia", "TH": "thailand",
    "TR": "turkey", "TW": "taiwan", "UA": "ukraine", "US": "united states", "VN": "vietnam", "ZA": "south africa",
}  # fmt: skip


class Tavily:
    hosted = True
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key | None = None  # none means Tavily's keyless mode
        base_url: BaseUrl = "https://api.tavily.com"
        timeout: float = Field(20.0, gt=0, lt=SDK_PATIENCE)
        search_depth: Literal["basic", "advanced", "fast", "ultra-fast"] = "basic"
        """Tavily's search depth. `advanced` costs two credits instead of one."""
        include_answer: bool | Literal["basic", "advanced"] = False
        """Ask Tavily for a direct answer as well. The model gets it before the results."""
        extract_depth: Literal["basic", "advanced"] = "basic"
        """Tavily's depth for reading pages. `advanced` costs twice as much."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        if find_spec("tavily") is None:
            raise ProviderConfigError("the package tavily-python is missing; pip install 'groundwire[tavily]'")
        self.timeout = settings.timeout
        self._settings = settings
        # The SDK says so only on a client that it made itself.
        headers = {} if settings.api_key else {"X-Tavily-Access-Mode": "keyless"}
        url, timeout = settings.base_url, settings.timeout
        self._api = ServiceApi("Tavily", url, timeout=timeout, headers=headers, translate=_translate, egress=egress)
        self._sdk: Any = None

    async def search(self, query: SearchQuery) -> SearchResults:
        first, last = days_of(query)
        topic = query.category if query.category in TOPICS else None
        answer = await self._ask(
            "search",
            query=query.text[:MAX_QUERY],
            max_results=min(query.limit, MAX_RESULTS),
            search_depth=self._settings.search_depth,
            include_answer=self._settings.include_answer or None,
            topic=topic,
            time_range=None if first or last else PERIODS.get(query.time_range),
            start_date=first and first.isoformat(),
            end_date=last and last.isoformat(),
            include_domains=list(query.allowed_domains) or None,
            exclude_domains=list(query.blocked_domains) or None,
            country=COUNTRIES.get((query.country or "").upper()) if topic in (None, "general") else None,
            language=query.language,
            filter_by_language=bool(query.language) or None,
            timeout=SDK_PATIENCE,
        )
        rows = answer.get("results")
        return self._api.found(rows, snippet=("content",), date=("published_date",), answer=answer.get("answer"))

    async def read(self, url: str) -> Page:
        time_limit = min(max(1.0, self.timeout), 60.0)  # it goes to Tavily too, which takes no other
        depth = self._settings.extract_depth
        answer = await self._ask("extract", urls=[url], extract_depth=depth, format="markdown", timeout=time_limit)
        if not records(answer.get("results")) and records(answer.get("failed_results")):
            raise PageBlocked("Tavily could not fetch the page")
        row = next(iter(records(answer.get("results"))), {})
        return self._api.page(url, row.get("raw_content"), url=row.get("url"), title=row.get("title"))

    async def aclose(self) -> None:
        await self._api.aclose()

    async def _ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        tavily = await asyncio.to_thread(import_module, "tavily")
        try:
            async with self._api.in_time(httpx.HTTPError, httpx.InvalidURL):
                self._sdk = self._sdk or tavily.AsyncTavilyClient(
                    # An empty key is none; without the argument the SDK would look into the environment.
                    self._settings.api_key.get_secret_value() if self._settings.api_key else "",
                    api_base_url=self._settings.base_url,
                    client=self._own_client(),
                )
                return cast(dict[str, Any], await getattr(self._sdk, method)(**arguments))
        except tavily.errors.TimeoutError:
            raise TimedOut(f"Tavily did not answer within {self.timeout:g} s") from None

    def _own_client(self) -> httpx.AsyncClient:
        client = self._api.client()
        client.event_hooks = {"response": [self._judge]}
        return client

    async def _judge(self, response: httpx.Response) -> None:
        headers = {name.lower(): value for name, value in response.headers.raw}
        self._api.decode(ServiceAnswer(response.status_code, headers, response.content))


def _translate(status: int, body: str) -> ProviderError | None:
    if status in (432, 433):
        return QuotaExceeded(f"the plan at Tavily is used up (status {status})")
    wait = error_part(body, "error", "retry_after_seconds")  # the limit of the keyless mode
    if isinstance(wait, int | float):
        text = "Tavily's limit for use without a key is reached"
        return RateLimited(text, retry_after=float(wait), advice="set its api_key")
    return None

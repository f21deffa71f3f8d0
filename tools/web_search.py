"""The `web_search` tool: its description, its arguments, and how a call of it becomes results. Handed the model's
arguments and its session; hands on a numbered `SearchAnswer`, and that as the model reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from providers.base import SearchQuery, TimeRange
from providers.chain import AllFailed, Found
from providers.errors import BadRequest, NoResults, ProviderError
from providers.text.relevance import relevance
from providers.urls import domain_of

from . import prompts
from .base import OPEN_PAGE, WEB_SEARCH, BadArguments, Circumstances, Strings, Tool, ToolOutput, ToolSpec, described
from .clean import one_line
from .ledger import Ledger
from .options import SessionOptions, ToolPolicy
from .provenance import Domains, holds_secret, normalise
from .render import MAX_TITLE, SearchAnswer, SearchFault, escape, remark, sentence
from .result_pages import with_passages

if TYPE_CHECKING:
    from .session import ToolSession

MAX_QUERY = 400
MOST_RESULTS = 20
MAX_SNIPPET = 1500
MAX_DIRECT = 2000

_DOMAIN_LIST: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_DAY = {"type": "string", "format": "date"}
_BASIC: dict[str, dict[str, Any]] = {
    "query": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS},
    "allowed_domains": _DOMAIN_LIST,
    "time_range": {"type": "string", "enum": ["d", "w", "m", "y", "all"]},
}
_MORE: dict[str, dict[str, Any]] = {
    "blocked_domains": _DOMAIN_LIST,
    "published_after": _DAY,
    "published_before": _DAY,
    "category": {"type": "string"},
    "provider": {"type": "string"},
}
_RANGES = {"day": "d", "week": "w", "month": "m", "year": "y", "any": "all"}
MAX_AUTHOR = 100


def spec(policy: ToolPolicy) -> ToolSpec:
    schemas = _BASIC | _MORE if policy.parameters == "full" else _BASIC
    parameters = {
        "type": "object",
        "properties": described(schemas, prompts.WEB_SEARCH_PARAMETERS, most=MAX_QUERY),
        "required": ["query"],
        "additionalProperties": False,
    }
    return ToolSpec(WEB_SEARCH, prompts.WEB_SEARCH, parameters, prompts.WEB_SEARCH_UNCITED)


def fit(spec: ToolSpec, now: Circumstances) -> ToolSpec:
    """With the day, so that the first query has the right year, and with those providers that may really be named."""
    then = prompts.OPEN_FOR_DETAILS if OPEN_PAGE in now.tools else ""
    description = spec.description.replace("{today}", now.today).replace("{then}", then)
    properties = spec.parameters["properties"]
    if "provider" in properties:
        named = {**properties["provider"], "enum": list(now.searchers)}
        spec = replace(spec, parameters={**spec.parameters, "properties": {**properties, "provider": named}})
    return replace(spec, description=description)


def _check_query(text: str) -> str:
    words = one_line(text, MAX_QUERY * 8)
    if not words:
        raise PydanticCustomError("empty", prompts.EMPTY_QUERY)
    if len(words) > MAX_QUERY:
        raise PydanticCustomError("long", prompts.LONG_QUERY, {"most": MAX_QUERY})
    return words


def _check_domains(given: list[str]) -> list[str]:
    for text in given:
        domain = domain_of(text)
        if not domain or not all(character.isalnum() or character in "-._" for character in domain):
            raise PydanticCustomError("domain", prompts.BAD_DOMAIN)
    return given


DomainNames = Annotated[Strings, Field(max_length=50), AfterValidator(_check_domains)]


class SearchArguments(BaseModel):
    query: Annotated[str, AfterValidator(_check_query)] = Field(
        validation_alias=AliasChoices("query", "q", "search_query")
    )
    limit: int | None = None
    allowed_domains: DomainNames = Field(default_factory=list)
    blocked_domains: DomainNames = Field(default_factory=list)
    time_range: Annotated[TimeRange, BeforeValidator(lambda given: _RANGES.get(str(given).lower(), given))] = "all"
    published_after: date | None = None
    published_before: date | None = None
    category: Annotated[str, Field(max_length=40)] = ""
    provider: Annotated[str, Field(max_length=100)] = ""


def query_for(given: SearchArguments, domains: Domains, most: int, options: SessionOptions) -> SearchQuery:
    """The provider's query: `most` results at the most, and only domains that config, request and call agree on."""
    domains = domains.narrowed(given.allowed_domains, given.blocked_domains)
    allowed = domains.allowed
    if domains.layers and not allowed:
        raise BadArguments(prompts.NO_DOMAIN_LEFT)
    most = min(most, MOST_RESULTS)
    return SearchQuery(
        text=given.query,
        limit=max(1, min(most if given.limit is None else given.limit, most)),
        allowed_domains=allowed,
        blocked_domains=domains.blocked,
        time_range=given.time_range,
        published_after=given.published_after.isoformat() if given.published_after else None,
        published_before=given.published_before.isoformat() if given.published_before else None,
        country=options.country or None,
        language=options.language or None,
        category=given.category or None,
    )


def answer(query: SearchQuery, found: Found, ledger: Ledger, longest_snippet: int = MAX_SNIPPET) -> SearchAnswer:
    """What was found, cleaned and numbered. A page that is known keeps its number and shows this search's snippet."""
    sources = []
    for hit in found.results.results[: query.limit]:
        if not normalise(hit.url):
            continue
        title = escape(one_line(hit.title, MAX_TITLE))
        snippet = escape(one_line(hit.snippet, longest_snippet))
        dated = escape(one_line(hit.date, 40)) if hit.date else None
        author = escape(one_line(hit.author, MAX_AUTHOR)) if hit.author else None
        sources.append(ledger.add_hit(hit.url, title, snippet, dated, author, hit.score, hit.basis))
    direct = escape(one_line(found.results.answer, MAX_DIRECT))
    if not sources and not direct:
        message = prompts.NOTHING_TO_OPEN.format(provider=found.provider)
        return SearchAnswer(query.text, message=message, ok=False)
    message = remark(found.failures, found.provider, found.age, found.results.note)
    return SearchAnswer(query.text, found.provider, direct, tuple(sources), message, age=found.age)


# What was found is numbered when its call's turn has come; a search that failed has its answer at once.
Unnumbered = tuple[SearchQuery, Found] | SearchAnswer


async def find(session: ToolSession, given: SearchArguments) -> Unnumbered:
    # Everything of it leaves; what is no text can hold no key.
    texts = (given.query, *given.allowed_domains, *given.blocked_domains, given.category, given.provider)
    if holds_secret("\n".join(texts), session.options.secrets):
        return SearchAnswer("…", message=f"{prompts.CARRIES_KEY}.", ok=False, fault="arguments")
    try:
        query = query_for(given, session.domains, session.most_results, session.options)
        return query, await session.search(query, given.provider)
    except (BadArguments, ProviderError) as error:
        advice = error.advice if isinstance(error, ProviderError) else ""
        return SearchAnswer(given.query, message=sentence(error), ok=False, fault=_fault(error), advice=advice)


def _fault(error: BadArguments | ProviderError) -> SearchFault:
    if isinstance(error, BadArguments | BadRequest):
        return "arguments"
    failures = error.failures if isinstance(error, AllFailed) else ()
    answered = any(isinstance(failure.error, NoResults) for failure in failures)  # whoever else could not
    return "" if answered else "providers"


def numbered(session: ToolSession, unnumbered: Unnumbered) -> SearchAnswer:
    if isinstance(unnumbered, SearchAnswer):
        return unnumbered
    query, found = unnumbered
    session.provenance.add([hit.url for hit in found.results.results])
    return answer(query, found, session.ledger, session.longest_snippet)


def speaking(unnumbered: Unnumbered) -> Unnumbered:
    """Without the hits that hold no word of the query. Who says nothing of a page but its address may be right."""
    if isinstance(unnumbered, SearchAnswer):
        return unnumbered
    query, found = unnumbered
    hits = found.results.results
    scores = relevance(query.text, [f"{hit.title} {hit.snippet}" for hit in hits])
    kept = tuple(hit for hit, score in zip(hits, scores, strict=True) if score > 0 or not hit.snippet.strip())
    return query, replace(found, results=replace(found.results, results=kept))


async def settle(session: ToolSession, unnumbered: Unnumbered) -> ToolOutput:
    """The results, where it is wanted with what their best pages say."""
    found = await with_passages(session, numbered(session, unnumbered))
    return ToolOutput(session.text(found), found.ok, found.provider, found.sources)


def progress(arguments: Mapping[str, Any]) -> str:
    return f"Searching the web: {arguments.get('query') or ''}"


def actions(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    query = arguments.get("query")
    query = query if isinstance(query, str) else ""
    return [{"type": "search", "query": query, "queries": [query]}]


TOOL = Tool(
    name=WEB_SEARCH,
    spec=spec,
    arguments=SearchArguments,
    form=prompts.WEB_SEARCH_EXAMPLE,
    run=find,
    settle=settle,
    progress=progress,
    actions=actions,
    needs=("search",),
    fit=fit,
)

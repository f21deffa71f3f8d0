"""`POST /v1/search` and `POST /v1/open`: our two tools without a model, for agents that think for themselves. Handed
what a model would write as arguments; hands back what `groundwire search --json` and `open --json` print. What every
route to the tools needs (permission, a session) stands here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from starlette.types import Receive, Scope, Send

from providers.chain import ReadChain, SearchChain
from providers.deadlines import time_limit
from tools.base import OPEN_PAGE, WEB_SEARCH, BadArguments, validate
from tools.ledger import Ledger
from tools.open_page import OpenArguments
from tools.options import SessionOptions
from tools.render import open_json, search_json
from tools.session import ToolSession
from tools.web_search import SearchArguments

from ..context import RequestContext, context_of
from ..house import House
from ..values.errors import RequestError, refuse, too_long
from ..values.language import accepted_language, primary_language
from ..values.request import json_object
from .bodies import decoded_body
from .delivery import send_json, while_connected
from .telling import RunningTool

_FILTERS = ("allowed_domains", "blocked_domains", "time_range", "published_after", "published_before")
_SEARCH_FIELDS = frozenset({"query", "limit", "provider", "category", "country", "language", "filters", *_FILTERS})
_OPEN_FIELDS = frozenset({"url", "urls", "max_length", "query", "start"})

T = TypeVar("T")


class SearchRoute:
    """`POST /v1/search`"""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        given = await decoded_body(receive, scope, self._house.config.server, _load, _SEARCH_FIELDS)
        await while_connected(receive, self._serve(context, send, given), context.observer)

    async def _serve(self, context: RequestContext, send: Send, given: dict[str, Any]) -> None:
        check_permission(self._house.search, context, "search")
        filters = given.pop("filters", None)
        if not isinstance(filters, dict | None):
            raise refuse(400, "`filters` must be an object.", param="filters", code="invalid_type")
        for name in filters or ():
            if name not in _FILTERS:
                text = f"There is no filter `{name}`; valid are {', '.join(_FILTERS)}."
                raise refuse(400, text, param=f"filters.{name}", code="unknown_parameter")
        given = {**given, **(filters or {})}
        check_arguments(SearchArguments, given)
        country = str(given.pop("country", "") or "")
        language = _language(given.pop("language", None), context)
        session = session_for(self._house, context, country=country, language=language, limit=given.get("limit"))
        running = RunningTool(context, WEB_SEARCH, given)
        answer = await in_time(context, session.search_once(given))
        running.ended(ok=answer.ok)
        await send_json(send, 200, orjson.dumps({**search_json(answer), "age": answer.age}))


class OpenRoute:
    """`POST /v1/open`"""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        given = await decoded_body(receive, scope, self._house.config.server, _load, _OPEN_FIELDS)
        await while_connected(receive, self._serve(context, send, given), context.observer)

    async def _serve(self, context: RequestContext, send: Send, given: dict[str, Any]) -> None:
        check_permission(self._house.read, context, "read pages")
        check_arguments(OpenArguments, given)
        session = session_for(self._house, context)
        running = RunningTool(context, OPEN_PAGE, given)
        parts = await in_time(context, session.open_once(given))
        running.ended(ok=any(not part.error for part in parts))
        pages = [open_json(part) for part in parts]
        await send_json(send, 200, orjson.dumps({"pages": pages} if "urls" in given or len(pages) > 1 else pages[0]))


def check_permission(chain: SearchChain | ReadChain | None, context: RequestContext, work: str) -> None:
    """There is somebody to ask, and this caller may."""
    if chain is None:
        raise refuse(404, f"No provider that can {work} is configured.", code="no_provider")
    caller = context.caller
    if caller.policy.search.mode == "off" or not chain.serves(caller.policy.search.permission.providers):
        text = f"This key may not {work}: see `search` of its entry in `server.keys`."
        raise refuse(403, text, kind="permission_error", code="not_permitted")


async def in_time(context: RequestContext, work: Awaitable[T]) -> T:
    """What the tools find, if they do before the request must be over. How long its client then takes for the answer is
    another matter."""
    async with time_limit(context.deadline - context.running_loop.time(), RequestError(too_long())):
        return await work


def _language(given: object, context: RequestContext) -> str:
    """What the body says, else what the header does."""
    if given in (None, ""):
        return accepted_language(context.headers.get("accept-language", ""))
    language = primary_language(given) if isinstance(given, str) else ""
    if not language:
        text = "`language` must be a language code of two letters, such as `de`."
        raise refuse(400, text, param="language", code="invalid_value")
    return language


def session_for(
    house: House,
    context: RequestContext,
    *,
    country: str = "",
    language: str = "",
    limit: object = None,
    allowed_domains: Sequence[str] = (),
    blocked_domains: Sequence[str] = (),
    cite: bool = True,
) -> ToolSession:
    """The tools for one who asks without a model of ours."""
    options = SessionOptions(
        ledger=Ledger(),
        alone=True,
        country=country.upper() if len(country) == 2 else "",
        language=language,
        limit=limit if isinstance(limit, int) and limit > 0 else None,
        allowed_domains=allowed_domains,
        blocked_domains=blocked_domains,
        cite=cite,
        secrets=context.caller.secrets,
        caller=context.caller.owner,
        most_searches=context.searches_left,
        permission=context.caller.policy.search.permission,
        observe=context.observer.tell,
    )
    return house.toolbox.session(options)


def _load(raw: bytes, known: frozenset[str]) -> dict[str, Any]:
    given = json_object(raw)
    for name in given:
        if name not in known:
            text = f"There is no `{name}` here; valid are {', '.join(sorted(known))}."
            raise refuse(400, text, param=name, code="unknown_parameter")
    return given


def check_arguments(
    kind: type[SearchArguments] | type[OpenArguments],
    given: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
) -> None:
    """Refused before any provider is asked. `names` are those that the client knows our arguments by."""
    try:
        validate(kind, given)
    except BadArguments as error:
        known = names or {}
        problems = [(known.get(param, param), what) for param, what in error.problems]
        text = "; ".join(" ".join(filter(None, problem)) for problem in problems)
        first = error.problems[0][0]
        param = known.get(first, first) if first in given else None
        raise refuse(400, f"{text}.", param=param, code="invalid_value") from None

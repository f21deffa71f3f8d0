"""What happens to every question before it is answered, whatever dialect it came in: which upstreams may serve it, what
earlier turns belong back into it, and whether search is offered. Handed a request and its context; hands on a
`PreparedRequest`, and for the engine the offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tools.base import ToolSpec
from tools.toolbox import Toolbox

from ..context import RequestContext
from ..store.store import Store
from ..upstreams.directory import UpstreamDirectory
from ..upstreams.fallback import FallbackPlan
from ..values.language import accepted_language
from ..values.request import SEARCH_HEADER, ChatRequest
from ..watching.steps import Decided
from . import turns
from .decoration import CleanedHistory, strip_decoration
from .offer import OUR_NAMES, Decision, Offer, client_tools, decide, make_offer, without_idle_choice

ONLINE = ":online"  # behind a model's name: a wish for search
_HEADERS_UP = frozenset({"accept", "openai-beta", "traceparent", "tracestate", "x-title", "http-referer"})


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    request: ChatRequest
    plan: FallbackPlan
    decision: Decision
    mode: str


class Preparation:
    """`mode` is the operator's `tools.mode`; `footer`: may a "Sources" list at the end of an answer be ours?"""

    def __init__(
        self, upstreams: UpstreamDirectory, toolbox: Toolbox, store: Store, *, mode: str, footer: bool
    ) -> None:
        self._upstreams = upstreams
        self._toolbox = toolbox
        self._store = store
        self._mode = mode
        self._footer = footer

    async def prepare(self, request: ChatRequest, context: RequestContext) -> PreparedRequest:
        request = await self._without_suffix(request)
        plan = self._upstreams.plan(request.model, headers_up(context.headers), context.caller, context.observer)
        first = plan.current
        if language := accepted_language(context.headers.get("accept-language", "")):
            request = replace(request, search=replace(request.search, language=language))
        mode = first.settings.mode or self._mode
        wish = context.headers.get(SEARCH_HEADER, "").strip().lower()
        decision = decide(request, mode, wish, bool(self.specs(request)))
        context.observer.tell(Decided(decision.offered, decision.reason))
        if mode != "off":
            request = await self._restored(request, context.caller.owner, whole=decision.offered)
        if decision.offered:  # a fallback whose mode is off is none for a request with search
            plan.keep(lambda other: other.settings.mode != "off")
        return PreparedRequest(request, plan, decision, mode)

    def offer(self, request: ChatRequest, *, offered: bool) -> Offer:
        """The request as the loop takes it: our decoration out of the history, our tools in."""
        cleaned = self.cleaned(request)
        if cleaned.changed:
            request = replace(request, body={**request.body, "messages": cleaned.messages})
        if not offered:
            return Offer(request.body, client_tools=frozenset(client_tools(request.body)))
        known = {**cleaned.known_sources, **request.sources}
        made = make_offer(request, self.specs(request))
        return replace(made, highest_number=cleaned.highest_number, known_sources=known)

    def cleaned(self, request: ChatRequest) -> CleanedHistory:
        return strip_decoration(request.body["messages"], self._footer, request.sources)

    def specs(self, request: ChatRequest) -> list[ToolSpec]:
        """The tools for it."""
        return self._toolbox.offered(live=request.search.live)

    async def _without_suffix(self, request: ChatRequest) -> ChatRequest:
        """`:online` is a wish for search, unless the upstream lists that very name."""
        plain = request.model.removesuffix(ONLINE)
        if plain == request.model or not plain:
            return request
        client, name = self._upstreams.find(plain)
        if (client.config.of(name).mode or self._mode) == "off" or await self._upstreams.lists(request.model):
            return request
        search = replace(request.search, asked=request.search.asked or "model_suffix")
        body = {**request.body, "model": plain}
        return replace(request, model=plain, body=body, search=search, changed=True)

    async def _restored(self, request: ChatRequest, owner: str, *, whole: bool) -> ChatRequest:
        """The request with everything back in its history that earlier answers kept from the client; where our tools
        are not offered, only the ids of its calls are mended."""
        messages = request.body["messages"]
        keys = turns.keys_in(messages)
        if not keys:
            return request
        kept: dict[str, turns.Turn] = {}
        for key, data in (await self._store.get_many("turn", owner, keys) if whole else {}).items():
            if len(kept) < turns.MOST_FOUND and (turn := turns.decoded(data)):
                kept[key] = turn
        history = turns.restored(messages, kept)
        body = {**request.body, "messages": history.messages}
        sources = {**request.sources, **history.sources}
        return replace(request, body=body, sources=sources, searched=history.searched, changed=True)


def headers_up(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers that an upstream may see."""
    return {key: value for key, value in headers.items() if key in _HEADERS_UP}


def without_our_calls(request: ChatRequest) -> ChatRequest:
    """Where search is not offered nothing of ours stands in the history, and what spoke of tools goes with the last."""
    body = dict(request.body)
    body["messages"] = turns.without_calls(body["messages"], OUR_NAMES.difference(client_tools(body)))
    return replace(request, body=without_idle_choice(body))

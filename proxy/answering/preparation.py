"""What happens to every question before it is answered, whatever dialect it came in: which upstreams may serve it, what
earlier turns belong back into it, and whether search is offered. Handed a request and its context; hands on a
`PreparedRequest`, and for the engine the offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from tools.base import ToolSpec
from tools.ledger import joined
from tools.options import day_now
from tools.toolbox import Toolbox

from ..callers.caller import NOBODY, Caller
from ..callers.permission import check_model, permission_of, plain_body
from ..context import RequestContext
from ..store.store import Store
from ..upstreams.directory import UpstreamDirectory
from ..upstreams.fallback import FallbackPlan
from ..values.errors import refuse
from ..values.language import accepted_language
from ..values.request import CITATIONS_HEADER, SEARCH_HEADER, ChatRequest, CitationStyle
from ..watching.steps import Decided
from . import turns
from .decoration import CleanedHistory, strip_decoration
from .offer import (
    OUR_NAMES,
    Decision,
    Offer,
    client_tools,
    decide,
    is_formatted,
    make_offer,
    without_idle_choice,
)

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
        caller = context.caller
        request = await self._without_suffix(request, caller)
        if caller.policy.models is not None:
            request = replace(request, raw=plain_body(caller, request.raw))
        up = headers_up(context.headers)
        plan = self._upstreams.plan(request.model, up, caller, context.observer, deadline=context.deadline)
        first = plan.current
        style = style_of(context, first.settings.citations.style)
        if style and not request.citations:
            request = replace(request, citations=style)
        if language := accepted_language(context.headers.get("accept-language", "")):
            request = replace(request, search=replace(request.search, language=language))
        mode = self._mode_of(first.settings.mode, caller)
        wish = context.headers.get(SEARCH_HEADER, "").strip().lower()
        key_off = caller.policy.search.mode == "off"
        decision = decide(request, mode, wish, bool(self.specs(request, caller)), key_off=key_off)
        if request.left_out:
            decision = replace(decision, left_out=request.left_out)
        context.observer.tell(Decided(decision.offered, decision.reason))
        if key_off:
            plain = without_web_plugin(request.body)
            request = replace(request, body=plain, changed=request.changed or plain != request.body)
        if mode != "off":
            request = await self._restored(request, caller.owner, whole=decision.offered)
        if decision.offered:  # a fallback whose mode is off is none for a request with search
            plan.keep(lambda other: other.settings.mode != "off")
        return PreparedRequest(request, plan, decision, mode)

    def _mode_of(self, upstream: str | None, caller: Caller) -> str:
        """The nearest word counts: the key's, then the upstream's, then `tools.mode`. But an upstream that is `off` is
        so for every key. A key's own `off` is told apart: it may not search, and neither may the model's server for it,
        while where the mode is `off` hosted-search fields go up unchanged."""
        own = caller.policy.search.mode
        if own == "off":
            return "on_request"
        if upstream == "off" or own is None:
            return upstream or self._mode
        return own

    def _mode_for(self, model: str, caller: Caller) -> str:
        client, name = self._upstreams.find(model)
        return self._mode_of(client.config.of(name).mode, caller)

    def may_search(self, model: str, caller: Caller) -> bool:
        """Could a request of this caller that asks for search have it with this model?"""
        if caller.policy.search.mode == "off":
            return False
        return self._mode_for(model, caller) != "off" and bool(
            self._toolbox.offered(live=True, only=permission_of(caller).providers)
        )

    def offer(self, request: ChatRequest, caller: Caller = NOBODY, *, offered: bool) -> Offer:
        """The request as the loop takes it: our decoration out of the history, our tools in."""
        cleaned = self.cleaned(request)
        if cleaned.changed:
            request = replace(request, body={**request.body, "messages": cleaned.messages})
        if not offered:
            return Offer(request.body, client_tools=frozenset(client_tools(request.body)))
        known = {**cleaned.known_sources, **request.sources}
        known = {n: source for n, source in known.items() if n not in cleaned.claimed}
        today = day_now()
        made = make_offer(request, self.specs(request, caller, today))
        return replace(made, highest_number=cleaned.highest_number, known_sources=known, today=today)

    def cleaned(self, request: ChatRequest) -> CleanedHistory:
        return strip_decoration(request.body["messages"], self._footer, request.sources)

    def specs(self, request: ChatRequest, caller: Caller, today: str | None = None) -> tuple[ToolSpec, ...]:
        """The tools for it. In an answer that has a format a marker would be wrong: there nobody is told to cite."""
        only, cite = permission_of(caller).providers, not is_formatted(request.body)
        return self._toolbox.offered(live=request.search.live, only=only, cite=cite, today=today)

    async def _without_suffix(self, request: ChatRequest, caller: Caller) -> ChatRequest:
        """`:online` is a wish for search, unless the upstream lists that very name. A model that the caller may not use
        is refused before anybody is looked for."""
        plain = request.model.removesuffix(ONLINE)
        if plain == request.model or not plain:
            check_model(caller, request.model)
            return request
        check_model(caller, request.model, plain)
        if self._mode_for(plain, caller) == "off" or await self._upstreams.lists(request.model):
            check_model(caller, request.model)
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
        sources = joined([request.sources, history.sources])
        return replace(request, body=body, sources=sources, searched=history.searched, changed=True)


def style_of(context: RequestContext, upstream: CitationStyle | None) -> CitationStyle | None:
    """How citations are to look: as the request says, else its key, else its upstream."""
    wanted = context.headers.get(CITATIONS_HEADER, "").strip().lower()
    if not wanted:
        return context.caller.policy.citations.style or upstream
    for style in get_args(CitationStyle):
        if style == wanted:
            return cast(CitationStyle, style)
    styles = ", ".join(get_args(CitationStyle))
    raise refuse(400, f"The header `X-Groundwire-Citations` must be one of {styles}.", code="invalid_value")


def without_web_plugin(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body less OpenRouter's search by its oldest name, for a key that may not search."""
    plugins = body.get("plugins")
    if not isinstance(plugins, list):
        return dict(body)
    others = [plugin for plugin in plugins if not (isinstance(plugin, dict) and plugin.get("id") == "web")]
    return {**body, "plugins": others}


def headers_up(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers that an upstream may see."""
    return {key: value for key, value in headers.items() if key in _HEADERS_UP}


def without_our_calls(request: ChatRequest) -> ChatRequest:
    """Where search is not offered nothing of ours stands in the history, and what spoke of tools goes with the last."""
    body = dict(request.body)
    body["messages"] = turns.without_calls(body["messages"], OUR_NAMES.difference(client_tools(body)))
    return replace(request, body=without_idle_choice(body))

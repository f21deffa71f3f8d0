"""What happens to every question before it is answered, whatever dialect it came in: which upstreams may serve it, what
earlier turns belong back into it, and whether search is offered. Handed a request and its context; hands on a
`PreparedRequest`, and for the engine the offer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

from providers.apart import in_thread
from providers.records import dataclass
from tools.base import ToolSpec
from tools.ledger import joined
from tools.options import day_now
from tools.toolbox import Toolbox

from ..callers.caller import Caller
from ..callers.permission import check_model, plain_body
from ..context import RequestContext
from ..store.store import Store, get_of_either
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
_HEADERS_UP = ("accept", "openai-beta", "traceparent", "tracestate", "x-title", "http-referer")


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
        caller, headers = context.caller, context.headers
        policy, search = caller.policy, caller.policy.search
        if request.model.endswith(ONLINE):
            request = await self._without_suffix(request, caller)
        else:
            check_model(caller, request.model)
        said: dict[str, Any] = {}  # in what the request is to differ from what the client wrote
        if policy.models is not None:
            make = partial(plain_body, caller, request.raw)
            said["raw"] = await in_thread(make) if request.is_long else make()
        up = headers_up(headers)
        plan = self._upstreams.plan(request.model, up, caller, context.observer, deadline=context.deadline)
        settings = plan.current.settings
        style = style_of(context, settings.citations.style)
        if style and not request.citations:
            said["citations"] = style
        if "accept-language" in headers and (language := accepted_language(headers["accept-language"])):
            said["search"] = replace(request.search, language=language)
        mode = self._mode_of(settings.mode, caller)
        wish = headers[SEARCH_HEADER].strip().lower() if SEARCH_HEADER in headers else ""
        key_off = search.mode == "off"
        available = self._toolbox.has_any(live=request.search.live, only=search.permission.providers)
        judge = partial(decide, request, mode, wish, available, key_off=key_off)
        decision = await in_thread(judge) if request.is_long else judge()
        if request.left_out:
            decision = replace(decision, left_out=request.left_out)
        context.observer.tell(Decided(decision.offered, decision.reason))
        if key_off:
            plain = without_web_plugin(request.body)
            said["body"], said["changed"] = plain, request.changed or plain != request.body
        if said:
            request = replace(request, **said)
        if mode != "off":
            messages = request.body["messages"]
            keys = await in_thread(turns.keys_in, messages) if request.is_long else turns.keys_in(messages)
            if keys:
                request = await self._restored(request, caller, keys, whole=decision.offered)
        if decision.offered and not plan.settled:  # a fallback whose mode is off is none for a request with search
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
        return self._mode_of(client.settings(name).mode, caller)

    def may_search(self, model: str, caller: Caller) -> bool:
        """Could a request of this caller that asks for search have it with this model?"""
        if caller.policy.search.mode == "off":
            return False
        only = caller.policy.search.permission.providers
        return self._mode_for(model, caller) != "off" and self._toolbox.has_any(live=True, only=only)

    def offer(self, request: ChatRequest, caller: Caller, offered: bool) -> Offer:
        """The request as the loop takes it: our decoration out of the history, our tools in."""
        cleaned = self.cleaned(request)
        if not offered:
            body = {**request.body, "messages": cleaned.messages}
            return Offer(body, client_tools=frozenset(client_tools(body)))
        today = day_now()
        return make_offer(request, self.specs(request, caller, today), cleaned, today)

    def cleaned(self, request: ChatRequest) -> CleanedHistory:
        return strip_decoration(request.body["messages"], self._footer, request.sources)

    def specs(self, request: ChatRequest, caller: Caller, today: str) -> tuple[ToolSpec, ...]:
        """The tools for it. In an answer that has a format a marker would be wrong: there nobody is told to cite."""
        only, cite = caller.policy.search.permission.providers, not is_formatted(request.body)
        return self._toolbox.offered(live=request.search.live, only=only, cite=cite, today=today)

    async def _without_suffix(self, request: ChatRequest, caller: Caller) -> ChatRequest:
        """`:online` is a wish for search, unless the upstream lists that very name. A model that the caller may not use
        is refused before anybody is looked for."""
        plain = request.model.removesuffix(ONLINE)
        check_model(caller, request.model, *([plain] if plain else []))
        if not plain:
            return request
        if self._mode_for(plain, caller) == "off" or await self._upstreams.lists(request.model):
            check_model(caller, request.model)
            return request
        search = replace(request.search, asked=request.search.asked or "model_suffix")
        body = {**request.body, "model": plain}
        return replace(request, model=plain, body=body, search=search, changed=True)

    async def _restored(self, request: ChatRequest, caller: Caller, keys: Sequence[str], *, whole: bool) -> ChatRequest:
        """The request with everything back in its history that earlier answers kept from the client, under these keys;
        where our tools are not offered, only the ids of its calls are mended."""
        found = await get_of_either(self._store, "turn", caller.owner, caller.former, keys) if whole else {}
        make = partial(_with_turns, request.body["messages"], found)
        history = await in_thread(make) if request.is_long else make()
        body = {**request.body, "messages": history.messages}
        sources = joined([request.sources, history.sources])
        return replace(request, body=body, sources=sources, searched=history.searched, changed=True)


def _with_turns(messages: Sequence[Any], found: Mapping[str, bytes]) -> turns.Restored:
    kept: dict[str, turns.Turn] = {}
    for key, data in found.items():
        if len(kept) < turns.MOST_FOUND and (turn := turns.decoded(data)):
            kept[key] = turn
    return turns.restored(messages, kept)


def style_of(context: RequestContext, upstream: CitationStyle | None) -> CitationStyle | None:
    """How citations are to look: as the request says, else its key, else its upstream."""
    wanted = context.headers[CITATIONS_HEADER].strip().lower() if CITATIONS_HEADER in context.headers else ""
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
    up = {}
    for name in _HEADERS_UP:
        if name in headers:
            up[name] = headers[name]
    return up


def without_our_calls(request: ChatRequest) -> ChatRequest:
    """Where search is not offered nothing of ours stands in the history, and what spoke of tools goes with the last."""
    body = dict(request.body)
    body["messages"] = turns.without_calls(body["messages"], OUR_NAMES.difference(client_tools(body)))
    return replace(request, body=without_idle_choice(body))

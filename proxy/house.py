"""The parts of one running Groundwire, put together once. Handed a config; hands the routes and the command line the
engine, the toolbox and the upstream that serves a model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace

from providers import registry
from providers.chain import ReadChain, SearchChain
from providers.gateway import ProviderGateway
from providers.shared import SharedCache
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tools.base import OPEN_PAGE, ToolSpec
from tools.toolbox import Toolbox, ToolPolicy

from .answering import turns
from .answering.decoration import CleanedHistory, strip_decoration
from .answering.engine import Engine
from .answering.offer import Decision, Offer, client_tools, make_offer
from .config.settings import Config
from .config.upstreams import UpstreamConfig
from .store.store import MemoryStore, Store, open_store
from .upstreams.client import UpstreamClient
from .upstreams.demo import DemoTransport
from .upstreams.fallback import Candidate, FallbackPlan
from .upstreams.litellm_transport import LitellmTransport
from .upstreams.openai_transport import OpenAITransport
from .upstreams.transport import Transport
from .values.errors import refuse
from .values.events import Event
from .values.request import ChatRequest

_SEARCHING_SHARE = 0.6  # of a request's time; what is left must be enough for the last round to answer


class House:
    def __init__(self, config: Config) -> None:
        tools = config.tools
        own = [(config.server.host, config.server.port)]
        guard = Guard([str(network) for network in tools.allow_networks], own=own)
        self.config = config
        self.fetcher = Fetcher(guard, deadline=tools.open_timeout)
        self.providers = registry.build(config.providers, self.fetcher)
        self.searchers = [m for m in (self.providers[name] for name in tools.search) if m.can_search]
        self.readers = [m for m in (self.providers[name] for name in tools.read) if m.can_read]
        fallback = tools.public_fallback
        self.store = open_store(config.store)
        gateway = ProviderGateway(config.cooldown, config.cache, _shared(self.store, config))
        self.search = self.read = None
        if self.searchers:
            self.search = SearchChain(self.searchers, public_fallback=fallback, gateway=gateway)
        if self.readers:
            is_public = self.fetcher.is_public
            self.read = ReadChain(self.readers, public_fallback=fallback, gateway=gateway, is_public=is_public)
        policy = ToolPolicy(
            max_results=tools.max_results,
            max_page_length=tools.max_page_length,
            allowed_domains=tuple(tools.allowed_domains),
            blocked_domains=tuple(tools.blocked_domains),
            provenance=tools.provenance,
            parameters=tools.parameters,
            max_opens=tools.max_opens,
            max_characters=tools.max_characters,
        )
        self.toolbox = Toolbox(self.search, self.read, policy)
        style, footer = config.citations.style, config.citations.footer
        self.engine = Engine(
            self.toolbox,
            max_rounds=tools.max_rounds,
            max_seconds=config.server.request_timeout * _SEARCHING_SHARE,
            style=style,
            footer=footer,
            store=self.store,
        )
        self.upstreams = [UpstreamClient(entry, _transport(entry)) for entry in config.upstreams]

    def upstream_for(self, model: str) -> tuple[UpstreamClient, str]:
        """The upstream that serves a model, and the model's name there. An alias may name the upstream itself."""
        target = self.config.aliases.get(model, model)
        if target != model:
            name, _, rest = target.partition("/")
            for upstream in self.upstreams:
                if rest and upstream.name == name:
                    return upstream, rest
        for upstream in self.upstreams:
            if upstream.serves(target):
                return upstream, target
        text = f"The model '{model}' does not exist: no upstream here serves it."
        raise refuse(404, text, param="model", code="model_not_found")

    def plan(self, model: str, headers: Mapping[str, str], client_key: str | None) -> FallbackPlan:
        """All that may serve a model, in order. Only the upstream that a client chose may see the client's own key."""
        upstream, name = self.upstream_for(model)
        first = Candidate(upstream, name, {**headers, **own_key(upstream, client_key)})
        return FallbackPlan([first, *self._fallbacks(upstream, name, headers)])

    def _fallbacks(self, upstream: UpstreamClient, model: str, headers: Mapping[str, str]) -> Iterator[Candidate]:
        upstreams = {upstream.name: upstream for upstream in self.upstreams}
        for way in upstream.config.fallback:
            name, _, other = way.partition("/")
            yield Candidate(upstreams[name], other or model, headers)

    def cleaned(self, request: ChatRequest) -> CleanedHistory:
        return strip_decoration(request.body["messages"], self.config.citations.footer, request.sources)

    def offer(self, request: ChatRequest, decision: Decision) -> Offer:
        """The request as the loop takes it: our decoration out of the history, our tools in."""
        cleaned = self.cleaned(request)
        if cleaned.changed:
            request = replace(request, body={**request.body, "messages": cleaned.messages})
        if not decision.offered:
            return Offer(request.body, client_tools=frozenset(client_tools(request.body)))
        known = {**cleaned.known_sources, **request.sources}
        return replace(
            make_offer(request, self.specs(request)), highest_number=cleaned.highest_number, known_sources=known
        )

    def specs(self, request: ChatRequest) -> list[ToolSpec]:
        """The tools for it. Without live access what an engine has found may be read, and no page be fetched."""
        return [spec for spec in self.toolbox.specs if request.search.live or spec.tool != OPEN_PAGE]

    def answer(self, request: ChatRequest, decision: Decision, plan: FallbackPlan) -> AsyncGenerator[list[Event], None]:
        return self.engine.answer(request, self.offer(request, decision), plan)

    async def restored(self, request: ChatRequest, *, whole: bool) -> ChatRequest:
        """The request with everything back in its history that earlier answers kept from the client; where our tools
        are not offered, only the ids of its calls are mended."""
        messages = request.body["messages"]
        keys = turns.keys_in(messages)
        if not keys:
            return request
        kept: dict[str, turns.Turn] = {}
        for key, data in (await self.store.get_many("turn", request.caller, keys) if whole else {}).items():
            if len(kept) < turns.MOST_FOUND and (turn := turns.decoded(data)):
                kept[key] = turn
        history = turns.restored(messages, kept)
        body = {**request.body, "messages": history.messages}
        sources = {**request.sources, **history.sources}
        return replace(request, body=body, sources=sources, searched=history.searched, changed=True)

    async def aclose(self) -> None:
        for upstream in self.upstreams:
            await upstream.aclose()
        await registry.close(self.providers.values())
        await self.fetcher.aclose()
        await self.store.aclose()


def own_key(upstream: UpstreamClient, client_key: str | None) -> dict[str, str]:
    """The header for an upstream that takes each client's own key. None: the client spent it on our own door. Without
    one nobody is let through: LiteLLM would take the operator's from the environment, and a fallback has its own."""
    if not upstream.config.passes_key:
        return {}
    if not client_key:
        text = (
            f"Upstream '{upstream.name}' takes your own key: send that as `Authorization: Bearer …`, and the key "
            "for this server, if it wants one, as `X-Groundwire-Key`."
        )
        raise refuse(401, text, kind="authentication_error", code="upstream_key_missing")
    return {"authorization": client_key}


def _shared(store: Store, config: Config) -> SharedCache | None:
    """Where the provider cache of many processes is: with those alone that ask the same providers in the same way."""
    if isinstance(store, MemoryStore):
        return None
    from .store.redis_store import RedisStore, SharedProviderCache

    assert isinstance(store, RedisStore)
    said = [entry.model_dump(mode="python") for entry in config.providers]
    return SharedProviderCache(store, repr((said, config.tools.allow_networks)))


def _transport(config: UpstreamConfig) -> Transport:
    if config.type == "demo":
        return DemoTransport(config.name)
    timeouts = {
        "connect_timeout": config.connect_timeout,
        "first_byte_timeout": config.first_byte_timeout,
        "idle_timeout": config.idle_timeout,
    }
    off = frozenset(config.without_repairs)
    if config.type == "litellm":
        return LitellmTransport(
            config.name,
            config.key,
            api_base=config.base_url,
            models=config.models,
            options=config.options,
            headers=config.headers,
            off=off,
            **timeouts,
        )
    return OpenAITransport(config.name, config.base_url, config.key, headers=config.headers, off=off, **timeouts)

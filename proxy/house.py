"""The parts of one running Groundwire, put together once. Handed a config; hands the routes and the command line the
engine, the toolbox and the upstream that serves a model.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from providers import registry
from providers.chain import ReadChain, SearchChain
from providers.cooldown import CooledDown
from providers.documents.report import Indexing
from providers.gateway import ProviderGateway
from providers.shared import SharedCache
from providers.web.egress import Egress
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tools.options import ToolPolicy
from tools.toolbox import Toolbox

from .answering.engine import Engine
from .answering.preparation import Preparation
from .callers.concurrency import SharedPlaces
from .config.settings import Config
from .config.upstreams import UpstreamConfig
from .store.store import MemoryStore, Store, open_store
from .upstreams.client import UpstreamClient
from .upstreams.directory import UpstreamDirectory
from .upstreams.openai_transport import OpenAITransport
from .upstreams.retry import RetryBudget
from .upstreams.transport import Transport
from .upstreams.upstream_limit import UpstreamLimit

if TYPE_CHECKING:
    from .store.redis_neighbours import RedisNeighbours

_SEARCHING_SHARE = 0.6  # of a request's time; what is left must be enough for the last round to answer


class House:
    """`cooled_down` is told when a provider is left alone for a while. This is the house of one of so many `workers` of
    a server; `places` are those that all of them have at its upstreams."""

    def __init__(
        self,
        config: Config,
        *,
        cooled_down: CooledDown | None = None,
        places: SharedPlaces | None = None,
        workers: int = 1,
    ) -> None:
        tools = config.tools
        own = [(config.server.host, config.server.port)]
        guard = Guard([str(network) for network in tools.allow_networks], own=own)
        self.config = config
        egress = config.network.egress
        bounds: dict[str, Any] = {
            "deadline": tools.open_timeout,
            "max_fetches": tools.max_fetches,
            "max_per_host": tools.max_fetches_per_host,
        }
        if config.network.proxy_for_pages:
            from providers.web.proxied import ProxiedFetcher  # few have one

            self.fetcher: Fetcher = ProxiedFetcher(guard, egress, **bounds)
        else:
            self.fetcher = Fetcher(guard, ca_file=egress.ca_file, **bounds)
        self.providers = registry.build(config.providers, self.fetcher, egress)
        self.searchers = [self.providers[name] for name in tools.search]
        self.readers = [self.providers[name] for name in tools.read]
        fallback = tools.public_fallback
        self.store = open_store(config.store, config.network.ca_file)
        shared, self._neighbours = _together(self.store, config)
        gateway = self.gateway = ProviderGateway(
            config.cooldown,
            config.cache,
            shared,
            neighbours=self._neighbours,
            share=1 / workers,
            cooled_down=cooled_down,
        )
        self.search = self.read = None
        self._search_chain = partial(SearchChain, public_fallback=fallback, gateway=gateway, guard=guard)
        if self.searchers:
            self.search = self._search_chain(self.searchers)
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
            read_results=tools.read_results,
        )
        self.toolbox = Toolbox(self.search, self.read, policy)
        style, footer = config.citations.style, config.citations.footer
        self.engine = Engine(
            self.toolbox,
            max_rounds=tools.max_rounds,
            max_seconds=config.server.request_timeout * _SEARCHING_SHARE,
            style=style,
            footer=footer,
            auto=config.citations.auto,
            require_read=config.citations.require_read,
            strip_foreign=config.citations.strip_foreign,
            store=self.store,
        )
        clients = [
            UpstreamClient(entry, transport_to(entry, egress), _limit(entry, config.server.queue, places))
            for entry in config.upstreams
        ]
        self.upstreams = UpstreamDirectory(
            clients, config.aliases, RetryBudget(-(-config.server.retry_floor // workers))
        )
        self.preparation = Preparation(self.upstreams, self.toolbox, self.store, mode=tools.mode, footer=footer)

    def toolbox_with(self, searcher: str) -> Toolbox:
        """The toolbox for the operator who names one provider: also one that `tools.search` leaves out."""
        named = self.providers.get(searcher)
        if named is None or not named.can_search or named in self.searchers:
            return self.toolbox
        return Toolbox(self._search_chain([named, *self.searchers]), self.read, self.toolbox.policy)

    def start_indexes(self) -> None:
        """Lets indexes be made before anybody asks for them."""
        for named in self.providers.values():
            if isinstance(named.provider, Indexing):
                named.provider.start_index()

    async def hear_neighbours(self) -> None:
        """Lets other processes tell of providers that are to be left alone."""
        if self._neighbours:
            await self._neighbours.open()

    async def aclose(self) -> None:
        if self._neighbours:
            await self._neighbours.aclose()
        await self.upstreams.aclose()
        await registry.close(self.providers.values())
        await self.fetcher.aclose()
        await self.store.aclose()


def _together(store: Store, config: Config) -> tuple[SharedCache | None, RedisNeighbours | None]:
    """What many processes know of providers: with those alone that ask the same ones in the same way."""
    if isinstance(store, MemoryStore):
        return None, None
    from .store.redis_store import RedisStore, SharedProviderCache

    assert isinstance(store, RedisStore)
    said = [entry.model_dump(mode="python") for entry in config.providers]
    cache = SharedProviderCache(store, repr((said, config.tools.allow_networks)))
    return cache, store.neighbours(cache.scope, [entry.name for entry in config.providers])


def _limit(config: UpstreamConfig, patience: float, places: SharedPlaces | None) -> UpstreamLimit | None:
    return UpstreamLimit(config.name, config.max_requests, patience, places) if config.max_requests else None


def transport_to(config: UpstreamConfig, egress: Egress) -> Transport:
    if config.type == "demo":
        from .upstreams.demo import DemoTransport  # few have one

        return DemoTransport(config.name)
    way = config.way_out(egress)
    timeouts = {
        "connect_timeout": config.connect_timeout,
        "first_byte_timeout": config.first_byte_timeout,
        "idle_timeout": config.idle_timeout,
    }
    off, most = frozenset(config.without_repairs), config.max_answer
    if config.type == "litellm":
        from .upstreams.litellm_transport import LitellmTransport  # it brings aiohttp, which takes long to load

        return LitellmTransport(
            config.name,
            config.key,
            api_base=config.base_url,
            models=config.models,
            options=config.options,
            headers=config.headers,
            max_answer=most,
            off=off,
            egress=way,
            **timeouts,
        )
    return OpenAITransport(
        config.name,
        config.base_url,
        config.key,
        headers=config.headers,
        max_answer=most,
        off=off,
        egress=way,
        **timeouts,
    )

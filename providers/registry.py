"""The table of services and the way from a config entry to a working provider.

Handed the `providers:` entries and the fetcher for the open web; hands on one `NamedProvider` instance per entry, or a
`ProviderConfigError` that says which provider, which key, and where to set it. A service is imported when it is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, ValidationError

from .base import Role
from .errors import NoResults, ProgramFailed, ProviderError
from .limits import Limits
from .records import dataclass
from .settings import Count, PerSecond, Seconds
from .web.egress import DIRECT, Egress, ProxyUrl

if TYPE_CHECKING:
    from .web.http import Fetcher


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of a service without importing it. `advice` is what an operator can do about a failure of that
    kind where this service has an answer of its own; `{name}` in it is the provider's name."""

    place: str  # module:class
    roles: tuple[Role, ...]
    variable: str = ""  # where operators usually keep what it needs
    sets: Literal["api_key", "base_url"] = "api_key"  # what of its entry the variable is for
    keyless: bool = False  # does it do without that variable?
    advice: Mapping[type[ProviderError], str] = field(default_factory=dict)


SEARCH: tuple[Role, ...] = ("search",)
READ: tuple[Role, ...] = ("read",)
BOTH = SEARCH + READ

# Where no provider is configured, the variables bring theirs in this order of fail-over.
SERVICES: Mapping[str, Service] = {
    "tavily": Service("providers.services.tavily:Tavily", BOTH, "TAVILY_API_KEY", keyless=True),
    "exa": Service("providers.services.exa:Exa", BOTH, "EXA_API_KEY"),
    "brave": Service("providers.services.brave:Brave", SEARCH, "BRAVE_API_KEY"),
    "searxng": Service("providers.services.searxng:Searxng", SEARCH, "SEARXNG_URL", sets="base_url"),
    "perplexity": Service("providers.services.perplexity:Perplexity", SEARCH, "PERPLEXITY_API_KEY"),
    "serper": Service("providers.services.serper:Serper", SEARCH, "SERPER_API_KEY"),
    "jina": Service("providers.services.jina:Jina", BOTH, "JINA_API_KEY"),
    "firecrawl": Service("providers.services.firecrawl:Firecrawl", BOTH, "FIRECRAWL_API_KEY"),
    "duckduckgo": Service(
        "providers.services.duckduckgo:DuckDuckGo",
        SEARCH,
        advice={
            NoResults: "DuckDuckGo throttles who asks often: wait some minutes, or put another provider after {name}"
        },
    ),
    "model": Service("providers.services.model:Model", SEARCH),
    "local": Service("providers.services.local:Local", BOTH),
    "direct": Service("providers.services.direct:Direct", READ),
    "chromium": Service(
        "providers.services.chromium:Chromium",
        READ,
        advice={
            ProgramFailed: "install Chromium (Debian: `apt install chromium`), or correct `program` or `cdp_url` of "
            "provider {name}"
        },
    ),
    "crawl4ai": Service("providers.services.crawl4ai:Crawl4AI", READ),
}
DEFAULT_SEARCH = "duckduckgo"  # where nothing is configured and no variable brings another
DEFAULT_READER = "direct"  # where nothing is configured, behind those that read
PLUGINS = "groundwire.providers"  # the entry-point group of third-party providers

# Endings that no public resolver serves (RFC 6762, 6761, 8375, ICANN's .internal) or that networks use at home.
PRIVATE_SUFFIXES = (".local", ".localhost", ".internal", ".home.arpa", ".lan", ".home", ".corp", ".intranet", ".test")


class ProviderEntry(BaseModel, extra="forbid"):
    """One entry of `providers:` in the config."""

    name: str = Field(min_length=1)
    """A name of its own, used in `tools.search` and `tools.read`."""
    type: str
    """The service: one of the [built-in types](providers.md#the-built-in-services), or a type that a plugin adds."""
    api_key: SecretStr | None = None
    """The key for the service, if it takes one."""
    base_url: str | None = None
    """The address of the service, if it is your own instance."""
    timeout: float | None = None
    """The longest wait for one call. Each service has [a default of its own](#options-of-each-service)."""
    private: bool | None = None
    """Whether it is private, see `tools.public_fallback`. Unset: decided by the type and the URL."""
    rate: PerSecond | None = None
    """The most calls that may start per second. `0.5` is one call in two seconds. `duckduckgo` has 1 by default."""
    concurrency: Count | None = None
    """The most calls under way at once."""
    min_gap: Seconds | None = None
    """The least time between the starts of two calls."""
    proxy: ProxyUrl | None = None
    """The proxy for this provider, instead of [`network.proxy`](#network). `""` means none. Readers that fetch pages
    themselves (`direct`, `chromium`) take none: see `network.proxy_for_pages`.
    """
    options: Annotated[dict[str, Any], Field(repr=False)] = {}  # may hold a password
    """Settings of that service alone, see [below](#options-of-each-service)."""


class ProviderConfigError(ValueError):
    """A provider cannot be made from its entry; the text is for the operator and never holds a key."""


@dataclass(frozen=True, slots=True)
class NamedProvider:
    """A provider under the name the operator gave it. What it can do is what it has: `search`, `read` or both."""

    name: str
    type: str
    provider: object = field(repr=False)
    private: bool = False
    limits: Limits = field(default_factory=Limits)
    base_url: str = ""  # where its service is, as far as its settings tell

    @property
    def can_search(self) -> bool:
        return callable(getattr(self.provider, "search", None))

    @property
    def can_read(self) -> bool:
        return callable(getattr(self.provider, "read", None))

    @property
    def hosted(self) -> bool:
        """Whether reading a page through it tells the page's URL to somebody else's server."""
        return bool(getattr(self.provider, "hosted", False))

    @property
    def reads_itself(self) -> bool:
        """Whether it dials pages itself or owns them: then a page that cannot be read is the page's fault."""
        return bool(getattr(self.provider, "uses_open_web", False)) or hasattr(self.provider, "owns")


def build(entries: Sequence[ProviderEntry], fetcher: Fetcher, egress: Egress = DIRECT) -> dict[str, NamedProvider]:
    """`fetcher` reads the open web for those that want it; `egress` is how the others reach their services."""
    providers: dict[str, NamedProvider] = {}
    for entry in entries:
        if entry.name in providers:
            raise ProviderConfigError(
                f"providers: the name {entry.name!r} is used twice; give each provider its own name"
            )
        providers[entry.name] = _build(entry, fetcher, egress)
    return providers


async def close(providers: Iterable[NamedProvider]) -> None:
    """Closes every provider that can be closed; one that fails to does not keep the others open."""
    closers = [getattr(named.provider, "aclose", None) for named in providers]
    await asyncio.gather(*(closer() for closer in closers if callable(closer)), return_exceptions=True)


def load(kind: str) -> Any:
    """The class behind a type name: ours from the table, else a plugin's entry point."""
    if kind in SERVICES:
        module, _, name = SERVICES[kind].place.partition(":")
        return getattr(import_module(module), name)
    return _plugins()[kind].load()


def types() -> list[str]:
    """Every type that an entry may have: ours in the order of the alphabet, then those of plugins."""
    return [*sorted(SERVICES), *_plugins()]


def roles_of(kind: str) -> tuple[Role, ...]:
    """What a provider of that type can do, told without making one; of a plugin its class says it. A type that does not
    exist or cannot be loaded is not held back for it: `build` says what is wrong."""
    if kind in SERVICES:
        return SERVICES[kind].roles
    try:
        plugin = load(kind)
    except Exception:  # a boundary: a plugin's import may raise anything
        return BOTH
    return tuple(role for role in BOTH if callable(getattr(plugin, role, None)))


def able_to(role: Role, entries: Iterable[ProviderEntry]) -> list[str]:
    """The names of those that can do it."""
    return [entry.name for entry in entries if role in roles_of(entry.type)]


def _plugins() -> dict[str, EntryPoint]:
    return {plugin.name: plugin for plugin in entry_points(group=PLUGINS)}


def _build(entry: ProviderEntry, fetcher: Fetcher, egress: Egress) -> NamedProvider:
    if entry.type not in SERVICES and entry.type not in _plugins():
        known = types()
        raise ProviderConfigError(
            f"provider {entry.name!r}: unknown type {entry.type!r}{_nearest(entry.type, known)}; "
            f"known types: {', '.join(sorted(known))}"
        )
    given = _flatten(entry)
    way = egress.said(entry.proxy, f"`proxy` of provider {entry.name!r}")
    try:
        service = load(entry.type)
        settings = _settings(service, given | _own_proxy(service, entry, way))
        provider = service(settings, *_handed(service, fetcher, way))
        limits = _limits(entry, provider)
    except ValidationError as error:
        # Not chained: pydantic's own text quotes the input, and the input may be a key.
        raise ProviderConfigError(_explain(entry, error)) from None
    except ProviderConfigError as error:
        raise ProviderConfigError(f"provider {entry.name!r} ({entry.type}): {error}") from None
    except Exception as error:  # A boundary: a plugin's import and constructor may raise anything.
        raise ProviderConfigError(
            f"provider {entry.name!r}: the type {entry.type!r} cannot be set up ({type(error).__name__})"
        ) from error
    private = _is_private(entry, service, settings)
    return NamedProvider(entry.name, entry.type, provider, private, limits, _base_url(settings))


def _handed(service: Any, fetcher: Fetcher, way: Egress) -> tuple[Any, ...]:
    """What a service is handed besides its settings: by what it says of itself."""
    if getattr(service, "uses_open_web", False):
        return (fetcher,)
    return (way,) if getattr(service, "uses_egress", False) else ()


def _own_proxy(service: Any, entry: ProviderEntry, way: Egress) -> dict[str, Any]:
    """A plugin that has a setting `proxy` gets the URL of the one that it is to use, `""` for none."""
    takes = "proxy" in getattr(getattr(service, "Settings", None), "model_fields", ())
    if takes:
        proxy = way.proxy_to_url(entry.base_url) if entry.base_url else way.https
        return {"proxy": proxy.url if proxy else ""}
    if entry.proxy is not None and not getattr(service, "uses_egress", False):
        if getattr(service, "uses_open_web", False):
            raise ProviderConfigError("it reads pages itself; set network.proxy and network.proxy_for_pages instead")
        raise ProviderConfigError("it takes no proxy")
    return {}


def _flatten(entry: ProviderEntry) -> dict[str, Any]:
    """The entry as the service sees it. An empty key (`${NAME:-}` with NAME unset) counts as none."""
    given: dict[str, Any] = {}
    if entry.api_key is not None and entry.api_key.get_secret_value():
        given["api_key"] = entry.api_key.get_secret_value()
    if entry.base_url:
        given["base_url"] = entry.base_url
    if entry.timeout is not None:
        given["timeout"] = entry.timeout
    return given | entry.options


def _settings(service: Any, given: dict[str, Any]) -> BaseModel | dict[str, Any]:
    model = getattr(service, "Settings", None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_validate(given)
    return given


def _limits(entry: ProviderEntry, provider: object) -> Limits:
    """What the operator said, else what the provider says of itself in `limits`, a mapping of the same keys."""
    said = entry.model_dump(include={"rate", "concurrency", "min_gap"}, exclude_none=True)
    return Limits(**{**getattr(provider, "limits", {}), **said})


def _is_private(entry: ProviderEntry, service: Any, settings: BaseModel | dict[str, Any]) -> bool:
    if entry.private is not None:
        return entry.private
    if getattr(service, "private", False):
        return True
    base_url = _base_url(settings)
    return bool(base_url) and not _is_public(base_url)


def _base_url(settings: BaseModel | dict[str, Any]) -> str:
    given = settings.get("base_url") if isinstance(settings, dict) else getattr(settings, "base_url", None)
    return str(given) if given else ""


def _is_public(base_url: str) -> bool:
    """Whether the host is out in the public internet, by its name alone: nothing is resolved at start."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:  # only a plugin's address is not checked before
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." in host and not host.endswith(PRIVATE_SUFFIXES)
    return (getattr(address, "ipv4_mapped", None) or address).is_global


def _explain(entry: ProviderEntry, error: ValidationError) -> str:
    model = load(entry.type).Settings
    return "; ".join(_explain_one(entry, list(model.model_fields), detail) for detail in error.errors())


def _explain_one(entry: ProviderEntry, keys: list[str], detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"]) or "settings"
    of_entry = key in ("api_key", "base_url", "timeout")
    place = f"under provider {entry.name!r}" if of_entry else f"under `options:` of provider {entry.name!r}"
    who = f"provider {entry.name!r} ({entry.type})"
    if detail["type"] == "missing":
        example = f"${{{entry.type.upper()}_API_KEY}}" if key == "api_key" else "…"
        return f"{who}: `{key}` is missing; set `{key}: {example}` {place} in the config"
    if detail["type"] == "extra_forbidden":
        takes = ", ".join(keys) or "none"
        return f"{who}: there is no setting `{key}`{_nearest(key, keys)}; it takes: {takes}"
    return f"{who}: `{key}` is not valid: {detail['msg']}; set it {place} in the config"


def _nearest(word: str, known: Iterable[str]) -> str:
    matches = get_close_matches(word, known, n=1)
    return f", did you mean {matches[0]!r}?" if matches else ""

"""What no single section of the config can see: names that lead nowhere, two of one name, doors that stand open. Handed
a config that is valid section by section; hands on what is wrong with the whole, each with the key it is about.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from providers.base import Role
from providers.registry import ProviderEntry, able_to, types

from .file import KeyPath
from .keys import SHORTEST, KeyPolicy
from .prices import PricesConfig

if TYPE_CHECKING:
    from .keys import ClientKey, KeyPolicy
    from .settings import Config, ServerConfig

Problems = Iterator[tuple[KeyPath, str]]

_PORTS = {"http": 80, "https": 443}
_ASKS_NOBODY = "local"  # its base_url is where its documents are cited
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 compared, not bound


def contradictions(config: Config) -> Problems:
    for find in _CHECKS:
        yield from find(config)


def _open_door(config: Config) -> Problems:
    if not config.server.keys and not _is_loopback(config.server.host):
        yield ("server", "host"), "must be 127.0.0.1 while there are no client keys; set server.keys or GROUNDWIRE_KEYS"


def weak_keys(server: ServerConfig) -> Problems:
    """Keys that somebody else may know or guess."""
    is_open = not _is_loopback(server.host)
    for index, key in enumerate(server.keys):
        if key.is_public:
            sentence = "is an example that everybody can read in the documentation; `groundwire key new` makes a key"
            yield ("server", "keys", index), sentence
        elif is_open and key.is_short:
            sentence = (
                f"must have at least {SHORTEST} characters, because others can reach {server.host}; "
                "`groundwire key new` makes such a key"
            )
            yield ("server", "keys", index), sentence


def _weak_keys(config: Config) -> Problems:
    return weak_keys(config.server)


def _open_to_all_pages(config: Config) -> Problems:
    """Every page that somebody here looks at could use the models."""
    if "*" in config.server.cors and not config.server.keys:
        yield ("server", "cors"), "must not be * while there are no client keys; list origins, or set server.keys"


def _workers_apart(config: Config) -> Problems:
    """A conversation that began in one of them could not go on in another, and each would count limits alone."""
    wanted = config.server.workers
    if wanted != "auto" and wanted > 1 and config.store == "memory":
        sentence = "needs a store that all workers share: set `store: redis://host:6379/0`, or leave it at 1"
        yield ("server", "workers"), sentence


def _equal_key_names(config: Config) -> Problems:
    """Written names alone are to blame: a key without one is called by its place, whatever others are called. Keys of
    one name are one caller, so that one can replace another."""
    keys, names = config.server.keys, config.server.key_names
    by_place = {name for key, name in zip(keys, names, strict=True) if not key.name}
    for index, key in enumerate(keys):
        others = [other for other in keys[:index] if other.name == key.name] if key.name else []
        if key.name in by_place:
            yield ("server", "keys", index, "name"), "must not be the name of another key"
        elif others and not _replace_each_other([*others, key]):
            sentence = (
                "must not be the name of another key, unless one replaces the other: then the old one has `expires`, "
                "and they differ in nothing else"
            )
            yield ("server", "keys", index, "name"), sentence


def _replace_each_other(keys: Sequence[ClientKey]) -> bool:
    said = [key.model_dump(exclude={"key", "hash", "expires"}, exclude_unset=True) for key in keys]
    return all(each == said[0] for each in said) and sum(key.expires is None for key in keys) <= 1


def _equal_keys(config: Config) -> Problems:
    digests = [key.digest for key in config.server.keys]
    for index, digest in enumerate(digests):
        if digest in digests[:index]:
            yield ("server", "keys", index), "must not be the same key as another one"


def _unpriced_budgets(config: Config) -> Problems:
    """Money that nobody counts would never be used up."""
    if config.prices != PricesConfig():
        return
    sentence = "needs `prices`: without them nothing costs anything"
    for index, key in enumerate(config.server.keys):
        yield from ((("server", "keys", index, *path), sentence) for path in _costs(key))
    for name, group in config.server.groups.items():
        yield from ((("server", "groups", name, *path), sentence) for path in _costs(group))


def _costs(policy: KeyPolicy) -> Iterator[KeyPath]:
    spans = {"day": policy.budget.day, "month": policy.budget.month}
    return (("budget", span, "cost") for span, allowance in spans.items() if allowance.cost is not None)


def _wrong_prices(config: Config) -> Problems:
    for pattern in config.prices.models:
        if not set("*?[") & set(pattern) and not _is_served(config, pattern):
            sentence = "must be a pattern, a model that an upstream here serves, or an upstream's name, / and a model"
            yield ("prices", "models", pattern), sentence
    for name, price in config.prices.providers.items():
        for role in sorted(price.model_fields_set):
            able = able_to(role, config.providers)  # type: ignore[arg-type]  # its fields are the roles
            if name not in able:
                valid = ", ".join(able) or "none is configured"
                yield ("prices", "providers", name), f"must be the name of a provider that can {role} ({valid})"


def _unknown_groups(config: Config) -> Problems:
    known = ", ".join(config.server.groups) or "there is none"
    for index, key in enumerate(config.server.keys):
        if key.group and key.group not in config.server.groups:
            yield ("server", "keys", index, "group"), f"must be one of server.groups ({known})"


def _unknown_key_providers(config: Config) -> Problems:
    """Names in the search policies of keys and groups."""
    names = [provider.name for provider in config.providers]
    policies: list[tuple[KeyPath, KeyPolicy]] = [
        *((("server", "keys", index), key) for index, key in enumerate(config.server.keys)),
        *((("server", "groups", name), group) for name, group in config.server.groups.items()),
    ]
    for path, policy in policies:
        chosen = policy.search.providers
        for index, name in enumerate(chosen if isinstance(chosen, list) else ()):
            if name not in names:
                valid = ", ".join(names) or "none is configured"
                yield (*path, "search", "providers", index), f"must be the name of a provider ({valid})"


def _own_listener(config: Config) -> Problems:
    for index, upstream in enumerate(config.upstreams):
        if upstream.base_url and _is_own_listener(upstream.base_url, config.server):
            sentence = (
                f"must be the model's server, but port {config.server.port} of this machine is Groundwire itself; "
                "OPENAI_BASE_URL may name Groundwire for its clients only"
            )
            yield ("upstreams", index, "base_url"), sentence


def _own_search(config: Config) -> Problems:
    """We speak as some services do, and would ask ourselves without end."""
    sentence = f"must be another server: port {config.server.port} of this machine is Groundwire itself"
    for index, provider in enumerate(config.providers):
        if provider.type == _ASKS_NOBODY:
            continue
        for place, asked in ((("base_url",), provider.base_url), (("options", "base_url"), _option(provider))):
            if asked and _is_url(asked) and _is_own_listener(asked, config.server):
                yield ("providers", index, *place), sentence


def _option(provider: ProviderEntry) -> str:
    """The address where an operator wrote it among the options, which count before the entry's own."""
    written = provider.options.get("base_url")
    return written if isinstance(written, str) else ""


def _wrong_fallbacks(config: Config) -> Problems:
    for index, upstream in enumerate(config.upstreams):
        others = {entry.name: entry for entry in config.upstreams if entry.name != upstream.name}
        for place, fallback in enumerate(upstream.fallback):
            path = ("upstreams", index, "fallback", place)
            other = others.get(fallback.partition("/")[0])
            if other is None:
                names = ", ".join(others) or "there is none"
                yield path, f"must begin with the name of another upstream ({names})"
            elif other.passes_key:
                sentence = "must not be an upstream with api_key: passthrough"
                yield path, f"{sentence}; a client's key is for the upstream it chose"


def _wrong_aliases(config: Config) -> Problems:
    for alias, target in config.aliases.items():
        if target in config.aliases:
            yield ("aliases", alias), "must name a model, not another alias"
        elif not _is_served(config, target):
            sentence = "must be a model that an upstream here serves, or an upstream's name, / and a model"
            yield ("aliases", alias), sentence


def _unknown_types(config: Config) -> Problems:
    known = types()
    for index, provider in enumerate(config.providers):
        if provider.type not in known:
            yield ("providers", index, "type"), f"must be a provider of this version ({', '.join(known)})"


def _equal_names(config: Config) -> Problems:
    for section, entries in (("upstreams", config.upstreams), ("providers", config.providers)):
        names = [entry.name for entry in entries]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (section, index, "name"), "must not be the name of another entry"


def _unable_providers(config: Config) -> Problems:
    chosen: dict[Role, list[str]] = {"search": config.tools.search, "read": config.tools.read}
    for role, names in chosen.items():
        able = able_to(role, config.providers)
        for index, name in enumerate(names):
            if name not in able:
                valid = ", ".join(able) or "none is configured"
                yield ("tools", role, index), f"must be the name of a provider that can {role} ({valid})"


def _proxy_for_nothing(config: Config) -> Problems:
    network = config.network
    if network.proxy_for_pages and not network.proxy.get_secret_value() and not network.trust_env:
        yield ("network", "proxy_for_pages"), "needs network.proxy, or network.trust_env and a proxy in the environment"


def _two_ways_of_one_account(config: Config) -> Problems:
    """LiteLLM keeps one connection pool for a key and an address, whatever else was said of them."""
    ways: dict[tuple[str, str], object] = {}
    for index, upstream in enumerate(config.upstreams):
        if upstream.type == "litellm":
            way = upstream.way_out(config.network.egress)
            if ways.setdefault((upstream.base_url, upstream.key), way) != way:
                sentence = (
                    "must be that of the other litellm upstream with this key and address: they share connections"
                )
                yield ("upstreams", index, "proxy"), sentence


def _traces_through_socks(config: Config) -> Problems:
    """The library that sends them knows no such proxy."""
    proxy = config.network.egress.proxy_to_url(config.traces.endpoint) if config.traces.endpoint else None
    if proxy is not None and proxy.scheme == "socks5":
        yield ("traces", "endpoint"), "cannot be reached through a SOCKS proxy; list its host in network.no_proxy"


_CHECKS: tuple[Callable[[Config], Problems], ...] = (
    _open_door,
    _weak_keys,
    _open_to_all_pages,
    _workers_apart,
    _equal_key_names,
    _equal_keys,
    _unpriced_budgets,
    _wrong_prices,
    _unknown_groups,
    _unknown_key_providers,
    _own_listener,
    _own_search,
    _wrong_fallbacks,
    _wrong_aliases,
    _unknown_types,
    _equal_names,
    _unable_providers,
    _proxy_for_nothing,
    _two_ways_of_one_account,
    _traces_through_socks,
)


def _is_served(config: Config, target: str) -> bool:
    name, _, model = target.partition("/")
    if model and name in [upstream.name for upstream in config.upstreams]:
        return True
    return any(upstream.serves(target) for upstream in config.upstreams)


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback  # only Python 3.13 looks inside by itself


def _is_url(text: str) -> bool:
    """What is none is named where the provider is made."""
    try:
        return urlsplit(text).scheme in _PORTS and urlsplit(text).port != 0
    except ValueError:
        return False


def _is_own_listener(base_url: str, server: ServerConfig) -> bool:
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if (parts.port or _PORTS[parts.scheme]) != server.port:
        return False
    return host == server.host or (_is_here(host) and _is_here(server.host))


def _is_here(host: str) -> bool:
    return _is_loopback(host) or host in _ANY_ADDRESS

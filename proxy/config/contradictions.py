"""What no single section of the config can see: names that lead nowhere, two of one name, doors that stand open. Handed
a config that is valid section by section; hands on what is wrong with the whole, each with the key it is about.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from providers.base import Role
from providers.registry import able_to, types

from .file import KeyPath

if TYPE_CHECKING:
    from .settings import Config, ServerConfig

Problems = Iterator[tuple[KeyPath, str]]

_PORTS = {"http": 80, "https": 443}
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 compared, not bound


def contradictions(config: Config) -> Problems:
    for find in _CHECKS:
        yield from find(config)


def _open_door(config: Config) -> Problems:
    if not config.server.keys and not _is_loopback(config.server.host):
        yield ("server", "host"), "must be 127.0.0.1 while there are no client keys; set server.keys or GROUNDWIRE_KEYS"


def _equal_key_names(config: Config) -> Problems:
    """Written names alone are to blame: a key without one is called by its place, whatever others are called."""
    keys, names = config.server.keys, config.server.key_names
    by_place = {name for key, name in zip(keys, names, strict=True) if not key.name}
    for index, key in enumerate(keys):
        if key.name and (key.name in names[:index] or key.name in by_place):
            yield ("server", "keys", index, "name"), "must not be the name of another key"


def _own_listener(config: Config) -> Problems:
    for index, upstream in enumerate(config.upstreams):
        if upstream.base_url and _is_own_listener(upstream.base_url, config.server):
            sentence = (
                f"must be the model's server, but port {config.server.port} of this machine is Groundwire itself; "
                "OPENAI_BASE_URL may name Groundwire for its clients only"
            )
            yield ("upstreams", index, "base_url"), sentence


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


_CHECKS: tuple[Callable[[Config], Problems], ...] = (
    _open_door,
    _equal_key_names,
    _own_listener,
    _wrong_fallbacks,
    _wrong_aliases,
    _unknown_types,
    _equal_names,
    _unable_providers,
)


def _is_served(config: Config, target: str) -> bool:
    name, _, model = target.partition("/")
    if model and name in [upstream.name for upstream in config.upstreams]:
        return True
    return any(upstream.serves(target) for upstream in config.upstreams)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_own_listener(base_url: str, server: ServerConfig) -> bool:
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if (parts.port or _PORTS[parts.scheme]) != server.port:
        return False
    return host == server.host or (_is_here(host) and _is_here(server.host))


def _is_here(host: str) -> bool:
    return _is_loopback(host) or host in _ANY_ADDRESS

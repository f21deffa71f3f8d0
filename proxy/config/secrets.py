"""Every secret that a config holds, in each form in which it may turn up elsewhere. Handed a config; hands on the texts
that no log, report or error may show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from ..values.secrets import is_secret
from .keys import HASHED
from .redis_address import RedisAddress

if TYPE_CHECKING:
    from .settings import Config

SECRET_NAME = re.compile(r"key|secret|token|password|passwd|credential|auth|cookie", re.IGNORECASE)
_SCHEMES = ("Bearer ", "Basic ", "Token ")


def secrets_of(config: Config) -> tuple[str, ...]:
    """The longest first, so that none is hidden in part because it begins with another."""
    found = {form for secret in _said(config) for form in _forms(secret) if is_secret(form)}
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """What may be secret in the headers of an upstream: any of their values, without the word before a key."""
    for value in headers.values():
        yield next((value.removeprefix(scheme) for scheme in _SCHEMES if value.startswith(scheme)), value)


def named_secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """The texts under names that say so, however deep."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from named_secrets(value)
        elif isinstance(value, str) and SECRET_NAME.search(name):
            yield value


def _said(config: Config) -> Iterator[str]:
    for key in config.server.keys:
        yield key.key.get_secret_value() if key.key else key.hash.removeprefix(HASHED)
    egress = config.network.egress
    yield from egress.secrets
    for upstream in config.upstreams:
        yield upstream.key
        yield from header_secrets(upstream.headers)
        yield from named_secrets(upstream.options)
        yield from upstream.way_out(egress).secrets
    for provider in config.providers:
        yield provider.api_key.get_secret_value() if provider.api_key else ""
        yield from _password_in(provider.base_url or "")
        yield from named_secrets(provider.options)
        yield from egress.said(provider.proxy, "").secrets
    yield from header_secrets(config.traces.headers)
    yield from _password_in(config.traces.endpoint)
    if config.store != "memory":
        yield RedisAddress.read(config.store).password or ""


def _password_in(url: str) -> Iterator[str]:
    with suppress(ValueError):
        yield unquote(urlsplit(url).password or "")


def _forms(secret: str) -> tuple[str, ...]:
    """As it is, as a URL writes it, and as JSON does."""
    return secret, quote(secret, safe=""), json.dumps(secret)[1:-1]

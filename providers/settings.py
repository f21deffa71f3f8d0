"""What an operator may say about how providers are called: when they are left alone, and what is remembered.

Handed the `cooldown:` and `cache:` sections; hands strict, frozen values to the gateway. The kinds of numbers,
addresses and keys that sections share are here too.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, Field, SecretStr, model_validator


def no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def off(value: object) -> object:
    """YAML reads an unquoted `off` as false. Only that direction: `on` names no mode, so it stays an error."""
    return "off" if str(value).lower() in ("off", "false", "no") else value


def on_or_off(value: object) -> object:
    """YAML reads an unquoted `on` as true as well."""
    return "on" if value is True or str(value).lower() in ("on", "true", "yes") else off(value)


def check_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError("it must look like https://host or http://host:port")
    return value


def check_base_url(value: str) -> str:
    return check_url(value).rstrip("/")


def check_key(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise ValueError("it must be printable ASCII without spaces")
    return value


Count = Annotated[int, BeforeValidator(no_switch), Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, BeforeValidator(no_switch), Field(gt=0, le=86_400)]
TimeToLive = Annotated[float, BeforeValidator(no_switch), Field(ge=0, le=86_400)]
PerSecond = Annotated[float, BeforeValidator(no_switch), Field(gt=0, le=1000)]
BaseUrl = Annotated[str, AfterValidator(check_base_url)]
Key = Annotated[SecretStr, AfterValidator(check_key)]


class CooldownSettings(BaseModel, extra="forbid", frozen=True):
    """How long each kind of failure keeps a provider out the first time, unless its answer said how long."""

    rate_limited: Seconds = 60
    """After a rate limit."""
    auth_failed: Seconds = 600
    """After a refused key."""
    quota_exceeded: Seconds = 3600
    """After the plan is used up."""
    unavailable: Seconds = 2
    """After several timeouts or breakdowns in a row."""
    failures: Count = 3
    """How many timeouts or breakdowns in a row start `unavailable`."""


class CacheSettings(BaseModel, extra="forbid", frozen=True):
    """A time to live of 0 keeps nothing of that kind."""

    search_ttl: TimeToLive = 300
    """How long search results are kept. 0 keeps none."""
    page_ttl: TimeToLive = 900
    """How long pages are kept. 0 keeps none."""
    max_entries: Count = 2000
    """The most answers that are kept. The least recently used go first."""
    max_size: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024)] = ByteSize(64 << 20)
    """The most memory that the cache may take."""

    @model_validator(mode="before")
    @classmethod
    def _from_off(cls, value: object) -> object:
        return {"search_ttl": 0, "page_ttl": 0} if off(value) == "off" else value


NO_CACHE = CacheSettings(search_ttl=0, page_ttl=0)

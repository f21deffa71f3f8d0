"""What an operator may say about those who ask: client keys, groups of them, and what each may do. Handed the
`server.keys` and `server.groups` sections; hands each key its name and its `KeyPolicy`, the key's own words first, its
group's behind them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, field_validator, model_validator

from providers.settings import Count, no_switch
from providers.urls import ascii_host

from .upstreams import STRICT, CitationsPolicy, Mode, Name

if TYPE_CHECKING:
    from tools.options import Permission

_Model = TypeVar("_Model", bound=BaseModel)

HASHED = "sha256:"
SHORTEST = 16  # characters of a key where others can reach the server: a shorter one can be guessed
# What the documentation has printed where a key stands: a server that still has one of these is open to everybody.
_PRINTED = (
    "change-me change-me-too change-me-in-the-environment changeme password foo key1 key2 unused a-client-key "
    "gw-3qPZ0vD8mYc1oTnWb6RkXe5uHs9LfJ2aGi7QwErTyUi"
)
_BEGINNINGS = ("change-me", "change_me", "changeme")  # of such words elsewhere
Amount = Annotated[int, BeforeValidator(no_switch), Field(ge=1, le=10**15)]
Money = Annotated[float, BeforeValidator(no_switch), Field(gt=0, le=10**9)]


def _domain(value: str) -> str:
    host = ascii_host(value)
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", value) or not host:
        raise ValueError("must be a bare domain such as example.org; its subdomains are included")
    return host


def _key_name(value: str) -> str:
    if len(value) > 64 or not value.isprintable():
        raise ValueError("must be one line of at most 64 characters")
    return value


def _end(value: object) -> datetime | None:
    """The moment at which a key ends: a day counts to its end, and what names no zone is in UTC."""
    if value is None:
        return None
    text = str(value)
    try:
        if len(text) <= len("2027-12-31"):
            return datetime.combine(date.fromisoformat(text), time.max, UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a day such as 2027-12-31, or a moment such as 2027-12-31T18:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Domain = Annotated[str, AfterValidator(_domain)]


class _Section(BaseModel):
    model_config = STRICT


class SearchPolicy(_Section):
    """What of the search a key may use. `providers`: `private` ones alone, or these by name; all of them if unset."""

    mode: Mode | None = None
    """`tools.mode` for this key."""
    providers: Literal["private"] | list[str] | None = None
    """The providers that this key may use: `private` for the private ones alone, or a list of names. Unset: all."""
    allowed_domains: list[Domain] = []
    """Only these domains are searched and opened for this key, within `tools.allowed_domains`."""
    blocked_domains: list[Domain] = []
    """These domains are never searched or opened for this key, besides `tools.blocked_domains`."""

    @cached_property
    def permission(self) -> Permission:
        """What of the tools that leaves."""
        from tools.options import EVERYTHING, Permission  # who only reads the config needs no tools

        if self.providers is None and not self.allowed_domains and not self.blocked_domains:
            return EVERYTHING
        named = self.providers if self.providers in (None, "private") else frozenset(self.providers)
        return Permission(named, tuple(self.allowed_domains), tuple(self.blocked_domains))


class Allowance(_Section):
    """What may be used up in a day or a month (UTC); what is unset has no end. `cost` is in the money of `prices`."""

    tokens: Amount | None = None
    """Tokens in a day or in a calendar month, in UTC. See [budgets](team.md#budgets)."""
    searches: Amount | None = None
    """Searches in that time."""
    cost: Money | None = None
    """Money in that time, in the currency of your [`prices`](#prices)."""


class Budget(_Section):
    day: Allowance = Allowance()
    month: Allowance = Allowance()


class KeyPolicy(_Section):
    """What a key may do; what is unset is not limited."""

    models: list[Name] | None = None
    """Patterns of the models that this key may use. Unset: all."""
    search: SearchPolicy = SearchPolicy()
    citations: CitationsPolicy = CitationsPolicy()
    requests_per_minute: Count | None = None
    """Requests per minute. Unset: no limit. See [limits](team.md#limits)."""
    tokens_per_minute: Amount | None = None
    """Tokens per minute, into models and out of them."""
    searches_per_minute: Count | None = None
    """Searches per minute: those of models, of `/v1/search` and of the [APIs of other engines](search_engines.md)."""
    concurrency: Count | None = None
    """Requests at once."""
    budget: Budget = Budget()


class ClientKey(KeyPolicy):
    """One client's key, written as a string or as a mapping with `key` or its `hash`."""

    key: SecretStr | None = None
    """The key itself, in printable ASCII without spaces, of 16 characters or more if the address is not loopback. Write
    either `key` or `hash`.
    """
    hash: Annotated[str, Field(repr=False)] = ""
    """`sha256:` and the SHA-256 of the key in hexadecimal digits, as `groundwire key new` prints it."""
    name: Annotated[str, AfterValidator(_key_name)] = ""
    """The name that the log and the usage report show, and that owns what the key stores. Without one they show `key1`,
    `key2`, … in the order of the list, and what is stored belongs to the key itself.
    """
    group: str = ""
    """The name of one of `server.groups`, whose policy this key shares."""
    expires: Annotated[datetime | None, BeforeValidator(_end)] = None
    """`2027-12-31` is valid to the end of that day, `2027-12-31T18:00:00Z` to that moment. UTC unless a zone is named.
    """
    admin: bool = False
    """May this key read [`GET /metrics`](observing.md#metrics), [the last requests](observing.md#the-last-requests),
    [health](observing.md#health) and [usage](team.md#what-each-key-used)? Without any keys, everybody who reaches the
    server may.
    """

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: object) -> object:
        return value if isinstance(value, dict | bool) else {"key": value}

    @model_validator(mode="after")
    def _key_or_hash(self) -> ClientKey:
        if (self.key is None) == (not self.hash):
            raise ValueError("must have either key or hash")
        return self

    @field_validator("key")
    @classmethod
    def _sendable(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not re.fullmatch(r"[!-~]+", key.get_secret_value()):
            text = "must be printable ASCII without spaces, and not empty; `groundwire key new` makes one"
            raise ValueError(text)
        return key

    @field_validator("hash")
    @classmethod
    def _digest(cls, value: str) -> str:
        if value and not re.fullmatch(HASHED + "[0-9a-fA-F]{64}", value):
            raise ValueError("must be sha256: and 64 hexadecimal digits, as `groundwire key new` prints it")
        return value.lower()

    @property
    def digest(self) -> str:
        """What the key is known by: the hash, in hexadecimal digits."""
        return self.hash.removeprefix(HASHED) if self.key is None else digest(self.key.get_secret_value())

    @property
    def is_public(self) -> bool:
        """Whether it is an example of the documentation, written out or as its hash."""
        plain = self.key.get_secret_value().lower() if self.key else ""
        return self.digest in _PUBLIC or digest(plain) in _PUBLIC or plain.startswith(_BEGINNINGS)

    @property
    def is_short(self) -> bool:
        """Of a hash nobody can tell."""
        return self.key is not None and len(self.key.get_secret_value()) < SHORTEST

    def policy(self, groups: Mapping[str, KeyPolicy]) -> KeyPolicy:
        """Its own words, and its group's for what it does not say; sections are joined field by field."""
        return _joined(KeyPolicy, self, groups.get(self.group, KeyPolicy()))


def _joined(kind: type[_Model], own: BaseModel, shared: BaseModel) -> _Model:
    """The fields of `kind`: those that `own` says, else `shared`'s."""
    fields: dict[str, Any] = {}
    for name in kind.model_fields:
        said, other = getattr(own, name), getattr(shared, name)
        if isinstance(said, BaseModel):
            fields[name] = _joined(type(said), said, other)
        else:
            fields[name] = said if name in own.model_fields_set else other
    return kind.model_construct(**fields)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


_PUBLIC = frozenset((*map(digest, _PRINTED.split()), "0" * 64))


def key_names(keys: Sequence[ClientKey]) -> list[str]:
    """What the log calls the owner of each."""
    return [key.name or f"key{number}" for number, key in enumerate(keys, 1)]

"""The keys of this server: which headers hold one, whose it is, and what name its owner's things are stored under.
Handed a request's headers; hands on a `Caller`, or refuses with 400 or 401. No key is kept but as its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..config.keys import ClientKey, KeyPolicy, key_names
from ..values.errors import refuse
from .caller import Caller
from .limits import KeyLimits

Headers = Mapping[bytes, Sequence[bytes]]

_SHARED_HEADERS = (b"authorization", b"x-api-key")
_OWN_HEADER = (b"x-groundwire-key",)
_BEARER = b"bearer "


@dataclass(slots=True)
class _Known:
    """One of our keys: what is said of it."""

    name: str
    admin: bool
    ends: datetime | None
    policy: KeyPolicy
    limits: KeyLimits | None
    owned: tuple[bytes, str] = (b"", "")  # the store's secret, and what its owner is called by that


class ClientKeys:
    """`secret` is what owners are named with, the same in all processes that share a store. `any_owner`: without keys
    of our own a caller is known by the key that it brings for an upstream."""

    def __init__(
        self,
        keys: Sequence[ClientKey],
        secret: Callable[[], Awaitable[bytes]],
        *,
        groups: Mapping[str, KeyPolicy] | None = None,
        any_owner: bool = False,
    ) -> None:
        self._secret = secret
        self._any_owner = any_owner
        self._known: Mapping[bytes, _Known] = {}
        self.change(keys, groups or {})

    def change(self, keys: Sequence[ClientKey], groups: Mapping[str, KeyPolicy]) -> None:
        """From now on these are valid, and no others. Who was let in before stays."""
        named = zip(keys, key_names(keys), strict=True)
        self._known = {bytes.fromhex(key.digest): _known(key, name, groups) for key, name in named}

    @property
    def required(self) -> bool:
        return bool(self._known)

    async def identify(self, headers: Headers) -> Caller:
        """Who sends these headers. Raises `RequestError` where a key is required and none of ours is there."""
        upstream_key = _authorization(headers)
        passed = _without_scheme(upstream_key.encode("latin-1"))
        if not self._known:
            owner = await self._owner(passed if self._any_owner else b"")
            return Caller("", owner, admin=True, upstream_key=upstream_key, secrets=_readable(passed))
        own = _OWN_HEADER[0] in headers
        alone = not own and _SHARED_HEADERS[1] not in headers and len(headers.get(_SHARED_HEADERS[0], ())) == 1
        credential = passed if alone else _presented(headers, _OWN_HEADER if own else _SHARED_HEADERS)
        known = self._find(credential)
        if known is None:
            text = "The API key is missing or not valid for this server. Send it as `Authorization: Bearer …`."
            raise refuse(401, text, kind="authentication_error", code="invalid_api_key")
        if known.ends is not None and time.time() > known.ends.timestamp():
            text = f"The API key '{known.name}' ended on {known.ends:%Y-%m-%d %H:%M %Z}; ask for a new one."
            raise refuse(401, text, kind="authentication_error", code="expired_api_key")
        spent = not own or self._find(passed) is not None
        return Caller(
            known.name,
            await self._owner_of(known, credential),
            known.admin,
            None if spent else upstream_key,
            _readable(credential, passed),
            known.policy,
            known.limits,
        )

    def _find(self, key: bytes) -> _Known | None:
        """Which of our keys it is. It is looked up by its digest, so that the time taken says nothing of any key."""
        return self._known.get(hashlib.sha256(key).digest())

    async def _owner_of(self, known: _Known, credential: bytes) -> str:
        secret = await self._secret()  # another one, once the processes that share a store have agreed
        if known.owned[0] != secret:
            known.owned = secret, await self._owner(credential)
        return known.owned[1]

    async def _owner(self, credential: bytes) -> str:
        if not credential:
            return ""
        return hmac.digest(await self._secret(), credential, "sha256").hex()


def _known(key: ClientKey, name: str, groups: Mapping[str, KeyPolicy]) -> _Known:
    policy = key.policy(groups)
    return _Known(name, key.admin, key.expires, policy, KeyLimits.of(name, policy))


def _authorization(headers: Headers) -> str:
    """The header in one spelling, wherever it is looked at. Clients of Anthropic's API have another one for it."""
    given = headers.get(b"authorization", (b"",))[0]
    if not given and (other := headers.get(b"x-api-key", (b"",))[0].strip()):
        given = _BEARER + other
    if given[: len(_BEARER)].lower() == _BEARER:
        given = b"Bearer " + _without_scheme(given)
    return given.decode("latin-1")


def _presented(headers: Headers, names: Sequence[bytes]) -> bytes:
    given = {
        _without_scheme(value) if name == b"authorization" else value.strip()
        for name in names
        for value in headers.get(name, ())
    }
    if len(given) > 1:
        raise refuse(400, "The request carries two different keys; send one.", code="ambiguous_key")
    return given.pop() if given else b""


def _readable(*keys: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.decode("latin-1") for key in keys if key))


def _without_scheme(authorization: bytes) -> bytes:
    has_scheme = authorization[: len(_BEARER)].lower() == _BEARER
    return (authorization[len(_BEARER) :] if has_scheme else authorization).strip()

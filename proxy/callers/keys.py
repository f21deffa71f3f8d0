"""The keys of this server: which headers hold one, whose it is, and what name its owner's things are stored under.
Handed a request's headers; hands on whose they are, or refuses with 400 or 401. No key is kept but as its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from providers.records import dataclass

from ..config.keys import ClientKey, KeyPolicy, key_names
from ..values.errors import refuse
from .caller import NOBODY, Caller
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
    is_named: bool  # by the operator, and not by its place in the list
    owned: tuple[bytes, str] = (b"", "")  # the store's secret, and what its owner is called by that

    def owners(self, secret: bytes, credential: bytes) -> tuple[str, str]:
        """The owner and the former one. A name stays when the key behind it changes, and cannot be the HMAC of another
        key, which is of hexadecimal digits. `secret` is another one, once the processes that share a store have
        agreed."""
        if self.owned[0] != secret:
            self.owned = secret, _owner(secret, credential)
        return (f"name:{self.name}", self.owned[1]) if self.is_named else (self.owned[1], "")


_Valid = Mapping[bytes, _Known]  # by their digests


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose headers they were that were looked at, for as long as `ClientKeys.knows` it."""

    caller: Caller
    keys: _Valid  # that were valid then
    secret: bytes | None  # that its owner was named with; None: it has none
    ends: float = math.inf  # the key, in the time of day


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
        self._known: _Valid = {}
        self.required = False  # must a request bring one of ours?
        self.change(keys, groups or {})

    def change(self, keys: Sequence[ClientKey], groups: Mapping[str, KeyPolicy]) -> None:
        """From now on these are valid, and no others. Who was let in before stays."""
        named = zip(keys, key_names(keys), strict=True)
        self._known = {bytes.fromhex(key.digest): _known(key, name, groups) for key, name in named}
        self.required = bool(self._known)

    def anybody(self) -> Identity:
        """Who asks for what everybody may see."""
        return Identity(NOBODY, self._known, None)

    async def knows(self, identity: Identity) -> bool:
        """Whether the same headers would say the same now. Not after a change of keys, nor when the key has ended."""
        if identity.keys is not self._known or time.time() > identity.ends:
            return False
        return identity.secret is None or identity.secret == await self._secret()

    async def identify(self, headers: Headers) -> Identity:
        """Who sends these headers. Raises `RequestError` where a key is required and none of ours is there."""
        valid = self._known
        upstream_key = _authorization(headers)
        passed = _without_scheme(upstream_key.encode("latin-1"))
        if not valid:
            named_with = await self._secret() if self._any_owner and passed else None
            owner = "" if named_with is None else _owner(named_with, passed)
            anybody = Caller("", owner, admin=True, upstream_key=upstream_key, secrets=_readable(passed))
            return Identity(anybody, valid, named_with)
        own = _OWN_HEADER[0] in headers
        alone = not own and _SHARED_HEADERS[1] not in headers and len(headers.get(_SHARED_HEADERS[0], ())) == 1
        credential = passed if alone else _presented(headers, _OWN_HEADER if own else _SHARED_HEADERS)
        known = _find(valid, credential)
        if known is None:
            text = "The API key is missing or not valid for this server. Send it as `Authorization: Bearer …`."
            raise refuse(401, text, kind="authentication_error", code="invalid_api_key")
        if known.ends is not None and time.time() > known.ends.timestamp():
            text = f"The API key '{known.name}' ended on {known.ends:%Y-%m-%d %H:%M %Z}; ask for a new one."
            raise refuse(401, text, kind="authentication_error", code="expired_api_key")
        spent = not own or _find(valid, passed) is not None
        secret = await self._secret()
        owner, former = known.owners(secret, credential)
        caller = Caller(
            known.name,
            owner,
            known.admin,
            None if spent else upstream_key,
            _readable(credential, passed),
            known.policy,
            known.limits,
            former,
        )
        return Identity(caller, valid, secret, math.inf if known.ends is None else known.ends.timestamp())


def _find(valid: _Valid, key: bytes) -> _Known | None:
    """Which of our keys it is. It is looked up by its digest, so that the time taken says nothing of any key."""
    return valid.get(hashlib.sha256(key).digest())


def _owner(secret: bytes, credential: bytes) -> str:
    return hmac.digest(secret, credential, "sha256").hex()


def _known(key: ClientKey, name: str, groups: Mapping[str, KeyPolicy]) -> _Known:
    policy = key.policy(groups)
    return _Known(name, key.admin, key.expires, policy, KeyLimits.of(name, policy), bool(key.name))


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

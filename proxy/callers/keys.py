"""The keys of this server: which headers hold one, whose it is, and what name its owner's things are stored under.
Handed a request's headers; hands on a `Caller`, or refuses with 400 or 401. No key is kept but as its digest.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..config.settings import ClientKey, key_names
from ..values.errors import refuse
from .caller import Caller

Headers = Mapping[bytes, Sequence[bytes]]

_SHARED_HEADERS = (b"authorization", b"x-api-key")
_OWN_HEADER = (b"x-groundwire-key",)
_BEARER = b"bearer "


class ClientKeys:
    """`secret` is what owners are named with, the same in all processes that share a store. `any_owner`: without keys
    of our own a caller is known by the key that it brings for an upstream."""

    def __init__(
        self, keys: Sequence[ClientKey], secret: Callable[[], Awaitable[bytes]], *, any_owner: bool = False
    ) -> None:
        self._keys = [(_digest(key.key.get_secret_value().encode()), key) for key in keys]
        self._names = key_names(keys)
        self._secret = secret
        self._any_owner = any_owner

    @property
    def required(self) -> bool:
        return bool(self._keys)

    async def identify(self, headers: Headers) -> Caller:
        """Who sends these headers. Raises `RequestError` where a key is required and none of ours is there."""
        upstream_key = _authorization(headers)
        passed = _without_scheme(upstream_key.encode("latin-1"))
        if not self._keys:
            owner = await self._owner(passed if self._any_owner else b"")
            return Caller("", owner, admin=True, upstream_key=upstream_key, secrets=_readable(passed))
        own = _OWN_HEADER[0] in headers
        credential = _presented(headers, _OWN_HEADER if own else _SHARED_HEADERS)
        place = self._place(credential)
        if place is None:
            text = "The API key is missing or not valid for this server. Send it as `Authorization: Bearer …`."
            raise refuse(401, text, kind="authentication_error", code="invalid_api_key")
        spent = not own or self._place(passed) is not None
        return Caller(
            self._names[place],
            await self._owner(credential),
            self._keys[place][1].admin,
            None if spent else upstream_key,
            _readable(credential, passed),
        )

    def _place(self, key: bytes) -> int | None:
        """Which of our keys it is. Every one is compared, found or not, so that the time taken tells nothing."""
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known, _ in self._keys]
        return matches.index(True) if any(matches) else None

    async def _owner(self, credential: bytes) -> str:
        if not credential:
            return ""
        return hmac.digest(await self._secret(), credential, "sha256").hex()


def _authorization(headers: Headers) -> str:
    """The header in one spelling, wherever it is looked at."""
    given = headers.get(b"authorization", (b"",))[0]
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


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()

"""What the edge knows of clients of search engines: where their key stands, and which web pages may search through us.
Handed the head of a request, and its body where no header holds a key; hands on headers that hold it, or refuses.

These paths alone are so lenient. Everywhere else a key is a header.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence

import orjson
from starlette.types import Message, Receive, Scope

from providers.deadlines import time_limit

from ..values.errors import refuse
from .bodies import too_late

Headers = Mapping[bytes, Sequence[bytes]]

MOST_UNKNOWN = 64 * 1024  # bytes of a body that are read before anybody knows whose it is
_KEY_IN_BODY = frozenset({"/search", "/extract"})
_KEY_HEADERS = (b"authorization", b"x-api-key", b"x-groundwire-key")
_BASIC = b"basic "
_ASKS_FOR = re.compile(rb"(?:^|&)q(?:=|&|$)")
_FROM_ELSEWHERE = frozenset({b"cross-site", b"same-site"})  # a site has many origins: each port of this machine is one


def searches_by_get(scope: Scope) -> bool:
    """As SearXNG does it: at its own path, and at the root if there is something to search for."""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    return scope["path"] == "/search" or (scope["path"] == "/" and bool(_ASKS_FOR.search(scope["query_string"])))


def known_path(scope: Scope) -> str:
    """Where its dialect and what it needs are looked up: a search at the root is the same as any other."""
    return "/search" if searches_by_get(scope) else str(scope["path"])


def check_page(scope: Scope, headers: Headers, *, listed: bool) -> None:
    """A page may send a GET anywhere without asking, with the password that a browser remembers: but not search. What
    MCP says of origins is the same."""
    if listed or not (searches_by_get(scope) or scope["path"] == "/mcp"):
        return
    sites = {value.strip().lower() for value in headers.get(b"sec-fetch-site", ())}
    if b"origin" in headers or sites & _FROM_ELSEWHERE:
        text = "Web pages may not search here. List the page's origin in `server.cors` if it should."
        raise refuse(403, text, kind="permission_error", code="origin_not_allowed")


def with_password_as_key(scope: Scope, headers: Headers) -> Headers:
    """`http://x:KEY@host`: the only way in which clients of SearXNG can send a key."""
    given = headers.get(b"authorization", ())
    if len(given) != 1 or given[0][: len(_BASIC)].lower() != _BASIC or not searches_by_get(scope):
        return headers
    try:
        password = b64decode(given[0][len(_BASIC) :].strip(), validate=True).partition(b":")[2]
    except (NotBase64, ValueError):
        return headers
    return {**headers, b"authorization": [b"Bearer " + password]}


async def with_key_of_body(
    scope: Scope, headers: Headers, receive: Receive, patience: float
) -> tuple[Headers, Receive]:
    """Older clients of Tavily send `api_key` beside the query. The body comes once more with what is handed on."""
    may_hold_one = scope["method"] == "POST" and scope["path"] in _KEY_IN_BODY
    if not may_hold_one or any(name in headers for name in _KEY_HEADERS):
        return headers, receive
    kept = _Kept(receive)
    async with time_limit(patience, too_late()):
        raw = await kept.read()
    key = _key_in(raw)
    return ({**headers, b"authorization": [b"Bearer " + key]} if key else headers), kept


def _key_in(raw: bytes) -> bytes:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return b""
    key = body.get("api_key") if isinstance(body, dict) else None
    return key.encode("latin-1", "replace") if isinstance(key, str) else b""


class _Kept:
    """A body that was read before its time, for who reads it next."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []

    async def read(self) -> bytes:
        """All of it; nothing, if there is more than anybody unknown may send."""
        parts: list[bytes] = []
        size = 0
        more = True
        while more and size <= MOST_UNKNOWN:
            message = await self._receive()
            self._messages.append(message)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = bool(message.get("more_body"))
        return b"" if more or size > MOST_UNKNOWN else b"".join(parts)

    async def __call__(self) -> Message:
        return self._messages.pop(0) if self._messages else await self._receive()

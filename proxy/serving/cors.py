"""Which web pages may read what we answer: those of the origins in `server.cors`. Handed the headers of a request and
of its answer; hands on the headers that a browser wants to see. Origins that are not listed hear only that others may
hear something else, for the sake of caches in between.

Our keys travel in headers that a page has to set itself, never in cookies, so no answer allows credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

RawHeaders = list[tuple[bytes, bytes]]

ANY = "*"
_EXPOSED = re.compile(
    rb"x-groundwire-.+|(?:x|anthropic)-ratelimit-.+|(?:x-)?request-id|x-should-retry|retry-after(?:-ms)?"
)
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{1,2000}")
_VARY = (b"vary", b"Origin")
_METHODS = b"GET, POST, DELETE"
_MAX_AGE = b"600"  # seconds for which a browser need not ask again


class ListedOrigins:
    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode("ascii") for origin in origins)

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The origin of a request, if it is listed; else nothing."""
        named = [value for name, value in headers if name == b"origin"]
        return named[0] if len(named) == 1 and (self._any or named[0] in self._origins) else b""


def is_preflight(method: str, headers: Mapping[bytes, object]) -> bool:
    return method == "OPTIONS" and b"access-control-request-method" in headers


def preflight(headers: Mapping[bytes, Sequence[bytes]]) -> RawHeaders:
    """What a page of a listed origin may send. Which headers do no harm is for those to say who read them."""
    allowed = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _MAX_AGE)]
    wanted = headers.get(b"access-control-request-headers", [b""])[-1]
    if _HEADER_NAMES.fullmatch(wanted):
        allowed.append((b"access-control-allow-headers", wanted))
    if headers.get(b"access-control-request-private-network") == [b"true"]:
        allowed.append((b"access-control-allow-private-network", b"true"))
    return allowed


def shared_with(origin: bytes, headers: RawHeaders) -> RawHeaders:
    """The headers of an answer, readable for a page of this origin; without one, for nobody."""
    if not origin:
        return [*headers, _VARY]
    exposed = [name for name, _ in headers if _EXPOSED.fullmatch(name)]
    more = [(b"access-control-allow-origin", origin), _VARY]
    if exposed:
        more.append((b"access-control-expose-headers", b", ".join(dict.fromkeys(exposed))))
    return headers + more

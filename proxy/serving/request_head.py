"""The head of a request, read once. On a connection that is kept, most requests have the same, but for a few headers
that belong to one request alone: so what was read of it is kept with the connection, and what the edge has found out
about it too. Handed what the parser found; hands on a scope for each request, or refuses what is no head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote

from starlette.types import Scope

from ..callers.keys import Identity
from ..values.dialect import Dialect
from ..values.errors import refuse
from .heads import FramingHeaders, path_and_query

RawHeaders = Sequence[tuple[bytes, bytes]]

# The headers that are seldom the same in two requests of a client, in the spellings in which they come. One that comes
# in another spelling is read like every other, and makes a head of its own.
OF_ONE_REQUEST: Mapping[bytes, bytes] = {
    spelling: name
    for name in (b"content-length", b"traceparent", b"tracestate")
    for spelling in (name, name.title(), name.capitalize())
}
# Headers that hold a list: repeated, they mean the same as one line with all of them (RFC 9110, 5.3).
_LISTS = frozenset({b"accept", b"accept-language", b"anthropic-beta", b"openai-beta"})
_NAME = "groundwire.head"


class RequestHead:
    """`scope` is what all requests have that are sent with it. `continues`: the client waits for our word before it
    sends a body."""

    __slots__ = ("_scope", "continues", "dialect", "identity", "named", "origin", "readable", "sent_path")

    def __init__(self, scope: Scope, *, continues: bool = False) -> None:
        self._scope = scope
        self.continues = continues
        # As it was sent: decoded, it could hold line breaks, and with them lines of its own in the log.
        self.sent_path: str = scope["raw_path"].decode("latin-1")
        self.named: dict[bytes, list[bytes]] = {}  # the values of each header
        for name, value in scope["headers"]:
            self.named.setdefault(name, []).append(value)
        # The same as text; of a repeated header the last, unless it is a list.
        self.readable = {
            name.decode("latin-1"): (b", ".join(values) if name in _LISTS else values[-1]).decode("latin-1")
            for name, values in self.named.items()
        }
        self.dialect: Dialect | None = None
        self.origin = b""  # of the page that sends it, if that may read the answer
        self.identity: Identity | None = None  # of its caller, once a request with it was let in

    def request(self, own: RawHeaders) -> Scope:
        """The scope of one request that has this head, and these headers of its own."""
        return {**self._scope, "headers": [*own, *self._scope["headers"]], _NAME: self}


def read_head(method: bytes, version: str, target: bytes, sent: RawHeaders, connection: Scope) -> RequestHead:
    """A head that is sound, or `HeadRefused`. `connection` is what the scopes of all its requests have in common."""
    framing, headers = FramingHeaders(), []
    for spelling, value in sent:
        name = spelling.lower()
        if name in FramingHeaders.names:
            framing.take(name, value)
        headers.append((name, value))
    framing.check(method, version)
    raw_path, query = path_and_query(target, framing.host)
    path = raw_path.decode("ascii")
    scope = {
        **connection,
        "http_version": version,
        "method": method.decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
    }
    return RequestHead(scope, continues=framing.continues)


def query_of(scope: Scope) -> dict[str, str]:
    """The parameters of a request's address, decoded; of a repeated one the last."""
    try:
        return dict(parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise refuse(400, "The address of the request has a query that cannot be read.", code="bad_request") from None


def head_of(scope: Scope) -> RequestHead:
    head: RequestHead | None = scope.get(_NAME)
    return RequestHead(scope) if head is None else head

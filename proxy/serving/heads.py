"""What a request's head may be, and what is said to one that is none. Pure: handed names, values and targets as the
parser found them; raises `HeadRefused` with the failure that the client is told before the connection is closed.

The parser itself refuses what is malformed (two lengths, a length beside chunks, folded lines, line ends that are not
CRLF, blanks before a colon, control characters). What it lets pass and two servers could still read differently is
refused here.
"""

from __future__ import annotations

import re

from ..values.errors import busy, failure
from ..values.events import Failed

MOST_HEADERS = 100
MOST_AHEAD = 16  # requests on one connection that may wait behind the one that is being answered
MOST_SMALL_CHUNKS = 10_000  # of one body, if they are smaller than this on average: each costs as much as a large one
SMALL_CHUNK = 16
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
# A name or an address, with a port or without. RFC 3986 would let a name hold more, such as commas; nobody's does.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{0,5})?")


class HeadRefused(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error["message"])
        self.failed = failed


def malformed(message: str = "This is not a valid HTTP request.") -> Failed:
    return failure(400, message, code="bad_request")


def head_too_large(limit: int) -> Failed:
    return failure(431, f"The request's head is larger than {limit} bytes.", code="head_too_large")


def target_too_long(limit: int) -> Failed:
    return failure(414, f"The address of the request is longer than {limit} bytes.", code="uri_too_long")


def framing_too_large(limit: int) -> Failed:
    text = f"Between two bytes of a chunked body, or behind it, there may be {limit} bytes at most."
    return failure(431, text, code="head_too_large")


def too_many_headers() -> HeadRefused:
    text = f"The request has more than {MOST_HEADERS} headers."
    return HeadRefused(failure(431, text, code="too_many_headers"))


def chunks_too_small() -> HeadRefused:
    return HeadRefused(malformed("The body comes in too many chunks for its size."))


def too_slow() -> Failed:
    return failure(408, "The request's head did not arrive in time.", code="request_timeout")


def too_many_connections() -> Failed:
    return busy(503, "Too many connections are open: try again in a moment.", code="overloaded", wait=1.0)


def no_place() -> HeadRefused:
    return HeadRefused(too_many_connections())


def too_far_ahead() -> HeadRefused:
    return HeadRefused(malformed("Too many requests were sent on one connection before their answers."))


class FramingHeaders:
    """The headers of one request that decide where it goes and where it ends, but for the length: that is the parser's
    affair."""

    __slots__ = ("chunked", "continues", "host")

    names = frozenset({b"host", b"transfer-encoding", b"expect"})

    def __init__(self) -> None:
        self.host = b""
        self.chunked = False
        self.continues = False  # the client waits for our word before it sends the body

    def take(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._take_host(value)
        elif name == b"expect":
            self.continues = value.lower() == b"100-continue"
        elif self.chunked or value.strip().lower() != b"chunked":
            raise HeadRefused(malformed("The only Transfer-Encoding that is understood here is `chunked`, once."))
        else:
            self.chunked = True

    def _take_host(self, value: bytes) -> None:
        if self.host:
            raise _bad_host("Send exactly one Host header.")
        self.host = value.strip()
        if not _HOST.fullmatch(self.host):
            raise _bad_host("The Host header must be a name or an address, with a port or without.")

    def check(self, method: bytes, version: str) -> None:
        """All headers are here."""
        if version not in ("1.1", "1.0"):
            raise HeadRefused(malformed("Only HTTP/1.1 and HTTP/1.0 are spoken here."))
        if method not in METHODS:
            raise HeadRefused(malformed("There is no such method here."))
        if not self.host:
            raise _bad_host("Send exactly one Host header.")
        if self.chunked and version == "1.0":
            raise HeadRefused(malformed("HTTP/1.0 knows no chunked bodies."))


def path_and_query(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """What a request line asks for. A whole address must name the same host as the header does."""
    if target[:1] != b"/" and target != b"*":
        target = _path_of(target, host)
    if b"#" in target:
        raise HeadRefused(malformed("The address in the request line ends at its `#`."))
    path, _, query = target.partition(b"?")
    return path, query


def _path_of(address: bytes, host: bytes) -> bytes:
    scheme, _, rest = address.lower().partition(b"://")
    if scheme not in (b"http", b"https") or re.split(b"[/?#]", rest, maxsplit=1)[0] != host.lower():
        raise HeadRefused(malformed("The address in the request line is not of the host in the header."))
    path = address[len(scheme) + 3 + len(host) :]
    return path if path[:1] == b"/" else b"/" + path


def _bad_host(message: str) -> HeadRefused:
    return HeadRefused(failure(400, message, code="bad_host"))

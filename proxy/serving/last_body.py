"""The last body on a connection: what follows a head that wants to upgrade, which the parser takes for the end of HTTP.
Handed that head's headers and whom to tell; hands on a parser that reads the body and nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import httptools


def last_body_parser(
    headers: Iterable[tuple[bytes, bytes]],
    on_chunk_header: Callable[[], None],
    on_body: Callable[[bytes], None],
    on_end: Callable[[], None],
) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(_LastBody(on_chunk_header, on_body, on_end))
    parser.feed_data(_least_head(headers))
    return parser


def _least_head(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The least of a head that has the same body as the sound one with these headers."""
    named = dict(headers)
    chunked = b"transfer-encoding" in named
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: " + named.get(b"content-length", b"0")
    return b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n"


class _LastBody:
    """What such a parser calls."""

    def __init__(
        self, on_chunk_header: Callable[[], None], on_body: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.on_chunk_header = on_chunk_header
        self._on_body = on_body
        self._on_end = on_end
        self._over = False

    def on_body(self, body: bytes) -> None:
        if not self._over:
            self._on_body(body)

    def on_message_complete(self) -> None:
        if not self._over:
            self._over = True
            self._on_end()

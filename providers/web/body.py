"""A body as it comes from the wire, inflated piece by piece: never more than `limit` bytes, neither on the wire nor
decoded. Pages and the answers of services are read through here; a library would inflate whatever comes.
"""

from __future__ import annotations

import zlib

ACCEPTED = "identity, gzip"  # what may be asked for: the encodings that can be read here


class BadBody(Exception):
    """The body cannot be read. The message goes on after who sent it: `the page …`."""


class BoundedBody:
    """`over`: it is larger than it may be. `ended`: nothing that may still come belongs to it."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._inflate = zlib.decompressobj(wbits=31) if encoding and _is_packed(encoding) else None
        self._limit = limit
        self._wire = 0
        self._data = bytearray()
        self.over = False
        self.ended = False

    def feed(self, chunk: bytes) -> None:
        self._wire += len(chunk)
        if not self.ended and not self.over:
            self._data += chunk if self._inflate is None else self._inflated(self._inflate, chunk)
        self.over = self._wire > self._limit or len(self._data) > self._limit

    def flush(self) -> tuple[bytes, bool]:
        """What fits of the body, and whether that is not all of it."""
        unfinished = self._inflate is not None and self._wire > 0 and not self.ended
        return bytes(self._data[: self._limit] if self.over else self._data), self.over or unfinished

    def _inflated(self, inflate: zlib._Decompress, chunk: bytes) -> bytes:
        # One byte beyond the limit tells a body that was cut from one that just fits.
        room = self._limit + 1 - len(self._data)
        try:
            data = inflate.decompress(chunk, room)
        except zlib.error as error:
            raise BadBody("is not the gzip it claims to be") from error
        self.ended = inflate.eof
        return data


def _is_packed(encoding: str) -> bool:
    encodings = [name for part in encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if encodings not in ([], ["gzip"], ["x-gzip"]):
        raise BadBody("came in an encoding that was not asked for")
    return bool(encodings)

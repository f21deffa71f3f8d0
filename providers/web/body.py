"""A body as it comes from the wire, inflated piece by piece: never more than `limit` bytes, neither on the wire nor
decoded. Pages and the answers of services are read through here; a library would inflate whatever comes.
"""

from __future__ import annotations

import zlib

ACCEPTED = "identity, gzip"  # what may be asked for: the encodings that can be read here


class BadBody(Exception):
    """The body cannot be read. The message goes on after who sent it: `the page …`."""


class BoundedBody:
    def __init__(self, encoding: str, limit: int) -> None:
        encodings = [name for part in encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
        if encodings not in ([], ["gzip"], ["x-gzip"]):
            raise BadBody("came in an encoding that was not asked for")
        self._inflate = zlib.decompressobj(wbits=31) if encodings else None
        self._limit = limit
        self._wire = 0
        self._data = bytearray()

    @property
    def over(self) -> bool:
        """Whether it is larger than it may be."""
        return max(self._wire, len(self._data)) > self._limit

    @property
    def ended(self) -> bool:
        """Whether nothing that may still come belongs to it."""
        return self._inflate is not None and self._inflate.eof

    def feed(self, chunk: bytes) -> None:
        done = self.ended or self.over
        self._wire += len(chunk)
        if done:
            return
        if self._inflate is not None:
            # One byte beyond the limit tells a body that was cut from one that just fits.
            room = self._limit + 1 - len(self._data)
            try:
                chunk = self._inflate.decompress(chunk, room)
            except zlib.error as error:
                raise BadBody("is not the gzip it claims to be") from error
        self._data += chunk

    def flush(self) -> tuple[bytes, bool]:
        """What fits of the body, and whether that is not all of it."""
        unfinished = self._inflate is not None and self._wire > 0 and not self._inflate.eof
        return bytes(self._data[: self._limit]), self.over or unfinished

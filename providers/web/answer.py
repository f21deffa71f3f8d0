"""An answer of a server whose head is here, and what can go wrong on its way. Handed the wire that it comes over; hands
on the body as it comes, whole pieces of it or those that were packed in it, and the connection when all of it has come.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .wire import Wire

_MOST_INFLATED = 1 << 20  # bytes at once of a body that was compressed
_PACKED = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}  # as zlib knows them

Take = Callable[[bytes], bool]  # takes a piece of a body; whether it can take the next one at once


class WireError(Exception):
    """Something broke that is neither a timeout nor the system's own error."""


class NotHTTP(WireError):
    """What came is no answer in HTTP/1.1, or not one that we can read."""


class ReadTimeout(TimeoutError):
    """Nothing came for as long as the server may be silent."""


class HungUp(WireError):
    """The connection ended before there was an answer."""


class BrokenOff(WireError):
    """The connection ended before the answer did."""


class Answer:
    """An answer whose head is here. `with` leaves the connection to the next question, or closes it where the body was
    not read to its end. Names of headers are in lower case."""

    __slots__ = ("_inflating", "_rest", "_wire", "headers", "status")

    def __init__(self, wire: Wire, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._wire: Wire | None = wire  # None: all of the body has come
        self._rest = b""
        self.status = status
        self.headers = headers
        self._inflating: _Inflating | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.abort()
            self._wire = None

    @property
    def is_whole(self) -> bool:
        """Has all of its body come?"""
        return self._wire is None

    @property
    def is_read(self) -> bool:
        """Has all of its body been handed on?"""
        return self._wire is None and not self._rest and self._inflating is None

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("utf-8", "surrogateescape")

    @property
    def has_length(self) -> bool:
        """Does its head say where the body ends? If not, it ends with the connection."""
        chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        return chunked or b"content-length" in self.headers

    @property
    def media_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def unpack(self) -> None:
        """From here on `read` hands on what was packed in the body. Before this it hands on the body as it came."""
        encoding = self.headers.get(b"content-encoding")
        if not encoding or encoding == b"identity":
            return
        bits = _PACKED.get(encoding.strip().lower())
        if bits is None:
            self.close()
            raise NotHTTP("its body has an encoding that was not asked for")
        self._inflating = _Inflating(bits)

    async def read(self, patience: float | None) -> bytes:
        """What has come by now; nothing at the end. `ReadTimeout` where nothing comes for `patience` seconds."""
        if self._inflating is not None:
            return await self._read_inflated(self._inflating, patience)
        while self._wire is not None:
            if data := self._wire.taken():
                return data
            await self._wire.more(patience)
        return self.at_hand()

    def at_hand(self) -> bytes:
        """All of the body that is left, where all of it has come: nothing is to be awaited for that."""
        if self._wire is not None or self._inflating is not None:
            return b""
        data, self._rest = self._rest, b""
        return data

    async def feed(self, take: Take, patience: float | None) -> bool:
        """Hands each piece to `take` in the very moment in which it comes: a task that waits for it would cost a round
        of the event loop and as much time again. True when `take` wants no more for now, False at the end."""
        while self._wire is not None and self._inflating is None:
            data = self._wire.taken()
            if not (take(data) if data else await self._wire.fed(take, patience)):
                return True
        while data := await self.read(patience):
            if not take(data):
                return True
        return False

    async def _read_inflated(self, inflating: _Inflating, patience: float | None) -> bytes:
        self._inflating = None  # read as it comes
        try:
            while not (data := inflating.take()):
                if not (packed := await self.read(patience)):
                    return inflating.end()
                inflating.feed(packed)
        finally:
            self._inflating = inflating
        return data

    def complete(self, rest: bytes) -> None:
        """All of it has come, and this was not read yet: the connection may serve somebody else."""
        self._wire, self._rest = None, rest


class _Inflating:
    """A body that was compressed although we asked for none that is. A little of it may hold very much, so no more is
    unpacked at once than a reader takes."""

    def __init__(self, bits: int) -> None:
        self._inflate = zlib.decompressobj(bits)
        self._packed = b""

    def feed(self, packed: bytes) -> None:
        self._packed += packed

    def take(self) -> bytes:
        if not self._packed:
            return b""
        try:
            data = self._inflate.decompress(self._packed, _MOST_INFLATED)
        except zlib.error as error:
            raise BrokenOff(f"its body cannot be unpacked: {error}") from None
        self._packed = self._inflate.unconsumed_tail
        return data

    def end(self) -> bytes:
        if not self._inflate.eof:
            raise BrokenOff("its body ended before what was packed in it")
        return b""

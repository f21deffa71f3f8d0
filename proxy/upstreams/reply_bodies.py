"""The two kinds of bodies that a reply may have: one that comes from a server, and one that is here. Handed an `Answer`
or bytes; hands on what a reply is read by (`transport.Body`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from providers.web.answer import Answer, Take

from ..values.events import Failed
from .answer_body import HTTP_ERRORS, read_to_the_end
from .transport import Broken


class FailureOf(Protocol):
    def __call__(self, error: Exception, *, begun: bool) -> Failed: ...


class BodyThatComes:
    """It may be silent for `idle` seconds. `failure` says in our words how it broke off."""

    __slots__ = ("_answer", "_failure", "_idle", "close")

    def __init__(self, answer: Answer, idle: float, failure: FailureOf) -> None:
        self._answer = answer
        self._idle = idle
        self._failure = failure
        self.close = answer.close

    async def read(self) -> bytes:
        try:
            return await self._answer.read(self._idle)
        except HTTP_ERRORS as error:
            raise Broken(self._failure(error, begun=True)) from error

    async def feed(self, take: Take) -> bool:
        try:
            return await self._answer.feed(take, self._idle)
        except HTTP_ERRORS as error:
            raise Broken(self._failure(error, begun=True)) from error

    def finish(self) -> Awaitable[None]:
        return read_to_the_end(self._answer)


class BodyInHand:
    __slots__ = ("_rest",)

    def __init__(self, data: bytes) -> None:
        self._rest = data

    async def read(self) -> bytes:
        data, self._rest = self._rest, b""
        return data

    async def feed(self, take: Take) -> bool:
        data = await self.read()
        return bool(data) and not take(data)

    async def finish(self) -> None: ...

    def close(self) -> None: ...

"""Responses that are made in the background. Their writer lets everybody find them before the first word, and their end
before anybody hears of it; `BackgroundResponses` follows and cancels them, wherever they are worked on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import orjson

from providers.deadlines import time_limit

from ...store.journal import Journal
from ...store.journals import JournalGone, JournalsAway, JournalsFull, NobodyWorks
from ...values.errors import overloaded, refuse
from ...values.events import Event, Failed
from .exchange import Exchange
from .foreign_end import cancelled, last_frames
from .state import RUNNING, ResponseState
from .writer import ResponseWriter

CANCELLING = 3.0  # seconds before a response is cancelled over the head of whoever works on it
_UNTIL_SOME_END = 5.0  # seconds after which work may have ended, and left its room
_MOST_LOOKS = 3  # at a journal that has no end, though its response has
_PAST_ALL = 1 << 62  # a number that no event has


class BackgroundWriter(ResponseWriter):
    _noted = ""  # the status that is stored

    @property
    def response(self) -> dict[str, Any]:
        return self._encoder.response

    @property
    def over(self) -> bool:
        return self._encoder.status not in RUNNING

    @property
    def streamed(self) -> bool:
        """Does the client want to hear it at once?"""
        return self._asked.stream

    async def begin(self) -> Journal:
        """From now on everybody can find it. Raises `RequestError` where that cannot be."""
        frames = self._encoder.queue()
        response = self.response
        await self._state.begin(self._owner, response, self._ancestors, Exchange(self._items, self._own))
        self._noted = "queued"
        try:
            return await self._state.journals.open(self._owner, response["id"], frames)
        except JournalsAway:
            raise self._state.away() from None
        except JournalsFull:
            await self._state.delete(self._owner, response["id"])
            raise overloaded(_UNTIL_SOME_END) from None

    def write(self, journal: Journal, frames: bytes) -> None:
        self._state.journals.write(journal, frames, last=self.over)

    async def close(self, journal: Journal) -> None:
        await self._state.journals.close(journal)

    def follow(self) -> AsyncGenerator[bytes, None]:
        """All its events, from the first one on."""
        return self._state.journals.follow(self._owner, self.response["id"], -1)

    async def note(self) -> None:
        """What is stored says how far it is, before anybody hears of it. Most of the end of an answer that finished is
        kept with all else of it."""
        status = self._encoder.status
        if status == self._noted:
            return
        if status == "cancelled":  # by somebody who may have deleted it since
            await self._state.replace_response(self._owner, self.response)
        else:
            await self._state.put_response(self._owner, self.response, self._ancestors)
        self._noted = status

    async def end(self, events: Sequence[Event]) -> bytes:
        frames = await super().end(events)
        if self._encoder.response["store"]:
            self._noted = self._encoder.status
        await self.note()
        return frames

    def fail(self, failed: Failed) -> bytes:
        return self._encoder.feed([failed])

    def cancel(self) -> bytes:
        return self._encoder.cancel()

    @property
    def settled(self) -> bool:
        """False: a shared store may not know the end."""
        return self._state.sure

    async def settle(self) -> bool:
        """Tells a shared store the end that was away when it came; whether it knows it now. If somebody took the work
        for dead meanwhile, that stays."""
        status = self._encoder.status
        known = await self._state.status(self._owner, self._encoder.response["id"])
        if self._state.sure and (known in RUNNING or known == status):
            finished = status in ("completed", "incomplete")
            if not finished or not await self._keep():
                await self._state.put_response(self._owner, self.response, self._ancestors)
        return self._state.sure


class _StillWorking(Exception):
    """What was to stop has not."""


class BackgroundResponses:
    """Those of one store, seen from outside. `patience` is how long whoever works on one may take to stop."""

    def __init__(self, state: ResponseState, patience: float = CANCELLING) -> None:
        self._state = state
        self._patience = patience

    async def cancel(self, owner: str, response_id: str) -> dict[str, Any]:
        """The response as it is then: one that has ended stays as it was."""
        stored = await self._state.find(owner, response_id)
        if not stored.in_background:
            raise refuse(400, "Cannot cancel a synchronous response.", code="invalid_value")
        if stored.running:
            with suppress(_StillWorking, JournalGone, NobodyWorks):
                await self._stop(owner, response_id)
            stored = await self._state.find(owner, response_id)
        return await self._give_up(owner, stored.response) if stored.running else stored.response

    async def _give_up(self, owner: str, response: dict[str, Any]) -> dict[str, Any]:
        """Whoever works on it does not answer. If it ever looks, it hears that it was cancelled."""
        response = cancelled(response)
        await self._state.replace_response(owner, response)
        with suppress(JournalsAway):
            await self._state.journals.write_end(owner, response["id"], lambda number: last_frames(response, number))
        return response

    async def _stop(self, owner: str, response_id: str) -> None:
        """Waits until it has stopped."""
        journals = self._state.journals
        try:
            await journals.cancel(owner, response_id)
            async with (
                time_limit(self._patience, _StillWorking()),
                aclosing(journals.follow(owner, response_id, _PAST_ALL)) as frames,
            ):
                async for _ in frames:
                    pass
        except JournalsAway:
            raise self._state.away() from None

    async def events(self, owner: str, response_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """Its events with a greater number, as frames, until it ends. Raises `RequestError`."""
        if not (await self._state.find(owner, response_id)).in_background:
            text = "Only a response that was made with `background: true` can be streamed again."
            raise refuse(400, text, param="stream", code="invalid_value")
        journals = self._state.journals
        for _ in range(_MOST_LOOKS):
            try:
                async with aclosing(journals.follow(owner, response_id, after)) as pieces:
                    async for frames in pieces:
                        after = last_number(frames) if frames else after
                        yield frames
                return
            except NobodyWorks:
                await self._state.find(owner, response_id)  # which writes its end
            except JournalsAway:
                raise self._state.away() from None
            except JournalGone:
                break
        text = f"The events of response '{response_id}' are not kept any more: ask for it without `stream`."
        raise refuse(400, text, param="stream", code="events_not_kept")


def last_number(frames: bytes) -> int:
    """The number of the last frame of them."""
    payload = frames.rstrip(b"\n").rpartition(b"\ndata: ")[2]
    return int(orjson.loads(payload)["sequence_number"])

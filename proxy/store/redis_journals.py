"""The journals that many processes share. Whoever works writes into its own memory; from there an upload brings the
pieces to a list in Redis, renews the lease that says that somebody is at work, and hears whether the work was
cancelled. Others read the list, and hear over `RedisNews` when there is more. While Redis is away the work goes on,
and what was written meanwhile is brought when it is back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from .journal import Journal, Piece, frames_after
from .journals import EVENTS_KEPT, JournalGone, JournalsAway, MemoryJournals, NobodyWorks
from .redis_client import PAUSE, Away, RedisClient
from .redis_news import RedisNews
from .store import name_of

LEASE = 30.0  # seconds after its last sign of life in which a worker counts as alive
LOOK_EVERY = 5.0  # for who follows, where no news come
GATHERED = 0.05  # seconds in which pieces gather before they are brought together
CLOSING = 2.0  # how long the end of a journal may take to be brought before others go on without
_AT_ONCE = 512 << 10  # bytes
_ABANDONED = "abandoned"

# Keys: the list, the lease, the wish to cancel. Behind the worker's token, two lifetimes and whether the work is over:
# the pieces. A worker that was taken for dead hears so. Nothing of it is kept behind an end that somebody wrote over
# its head. Where nobody may publish, others look by themselves.
_SEND = """
local holder = redis.call('get', KEYS[2])
if holder and holder ~= ARGV[1] then return -1 end
if redis.call('lindex', KEYS[1], -1) ~= '' then
    for i = 5, #ARGV do redis.call('rpush', KEYS[1], ARGV[i]) end
end
redis.call('pexpire', KEYS[1], ARGV[3])
if ARGV[4] == '1' then redis.call('del', KEYS[2]) else redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2]) end
if #ARGV > 4 then redis.pcall('publish', KEYS[1], '') end
return redis.call('exists', KEYS[3])
"""
# As many pieces as are light together, or the size of the next one where that alone is not: then who asks knows how
# long it may take to carry it.
_READ = """
local at, room, found = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
local length, worked_on = redis.pcall('llen', KEYS[1]), redis.call('exists', KEYS[2])
if type(length) ~= 'number' then return {0, worked_on, found, 0} end
while at < length do
    for _, piece in ipairs(redis.call('lrange', KEYS[1], at, at + 63)) do
        room = room - #piece
        if room < 0 then return {length, worked_on, found, #found == 0 and #piece or 0} end
        found[#found + 1] = piece
        at = at + 1
    end
end
return {length, worked_on, found, 0}
"""
_CANCEL = "redis.call('set', KEYS[1], '1', 'px', ARGV[1]) redis.pcall('publish', KEYS[1], '')"
# Behind so many pieces; not if there are more by now, as its numbers go on from the last of them.
_WRITE_END = """
if redis.call('llen', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end
redis.call('rpush', KEYS[1], ARGV[2], '')
redis.call('pexpire', KEYS[1], ARGV[3])
redis.pcall('publish', KEYS[1], '')
return 1
"""


class _Names:
    def __init__(self, owner: str, key: str) -> None:
        self.pieces = name_of("journal", owner, key)
        self.lease = name_of("lease", owner, key)
        self.cancel = name_of("cancel", owner, key)


class RedisJournals:
    def __init__(
        self,
        redis: RedisClient,
        *,
        pause: float = PAUSE,
        lease: float = LEASE,
        look_every: float = LOOK_EVERY,
        news: RedisNews | None = None,
    ) -> None:
        """`news` that others listen to too are closed here."""
        self._redis = redis
        self._news = news or RedisNews(redis, pause)
        self._pause = pause
        self._lease = lease
        self._look_every = look_every
        self._own = MemoryJournals()
        self._uploads: dict[Journal, _Upload] = {}

    async def open(self, owner: str, key: str, frames: bytes) -> Journal:
        journal = await self._own.open(owner, key, frames)
        upload = _Upload(self._redis, self._news, _Names(owner, key), journal, self._lease, self._pause)
        try:
            await upload.send()
        except Away:
            await self._own.drop(owner, key)
            raise JournalsAway from None
        self._uploads[journal] = upload
        upload.start(lambda: self._arrived(owner, key, journal))
        return journal

    async def _arrived(self, owner: str, key: str, journal: Journal) -> None:
        """From now on Redis has it for everybody, and this process need not."""
        self._uploads.pop(journal, None)
        if self._own.find(owner, key) is journal:
            await self._own.drop(owner, key)

    def write(self, journal: Journal, frames: bytes, *, last: bool = False) -> None:
        self._own.write(journal, frames, last=last)

    async def close(self, journal: Journal) -> None:
        await self._own.close(journal)
        if journal.settled and (upload := self._uploads.get(journal)):
            await upload.arrival(CLOSING)

    async def follow(self, owner: str, key: str, after: int) -> AsyncGenerator[bytes, None]:
        source = self._own.follow if self._own.find(owner, key) else self._follow_other
        frames = source(owner, key, after)
        try:
            async for some in frames:
                yield some
        finally:
            await frames.aclose()

    async def _follow_other(self, owner: str, key: str, after: int) -> AsyncGenerator[bytes, None]:
        names, more = _Names(owner, key), asyncio.Event()
        await self._news.listen(names.pieces, more.set)
        try:
            at, over = 0, False
            while not over:
                more.clear()
                worked_on, pieces, over = await self._read(names, at)
                first, at = at == 0, at + len(pieces)
                frames = frames_after(pieces, after)
                if frames or (first and pieces):
                    after = max(after, pieces[-1].next - 1)
                    yield frames
                elif not pieces and not over:
                    if not worked_on:
                        raise NobodyWorks
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._look_every):
                            await more.wait()
        finally:
            await self._news.leave(names.pieces, more.set)

    async def _read(self, names: _Names, at: int) -> tuple[bool, list[Piece], bool]:
        try:
            answer = await self._redis.ask("EVAL", _READ, 2, names.pieces, names.lease, at, _AT_ONCE)
            length, worked_on, found, large = answer
            if large:
                found = [await self._redis.ask("LINDEX", names.pieces, at, size=large)]
        except Away:
            raise JournalsAway from None
        if length < max(at, 1) or None in found:
            raise JournalGone
        over = bool(found) and found[-1] == b""
        try:
            return bool(worked_on), [Piece.read(piece) for piece in found if piece], over
        except ValueError:  # somebody else has written there
            raise JournalGone from None

    async def cancel(self, owner: str, key: str) -> None:
        if await self._own.is_worked_on(owner, key):
            await self._own.cancel(owner, key)
            return
        await self._ask("EVAL", _CANCEL, 1, _Names(owner, key).cancel, _milliseconds(2 * self._lease))

    async def is_worked_on(self, owner: str, key: str) -> bool:
        if await self._own.is_worked_on(owner, key):
            return True
        return bool(await self._ask("EXISTS", _Names(owner, key).lease))

    async def claim_abandoned(self, owner: str, key: str) -> bool:
        if await self._own.is_worked_on(owner, key):
            return False
        life = _milliseconds(2 * self._lease)
        return bool(await self._ask("SET", _Names(owner, key).lease, _ABANDONED, "NX", "PX", life))

    async def write_end(self, owner: str, key: str, last_frames: Callable[[int], bytes]) -> None:
        name, life = _Names(owner, key).pieces, _milliseconds(EVENTS_KEPT)
        written = False
        while not written:
            length = int(await self._ask("LLEN", name) or 0)
            last = await self._ask("LINDEX", name, length - 1)
            try:
                number = Piece.read(last if isinstance(last, bytes) else b"").next
            except ValueError:  # there is none, or it has its end
                return
            end = Piece(number, last_frames(number))
            written = bool(await self._ask("EVAL", _WRITE_END, 1, name, length, end.written(), life))

    async def drop(self, owner: str, key: str) -> None:
        await self._own.drop(owner, key)
        with suppress(JournalsAway):
            await self._ask("DEL", _Names(owner, key).pieces)

    async def aclose(self) -> None:
        for upload in list(self._uploads.values()):
            await upload.stop()
        await self._news.aclose()

    async def _ask(self, *command: str | int | bytes) -> bytes | int | None:
        try:
            answer: bytes | int | None = await self._redis.ask(*command)
        except Away:
            raise JournalsAway from None
        return answer


class _Upload:
    """One journal on its way to Redis, from the first piece until its end has arrived."""

    def __init__(
        self, redis: RedisClient, news: RedisNews, names: _Names, journal: Journal, lease: float, pause: float
    ) -> None:
        self._redis = redis
        self._news = news
        self._names = names
        self._journal = journal
        self._lease = lease
        self._pause = pause
        self._token = secrets.token_hex(12)
        self._sent = 0  # pieces
        self._under_way: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[], Awaitable[None]]) -> None:
        self._under_way = asyncio.create_task(self._run(ended))

    async def arrival(self, patience: float) -> None:
        """Waits until all of it is there, but not for long: Redis may be away."""
        if self._under_way:
            await asyncio.wait({self._under_way}, timeout=patience)

    async def stop(self) -> None:
        if self._under_way:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def send(self) -> bool:
        """Takes what is there to Redis, with a sign of life; whether nothing is left to do. Raises `Away`."""
        journal = self._journal
        pieces, size = self._next_pieces()
        over = self._may_end and self._sent + len(pieces) == len(journal.pieces)
        carried = [piece.written() for piece in pieces] + ([b""] if over else [])
        names = self._names
        lives = _milliseconds(self._lease), _milliseconds(EVENTS_KEPT), int(over)
        keys = (names.pieces, names.lease, names.cancel)
        answer = await self._redis.ask("EVAL", _SEND, 3, *keys, self._token, *lives, *carried, size=size)
        self._sent += len(pieces)
        if answer:
            journal.halt("lost" if answer < 0 else "cancelled")
        return over or answer < 0

    @property
    def _may_end(self) -> bool:
        return self._journal.over and self._journal.settled

    def _next_pieces(self) -> tuple[list[Piece], int]:
        pieces, size = [], 0
        for piece in self._journal.pieces[self._sent :]:
            pieces.append(piece)
            size += len(piece.frames)
            if size > _AT_ONCE:
                break
        return pieces, size

    async def _run(self, ended: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._send_all()
        finally:
            await ended()

    async def _send_all(self) -> None:
        journal = self._journal
        await self._news.listen(self._names.cancel, journal.notify)
        try:
            given_up = asyncio.get_running_loop().time() + EVENTS_KEPT
            while True:
                news = journal.news
                try:
                    if await self.send():
                        return
                except Away:
                    if journal.over and (not journal.held or asyncio.get_running_loop().time() > given_up):
                        return
                    await asyncio.sleep(min(self._pause, self._lease / 6))
                    continue
                given_up = asyncio.get_running_loop().time() + EVENTS_KEPT
                if self._sent == len(journal.pieces) and not self._may_end:
                    await self._wait(news)
        finally:
            await self._news.leave(self._names.cancel, journal.notify)

    async def _wait(self, news: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease / 6):
                await news.wait()
                if not self._may_end:
                    await asyncio.sleep(GATHERED)


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))

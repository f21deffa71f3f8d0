"""The journal of an answer in the background: frames after every number, whole and in pieces cut at every place; what
is kept when it is full; and journals of one process, bounded in all.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from proxy.store.journal import AT_ONCE, PIECE_OVERHEAD, Journal, Piece, frames_after
from proxy.store.journals import JOURNAL_OVERHEAD, JournalGone, JournalsFull, MemoryJournals

FRAMES = [b'event: x\ndata: {"n":%d,"t":"%s"}\n\n' % (n, b"\\n\\n" * n) for n in range(6)]
WHOLE = b"".join(FRAMES)


def rest(number: int) -> bytes:
    return b"".join(FRAMES[number + 1 :])


# Pieces


@pytest.mark.parametrize("first_cut", range(len(FRAMES) + 1))
@pytest.mark.parametrize("second_cut", range(len(FRAMES) + 1))
def test_frames_after_every_number_however_they_were_cut(first_cut: int, second_cut: int) -> None:
    cuts = sorted({0, first_cut, second_cut, len(FRAMES)})
    pieces = [Piece(a, b"".join(FRAMES[a:b])) for a, b in pairwise(cuts)]
    for number in range(-1, len(FRAMES) + 2):
        assert frames_after(pieces, number) == rest(number)
        assert frames_after([Piece.read(piece.written()) for piece in pieces], number) == rest(number)


def test_a_piece_that_was_brought_twice_is_told_once() -> None:
    one, two = Piece(0, b"".join(FRAMES[:2])), Piece(2, b"".join(FRAMES[2:]))
    assert frames_after([one, one, two, one, two], -1) == WHOLE
    assert frames_after([one, two, two], 3) == rest(3)


# One journal


def test_a_full_journal_takes_its_end_and_the_numbers_go_on() -> None:
    journal = Journal(most=2 * (len(FRAMES[0]) + PIECE_OVERHEAD))
    for frame in FRAMES[:5]:
        journal.write(frame)
    journal.write(FRAMES[5], last=True)
    assert [piece.first for piece in journal.pieces] == [0, 5]
    assert journal.next == 6
    assert frames_after(journal.pieces, 0) == FRAMES[5]


def test_who_asked_for_a_halt_first_counts() -> None:
    journal = Journal()
    journal.halt("cancelled")
    journal.halt("lost")
    assert journal.halted == "cancelled"
    assert journal.halt_asked.is_set()


# Those of one process


async def all_of(journals: MemoryJournals, after: int = -1, owner: str = "o", key: str = "k") -> bytes:
    async with aclosing(journals.follow(owner, key, after)) as frames:
        return b"".join([some async for some in frames])


@pytest.mark.parametrize("after", range(-1, len(FRAMES)))
@pytest.mark.parametrize("before", range(1, len(FRAMES) + 1))
async def test_it_is_followed_while_it_is_written(before: int, after: int) -> None:
    """`before`: how much was there when somebody came."""
    journals = MemoryJournals()
    journal = await journals.open("o", "k", FRAMES[0])
    for frame in FRAMES[1:before]:
        journals.write(journal, frame)
    following = asyncio.create_task(all_of(journals, after))
    await asyncio.sleep(0)
    for frame in FRAMES[before:]:
        journals.write(journal, frame)
        await asyncio.sleep(0)
    await journals.close(journal)
    assert await following == await all_of(journals, after) == rest(after)


@pytest.mark.parametrize("after", [-1, 0, 999, 1998, 1999, 5000])
@pytest.mark.parametrize("over", [True, False])
async def test_who_follows_is_handed_little_at_once(after: int, over: bool) -> None:
    """What it has not taken yet is held for it alone, so that is bounded however much is there."""
    frames = [b"event: x\ndata: %d %b\n\n" % (n, b"y" * 1000) for n in range(2000)]
    journals = MemoryJournals()
    journal = await journals.open("o", "k", frames[0])
    for frame in frames[1:]:
        journals.write(journal, frame)
    if over:
        await journals.close(journal)
    else:
        asyncio.get_running_loop().call_soon(journal.close)
    async with aclosing(journals.follow("o", "k", after)) as pieces:
        found = [some async for some in pieces]
    assert b"".join(found) == b"".join(frames[after + 1 :])
    assert max(map(len, found)) <= AT_ONCE


async def test_a_heavy_piece_is_handed_on_as_it_is() -> None:
    journals = MemoryJournals()
    heavy = b"event: x\ndata: %b\n\n" % (b"y" * AT_ONCE)
    journal = await journals.open("o", "k", FRAMES[0])
    journals.write(journal, heavy)
    journals.write(journal, FRAMES[1])
    await journals.close(journal)
    async with aclosing(journals.follow("o", "k", -1)) as pieces:
        first, second, third = [some async for some in pieces]
    assert (first, third) == (FRAMES[0], FRAMES[1])
    assert second is heavy, "nobody has a copy of it"


async def test_another_owner_finds_nothing() -> None:
    journals = MemoryJournals()
    await journals.open("o", "k", FRAMES[0])
    with pytest.raises(JournalGone):
        await all_of(journals, owner="other")
    await journals.cancel("other", "k")
    assert await journals.is_worked_on("o", "k")
    assert not await journals.is_worked_on("other", "k")


async def test_one_that_is_worked_on_cannot_be_claimed() -> None:
    journals = MemoryJournals()
    journal = await journals.open("o", "k", FRAMES[0])
    assert not await journals.claim_abandoned("o", "k")
    await journals.close(journal)
    assert await journals.claim_abandoned("o", "k")


async def test_it_is_forgotten_some_time_after_its_end() -> None:
    now = [0.0]
    journals = MemoryJournals(kept=600, clock=lambda: now[0])
    journal = await journals.open("o", "k", WHOLE)
    now[0] += 10_000
    assert journals.find("o", "k") is journal
    await journals.close(journal)
    now[0] += 599
    assert await all_of(journals) == WHOLE
    now[0] += 1
    with pytest.raises(JournalGone):
        await all_of(journals)
    assert (len(journals), journals.size) == (0, 0)


async def test_all_together_are_bounded_and_those_that_ended_first_go_first() -> None:
    one = JOURNAL_OVERHEAD + PIECE_OVERHEAD + len(WHOLE)
    journals = MemoryJournals(most_in_all=3 * one)
    running = await journals.open("o", "running", WHOLE)
    for key in ("a", "b", "c"):
        await journals.close(await journals.open("o", key, WHOLE))
    assert [journals.find("o", key) is not None for key in ("running", "a", "b", "c")] == [True, False, True, True]
    for _ in range(1000):
        journals.write(running, WHOLE)
    assert journals.size <= 3 * one
    journals.write(running, FRAMES[5], last=True)
    await journals.close(running)
    assert (await all_of(journals, key="running")).endswith(FRAMES[5])
    await journals.drop("o", "running")
    assert journals.size == 0


async def test_those_that_are_worked_on_are_bounded_too() -> None:
    one = JOURNAL_OVERHEAD + PIECE_OVERHEAD + len(WHOLE)
    journals = MemoryJournals(most_in_all=3 * one)
    await journals.close(await journals.open("o", "ended", WHOLE))
    running = [await journals.open("o", str(n), WHOLE) for n in range(3)]
    assert journals.find("o", "ended") is None
    with pytest.raises(JournalsFull):
        await journals.open("o", "3", WHOLE)
    assert (len(journals), journals.size) == (3, 3 * one)
    await journals.close(running[0])
    await journals.open("o", "3", WHOLE)
    assert (len(journals), journals.size) == (3, 3 * one)


async def test_what_is_dropped_counts_no_more() -> None:
    journals = MemoryJournals()
    journal = await journals.open("o", "k", WHOLE)
    await journals.drop("o", "k")
    journals.write(journal, WHOLE)
    await journals.close(journal)
    assert (len(journals), journals.size) == (0, 0)

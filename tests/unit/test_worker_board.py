"""The board of workers: what one writes all others see, also from another process; what a worker that is gone held is
gone with it, and what it had counted is not. And who counts as one of how many.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from proxy.callers.concurrency import ConcurrencyLimit, Full
from proxy.config.settings import from_environment
from proxy.serving.cores import usable_cores, worker_count
from proxy.serving.open_connections import ConnectionLimits
from proxy.serving.worker_board import Board
from tests.fakes.clock import leaping


def test_the_next_connection_is_for_who_holds_the_fewest() -> None:
    board = Board(3)
    one, two, three = (board.row(number) for number in range(3))
    for row in (one, two):
        row.opens()
    one.holds(2)
    two.holds(1)
    assert (one.is_next(), two.is_next()) == (False, True), "the third is not there yet"
    three.opens()
    assert (one.is_next(), two.is_next(), three.is_next()) == (False, False, True)
    three.closes()
    three.holds(0)
    assert (one.is_next(), two.is_next()) == (False, True), "who leaves takes no more, though its connections end"
    assert one.workers == 3
    board.clear(1)
    assert one.is_next()
    assert one.workers == 2


def test_another_process_sees_it() -> None:
    board = Board(2)
    pid = os.fork()
    if pid == 0:
        row = board.row(1)
        row.add("server", 3)
        row.write_counts(b"counted")
        row.opens()
        os._exit(0)
    os.waitpid(pid, 0)
    mine = board.row(0)
    assert mine.elsewhere("server") == 3
    assert list(mine.counts_of_others()) == [(b"counted", True)]
    board.clear(1)
    assert mine.elsewhere("server") == 0
    assert list(mine.counts_of_others()) == [(b"counted", False)]
    assert board.row(1).counts_before() == b"counted"


def test_what_is_counted_for_many_limits_is_told_apart() -> None:
    board = Board(2)
    one, two = board.row(0), board.row(1)
    names = [f"key {number}" for number in range(5000)]
    for number, name in enumerate(names):
        one.add(name, number)
    assert [two.elsewhere(name) for name in names] == list(range(5000))
    assert two.elsewhere("another") == 0
    assert one.elsewhere("key 7") == 0


def test_what_is_written_whole_is_read_whole_and_what_is_too_large_is_not_written() -> None:
    board = Board(1)
    row = board.row(0)
    assert row.counts_before() == b""
    for written in (b"first", b"a longer one", b"x"):
        assert row.write_counts(written)
        assert row.counts_before() == written
    assert not row.write_counts(bytes(2 << 20))
    assert row.counts_before() == b"x"


class Interrupted(Board):
    """Its writer is killed before it can say that something was written."""

    killed = False

    def put(self, number: int, word: int, value: int) -> None:
        if self.killed:
            raise KeyboardInterrupt
        super().put(number, word, value)


def test_who_was_killed_while_writing_leaves_what_was_there_before() -> None:
    board = Interrupted(1)
    board.row(0).write_counts(b"before")
    board.killed = True
    with pytest.raises(KeyboardInterrupt):
        board.row(0).write_counts(b"half")
    assert board.row(0).counts_before() == b"before"


# Limits


@leaping
async def test_a_place_that_another_worker_holds_is_taken() -> None:
    board = Board(2)
    one, two = (ConcurrencyLimit(2, 0.2, name="server", places=board.row(number)) for number in range(2))
    held = [one.arrive("a"), two.arrive("b")]
    assert all(place.inside for place in held)
    late = two.arrive("c")
    assert not late.inside
    with pytest.raises(Full) as full:
        await two.wait(late)
    assert not full.value.own
    two.leave(late)
    next_one = two.arrive("c")
    waits = asyncio.create_task(two.wait(next_one))
    await asyncio.sleep(0.05)
    assert not waits.done()
    one.leave(held[0])
    await waits
    assert next_one.inside


@leaping
async def test_a_callers_places_are_those_of_all_workers() -> None:
    board = Board(2)
    one, two = (ConcurrencyLimit(None, 0.2, name="server", places=board.row(number)) for number in range(2))
    held = one.arrive("a", 1)
    late = two.arrive("a", 1)
    assert (held.inside, late.inside, two.arrive("b", 1).inside) == (True, False, True)
    with pytest.raises(Full) as full:
        await two.wait(late)
    assert full.value.own
    two.leave(late)
    one.leave(held)
    assert two.arrive("a", 1).inside
    assert board.row(0).elsewhere("server") == 0, "who has no limit is not counted"


def test_what_a_dead_worker_held_is_free() -> None:
    board = Board(2)
    one, two = (ConcurrencyLimit(1, 0.2, name="server", places=board.row(number)) for number in range(2))
    assert one.arrive("a").inside
    assert not two.arrive("b").inside
    board.clear(0)
    assert two.arrive("c") is not None
    assert two.inside == 1


def test_connections_are_divided() -> None:
    server = from_environment({}).server.model_copy(update={"max_connections": 101, "max_pending_per_address": 10})
    limits = ConnectionLimits.of(server, 10_000, 4)
    assert (limits.most, limits.most_pending) == (26, 3)
    unsaid = ConnectionLimits.of(from_environment({}).server, 10_000, 4)
    assert unsaid.most == ConnectionLimits.of(from_environment({}).server, 10_000).most, "each has its own descriptors"


# How many there are


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000 100000", 2), ("50000 100000", 1), ("10 x", 0), ("max 100000", 0)]
)
def test_a_container_has_no_more_cores_than_it_may_keep_busy(tmp_path: Path, quota: str, cores: int) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    free = usable_cores(tmp_path / "missing")
    assert usable_cores(file) == (min(cores, free) if cores else free)


def test_auto_needs_a_store_that_is_shared() -> None:
    config = from_environment({})
    auto = config.model_copy(update={"server": config.server.model_copy(update={"workers": "auto"})})
    assert (worker_count(config), worker_count(auto)) == (1, 1)
    assert worker_count(auto.model_copy(update={"store": "redis://127.0.0.1/0"})) == usable_cores()

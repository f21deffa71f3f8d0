"""What the workers of one server let each other see: a piece of memory that all of them share, with a row for each.

Only a worker writes into its own row: how many connections it holds, how much of each limit is taken there, and, a few
times a second, what it has counted. All read all rows. What it has counted outlives a worker that is killed; what it
held does not: the parent takes that out of the row.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

_ALIVE, _CONNECTIONS, _WRITES, _FIRST_SIZE, _SECOND_SIZE, _RESTARTS = range(6)  # words of a row
_HEAD = 8
_NAMES = 1 << 14  # limits that are told apart: of the server, of upstreams and of keys; each has a tag and a number
_TABLE = 2 * _NAMES
_COUNTS = 1 << 20  # bytes; twice, so that what a worker was killed at leaves what it had written before
_ROW = 8 * (_HEAD + _TABLE) + 2 * _COUNTS
_NONE_WANTED = -1


class Board:
    """Made before the workers are, which inherit it. Pages that nobody has written to take no memory."""

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, workers * _ROW)
        self._words = memoryview(self._memory).cast("q")
        self.workers = workers
        for number in range(workers):
            self.put(number, _CONNECTIONS, _NONE_WANTED)

    def row(self, number: int) -> BoardRow:
        return BoardRow(self, number)

    def clear(self, number: int) -> None:
        """Nobody is behind this row: it holds no connection and no place."""
        start = self._start(number)
        self._words[start + _ALIVE] = 0
        self._words[start + _CONNECTIONS] = _NONE_WANTED
        for at in range(start + _HEAD, start + _HEAD + _TABLE, 2):
            if self._words[at + 1]:
                self._words[at + 1] = 0

    def note_restart(self, number: int) -> None:
        self._words[self._start(number) + _RESTARTS] += 1

    # What rows do

    def get(self, number: int, word: int) -> int:
        return self._words[self._start(number) + word]

    def put(self, number: int, word: int, value: int) -> None:
        self._words[self._start(number) + word] = value

    def place(self, number: int, tag: int) -> int | None:
        """The word in which this row counts what has this tag, or where it may begin to; None if it has no room."""
        first = self._start(number) + _HEAD
        at = tag % _NAMES
        for step in range(_NAMES):
            place = first + 2 * ((at + step) % _NAMES)
            if self._words[place] in (tag, 0):
                return place
        return None

    def count(self, place: int, tag: int) -> int:
        return self._words[place + 1] if self._words[place] == tag else 0

    def add(self, place: int, tag: int, by: int) -> None:
        self._words[place + 1] += by
        self._words[place] = tag  # last: who finds the tag finds a number

    def write_counts(self, number: int, data: bytes) -> bool:
        if len(data) > _COUNTS:
            return False
        writes = self.get(number, _WRITES) + 1
        start = self._counts_start(number, writes)
        self._memory[start : start + len(data)] = data
        self.put(number, _FIRST_SIZE + writes % 2, len(data))
        self.put(number, _WRITES, writes)
        return True

    def read_counts(self, number: int) -> bytes:
        while writes := self.get(number, _WRITES):
            start, size = self._counts_start(number, writes), self.get(number, _FIRST_SIZE + writes % 2)
            data = self._memory[start : start + size]
            if self.get(number, _WRITES) == writes:  # else it may have been written over while we read
                return data
        return b""

    def _start(self, number: int) -> int:
        return number * _ROW // 8

    def _counts_start(self, number: int, writes: int) -> int:
        return number * _ROW + 8 * (_HEAD + _TABLE) + writes % 2 * _COUNTS


class BoardRow:
    """One worker's own row, and what it sees of the others."""

    def __init__(self, board: Board, number: int) -> None:
        self._board = board
        self._number = number
        self.of = board.workers
        self._others = [other for other in range(board.workers) if other != number]
        self._tags: dict[str, tuple[int, int | None]] = {}
        self._wants_more = False

    # Connections

    def opens(self) -> None:
        self._wants_more = True
        self._board.put(self._number, _ALIVE, 1)
        self.holds(0)

    def holds(self, connections: int) -> None:
        self._board.put(self._number, _CONNECTIONS, connections if self._wants_more else _NONE_WANTED)

    def closes(self) -> None:
        """It takes no connections any more."""
        self._wants_more = False
        self.holds(0)

    def is_next(self) -> bool:
        """Whether the next connection is for this worker: no other one holds fewer."""
        own = self._board.get(self._number, _CONNECTIONS)
        return not any(0 <= self._board.get(other, _CONNECTIONS) < own for other in self._others)

    # Places that limits have

    def add(self, name: str, by: int) -> None:
        """What is under way here and counts for this limit."""
        tag, place = self._tag(name)
        if place is not None:
            self._board.add(place, tag, by)

    def elsewhere(self, name: str) -> int:
        """How much counts for it in all other workers."""
        tag = self._tag(name)[0]
        places = (self._board.place(other, tag) for other in self._others)
        return sum(self._board.count(place, tag) for place in places if place is not None)

    def _tag(self, name: str) -> tuple[int, int | None]:
        if name not in self._tags:
            if len(self._tags) >= _NAMES:
                self._tags.clear()
            tag = hash(name) or 1  # the same in all workers: they are copies of one process
            self._tags[name] = tag, self._board.place(self._number, tag)
        return self._tags[name]

    # What was counted

    def write_counts(self, data: bytes) -> bool:
        """For the others, and for whoever comes after us."""
        return self._board.write_counts(self._number, data)

    def counts_before(self) -> bytes:
        """What the worker had counted that was behind this row before."""
        return self._board.read_counts(self._number)

    def counts_of_others(self) -> Iterator[tuple[bytes, bool]]:
        """What each other one has counted, and whether it is there."""
        for other in self._others:
            yield self._board.read_counts(other), bool(self._board.get(other, _ALIVE))

    @property
    def workers(self) -> int:
        """How many are there."""
        return sum(self._board.get(number, _ALIVE) for number in range(self._board.workers))

    @property
    def restarts(self) -> int:
        return sum(self._board.get(number, _RESTARTS) for number in range(self._board.workers))

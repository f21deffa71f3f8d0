"""An answer of the scripted model that waits in the middle until a test lets it go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

from tests.fakes.model import Turn, chunks


class Gate:
    """`gate.turn(before, after)` says the first words, and the others once `gate.open()` was called."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def turn(self, before: list[str], after: list[str]) -> Turn:
        first = _events(Turn(text=before, finish=None, usage=None))
        rest = [*_events(Turn(text=after))[1:], b"data: [DONE]\n\n"]

        def pieces() -> Iterator[bytes | float]:
            yield from first
            while not self._opened.is_set():
                yield 0.01
            yield from rest

        return Turn(pieces=pieces, content_type="text/event-stream")


def _events(turn: Turn) -> list[bytes]:
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks(turn)]

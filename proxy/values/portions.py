"""Much text at once, in portions. Handed what the model said in one network read; hands on the same in lists, between
which others may have their turn: a whole answer of a hundred pages is looked at sentence by sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .events import Event, TextDelta

PORTION = 2000  # characters


def is_much(events: Sequence[Event]) -> bool:
    said = 0
    for event in events:  # no sum over a generator: every piece of an answer passes here
        if type(event) is TextDelta:
            said += len(event.text)
    return said > PORTION


def portions(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    if not is_much(events):
        yield events
        return
    portion: list[Event] = []
    room = PORTION
    for event in events:
        for piece in _pieces(event):
            portion.append(piece)
            room -= len(piece.text) if isinstance(piece, TextDelta) else 0
            if room <= 0:
                yield portion
                portion, room = [], PORTION
    if portion:
        yield portion


def _pieces(event: Event) -> Iterator[Event]:
    if not isinstance(event, TextDelta) or len(event.text) <= PORTION:
        yield event
        return
    for start in range(0, len(event.text), PORTION):
        yield TextDelta(event.text[start : start + PORTION])

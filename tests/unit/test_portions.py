"""Much text at once: the same in portions, none of them long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.values.events import Begun, Event, Finished, TextDelta
from proxy.values.portions import PORTION, portions


def test_little_passes_as_it_is() -> None:
    events: list[Event] = [Begun(), TextDelta("a" * PORTION), Finished("stop")]
    assert list(portions(events)) == [events]
    assert list(portions([])) == [[]]


@given(st.lists(st.integers(1, 3 * PORTION), max_size=8))
def test_much_comes_in_its_order(lengths: list[int]) -> None:
    said = [chr(65 + at) * length for at, length in enumerate(lengths)]
    events: list[Event] = [Begun(), *map(TextDelta, said), Finished("stop")]
    made = list(portions(events))
    flat = [event for portion in made for event in portion]
    assert (flat[0], flat[-1]) == (Begun(), Finished("stop"))
    assert "".join(event.text for event in flat if isinstance(event, TextDelta)) == "".join(said)
    for portion in made:
        assert sum(len(event.text) for event in portion if isinstance(event, TextDelta)) < 2 * PORTION

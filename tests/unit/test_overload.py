"""When an overload begins and ends, and how long those are sent away who are refused."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxy.serving.overload import Overload

PATIENCE = 0.2


def serving(overload: Overload, rate: int, since: float, seconds: int = 2) -> float:
    """Serves `rate` requests in each second, and hands back what time it is then."""
    for second in range(seconds):
        for _ in range(rate):
            overload.served()
        overload.look(since + second + 1, 10_000, PATIENCE)  # so many wait that it cannot be over
        overload.refused(since + second + 1)
    return since + seconds


def test_it_begins_when_somebody_has_waited_for_the_whole_patience() -> None:
    overload = Overload(PATIENCE)
    assert not overload.look(1.0, 1000, PATIENCE - 0.01)
    assert overload.look(1.1, 3, PATIENCE)
    assert overload.on


def test_it_goes_on_while_more_are_away_than_could_be_served() -> None:
    overload = Overload(PATIENCE)
    overload.look(0.0, 10, PATIENCE)
    now = serving(overload, 1000, 0.0)
    for _ in range(1500):
        overload.refused(now)
    assert overload.look(now + 0.5, 20, 0.02)  # hardly anybody waits: they are all told to come back
    serving(overload, 1000, now, seconds=15)
    assert not overload.look(now + 15.5, 20, 0.02)


def test_it_is_over_when_all_could_be_served_again_though_some_are_still_refused() -> None:
    overload = Overload(PATIENCE)
    overload.look(0.0, 10, PATIENCE)
    now = serving(overload, 1000, 0.0, seconds=4)
    assert not overload.look(now + 0.5, 60, 0.02)


def test_its_end_is_tried_in_the_end_whatever_is_known() -> None:
    overload = Overload(PATIENCE)
    overload.look(0.0, 10_000, PATIENCE)
    assert overload.look(59.9, 10_000, PATIENCE / 2)
    assert not overload.look(60.1, 10_000, PATIENCE / 2)
    assert overload.look(60.3, 10_000, PATIENCE)  # it was too early


def test_the_more_are_refused_the_longer_they_stay_away() -> None:
    few, many = Overload(PATIENCE), Overload(PATIENCE)
    serving(few, 1000, 0.0)
    serving(many, 1000, 0.0)
    waits = [many.refused(2.0) for _ in range(3000)]
    assert 0.75 <= few.refused(2.0) <= 1.3
    assert max(waits[:20]) < min(waits[-20:])


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 50)), max_size=30))
def test_nobody_is_sent_away_for_long_nor_all_for_the_same_time(steps: list[tuple[float, int]]) -> None:
    overload = Overload(PATIENCE)
    now, waits = 0.0, list[float]()
    for seconds, refused in steps:
        now += seconds
        overload.served()
        waits += [overload.refused(now) for _ in range(refused)]
    assert all(0.75 <= wait <= 10 for wait in waits)
    assert max(Counter(waits).values(), default=1) <= max(2, len(waits) // 10)
    overload.look(now + 1000, 1, 0.0)
    assert not overload.on

"""Counting with an end: never more than was promised in any stretch of time, all of a request or nothing of it, and
whoever is refused is told the truth about when to come back. By any clock.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.values.meters import MINUTE, MOST_DEBT, PRUNE_EVERY, Charge, Charged, Meter, MeterStates, wait

PACE = Meter("alice", "requests minute", 60)
TOKENS = Meter("alice", "tokens minute", 1000)
DAY = Meter("alice", "tokens day 2027-01-01", 100, kept=2 * 86_400)

mosts = st.integers(1, 500)
pauses = st.floats(0, 200, allow_nan=False)


def ask(states: MeterStates, now: float, *meters: Meter) -> Charged:
    """One request, as a key's requests per minute count it."""
    return states.charge([Charge(meter, need=1, take=1) for meter in meters], now)


@given(mosts, st.lists(pauses, max_size=300))
@settings(deadline=None)
def test_in_any_stretch_of_time_at_most_one_bucket_more_than_refilled(most: int, gaps: list[float]) -> None:
    meter, states, now = Meter("a", "m", most), MeterStates(), 0.0
    taken: list[float] = []
    for gap in gaps:
        now += gap
        if ask(states, now, meter).taken:
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            promised = most + (taken[last] - taken[first]) * most / MINUTE
            assert last - first + 1 <= promised + 1e-3


@given(mosts, st.lists(st.one_of(pauses, st.just(0.0)), max_size=100))
@settings(deadline=None)
def test_who_is_refused_knows_the_moment_to_come_back(most: int, gaps: list[float]) -> None:
    meter, states, now = Meter("a", "m", most), MeterStates(), 0.0
    for gap in gaps:
        now += gap
        charged = ask(states, now, meter)
        if charged.taken:
            continue
        seconds = wait(meter, charged.rooms[0], 1)
        assert 0 < seconds <= MINUTE + 1e-9
        early = ask(states, now + seconds * 0.99, meter)
        assert not early.taken
        assert ask(states, now + seconds, meter).taken
        now += seconds


@given(mosts)
@settings(deadline=None)
def test_who_keeps_to_the_limit_is_never_refused(most: int) -> None:
    meter, states = Meter("a", "m", most), MeterStates()
    assert all(ask(states, number * MINUTE / most, meter).taken for number in range(3 * most))


@given(st.lists(st.tuples(st.integers(0, 3), pauses, st.sampled_from([0.0, 1.0, 700.0])), max_size=60))
@settings(deadline=None)
def test_all_of_a_request_or_nothing_of_it(steps: list[tuple[int, float, float]]) -> None:
    """What is owed counts in any case; what is taken does only if every meter has room."""
    states, now = MeterStates(), 0.0
    meters = [Meter("a", "small", 3), Meter("a", "large", 40), Meter("a", "sum", 10, kept=10**9)]
    for times, gap, owed in steps:
        now += gap
        for _ in range(times):
            before = states.charge([Charge(meter) for meter in meters], now).rooms
            after = states.charge([Charge(meter, owed=owed, need=1, take=1) for meter in meters], now)
            room = [max(left - owed, -meter.most * MOST_DEBT) if not meter.kept else left - owed
                    for meter, left in zip(meters, before, strict=True)]  # fmt: skip
            assert after.taken == all(left >= 1 - 1e-6 for left in room)
            expected = [left - 1 if after.taken else left for left in room]
            assert list(after.rooms) == pytest.approx(expected, abs=1e-6)


def test_who_needs_nothing_of_it_is_not_stopped_by_an_overdrawn_meter() -> None:
    states = MeterStates()
    states.charge([Charge(DAY, owed=500)], 0.0)
    assert states.charge([Charge(DAY), Charge(PACE, need=1, take=1)], 1.0) == (True, [-400.0, 59.0])


def test_a_sum_never_refills_and_may_be_overdrawn_once() -> None:
    states = MeterStates()
    assert states.charge([Charge(DAY, owed=99, need=1)], 0.0) == (True, [1.0])
    assert states.charge([Charge(DAY, owed=50, need=1)], 1.0) == (False, [-49.0])
    assert states.charge([Charge(DAY, need=1)], 86_399.0) == (False, [-49.0])


def test_whatever_an_answer_cost_a_limit_per_minute_holds_for_about_a_minute() -> None:
    states = MeterStates()
    charged = states.charge([Charge(TOKENS, owed=10**9, need=1)], 0.0)
    seconds = wait(TOKENS, charged.rooms[0], 1)
    assert MINUTE < seconds < 1.01 * MINUTE
    assert states.charge([Charge(TOKENS, need=1)], seconds).taken


@given(st.lists(st.tuples(st.floats(-10_000_000, 10_000_000), st.floats(0, 5)), max_size=30))
@settings(deadline=None)
def test_a_clock_that_jumps_locks_nobody_out_and_opens_at_most_one_bucket(jumps: list[tuple[float, float]]) -> None:
    """The memory's clock never jumps, but that of a Redis may."""
    states, now = MeterStates(), 0.0
    ask(states, now, PACE)
    for jump, passed in jumps:
        now += jump
        at_once = sum(ask(states, now, PACE).taken for _ in range(70))
        assert at_once <= PACE.most
        refused = ask(states, now, PACE)
        assert wait(PACE, refused.rooms[0], 1) <= MINUTE
        now += passed
        assert sum(ask(states, now, PACE).taken for _ in range(70)) <= passed * PACE.most / MINUTE + 1


def test_what_is_over_is_not_kept() -> None:
    states = MeterStates()
    for number in range(1000):
        ask(states, 0.0, Meter(f"key{number}", "m", 60), Meter(f"key{number}", "day", 60, kept=86_400))
    ask(states, PRUNE_EVERY, PACE)
    assert len(states) == 1001
    ask(states, 86_400 + PRUNE_EVERY, PACE)
    assert len(states) == 1


def test_a_limit_that_changes_keeps_what_was_used() -> None:
    states = MeterStates()
    for _ in range(10):
        ask(states, 0.0, PACE)
    (left,) = states.charge([Charge(Meter(PACE.owner, PACE.name, 12))], 0.0).rooms
    assert left == 2

"""Fair turns: the line as a machine, and the places that wait behind it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.fair_line import FairLine, Ticket
from providers.limits import Limits, Throttle
from providers.places import Places, PlacesByHost, asked_by
from tests.fakes.clock import in_leaping_time, leaping
from tests.fakes.providers import until


def names(tickets: list[Ticket]) -> list[str]:
    return [ticket.caller + ticket.request for ticket in tickets]


def drain(line: FairLine, inside: list[Ticket]) -> list[Ticket]:
    """In which order those in line go in, if each who is inside leaves in turn."""
    order = []
    while inside:
        entering = line.leave(inside.pop(0))
        order += entering
        inside += entering
    return order


# The machine


def test_callers_take_turns_and_so_do_the_requests_of_each() -> None:
    line = FairLine(1)
    inside = line.arrive(Ticket("z"))
    for caller, request in ("a1", "a1", "a1", "a2", "b1", "c1", "c1"):
        assert line.arrive(Ticket(caller, request)) == []
    assert names(drain(line, inside)) == ["a1", "b1", "c1", "a2", "c1", "a1", "a1"]
    assert (line.inside, line.waits) == (0, False)


def test_what_one_request_asks_for_keeps_its_order() -> None:
    line = FairLine(1)
    tickets = [Ticket("a", "1") for _ in range(5)]
    inside = list(chain.from_iterable(map(line.arrive, tickets)))
    assert inside + drain(line, inside.copy()) == tickets


def test_a_caller_and_a_request_leave_places_to_others() -> None:
    line = FairLine(4, most_of_caller=3, most_of_request=2)
    inside = [ticket for _ in range(5) for ticket in line.arrive(Ticket("a", "1"))]
    assert names(inside) == ["a1", "a1"]
    inside += [ticket for _ in range(5) for ticket in line.arrive(Ticket("a", "2"))]
    assert names(inside) == ["a1", "a1", "a2"]
    assert names(line.arrive(Ticket("b", "1"))) == ["b1"]
    assert names(line.leave(inside[0])) == ["a1"]  # who has waited longest
    assert names(line.leave(inside[1])) == ["a2"]  # and then the other request


def test_callers_without_a_name_are_not_held_to_be_one() -> None:
    line = FairLine(4, most_of_caller=1, most_of_request=2)
    assert len([ticket for n in range(5) for ticket in line.arrive(Ticket("", str(n)))]) == 4


def test_who_leaves_the_line_is_not_called() -> None:
    line = FairLine(1)
    inside = line.arrive(Ticket("a"))
    gone, last = Ticket("b"), Ticket("b")
    line.arrive(gone)
    line.arrive(last)
    assert line.leave(gone) == []
    assert drain(line, inside) == [last]


def test_how_many_go_first() -> None:
    line = FairLine(1)
    line.arrive(Ticket("x"))
    for caller in "aaaabb":
        line.arrive(Ticket(caller))
    assert [line.ahead_of(caller) for caller in "abc"] == [6, 2 + 3, 2]


LIMITS = st.tuples(st.integers(1, 5), st.none() | st.integers(1, 4), st.none() | st.integers(1, 3))
ARRIVALS = st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["1", "2"]))
STEPS = st.lists(ARRIVALS | st.integers(0, 100), max_size=80)


@given(LIMITS, STEPS)
@settings(max_examples=300)
def test_no_limit_is_broken_no_place_is_idle_and_nothing_is_left(
    limits: tuple[int, int | None, int | None], steps: list[tuple[str, str] | int]
) -> None:
    most, of_caller, of_request = limits
    line = FairLine(most, most_of_caller=of_caller, most_of_request=of_request)
    inside: list[Ticket] = []
    waiting: list[Ticket] = []

    def settle(entering: list[Ticket]) -> None:
        for ticket in entering:
            waiting.remove(ticket)
            inside.append(ticket)
        callers = Counter(ticket.caller for ticket in inside)
        requests = Counter((ticket.caller, ticket.request) for ticket in inside)
        assert line.inside == len(inside) <= most
        assert line.waits == bool(waiting)
        assert all(count <= (of_caller or most) for caller, count in callers.items() if caller)
        assert all(count <= (of_request or most) for count in requests.values())
        if len(inside) < most:  # whoever waits all the same may not take more
            for ticket in waiting:
                full = ticket.caller and callers[ticket.caller] == (of_caller or most)
                assert full or requests[ticket.caller, ticket.request] == (of_request or most)

    for step in steps:
        if isinstance(step, tuple):
            waiting.append(Ticket(*step))
            settle(line.arrive(waiting[-1]))
        elif inside or waiting:
            ticket = (inside + waiting)[step % len(inside + waiting)]
            (inside if ticket in inside else waiting).remove(ticket)
            settle(line.leave(ticket))
    while inside:
        settle(line.leave(inside.pop()))
    assert (line.inside, line.waits, line._of_caller, line._of_request) == (0, False, Counter(), Counter())


@given(st.lists(ARRIVALS, min_size=2, max_size=60), st.integers(1, 4))
@settings(max_examples=200)
def test_nobody_goes_twice_while_another_caller_waits(arrivals: list[tuple[str, str]], most: int) -> None:
    line = FairLine(most)
    inside = list(chain.from_iterable(line.arrive(Ticket("full")) for _ in range(most)))
    for caller, request in arrivals:
        line.arrive(Ticket(caller, request))
    order = [ticket.caller for ticket in drain(line, inside)]
    for caller in set(order):
        turns = [place for place, name in enumerate(order) if name == caller]
        for first, second in pairwise(turns):
            passed = set(order[first + 1 : second])
            left_out = {name for name in order[second:] if name != caller} - passed
            assert not left_out, (order, caller)


# The places


async def hold(places: Places, log: list[str], name: str, until_told: asyncio.Event) -> None:
    with asked_by(name[0], name[1:]):
        async with places.place():
            log.append(name)
            await until_told.wait()


async def test_places_are_given_in_turn_and_taken_back() -> None:
    places, log, go = Places(1), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(places, log, name, go)) for name in ("a1", "a1", "a2", "b1")]
    await until(lambda: log == ["a1"])
    assert not places.unused
    go.set()
    await asyncio.gather(*tasks)
    assert log == ["a1", "a1", "b1", "a2"]
    assert places.unused


async def test_an_error_inside_gives_the_place_back() -> None:
    places = Places(1)
    with pytest.raises(ValueError, match="oops"):
        async with places.place():
            raise ValueError("oops")
    assert places.unused


async def test_somebody_who_waits_is_noticed() -> None:
    places, go = Places(1), asyncio.Event()
    first = asyncio.create_task(hold(places, [], "a", go))
    wanted = asyncio.create_task(places.wanted())
    await asyncio.sleep(0)
    assert not wanted.done()
    second = asyncio.create_task(hold(places, [], "b", go))
    await wanted
    second.cancel()
    await asyncio.wait([second])
    again = asyncio.create_task(places.wanted())
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()
    go.set()
    await first


@pytest.mark.parametrize("seed", range(20))
def test_cancellation_at_any_moment_loses_no_place(seed: int) -> None:
    async def main() -> None:
        chance, places, inside, most = random.Random(seed), Places(3, most_of_caller=2), 0, 0

        async def work(caller: str) -> None:
            nonlocal inside, most
            with asked_by(caller, ""):
                async with places.place():
                    inside += 1
                    most = max(most, inside)
                    try:
                        await asyncio.sleep(chance.uniform(0, 3))
                    finally:
                        inside -= 1

        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(work(chance.choice("abcd"))))
            if chance.random() < 0.6:
                await asyncio.sleep(chance.choice((0, 0, 0.1)))
            chance.choice(tasks).cancel()
        await asyncio.wait(tasks)
        assert (most, inside, places.unused) == (3, 0, True)

    in_leaping_time(main())


async def test_a_host_that_nobody_asks_for_is_forgotten() -> None:
    hosts = PlacesByHost(1)

    async def visit(host: str) -> None:
        async with hosts.place(host):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(visit(host)) for host in "aabbcc"]
    await asyncio.sleep(0)
    assert len(hosts) == 3
    tasks[0].cancel()
    tasks[3].cancel()
    await asyncio.wait(tasks)
    assert len(hosts) == 0


# The turns of a provider


@leaping
async def test_who_floods_a_provider_holds_up_no_other_caller() -> None:
    throttle, started = Throttle(Limits(min_gap=0.05)), list[str]()

    async def call(caller: str) -> Any:
        with asked_by(caller, ""):
            async with throttle.slot(1.0):
                started.append(caller)

    flood = [asyncio.create_task(call("mallory")) for _ in range(100)]
    await until(lambda: started)
    await call("alice")  # behind a hundred it would have been refused
    assert started.count("mallory") <= 4
    await asyncio.gather(*flood, return_exceptions=True)

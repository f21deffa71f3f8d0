"""All connections together: who may come, who goes for whom, and who is told that its time is over. No sockets here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import ServerConfig
from proxy.serving.open_connections import (
    FRESH,
    SWEEP_EVERY,
    ByAge,
    ConnectionLimits,
    OpenConnections,
    Place,
    address_of,
    most_connections,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Client:
    """A connection that does as it is told."""

    def __init__(self, all_of_them: OpenConnections, address: str = "10.0.0.1", moves: bool = False) -> None:
        self.address = address
        self.told: list[str] = []
        self.moves = moves
        self._all = all_of_them
        all_of_them.add(self)

    def head_here(self) -> None:
        self._all.pending.discard(self)

    def make_room(self) -> None:
        self.told.append("make room")
        self._all.remove(self)

    def head_is_late(self) -> None:
        self.told.append("head is late")
        self._all.remove(self)

    def leave(self) -> None:
        self.told.append("leave")
        self._all.remove(self)

    def cut_off(self) -> None:
        self.told.append("cut off")
        self._all.remove(self)

    def has_moved(self) -> bool:
        return self.moves

    def stands_still(self) -> None:
        self.told.append("stands still")
        self._all.remove(self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def connections(clock: Clock, descriptors: int = 1024, **server: Any) -> OpenConnections:
    return OpenConnections(ConnectionLimits.of(ServerConfig(**server), descriptors), clock)


# By age


@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "wait"]), st.integers(0, 5)), max_size=60))
def test_by_age_is_a_list_in_order_of_arrival(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    by_age: ByAge[int] = ByAge(clock)
    plain: list[tuple[int, float]] = []
    for step, thing in steps:
        if step == "wait":
            clock.now += thing
            continue
        plain = [(other, since) for other, since in plain if other != thing]
        getattr(by_age, step)(thing)
        if step == "add":
            plain.append((thing, clock.now))
    assert len(by_age) == len(plain)
    for age in range(7):
        assert by_age.older_than(age) == [thing for thing, since in plain if clock.now - since >= age]
        assert by_age.oldest(age) == next(iter(by_age.older_than(age)), None)


# How many


@pytest.mark.parametrize(("descriptors", "most"), [(64, 8), (256, 96), (1024, 480), (65_536, 32_736)])
def test_each_connection_leaves_a_descriptor_for_its_upstream(descriptors: int, most: int) -> None:
    assert most_connections(descriptors) == most
    assert 2 * most < descriptors


def test_what_the_operator_says_wins(clock: Clock) -> None:
    limits = connections(clock, max_connections=7, max_pending_per_address=3).limits
    assert (limits.most, limits.most_pending) == (7, 3)
    assert connections(clock).limits.most_pending == 128
    assert connections(clock, 65_536).limits.most_pending == 8184
    assert connections(clock, 64).limits.most_pending == 8, "never more than there may be in all"


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
    ],
)
def test_whom_a_connection_counts_for(peer: str, counted: str) -> None:
    assert address_of(peer) == counted


# Who may come


def test_there_is_room_until_all_places_are_taken_by_busy_ones(clock: Clock) -> None:
    all_of_them = connections(clock, max_connections=20, max_pending_per_address=20)
    busy = [Client(all_of_them) for _ in range(20) if all_of_them.place_for("10.0.0.1") is Place.YES]
    for client in busy:
        client.head_here()
    clock.now += 60
    spare = all_of_them.limits.spare
    assert [all_of_them.place_for("10.0.0.2")] == [Place.SPARE]
    for _ in range(spare):
        Client(all_of_them, "10.0.0.2").head_here()
    assert all_of_them.place_for("10.0.0.3") is Place.NO
    assert not any(client.told for client in busy), "nobody who is being served goes for another one"
    all_of_them.remove(busy[0])
    assert all_of_them.place_for("10.0.0.3") is Place.SPARE


def test_the_one_that_has_been_silent_longest_makes_room(clock: Clock) -> None:
    all_of_them = connections(clock, max_connections=3)
    first, second, third = (Client(all_of_them, f"10.0.0.{n}") for n in range(3))
    second.head_here()
    all_of_them.idle.add(second)
    clock.now += FRESH
    assert all_of_them.place_for("10.0.0.9") is Place.YES
    assert (first.told, second.told, third.told) == (["make room"], [], [])
    Client(all_of_them, "10.0.0.9").head_here()
    assert all_of_them.place_for("10.0.0.9") is Place.YES
    assert third.told == ["make room"], "heads that do not come before connections that are kept"
    Client(all_of_them, "10.0.0.9").head_here()
    assert all_of_them.place_for("10.0.0.9") is Place.YES
    assert second.told == ["make room"]


def test_nobody_goes_who_has_only_just_come(clock: Clock) -> None:
    all_of_them = connections(clock, max_connections=2)
    clients = [Client(all_of_them), Client(all_of_them)]
    clock.now += FRESH / 2
    assert all_of_them.place_for("10.0.0.2") is Place.SPARE
    assert not any(client.told for client in clients)


def test_one_address_cannot_fill_the_hall(clock: Clock) -> None:
    all_of_them = connections(clock, max_connections=100, max_pending_per_address=10)
    silent = [Client(all_of_them) for _ in range(10)]
    assert all_of_them.place_for("10.0.0.1") is Place.NO
    assert all_of_them.place_for("10.0.0.2") is Place.YES
    silent[0].head_here()
    assert all_of_them.place_for("10.0.0.1") is Place.YES, "those that are served do not count"
    Client(all_of_them)
    clock.now += FRESH
    assert all_of_them.place_for("10.0.0.1") is Place.YES
    assert [client.told for client in silent[:3]] == [[], ["make room"], []]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["come", "head", "idle", "gone", "wait"])), max_size=80))
def test_the_limits_hold_whatever_happens(steps: list[tuple[int, str]]) -> None:
    clock = Clock()
    all_of_them = connections(clock, max_connections=5, max_pending_per_address=3)
    limits = all_of_them.limits
    here: list[Client] = []
    for number, step in steps:
        here = [client for client in here if not client.told]
        address = f"10.0.0.{number}"
        mine = next((client for client in here if client.address == address), None)
        if step == "come" and all_of_them.place_for(address) is not Place.NO:
            here.append(Client(all_of_them, address))
        elif step == "wait":
            clock.now += number
            all_of_them.look()
        elif mine and step == "head":
            mine.head_here()
        elif mine and step == "idle":
            mine.head_here()
            all_of_them.idle.add(mine)
        elif mine and step == "gone":
            all_of_them.remove(mine)
            here.remove(mine)
        assert len(all_of_them) <= limits.most + limits.spare
        assert len(all_of_them.pending.of(address)) <= limits.most_pending
        assert len(all_of_them) == len([client for client in here if not client.told])


# Whose time is over


def test_each_wait_has_its_own_end(clock: Clock) -> None:
    all_of_them = connections(clock, head_timeout=10, body_timeout=20, keep_alive_timeout=75, write_timeout=60)
    head, idle, leftover, lingering, stuck, slow, busy = (Client(all_of_them) for _ in range(7))
    for client in (idle, leftover, lingering, stuck, slow, busy):
        client.head_here()
    all_of_them.idle.add(idle)
    all_of_them.leftover.add(leftover)
    all_of_them.lingering.add(lingering)
    all_of_them.unsent.add(stuck)
    all_of_them.unsent.add(slow)
    slow.moves = True
    ends = {"head": head, "idle": idle, "leftover": leftover, "lingering": lingering, "stuck": stuck}
    told: dict[str, float] = {}
    for second in range(100):
        clock.now = float(second)
        all_of_them.look()
        told |= {name: second for name, client in ends.items() if client.told and name not in told}
    assert told == {"lingering": 1, "head": 10, "leftover": 20, "stuck": 60, "idle": 75}
    assert (head.told, idle.told, stuck.told) == (["head is late"], ["leave"], ["stands still"])
    assert lingering.told == ["cut off"]
    assert slow.told == busy.told == []


async def test_a_server_that_was_busy_itself_blames_nobody_at_once(clock: Clock) -> None:
    all_of_them = connections(clock)
    client = Client(all_of_them)
    all_of_them.start()
    clock.now = 60.0  # as if everything had stood still so long
    await asyncio.sleep(1.5 * SWEEP_EVERY)
    assert not client.told, "what it sent meanwhile has not been read yet"
    clock.now = 120.0
    while not client.told:  # but not twice
        await asyncio.sleep(SWEEP_EVERY / 2)
    all_of_them.stop()

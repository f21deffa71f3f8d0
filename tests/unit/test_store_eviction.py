"""What goes first when memory is full: whole groups, the longest unused ones; and that nothing else is lost."""

from __future__ import annotations

import gc
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.store.entries import ENTRY_OVERHEAD, MEMBER_OVERHEAD, GroupedEntries
from proxy.store.store import MemoryStore

NOISE = bytes(range(256)) * 3  # too small to be packed


async def keep(memory: MemoryStore, *names: str) -> None:
    """Each name is a key, and its first letter a group."""
    for name in names:
        assert await memory.put("turn", "o", name, b"v", 60, group=name[0])


async def kept(memory: MemoryStore, *names: str) -> list[str]:
    return [name for name in names if await memory.get("turn", "o", name)]


async def test_a_group_goes_whole_and_the_longest_unused_goes_first() -> None:
    memory = MemoryStore(max_entries=6)
    await keep(memory, "a1", "b1", "a2", "b2", "c1")
    await memory.get("turn", "o", "a1")
    await keep(memory, "d1", "d2")
    assert await kept(memory, "a1", "a2", "b1", "b2", "c1", "d1", "d2") == ["a1", "a2", "c1", "d1", "d2"]
    await memory.get_many("turn", "o", ["c1", "gone"])
    await memory.renew("o", [("turn", "a2"), ("turn", "gone")], 60)
    await keep(memory, "e1", "e2")
    assert await kept(memory, "a1", "a2", "c1", "d1", "d2", "e1", "e2") == ["a1", "a2", "c1", "e1", "e2"]
    await keep(memory, "a3", "f1")
    assert await kept(memory, "a1", "a2", "a3", "c1", "e1", "e2", "f1") == ["a1", "a2", "a3", "e1", "e2", "f1"]


async def test_a_group_is_one_owners() -> None:
    memory = MemoryStore(max_entries=2)
    await memory.put("turn", "o", "k", b"v", 60, group="g")
    await memory.put("turn", "p", "k", b"v", 60, group="g")
    await memory.put("turn", "p", "l", b"v", 60, group="g")
    assert [await memory.get("turn", owner, key) for owner, key in ("ok", "pk", "pl")] == [None, b"v", b"v"]


async def test_a_group_makes_no_room_for_itself() -> None:
    for memory in (MemoryStore(max_entries=3), MemoryStore(max_size=4500)):
        await keep(memory, "b1")
        names = [f"a{number}" for number in range(9)]
        results = [await memory.put("turn", "o", name, NOISE, 60, group="a") for name in names]
        assert results == sorted(results, reverse=True)
        assert 1 < results.count(True) < 9
        assert await kept(memory, *names) == [name for name, there in zip(names, results, strict=True) if there]
        assert not await kept(memory, "b1")
        assert await memory.put("turn", "o", "a0", NOISE, 60, group="a"), "what replaces one needs no more room"


async def test_who_changes_groups_belongs_to_the_new_one_alone() -> None:
    memory = MemoryStore(max_entries=3)
    await keep(memory, "a1", "a2", "b1")
    await memory.put("turn", "o", "a2", b"v", 60, group="b")
    await keep(memory, "c1")
    assert await kept(memory, "a1", "a2", "b1", "c1") == ["a2", "b1", "c1"]


def test_an_entry_that_is_too_old_takes_nobody_along() -> None:
    entries = GroupedEntries(3, 99_999)
    assert entries.put("brief", b"v", 0, 1, "g")
    assert entries.put("long", b"v", 0, 9, "g")
    assert [entries.get(name, 1) for name in ("brief", "long")] == [None, b"v"]
    assert len(entries) == 1


def test_a_full_group_has_room_again_when_a_member_is_too_old() -> None:
    entries = GroupedEntries(2, 99_999)
    assert entries.put("brief", b"v", 0, 1, "g")
    assert entries.put("long", b"v", 0, 2, "g")
    entries.renew("long", 0, 9)
    assert not entries.put("new", b"v", 0.9, 9, "g")
    assert entries.put("new", b"v", 1, 2, "g")
    assert not entries.put("newer", b"v", 2.9, 9, "g")
    assert entries.put("newer", b"v", 3, 9, "g")
    assert [entries.get(name, 3) for name in ("brief", "long", "new", "newer")] == [None, b"v", None, b"v"]
    entries.renew("newer", 3, 1)
    assert entries.put("newest", b"v", 4, 9, "g")


def test_what_is_renewed_lives_from_then_on_and_what_is_gone_stays_gone() -> None:
    entries = GroupedEntries(9, 99_999)
    for name in ("a", "b"):
        entries.put(name, b"v", 0, 2)
    entries.add_member("set", "m", 0, 2)
    for name in ("a", "set", "other"):
        entries.renew(name, 1, 2)
    entries.renew("b", 1, 0)
    assert [entries.get(name, 1.9) for name in ("a", "b", "other")] == [b"v", b"v", None]
    assert [entries.get(name, 2) for name in ("a", "b", "other")] == [b"v", None, None]
    assert set(entries.members("set", 2)) == {"m"}
    for name in ("a", "b", "set"):
        entries.renew(name, 3, 9)
    assert (len(entries), entries.size) == (0, 0)


@pytest.mark.parametrize("full", [False, True])
def test_no_put_looks_at_everything(full: bool) -> None:
    """Ten times as many entries cost ten times as much, not a hundred times; with a margin for a busy machine."""

    def seconds(number: int) -> float:
        entries = GroupedEntries(number, 1 << 40)
        for at in range(number if full else 0):
            entries.put(f"full{at}", b"v", 0, 9, "g")
        gc.disable()  # what other tests have left behind is no work of this one
        try:
            began = time.process_time()
            for at in range(2 * number):
                entries.put(str(at), b"v", 0, 9, "g" if full else at // 7)
            return time.process_time() - began
        finally:
            gc.enable()

    assert seconds(5000) < 60 * min(seconds(500) for _ in range(5)) + 0.05


# The same rule, written down as simply as can be: for any sequence without the passing of time

MOST_ENTRIES, MOST_BYTES = 5, 6 * ENTRY_OVERHEAD
Contents = int | frozenset[str]  # the length of a value, or the members of a set


@dataclass
class Rule:
    groups: dict[Hashable, dict[str, Contents]] = field(default_factory=dict)  # the longest unused first

    def get(self, name: str) -> Contents | None:
        for key, group in self.groups.items():
            if name in group:
                self.groups[key] = self.groups.pop(key)
                return group[name]
        return None

    def put(self, name: str, contents: Contents, key: Hashable) -> bool:
        written = {**self.groups.get(key, {}), name: contents}
        if not within_bounds([written]):
            return False
        self.drop(name)
        self.groups.pop(key, None)
        self.groups[key] = written
        while not within_bounds(list(self.groups.values())):
            del self.groups[next(iter(self.groups))]
        return True

    def drop(self, name: str) -> bool:
        found = [group.pop(name, None) for group in self.groups.values()]
        self.groups = {key: group for key, group in self.groups.items() if group}
        return any(contents is not None for contents in found)

    def add(self, name: str, member: str) -> bool:
        held = self.get(name)
        return self.put(name, (held if isinstance(held, frozenset) else frozenset()) | {member}, name)

    def remove(self, name: str, member: str) -> None:
        held = self.get(name)
        if not isinstance(held, frozenset):
            return
        if left := held - {member}:
            self.groups[name] = {name: left}
        else:
            self.drop(name)


def weight(name: str, contents: Contents) -> int:
    inside = contents if isinstance(contents, int) else sum(MEMBER_OVERHEAD + len(member) for member in contents)
    return ENTRY_OVERHEAD + len(name) + inside


def weights(groups: list[dict[str, Contents]]) -> list[int]:
    return [weight(name, contents) for group in groups for name, contents in group.items()]


def within_bounds(groups: list[dict[str, Contents]]) -> bool:
    sizes = weights(groups)
    return len(sizes) <= MOST_ENTRIES and sum(sizes) <= MOST_BYTES


VALUES, SETS, MEMBERS = "abcdefgh", "ST", ("m", "mm", "mmm")
names = st.sampled_from(VALUES)
step = st.one_of(
    st.tuples(st.just("put"), names, st.integers(0, 2 * ENTRY_OVERHEAD), st.sampled_from([None, "g", "h"])),
    st.tuples(st.just("get") | st.just("renew"), names),
    st.tuples(st.just("drop"), st.sampled_from(VALUES + SETS)),
    st.tuples(st.just("add") | st.just("remove"), st.sampled_from(SETS), st.sampled_from(MEMBERS)),
)


@settings(deadline=None)
@given(st.lists(step, min_size=15, max_size=60))
def test_whatever_happens_the_bounds_hold_and_groups_go_whole(steps: list[tuple[object, ...]]) -> None:
    entries, rule = GroupedEntries(MOST_ENTRIES, MOST_BYTES), Rule()
    for each in steps:
        match each:
            case "put", str(name), int(length), group:
                key = name if group is None else group
                assert entries.put(name, bytes(length), 0, 9, group) == rule.put(name, length, key)
            case "get", str(name):
                value, length = entries.get(name, 0), rule.get(name)
                assert (None if value is None else len(value)) == length
            case "renew", str(name):
                entries.renew(name, 0, 9)
                rule.get(name)
            case "drop", str(name):
                assert entries.drop(name, 0) == rule.drop(name)
            case "add", str(name), str(member):
                assert entries.add_member(name, member, 0, 9) == rule.add(name, member)
            case "remove", str(name), str(member):
                entries.remove_member(name, member, 0)
                rule.remove(name, member)
        there = weights(list(rule.groups.values()))
        assert (len(entries), entries.size) == (len(there), sum(there))
        assert len(entries) <= MOST_ENTRIES
        assert entries.size <= MOST_BYTES
    for name in VALUES:
        assert (entries.get(name, 0) is None) == (rule.get(name) is None)
    for name in SETS:
        assert set(entries.members(name, 0)) == set(rule.groups.get(name, {}).get(name, frozenset()))  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.tuples(names, st.sampled_from([None, "g", "h"]), st.integers(1, 5), st.integers(0, 3)), max_size=40))
def test_whatever_time_it_is_nothing_outlives_its_own(puts: list[tuple[str, str | None, int, int]]) -> None:
    entries, until, now = GroupedEntries(MOST_ENTRIES, MOST_BYTES), dict[str, int](), 0
    for name, group, ttl, pause in puts:
        if entries.put(name, b"v", now, ttl, group):
            until[name] = now + ttl
        assert entries.size <= MOST_BYTES
        now += pause
        assert not [each for each in until if until[each] <= now and entries.get(each, now) is not None]
    for name in VALUES:
        entries.drop(name, now)
    assert (len(entries), entries.size) == (0, 0)

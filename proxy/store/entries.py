"""What one process holds in memory: values and sets under names, bounded in number and size, evicted in whole groups.

Handed a value with its time to live and its group; hands it back until it is too old or its group had to make room: the
group that was not used for the longest goes first. It does no I/O and is told the time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import field

from providers.records import dataclass

ENTRY_OVERHEAD = 600  # about what Python needs around one entry, bytes
MEMBER_OVERHEAD = 150  # and around one member of a set


@dataclass(slots=True, eq=False)
class _Group:
    key: Hashable
    names: set[str] = field(default_factory=set)
    size: int = 0
    earliest: float = math.inf  # until then no entry of it is too old


@dataclass(slots=True, eq=False)
class _Entry:
    value: bytes | set[str]
    size: int
    until: float
    group: _Group


class GroupedEntries:
    """To use one entry is to use its group. One that is too old, or dropped, leaves the rest of its group alone."""

    def __init__(self, max_entries: int, max_size: int) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._size = 0
        self._entries: dict[str, _Entry] = {}
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        return self._size

    # Values

    def get(self, name: str, now: float) -> bytes | None:
        entry = self._use(name, now)
        return entry.value if entry and isinstance(entry.value, bytes) else None

    def put(self, name: str, value: bytes, now: float, ttl: float, group: Hashable = None) -> bool:
        """Whether it is kept. If not, its group would be over the bounds all by itself, and is as it was. An entry
        without a group is a group of its own."""
        return self._place(name, value, _base(name) + len(value), now, ttl, name if group is None else group)

    # Sets

    def members(self, name: str, now: float) -> Collection[str]:
        entry = self._use(name, now)
        return entry.value if entry and isinstance(entry.value, set) else ()

    def add_member(self, name: str, member: str, now: float, ttl: float, group: Hashable = None) -> bool:
        """Whether it is kept; the set is, with all its members, for `ttl` seconds from now."""
        entry = self._use(name, now)
        key = name if group is None else group
        if entry is None or not isinstance(entry.value, set):
            return self._place(name, {member}, _base(name) + _weight(member), now, ttl, key)
        more = 0 if member in entry.value else _weight(member)
        kept = self._place(name, entry.value, entry.size + more, now, ttl, key)
        if kept:
            entry.value.add(member)
        return kept

    def remove_member(self, name: str, member: str, now: float) -> None:
        """A set that has lost its last member is gone."""
        entry = self._use(name, now)
        if entry is None or not isinstance(entry.value, set) or member not in entry.value:
            return
        entry.value.remove(member)
        self._count(entry, -_weight(member))
        if not entry.value:
            self._remove(name)

    # Both

    def renew(self, name: str, now: float, ttl: float) -> None:
        """If it is there, it is so for `ttl` seconds from now."""
        if ttl > 0 and (entry := self._use(name, now)):
            entry.until = now + ttl
            entry.group.earliest = min(entry.group.earliest, entry.until)

    def rename(self, name: str, new: str, now: float, group: Hashable = None) -> None:
        """If it is there and nothing is under the new name, it is there from now on, for as long as it had left."""
        entry = self._use(name, now)
        if entry is None or self._use(new, now) is not None:
            return
        size, ttl = entry.size + _base(new) - _base(name), entry.until - now
        self._remove(name)
        self._place(new, entry.value, size, now, ttl, new if group is None else group)

    def drop(self, name: str, now: float) -> bool:
        """Whether it was there."""
        entry = self._entries.get(name)
        self._remove(name)
        return entry is not None and now < entry.until

    def _use(self, name: str, now: float) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        if now >= entry.until:
            self._remove(name)
            return None
        self._groups.move_to_end(entry.group.key)
        return entry

    def _place(
        self, name: str, value: bytes | set[str], size: int, now: float, ttl: float, group_key: Hashable
    ) -> bool:
        if ttl <= 0 or not self._could_hold(group_key, name, size, now):
            return False
        self._remove(name)
        group = self._groups.setdefault(group_key, _Group(group_key))
        self._groups.move_to_end(group_key)
        entry = self._entries[name] = _Entry(value, 0, now + ttl, group)
        group.names.add(name)
        group.earliest = min(group.earliest, entry.until)
        self._count(entry, size)
        self._evict()
        return True

    def _could_hold(self, group_key: Hashable, name: str, size: int, now: float) -> bool:
        group = self._groups.get(group_key) or _Group(group_key)
        if self._has_room(group, name, size):
            return True
        self._drop_expired(group, now)
        return self._has_room(group, name, size)

    def _has_room(self, group: _Group, name: str, size: int) -> bool:
        """Whether the group would be within the bounds if it were alone."""
        replaced = self._entries[name].size if name in group.names else 0
        number = len(group.names) + (name not in group.names)
        return number <= self._max_entries and group.size - replaced + size <= self._max_size

    def _drop_expired(self, group: _Group, now: float) -> None:
        if now < group.earliest:  # else every attempt to add to a full group would look at all of it
            return
        for name in [name for name in group.names if now >= self._entries[name].until]:
            self._remove(name)
        group.earliest = min((self._entries[name].until for name in group.names), default=math.inf)

    def _evict(self) -> None:
        """The group that was just written is the last one, and alone it is within the bounds."""
        while len(self._entries) > self._max_entries or self._size > self._max_size:
            _, group = self._groups.popitem(last=False)
            for name in group.names:
                del self._entries[name]
            self._size -= group.size

    def _remove(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._count(entry, -entry.size)
        entry.group.names.remove(name)
        if not entry.group.names:
            del self._groups[entry.group.key]

    def _count(self, entry: _Entry, size: int) -> None:
        entry.size += size
        entry.group.size += size
        self._size += size


def _base(name: str) -> int:
    return len(name) + ENTRY_OVERHEAD


def _weight(member: str) -> int:
    return len(member) + MEMBER_OVERHEAD

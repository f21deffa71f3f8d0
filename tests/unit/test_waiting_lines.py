"""The lines that wait for turns, as a machine: fair between lines, in order within them, and nobody is lost."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.serving.waiting_lines import WaitingLines

PATIENCE = 10.0


def lines_of(*items: str, now: float = 0.0) -> WaitingLines[str]:
    """Items such as `a1`, in the line `a`."""
    lines: WaitingLines[str] = WaitingLines(PATIENCE)
    for item in items:
        lines.join(item[0], item, now)
    return lines


def drained(lines: WaitingLines[str], now: float = 0.0) -> list[str]:
    order = []
    while item := lines.pop(now):
        order.append(item)
    return order


def test_lines_take_turns_however_long_one_is() -> None:
    lines = lines_of("a1", "a2", "a3", "a4", "b1", "c1", "c2")
    assert drained(lines) == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]
    assert lines.size == 0


def test_one_who_comes_to_a_long_line_of_others_is_next_but_one() -> None:
    lines = lines_of(*(f"a{number}" for number in range(500)))
    lines.pop(0)
    lines.join("b", "b1", 0)
    assert [lines.pop(0), lines.pop(0)] == ["a1", "b1"]


def test_what_has_begun_goes_before_what_is_new_in_its_own_line_alone() -> None:
    lines = lines_of("a1", "b1")
    lines.join("a", "a-begun", 1, begun=True)
    assert drained(lines, 1) == ["a-begun", "b1", "a1"]


def test_what_has_begun_is_never_overdue() -> None:
    lines = lines_of("a1")
    lines.join("a", "a-begun", 0, begun=True)
    assert lines.overdue(1000, 10) == ["a1"]
    assert drained(lines, 1000) == ["a-begun"]


def test_who_has_waited_for_the_whole_patience_is_refused_and_not_served() -> None:
    lines = lines_of("a1", "b1")
    lines.join("b", "b2", PATIENCE)
    assert lines.overdue(PATIENCE - 0.1, 10) == []
    assert lines.longest_wait(PATIENCE) == PATIENCE
    assert lines.pop(PATIENCE) is None  # both lines begin with one that is overdue
    assert lines.overdue(PATIENCE, 10) == ["a1", "b1"]
    assert drained(lines, PATIENCE) == ["b2"]


def test_no_more_are_refused_at_once_than_may_be() -> None:
    lines = lines_of("a1", "a2", "a3", "b1")
    assert lines.overdue(PATIENCE, 2) == ["a1", "a2"]
    assert lines.overdue(PATIENCE, 2) == ["a3", "b1"]
    assert lines.size == 0


def test_in_an_overload_the_newest_of_a_long_line_go_first_and_the_oldest_are_told_soon() -> None:
    lines = lines_of("a1", "a2", "a3")
    lines.overloaded = True
    lines.join("a", "a4", 1.2)
    assert lines.overdue(1.2, 1) == ["a1"]
    assert lines.pop(1.2) == "a4"


def test_in_an_overload_a_short_line_keeps_its_order_and_its_patience() -> None:
    lines = lines_of("a1", "a2", "a3", "b1", "b2")
    lines.overloaded = True
    assert lines.overdue(5, 10) == ["a1"]  # the two behind it are few
    assert drained(lines, 5) == ["a2", "b1", "a3", "b2"]


def test_in_an_overload_nobody_is_served_late() -> None:
    lines = lines_of("a1", "a2", "a3", "a4")
    lines.overloaded = True
    assert lines.pop(0.9) == "a4"
    assert lines.pop(1.1) is None


def test_who_leaves_is_gone_and_leaving_twice_is_harmless() -> None:
    lines = lines_of("a1", "a2", "b1")
    lines.leave("a", "a1")
    lines.leave("a", "a1")
    lines.leave("nobody", "x")
    assert drained(lines) == ["a2", "b1"]


class Waiting(RuleBasedStateMachine):
    """Whatever comes, waits, leaves and is refused: everyone is handed out once, lines take turns, and no one waits who
    could be served for longer than the lines there are."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: WaitingLines[int] = WaitingLines(PATIENCE)
        self.now = 0.0
        self.numbers = count()
        self.waiting: dict[int, tuple[str, bool, float]] = {}  # item → line, has it begun, since when
        self.passed_over: Counter[str] = Counter()

    def _gone(self, item: int) -> tuple[str, bool, float]:
        return self.waiting.pop(item)  # fails for one that was handed out before

    @rule(line=st.sampled_from("abc"), begun=st.booleans())
    def join(self, line: str, begun: bool) -> None:
        item = next(self.numbers)
        self.lines.join(line, item, self.now, begun=begun)
        self.waiting[item] = line, begun, self.now

    @rule(seconds=st.floats(0, PATIENCE))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(overloaded=st.booleans())
    def switch(self, overloaded: bool) -> None:
        self.lines.overloaded = overloaded

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.waiting)))
        self.lines.leave(self._gone(item)[0], item)

    @rule()
    def pop(self) -> None:
        item = self.lines.pop(self.now)
        if item is None:
            assert not any(begun for _, begun, _ in self.waiting.values())
            return
        line, begun, since = self._gone(item)
        assert begun or self.now - since < PATIENCE
        older = [other for other, (name, _, _) in self.waiting.items() if name == line and other < item]
        if begun:
            assert not any(self.waiting[other][1] for other in older)
        elif not self.lines.overloaded:
            assert not older
        self.passed_over[line] = 0
        for name in {name for name, begun, _ in self.waiting.values() if begun and name != line}:
            self.passed_over[name] += 1
            assert self.passed_over[name] <= 2

    @rule(most=st.integers(0, 5))
    def refuse(self, most: int) -> None:
        refused = self.lines.overdue(self.now, most)
        assert len(refused) <= most
        for item in refused:
            _, begun, since = self._gone(item)
            assert not begun
            assert self.now - since >= (PATIENCE * 0.07 if self.lines.overloaded else PATIENCE)

    @invariant()
    def all_are_counted(self) -> None:
        assert self.lines.size == len(self.waiting)

    def teardown(self) -> None:
        """Nobody stands there for ever."""
        self.now += 2 * PATIENCE
        while (item := self.lines.pop(self.now)) is not None:
            self._gone(item)
        for item in self.lines.overdue(self.now, len(self.waiting)):
            self._gone(item)
        assert not self.waiting


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

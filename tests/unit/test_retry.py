"""Whether a model that failed is asked again: the budget of the process, the limits of a request, the waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.failures import (
    hung_up,
    key_refused,
    not_trusted,
    overloaded,
    timed_out,
    unreachable,
)
from proxy.upstreams.retry import LONGEST_WAIT, RETRIED, WINDOW, Retries, RetryBudget, Verdict, retry_after
from proxy.values.errors import as_error, failure, too_large, truncated
from proxy.values.events import Failed

BUSY = Failed(503, {"message": "busy", "code": None})


@dataclass
class Limits:
    retries: int = 2
    retry_wait: float = 0.25
    max_retry_after: float = 5.0


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Dice:
    """The worst throw each time, unless a test says otherwise."""

    throws: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.throws.pop(0) if self.throws else 1.0


def request(budget: RetryBudget | None = None, *throws: float) -> Retries:
    return Retries(budget or RetryBudget(), Dice(list(throws)))


def judged(failed: Failed, left: float = 600.0, limits: Limits | None = None) -> Verdict:
    return request().judge(failed, limits or Limits(), left)


# The budget


def test_ten_in_ten_seconds_are_always_allowed() -> None:
    clock = Clock()
    budget = RetryBudget(clock=clock)
    assert [budget.take() for _ in range(12)] == [True] * 10 + [False] * 2
    clock.now += WINDOW - 0.1
    assert not budget.take()
    clock.now += 0.2
    assert budget.take()


def test_two_hundred_requests_that_all_fail_make_twenty_more() -> None:
    clock = Clock()
    budget = RetryBudget(clock=clock)
    for _ in range(200):
        budget.note_request()
        clock.now += 0.01
    assert sum(budget.take() for _ in range(400)) == 20


STEPS = st.lists(st.tuples(st.floats(0, 4), st.booleans(), st.integers(1, 60)), max_size=60)


@given(STEPS, st.integers(0, 12))
def test_never_more_than_a_tenth_of_the_requests_and_the_floor(
    steps: list[tuple[float, bool, int]], floor: int
) -> None:
    """In every ten seconds up to a retry that is allowed, whatever came before; and the floor is never refused."""
    clock = Clock()
    budget = RetryBudget(floor, clock=clock)
    requests: list[float] = []
    allowed: list[float] = []
    for wait, retry, count in steps:
        clock.now += wait
        for _ in range(count):
            if not retry:
                budget.note_request()
                requests.append(clock.now)
                continue
            came = sum(then > clock.now - WINDOW for then in requests)
            made = sum(then > clock.now - WINDOW for then in allowed)
            if budget.take():
                allowed.append(clock.now)
                assert made + 1 <= max(floor, came / 10)
            else:
                assert made >= floor


# One request


def test_twice_at_most_and_then_the_client_hears_it() -> None:
    asked = request()
    verdicts = [asked.judge(BUSY, Limits(), 600) for _ in range(4)]
    assert [verdict.outcome for verdict in verdicts] == ["asked", "asked", "spent", "spent"]


@pytest.mark.parametrize(("retries", "outcomes"), [(0, ["passed_on"] * 2), (1, ["asked", "spent"])])
def test_an_operator_may_want_fewer(retries: int, outcomes: list[str]) -> None:
    asked = request()
    assert [asked.judge(BUSY, Limits(retries), 600).outcome for _ in range(2)] == outcomes


def test_a_request_that_is_over_budget_is_told_so() -> None:
    budget = RetryBudget(1, clock=Clock())
    assert request(budget).judge(BUSY, Limits(), 600).outcome == "asked"
    late = request(budget)
    assert late.judge(BUSY, Limits(), 600) == Verdict("over_budget")
    assert late.made == 0


@given(st.floats(0, 1), st.integers(0, 1), st.floats(0.001, 10))
def test_waits_are_drawn_from_a_bound_that_doubles(throw: float, made: int, first: float) -> None:
    asked = Retries(RetryBudget(), lambda: throw, made)
    verdict = asked.judge(BUSY, Limits(retry_wait=first), 600)
    assert verdict.wait == throw * min(first * 2**made, LONGEST_WAIT)
    assert verdict.wait <= LONGEST_WAIT


@pytest.mark.parametrize("status", range(400, 600))
def test_which_statuses_are_asked_again(status: int) -> None:
    said = as_error({"error": {"message": "no"}}, status)
    assert said is not None
    assert judged(said).outcome == ("asked" if status in RETRIED else "passed_on")
    assert not RETRIED & {400, 401, 403, 404, 409, 422, 501, 524}


@pytest.mark.parametrize(
    ("failed", "outcome"),
    [
        (unreachable("up"), "asked"),
        (hung_up("up"), "asked"),
        (truncated(), "asked"),
        (timed_out("up"), "passed_on"),
        (not_trusted("up"), "passed_on"),
        (key_refused("up", 401, "KEY"), "passed_on"),
        (too_large(), "passed_on"),
        (overloaded(), "passed_on"),
        (failure(502, "no JSON", code="upstream_bad_response"), "passed_on"),
        (as_error({"error": {"message": "m", "code": "insufficient_quota"}}, 429), "passed_on"),
        (as_error({"error": {"message": "m", "type": "insufficient_quota"}}, 429), "passed_on"),
        (as_error({"error": {"message": "m", "type": "invalid_request_error"}}), "passed_on"),
        (as_error({"error": {"message": "m", "type": "overloaded_error"}}), "asked"),
        (Failed(503, {}, {"x-should-retry": "false"}), "passed_on"),
        (Failed(503, {}, {"x-should-retry": "true"}), "asked"),
    ],
)
def test_which_failures_are_asked_again(failed: Failed, outcome: str) -> None:
    assert judged(failed).outcome == outcome


# Retry-After


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": ""}, 0),
        ({"retry-after": "1e999"}, math.inf),
        ({"retry-after-ms": "300"}, 0.3),
        ({"retry-after-ms": "300", "retry-after": "60"}, 0.3),
        ({"retry-after-ms": "x", "retry-after": "1"}, 1),
        ({"retry-after": "Thu, 01 Jan 1970 00:16:44 GMT"}, 4),
        ({"retry-after": "Thu, 01 Jan 1970 00:16:00 GMT"}, 0),
        ({"retry-after": "Thu, 01 Jan 1970 99:99:99 GMT"}, 0),
    ],
)
def test_what_a_server_says_about_the_wait(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(headers, Clock(1000.0)) == seconds


@given(st.text(), st.text())
def test_no_header_can_break_it(one: str, other: str) -> None:
    assert retry_after({"retry-after": one, "retry-after-ms": other}) >= 0


def waiting(seconds: float) -> Failed:
    return Failed(429, {"message": "slow down"}, {"retry-after": str(seconds)})


@given(st.floats(0, 20), st.floats(0, 1), st.floats(0, 30))
def test_nobody_comes_back_early_nor_after_the_end(seconds: float, throw: float, left: float) -> None:
    verdict = Retries(RetryBudget(), lambda: throw).judge(waiting(seconds), Limits(), left)
    if verdict.outcome == "asked":
        assert seconds <= verdict.wait < left
        assert seconds <= 5
    else:
        assert seconds > 5 or seconds + throw * 0.25 >= left


def test_a_long_wait_is_passed_on_even_when_retries_are_spent() -> None:
    """The client may come back then: nothing says that it should not."""
    spent = Retries(RetryBudget(), made=2)
    assert spent.judge(waiting(60), Limits(), 600) == Verdict("passed_on")
    assert spent.judge(waiting(1), Limits(), 600) == Verdict("spent")

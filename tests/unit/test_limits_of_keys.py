"""Which limits a policy means, under which names they are counted, when they end, and what a caller is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.base import ProviderCall
from proxy.callers.limiter import Limiter
from proxy.callers.limits import KeyLimits, Used
from proxy.callers.standing import Standing, duration
from proxy.config.keys import KeyPolicy
from proxy.store.counters import MemoryCounters
from proxy.values.meters import Charge, Charged
from proxy.watching.observer import Observer
from proxy.watching.steps import ModelAnswered, ModelAsked, Tokens

CHAT = "/v1/chat/completions"
EVERYTHING = {
    "requests_per_minute": 3,
    "tokens_per_minute": 100,
    "searches_per_minute": 5,
    "budget": {
        "day": {"tokens": 1000, "searches": 50, "cost": 1.5},
        "month": {"tokens": 9000, "searches": 90, "cost": 9.5},
    },
}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def limits(key: str = "alice", **said: Any) -> KeyLimits:
    made = KeyLimits.of(key, KeyPolicy.model_validate(said))
    assert made is not None
    return made


class Clock:
    def __init__(self, now: str) -> None:
        self.now = at(now)

    def __call__(self) -> float:
        return self.now


async def admitted(limiter: Limiter, key: KeyLimits, path: str = CHAT, method: str = "POST") -> Standing:
    standing = await limiter.admit(key, method, path)
    assert standing is not None
    return standing


def ended(limiter: Limiter, key: str, tokens: int) -> None:
    request = Observer([limiter])
    request.caller = key
    request.tell(ModelAsked("local", "m"))
    request.tell(ModelAnswered("local", 0.1, Tokens(tokens, 0)))
    request.end()


def test_a_policy_without_limits_has_none() -> None:
    assert KeyLimits.of("alice", KeyPolicy.model_validate({"models": ["m"], "concurrency": 4})) is None


def test_a_day_and_a_month_are_counted_under_their_own_names() -> None:
    made = limits(**EVERYTHING)
    assert [(limit.unit, limit.span, limit.most) for limit in made.limits] == [
        ("requests", "minute", 3), ("tokens", "minute", 100), ("searches", "minute", 5),
        ("tokens", "day", 1000), ("searches", "day", 50), ("cost", "day", 1.5),
        ("tokens", "month", 9000), ("searches", "month", 90), ("cost", "month", 9.5),
    ]  # fmt: skip
    january, later = at("2027-01-31 23:59:59"), at("2027-02-01 00:00:00")
    names = [[charge.meter.name for charge in made.charges(now, Used(), frozenset())] for now in (january, later)]
    assert names[0][3:] == [*(f"{unit} day 2027-01-31" for unit in ("tokens", "searches", "cost")),
                            *(f"{unit} month 2027-01" for unit in ("tokens", "searches", "cost"))]  # fmt: skip
    assert names[1][3] == "tokens day 2027-02-01"
    assert names[1][6] == "tokens month 2027-02"
    assert names[0][:3] == names[1][:3]
    assert {charge.meter.owner for charge in made.charges(january, Used(), frozenset())} == {"alice"}


@pytest.mark.parametrize(
    ("now", "span", "seconds"),
    [
        ("2027-01-01 00:00:00", "day", 86_400),
        ("2027-01-01 23:59:59", "day", 1),
        ("2027-01-01 00:00:00", "month", 31 * 86_400),
        ("2027-02-28 23:00:00", "month", 3600),
        ("2028-02-28 23:00:00", "month", 3600 + 86_400),
        ("2027-12-31 23:59:00", "month", 60),
    ],
)
async def test_a_budget_ends_with_its_day_or_month(now: str, span: str, seconds: int) -> None:
    limiter = Limiter(MemoryCounters(), Clock(now))
    key = limits(budget={span: {"tokens": 10}})
    await admitted(limiter, key)
    ended(limiter, "alice", 10)
    refusal = (await admitted(limiter, key)).refusal
    assert refusal is not None
    assert refusal.headers["retry-after"] == str(seconds)
    assert refusal.headers["retry-after-ms"] == str(seconds * 1000)
    assert ("x-should-retry" in refusal.headers) == (seconds > 60)
    assert refusal.error["code"] == "budget_exceeded"


async def test_a_clock_that_jumps_and_comes_back_finds_what_was_counted() -> None:
    clock = Clock("2027-01-15 12:00:00")
    limiter = Limiter(MemoryCounters(), clock)
    key = limits(budget={"day": {"tokens": 10}, "month": {"tokens": 30}}, requests_per_minute=100)
    for _ in range(2):
        await admitted(limiter, key)
        ended(limiter, "alice", 10)
    assert (await admitted(limiter, key)).refusal is not None
    for there, refused in (("2027-01-16 12:00:00", False), ("2027-01-15 12:00:00", True),
                           ("1970-01-01 00:00:00", False), ("2027-01-15 12:00:00", True),
                           ("2099-06-01 00:00:00", False), ("2027-01-15 12:00:00", True)):  # fmt: skip
        clock.now = at(there)
        assert ((await admitted(limiter, key)).refusal is not None) == refused, there
    clock.now = at("2027-01-16 12:00:00")
    ended(limiter, "alice", 10)
    assert (await admitted(limiter, key)).refusal is not None, "the month's was used up on its other days"


async def test_the_limit_that_holds_the_longest_is_told() -> None:
    limiter = Limiter(MemoryCounters(), Clock("2027-01-15 12:00:00"))
    key = limits(requests_per_minute=1, tokens_per_minute=10, budget={"day": {"tokens": 1000}})
    assert (await admitted(limiter, key)).refusal is None
    refusal = (await admitted(limiter, key)).refusal
    assert refusal is not None
    assert "1 requests per minute" in refusal.error["message"]
    ended(limiter, "alice", 1000)
    refusal = (await admitted(limiter, key)).refusal
    assert refusal is not None
    assert "1000 tokens for this day" in refusal.error["message"]


async def test_what_is_refused_is_not_counted() -> None:
    """Else whoever asks too often would never be let in again."""
    limiter = Limiter(MemoryCounters())
    key = limits(requests_per_minute=600)
    standings = [await admitted(limiter, key) for _ in range(5000)]
    assert sum(standing.refusal is None for standing in standings) >= 600
    refusal = standings[-1].refusal
    assert refusal is not None
    await asyncio.sleep(int(refusal.headers["retry-after-ms"]) / 1000)
    assert (await admitted(limiter, key)).refusal is None


async def test_what_an_answer_cost_is_brought_to_the_counters_without_another_request() -> None:
    counters = Noting()
    limiter = Limiter(counters, Clock("2027-01-15 12:00:00"))
    key = limits(tokens_per_minute=100)
    await admitted(limiter, key)
    ended(limiter, "alice", 30)
    ended(limiter, "alice", 12)
    ended(limiter, "nobody", 5)
    await limiter.flush()
    await limiter.flush()
    assert [[charge.owed for charge in charges] for charges in counters.seen] == [[0], [42]]


async def test_who_is_stopped_in_the_middle_still_owes() -> None:
    counters = Noting()
    limiter = Limiter(counters, Clock("2027-01-15 12:00:00"))
    key = limits(tokens_per_minute=100)
    await admitted(limiter, key)
    ended(limiter, "alice", 30)
    counters.stuck = True
    asking = asyncio.create_task(limiter.admit(key, "POST", CHAT))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    counters.stuck = False
    await limiter.flush()
    assert counters.seen[-1][0].owed == 30


class Noting(MemoryCounters):
    """Counters that keep what they were handed, or never answer."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sequence[Charge]] = []
        self.stuck = False

    async def charge(self, charges: Sequence[Charge]) -> Charged:
        self.seen.append(charges)
        if self.stuck:
            await asyncio.Event().wait()
        return await super().charge(charges)


@pytest.mark.parametrize(
    ("path", "refused"),
    [(CHAT, True), ("/v1/embeddings", True), ("/v1/search", False), ("/v1/open", False), ("/v1/alpha/search", False)],
)
async def test_without_tokens_the_tools_still_work(path: str, refused: bool) -> None:
    limiter = Limiter(MemoryCounters(), Clock("2027-01-15 12:00:00"))
    key = limits(budget={"day": {"tokens": 1}})
    await admitted(limiter, key)
    ended(limiter, "alice", 5)
    assert ((await admitted(limiter, key, path)).refusal is not None) == refused


async def test_searches_that_are_overdrawn_stop_no_answer() -> None:
    limiter = Limiter(MemoryCounters(), Clock("2027-01-15 12:00:00"))
    key = limits(searches_per_minute=2, budget={"day": {"searches": 3}})
    await admitted(limiter, key)
    request = Observer([limiter])
    request.caller = "alice"
    for _ in range(5):
        request.tell(ProviderCall("web", "search", "ok", cached=False, seconds=0.1))
    request.end()
    standing = await admitted(limiter, key)
    assert (standing.refusal, standing.searches_left) == (None, 0)
    assert (await admitted(limiter, key, "/v1/search")).refusal is not None
    assert (await admitted(limiter, key, "/v1/open")).refusal is None
    assert (await admitted(limiter, key, "/v1/alpha/search")).refusal is None, "its model is told in words"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/v1/groundwire/usage", "/metrics"])
async def test_what_costs_nothing(path: str) -> None:
    limiter = Limiter(MemoryCounters())
    assert [await limiter.admit(limits(requests_per_minute=1), "GET", path) for _ in range(3)] == [None] * 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (5.2, "6s"),
        (60, "1m0s"),
        (89.5, "1m30s"),
        (7200, "2h0m0s"),
    ],
)
def test_times_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(0, 10**7))
@settings(deadline=None)
def test_a_time_is_never_shorter_than_it_is(seconds: float) -> None:
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    parts = re.findall(r"(\d+)(ms|[hms])", duration(seconds))
    said = sum(int(number) * units[unit] for number, unit in parts)
    assert seconds - 1e-6 <= said <= seconds + 1

"""Cool-down: who is left alone for how long, the one probe that brings it back, and storms that cost one call."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from providers import errors
from providers.base import SearchQuery
from providers.chain import AllFailed, Failure, ReadChain, SearchChain
from providers.cooldown import GROWTH, LONGEST, Breaker, Cooldown, CoolingDown, Resting
from providers.gateway import ProviderGateway
from providers.registry import NamedProvider
from providers.settings import CooldownSettings
from tests.fakes.clock import leaping
from tests.fakes.providers import Engine, Gate, until

QUERY = SearchQuery("q")
URL = "https://example.org/"
SOON = 0.25
BRIEF = CooldownSettings(rate_limited=SOON, auth_failed=SOON, quota_exceeded=SOON, unavailable=SOON, failures=1)
LONG = CooldownSettings(rate_limited=60, auth_failed=600, quota_exceeded=3600, unavailable=2, failures=3)

COOLING = [errors.RateLimited("slow down"), errors.AuthFailed("no key"), errors.QuotaExceeded("used up")]
TROUBLE = [errors.TimedOut("late"), errors.Unavailable("down")]
HARMLESS = [
    errors.NoResults("nothing"),
    errors.PageBlocked("a wall"),
    errors.BadRequest("bad"),
    errors.NotAllowed("no"),
]


async def attempt(chain: SearchChain) -> str:
    """Who served, or why nobody did."""
    try:
        return (await chain.search(QUERY)).provider
    except errors.ProviderError as error:
        return str(error)


# The machine


def trip(breaker: Breaker, now: float, seconds: float = 10, tolerance: int = 1) -> float:
    assert not breaker.refusal(now)
    return breaker.failed(breaker.begin(), "It is down.", now, seconds, tolerance)


def test_a_breaker_refuses_until_the_time_is_over() -> None:
    breaker = Breaker()
    assert trip(breaker, now=100) == 10
    assert breaker.refusal(100) == "cooling down for another 10 s (It is down)"
    assert breaker.refusal(109.5) == "cooling down for another 1 s (It is down)"
    assert breaker.refusal(110) == ""


def test_a_breaker_says_why_and_for_how_long_it_rests() -> None:
    breaker = Breaker()
    assert breaker.resting(100) is None
    trip(breaker, now=100)
    assert breaker.resting(104) == Resting("It is down", 6)
    assert breaker.resting(110) is None


async def test_a_provider_rests_for_the_longest_time_that_any_of_its_work_does() -> None:
    gateway = ProviderGateway(LONG, clock=lambda: 50.0)
    assert gateway.resting("a") is None
    engine = Engine(errors.Unavailable("down", retry_after=7))
    await attempt(SearchChain([engine.named()], gateway=gateway))
    assert gateway.resting("a") == Resting("down", 7)
    engine.outcome = errors.AuthFailed("no key")
    with pytest.raises(errors.ProviderError):
        await ReadChain([engine.named()], gateway=gateway).read(URL)
    assert gateway.resting("a") == Resting("no key", 600)
    assert gateway.resting("b") is None


def test_one_probe_and_no_other_until_it_is_back() -> None:
    breaker = Breaker()
    trip(breaker, now=0)
    probe = breaker.begin()
    assert "another call is finding out" in breaker.refusal(11)
    breaker.succeeded(probe)
    assert breaker.refusal(11) == ""
    breaker.begin()
    assert breaker.refusal(11) == ""


def test_a_probe_that_leaves_makes_room_for_the_next() -> None:
    breaker = Breaker()
    trip(breaker, now=0)
    probe = breaker.begin()
    breaker.left(probe)
    assert breaker.refusal(11) == ""


def test_failed_probes_cool_longer_up_to_a_limit_and_a_success_forgets() -> None:
    breaker, now, cooled = Breaker(), 0.0, []
    for _ in range(8):
        cooled.append(trip(breaker, now, seconds=2))
        now += cooled[-1]
    assert cooled == [2 * times for times in (*GROWTH, GROWTH[-1], GROWTH[-1])] == [2, 4, 8, 16, 32, 60, 60, 60]
    breaker.succeeded(breaker.begin())
    assert trip(breaker, now, seconds=2) == 2


def test_a_time_that_the_service_named_holds_as_it_is() -> None:
    breaker, now = Breaker(), 0.0
    for _ in range(4):
        now += 30
        assert breaker.failed(breaker.begin(), "slow down", now, 2, told=30) == 30
    assert [breaker.failed(breaker.begin(), "down", now + 30, 2) for _ in range(2)] == [2, 4]


def test_no_cool_down_is_endless() -> None:
    assert trip(Breaker(), now=0, seconds=1e9) == LONGEST
    assert Breaker().failed(0, "down", 0, 2, told=1e9) == LONGEST


def test_failures_in_a_row_are_tolerated_but_not_from_a_probe() -> None:
    breaker = Breaker()
    assert [trip(breaker, 0, tolerance=3) for _ in range(3)] == [0, 0, 10]
    assert trip(breaker, 10, tolerance=3) == 20
    breaker.succeeded(breaker.begin())
    assert [trip(breaker, 40, tolerance=3) for _ in range(2)] == [0, 0]
    breaker.succeeded(breaker.begin())
    assert [trip(breaker, 40, tolerance=3) for _ in range(2)] == [0, 0]


def test_calls_under_way_when_it_trips_have_no_say() -> None:
    breaker = Breaker()
    calls = [breaker.begin() for _ in range(50)]
    assert [breaker.failed(call, "down", 0, 10) for call in calls] == [10] + [0] * 49
    late = breaker.begin()
    assert breaker.failed(late, "down", 10, 10) == 20
    breaker.succeeded(calls[0])
    breaker.left(calls[0])
    assert breaker.refusal(29)


# What cools down whom


def stands(cooldown: Cooldown, role: Any) -> bool:
    try:
        cooldown.check(role)
    except CoolingDown:
        return False
    return True


def suffer(cooldown: Cooldown, error: errors.ProviderError, role: Any = "search") -> None:
    with pytest.raises(type(error)), cooldown.watch(role):
        raise error


@pytest.mark.parametrize("error", COOLING, ids=lambda error: type(error).__name__)
def test_the_account_is_one_for_both_roles(error: errors.ProviderError) -> None:
    cooldown = Cooldown("a", LONG)
    suffer(cooldown, error)
    assert (stands(cooldown, "search"), stands(cooldown, "read")) == (False, False)


@pytest.mark.parametrize("error", TROUBLE, ids=lambda error: type(error).__name__)
def test_trouble_is_of_one_role_and_takes_several_in_a_row(error: errors.ProviderError) -> None:
    cooldown = Cooldown("a", LONG)
    for _ in range(2):
        suffer(cooldown, error)
    assert stands(cooldown, "search")
    with cooldown.watch("search"):
        pass
    for _ in range(3):
        assert stands(cooldown, "search")
        suffer(cooldown, error)
    assert (stands(cooldown, "search"), stands(cooldown, "read")) == (False, True)


@pytest.mark.parametrize("error", HARMLESS, ids=lambda error: type(error).__name__)
def test_what_is_the_requests_own_fault_cools_nobody(error: errors.ProviderError) -> None:
    cooldown = Cooldown("a", BRIEF)
    for _ in range(5):
        suffer(cooldown, error)
    assert stands(cooldown, "search")


@pytest.mark.parametrize("error", TROUBLE, ids=lambda error: type(error).__name__)
def test_dead_pages_are_not_the_fault_of_who_dials_them(error: errors.ProviderError) -> None:
    dialler, service = Cooldown("direct", LONG, reads_itself=True), Cooldown("jina", LONG)
    for _ in range(3):
        suffer(dialler, error, "read")
        suffer(service, error, "read")
    assert (stands(dialler, "read"), stands(service, "read")) == (True, False)
    for _ in range(3):
        suffer(dialler, error, "search")
    assert not stands(dialler, "search")


def test_readers_that_dial_or_own_pages_are_known_by_what_they_have() -> None:
    assert Engine(uses_open_web=True).named().reads_itself
    assert Engine(owns=lambda url: False).named().reads_itself
    assert not Engine().named().reads_itself
    assert (Engine(hosted=True).named().hosted, Engine().named().hosted) == (True, False)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (errors.RateLimited("x", retry_after=7), "7"),
        (errors.RateLimited("x"), "60"),
        (errors.RateLimited("x", retry_after=0), "60"),
        (errors.AuthFailed("x"), "600"),
        (errors.QuotaExceeded("x"), "3600"),
        (errors.QuotaExceeded("x", retry_after=1e9), "86400"),
        (errors.Unavailable("x", retry_after=30), "30"),
    ],
)
def test_the_errors_own_time_counts_else_that_of_its_kind(error: errors.ProviderError, seconds: str) -> None:
    cooldown = Cooldown("a", LONG)
    suffer(cooldown, error)
    with pytest.raises(CoolingDown, match=rf"^cooling down for another {seconds} s \(x\)$"):
        cooldown.check("search")


def test_the_operator_hears_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    cooldown = Cooldown("tavily", LONG)
    with caplog.at_level(logging.WARNING):
        suffer(cooldown, errors.AuthFailed("Tavily refused the key"))
    assert [record.message for record in caplog.records] == [
        "provider tavily cools down for 600 s: Tavily refused the key"
    ]


# In the chain, in a time that leaps


def gateway(settings: CooldownSettings) -> ProviderGateway:
    return ProviderGateway(settings, clock=lambda: asyncio.get_running_loop().time())


@pytest.mark.parametrize("error", COOLING + TROUBLE, ids=lambda error: type(error).__name__)
@leaping
async def test_a_provider_that_cools_down_is_skipped_at_once_and_comes_back(error: errors.ProviderError) -> None:
    first, second = Engine(error), Engine()
    chain = SearchChain([first.named("a"), second.named("b")], gateway=gateway(BRIEF))
    assert (await chain.search(QUERY)).failures == (Failure("a", str(error)),)
    skipped = await chain.search(QUERY)
    assert skipped.failures == (Failure("a", f"cooling down for another 1 s ({error})"),)
    assert len(first.asked) == 1
    first.outcome = None
    await asyncio.sleep(SOON * 1.2)
    assert [await attempt(chain) for _ in range(2)] == ["a", "a"]
    assert len(first.asked) == 3


@leaping
async def test_when_all_cool_down_the_answer_comes_at_once_and_says_why() -> None:
    engines = [Engine(errors.RateLimited("slow down", retry_after=40)), Engine(errors.AuthFailed("no key"))]
    chain = SearchChain([engine.named(name) for name, engine in zip("ab", engines, strict=True)], gateway=gateway(LONG))
    await attempt(chain)
    async with asyncio.timeout(1):
        with pytest.raises(AllFailed) as caught:
            await chain.search(QUERY)
    assert str(caught.value) == (
        "No search provider had an answer (a: cooling down for another 40 s (slow down); "
        "b: cooling down for another 600 s (no key))."
    )
    assert [len(engine.asked) for engine in engines] == [1, 1]


@leaping
async def test_exactly_one_probe_goes_through_and_the_others_go_on() -> None:
    gate = Gate()
    first, second = Engine(errors.RateLimited("slow down")), Engine()
    chain = SearchChain([first.named("a"), second.named("b")], gateway=gateway(BRIEF))
    await attempt(chain)
    await asyncio.sleep(SOON * 1.2)
    first.outcome = gate
    queries = [asyncio.create_task(chain.search(SearchQuery(f"q{at}"))) for at in range(50)]
    await until(lambda: sum(task.done() for task in queries) == 49)
    assert len(first.asked) == 2
    gate.open()
    found = await asyncio.gather(*queries)
    assert [one.provider for one in found].count("a") == 1
    assert sum("another call is finding out" in one.failures[0].reason for one in found if one.failures) == 49
    assert await attempt(chain) == "a"


@leaping
async def test_a_failed_probe_cools_longer() -> None:
    engine = Engine(errors.Unavailable("down"))
    chain = SearchChain([engine.named()], gateway=gateway(BRIEF.model_copy(update={"unavailable": 0.3})))
    await attempt(chain)
    await asyncio.sleep(0.33)
    await attempt(chain)
    await asyncio.sleep(0.33)
    assert "cooling down" in await attempt(chain)
    assert len(engine.asked) == 2
    await asyncio.sleep(0.33)
    await attempt(chain)
    assert len(engine.asked) == 3


@leaping
async def test_a_cancelled_probe_leaves_the_next_call_to_try() -> None:
    engine = Engine(errors.RateLimited("slow down"))
    chain = SearchChain([engine.named()], gateway=gateway(BRIEF))
    await attempt(chain)
    await asyncio.sleep(SOON * 1.2)
    engine.outcome = Gate()
    probe = asyncio.create_task(attempt(chain))
    await until(lambda: len(engine.asked) == 2)
    probe.cancel()
    await asyncio.wait([probe])
    engine.outcome = None
    assert await attempt(chain) == "a"


@leaping
async def test_a_storm_is_over_with_its_first_failure() -> None:
    gate = Gate(errors.RateLimited("slow down"))
    first, second = Engine(gate), Engine()
    chain = SearchChain([first.named("a", concurrency=3), second.named("b")], gateway=gateway(LONG))
    queries = [asyncio.create_task(chain.search(SearchQuery(f"q{at}"))) for at in range(100)]
    await until(lambda: len(first.asked) == 3)
    gate.open()
    found = await asyncio.gather(*queries)
    assert {one.provider for one in found} == {"b"}
    assert len(first.asked) == 3  # those who waited for their turn saw what had happened
    assert sum("cooling down for another 60 s" in one.failures[0].reason for one in found) == 97


@leaping
async def test_search_and_read_of_one_provider_share_what_is_shared() -> None:
    engine = Engine(errors.QuotaExceeded("used up"))
    shared = gateway(LONG)
    members = [engine.named()]
    await attempt(SearchChain(members, gateway=shared))
    with pytest.raises(AllFailed, match="cooling down for another 3600 s"):
        await ReadChain(members, gateway=shared).read(URL)
    assert len(engine.asked) == 1


@leaping
async def test_a_private_provider_that_cools_down_sends_nobody_to_a_public_one() -> None:
    private, public = Engine(errors.RateLimited("slow down")), Engine()
    chain = SearchChain([private.named("p", private=True), public.named("w")], gateway=gateway(LONG))
    await attempt(chain)
    assert "a private provider came first" in await attempt(chain)
    assert not public.asked


@leaping
async def test_a_queue_of_our_own_making_cools_nobody_down() -> None:
    engine = Engine(timeout=0.05)
    chain = SearchChain([NamedProvider("a", "test", engine, limits=engine.named(rate=2).limits)], gateway=gateway(LONG))
    assert [await attempt(chain) for _ in range(2)] == ["a", "a"]
    assert "too many calls are waiting" in await attempt(chain)
    await asyncio.sleep(1)
    assert await attempt(chain) == "a"

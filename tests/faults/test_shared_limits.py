"""Limits and what is stored, in a Redis that many processes share: they hold one limit together, go on alone while it
is down or slow, and find nothing in what others wrote there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.e2e.test_many_processes import OURS_LEFT_OUT, mixed
from tests.e2e.test_mixed_turns import ASKED, last_read, ran
from tests.e2e.test_mixed_turns import USER as ASKED_READ
from tests.e2e.test_mixed_turns import ask as ask_in_turns
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.faults.asking import ask
from tests.faults.table import BOTH, FORWARDED, SEARCHED, fault

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

ALONE = "limits: Redis cannot be asked, so this process counts alone until it is back"
KEYS: list[dict[str, Any]] = [
    {"key": "sk-canary-free", "name": "free"},
    {"key": "sk-canary-other", "name": "other"},
    {"key": "sk-canary-admin", "name": "root", "admin": True},
    *(
        {"key": f"sk-canary-{name}-{road}", "name": f"{name}-{road}", "requests_per_minute": most}
        for name, most in (("many", 12), ("down", 4), ("slow", 2))
        for road in BOTH
    ),
    {"key": "sk-canary-daily", "name": "daily", "budget": {"day": {"tokens": 40}}},
]


class Pair:
    """Two processes that share a Redis."""

    def __init__(self, config: dict[str, Any], redis: RedisServer) -> None:
        self.redis = redis
        self.processes = tuple(Groundwire({**config, "server": {"keys": KEYS}, "store": redis.url}) for _ in range(2))


@pytest.fixture(scope="module")
def pair(config: dict[str, Any]) -> Iterator[Pair]:
    with RedisServer() as redis:
        pair = Pair(config, redis)
        one, two = pair.processes
        with one, two:
            yield pair


def as_who(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-canary-{name}"}


def statuses(proxy: Groundwire, road: str, name: str, times: int) -> list[int]:
    return [ask(proxy, road, headers=as_who(name), timeout=30).status_code for _ in range(times)]


def is_sure(proxy: Groundwire) -> bool:
    """Does it count with Redis again?"""
    asked = httpx.get(f"{proxy.url}/groundwire/usage", headers=as_who("admin"), timeout=30)
    return bool(asked.json()["complete"])


def back(pair: Pair) -> None:
    end = time.monotonic() + 30
    while not all(map(is_sure, pair.processes)):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("road", BOTH)
def test_many_processes_hold_one_limit_together(pair: Pair, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    name = f"many-{road}"
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(statuses, proxy, road, name, 1) for proxy in pair.processes * 15]
        seen = [status for future in asked for status in future.result()]
    refilled = 1 + int((time.monotonic() - began) * 12 / 60)
    assert set(seen) == {200, 429}
    assert 12 <= seen.count(200) <= 12 + refilled


def test_a_budget_is_used_up_in_all_processes(pair: Pair, model: ModelServer) -> None:
    """Every answer takes 15 tokens; one may overshoot. What one process has counted is brought to Redis in a second."""
    model.script(text("Blue."))
    one, two = pair.processes
    assert statuses(one, SEARCHED, "daily", 2) == [200, 200]
    end = time.monotonic() + 20
    seen = 200
    while seen == 200 and time.monotonic() < end:
        seen = ask(two, FORWARDED, headers=as_who("daily"), timeout=30).status_code
    assert seen == 429
    while ask(one, SEARCHED, headers=as_who("daily"), timeout=30).status_code == 200:
        assert time.monotonic() < end


def test_what_all_processes_used_is_one_sum(pair: Pair, model: ModelServer) -> None:
    model.script(text("Blue."))
    for proxy in pair.processes:
        assert statuses(proxy, SEARCHED, "other", 2) == [200, 200]

    def used(proxy: Groundwire) -> int:
        answer = httpx.get(f"{proxy.url}/groundwire/usage?key=other", headers=as_who("admin"), timeout=30).json()
        return sum(row["requests"] for row in answer["data"])

    end = time.monotonic() + 20
    while [used(proxy) for proxy in pair.processes] != [4, 4]:
        assert time.monotonic() < end
        time.sleep(0.05)


@fault(79, *BOTH)
def test_while_redis_is_down_each_process_counts_alone_and_says_so(pair: Pair, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    one, two = pair.processes
    before = one.log.read_text().count(ALONE)
    pair.redis.kill()
    try:
        for proxy in (one, two):
            assert statuses(proxy, road, "free", 2) == [200, 200]
            seen = statuses(proxy, road, f"down-{road}", 8)
            assert seen[:4] == [200] * 4
            assert 429 in seen
        assert one.log.read_text().count(ALONE) == before + 1
    finally:
        pair.redis.start()
    back(pair)
    assert "canary" not in one.log.read_text()


@fault(79, *BOTH)
def test_while_redis_is_slow_answers_come_and_limits_hold(pair: Pair, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    back(pair)
    one, _ = pair.processes
    pair.redis.freeze()
    try:
        began = time.monotonic()
        assert statuses(one, road, f"slow-{road}", 2) == [200, 200]
        assert time.monotonic() - began < 20, "the first one waits for Redis, for two seconds, and no other one"
        assert 429 in statuses(one, road, f"slow-{road}", 4)
    finally:
        pair.redis.thaw()
    back(pair)


@fault(80)
def test_what_is_broken_in_redis_is_not_found_and_nobody_is_hurt(pair: Pair, model: ModelServer) -> None:
    back(pair)
    one, two = pair.processes
    key = "sk-canary-free"
    for rubbish in (("SET", b"\x02broken"), ("SET", b"\x7fof another version"), ("SET", b""), ("HSET", b"kind")):
        seen = mixed(one, model, key)
        statuses(one, SEARCHED, "down-searched", 1)
        for name in pair.redis.names():
            pair.redis.ask("DEL", name)
            pair.redis.ask(rubbish[0], name, *rubbish[1:], *([b"another"] if rubbish[0] == "HSET" else []))
        model.script(text("Done."))
        done = ask_in_turns(two, [ASKED, seen.message, *ran(seen)], key=key)
        assert done.message["content"] == "Done."
        assert last_read(model) == [ASKED_READ, *OURS_LEFT_OUT]
        assert ask(two, SEARCHED, headers=as_who("down-forwarded"), timeout=30).status_code in (200, 429)
        assert httpx.get(f"{two.url}/groundwire/usage", headers=as_who("admin"), timeout=30).status_code == 200
        pair.redis.ask("FLUSHALL")


@fault(80)
def test_what_is_stored_for_one_caller_is_not_found_by_another(pair: Pair, model: ModelServer) -> None:
    back(pair)
    one, two = pair.processes
    seen = mixed(one, model, "sk-canary-free")
    ask_in_turns(two, [ASKED, seen.message, *ran(seen)], key="sk-canary-other")
    assert last_read(model) == [ASKED_READ, *OURS_LEFT_OUT]
    model.script(text("Blue."))
    made = httpx.post(f"{one.url}/responses", json={"model": "m", "input": "?"}, headers=as_who("free"), timeout=30)
    place = f"{two.url}/responses/{made.json()['id']}"
    assert [httpx.get(place, headers=as_who(name), timeout=30).status_code for name in ("free", "other")] == [200, 404]
    assert not [name for name in pair.redis.names() if "canary" in name or made.json()["id"] in name]
    assert json.dumps(made.json())

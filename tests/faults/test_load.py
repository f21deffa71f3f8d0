"""More than the process can serve, one caller that wants it all, a process that stands still, and one that is killed:
rows 75 to 78. How quick answers stay is measured by `make load`; here it is what becomes of each request.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.held_streams import HELD, HELD_TURN, held, waiting
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.fakes.samples import Samples
from tests.faults.asking import QUESTION, ask, error_of, road_headers
from tests.faults.outcomes import outcome
from tests.faults.table import BOTH, fault

ALICE, BOB = ({"authorization": f"Bearer gw-key-of-{name}"} for name in ("alice", "bob"))
KEYS = [
    {"key": "gw-key-of-alice", "name": "alice", "concurrency": 2},
    {"key": "gw-key-of-bob", "name": "bob", "admin": True},
]


@pytest.fixture(autouse=True)
def _parts(model: ModelServer) -> None:
    model.part(HELD, HELD_TURN)
    model.part("m", text("Blue."))
    model.part("slow", text(*["word "] * 40, delay=0.05))


@pytest.fixture(scope="module")
def limited(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"max_requests": 2, "queue": 0.1}}) as running:
        yield running


@pytest.fixture(scope="module")
def patient(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"max_requests": 2, "queue": 60}}) as running:
        yield running


@pytest.fixture(scope="module")
def shared(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": KEYS, "queue": 0.1}}) as running:
        yield running


def assert_comes_back(answer: httpx.Response) -> None:
    """It says when to ask again, in the two forms that SDKs read, and that asking again is worth it."""
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert 500 <= int(answer.headers["retry-after-ms"]) <= 10_000
    assert "x-should-retry" not in answer.headers


# More than it can carry


@fault(76, *BOTH)
def test_who_finds_no_place_is_told_to_come_back(limited: Groundwire, road: str) -> None:
    with held(limited, 2, road_headers(road)):
        answer = ask(limited, road)
        assert answer.status_code == 503
        assert error_of(answer)["code"] == "overloaded"
        assert_comes_back(answer)
        assert outcome(limited, answer) == "overloaded"
        asked = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        answer = httpx.post(f"{limited.url}/messages", json=asked, timeout=20)
        assert (answer.status_code, answer.json()["error"]["type"]) == (529, "overloaded_error")
        assert_comes_back(answer)
        for path in ("healthz", "readyz", "metrics"):
            assert httpx.get(f"{limited.root}/{path}", timeout=20).status_code == 200
    assert eventually(lambda: ask(limited, road).status_code == 200)
    shed = Samples(httpx.get(f"{limited.root}/metrics", timeout=20).content)
    assert shed("groundwire_shed_total", reason="server") >= 1


@fault(76, *BOTH)
def test_who_waits_is_served_when_a_place_is_free_with_all_that_it_sent(
    patient: Groundwire, model: ModelServer, road: str
) -> None:
    long = {"role": "user", "content": "Why? " * 60_000}
    answers: list[httpx.Response] = []
    with held(patient, 2, road_headers(road)) as streams:
        asking = threading.Thread(target=lambda: answers.append(ask(patient, road, messages=[long])))
        asking.start()
        eventually(lambda: waiting(patient) == 1)
        assert not answers
        streams[0].close()
        asking.join(20)
    assert answers[0].status_code == 200
    assert model.asked["m"][-1]["messages"] == [long]
    assert outcome(patient, answers[0]) == "ok"
    assert waiting(patient) == 0


@fault(76, *BOTH)
def test_who_leaves_while_it_waits_waits_no_more(patient: Groundwire, model: ModelServer, road: str) -> None:
    def given_up() -> list[str]:
        lines = patient.log.read_text().splitlines()
        return [line for line in lines if " 400 " in line and " queued=" in line and " outcome=client_left " in line]

    before = len(given_up())
    with held(patient, 2, road_headers(road)):
        with pytest.raises(httpx.ReadTimeout):
            ask(patient, road, timeout=1)
        eventually(lambda: waiting(patient) == 0)
        eventually(lambda: len(given_up()) == before + 1)
    assert model.asked["m"] == []


# One caller that wants it all


@fault(77, *BOTH)
def test_one_keys_requests_keep_nobody_elses_waiting(shared: Groundwire, road: str) -> None:
    with held(shared, 2, {**road_headers(road), **ALICE}):
        own = ask(shared, road, headers=ALICE)
        assert own.status_code == 429
        assert error_of(own) == {
            "message": "This key may have 2 requests under way at once: wait until one of them has ended.",
            "type": "rate_limit_error",
            "param": None,
            "code": "too_many_requests",
        }
        assert_comes_back(own)
        assert outcome(shared, own) == "too_many_requests"
        for _ in range(5):
            assert ask(shared, road, headers=BOB).status_code == 200
    assert eventually(lambda: ask(shared, road, headers=ALICE).status_code == 200)
    shed = Samples(httpx.get(f"{shared.root}/metrics", headers=BOB, timeout=20).content)
    assert shed("groundwire_shed_total", reason="key") >= 1


# A process that stands still, and one that is gone


@fault(78, *BOTH)
def test_that_the_loop_stood_still_is_measured_and_streams_go_on(proxy: Groundwire, road: str) -> None:
    assert proxy.process is not None

    def long_lags() -> float:
        samples = Samples(httpx.get(f"{proxy.root}/metrics", timeout=20).content)
        name = "groundwire_loop_lag_seconds"
        return samples(f"{name}_count") - samples(f"{name}_bucket", le="0.5")

    before = long_lags()
    body = {"model": "slow", "messages": [QUESTION], "stream": True}
    with httpx.stream(
        "POST", f"{proxy.url}/chat/completions", json=body, headers=road_headers(road), timeout=20
    ) as answer:
        pieces = answer.iter_text()
        said = next(pieces)
        os.kill(proxy.process.pid, signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(proxy.process.pid, signal.SIGCONT)
        said += "".join(pieces)
    assert said.count("word ") == 40
    assert said.endswith("data: [DONE]\n\n")
    eventually(lambda: long_lags() > before)
    assert outcome(proxy, answer) == "ok"


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@fault(75, *BOTH)
def test_of_two_processes_one_is_killed_and_the_other_goes_on(config: dict[str, Any], road: str) -> None:
    with RedisServer() as redis, Groundwire({**config, "store": redis.url}) as other:
        with Groundwire({**config, "store": redis.url}) as killed:
            kept = httpx.post(f"{killed.url}/responses", json={"model": "m", "input": "Why?"}, timeout=20).json()
            statuses: list[int] = []
            ended = threading.Event()

            def go_on_asking() -> None:
                while not ended.is_set():
                    statuses.append(ask(other, road).status_code)

            asking = [threading.Thread(target=go_on_asking) for _ in range(4)]
            for thread in asking:
                thread.start()
            eventually(lambda: len(statuses) > 4)
            assert killed.process is not None
            killed.process.kill()
            killed.process.wait(10)
            seen = len(statuses)
            eventually(lambda: len(statuses) > seen + 8)
            ended.set()
            for thread in asking:
                thread.join(20)
        assert set(statuses) == {200}
        more = {"model": "m", "input": "And then?", "previous_response_id": kept["id"]}
        assert httpx.post(f"{other.url}/responses", json=more, timeout=20).status_code == 200

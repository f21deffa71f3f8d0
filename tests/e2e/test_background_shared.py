"""Responses that are made in the background by one of two processes on one real Redis: the other one reads, follows and
cancels them as if they were its own, sees when the first one died, and nobody hangs while Redis is away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from proxy.store.store import name_of
from tests.e2e.test_background import (
    DELTA,
    HELD,
    RUNNING,
    begin,
    cancel,
    check_cancelled,
    delete,
    ended,
    eventually,
    followed,
    get,
    heard,
    listening,
)
from tests.e2e.test_many_processes import Pair, soon
from tests.e2e.test_responses import LINK, SEARCH, error_of, post
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import Groundwire
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.unit.responses_scripts import text_of

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

SEARCHING = Turn(calls=[("a", "web_search", {"query": "sky"})])


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def pair(config: dict[str, Any], redis: RedisServer) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair({**config, "server": {"lame_duck": 0}}, redis, stack)


def test_it_is_followed_live_from_elsewhere(pair: Pair, model: ModelServer) -> None:
    gate = Gate()
    model.script(SEARCH, gate.turn(["Blue "], ["[1]."]))
    id_ = begin(pair.one)["id"]
    with listening(pair.two, id_) as sent:
        assert heard(sent, "response.created")["sequence_number"] == 0
        number = heard(sent, DELTA)["sequence_number"]
        assert get(pair.two, id_).json()["status"] == "in_progress"
        with listening(pair.two, id_, starting_after=number) as later:
            gate.open()
            assert next(later)["sequence_number"] == number + 1
        whole = heard(sent, "response.completed")["response"]
    assert text_of(whole) == f"Blue {LINK}."
    assert get(pair.two, id_).json() == get(pair.one, id_).json() == whole


def test_it_is_taken_up_elsewhere_after_every_event(pair: Pair, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue", " 😀 ", "[1]", ".\n\n", "Yes."))
    id_ = begin(pair.one)["id"]
    ended(pair.two, id_)
    whole = followed(pair.one, id_)
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    for number in range(len(whole)):
        assert followed(pair.two, id_, number) == whole[number + 1 :]


def test_a_conversation_goes_on_elsewhere(pair: Pair, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(pair.one)["id"]
    refused = post(pair.two, "Sure?", previous_response_id=id_)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "response_not_finished")
    cancel(pair.two, id_)
    model.script(SEARCH, text("Blue [1]."), text("Yes [1]."))
    one = ended(pair.two, begin(pair.one)["id"])
    two = ended(pair.one, begin(pair.two, "Sure?", previous_response_id=one["id"])["id"])
    assert text_of(two) == f"Yes {LINK}."


def test_it_is_cancelled_from_elsewhere_while_it_writes(pair: Pair, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(pair.one)["id"]
    with listening(pair.one, id_) as sent:
        heard(sent, DELTA)
        response = check_cancelled(pair.two, id_)
        assert model.left.wait(10)
        assert heard(sent, "response.incomplete")["response"] == response
    assert get(pair.one, id_).json() == response


def test_it_is_deleted_from_elsewhere_while_it_writes(pair: Pair, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(pair.one)["id"]
    with listening(pair.two, id_) as sent:
        heard(sent, DELTA)
        assert delete(pair.two, id_).status_code == 200
    assert model.left.wait(10)
    for proxy in (pair.one, pair.two):
        assert get(proxy, id_).status_code == get(proxy, id_, stream="true").status_code == 404


def test_it_is_cancelled_from_elsewhere_while_it_searches(
    config: dict[str, Any], redis: RedisServer, pair: Pair, model: ModelServer
) -> None:
    with HeldSearch() as engine:
        providers = [{"name": "held", "type": "searxng", "base_url": engine.url, "timeout": 60}]
        with Groundwire({**config, "providers": providers, "store": redis.url}) as third:
            model.script(SEARCHING)
            id_ = begin(third)["id"]
            assert engine.asked.acquire(timeout=10)
            check_cancelled(pair.two, id_)
            assert engine.left.acquire(timeout=10)


def test_a_process_that_dies_leaves_a_failure(
    config: dict[str, Any], redis: RedisServer, pair: Pair, model: ModelServer
) -> None:
    """Its lease runs out by itself; here it is taken away, as nobody wants to wait."""
    with Groundwire({**config, "store": redis.url}) as third:
        model.script(HELD)
        id_ = begin(third)["id"]
        with listening(pair.one, id_) as sent:
            number = heard(sent, DELTA)["sequence_number"]
            assert third.process is not None
            third.process.kill()
            third.process.wait(10)
            assert get(pair.two, id_).json()["status"] in RUNNING
            life = int(redis.ask("PTTL", name_of("lease", "", id_)).removeprefix(b":"))
            assert 0 < life <= 60_000
            assert redis.ask("DEL", name_of("lease", "", id_)) == b":1"
            failed = get(pair.two, id_).json()
            assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
            assert "stopped before it was done" in failed["error"]["message"]
            assert heard(sent, "error")["error"] == {**failed["error"], "param": None}
            assert heard(sent, "response.failed")["response"] == failed
            assert next(sent, None) is None
    assert get(pair.one, id_).json() == failed
    assert cancel(pair.one, id_).json() == failed
    after = followed(pair.two, id_, number)
    assert [event["sequence_number"] for event in after] == list(range(number + 1, number + 1 + len(after)))
    check_that_a_lost_end_is_told(pair, id_)


def check_that_a_lost_end_is_told(pair: Pair, id_: str) -> None:
    """The response has ended, its events have not, and nobody is left to write more of them."""
    assert pair.redis.ask("LTRIM", name_of("journal", "", id_), "0", "-3") == b"+OK"
    pair.redis.ask("DEL", name_of("lease", "", id_))
    with listening(pair.two, id_) as sent:
        heard(sent, DELTA)
        *_, last = sent
    assert last["error"]["code"] == "events_not_kept"


def test_a_process_that_stands_still_is_not_waited_for(
    config: dict[str, Any], redis: RedisServer, pair: Pair, model: ModelServer
) -> None:
    """It is cancelled over its head, and when it goes on it hears so."""
    with Groundwire({**config, "store": redis.url}) as third:
        model.script(HELD)
        id_ = begin(third)["id"]
        with listening(pair.one, id_) as sent:
            heard(sent, DELTA)
            assert third.process is not None
            third.process.send_signal(signal.SIGSTOP)
            try:
                assert cancel(pair.two, id_).json()["status"] == "cancelled"
                assert heard(sent, "response.incomplete")["response"]["status"] == "cancelled"
                assert next(sent, None) is None
                assert not model.left.is_set()
            finally:
                third.process.send_signal(signal.SIGCONT)
        assert model.left.wait(15)
        assert get(third, id_).json()["status"] == get(pair.two, id_).json()["status"] == "cancelled"
        ends = [event["type"] for event in followed(pair.two, id_) if event["type"] == "response.incomplete"]
        assert ends == ["response.incomplete"]


def test_what_the_drain_leaves_is_known_elsewhere(
    config: dict[str, Any], redis: RedisServer, pair: Pair, model: ModelServer
) -> None:
    server = {"lame_duck": 0, "drain_timeout": 0.2}
    with Groundwire({**config, "store": redis.url, "server": server}) as third:
        model.script(HELD)
        id_ = begin(third)["id"]
        with listening(pair.one, id_) as sent:
            heard(sent, DELTA)
            assert third.process is not None
            third.process.terminate()
            assert heard(sent, "response.failed")["response"]["error"]["code"] == "shutting_down"
        assert third.process.wait(10) == 0
    assert get(pair.two, id_).json()["error"]["code"] == "shutting_down"


def test_redis_goes_away_and_comes_back(config: dict[str, Any], model: ModelServer) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        pair = Pair(config, redis, stack)
        gate = Gate()
        model.script(gate.turn(["Blue"], ["."]))
        id_ = begin(pair.one)["id"]
        with listening(pair.one, id_) as own, listening(pair.two, id_) as other:
            heard(own, DELTA)
            heard(other, DELTA)
            redis.freeze()
            check_that_nobody_can_tell(pair, id_)
            assert next(other)["error"]["code"] == "store_unavailable"
            gate.open()
            assert text_of(heard(own, "response.completed")["response"]) == "Blue."
        redis.thaw()
        for proxy in (pair.one, pair.two):
            assert soon(proxy, "")
        eventually(lambda: get(pair.two, id_).json().get("status") == "completed")
        assert followed(pair.two, id_)[-1]["type"] == "response.completed"


def check_that_nobody_can_tell(pair: Pair, id_: str) -> None:
    refused = [post(pair.two, background=True), cancel(pair.two, id_), get(pair.two, id_), delete(pair.two, id_)]
    for answer in refused:
        assert (answer.status_code, error_of(answer)["code"]) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "5"

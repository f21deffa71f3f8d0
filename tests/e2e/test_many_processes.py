"""Two Groundwire processes on one real Redis act as one: a conversation begins at the first and goes on at the second.
When Redis goes away both still answer, and say so where they cannot know; when it is back, all is as before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.e2e.test_mixed_turns import ASKED, SEARCH, WEATHER, Answer, ask, last_read, ran
from tests.e2e.test_mixed_turns import LINK as LINKED
from tests.e2e.test_mixed_turns import USER as ASKED_READ
from tests.e2e.test_responses import HOSTED, LINK, QUESTION, USER, error_of, post, respond
from tests.e2e.test_responses import WEATHER as FUNCTION
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.unit.responses_scripts import text_of

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

ALICE, BOB = "key-of-alice", "key-of-bob"
MIXED = Turn(text=["Wait."], calls=[SEARCH, WEATHER])
WHOLE = ["assistant Wait. a=web_search b=weather", "tool a sky.md", "tool b weather says yes"]
OURS_LEFT_OUT = ["assistant Wait. b=weather", "tool b weather says yes"]


class Pair:
    """Two processes with the same config, and the Redis that they share."""

    def __init__(self, config: dict[str, Any], redis: RedisServer, stack: ExitStack) -> None:
        self.redis = redis
        shared = {**config, "store": redis.url}
        self.one, self.two = (stack.enter_context(Groundwire(shared)) for _ in range(2))


@pytest.fixture(scope="module", params=[False, True], ids=["open", "with keys"])
def pair(request: pytest.FixtureRequest, config: dict[str, Any]) -> Iterator[tuple[Pair, str]]:
    """A pair, and the key of whoever asks it."""
    keys = {"server": {"keys": [ALICE, BOB]}} if request.param else {}
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        yield Pair({**config, **keys}, redis, stack), ALICE if request.param else ""


def mixed(proxy: Groundwire, model: ModelServer, key: str) -> Answer:
    model.script(MIXED, text("Done [1]."))
    return ask(proxy, [ASKED], key=key)


def get(proxy: Groundwire, response_id: str, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{proxy.url}/responses/{response_id}", headers=headers, timeout=20)


def soon(proxy: Groundwire, key: str) -> bool:
    """Is the process sure of itself again? It looks for a lost Redis every few seconds."""
    for _ in range(100):
        if get(proxy, "resp_nothing", key).status_code == 404:
            return True
        time.sleep(0.2)
    return False


def test_a_mixed_turn_is_gone_on_from_elsewhere(pair: tuple[Pair, str], model: ModelServer) -> None:
    both, key = pair
    seen = mixed(both.one, model, key)
    done = ask(both.two, [ASKED, seen.message, *ran(seen)], key=key)
    assert done.message["content"] == f"Done {LINKED}."
    assert last_read(model) == [ASKED_READ, *WHOLE]


def test_a_response_is_gone_on_from_elsewhere(pair: tuple[Pair, str], model: ModelServer) -> None:
    both, key = pair
    model.script(Turn(calls=[SEARCH]), text("Blue [1]."), text("Yes [1]."), text("Still [1]."))
    first = respond(both.one, key=key, tools=[HOSTED])
    second = respond(both.two, "Sure?", key=key, previous_response_id=first["id"])
    items = [{"type": "item_reference", "id": item["id"]} for item in (*first["output"], *second["output"])]
    asked = [{"role": "user", "content": QUESTION}, *items, {"role": "user", "content": "Really?"}]
    third = respond(both.one, asked, key=key, stream=True)
    assert [text_of(response) for response in (first, second, third)] == [
        f"Blue {LINK}.",
        f"Yes {LINK}.",
        f"Still {LINK}.",
    ]
    searched = [USER, "assistant - a=web_search", "tool a sky.md"]
    assert last_read(model)[: len(searched)] == searched
    assert get(both.two, first["id"], key).json() == first
    headers = {"authorization": f"Bearer {key}"} if key else {}
    assert httpx.delete(f"{both.two.url}/responses/{first['id']}", headers=headers).status_code == 200
    assert get(both.one, first["id"], key).status_code == 404


@pytest.mark.parametrize("pair", [True], ids=["with keys"], indirect=True)
def test_another_caller_is_another_caller_everywhere(pair: tuple[Pair, str], model: ModelServer) -> None:
    both, _ = pair
    seen = mixed(both.one, model, ALICE)
    ask(both.two, [ASKED, seen.message, *ran(seen)], key=BOB)
    assert last_read(model) == [ASKED_READ, *OURS_LEFT_OUT]
    model.script(text("Blue."))
    first = respond(both.one, key=ALICE)
    assert [get(both.two, first["id"], whose).status_code for whose in (ALICE, BOB)] == [200, 404]
    assert not [name for name in both.redis.names() if ALICE in name or first["id"] in name]


def test_redis_is_killed_in_between_and_comes_back(pair: tuple[Pair, str], model: ModelServer) -> None:
    both, key = pair
    seen = mixed(both.one, model, key)
    model.script(MIXED, text("Done [1]."))
    first = respond(both.one, key=key, tools=[FUNCTION])
    both.redis.kill()
    try:
        model.script(text("Done [1]."))
        assert ask(both.two, [ASKED, seen.message, *ran(seen)], key=key).message["content"] == "Done [1]."
        assert last_read(model) == [ASKED_READ, *OURS_LEFT_OUT]
        check_what_nobody_can_tell(both, key, first)
        check_what_speaks_for_itself(both, key, first, model)
        check_that_each_has_its_own_memory(both, key, model)
    finally:
        both.redis.start()
    for proxy in (both.one, both.two):
        assert soon(proxy, key), "what is not there is not there, and nobody is told to come again"
    seen = mixed(both.one, model, key)
    assert ask(both.two, [ASKED, seen.message, *ran(seen)], key=key).message["content"] == f"Done {LINKED}."
    assert last_read(model) == [ASKED_READ, *WHOLE]


def check_what_nobody_can_tell(both: Pair, key: str, response: dict[str, Any]) -> None:
    for proxy in (both.one, both.two):
        away = post(proxy, "Sure?", key=key, previous_response_id=response["id"])
        assert (away.status_code, error_of(away)["code"]) == (503, "store_unavailable")
        assert away.headers["retry-after"] == "5"
        assert get(proxy, response["id"], key).status_code == 503
    reference = {"type": "item_reference", "id": response["output"][0]["id"]}
    assert post(both.two, [{"role": "user", "content": QUESTION}, reference], key=key).status_code == 503


def check_what_speaks_for_itself(both: Pair, key: str, response: dict[str, Any], model: ModelServer) -> None:
    """A client that echoes all of its items needs no store, so it is not sent away for the lack of one."""
    called = next(item for item in response["output"] if item["type"] == "function_call")
    output = {"type": "function_call_output", "call_id": called["call_id"], "output": "weather says yes"}
    items = [{"role": "user", "content": QUESTION}, *response["output"], output]
    assert text_of(respond(both.two, items, key=key, tools=[FUNCTION])) == "Done [1]."
    assert last_read(model) == [USER, *OURS_LEFT_OUT]


def check_that_each_has_its_own_memory(both: Pair, key: str, model: ModelServer) -> None:
    seen = mixed(both.two, model, key)
    ask(both.two, [ASKED, seen.message, *ran(seen)], key=key)
    assert last_read(model) == [ASKED_READ, *WHOLE]
    model.script(text("Blue."), text("Yes."))
    first = respond(both.two, key=key)
    assert text_of(respond(both.two, "Sure?", key=key, previous_response_id=first["id"])) == "Yes."
    assert last_read(model) == [USER, "assistant Blue.", "user Sure?"]

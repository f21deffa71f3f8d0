"""Limits and budgets of keys, on every road: who is let in, who is told to come back and when, what the headers say,
and that an answer still comes where only its searches are used up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.raw_client import chat_request, exchange

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
OFF = {"x-groundwire-search": "off"}
KEYS: list[dict[str, Any]] = [
    {"key": "key-free", "name": "free"},
    {"key": "key-slow", "name": "slow", "requests_per_minute": 2},
    {"key": "key-forwarded", "name": "forwarded", "requests_per_minute": 2},
    {"key": "key-responses", "name": "responses", "requests_per_minute": 1},
    {"key": "key-tools", "name": "tools", "requests_per_minute": 2},
    {"key": "key-words", "name": "words", "tokens_per_minute": 15},
    {"key": "key-words-forwarded", "name": "words2", "tokens_per_minute": 15},
    {"key": "key-words-ahead", "name": "words3", "tokens_per_minute": 15},
    {"key": "key-searcher", "name": "searcher", "searches_per_minute": 1},
    {"key": "key-no-searches", "name": "no-searches", "budget": {"day": {"searches": 1}}},
    {"key": "key-daily", "name": "daily", "budget": {"day": {"tokens": 15}}},
    {"key": "key-monthly", "name": "monthly", "budget": {"month": {"cost": 0.00001}}},
    {"key": "key-grouped-1", "name": "grouped1", "group": "students"},
    {"key": "key-grouped-2", "name": "grouped2", "group": "students", "requests_per_minute": 3},
    {"key": "key-aborting", "name": "aborting", "tokens_per_minute": 2},
    {"key": "key-both", "name": "both", "requests_per_minute": 5, "tokens_per_minute": 20},
]


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    groups = {"students": {"requests_per_minute": 1}}
    prices = {"models": {"*": {"input": 1, "output": 1}}}
    with Groundwire({**config, "server": {"keys": KEYS, "groups": groups}, "prices": prices}) as running:
        yield running


def ask(proxy: Groundwire, key: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [QUESTION], **fields}
    return post(proxy, "/chat/completions", key, body, headers)


def post(
    proxy: Groundwire, path: str, key: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> httpx.Response:
    """An answer, and its end: what it cost is counted a moment after its last byte is sent."""
    said = {"authorization": f"Bearer {key}", **(headers or {})}
    answer = httpx.post(proxy.url + path, json=body, headers=said, timeout=20)
    proxy.logged(answer.headers["x-request-id"])
    return answer


def limits_of(answer: httpx.Response) -> dict[str, str]:
    prefix = "x-ratelimit-"
    return {name.removeprefix(prefix): value for name, value in answer.headers.items() if name.startswith(prefix)}


def check_refusal(answer: httpx.Response, *, most: float) -> dict[str, Any]:
    """What every client needs to come back in time."""
    assert answer.status_code == 429, answer.text
    seconds, milliseconds = int(answer.headers["retry-after"]), int(answer.headers["retry-after-ms"])
    assert 0 < milliseconds <= most * 1000
    assert seconds - 1 < milliseconds / 1000 <= seconds
    assert ("x-should-retry" in answer.headers) == (seconds > 60)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize(("key", "headers"), [("key-slow", {}), ("key-forwarded", OFF)], ids=["searched", "forwarded"])
def test_requests_per_minute(proxy: Groundwire, model: ModelServer, key: str, headers: dict[str, str]) -> None:
    model.script(text("Blue.", headers={"x-ratelimit-limit-requests": "10000", "x-ratelimit-reset-tokens": "6m0s"}))
    for left in ("1", "0"):
        answer = ask(proxy, key, headers)
        assert answer.status_code == 200
        seen = limits_of(answer)
        assert (seen.pop("limit-requests"), seen.pop("remaining-requests")) == ("2", left)
        assert re.fullmatch(r"1m0s|[1-5]?\ds", seen.pop("reset-requests"))
        assert not seen, "what the model's server says of the operator's account is nobody else's"
    refused = ask(proxy, key, headers)
    error = check_refusal(refused, most=30)
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert re.search(r"2 requests per minute: ask again in \d+(s|ms)\.", error["message"])
    assert limits_of(refused)["remaining-requests"] == "0"
    assert refused.headers["x-request-id"].startswith("req_")
    assert len(model.requests) == 2
    assert "outcome=rate_limit_exceeded" in proxy.logged(refused.headers["x-request-id"])


def test_a_key_without_limits_has_none_and_sees_none(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue.", headers={"x-ratelimit-limit-requests": "10000"}))
    for _ in range(5):
        answer = ask(proxy, "key-free", OFF)
        assert answer.status_code == 200
        assert not limits_of(answer)


def test_responses_are_refused_in_their_own_shape(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    asked = {"model": "m", "input": "Why is the sky blue?"}
    first = post(proxy, "/responses", "key-responses", asked)
    assert first.status_code == 200
    assert limits_of(first)["limit-requests"] == "1"
    check_refusal(post(proxy, "/responses", "key-responses", {**asked, "stream": True}), most=60)


def test_the_tools_without_a_model_count_too(proxy: Groundwire) -> None:
    found = post(proxy, "/search", "key-tools", {"query": "sky blue"})
    assert found.status_code == 200
    opened = post(proxy, "/open", "key-tools", {"url": found.json()["results"][0]["url"]})
    assert opened.status_code == 200
    assert limits_of(opened)["remaining-requests"] == "0"
    check_refusal(post(proxy, "/search", "key-tools", {"query": "sky blue"}), most=30)


def test_looking_at_the_models_costs_nothing(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    headers = {"authorization": "Bearer key-grouped-2"}
    for _ in range(5):
        assert httpx.get(f"{proxy.url}/models", headers=headers, timeout=20).status_code == 200
    assert limits_of(ask(proxy, "key-grouped-2"))["remaining-requests"] == "2"


def test_a_group_shares_its_policy_and_each_key_counts_for_itself(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    assert ask(proxy, "key-grouped-1").status_code == 200
    check_refusal(ask(proxy, "key-grouped-1"), most=60)
    assert limits_of(ask(proxy, "key-grouped-2"))["limit-requests"] == "3"


@pytest.mark.parametrize(
    ("key", "headers"), [("key-words", {}), ("key-words-forwarded", OFF)], ids=["searched", "forwarded"]
)
def test_tokens_are_counted_when_an_answer_ends(
    proxy: Groundwire, model: ModelServer, key: str, headers: dict[str, str]
) -> None:
    """The scripted model says that every answer took 15."""
    model.script(text("Blue."))
    first = ask(proxy, key, headers)
    assert first.status_code == 200
    assert limits_of(first) == {"limit-tokens": "15", "remaining-tokens": "15", "reset-tokens": "0ms"}
    refused = ask(proxy, key, headers)
    error = check_refusal(refused, most=5)
    assert "15 tokens per minute" in error["message"]
    assert limits_of(refused)["remaining-tokens"] == "0"


def test_and_count_for_the_request_behind_it_on_its_connection(proxy: Groundwire, model: ModelServer) -> None:
    """It begins in the moment in which the answer before it ends."""
    model.script(text("Blue."))
    asked = chat_request("Authorization: Bearer key-words-ahead")
    last = chat_request("Authorization: Bearer key-words-ahead", "Connection: close")
    answers = exchange(proxy, asked + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"429"]


def test_both_limits_stand_in_the_headers(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    proxy.logged(ask(proxy, "key-both").headers["x-request-id"])  # then its tokens are counted
    seen = limits_of(ask(proxy, "key-both"))
    assert seen["remaining-requests"] == "3"
    assert 5 <= int(seen["remaining-tokens"]) < 20, "15 were used; a third of one comes back each second"


def test_an_answer_that_was_left_counts_too(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text(*["many words "] * 50, delay=0.05))
    headers = {"authorization": "Bearer key-aborting"}
    body = {"model": "m", "messages": [QUESTION], "stream": True}
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=20) as answer:
        seen = 0
        for line in answer.iter_lines():
            seen += "words" in line
            if seen == 5:
                break
    assert "estimated_tokens=" in proxy.logged(f"request={answer.headers['x-request-id']}")
    error = check_refusal(ask(proxy, "key-aborting"), most=121)
    assert "2 tokens per minute" in error["message"]


def test_a_model_is_told_that_the_searches_are_used_up_and_answers(proxy: Groundwire, model: ModelServer) -> None:
    for key, most in (("key-searcher", 61), ("key-no-searches", 86_401)):
        model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
        assert "https://library.example/" in ask(proxy, key).json()["choices"][0]["message"]["content"]
        model.script(call("web_search", {"query": "sea salt"}), text("I could not look it up."))
        answer = ask(proxy, key)
        assert answer.json()["choices"][0]["message"]["content"] == "I could not look it up."
        assert "search limit of this user is reached" in model.requests[1]["messages"][-1]["content"]
        error = check_refusal(post(proxy, "/search", key, {"query": "sky"}), most=most)
        assert "1 searches" in error["message"]


def test_a_turn_with_more_searches_than_are_left_gets_those(proxy: Groundwire, model: ModelServer) -> None:
    """The budget of this key is used up by the test above, or is not: both are within one."""
    queries = [f"sky {number}" for number in range(4)]
    model.script(
        call("web_search", {"query": queries[0]}), *(call("web_search", {"query": q}) for q in queries), text(".")
    )
    ask(proxy, "key-searcher")
    told = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert sum("search limit" not in said for said in told) <= 1


def test_a_budget_is_used_up_until_its_day_ends(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    assert ask(proxy, "key-daily").status_code == 200
    error = check_refusal(ask(proxy, "key-daily", OFF), most=86_400)
    assert (error["type"], error["code"]) == ("insufficient_quota", "budget_exceeded")
    assert re.search(r"15 tokens for this day: ask again after 20\d\d-\d\d-\d\d 00:00 UTC\.", error["message"])


def test_a_budget_of_money(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    answer = ask(proxy, "key-monthly")
    assert answer.json()["usage"]["cost"] == 0.000015
    error = check_refusal(ask(proxy, "key-monthly"), most=31 * 86_400)
    assert "for this month: ask again after 20" in error["message"]

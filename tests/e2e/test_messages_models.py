"""Around `/v1/messages`: which model answers, which there are, how many tokens a request holds, and what a caller is
told of its limits, each as clients of Anthropic's API expect it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.test_messages import KEYS, VERSION, ask, asked, error_of, post
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text

HAIKU = "claude-haiku-4-5-20251001"


@pytest.fixture(scope="module")
def named(config: dict[str, Any]) -> Iterator[Groundwire]:
    """An upstream that serves two models and no others."""
    upstreams = [{**config["upstreams"][0], "models": ["qwen3", "llama"]}]
    slow = {"key": "sk-slow", "name": "slow", "requests_per_minute": 2, "tokens_per_minute": 1000}
    aliases = {"gpt-*": "llama", "gpt-4": "qwen3"}
    server = {"keys": [*KEYS, slow, {"key": "sk-few", "name": "few", "models": ["qwen3"]}, "sk-new"]}
    with Groundwire({**config, "upstreams": upstreams, "aliases": aliases, "server": server}) as running:
        yield running


def test_the_model_that_was_used_last_stands_in(named: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    missing = post(named, model=HAIKU, key=KEYS[0])
    assert error_of(missing) == (404, "not_found_error")
    assert 'aliases: {"claude-*": your-model}' in missing.json()["error"]["message"]
    ask(named, model="qwen3", key=KEYS[0])
    ask(named, model=HAIKU, key=KEYS[0])
    assert [request["model"] for request in model.requests] == ["qwen3", "qwen3"]
    assert post(named, model=HAIKU, key=KEYS[1]).status_code == 404, "what one caller used is no other's"


def test_what_was_refused_was_not_used(named: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    assert post(named, model="llama", key="sk-few").status_code == 404, "this key may not use it"
    assert post(named, model=HAIKU, key="sk-few").status_code == 404
    ask(named, model="qwen3", key="sk-few")
    assert post(named, [], model="llama", key="sk-few").status_code == 400
    assert post(named, model="llama", key="sk-few").status_code == 404
    ask(named, model=HAIKU, key="sk-few")
    assert [request["model"] for request in model.requests] == ["qwen3", "qwen3"]


def test_a_name_without_end_is_not_repeated(named: Groundwire) -> None:
    missing = post(named, model="claude-" + "x" * 100_000, key="sk-new")
    assert error_of(missing) == (404, "not_found_error")
    assert len(missing.content) < 1000


def test_aliases_take_patterns(named: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    for name in ("gpt-4", "gpt-5"):
        ask(named, model=name, key=KEYS[1])
    assert [request["model"] for request in model.requests] == ["qwen3", "llama"]
    listed = httpx.get(f"{named.url}/models", headers={"x-api-key": KEYS[0]}).json()["data"]
    assert {entry["id"] for entry in listed} >= {"qwen3", "llama", "gpt-4"}
    assert "gpt-*" not in {entry["id"] for entry in listed}


def test_models_in_this_apis_shape(named: Groundwire) -> None:
    headers = {**VERSION, "x-api-key": KEYS[0]}
    page = httpx.get(f"{named.url}/models?limit=1000", headers=headers).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (
        False,
        page["data"][0]["id"],
        page["data"][-1]["id"],
    )
    entry = next(entry for entry in page["data"] if entry["id"] == "qwen3")
    assert (entry["type"], entry["display_name"]) == ("model", "qwen3")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["created_at"])
    assert httpx.get(f"{named.url}/models/qwen3", headers=headers).json() == entry
    assert error_of(httpx.get(f"{named.url}/models/nobody", headers=headers)) == (404, "not_found_error")


def test_models_page_by_page(named: Groundwire) -> None:
    headers = {**VERSION, "x-api-key": KEYS[0]}

    def page(query: str) -> tuple[list[str], bool]:
        said = httpx.get(f"{named.url}/models?{query}", headers=headers).json()
        ids = [entry["id"] for entry in said["data"]]
        assert (said["first_id"], said["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
        return ids, said["has_more"]

    everything, _ = page("")
    assert len(everything) == 3
    assert page("limit=1") == (everything[:1], True)
    assert page(f"limit=1&after_id={everything[0]}") == (everything[1:2], True)
    assert page(f"limit=5&after_id={everything[0]}") == (everything[1:], False)
    assert page(f"after_id={everything[-1]}") == ([], False)
    assert page(f"limit=1&before_id={everything[-1]}") == (everything[-2:-1], True)
    assert page(f"limit=2&before_id={everything[-1]}") == (everything[:-1], False)
    assert page("after_id=nobody") == ([], False)
    for odd in ("limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999999999999999", "after_id="):
        assert page(odd) == (everything, False), odd
    plain = httpx.get(f"{named.url}/models?limit=1", headers={"x-api-key": KEYS[0]}).json()
    assert len(plain["data"]) == 3, "OpenAI's list has no pages"


@pytest.mark.parametrize("path", ["models", "models/qwen3"])
def test_refusals_around_models_have_this_apis_shape(named: Groundwire, path: str) -> None:
    refused = httpx.get(f"{named.url}/{path}", headers=VERSION)
    assert error_of(refused) == (401, "authentication_error")
    assert refused.headers["request-id"] == refused.headers["x-request-id"]
    assert "type" not in httpx.get(f"{named.url}/{path}").json()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["messages", "messages/count_tokens"])
def test_other_methods_are_refused_in_this_apis_shape(named: Groundwire, method: str, path: str) -> None:
    answer = httpx.request(method, f"{named.url}/{path}", headers={**VERSION, "x-api-key": KEYS[0]})
    assert answer.status_code == 404
    if method == "HEAD":
        assert answer.content == b""
    else:
        assert error_of(answer) == (404, "not_found_error")


def test_tokens_are_estimated(named: Groundwire, model: ModelServer) -> None:
    model.script()
    tool = {"name": "weather", "description": "x" * 400, "input_schema": {"type": "object"}}
    for fields, least, most in (({}, 5, 30), ({"system": "x" * 4000}, 1000, 1030), ({"tools": [tool]}, 100, 160)):
        counted = post(named, path="messages/count_tokens?beta=true", key="sk-slow", **fields)
        assert counted.status_code == 200
        assert least <= counted.json()["input_tokens"] <= most
        assert counted.json()["estimated"] is True
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
    counted = post(named, [asked([picture])], path="messages/count_tokens", key=KEYS[0])
    assert 1000 <= counted.json()["input_tokens"] <= 2000
    assert error_of(post(named, [], path="messages/count_tokens", key=KEYS[0])) == (400, "invalid_request_error")
    assert model.requests == []


def test_limits_are_told_by_this_apis_names(named: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    answer = post(named, key="sk-slow", model="qwen3")
    told = {name: value for name, value in answer.headers.items() if "ratelimit" in name}
    assert told["anthropic-ratelimit-requests-limit"] == "2"
    assert told["anthropic-ratelimit-requests-remaining"] == "1"
    assert told["anthropic-ratelimit-tokens-limit"] == "1000"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["anthropic-ratelimit-tokens-reset"])
    assert all(name.startswith("anthropic-") for name in told)


def test_who_looks_whether_anybody_is_there(named: Groundwire) -> None:
    root = named.url.removesuffix("/v1") + "/"
    assert httpx.head(root).status_code == 200
    assert httpx.get(root).headers["content-type"].startswith("text/html"), "the page, which is open"


def test_a_star_serves_what_its_server_has(proxy: Groundwire, model: ModelServer) -> None:
    """Where `*` takes every name, a fixed name of the vendor's that the server does not list is nobody's either; with
    nothing used before, the server may answer for itself."""
    model.script(text("Hello."))
    ask(proxy, model=HAIKU)
    ask(proxy, model="m")
    ask(proxy, model=HAIKU)
    assert [request["model"] for request in model.requests] == [HAIKU, "m", "m"]

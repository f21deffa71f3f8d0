"""`GET /search` and `GET /?q=`: LangChain's wrapper and another Groundwire take us for a SearXNG; web pages cannot."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"
KEY = "key-of-a-client"
PAGE = SITE + "sky.md"
APP = "https://app.example"
SKY = {"q": "sky blue", "format": "json"}


@pytest.fixture(scope="module")
def inner() -> Iterator[FakeSearxng]:
    """The engine behind: what it is asked can be told."""
    with FakeSearxng() as fake:
        yield fake


@pytest.fixture(scope="module")
def engine(config: dict[str, Any], inner: FakeSearxng) -> Iterator[Groundwire]:
    providers = [*config["providers"], {"name": "inner", "type": "searxng", "base_url": inner.url, "private": False}]
    keys = [
        {"name": "app", "key": KEY, "search": {"providers": ["library"]}},
        {"name": "inner", "key": "the-inner-engine", "search": {"providers": ["inner"]}},
        {"name": "one", "key": "one-search-only", "searches_per_minute": 1, "search": {"providers": ["library"]}},
        {"name": "none", "key": "no-search-at-all", "search": {"mode": "off"}},
    ]
    server = {"keys": keys, "cors": [APP]}
    tools = {"search": ["library", "inner"], "read": ["library"]}
    with Groundwire({**config, "providers": providers, "tools": tools, "server": server, "cache": "off"}) as running:
        yield running


def root(proxy: Groundwire) -> str:
    return proxy.url.removesuffix("/v1")


def with_password(proxy: Groundwire, key: str) -> str:
    return root(proxy).replace("http://", f"http://x:{key}@")


def get(proxy: Groundwire, path: str, key: str = KEY, headers: Any = None, **params: Any) -> httpx.Response:
    return httpx.get(f"{root(proxy)}{path}", params=params, auth=("x", key), headers=headers, timeout=20)


def test_langchains_wrapper(engine: Groundwire) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    addresses = [with_password(engine, KEY), with_password(engine, "wrong-key-0123")]
    command = [str(PYTHON), str(ROOT / "tests/clients/searxng_search.py"), *addresses]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "scatters blue light" in seen["run"]
    first = seen["results"][0]
    assert (first["title"], first["link"]) == ("Why the sky is blue", PAGE)
    assert (first["engines"], first["category"]) == (["library"], "general")
    assert seen["async"][0]["link"] == PAGE
    assert seen["none"] == [{"Result": "No good Search Result was found"}]
    assert "API key" in seen["refused"]


@pytest.mark.parametrize("way", [{"username": "x", "password": KEY}, {"api_key": KEY}])
def test_another_groundwire_searches_through_this_one(engine: Groundwire, config: dict[str, Any], way: Any) -> None:
    api_key = {"api_key": way["api_key"]} if "api_key" in way else {}
    options = {} if api_key else way
    provider = {"name": "first", "type": "searxng", "base_url": root(engine), **api_key, "options": options}
    with Groundwire({**config, "providers": [provider]}) as outer:
        body = {"query": "sky blue", "limit": 2, "time_range": "y"}
        found = httpx.post(f"{outer.url}/search", json=body, timeout=20).json()
    assert (found["provider"], found["results"][0]["url"]) == ("first", PAGE)


def test_another_groundwire_may_ask_for_many_domains(engine: Groundwire, config: dict[str, Any]) -> None:
    """It writes them into the question, which has an end here."""
    provider = {"name": "first", "type": "searxng", "base_url": root(engine), "api_key": KEY}
    blocked = [f"a-site-that-nobody-wants-to-see-{n}.example" for n in range(20)]
    with Groundwire({**config, "providers": [provider], "tools": {"blocked_domains": blocked}}) as outer:
        body = {"query": "sky blue", "allowed_domains": ["library.example"]}
        found = httpx.post(f"{outer.url}/search", json=body, timeout=20).json()
    assert [hit["url"] for hit in found["results"]] == [PAGE], found["message"]


@pytest.mark.parametrize("path", ["/search", "/"])
def test_the_shape(engine: Groundwire, path: str) -> None:
    answer = get(engine, path, **SKY)
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert found["query"] == "sky blue"
    first = found["results"][0]
    assert (first["url"], first["engine"], first["positions"]) == (PAGE, "library", [1])
    assert found["answers"] == found["unresponsive_engines"] == []
    assert found["number_of_results"] == len(found["results"])


def test_what_it_is_asked_reaches_the_provider(engine: Groundwire, inner: FakeSearxng) -> None:
    inner.asked.clear()
    more = {"time_range": "week", "language": "de-CH", "categories": "general,news", "safesearch": "1", "engines": "x"}
    get(engine, "/search", "the-inner-engine", **SKY, **more)
    asked = inner.asked[0].params
    assert (asked["q"], asked["time_range"], asked["language"], asked["categories"]) == (
        "sky blue",
        "week",
        "de-CH",
        "news",
    )
    inner.asked.clear()
    assert get(engine, "/search", "the-inner-engine", **SKY, pageno="3").json()["results"] == []
    assert inner.asked == []


def test_an_engine_that_fails_is_named_as_searxng_does(engine: Groundwire, inner: FakeSearxng) -> None:
    before, inner.reply = inner.reply, Reply(500, b"oops")
    try:
        answer = get(engine, "/search", "the-inner-engine", q="heat", format="json")
    finally:
        inner.reply = before
    assert (answer.status_code, answer.json()["results"]) == (200, [])
    ((name, reason),) = answer.json()["unresponsive_engines"]
    assert name == "groundwire"
    assert "inner" in reason


def test_keys_policies_and_limits_count_here(engine: Groundwire) -> None:
    assert httpx.get(f"{root(engine)}/search", params=SKY, timeout=20).status_code == 401
    assert get(engine, "/search", "wrong", **SKY).status_code == 401
    bearer = httpx.get(f"{root(engine)}/", params=SKY, headers={"authorization": f"Bearer {KEY}"}, timeout=20)
    assert bearer.json()["results"][0]["url"] == PAGE
    assert get(engine, "/search", "no-search-at-all", **SKY).status_code == 403
    assert get(engine, "/search", "no-search-at-all", **SKY, pageno="3").status_code == 403
    assert get(engine, "/search", "one-search-only", **SKY).status_code == 200
    assert get(engine, "/", "one-search-only", **SKY).status_code == 429
    spent = {"authorization": "Bearer one-search-only"}
    assert httpx.head(f"{root(engine)}/", headers=spent, timeout=20).status_code == 200, "it looks, and does not search"


def test_a_password_is_a_key_nowhere_else(engine: Groundwire) -> None:
    assert get(engine, "/v1/models").status_code == 401
    posted = httpx.post(f"{root(engine)}/search", json={"query": "sky"}, auth=("x", KEY), timeout=20)
    assert posted.status_code == 401
    broken = httpx.get(f"{root(engine)}/search", params=SKY, headers={"authorization": "Basic %%%"}, timeout=20)
    assert broken.status_code == 401


@pytest.mark.parametrize("path", ["/search", "/"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://other.example"},
        {"origin": "null", "sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-origin"},
    ],
)
def test_web_pages_do_not_search(engine: Groundwire, path: str, headers: Any) -> None:
    answer = get(engine, path, headers=headers, **SKY)
    assert answer.status_code == 403
    assert "server.cors" in answer.text
    assert "access-control-allow-origin" not in answer.headers


def test_listed_pages_and_people_do(engine: Groundwire) -> None:
    answer = get(engine, "/search", headers={"origin": APP, "sec-fetch-site": "cross-site"}, **SKY)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == APP
    for site in ("none", "same-origin"):
        assert get(engine, "/search", headers={"sec-fetch-site": site}, **SKY).status_code == 200


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"q": "sky"}, "format=json"),
        ({"q": "sky", "format": "rss"}, "format=json"),
        ({"format": "json"}, "q"),
        ({"q": " ", "format": "json"}, "q"),
        ({"q": " ", "format": "json", "pageno": "3"}, "q"),
        ({**SKY, "categories": "x" * 50}, "categories"),
        ({**SKY, "pageno": "0"}, "pageno"),
        ({**SKY, "pageno": "x"}, "pageno"),
        ({**SKY, "time_range": "decade"}, "time_range"),
    ],
)
@pytest.mark.parametrize("path", ["/search", "/"])
def test_what_is_no_search_is_refused(engine: Groundwire, path: str, params: Any, named: str) -> None:
    if path == "/" and "q" not in params:
        return  # the root is asked for something else
    answer = get(engine, path, **params)
    assert answer.status_code == 400
    assert named in answer.json()["error"]


def test_the_root_refuses_as_the_engine_does(engine: Groundwire) -> None:
    """It is not known by its path alone whether a request to the root is a search."""
    for key, status in (("wrong", 401), ("no-search-at-all", 403)):
        answer = get(engine, "/", key, **SKY)
        assert (answer.status_code, answer.json()["detail"]["error"]) == (status, answer.json()["error"])
    crowded = httpx.get(f"{root(engine)}/?q=sky{'&a=1' * 200}", auth=("x", KEY), timeout=20)
    assert (crowded.status_code, crowded.json()["code"]) == (400, "bad_request")
    assert get(engine, "/", "wrong").headers["content-type"].startswith("text/html"), "this is no search, but the page"


def test_what_else_is_asked_of_these_paths(engine: Groundwire) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    assert httpx.head(f"{root(engine)}/search", params=SKY, headers=key, timeout=20).status_code == 405
    put = httpx.put(f"{root(engine)}/search", json={}, headers=key, timeout=20)
    assert (put.status_code, put.headers["allow"]) == (405, "GET, HEAD, POST")
    assert "GET" in put.json()["detail"]["error"]
    slash = httpx.get(f"{root(engine)}/search/", params=SKY, headers=key, timeout=20)
    assert (slash.status_code, "slash" in slash.json()["error"]) == (404, True)
    assert httpx.head(f"{root(engine)}/", params=SKY, headers=key, timeout=20).status_code == 200
    form = httpx.post(f"{root(engine)}/search", data=SKY, headers=key, timeout=20)
    assert form.status_code == 415
    crowded = httpx.get(f"{root(engine)}/search?{'&a=1' * 200}", headers=key, timeout=20)
    assert crowded.status_code == 400

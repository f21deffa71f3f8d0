"""`POST /search` and `/extract`: Tavily's own clients and LangChain's tool for it, in front of our providers."""

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


@pytest.fixture(scope="module")
def broken() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        fake.reply = Reply(500, b"oops")
        yield fake


@pytest.fixture(scope="module")
def whole() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        yield fake


@pytest.fixture(scope="module")
def engine(config: dict[str, Any], broken: FakeSearxng, whole: FakeSearxng) -> Iterator[Groundwire]:
    engines = {"broken": broken, "engine": whole}
    providers = config["providers"] + [
        {"name": name, "type": "searxng", "base_url": fake.url, "private": False} for name, fake in engines.items()
    ]
    keys = [
        {"name": "app", "key": KEY, "admin": True},
        {"name": "one", "key": "one-search-only", "searches_per_minute": 1},
        {"name": "none", "key": "no-search-at-all", "search": {"mode": "off"}},
        {"name": "broken", "key": "a-broken-engine", "search": {"providers": ["broken"]}},
        {"name": "no pages", "key": "no-page-readers", "search": {"providers": ["engine"]}},
        {"name": "elsewhere", "key": "elsewhere-alone", "search": {"allowed_domains": ["elsewhere.example"]}},
    ]
    tools = {"search": ["library", "broken", "engine"], "read": ["library"]}
    with Groundwire({**config, "providers": providers, "tools": tools, "server": {"keys": keys}}) as running:
        yield running


@pytest.fixture(scope="module")
def seen(engine: Groundwire) -> dict[str, Any]:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    command = [str(PYTHON), str(ROOT / "tests/clients/tavily_search.py"), root(engine), KEY, PAGE]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def root(proxy: Groundwire) -> str:
    return proxy.url.removesuffix("/v1")


def post(proxy: Groundwire, path: str, body: Any, key: str = "", **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {key}", **headers} if key else headers
    return httpx.post(f"{root(proxy)}{path}", json=body, headers=sent, timeout=20)


@pytest.mark.parametrize("client", ["search", "filters", "async search", "langchain", "langchain async"])
def test_every_client_finds_the_page(seen: dict[str, Any], client: str) -> None:
    first = seen[client]["results"][0]
    assert (first["url"], first["title"]) == (PAGE, "Why the sky is blue")
    assert "scatters blue light" in first["content"]
    assert 0.5 <= first["score"] <= 1
    assert seen[client]["query"] == "sky blue"
    assert seen[client]["images"] == []


def test_who_asks_for_an_answer_gets_a_text(seen: dict[str, Any]) -> None:
    """No provider has one here; `qna_search` promises a string."""
    assert (seen["question"], seen["filters"]["answer"], seen["search"]["answer"]) == ("", "", None)


def test_pages_come_along_where_they_are_wanted(seen: dict[str, Any]) -> None:
    for client in ("async search", "langchain"):
        assert "Rayleigh scattering" in seen[client]["results"][0]["raw_content"]
    assert seen["search"]["results"][0]["raw_content"] is None
    assert len(seen["async search"]["results"]) == 1


@pytest.mark.parametrize("client", ["extract", "one page", "async extract", "langchain extract"])
def test_pages_are_extracted(seen: dict[str, Any], client: str) -> None:
    (page,) = seen[client]["results"]
    assert page["url"] == PAGE
    assert "Rayleigh scattering" in page["raw_content"]


def test_a_page_that_cannot_be_read_is_named(seen: dict[str, Any]) -> None:
    (failed,) = seen["extract"]["failed_results"]
    assert failed["url"] == "http://127.0.0.1:1/x"
    assert failed["error"]


def test_errors_are_those_that_the_client_knows(seen: dict[str, Any]) -> None:
    assert seen["wrong key"][0] == "InvalidAPIKeyError"
    assert "API key" in seen["wrong key"][1]
    assert seen["no query"][0] == seen["bad domain"][0] == "BadRequestError"
    assert "query" in seen["no query"][1]
    assert "include_domains" in seen["bad domain"][1]
    assert "401" in seen["langchain wrong key"]["error"]


def test_a_key_in_the_body(engine: Groundwire) -> None:
    found = post(engine, "/search", {"query": "sky blue", "api_key": KEY})
    assert found.json()["results"][0]["url"] == PAGE
    assert post(engine, "/extract", {"urls": PAGE, "api_key": KEY}).json()["results"][0]["url"] == PAGE
    for body in ({"query": "sky"}, {"query": "sky", "api_key": "wrong"}, {"query": "sky", "api_key": 7}, ["x"]):
        assert post(engine, "/search", body).status_code == 401
    long = post(engine, "/search", {"query": "sky", "api_key": KEY, "x": "x" * 70_000})
    assert long.status_code == 401
    assert post(engine, "/search", {"query": "sky", "x": "x" * 70_000}, key=KEY).status_code == 200


def test_a_key_in_the_body_opens_no_other_door(engine: Groundwire) -> None:
    assert post(engine, "/v1/search", {"query": "sky", "api_key": KEY}).status_code == 401
    assert post(engine, "/search", {"query": "sky", "api_key": KEY}, key="wrong").status_code == 401


def test_a_key_is_not_searched_for(engine: Groundwire) -> None:
    answer = post(engine, "/search", {"query": f"who owns {KEY}", "api_key": KEY})
    assert answer.status_code == 400
    assert KEY not in answer.text


def test_policies_and_limits_count_here(engine: Groundwire) -> None:
    refused = post(engine, "/search", {"query": "sky"}, key="no-search-at-all")
    assert refused.status_code == 403
    assert "search" in refused.json()["detail"]["error"]
    assert post(engine, "/extract", {"urls": [PAGE]}, key="no-search-at-all").status_code == 403
    assert post(engine, "/search", {"query": "sky"}, key="elsewhere-alone").json()["results"] == []
    assert post(engine, "/search", {"query": "sky blue"}, key="one-search-only").status_code == 200
    spent = post(engine, "/search", {"query": "sea"}, key="one-search-only")
    assert spent.status_code == 429
    assert spent.headers["retry-after"]
    assert spent.json()["detail"]["error"]


def test_nothing_found_is_no_failure_and_a_failure_is_not_nothing(engine: Groundwire) -> None:
    nothing = post(engine, "/search", {"query": "sky", "exclude_domains": ["library.example"]}, key="elsewhere-alone")
    assert (nothing.status_code, nothing.json()["results"]) == (200, [])
    failed = post(engine, "/search", {"query": "sky"}, key="a-broken-engine")
    assert failed.status_code == 502
    assert "broken" in failed.json()["detail"]["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search", {}),
        ("/search", {"query": 7}),
        ("/search", {"query": "x" * 500}),
        ("/search", {"query": "x", "max_results": "many"}),
        ("/search", {"query": "x", "topic": "cats"}),
        ("/search", {"query": "x", "start_date": "yesterday"}),
        ("/search", {"query": "x", "include_domains": [0] * 1_000_000}),
        ("/extract", {"urls": [0] * 1_000_000}),
        ("/extract", {"urls": PAGE, "query": "sky " * 1_000_000}),
        ("/extract", {}),
        ("/extract", {"urls": []}),
        ("/extract", {"urls": ["https://x.example/"] * 3 + [f"https://{n}.example/" for n in range(21)]}),
    ],
)
def test_what_is_no_request_is_refused(engine: Groundwire, path: str, body: Any) -> None:
    answer = post(engine, path, body, key=KEY)
    assert answer.status_code == 400
    assert answer.json()["detail"]["error"]


def test_a_refusal_names_every_field_as_its_client_does(engine: Groundwire) -> None:
    body = {"query": "sky", "include_domains": ["a b"], "exclude_domains": ["c d"]}
    said = post(engine, "/search", body, key=KEY).json()["detail"]["error"]
    assert "include_domains" in said
    assert "exclude_domains" in said
    assert "allowed_domains" not in said
    assert "blocked_domains" not in said


def test_what_it_does_not_know_is_ignored(engine: Groundwire) -> None:
    body = {"query": "sky blue", "max_results": 50, "include_favicon": True, "chunks_per_source": 3, "days": None}
    assert post(engine, "/search", body, key=KEY).json()["results"]
    assert post(engine, "/search", {"query": "sky", "max_results": 0}, key=KEY).json()["results"] == []
    passages = post(engine, "/extract", {"urls": PAGE, "query": "Rayleigh", "chunks_per_source": 1}, key=KEY)
    assert "Rayleigh" in passages.json()["results"][0]["raw_content"]


def test_a_search_is_no_worse_where_pages_may_not_be_read(engine: Groundwire) -> None:
    found = post(engine, "/search", {"query": "heat", "include_raw_content": True}, key="no-page-readers")
    assert found.status_code == 200
    assert found.json()["results"][0]["raw_content"] is None
    assert post(engine, "/extract", {"urls": [PAGE]}, key="no-page-readers").status_code == 403


def test_forms_stay_refused(engine: Groundwire) -> None:
    sent = httpx.post(f"{root(engine)}/search", data={"query": "sky", "api_key": KEY}, timeout=20)
    assert sent.status_code == 401
    sent = httpx.post(
        f"{root(engine)}/search", data={"q": "sky"}, headers={"authorization": f"Bearer {KEY}"}, timeout=20
    )
    assert sent.status_code == 415


def test_searches_are_counted(engine: Groundwire) -> None:
    for query in ("sky blue", "salty sea", "green tea"):  # the last may not be in the book yet
        post(engine, "/search", {"query": query}, key=KEY)
    usage = httpx.get(f"{engine.url}/groundwire/usage", headers={"authorization": f"Bearer {KEY}"}, timeout=20)
    assert sum(row["searches"] for row in usage.json()["data"] if row["key"] == "app") >= 2

"""`/compat/openwebui/search` and `/load`: what Open WebUI sends to an external engine and loader, and what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire

KEY = "key-of-a-client"
PAGE = SITE + "sky.md"


@pytest.fixture(scope="module")
def engine(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = [
        {"name": "webui", "key": KEY},
        {"name": "one", "key": "one-search-only", "searches_per_minute": 1},
        {"name": "none", "key": "no-search-at-all", "search": {"mode": "off"}},
    ]
    with Groundwire({**config, "server": {"keys": keys}}) as running:
        yield running


def post(proxy: Groundwire, path: str, body: Any, key: str = KEY) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = proxy.url.removesuffix("/v1") + "/compat/openwebui/" + path
    return httpx.post(url, json=body, headers=headers, timeout=20)


def test_a_search(engine: Groundwire) -> None:
    found = post(engine, "search", {"query": "sky blue", "count": 1}).json()
    (first,) = found
    assert first.keys() == {"link", "title", "snippet"}
    assert (first["link"], first["title"]) == (PAGE, "Why the sky is blue")
    assert "scatters blue light" in first["snippet"]
    assert post(engine, "search", {"query": "sky blue", "count": 100}).json()
    assert post(engine, "search", {"query": "zebra crossings"}).json() == []


def test_pages(engine: Groundwire) -> None:
    documents = post(engine, "load", {"urls": [PAGE, "http://127.0.0.1:1/x", SITE + "sea.md"]}).json()
    assert [document["metadata"]["source"] for document in documents] == [PAGE, SITE + "sea.md"]
    assert documents[0]["metadata"]["title"] == "Why the sky is blue"
    assert "Rayleigh scattering" in documents[0]["page_content"]
    none = post(engine, "load", {"urls": ["http://127.0.0.1:1/x"]})
    assert none.status_code == 502
    assert "http://127.0.0.1:1/x" in none.json()["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("search", {}),
        ("search", {"query": ""}),
        ("search", {"query": "x", "count": 0}),
        ("load", {}),
        ("load", {"urls": []}),
        ("load", {"urls": PAGE}),
        ("load", {"urls": [f"{SITE}{n}" for n in range(21)]}),
    ],
)
def test_what_is_no_request_is_refused(engine: Groundwire, path: str, body: Any) -> None:
    assert post(engine, path, body).status_code == 400


def test_keys_policies_and_limits_count_here(engine: Groundwire) -> None:
    for path, body in (("search", {"query": "sky"}), ("load", {"urls": [PAGE]})):
        assert post(engine, path, body, "wrong").status_code == 401
        assert post(engine, path, {**body, "api_key": KEY}, "").status_code == 401
        assert post(engine, path, body, "no-search-at-all").status_code == 403
    assert post(engine, "search", {"query": "sky"}, "one-search-only").status_code == 200
    assert post(engine, "search", {"query": "sky"}, "one-search-only").status_code == 429
    assert post(engine, "load", {"urls": [PAGE]}, "one-search-only").status_code == 200

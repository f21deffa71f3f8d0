"""`tools.list_online`: menus of models in which search can be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text

ALL, ONE, SUFFIXED, NONE = "key-for-all", "key-for-one", "key-for-suffixed", "key-for-none"


@pytest.fixture(scope="module")
def listing(config: dict[str, Any], model: ModelServer) -> Iterator[Groundwire]:
    model.listing = [{"id": name, "object": "model"} for name in ("m", "n", "o", "o:online", "quiet", "")]
    keys = [
        {"key": ALL},
        {"key": ONE, "models": ["n"]},
        {"key": SUFFIXED, "models": ["n:online", "o:*"]},
        {"key": NONE, "search": {"mode": "off"}},
    ]
    first = {**config["upstreams"][0], "models": ["m", "n", "o", "o:online"]}
    quiet = {**config["upstreams"][0], "name": "quiet", "models": ["quiet"], "mode": "off"}
    rest = {**config["upstreams"][0], "name": "rest", "models": ["*"]}
    changed = {
        "server": {"keys": keys},
        "upstreams": [first, quiet, rest],
        "aliases": {"fast": "m"},
        "tools": {"mode": "on_request", "list_online": True},
    }
    with Groundwire({**config, **changed}) as running:
        yield running


def get(proxy: Groundwire, key: str, path: str = "models") -> httpx.Response:
    return httpx.get(f"{proxy.url}/{path}", headers={"authorization": f"Bearer {key}"}, timeout=20)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (ALL, ["m", "m:online", "n", "n:online", "o", "o:online", "quiet", "", "fast", "fast:online"]),
        (ONE, ["n", "n:online"]),
        (SUFFIXED, ["n:online", "o:online"]),
        (NONE, ["m", "n", "o", "o:online", "quiet", "", "fast"]),
    ],
)
def test_what_each_may_choose(listing: Groundwire, key: str, names: list[str]) -> None:
    assert [entry["id"] for entry in get(listing, key).json()["data"]] == names


def test_each_is_found_by_its_name(listing: Groundwire) -> None:
    found = get(listing, ALL, "models/m:online").json()
    assert found == {**get(listing, ALL, "models/m").json(), "id": "m:online"}
    assert get(listing, ALL, "models/quiet:online").status_code == 404
    assert get(listing, NONE, "models/m:online").status_code == 404


def test_who_chooses_it_gets_search(listing: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Scattering [1]."))
    body = {"model": "n:online", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    for key in (ONE, SUFFIXED):
        headers = {"authorization": f"Bearer {key}"}
        answer = httpx.post(f"{listing.url}/chat/completions", json=body, headers=headers, timeout=20)
        assert answer.headers["x-groundwire-search"] == "offered; reason=model_suffix"


def test_by_default_nothing_is_added(proxy: Groundwire) -> None:
    assert not [entry for entry in get(proxy, "any").json()["data"] if entry["id"] in ("m:online", "vendor/m:online")]

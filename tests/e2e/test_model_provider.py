"""`type: model` end to end: a model with search of its own, here one behind another Groundwire, serves `/v1/search`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text


@pytest.fixture(scope="module")
def outer(proxy: Groundwire, config: dict[str, Any]) -> Iterator[Groundwire]:
    providers = [
        {"name": api, "type": "model", "base_url": proxy.url, "options": {"model": "m", "api": api}}
        for api in ("chat", "responses")
    ]
    with Groundwire({**config, "providers": providers}) as running:
        yield running


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_its_citations_are_our_results(outer: Groundwire, model: ModelServer, api: str) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text("- Air scatters blue light [1]."))
    body = {"query": f"why is the sky blue ({api})", "provider": api}
    found = httpx.post(f"{outer.url}/search", json=body, timeout=20).json()
    assert (found["provider"], found["message"]) == (api, "")
    first = found["results"][0]
    assert (first["url"], first["title"]) == (SITE + "sky.md", "Why the sky is blue")
    assert "scatters blue light" in first["snippet"]
    asked = model.requests[-2]["messages"]
    assert asked[-1]["content"] == body["query"]
    assert "You are a search engine." in asked[0]["content"]


def test_a_model_that_names_no_source_has_found_nothing(outer: Groundwire, model: ModelServer) -> None:
    model.script(text("I know that by heart."), text("I do, too."))
    found = httpx.post(f"{outer.url}/search", json={"query": "anything else"}, timeout=20).json()
    assert found["results"] == []
    assert "named no source" in found["message"]

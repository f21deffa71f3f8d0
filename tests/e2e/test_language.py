"""The language of a search: what the client's `Accept-Language` says, and nothing where it says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.search import FakeSearxng

SWISS = "de-CH, en;q=0.5"
QUESTIONS: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": "m", "messages": [{"role": "user", "content": "How does a heat pump work?"}]},
    "responses": {"model": "m", "input": "How does a heat pump work?"},
}


@pytest.fixture
def searxng() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        yield fake


@pytest.fixture
def proxy(model: ModelServer, searxng: FakeSearxng) -> Iterator[Groundwire]:
    config = {
        "upstreams": [{"name": "scripted", "base_url": model.url}],
        "providers": [{"name": "searx", "type": "searxng", "base_url": searxng.url}],
    }
    with Groundwire(config) as running:
        yield running


def post(proxy: Groundwire, path: str, body: dict[str, Any], accepted: str | None) -> httpx.Response:
    headers = {} if accepted is None else {"Accept-Language": accepted}
    return httpx.post(f"{proxy.url}/{path}", json=body, headers=headers, timeout=20)


def languages(searxng: FakeSearxng) -> set[str | None]:
    return {asked.params.get("language") for asked in searxng.asked}


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_model_searches_in_the_language_of_the_client(
    path: str, proxy: Groundwire, model: ModelServer, searxng: FakeSearxng
) -> None:
    for accepted, expected in ((SWISS, "de"), ("*", None), (None, None)):
        searxng.asked.clear()
        model.script(call("web_search", {"query": f"heat pump {accepted}"}), text("It moves heat [1]."))
        answer = post(proxy, path, QUESTIONS[path], accepted)
        assert answer.status_code == 200, answer.text
        assert languages(searxng) == {expected}


def test_a_search_without_a_model(proxy: Groundwire, searxng: FakeSearxng) -> None:
    for more, accepted, expected in (
        ({}, SWISS, "de"),
        ({}, "*", None),
        ({}, None, None),
        ({"language": "fr"}, SWISS, "fr"),
        ({"language": "fr-CA"}, None, "fr"),
        ({"language": None}, SWISS, "de"),
        ({"language": "fr", "country": "CH"}, None, "fr-CH"),
    ):
        searxng.asked.clear()
        answer = post(proxy, "search", {"query": f"heat {more} {accepted}", **more}, accepted)
        assert answer.status_code == 200, answer.text
        assert languages(searxng) == {expected}


@pytest.mark.parametrize("language", ["*", "german", "xx", "d", 5, ["de"], True])
def test_a_language_that_is_none_is_refused(proxy: Groundwire, searxng: FakeSearxng, language: object) -> None:
    answer = post(proxy, "search", {"query": "heat", "language": language}, None)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "language")
    assert searxng.asked == []


def test_what_was_found_in_one_language_is_not_given_for_another(proxy: Groundwire, searxng: FakeSearxng) -> None:
    ages = [post(proxy, "search", {"query": "heat"}, accepted).json()["age"] for accepted in (SWISS, "en", None, "de")]
    assert [age is None for age in ages] == [True, True, True, False]
